"""A conversation that goes from serving to training or back: the machine and the model stay, the rest does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.session import flat
from oomdoc.chat.wording import patterns
from oomdoc.intake.asked import asked_in
from oomkb.frameworks import PLAIN
from oomkb.memory.job import Job

_RE: Final = patterns("purpose")
_SHARED: Final = frozenset(
    {
        *("model", "params_b", "gpu", "capacity_gib", "host_gib", "gpus", "nodes", "world"),
        *("versions", "env", "buckets", "images", "max_pixels", "video_frames"),
    }
)
_TRAINED: Final = ("lora", "qlora", "full", "freeze", "galore")


def turned(turn: str, found: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """What changes with the purpose, where a turn is about the other one; nothing where it stays.

    :param found: what the turn sets; it comes on top.
    """
    job = context.job
    asked = asked_in(turn)
    if job.objective is None or not job.has_model:
        return {}
    said, serves = found.get("objective"), job.objective == "inference"
    if serves:
        told = _RE["train"].search(turn) or (asked.trains and found.get("method") in _TRAINED)
        trains = said not in (None, "inference") or (said is None and told)
        if not trains or _RE["beside"].search(turn):
            return {}
        aim = said or ("pretrain" if asked.scratch else "sft")
    else:
        engine = None if context.has_rollout or asked.engine == PLAIN else asked.engine
        said = None if _RE["for_a_run"].search(turn) else said
        engine = engine if said or not _RE["for_a_run"].search(turn) else None
        if said not in (None, "inference") or not (said or engine) or "method" in found or _RE["train"].search(turn):
            return {}
        aim = "inference"
    earlier = next((one for one in context.earlier if (one.objective == "inference") is not serves), None)
    new: dict[str, Any] = dict.fromkeys(name for name in flat(job) if name not in _SHARED)
    new |= {name: value for name, value in flat(earlier or Job()).items() if name not in _SHARED}
    new |= {"objective": aim, **({"method": "full"} if serves and asked.full else {})}
    if aim == "inference":
        new |= {"framework": asked.engine or new.get("framework")}
    new["planned"] = True if found.get("framework", new.get("framework")) else None
    return new
