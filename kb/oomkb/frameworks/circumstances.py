"""What a default depends on: circumstances as they are written in a record, and values that follow from a job.

A circumstance is conditions apart by blanks, all of which must hold: a name of :data:`NAMED` (``lora``); ``.lora`` (the
field is stated); ``objective=dpo|kto`` (it has one of these values, ``-`` where it is open); ``lora.r>0``. An ``!``
before a condition turns it around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from oomkb.memory.engines import static_share
from oomkb.memory.job import Job
from oomkb.units import GIB

_QUANTISED_NOT = (None, "none")


def distributed(job: Job) -> bool:
    """More than one rank."""
    return (job.world or (job.gpus or 1) * (job.nodes or 1)) > 1


def zero(job: Job) -> bool:
    """DeepSpeed ZeRO of any stage."""
    return (job.sharding or "").startswith("zero")


def fsdp(job: Job) -> bool:
    """PyTorch FSDP in any form."""
    return job.sharding in ("fsdp", "fsdp2", "hsdp", "shard-grad-op")


def lora(job: Job) -> bool:
    """Low-rank adapters on a frozen base."""
    return job.method in ("lora", "qlora")


def full(job: Job) -> bool:
    """Every parameter is trained."""
    return job.method == "full"


def quantised(job: Job) -> bool:
    """The base weights are stored in fewer than 16 bits."""
    return job.quant not in _QUANTISED_NOT


def preference(job: Job) -> bool:
    """Objectives that compare with a reference model."""
    return job.objective in ("dpo", "kto")


def rl(job: Job) -> bool:
    """Objectives that generate while training."""
    return job.objective in ("ppo", "grpo")


def large_card(job: Job) -> bool:
    """Cards of 70 GiB or more that are no A100: the larger defaults of vLLM's ``EngineArgs.get_batch_defaults``."""
    return (_card_gib(job) or 0) >= 70 and "a100" not in (job.gpu or "").lower()


NAMED: Final[Mapping[str, Callable[[Job], bool]]] = MappingProxyType(
    {made.__name__: made for made in (distributed, zero, fsdp, lora, full, quantised, preference, rl, large_card)}
)


def circumstance(text: str) -> Callable[[Job], bool]:
    """The predicate that a text of conditions stands for.

    :raises ValueError: for a condition of no such form.
    """
    conditions = [_condition(word) for word in text.split()]
    if len(conditions) == 1:
        return conditions[0]
    return lambda job: all(holds(job) for holds in conditions)


def _condition(word: str) -> Callable[[Job], bool]:
    if word.startswith("!"):
        inner = _condition(word[1:])
        return lambda job: not inner(job)
    if word in NAMED:
        return NAMED[word]
    name, equals, values = word.partition("=")
    if equals:
        wanted = frozenset(values.split("|"))
        return lambda job: _spelt(job.get(name)) in wanted
    name, above, least = word.partition(">")
    if above:
        return lambda job: (job.get(name) or 0) > int(least)
    if word.startswith("."):
        return lambda job: job.get(word[1:]) is not None
    raise ValueError(f"no circumstance: {word}")


def _spelt(value: Any) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _card_gib(job: Job) -> float | None:
    """What one card holds: as stated, or as the catalogue knows it by the card's name."""
    if job.capacity_gib or not job.gpu:
        return job.capacity_gib
    from oomkb.catalog import gpus

    found = gpus.find(job.gpu)
    return found.capacity_bytes / GIB if found else None


def engine_dtype(job: Job) -> str:
    """The 16-bit dtype a DeepSpeed engine holds parameters in."""
    return "fp16" if job.autocast == "fp16" else "bf16"


def training_batch(job: Job) -> int:
    """As many samples as a training step takes."""
    return job.micro_batch or 1


def accumulated_to_16(job: Job) -> int:
    """Steps that make a batch of 16 over all ranks."""
    world = job.world or (job.gpus or 1) * (job.nodes or 1)
    return max(1, -(-16 // ((job.micro_batch or 1) * world)))


def prompt_and_completion(job: Job) -> int:
    """Both lengths together, 512 for one that is open."""
    return (job.prompt_len or 512) + (job.completion_len or 512)


def ppo_models(job: Job) -> list[dict[str, str]]:
    """Models beside the actor: PPO has reference, reward and critic, GRPO a reference."""
    return [
        {"role": role} for role in (("reference", "reward", "critic") if job.objective == "ppo" else ("reference",))
    ]


def adapters_by_storage(job: Job) -> str:
    """``qlora`` on a base that is stored in fewer bits, else ``lora``."""
    return "qlora" if quantised(job) else "lora"


def whole_prompt(job: Job) -> int:
    """VLLM before 0.8 ran a prompt at once, up to 32k tokens; longer ones in chunks of 2048."""
    length = job.get("serving.max_model_len") or job.seq_len or 4096
    return max(length, 2048) if length <= 32768 else 2048


def longest_prompt(job: Job) -> int:
    """Text Generation Inference before 3.0 ran the longest prompt it takes at once (``launcher/src/main.rs``)."""
    return job.prompt_len or job.get("serving.max_model_len") or 4096


def chunk_by_card(job: Job) -> int:
    """SGLang's ``chunked_prefill_size`` where nobody states one."""
    size = _card_gib(job) or 80
    return 2048 if size < 20 else 4096 if size < 60 else 8192 if size < 160 else 16384


def static_share_of_card(job: Job) -> float:
    """SGLang's ``mem_fraction_static`` where nobody states one."""
    chunk = job.get("serving.max_num_batched_tokens") or chunk_by_card(job)
    return static_share((_card_gib(job) or 80) * GIB, chunk, tp=job.tp or 1, pp=job.pp or 1)


def config_of(job: Job) -> Mapping[str, Any]:
    """The model's ``config.json``: as the job describes it, else the catalogue's; empty where neither has one."""
    from oomkb.catalog import models

    if isinstance(job.model, Mapping):
        return job.model
    entry = models.find(job.model) if job.model else None
    return entry.config if entry is not None else {}


def own_context(job: Job) -> int | None:
    """The model's own context, which vLLM holds a cache for unless a length is stated."""
    from oomkb.catalog import models

    return models.context_length(config_of(job))


VALUES: Final[Mapping[str, Callable[[Job], Any]]] = MappingProxyType(
    {
        made.__name__: made
        for made in (
            engine_dtype,
            training_batch,
            accumulated_to_16,
            prompt_and_completion,
            ppo_models,
            adapters_by_storage,
            whole_prompt,
            longest_prompt,
            own_context,
            chunk_by_card,
            static_share_of_card,
        )
    }
)
