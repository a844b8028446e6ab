"""The words a job document may use, with the spellings people and frameworks write.

One table per field: canonical word -> spellings that mean it. Spellings are compared in lower case with
``-``, ``_`` and blanks alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from oomkb.errors import JobError
from oomkb.limits import shown
from oomkb.notes import note

__all__ = ["VOCABULARY", "normalise"]

_DTYPES: Final = {
    "fp32": "float32 float torch.float32 32 full",
    "bf16": "bfloat16 torch.bfloat16",
    "fp16": "float16 half torch.float16 16",
}

VOCABULARY: Final[Mapping[str, Mapping[str, str]]] = {
    "objective": {
        "sft": "finetune fine-tuning instruction-tuning",
        "pretrain": "pt pre-training pretraining cpt",
        "dpo": "ipo",
        "orpo": "",
        "simpo": "cpo",
        "kto": "",
        "rm": "reward reward-model reward-modeling",
        "ppo": "rlhf reinforce reinforce++ rloo",
        "grpo": "dapo gspo dr-grpo",
        "distill": "gkd distillation",
        "embedding": "contrastive",
        "diffusion": "",
        "inference": "infer serving serve generate generation",
    },
    "method": {
        "full": "full-finetuning full-parameter",
        "lora": "dora",
        "qlora": "",
        "freeze": "",
        "galore": "",
        "apollo": "",
        "lisa": "",
        "badam": "",
        "oft": "",
        "prompt": "p-tuning ptuning prefix",
        "none": "",
    },
    "quant": {
        "none": "",
        "nf4": "4bit int4 bnb-4bit fp4 nf4-torchao",
        "nf4-double": "nf4-double-quant nf4-dq",
        "int8": "8bit bnb-8bit bnb-int8",
        "fp8": "float8",
        "gptq-int4": "gptq",
        "gptq-int8": "",
        "awq-int4": "awq",
        "mxfp4": "",
    },
    "param_dtype": _DTYPES | {"fp8": "float8", "int8": "", "auto": ""},
    "autocast": _DTYPES | {"none": "no off false", "fp8": ""},
    "optimizer": {
        "adamw": "adam adamw-torch adamw-torch-fused adamw-hf fusedadam deepspeedcpuadam cpuadam adamw-apex-fused",
        "adamw_8bit": "adamw-bnb-8bit adam8bit adamw8bit",
        "adamw_4bit": "adamw-torch-4bit",
        "paged_adamw": "paged-adamw-32bit",
        "paged_adamw_8bit": "pagedadamw8bit",
        "adafactor": "",
        "adafactor_torch": "torch-optim-adafactor torch.optim.adafactor adafactor-torch",
        "sgd": "",
        "sgd_momentum": "",
        "lion": "lion-32bit",
        "lion_pytorch": "lion-pytorch",
        "lion_8bit": "",
        "paged_lion_8bit": "",
        "muon": "",
        "adagrad": "",
        "rmsprop": "",
        "lomo": "adalomo",
        "galore_adamw": "",
        "galore_adamw_8bit": "",
        "apollo_adamw": "",
        "none": "",
    },
    "optimizer_impl": {"foreach": "", "fused": "", "single": "for-loop", "cpu": ""},
    "attention": {
        "eager": "math naive",
        "sdpa": "torch-sdpa",
        "flash2": "flash-attention-2 fa2 flash-attn flash-attn-2 flash flashattention flashattention2 flash-attention",
        "flash3": "flash-attention-3 fa3 flashattention3",
        "flex": "flex-attention",
        "xformers": "",
    },
    "sharding": {
        "none": "no",
        "ddp": "dp multi-gpu",
        "zero1": "zero-1",
        "zero2": "zero-2",
        "zero3": "zero-3",
        "fsdp": "fsdp1 full-shard",
        "fsdp2": "fully-shard",
        "hsdp": "hybrid-shard",
        "shard-grad-op": "shard-grad-op",
        "device-map": "naive-pp",
        "data-parallel": "dataparallel",
        "distributed-optimizer": "",
    },
    "grad_ckpt": {"selective": "", "offload": "unsloth", "true": "full", "false": "none"},
    "loss": {"model": "", "script": "cross-entropy", "script-shifted": "shifted"},
    "offload": {
        "optimizer": "optimizer-state",
        "param": "params parameter parameters",
        "activations": "activation",
        "gradients": "grads",
    },
    "role": {
        "reference": "ref",
        "reward": "rm reward-model",
        "critic": "value",
        "teacher": "",
        "draft": "",
        "judge": "",
    },
}


def _key(word: object) -> str:
    return str(word).strip().lower().replace("_", "-").replace(" ", "-").replace("(", "").replace(")", "")


@cache
def _table(name: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for canonical, spellings in VOCABULARY[name].items():
        for spelling in (canonical, *spellings.split()):
            table.setdefault(_key(spelling), canonical)
    return table


def normalise(name: str, value: Any, *, where: str = "") -> Any:
    """The canonical word for ``value`` in the field ``name``.

    :raises JobError: naming the field and the words it takes.
    """
    if value is False and name in ("autocast", "quant", "sharding"):
        return "none"
    word = _table(name).get(_key(value)) if isinstance(value, str | int | float) else None
    if word is None:
        valid = ", ".join(VOCABULARY[name])
        raise JobError(
            f"{shown(value)} is not known",
            where=where or name,
            hint=f"one of {valid}",
            note=note("job.not-known", value=shown(value), valid=valid),
        )
    return {"true": True, "false": False}.get(word, word) if name == "grad_ckpt" else word
