"""The method that follows from what is told: every parameter, or adapters over a base that cannot be trained.

A trainer's command says what is trained by what it leaves out: without adapters, frozen parts, soft prompts or a
quantised base it trains every parameter; and 4-bit weights take no gradient, so that what is tuned over them are
adapters. Both are inferred, and count less than any word on the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression, Vocabulary, candidates

__all__ = ["implied_method"]

_SURE: Final = 0.52
_PARTIAL: Final = Expression(
    r"lora|peft|adapter|freez|frozen|p-?tuning|ptv2|pre_seq_len|soft prompt|prompt[- _]?tun|prefix|[48][- ]?bit"
    r"|int[48](?!\d)"
    r"|quant|unsloth|galore|lisa\b|badam|bnb|dreambooth|textual.inversion|controlnet|linear.prob|fix_(?:encoder"
    r"|backbone|embed\w{0,8}|vit)|冻结|量化|部分参数"
)
"""What trains a part of the parameters, or might."""
_FOUR_BIT: Final = Expression(r"load_in_4bit ?[=:] ?[\"']?true|bnb_4bit_compute_dtype ?[=:]")
_TRAINS: Final = Expression(
    r"per_device_train_batch_size|micro_train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps"
    r"|\bfine-?tun\w{1,10}\.(?:py|sh)|openrlhf\.cli\.train_|\btrain_?\w{0,20}\.(?:py|sh)[^\n]{0,80} --"
    r"|full_shard|composer [\w./]{0,40}\.py|ds_train_finetune"
    r"|--(?:actor_)?learning_rate\b|--enable_fsdp|optimizer\.type|\bpre-?train(?:ing)? (?:a|an|the|my|our|llama|gpt"
    r"|bert)"
)
"""What only a trainer is told."""
_LANGUAGE: Final = frozenset({"sft", "pretrain", "dpo", "kto", "simpo", "orpo", "rm", "ppo", "grpo", "rloo", "distill"})


def implied_method(facts: Sequence[Fact], lines: Sequence[Line], words: Vocabulary) -> Fact | None:
    """A fact ``method``: ``qlora`` where a 4-bit base is trained, ``full`` where no part of the model is spoken of."""
    if any(f.name == "method" for f in facts):
        return None
    aims = [f for f in facts if f.name == "objective"]
    if not aims or max(aims, key=lambda f: f.confidence).value not in _LANGUAGE:
        return None
    loaded = next((line for line in candidates(_FOUR_BIT, lines, words) if _FOUR_BIT.search(line.low)), None)
    if loaded is not None:
        return Fact("method", "qlora", loaded.span(), "prose", _SURE)
    if any(_PARTIAL.search(line.low) for line in candidates(_PARTIAL, lines, words)):
        return None
    told = next((line for line in candidates(_TRAINS, lines, words) if _TRAINS.search(line.low)), None)
    return Fact("method", "full", told.span(), "prose", _SURE) if told is not None else None
