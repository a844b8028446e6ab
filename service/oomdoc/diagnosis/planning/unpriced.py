"""Where a job cannot be priced: the settings that answer its cause, as instructions without a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from oomdoc.diagnosis.fixes import REMEDIES, Context, Variant
from oomdoc.diagnosis.fixes._job import is_lora
from oomdoc.diagnosis.planning.changes import worded
from oomdoc.diagnosis.planning.moves import variants_on
from oomdoc.messages import say
from oomkb.frameworks import complete
from oomkb.memory.job import Job

ANSWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "logits": ("fused-ce", "micro-batch", "micro-tokens", "seq-len", "completion-len"),
    "activations": ("grad-ckpt", "micro-batch", "micro-tokens", "attention", "seq-len", "completion-len"),
    "attention-scores": ("attention", "micro-batch", "seq-len"),
    "model-states": ("zero", "fsdp", "distributed-optimizer", "optimizer-8bit", "lora", "qlora"),
    "optimizer-init": ("optimizer-8bit", "zero", "offload-optimizer", "lora"),
    "weights-load": ("qlora", "serving-quant", "serving-tensor-parallel"),
    "kv-cache": ("serving-length", "serving-concurrency", "serving-kv-dtype"),
    "rollout-engine": ("rollout-sleep", "rollout-utilization", "rollout-separate"),
    "zero3-gather": ("buckets", "micro-batch"),
    "vision-tokens": ("pixels", "micro-batch"),
    "extra-models": ("reference-precompute", "reference-offload", "reference-adapter", "reference-sharding"),
    "hardware-limit": ("qlora", "zero", "offload-param", "micro-batch"),
    "cuda-graph": ("serving-eager", "serving-concurrency"),
}
"""Cause -> remedies in the order practitioners apply them."""
_MAX_OPTIONS: Final = 4


def _shown(value: Any) -> str:
    """A value as files have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_for(job: Job, context: Context) -> Iterator[tuple[str, str, Variant]]:
    """Cause, remedy and an instruction for each setting that answers the most probable cause."""
    cause = context.causes[0] if context.causes else ""
    filled, said = complete(job), 0
    by_name = {r.name: r for r in REMEDIES}
    for name in ANSWERS.get(cause, ()):
        options = [v for v in variants_on(by_name[name], filled, context) if v.fields]
        # A default that nobody stated (one sample, 2048 tokens) is no setting to advise against.
        options = [
            v for v in options if not (name in ("micro-batch", "seq-len") and set(v.fields) & set(filled.assumed))
        ]
        if not options or said >= _MAX_OPTIONS or (name == "optimizer-8bit" and is_lora(filled)):
            continue  # adapters have next to no optimizer states
        said += 1
        field, value = next(iter(options[-1 if name == "micro-batch" else 0].fields.items()))
        key, old, new = worded(filled, filled, field, value)[0]
        line = (
            f"{key}: {_shown(new)}"
            if field in filled.assumed or old is None
            else f"{key}: {_shown(old)} → {_shown(new)}"
        )
        yield cause, name, Variant(instruction=say("fixes.unpriced.set", title=say(f"fixes.{name}.title"), line=line))
