"""Which memory ran out, and whether that was seen or is only predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oomdoc.diagnosis.result import CauseFinding, Verdict
from oomdoc.diagnosis.view import View

__all__ = ["predicted", "verdict_of"]

_VERDICTS: Final[Mapping[str, Verdict]] = {
    "host-ram": "host-oom",
    "shared-memory": "shared-memory",
    "not-oom": "not-oom",
}
_TOLD: Final = 0.5
"""A description without a word of failure is one all the same where a cause stands out like this, by its own signs."""
_NEARLY: Final = 0.95
"""A job predicted to take this part of the card may as well fail."""
_FAILED: Final = (
    r"\boom\b|oom'?s|oom-?kill|out.of.mem|out of (?:v?ram|gpu|cuda|memory)|爆|溢出|炸"
    r"|\bkilled\b|\bsigkill\b|\bdie[sd]?\b"
    r"|bus error|return code|exitcode|outofresources|unable to write|no space left|挂|崩|crash|traceback|报错"
    r"|(?:显存|内存).{0,6}(?:不足|不够|满)|not enough (?:gpu |cuda |host )?memory|insufficient memory"
)
_MENTIONED: Final = (
    r"memory|vram|显存|内存|\bshm\b|does ?n[o']t fit|\bfits?\b|allocat|swap|\bgpus?\b|\berrors?\b|\bfail"
    r"|\bbug\b|no longer"
    r"|exception"
)


def verdict_of(view: View, causes: Sequence[CauseFinding]) -> Verdict:
    """Which memory ran out, or would, if any."""
    evidence = view.evidence
    if evidence.root is None and not evidence.signals and not evidence.facts and not evidence.prose.strip():
        return "no-failure"
    if predicted(view):
        return "device-oom" if (view.fullness or 0.0) >= 1 else "unclear"
    best = causes[0]
    # Sounding like a known question is no sign: any question sounds like some case more than like the others. Telling a
    # known failure word for word is.
    signs = any(message.key.startswith((f"cause.{best.cause}.", "cause.retold")) for message in best.why)
    told = signs and bool(evidence.prose.strip()) and best.probability >= _TOLD
    if evidence.root is None and not told and view.says(f"{_FAILED}|{_MENTIONED}") is None:
        return "no-failure"
    if best.cause in _VERDICTS:
        return _VERDICTS[best.cause]
    if evidence.root is not None and evidence.root.kind == "host":
        return "host-oom"
    return "device-oom" if best.probability >= 0.2 or evidence.root is not None else "unclear"


def predicted(view: View) -> bool:
    """Whether the input tells of no failure, but describes a job that is predicted not to fit, or hardly."""
    if view.evidence.root is not None or view.says(_FAILED) is not None:
        return False
    named = view.stated("model") is not None or view.stated("params_b") is not None
    return named and view.fullness is not None and view.fullness >= _NEARLY
