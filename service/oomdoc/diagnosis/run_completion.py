"""A failed run as its own text completes it: one process of a local engine, layers over cards, ranks that speak."""

from __future__ import annotations

from typing import Any, Final

from oomdoc.diagnosis.planned import LOCAL_ENGINES, blocks_of
from oomdoc.evidence import Evidence
from oomdoc.intake.asked import asked_of
from oomkb.frameworks import described
from oomkb.memory.job import Assumption, Job

SPLIT: Final = "device_map spreads the layers over the cards"
_RANKS: Final = "as many processes as the highest rank in the log needs"
_SPREAD: Final = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})


def locally_served(evidence: Evidence, job: Job) -> Job:
    """A run of llama.cpp or Ollama that failed: one process, weights in 4 bits unless something else is said."""
    own_ollama = any(s.name.startswith("ollama-") for s in evidence.signals)
    if job.framework in LOCAL_ENGINES:
        name = "ollama" if own_ollama else job.framework
        return job.with_fields({"framework": name, "offload": None})  # its layers on the card are called offloaded
    if job.framework is not None or job.objective not in (None, "inference"):
        return job
    asked = asked_of(evidence, failed=True)
    printed = any("ggml" in s.name or "ggml_" in s.span.text or "llama_" in s.span.text for s in evidence.signals)
    own = "ollama" if own_ollama else "llama.cpp" if printed else None
    engine = asked.engine if asked.engine in LOCAL_ENGINES else own
    if engine is None or (asked.trains and not printed):
        return job
    # Its log counts the layers that it puts on the card as offloaded: nothing of the weights goes to the host for it.
    job = job.with_fields({"offload": None})
    stated: dict[str, Any] = {"framework": engine, "objective": "inference"}
    stated |= {"quant": blocks_of(asked.quant)} if asked.quant else {}
    length = job.seq_len or asked.length or evidence.value("max_model_len")
    if length and job.get("serving.max_model_len") is None:
        stated["serving.max_model_len"] = length
    return job.assuming({n: Assumption(v, "the engine that is named") for n, v in stated.items()})


def split_by_layers(evidence: Evidence, job: Job) -> Job:
    """A model that ``device_map`` spreads over the cards: one process, every card some of the layers.

    accelerate ``utils/modeling.py``: ``infer_auto_device_map``; transformers ``Trainer.is_model_parallel``.
    """
    settings = (s for d in evidence.documents for s in d.settings if s.key.rpartition(".")[2] == "device_map")
    spread = any(str(s.value).lower() in _SPREAD for s in settings)
    count = job.gpus or 1
    alone = job.world in (None, 1) and job.sharding is None and job.tp is None and job.pp is None
    served = job.objective == "inference" and job.framework not in (None, "transformers")
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


def usual_precision(evidence: Evidence, job: Job) -> Job:
    """Mixed precision where the configuration of a failed run is out of sight: nearly all set it, and few say so."""
    return job if evidence.documents else described(job)
