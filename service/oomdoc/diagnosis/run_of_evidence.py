"""The job of a failed run: what the evidence says of it that no reader of fields took."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from oomdoc.evidence import Evidence
from oomdoc.intake.asked import Asked, asked_of, card_in_question, pairs_in
from oomdoc.stated import following, stated_fields
from oomkb.catalog import gpus
from oomkb.errors import OomdocError
from oomkb.frameworks import PLAIN, described, has, line
from oomkb.memory.job import Assumption, Job
from oomkb.memory.states import GGUF_BYTES

SPLIT: Final = "device_map spreads the layers over the cards"
STAGE_OPEN: Final = "its states are sharded, the stage is not named"
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
    model = evidence.facts.get("model")
    written = bool(evidence.documents) or (model is not None and model.origin in ("command", "code", "config"))
    if written or job.framework is None or job.gpus is None:
        return job
    split = following({"gpus": job.gpus}, job).get("tp")
    return job.assuming({"tp": Assumption(split, _OVER_CARDS)}) if split else job


def with_card_of_the_question(evidence: Evidence) -> Evidence:
    """The card that the question names, where another sentence names another: "you used 8 A100; would 4 A6000 do?"."""
    told, asked = evidence.value("gpu"), card_in_question(evidence)
    named_run = not {"model", "params_b"}.isdisjoint(evidence.facts)
    if (asked_of(evidence).alternatives and named_run) or told is None or evidence.documents or asked is None:
        return evidence
    device = gpus.find(str(told))
    if device is None or device.name == asked["gpu"]:
        return evidence
    facts = {n: fact for n, fact in evidence.facts.items() if n not in ("gpu_count", "capacity_gib", "world", "gpus")}
    facts["gpu"] = replace(facts["gpu"], value=asked["gpu"])
    for name in ("gpu_count", "gpus") if asked.get("gpus") else ():
        facts[name] = replace(facts["gpu"], name=name, value=asked["gpus"])
    return replace(evidence, facts=MappingProxyType(facts))


def of_unknown_stage(evidence: Evidence, job: Job) -> Job:
    """States divided by ZeRO-3 where several processes shard them and the file that says how is out of sight.

    Of the labelled reports that name a stage, 28 name the third and 15 the second; none names the first.
    """
    single = (job.world or (job.gpus or 1) * (job.nodes or 1)) < 2
    split = any((job.get(name) or 1) > 1 for name in ("tp", "pp"))
    if job.sharding is not None or single or split or job.objective == "inference" or not evidence.value("sharded"):
        return job
    return job.assuming({"sharding": Assumption("zero3", STAGE_OPEN)})


def without_foreign_engine(evidence: Evidence, job: Job) -> Job:
    """A stage of ZeRO that prose names is another run's where the framework runs without DeepSpeed (Megatron)."""
    stage = evidence.facts.get("zero_stage")
    apart = has(job.framework, "distributed_optimizer") and not has(job.framework, "zero")
    of_prose = stage is not None and stage.origin == "prose" and (job.sharding or "") in ("zero2", "zero3")
    return job.with_fields({"sharding": None, "offload": None}) if apart and of_prose else job


def run_as_told(evidence: Evidence, job: Job) -> Job:
    """Inference where a failure is only told of and nothing in it is of training: "a 13B on a 3090 runs out"."""
    root, outcome = evidence.root, evidence.outcome
    trained = job.objective or job.method or any(job.get(name) is not None for name in _OF_TRAINING)
    shown = root is not None and (root.requested_bytes or root.frames)  # a message quoted in a sentence shows no place
    told = outcome is not None and outcome.tells_of_shortage and not shown
    if trained or not told or evidence.documents or job.framework is not None:
        return job
    if evidence.value("phase") in _TRAINS_IN or asked_of(evidence, failed=True).trains:
        return job
    return job.assuming({"objective": Assumption("inference", "nothing is said of training")})


_OF_TRAINING: Final = (
    "optimizer",
    "micro_batch",
    "grad_accum",
    "grad_ckpt",
    "sharding",
    "lora",
    "generations",
    "rollout",
)
_TRAINS_IN: Final = frozenset({"backward", "optimizer", "optimizer-init", "loss", "eval", "save", "log-prob"})


def requests_at_once(evidence: Evidence, job: Job) -> Job:
    """With the requests that an engine's own variable lets run at once: each has a cache of the whole context."""
    name = line(job.framework, "parallel")
    if name is None or job.get("serving.concurrency") is not None:
        return job
    counts = [int(value) for key, value in evidence.assigned if key == name.lower() and value.isdecimal()]
    return job.with_fields({"serving.concurrency": counts[0]}) if len(counts) == 1 and counts[0] > 1 else job


def usual_precision(evidence: Evidence, job: Job) -> Job:
    """Mixed precision where the configuration of a failed run is out of sight: nearly all set it, and few say so."""
    return job if evidence.documents else described(job)


def card_by_number(evidence: Evidence, job: Job) -> Job:
    """A card by its bare number, where a failure names none otherwise: ``cuda oom, llama 7b, 3060``."""
    if job.has_card:
        return job
    card = asked_of(evidence).card
    return job if card is None else job.with_fields({"gpu": card})


def set_in_words(evidence: Evidence, job: Job) -> Job:
    """With settings that the words of a failed run name and no reader took: "with 8-bit Adam", "Liger is on"."""
    settings = asked_of(evidence).settings
    found = {
        name: settings[name]
        for name in _IN_WORDS
        if settings.get(name) not in (None, "eager") and job.get(name) is None  # "eager" is a way to serve, too
    }
    return job.with_fields(found) if found else job


_IN_WORDS: Final = ("optimizer", "fused_ce", "packing", "attention", "grad_ckpt", "lora.r", "lora.targets")


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


def of_a_file(job: Job, asked: Asked) -> Job:
    """Weights in a format that llama.cpp runs and nothing trains; a batch beside them is of its prompts' tokens."""
    if asked.quant not in GGUF_BYTES or asked.trains or job.objective is not None:
        return job
    job = job.with_fields({"micro_batch": None})
    return job.assuming({"objective": Assumption("inference", "nothing is said of training")})
