"""What engines and ``nvidia-smi`` printed that remedies need."""

from __future__ import annotations

from typing import Final

from oomdoc.evidence import Evidence
from oomkb.frameworks import FRAMEWORKS
from oomkb.frameworks import line as line_of
from oomkb.units import GIB


def engine_max_model_len(evidence: Evidence) -> int | None:
    """The longest context that the engine itself says its cache holds: stated, stored tokens, or in proportion."""
    for signal in evidence.signals:
        data = signal.data
        said = data.get("estimate") or data.get("stored")
        if said is None and data.get("needed_bytes") and data.get("available_bytes") and data.get("length"):
            said = data["length"] * data["available_bytes"] / data["needed_bytes"]
        if said and "kv-cache" in signal.name:
            return int(said)
    return None


def engine_cache_missing_bytes(evidence: Evidence) -> float | None:
    """By how much the cache that the engine found is smaller than one request, as it says."""
    for signal in evidence.signals:
        needed, available = signal.data.get("needed_bytes"), signal.data.get("available_bytes")
        if "kv-cache" in signal.name and needed and available is not None:
            return max(0.0, float(needed) - float(available))
    return None


def engine_free_share(evidence: Evidence) -> float | None:
    """What of the card was free when vLLM started, as it says where that is too little."""
    found = next((s.data for s in evidence.find("vllm-startup-free-too-low")), None)
    return found["free_bytes"] / found["capacity_bytes"] if found and found.get("capacity_bytes") else None


def pipeline_of(evidence: Evidence) -> str | None:
    """The library whose pipeline makes images or video, by the frames of what failed."""
    files = [f.file.replace("\\", "/") for f in (evidence.root.frames if evidence.root is not None else ())]
    makers = (f for f in FRAMEWORKS if f.package and line_of(f.name, "pipeline-offload") is not None)
    return next((f.name for f in makers if any(f"/{f.package}/" in file for file in files)), None)


_MIN_HELD_BYTES: Final = GIB
"""What a desktop holds is less."""


def holders(evidence: Evidence) -> tuple[tuple[int, str, int], ...]:
    """Processes that ``nvidia-smi`` lists with what they hold, in bytes, the largest first."""
    listed = {
        (s.data["pid"], s.data["command"], s.data["used_bytes"])
        for s in evidence.find("nvidia-smi-process")
        if s.data["used_bytes"] >= _MIN_HELD_BYTES
    }
    return tuple(sorted(listed, key=lambda one: -one[2]))
