"""Which framework can be told what: the features a remedy may ask for.

The table says what a framework's *own settings* can do, not what somebody could code around it. Read from the
frameworks' sources at the versions named beside each entry; ``feature@since`` needs at least that version (where
the version is not known it is taken to be recent). A framework that is not listed is taken to be written in plain
PyTorch and transformers, where everything of the Hugging Face layer is one argument away.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

__all__ = ["has"]

_OPTIMIZERS: Final = "adamw_8bit paged_adamw_8bit paged_adamw adafactor galore_adamw@4.39"
_HF: Final = f"""
micro_batch seq_len grad_ckpt grad_ckpt.offload@5.23 attention fused_ce@4.45 zero zero.offload fsdp fsdp.offload
lora qlora pure_bf16 freeze buckets eval save {_OPTIMIZERS} env
"""

_FEATURES: Final[Mapping[str, str]] = {
    # transformers 4.28-5.23, accelerate 1.14
    "transformers": _HF,
    "accelerate": _HF,
    "fsdp": _HF,
    # TRL 0.7-1.9: Liger losses in DPO/KTO/GRPO, precomputed reference log-probabilities, CPU activations
    "trl": f"""
        {_HF} packing padding_free fused_ce.preference@0.17 fused_ce.rl@0.16 precompute_ref
        offload.activations@0.18 logits_to_keep rollout rollout.sleep@0.23 rollout.separate generations
        completion_len
    """,
    # LLaMA-Factory 0.5-0.9.5: chunked cross-entropy only where the stage needs no logits (pt, sft)
    "llama-factory": f"""
        micro_batch seq_len grad_ckpt grad_ckpt.offload@0.9.0 attention fused_ce@0.9.0 zero zero.offload fsdp
        fsdp.offload lora qlora pure_bf16 freeze buckets eval save {_OPTIMIZERS} env padding_free packing vision
        ref_quant
    """,
    # ms-swift 3-4.5
    "ms-swift": f"""
        micro_batch seq_len grad_ckpt attention fused_ce fused_ce.preference fused_ce.rl zero zero.offload fsdp
        lora qlora freeze buckets eval save {_OPTIMIZERS} env padding_free packing vision sp logits_to_keep
        rollout rollout.sleep rollout.separate rollout.offload generations completion_len move_model_batches
    """,
    # OpenRLHF 0.8-0.11
    "openrlhf": """
        micro_batch seq_len grad_ckpt attention fused_ce zero zero.offload_optimizer lora qlora cp tp packing
        padding_free rollout rollout.sleep rollout.separate ref.offload generations completion_len env
    """,
    # verl 0.3-0.7: FSDP workers; the reference is offloaded always
    "verl": """
        micro_batch seq_len grad_ckpt attention fused_ce@0.3 fused_ce.rl@0.3 fsdp fsdp.offload
        offload.activations sp lora padding_free rollout rollout.sleep rollout.tp generations completion_len env
        save
    """,
    # axolotl 0.4-0.18
    "axolotl": f"""
        micro_batch seq_len grad_ckpt grad_ckpt.offload attention fused_ce fused_ce.preference zero zero.offload
        fsdp fsdp.offload lora qlora pure_bf16 buckets eval save {_OPTIMIZERS} env packing offload.activations
        cp@0.12 precompute_ref
    """,
    # torchtune 0.1-0.6.1
    "torchtune": """
        micro_batch seq_len grad_ckpt offload.activations fused_ce fsdp fsdp.offload lora qlora pure_bf16
        adamw_8bit paged_adamw_8bit packing tp env
    """,
    # Megatron core 0.12-0.19, NeMo 2.4
    "megatron": """
        micro_batch seq_len grad_ckpt grad_ckpt.selective attention fused_ce distributed_optimizer
        offload.activations megatron.offload_optimizer tp sp.megatron cp pp ep env save
    """,
    "nemo": """
        micro_batch seq_len grad_ckpt grad_ckpt.selective attention fused_ce distributed_optimizer tp
        sp.megatron cp pp ep lora env save
    """,
    "unsloth": """
        micro_batch seq_len grad_ckpt grad_ckpt.offload lora qlora adamw_8bit paged_adamw_8bit adafactor env
        eval save
    """,
    # xtuner 0.1.23
    "xtuner": """
        micro_batch seq_len grad_ckpt attention zero zero.offload lora qlora packing sp env
    """,
    "deepspeed": """
        micro_batch zero zero.offload buckets grad_ckpt seq_len lora attention fused_ce env save
    """,
    "lightning": _HF,
    "litgpt": """
        micro_batch seq_len fsdp lora qlora grad_ckpt pure_bf16 env
    """,
    "colossalai": """
        micro_batch seq_len grad_ckpt attention zero.gemini tp pp lora env
    """,
    "vllm": """
        serving serving.utilization serving.max_model_len serving.max_num_seqs serving.max_num_batched_tokens
        serving.kv_dtype serving.eager serving.tp serving.quant env
    """,
    "sglang": """
        serving serving.utilization serving.max_model_len serving.max_num_seqs serving.max_num_batched_tokens
        serving.kv_dtype serving.eager serving.tp serving.quant env
    """,
    # One process whose layers that do not fit stay on the CPU
    "ollama": "serving serving.max_model_len serving.kv_dtype serving.quant env",
    "llama.cpp": "serving serving.max_model_len serving.kv_dtype serving.quant env",
    "lmdeploy": """
        serving serving.utilization serving.max_model_len serving.max_num_seqs serving.kv_dtype serving.tp env
    """,
    "tgi": """
        serving serving.utilization serving.max_model_len serving.max_num_seqs serving.eager serving.tp env
    """,
    "tensorrt-llm": """
        serving serving.utilization serving.max_model_len serving.max_num_seqs serving.kv_dtype serving.tp env
    """,
}
_DEFAULT: Final = f"{_HF} precompute_ref packing padding_free eval save".replace("grad_ckpt.offload@5.23 ", "")
_SERVING_DEFAULT: Final = _FEATURES["vllm"]
_ALIASES: Final = {
    "huggingface": "transformers",
    "llamafactory": "llama-factory",
    "swift": "ms-swift",
    "vllm-ascend": "vllm",
    "open-r1": "trl",
    "megatron-lm": "megatron",
    "nemo-rl": "nemo",
    "easyr1": "verl",
    "pytorch": "transformers",
}
_PACKAGES: Final = {"llama-factory": ("llamafactory", "llama-factory"), "megatron": ("megatron-core",)}


@cache
def _table(framework: str | None, serving: bool) -> Mapping[str, str | None]:
    name = _ALIASES.get(framework or "", framework or "")
    words = _FEATURES.get(name, _SERVING_DEFAULT if serving else _DEFAULT)
    pairs = (word.partition("@") for word in words.split())
    return {feature: since or None for feature, _, since in pairs}


@cache
def _reached(since: str, version: str | None) -> bool:
    if version is None:
        return True
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version) >= Version(since)
    except InvalidVersion:
        return True


def has(framework: str | None, feature: str, versions: Mapping[str, str], *, serving: bool = False) -> bool:
    """Whether the framework (at its version, where known) has a setting for ``feature``."""
    table = _table(framework, serving)
    if feature not in table:
        return False
    since = table[feature]
    if since is None:
        return True
    name = _ALIASES.get(framework or "", framework or "")
    # The Hugging Face layer's "since" counts versions of transformers.
    packages = ("transformers",) if since[0] in "45" else _PACKAGES.get(name, (name,))
    return _reached(since, next((versions[p] for p in packages if p in versions), None))
