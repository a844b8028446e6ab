"""Stated versions: inside a known regression, before an important change, or compatible with a suspected one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oomdoc.diagnosis.regressions import applies, range_of
from oomdoc.diagnosis.result import Feature
from oomdoc.diagnosis.view import View
from oomdoc.messages import say
from oomkb.catalog import gpus
from oomkb.records.versions import version_of

_FEW_VERSIONS: Final = 3
"""Who states at most so many suspects them; a list of the whole environment suspects nothing."""
_FITS_PLAINLY: Final = 0.85
"""Predicted part of the card below which the job should fit, and a regression explains what arithmetic does not."""
_BEFORE: Final[Mapping[str, tuple[int, int]]] = {"torch": (2, 0), "transformers": (4, 36)}
"""Releases that brought fused attention: ``scaled_dot_product_attention`` (PyTorch 2.0 release notes), SDPA as default
for many models (transformers 4.36 release notes)."""


def features(view: View) -> Iterator[Feature]:
    """``regression:*`` and ``old:<package>``."""
    versions = view.evidence.versions
    if 0 < len(versions) <= _FEW_VERSIONS:
        yield Feature("versions:few-stated")
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
    for package, first in _BEFORE.items():
        stated = version_of(versions.get(package, ""))
        if stated is not None and stated.release[:2] < first:
            yield Feature(f"old:{package}", 1.0, say("feature.old", package=package, version=versions[package]))
    device = gpus.find(view.job.gpu) if view.job.gpu else None
    if device is not None and not device.can("flash2"):
        yield Feature("card:without-flash-attention", 1.0, say("feature.no-flash", gpu=device.name))
