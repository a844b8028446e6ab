"""What a default depends on: circumstances as they are written in a record, and values that follow from a job.

A circumstance is conditions apart by blanks, all of which must hold: a name of :data:`NAMED` (``lora``); ``.lora`` (the
field is stated); ``objective=dpo|kto`` (it has one of these values, ``-`` where it is open); ``lora.r>0``. An ``!``
before a condition turns it around.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from inspect import isfunction
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from oomkb.catalog import gpus, models
from oomkb.catalog.model_text import quant_hint
from oomkb.kept import lazy
from oomkb.memory.engines import static_share
from oomkb.memory.job import FIELD_NAMES, Job
from oomkb.memory.ranks import cards_needed, model_parallel
from oomkb.memory.states import GGUF_BYTES
from oomkb.units import GIB, billions_with_experts

_QUANTISED_NOT = (None, "none")
_MIX: Final = lazy(r"[-_.:](i?q[1-8](?:_[a-z0-9]{1,3}){1,2})(?:[-.]gguf)?\Z", re.IGNORECASE)
"""A mix of llama.cpp at the end of a file's name or of a tag."""
_SIXTEEN: Final = lazy(r"(?<![a-z0-9])(?:bf16|fp16|f16|bfloat16)(?![a-z0-9])", re.IGNORECASE)
_UNDER_ADAPTERS: Final = ("nf4", "int8", "gptq-int4", "gptq-int8", "awq-int4")


def _own_functions() -> dict[str, Callable[[Job], Any]]:
    """What is defined so far for all, by name."""
    made = globals().items()
    return {name: f for name, f in made if isfunction(f) and f.__module__ == __name__ and name[0] != "_"}


def distributed(job: Job) -> bool:
    """More than one rank."""
    return (job.world or (job.gpus or 1) * (job.nodes or 1)) > 1


def zero(job: Job) -> bool:
    """DeepSpeed ZeRO of any stage."""
    return (job.sharding or "").startswith("zero")


def quantised(job: Job) -> bool:
    """The base weights are stored in fewer than 16 bits."""
    return job.quant not in _QUANTISED_NOT


def large_card(job: Job) -> bool:
    """Cards of 70 GiB or more that are no A100: the larger defaults of vLLM's ``EngineArgs.get_batch_defaults``."""
    return (_card_gib(job) or 0) >= 70 and "a100" not in (job.gpu or "").lower()


def old_card(job: Job) -> bool:
    """Cards before Ampere, which vLLM's second engine did not run on before 0.10 (``_is_v1_supported_oracle``)."""
    return half_of_card(job) == "fp16"


def adapters(job: Job) -> bool:
    """Something of adapters is stated."""
    return job.lora is not None and any(v is not None for v in (job.lora.r, job.lora.targets, job.lora.alpha))


def unsaid_precision(job: Job) -> bool:
    """Full training with nothing said of its precision: 16 bytes a parameter, as everybody reckons it."""
    plain = job.framework in (None, "transformers", "trl", "accelerate") and job.method in (None, "full")
    return plain and job.objective != "inference" and not zero(job) and not quantised(job)


NAMED: Final[dict[str, Callable[[Job], bool]]] = _own_functions()
"""Circumstances by name: the functions above, and what is a condition on one field."""


def circumstance(text: str) -> Callable[[Job], bool]:
    """The predicate that a text of conditions stands for.

    :raises ValueError: for a condition of no such form.
    """
    return reduce(_both, [_condition(word) for word in text.split()] or [lambda _job: True])


def _both(first: Callable[[Job], bool], second: Callable[[Job], bool]) -> Callable[[Job], bool]:
    return lambda job: first(job) and second(job)


def _condition(word: str) -> Callable[[Job], bool]:
    if word.startswith("!"):
        inner = _condition(word[1:])
        return lambda job: not inner(job)
    if word in NAMED:
        return NAMED[word]
    name, equals, values = word.partition("=")
    if equals:
        wanted = frozenset(values.split("|"))
        if name == "model_type":
            return lambda job: config_of(job).get(name) in wanted
        if name not in FIELD_NAMES:
            return lambda job: _spelt(job.get(name)) in wanted
        value_of = attrgetter(name)
        return lambda job: _spelt(value_of(job)) in wanted
    name, above, least = word.partition(">")
    if above:
        return lambda job: (job.get(name) or 0) > int(least)
    if word.startswith("."):
        return lambda job: job.get(word[1:]) is not None
    raise ValueError(f"no circumstance: {word}")


def _spelt(value: Any) -> str:
    if type(value) is str:
        return value
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


NAMED.update(
    fsdp=circumstance("sharding=fsdp|fsdp2|hsdp|shard-grad-op"),
    lora=circumstance("method=lora|qlora"),
    full=circumstance("method=full"),
    preference=circumstance("objective=dpo|kto"),
    rl=circumstance("objective=ppo|grpo"),
)


def _card_gib(job: Job) -> float | None:
    found = gpus.sized(job.gpu, job.capacity_gib, job.host_gib)
    return found.capacity_bytes / GIB if found else None


def engine_dtype(job: Job) -> str:
    """The 16-bit dtype an engine holds parameters in: the one it computes in."""
    return "fp16" if job.autocast == "fp16" else "bf16"


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
    if isinstance(job.model, Mapping):
        return job.model
    entry = models.find(job.model) if job.model else None
    return entry.config if entry is not None else {}


def own_context(job: Job) -> int | None:
    """The model's own context, which vLLM holds a cache for unless a length is stated."""
    return models.context_length(config_of(job))


def context_by_memory(job: Job) -> int | None:
    """Ollama's ``num_ctx`` where nobody states one, by the memory of all cards (``server/routes.go``)."""
    cards = (_card_gib(job) or 0) * all_cards(job)
    tier = 262144 if cards >= 47 else 32768 if cards >= 23 else 4096
    return min(tier, own_context(job) or tier) if cards else None


def all_cards(job: Job) -> int:
    """GPUs of all machines."""
    return (job.gpus or 1) * (job.nodes or 1)


def ranks_by_machine(job: Job) -> int | None:
    """Stated ranks over the machines."""
    return max(1, job.world // (job.nodes or 1)) if job.world is not None else None


def cards_for_sizes(job: Job) -> int | None:
    """The fewest ranks that the parallel sizes can be laid out on, where those are several."""
    needed = cards_needed(job)
    return needed if needed > 1 else None


def ranks_left(job: Job) -> int:
    """Ranks that the parallel sizes of the model leave."""
    return max(1, (job.world or 1) // model_parallel(job))


def split_over_cards(job: Job) -> int:
    """The tensor-parallel size of a server over all its cards."""
    return largest_split(all_cards(job) // (job.pp or 1))


def largest_split(cards: int) -> int:
    """The largest power of two of cards, by which attention heads divide: of three cards one stays idle."""
    return 1 << (max(1, cards).bit_length() - 1)


def spread_layers(job: Job) -> int | None:
    """Several cards of one machine, of which each holds some of the layers; engines of one process know no ranks."""
    spread = (job.framework or "").lower().startswith(("llama.cpp", "ollama"))
    several = all_cards(job) > 1 and (job.nodes or 1) == 1 and job.tp is None
    return all_cards(job) if spread and several else None


def smallest_group(job: Job) -> int:
    """One sample; TRL counts completions, of which a whole group is the least."""
    return job.generations or 8 if job.objective == "grpo" and job.framework == "trl" else 1


def half_of_card(job: Job) -> str:
    """The 16-bit dtype that a card computes in."""
    device = gpus.find(job.gpu) if job.gpu else None
    return "fp16" if device is not None and not device.can("bf16") else "bf16"


def named_size(job: Job) -> float | None:
    """Billions of parameters as the model's name says them (``Qwen2.5-14B``, ``LFM2-VL-450M``)."""
    return billions_with_experts(job.model if isinstance(job.model, str) else "") or None


def named_quant(job: Job) -> str | None:
    """How the checkpoint stores its weights, as its name says (``Qwen3-32B-AWQ``).

    Whatever is served; of what is trained, forms that adapters are put on.
    """
    name, served = job.model[-200:] if isinstance(job.model, str) else "", job.objective == "inference"
    if not name or not (served or job.method in (None, "lora", "qlora")):
        return None
    if served and (mix := _MIX.search(name)) and mix[1].lower() in GGUF_BYTES:
        return mix[1].lower()
    return hint if (hint := quant_hint(name)) in _UNDER_ADAPTERS or served else None


def stored(job: Job) -> str | None:
    """How the checkpoint that is served stores its weights, as its ``config.json`` says (DeepSeek-V3's is fp8)."""
    if job.objective != "inference" or (isinstance(job.model, str) and _SIXTEEN.search(job.model[-200:])):
        return None
    return models.stored_quant(config_of(job))


def stored_as_mxfp4(job: Job) -> str | None:
    """The same, of models that are trained as they are published, too."""
    return found if (found := stored(job)) == "mxfp4" else None


def left_by_prompt(job: Job) -> int:
    """What the prompt leaves of the whole length, half of it where no prompt's length is stated."""
    length = job.seq_len or 0
    return max(1, length - (job.prompt_len or length // 2))


def usual_length(job: Job) -> int:
    """Tokens of a usual sample, no more than the model's own context."""
    return min(2048, own_context(job) or 2048)


def usual_context(job: Job) -> int:
    """Tokens of a usual request's context, no more than the model's own."""
    return job.seq_len or min(8192, own_context(job) or 8192)


VALUES: Final[Mapping[str, Callable[[Job], Any]]] = MappingProxyType(
    {name: made for name, made in _own_functions().items() if name not in {*NAMED, "circumstance"}}
)
"""The values above, by name."""
