"""Stated versions: inside a known regression, or compatible with a suspected one; a card without fused attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.regressions import applies, range_of
from oomdoc.diagnosis.result import Feature
from oomdoc.diagnosis.view import View
from oomdoc.evidence import say
from oomkb.catalog import gpus

_FITS_PLAINLY: Final = 0.85
"""Predicted part of the card below which the job should fit, and a regression explains what arithmetic does not."""


def features(view: View) -> Iterator[Feature]:
    """``regression:*``, and a card without fused attention."""
    for advisory in view.advisories:
        if advisory.case.partition("/")[0] != "version-regression":
            continue
        held = bool(advisory.needs and applies(advisory.needs, view.job))
        found = {"package": advisory.package, "version": advisory.version}
        message = say("cause.version-regression.range", range=range_of(advisory), **found)
        yield Feature("regression:in-range-and-used" if held else "regression:in-range", 1.0, message)
        if held and view.fullness is not None and view.fullness < _FITS_PLAINLY:
            yield Feature("regression:in-range-and-should-fit", 1.0, message)
    if view.suspects and not view.advisories and view.fullness is not None and view.fullness < 1:
        suspect = view.suspects[0]
        message = say("cause.version-regression.suspect", package=suspect.package, range=range_of(suspect))
        yield Feature("regression:suspected", max(view.certainty, 0.2), message)
    device = gpus.find(view.job.gpu) if view.job.gpu else None
    if device is not None and not device.can("flash2"):
        yield Feature("card:without-flash-attention", 1.0, say("feature.no-flash", gpu=device.name))
