"""Facts to a job document, with each framework's meaning of its precision flags; and job fields under the contract's
own fact names: ``sharding: zero3`` is also ``zero_stage: 3``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from oomdoc.evidence import Fact
from oomdoc.intake.configs.declared import table
from oomdoc.intake.configs.extra_settings import PREFIX
from oomdoc.intake.configs.table import Group, Key, norm
from oomdoc.intake.configs.wordlist import word_set
from oomkb.catalog.model_text import quant_hint
from oomkb.errors import JobError
from oomkb.frameworks import ENGINES, PLAIN, canonical, find, has
from oomkb.frameworks.completion import UNKNOWN
from oomkb.kept import lazy
from oomkb.memory.job import Job
from oomkb.memory.ranks import cards_needed, replicated
from oomkb.memory.setting import ONLINE

_FIELDS: Final = word_set("job_fields")
_NESTED: Final = ("lora.", "rollout.", "serving.", "buckets.", "loop.")


def _set(job: Job, name: str, value: Any) -> Job:
    try:
        return job.with_fields({name: value})
    except JobError:
        return job


def _fill(job: Job, name: str, value: Any) -> Job:
    return job if job.get(name) is not None or value is None else _set(job, name, value)


def to_job(facts: Mapping[str, Fact], framework: str | None = None, versions: Mapping[str, str] | None = None) -> Job:
    """The job that facts state; what they do not state stays open (see :func:`oomkb.frameworks.complete`).

    A fact that describes no possible run is left out. Hints (not stated) are not used, but for the model.
    """
    job = Job()
    name = canonical(framework) or (framework if framework == UNKNOWN else None)
    if name:
        job = _set(job, "framework", name)
    if versions:
        job = _set(job, "versions", dict(versions))
    engine = facts.get("rollout.tensor_parallel")
    # Whether sequences are split has its size from the tensor-parallel group's.
    for fact in sorted(map(_of_the_engine, facts.values()), key=lambda fact: fact.name == "sp"):
        if engine is not None and fact.name == "tp" and (fact.value, fact.span) == (engine.value, engine.span):
            continue  # read off the end of the engine's own key
        if (fact.stated or fact.name == "model") and (fact.name in _FIELDS or fact.name.startswith(_NESTED)):
            job = _set(job, fact.name, fact.value)
    size = facts.get("params_b")
    if job.model is None and size is not None and not size.stated:
        job = _fill(job, "params_b", size.value)
    described = facts.get("model_config")
    if described is not None and (job.model is None or "/" not in str(job.model)):
        job = _set(job, "model", described.value)
    extra = {n.removeprefix(PREFIX): f.value for n, f in facts.items() if n.startswith(PREFIX) and f.stated}
    if extra:
        job = replace(job, extra=MappingProxyType({**job.extra, **extra}))
    env = {n[4:]: str(f.value) for n, f in facts.items() if n.startswith("env.")}
    if env:
        job = _set(job, "env", env)
    return _meaning(_contract(job, facts, name))


_ENGINE_KEY: Final = lazy(
    r"(?:vllm|sglang|(?<!actor_)rollout|infer(?:ence)?|generation)[\w.\-]{0,40}(?:tensor[_-](?:model[_-])?parallel|(?<![a-z])tp(?![a-z]))"
)


def _of_the_engine(fact: Fact) -> Fact:
    """``--vllm_tensor_parallel_size 8`` splits the rollout's engine, not the model that is trained."""
    if fact.name == "tp" and _ENGINE_KEY.search(fact.span.text):
        return replace(fact, name="rollout.tensor_parallel")
    return fact


def _contract(job: Job, facts: Mapping[str, Fact], framework: str | None) -> Job:
    """The contract's own fact names, where the job field is still open."""

    def stated(name: str) -> Any:
        fact = facts.get(name)
        return fact.value if fact is not None and fact.stated else None

    stage = stated("zero_stage")
    if stage is not None:
        job = _fill(job, "sharding", "ddp" if stage == 0 else f"zero{stage}")
    if stated("fsdp"):
        job = _fill(job, "sharding", "fsdp")
    count = stated("gpu_count")
    served = job.with_fields({"objective": "inference"}) if framework in ENGINES else job
    least = cards_needed(served) if replicated(served) else 1
    if isinstance(count, int) and count >= least and job.world is None and job.gpus is None:
        machines = stated("node_count")
        machines = machines if isinstance(machines, int) and machines > 0 and count % machines == 0 else None
        nodes = job.nodes or machines or (-(-count // 8) if count > 16 and count % 8 == 0 else 1)
        job = _set(job, "gpus", max(1, count // nodes))
        if nodes > 1:
            job = _fill(job, "nodes", nodes)
    elif job.world is not None and job.gpus is None and job.nodes is None:
        machines = stated("node_count")
        if isinstance(machines, int) and machines > 1 and job.world % machines == 0:
            job = _fill(_fill(job, "nodes", machines), "gpus", job.world // machines)
    serving = framework in ENGINES or job.objective == "inference"
    for name in ("gpu_memory_utilization", "max_model_len"):
        if stated(name) is None:
            continue
        if name == "max_model_len" and framework == PLAIN and serving:
            job = _fill(job, "seq_len", stated(name))  # ``generate`` has no engine's limit
        elif serving or framework is None:
            job = _fill(job, f"serving.{name}", stated(name))
        elif name == "gpu_memory_utilization":
            job = _fill(job, f"rollout.{name}", stated(name))
    dtype = stated("dtype")
    if dtype in ("bf16", "fp16", "fp32") and job.param_dtype is None and job.autocast is None:
        zero = (job.sharding or "").startswith("zero")
        held = zero or serving or dtype == "fp32" or framework is None or _holds_in_compute_dtype(framework)
        job = _set(job, "param_dtype" if held else "autocast", dtype)
    spoken = facts.get("autocast") or facts.get("dtype")
    if spoken is not None and spoken.origin == "prose" and job.method in ("lora", "qlora") and job.param_dtype is None:
        job = _set(job, "param_dtype", spoken.value)  # what people say of adapters is said of their base
    return job


@cache
def _holds_in_compute_dtype(framework: str) -> bool:
    """Whether the framework's own switch for 16 bits is about the parameters (Megatron's ``--bf16``)."""
    own = table(framework)
    rows: list[Key | Group] = [*own.all_keys(), *own.all_groups()] if own is not None else []
    first = next((row for row in rows if "bf16" in map(norm, row.names)), None)
    return first is not None and "param_dtype" in ((first.field,) if isinstance(first, Key) else first.fields)


def _meaning(job: Job) -> Job:
    """What precision flags mean together with how the run is sharded."""
    zero = (job.sharding or "").startswith("zero")
    if zero and job.autocast in ("bf16", "fp16"):
        # DeepSpeed's engine casts the parameters instead of the forward pass.
        job = _set(_set(job, "param_dtype", job.autocast), "autocast", "none")
    if job.method == "lora" and job.quant is None and isinstance(job.model, str):
        job = _fill(job, "quant", quant_hint(job.model))  # adapters on a checkpoint that is stored so
    if job.quant in ("nf4", "nf4-double") and job.method == "lora":
        job = _set(job, "method", "qlora")
    return job


_LOW_RANK: Final = frozenset({"galore", "apollo"})
"""Optimizers that are ways of training every parameter, too."""
_LOOSE: Final = 0.6
"""How sure scattered keys of an engine are that models are served: RL trainers have the same keys."""


def _renamed(fact: Fact, name: str, value: Any) -> Fact:
    return replace(fact, name=name, value=value)


def _dtype_fact(facts: Mapping[str, Fact]) -> Fact | None:
    autocast, held = facts.get("autocast"), facts.get("param_dtype")
    if autocast is not None and autocast.value in ("bf16", "fp16"):
        return autocast
    return held


def contract_facts(facts: Mapping[str, Fact], framework: str | None) -> Iterator[Fact]:
    """The contract's own names for what job fields say."""
    sharding = facts.get("sharding")
    if sharding is not None:
        word = str(sharding.value)
        if word.startswith("zero"):
            yield _renamed(sharding, "zero_stage", int(word[-1]))
        elif word in ("fsdp", "fsdp2", "hsdp", "shard-grad-op"):
            yield _renamed(sharding, "fsdp", True)
    dtype = _dtype_fact(facts)
    if dtype is not None and dtype.value in ("bf16", "fp16", "fp32"):
        yield _renamed(dtype, "dtype", dtype.value)
    yield from _gpu_counts(facts)
    prompt, answer, objective = (facts.get(name) for name in ("prompt_len", "completion_len", "objective"))
    kind = getattr(find(framework), "kind", "")
    generates = kind == "rl" or "generations" in facts or (objective is not None and objective.value in ONLINE)
    if prompt is not None and answer is not None and generates:
        yield _renamed(answer, "seq_len", prompt.value + answer.value)
    for name in ("gpu_memory_utilization", "max_model_len") if not has(framework, "serving.own_share") else ():
        fact = facts.get(f"serving.{name}") or facts.get(f"rollout.{name}")
        if fact is not None:
            yield _renamed(fact, name, fact.value)
    method, quant = facts.get("method"), facts.get("quant")
    four_bit = quant is not None and quant.value in ("nf4", "nf4-double")
    if method is None and facts.get("lora.r") is not None:
        yield _renamed(facts["lora.r"], "method", "qlora" if four_bit else "lora")
    elif method is None and (low_rank := facts.get("optimizer")) is not None:
        kind = str(low_rank.value).partition("_")[0]
        yield from [_renamed(low_rank, "method", kind)] if kind in _LOW_RANK else []
    if facts.get("objective") is None and framework in ENGINES:
        first = next(iter(facts.values()), None)
        if first is not None:
            sure = min(first.confidence, _LOOSE) if first.origin == "prose" else first.confidence
            yield replace(first, name="objective", value="inference", confidence=sure)


def _gpu_counts(facts: Mapping[str, Fact]) -> Iterator[Fact]:
    world, gpus, nodes = facts.get("world"), facts.get("gpus"), facts.get("nodes")
    if world is not None:
        yield _renamed(world, "gpu_count", world.value)
    elif gpus is not None:
        yield _renamed(gpus, "gpu_count", gpus.value * (nodes.value if nodes is not None else 1))
