"""A run as its own text completes it: layers or an engine over cards, ranks that speak, precision, fields spelt out."""

from __future__ import annotations

from typing import Any, Final

from oomdoc.evidence import Evidence
from oomdoc.intake.asked import asked_of, pairs_in
from oomdoc.stated import following, stated_fields
from oomkb.errors import OomdocError
from oomkb.frameworks import PLAIN, described
from oomkb.memory.job import Assumption, Job

SPLIT: Final = "device_map spreads the layers over the cards"
_RANKS: Final = "as many processes as the highest rank in the log needs"
_OVER_CARDS: Final = "an engine splits a model over the cards that it is given"
_SPREAD: Final = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})


def split_by_layers(evidence: Evidence, job: Job) -> Job:
    """A model that ``device_map`` spreads over the cards: one process, every card some of the layers.

    accelerate ``utils/modeling.py``: ``infer_auto_device_map``; transformers ``Trainer.is_model_parallel``.
    """
    settings = (s for d in evidence.documents for s in d.settings if s.key.rpartition(".")[2] == "device_map")
    spread = any(str(s.value).lower() in _SPREAD for s in settings)
    count = job.gpus or 1
    alone = job.world in (None, 1) and job.sharding is None and job.tp is None and job.pp is None
    served = job.objective == "inference" and job.framework not in (None, PLAIN)
    if not spread or not alone or count < 2 or (job.nodes or 1) > 1 or served:
        return job
    split = {"pp": count, "world": count, "dp": 1}
    return job.with_fields({"world": None}).assuming({n: Assumption(v, SPLIT) for n, v in split.items()})


_LAYOUT: Final = ("world", "gpus", "nodes", "dp", "tp", "pp", "cp", "ep")


def ranks_that_speak(evidence: Evidence, job: Job) -> Job:
    """As many processes as the highest rank in the log needs, in the sizes of a machine, where nobody counts them."""
    seen = evidence.facts.get("world")
    if seen is None or seen.stated or seen.value < 2 or job.objective == "inference":
        return job
    if any(job.get(name) is not None for name in _LAYOUT):
        return job
    return job.assuming({"world": Assumption(seen.value, _RANKS)})


def over_its_cards(evidence: Evidence, job: Job) -> Job:
    """An engine that is told of without its command or config: over the cards that are counted, as one starts it."""
    if evidence.documents or job.framework is None or job.gpus is None:
        return job
    split = following({"gpus": job.gpus}, job).get("tp")
    return job.assuming({"tp": Assumption(split, _OVER_CARDS)}) if split else job


def usual_precision(evidence: Evidence, job: Job) -> Job:
    """Mixed precision where the configuration of a failed run is out of sight: nearly all set it, and few say so."""
    return job if evidence.documents else described(job)


def card_by_number(evidence: Evidence, job: Job) -> Job:
    """A card by its bare number, where a failure names none otherwise: ``cuda oom, llama 7b, 3060``."""
    if job.gpu is not None or job.capacity_gib is not None:
        return job
    card = asked_of(evidence).card
    return job if card is None else job.with_fields({"gpu": card})


def spelled_out(job: Job, evidence: Evidence) -> Job:
    """With ``field=value`` in the words of the job document that no reader took (``method=full grad_ckpt=true``)."""
    for name, value in pairs_in(evidence):
        if job.get(name) is None:
            try:
                job = job.with_fields(stated_fields({name: _scalar(value)}))
            except OomdocError:
                continue
    return job


def _scalar(text: str) -> Any:
    """A value as YAML would have it, where that is a plain one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "," in text:
        return text.split(",")
    return int(text) if text.isdecimal() and len(text) < 12 else text
