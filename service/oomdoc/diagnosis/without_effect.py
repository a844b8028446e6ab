"""Causes that are a setting without effect: what is written and what the run does differ by what the input shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.accounts import EQUAL, Account, account_of
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence


def is_one_unit(evidence: Evidence) -> bool:
    """Whether FSDP was given the model as one unit: by the failing frame, or by the setting."""
    frames = evidence.root.frames if evidence.root is not None else ()
    by_frame = any("_unsharded_flat_param" in frame.function for frame in frames)
    return by_frame or any(one.reason == ONE_UNIT for one in evidence.inactive)


ONE_UNIT: Final = "inactive.one-unit"
"""``NO_WRAP`` in a configuration of accelerate."""


def gathered_whole(view: View) -> Iterator[Account]:
    """FSDP gathers the whole model at once: it was wrapped as one unit (torch ``distributed/fsdp/_flat_param.py``,
    ``_alloc_padded_unsharded_flat_param``), so that what is sharded saves nothing while it computes.
    """
    wanted = view.bytes_of("requested")
    if not wanted or view.estimate is None or not is_one_unit(view.evidence):
        return
    if any(abs(wanted - width * view.estimate.params) <= EQUAL * wanted for width in (2.0, 4.0)):
        yield from account_of(view, "zero3-gather", "gathered-whole", {"weight_bytes": wanted})


def not_recomputed(view: View) -> Iterator[Account]:
    """Checkpointing is switched on for a model that trains in evaluation mode, which recomputes nothing."""
    found = next((one for one in view.evidence.inactive if one.reason == "inactive.eval-mode"), None)
    if found is not None and view.failure is not None and view.failure.kind == "device" and not view.serving:
        yield from account_of(view, "inactive-setting", "not-recomputed", {"setting": found.setting}, found.span)
