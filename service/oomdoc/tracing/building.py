"""The real model of a job without its weights: built on the meta device, adapted by peft, given fake storages."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

import torch

DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, None: torch.bfloat16}


def build_config(model: dict[str, Any]) -> Any:
    """The transformers config of a ``config.json``."""
    from transformers import AutoConfig

    fields = {k: v for k, v in model.items() if k not in ("model_type", "name")}
    return AutoConfig.for_model(model["model_type"], **fields)


def build_model(job: dict[str, Any]) -> Any:
    """The model on the meta device, in the dtype that its parameters are held in."""
    from transformers import AutoModelForCausalLM

    _grouped_products_of_any_dtype()
    config = build_config(job["model"])
    attention = {"eager": "eager", "sdpa": "sdpa"}.get(job.get("attention") or "sdpa", "sdpa")
    # Weights are made in the wanted dtype directly, as from_pretrained leaves them.
    with torch.device("meta"):
        make: Any = AutoModelForCausalLM.from_config
        model = make(config, attn_implementation=attention, dtype=DTYPES[job.get("param_dtype")])
    model.config.use_cache = False
    return model


@cache
def _grouped_products_of_any_dtype() -> None:
    """Products of experts in fp32: CUDA has them, torch's sizes without values are given for bf16 alone."""
    sizes: Any = import_module("torch._meta_registrations")
    plain: Any = sizes._meta_grouped_mm_common

    def any_dtype(a: Any, b: Any, **rest: Any) -> Any:
        like = [torch.empty_strided(t.shape, t.stride(), dtype=torch.bfloat16, device="meta") for t in (a, b)]
        out = plain(*like, **rest)
        return torch.empty_strided(out.shape, out.stride(), dtype=a.dtype, device="meta")

    def grouped(a: Any, b: Any, **rest: Any) -> Any:
        wide = rest.get("scale_a") is None and a.dtype != torch.bfloat16
        return (any_dtype if wide else plain)(a, b, **rest)

    sizes._meta_grouped_mm_common = grouped


def adapt(model: Any, job: dict[str, Any]) -> Any:
    """The model with the job's adapters."""
    from peft import LoraConfig, get_peft_model

    lora = job["lora"]
    targets = lora.get("targets") or "all-linear"
    config = LoraConfig(
        r=lora.get("r") or 8,
        lora_alpha=lora.get("alpha") or 16,
        lora_dropout=lora.get("dropout") or 0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
        use_dora=bool(lora.get("dora")),
        modules_to_save=job.get("modules_to_save"),
        task_type="CAUSAL_LM",
    )
    with torch.device("meta"):
        wrapped = get_peft_model(model, config, autocast_adapter_dtype=lora.get("dtype", "fp32") == "fp32")
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:  # made on the meta device, they missed PEFT's cast to the base's dtype
            parameter.data = parameter.data.to(DTYPES[lora.get("dtype", "fp32")])
    return wrapped


def materialise(model: Any, device: str) -> Any:
    """Give every parameter and buffer a (fake) storage on ``device``; tied ones stay tied."""
    made: dict[int, Any] = {}
    for module in model.modules():
        for kind in (module._parameters, module._buffers):
            for name, old in kind.items():
                if old is None:
                    continue
                if id(old) not in made:
                    new = torch.empty(old.shape, dtype=old.dtype, device=device)
                    made[id(old)] = torch.nn.Parameter(new, old.requires_grad) if kind is module._parameters else new
                kind[name] = made[id(old)]
    return model


def prepare(job: dict[str, Any]) -> Any:
    """The model as a trainer has it before the first step: checkpointed and adapted where the job is."""
    model = build_model(job)
    if job.get("grad_ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if job.get("method") == "lora" or job.get("lora"):
        if job.get("grad_ckpt"):
            model.enable_input_require_grads()
        model = adapt(model, job)
    model.train()
    return model
