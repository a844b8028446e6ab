"""The run that a question or a plan is about: what is open is filled as a careful person starts.

A failed run is completed with its framework's own defaults; of a run that nobody started there is none to explain, and
the best answer is about the mildest usual form of it that fits.
"""

from __future__ import annotations

from typing import Any, Final

from oomdoc.diagnosis.forms import (
    BASE,
    batch_at_once,
    counts_for,
    first_that_fits,
    forms_of_sides,
    machines_of,
    offloading,
    over_quantized_base,
    sharded,
    split_as_stated,
)
from oomdoc.diagnosis.run_of_evidence import of_a_file, spelled_out
from oomdoc.evidence import Evidence
from oomdoc.intake.asked import Asked, asked_of
from oomdoc.intake.outcomes import OTHER_SUBJECT
from oomkb.catalog import gpus, models
from oomkb.dataclass import dataclass
from oomkb.frameworks import LAUNCHERS, complete, has, min_compute
from oomkb.memory.device import capacity_bytes_of
from oomkb.memory.job import Assumption, Job
from oomkb.memory.setting import ONLINE
from oomkb.memory.states import GGUF_BYTES
from oomkb.pricing import device_of
from oomkb.units import GIB

_SCRIPTS: Final = 4
"""Settings from which a pasted config or command is what would be started, its framework's defaults included."""
_TRAINED_ONLY: Final = ("micro_batch", "grad_accum", "grad_ckpt", "optimizer", "lora")
_TRAINED: Final = frozenset({*_TRAINED_ONLY, "lora.r", "sharding", "packing", "fused_ce", "offload", "generations"})
_COUNTED: Final = "the fewest that hold it"
_GROUP: Final = 8
"""Completions of one prompt that are usual (TRL ``GRPOConfig.num_generations``)."""
_SAYS_NO_SIZE: Final = frozenset({"phase", "objective", "framework"})
_HARDWARE: Final = frozenset({"gpu", "gpu_count", "capacity_gib", "node_count", "host_gib", *_SAYS_NO_SIZE})
_RUN: Final = frozenset({"gpu", "gpu_count", "capacity_gib", "micro_batch", "seq_len", "max_model_len", "zero_stage"})
LOCAL: Final = ("ollama", "llama.cpp")
_PER_REQUEST: Final = "ollama"  # its context is each request's; llama.cpp's slots share theirs (src/llama-context.cpp)
_METHODS: Final = ("full", "lora", "qlora")
_OWN_CONTEXT: Final = ("serving.whole_context", "serving.own_context")


@dataclass(frozen=True, slots=True)
class Choice:
    """The planned run, priced, with what is asked of it."""

    job: Job
    """As stated, with what the question decides marked as assumed."""
    asked: Asked
    careful: bool


def is_planned(evidence: Evidence) -> bool:
    """Whether nothing ran: a question or a plan."""
    return evidence.outcome is not None and evidence.outcome.kind == "question"


def wants_figure(evidence: Evidence) -> bool:
    """Whether a question says anything of a run or a card, and asks about memory or a size of it."""
    asked, name = asked_of(evidence), evidence.outcome.name if evidence.outcome is not None else ""
    of_a_run = name == "memory-question" or asked.trains or asked.serves or bool(evidence.documents)
    if name == OTHER_SUBJECT or (not of_a_run and _HARDWARE.issuperset(evidence.facts)):
        return False  # a card alone, and nothing asked of its memory
    if asked.wanted != "fit" or evidence.documents:
        return True
    described = asked.capacity_gib is not None or asked.trains or not _SAYS_NO_SIZE.issuperset(evidence.facts)
    sized = asked.card is not None or not _RUN.isdisjoint(evidence.facts)
    return described and (asked.of_memory or bool(asked.alternatives) or sized)


def put_off(evidence: Evidence) -> bool:
    """Whether an engine that runs put requests back because its cache was full: slower, and no failure."""
    return evidence.root is None and next(evidence.find("vllm-preempted", "sglang-retract"), None) is not None


def serves(evidence: Evidence, job: Job) -> bool:
    """Whether an engine that takes a share of the card is named."""
    return any(has(name, "serving.utilization") for name in (asked_of(evidence).engine, job.framework) if name)


def asks_why_held(evidence: Evidence, job: Job) -> bool:
    """Whether the question is why an engine that runs holds its share of the card."""
    return asked_of(evidence).wanted == "reserved" and serves(evidence, job)


def careful_job(evidence: Evidence, job: Job) -> bool:
    """Whether open fields are filled carefully: not where a whole config or command says what would be started."""
    if asked_of(evidence).wanted == "length" and job.get("serving.max_model_len") is None and job.seq_len is None:
        return True  # the context that the engine takes unless told is no answer to how long it may be
    # A launcher's or DeepSpeed's file says nothing of what the trainer is given.
    own = [document for document in evidence.documents if document.framework not in (*LAUNCHERS, "deepspeed")]
    if any(has(document.framework, "serving.whole_context") and document.form == "shell" for document in own):
        return False  # its command is whole without a setting: the context is then the model's own, and must fit
    written = sum(len(document.settings) for document in own)
    return job.framework is None or written < _SCRIPTS


def planned_run(evidence: Evidence, job: Job) -> Choice:
    """The run that a question is about."""
    asked = asked_of(evidence)
    careful = careful_job(evidence, job)
    job = split_as_stated(spelled_out(job, evidence))
    name = job.model if isinstance(job.model, str) else ""
    if name.isalpha() and job.params_b is None and models.find(name) is None:
        job = job.with_fields({"model": None})  # a family, of which the question leaves the size open
    job = over_quantized_base(_purposed(of_a_file(job, asked), asked, written=bool(evidence.documents)), asked)
    job = _mixed(job, evidence, asked)
    if not careful:
        return Choice(job, asked, careful)
    if asked.wanted != "length" and (
        asked.own_context or any(has(d.framework, f) for d in evidence.documents for f in _OWN_CONTEXT)
    ):
        job = _of_engine_s_length(job)
    return Choice(_mixed(chosen_run(job, asked), evidence, asked), asked, careful)


def chosen_run(job: Job, asked: Asked) -> Job:
    """The run with what a question leaves open: the first that fits of what it compares, the mildest form."""
    return _chosen(_first_side(_uncounted(job, asked), asked), asked)


def _of_engine_s_length(job: Job) -> Job:
    """With the context that the engine takes where a file or the words leave it out, rather than a usual one."""
    own, name = complete(job), "serving.max_model_len"
    if job.objective != "inference" or job.get(name) is not None or own.get(name) is None:
        return job
    return job.assuming({name: own.assumed[name]})


def _first_side(job: Job, asked: Asked) -> Job:
    """The job as the first of the compared alternatives that fits: the answer is about it, the others stand beside."""
    sides = forms_of_sides(job, asked)
    if not (sides and job.has_model) and not any(one.get("model") or one.get("params_b") for _, one in sides):
        return job  # none of them can be priced
    first = first_that_fits(job, [fields for _, fields in sides])[0]
    named = next(set(side.fields) for side, fields in sides if fields is first) | {
        n for n, v in first.items() if v is None
    }
    job = job.with_fields({n: v for n, v in first.items() if n in named})
    return job.assuming({n: Assumption(v, _SHARED) for n, v in first.items() if n not in named})


_SHARED: Final = "several cards share the states"


def _uncounted(job: Job, asked: Asked) -> Job:
    """One card where the question is how many: that is the card's name, not a count; nor are those of one machine."""
    alone = (job.gpus or job.world or 0) in (1, asked.per_machine) and (job.nodes or 1) == 1
    return job.with_fields({"gpus": None, "world": None}) if asked.wanted == "cards" and alone else job


def locally_served(evidence: Evidence, job: Job) -> Job:
    """A run of llama.cpp or Ollama that failed: one process, weights in 4 bits unless something else is said."""
    own_ollama = any(s.name.startswith("ollama-") for s in evidence.signals)
    if job.framework in LOCAL:
        name = "ollama" if own_ollama else job.framework
        return job.with_fields({"framework": name, "offload": None})  # its layers on the card are called offloaded
    if job.framework is not None or job.objective not in (None, "inference"):
        return job
    asked = asked_of(evidence, failed=True)
    printed = any("ggml" in s.name or "ggml_" in s.span.text or "llama_" in s.span.text for s in evidence.signals)
    own = "ollama" if own_ollama else "llama.cpp" if printed else None
    engine = asked.engine if asked.engine in LOCAL else own
    if engine is None or (asked.trains and not printed):
        return job
    # Its log counts the layers that it puts on the card as offloaded: nothing of the weights goes to the host for it.
    job = job.with_fields({"offload": None})
    stated: dict[str, Any] = {"framework": engine, "objective": "inference"}
    stated |= {"quant": blocks(asked.quant)} if asked.quant else {}
    length = job.seq_len or asked.length or evidence.value("max_model_len")
    if length and job.get("serving.max_model_len") is None:
        stated["serving.max_model_len"] = length
    return job.assuming({n: Assumption(v, "the engine that is named") for n, v in stated.items()})


def blocks(quant: str) -> str:
    """Four bits in the words of these engines, which know neither bitsandbytes nor AWQ."""
    return "q4_k_m" if quant in ("nf4", "awq-int4", "gptq-int4", "int4") else "q8_0" if quant == "int8" else quant


_SIXTEEN_BITS: Final = ("bf16", "fp16")


def _mixed(job: Job, evidence: Evidence, asked: Asked) -> Job:
    """Sixteen bits named in a question about full training mean mixed precision, unless it says "pure"; about adapters
    they are the frozen base's.
    """
    dtype, held = evidence.facts.get("dtype"), job.param_dtype
    if job.objective == "inference" or job.method not in (None, "full", "lora", "qlora"):
        return job
    if job.method in ("lora", "qlora"):
        based = dtype is not None and dtype.origin == "prose" and held is None and job.autocast in _SIXTEEN_BITS
        return job.assuming({"param_dtype": Assumption(job.autocast, BASE)}) if based else job
    if asked.pure:
        named = job.autocast if job.autocast in _SIXTEEN_BITS else "bf16"
        return job.with_fields({"param_dtype": named}) if held is None else job
    stated = "param_dtype" in evidence.facts or evidence.documents or job.framework is not None
    return job if stated or held not in _SIXTEEN_BITS else job.with_fields({"autocast": held, "param_dtype": None})


def _purposed(job: Job, asked: Asked, *, written: bool) -> Job:
    """Serving or training, and how the weights are stored, where the words say it.

    :param written: whether a config or command states the context: an engine then starts with the cache of one such
        request, however many are to come.
    """
    many = asked.concurrency is not None and job.get("serving.concurrency") is None
    slots = _PER_REQUEST in (job.framework, asked.engine)
    many = many and (slots or not (written and job.get("serving.max_model_len") is not None))
    split = (job.sp or 1) > 1  # samples over ranks, as no engine does
    told = split or any(job.get(name) is not None for name in _TRAINED_ONLY) or job.method not in (None, "none")
    tells = told or asked.scratch or (job.sharding or asked.settings.get("sharding")) is not None
    if asked.wanted == "cache" and job.objective in (None, "sft") and not asked.trains:
        job = job.with_fields(
            {"objective": "inference", "method": None}
        )  # whatever "full 128k" may have been taken for
    if job.objective is None and not asked.trains and (asked.infers or not tells):
        job = job.assuming({"objective": Assumption("inference", "nothing is said of training")})
    if asked.card is not None and not job.has_card:
        job = job.with_fields({"gpu": asked.card})
    if asked.capacity_gib is not None and not job.has_card:
        counted = {"gpus": asked.cards} if asked.cards and job.gpus is None and job.world is None else {}
        job = job.with_fields({"capacity_gib": asked.capacity_gib, **counted})
    job = offloading(_with_answers(job, asked, written=written))
    job = _of_length(_named(job, asked), asked, written=written)
    if job.objective == "inference":
        job = job.with_fields({"serving.concurrency": asked.concurrency}) if many else batch_at_once(job)
        if asked.servers and (job.gpus or job.world or 1) == 1:
            device = device_of(job)
            each = device.capacity_bytes / asked.servers / GIB if device is not None else None
            job = job.with_fields({"capacity_gib": each})
        if not written and not runs_on(job.framework, job):
            job = job.with_fields({"framework": None})
        if job.framework is None and (chosen := _engine_for(job, asked)) is not None:
            job = job.assuming({"framework": chosen})
        elif asked.engine is not None and not written and runs_on(asked.engine, job):  # a key of another's is no engine
            job = job.with_fields({"framework": asked.engine})
        if job.framework is None and asked.quant in GGUF_BYTES:
            job = job.assuming({"framework": Assumption("llama.cpp", "its files are stored so")})
    elif job.method is None and job.lora is None and job.quant is None and (asked.full or asked.scratch):
        pretrains = asked.scratch and job.objective is None
        job = job.with_fields({"method": "full", **({"objective": "pretrain"} if pretrains else {})})
    alone = job.rollout is None or (job.rollout.engine is None and job.rollout.colocated is None)
    if job.objective in ONLINE and alone and asked.engine in ("vllm", "sglang"):
        beside: dict[str, Any] = {"engine": asked.engine, "colocated": True}
        if job.get("rollout.gpu_memory_utilization") is None:
            beside["gpu_memory_utilization"] = asked.settings.get("serving.gpu_memory_utilization", _ENGINE_SHARE)
        job = job.assuming({f"rollout.{n}": Assumption(v, "an engine beside the trainer") for n, v in beside.items()})
    rollout = job.rollout
    if rollout is not None and rollout.colocated is not False and rollout.tensor_parallel is None and not written:
        why = "so that the engine's weights leave room for a cache"
        job = job.assuming({"rollout.tensor_parallel": Assumption(_engine_split(job), why)})
    if job.objective == "inference" and job.quant is None and asked.quant is not None and job.param_dtype is None:
        quant = blocks(asked.quant) if job.framework in LOCAL else asked.quant
        if quant == "int4":
            quant = "nf4" if job.framework == "transformers" else "awq-int4"
        job = job.with_fields({"quant": quant})
    return job


def _with_answers(job: Job, asked: Asked, *, written: bool) -> Job:
    """With the lengths of prompts and answers, where rollouts are made."""
    compared = {side.fields.get("objective") for side in asked.alternatives}
    if (job.objective in ONLINE or not compared.isdisjoint(ONLINE)) and job.completion_len is None:
        answer, both = asked.completion, asked.request_length
        prompt = both - answer if both and answer and both > answer else None
        job = job.with_fields({"completion_len": answer, "prompt_len": job.prompt_len or prompt}) if answer else job
    whole = (job.prompt_len or 0) + (job.completion_len or 0)
    alone = job.objective in ONLINE and job.completion_len and not written and (job.seq_len or 0) <= whole
    return job.with_fields({"seq_len": None}) if alone else job  # the answer's length alone is no sample's


def runs_on(engine: str | None, job: Job) -> bool:
    """Whether an engine is built for the job's card, as far as both are known."""
    device = device_of(job)
    capability = device.compute_capability if device is not None else None
    return capability is None or capability[0] + capability[1] / 10 >= min_compute(engine)


def _engine_for(job: Job, asked: Asked) -> Assumption | None:
    """The engine where the question names none that the card runs; on a Mac, llama.cpp."""
    if asked.engine is not None and not runs_on(asked.engine, job):
        instead = "vllm" if runs_on("vllm", job) else "llama.cpp"
        return Assumption(instead, f"{asked.engine} is not built for such a card")
    if asked.engine is not None:
        return None
    device = device_of(job)
    if device is not None and device.vendor == "apple":
        return Assumption("llama.cpp", "what runs on a Mac")
    return None


def _named(job: Job, asked: Asked) -> Job:
    """With the settings that the question names and no reader took; more than eight cards are several machines."""
    closed = {"seq_len", "gpus", "nodes", "capacity_gib", "serving.concurrency", *("prompt_len", "completion_len")}
    closed |= {"quant", "method", "objective", *(_TRAINED if job.objective == "inference" else ())}
    share = "gpu_memory_utilization"
    beside = {f"serving.{share}": f"rollout.{share}"} if job.objective in ONLINE else {}
    for given, value in asked.settings.items():
        name = beside.get(given, given)  # an engine beside a trainer serves its rollouts
        if name not in closed and job.get(name) is None:
            job = job.with_fields({name: value})
    compared = any("gpus" in side.fields for axis in asked.axes for side in axis)
    return job.with_fields(machines_of(job.gpus or 0)) if job.nodes is None and not compared else job


def _engine_split(job: Job) -> int:
    """Over how many cards the generation engine is spread, so that its weights leave room for a cache."""
    entry = models.find(job.model) if isinstance(job.model, str) else None
    device = gpus.find(job.gpu) if job.gpu else None
    size = 2.0 * (entry.params if entry is not None and entry.params else (job.params_b or 0.0) * 1e9)
    capacity = capacity_bytes_of(job, device)
    whole = job.gpus or job.world or 1
    if capacity is None:
        return 1
    fits = (n for n in (1, 2, 4, 8) if n >= whole or size / n <= _WEIGHTS_OF_SHARE * _ENGINE_SHARE * capacity)
    return min(next(fits, 8), whole)


_ENGINE_SHARE: Final = 0.4
"""Share of the card that a generation engine beside a trainer is given where nobody says."""
_WEIGHTS_OF_SHARE: Final = 0.6


def _of_length(job: Job, asked: Asked, *, written: bool) -> Job:
    """With the length that is asked about; of a server for several at once, with that of a usual request."""
    served = job.objective == "inference"
    if served and asked.concurrency and asked.request_length and not written:
        return job.with_fields(dict.fromkeys(("seq_len", "serving.max_model_len"), asked.request_length))
    lengths = ("seq_len", "serving.max_model_len", "prompt_len", "completion_len")
    length = asked.length or (asked.request_length if served else None)
    if asked.target_length is not None and job.objective not in ONLINE:
        job = job.with_fields({"serving.max_model_len" if served else "seq_len": asked.target_length})
    elif length is not None and all(job.get(n) is None for n in lengths):
        job = job.with_fields({"seq_len": length})
    context = job.get("serving.max_model_len")
    if served and job.seq_len is not None and context is None:
        return job.with_fields({"serving.max_model_len": job.seq_len})
    return job


def _chosen(job: Job, asked: Asked) -> Job:
    """The mildest of the usual forms that fits, among the fields that the question leaves open."""
    counts = _counts(job, asked)
    if job.objective == "inference":
        spread = [{"gpus": count, "tp": count} for count in counts]
        fewest = first_that_fits(job, spread)[0] if spread else {}
        return job.assuming({n: Assumption(v, _COUNTED) for n, v in fewest.items()})
    forms: list[dict[str, Any]] = [{}]
    plain = job.objective in (None, "sft", "dpo") and job.sharding is None and job.optimizer is None
    if job.method is None and job.quant is None and job.lora is None and plain:
        forms = [{"method": method} for method in (_METHODS if job.has_card else ("lora",))]
    if counts:
        forms = [{**form, "gpus": count} for form in forms for count in counts]
    if job.objective == "grpo" and job.micro_batch is None:
        group = job.generations or _GROUP
        forms = [{**form, "micro_batch": group >> n} for form in forms for n in range(4) if group >> n]
    if job.sharding is None and job.tp is None and job.pp is None and (counts or (job.gpus or job.world or 1) > 1):
        forms = [f for form in forms for f in sharded(form, job)]
    if forms == [{}]:
        return job
    best = first_that_fits(job, forms)
    why = {
        "method": "the mildest that fits" if best[1] else "the least that can be tuned",
        "micro_batch": "the largest part of a group that fits" if best[1] else "the smallest part of a group",
        "gpus": _COUNTED,
        "sharding": _SHARED,
    }
    return job.assuming({n: Assumption(v, why[n]) for n, v in best[0].items() if v is not None})


def _counts(job: Job, asked: Asked) -> tuple[int, ...]:
    """Numbers of cards to try, where the question is how many are needed."""
    named = job.gpus is None and job.world is None and job.has_card
    counts = counts_for(job)
    if asked.per_machine and job.objective != "inference":
        counts = tuple(count for count in counts if count % asked.per_machine == 0)
    return counts if asked.wanted == "cards" and named else ()


def counts_of_sides(job: Job) -> tuple[int, ...]:
    """Numbers of cards to try for each of the compared runs, where the question is how many are needed."""
    return counts_for(job) if counted(job) else ()


def counted(job: Job) -> bool:
    """Whether the number of cards is what the question asks for and was worked out."""
    gpus = job.assumed.get("gpus")
    return gpus is not None and gpus.why == _COUNTED
