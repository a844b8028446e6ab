"""Megatron-LM flags (core 0.19 and earlier), and those of the forks that keep them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import FLAG, INT, word
from oomdoc.intake.configs.table import DROP, Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import mixed_precision
from oomdoc.intake.configs.values import flag

__all__ = ["TABLE"]

_ATTENTION: Final = {
    "flash": "flash2",
    "fused": "flash2",
    "unfused": "eager",
    "local": "eager",
    "auto": "flash2",
    "attnbackend.flash": "flash2",
}


_DETAILS: Final = ("recompute_method", "recompute_num_layers")
_ON_BY_DEFAULT: Final[dict[str, Any]] = {"ms-swift": "none", "llama-factory": None}
"""Frameworks that drive Megatron and recompute where nothing is said, and the word that says no."""


def _read_recompute(view: View) -> Iterator[Reading]:
    entry = view.get("recompute_granularity") or view.get("activations_checkpoint_granularity")
    if entry is not None:
        value = str(entry.value).lower()
        if value == "selective":
            yield "grad_ckpt", "selective", entry
        elif value == "full":
            yield "grad_ckpt", True, entry
        elif value in ("none", "null"):
            yield "grad_ckpt", False, entry
        return
    for name in ("recompute_activations", "checkpoint_activations"):
        short = view.get(name)
        if short is not None and flag(short.value):
            yield "grad_ckpt", "selective" if name == "recompute_activations" else True, short


def _write_recompute(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    drops = {n: DROP for n in ("recompute_activations", "checkpoint_activations") if n in view}
    if value is True:
        out: dict[str, Any] = {"recompute-granularity": "full", **drops}
        if "recompute_method" not in view:
            out["recompute-method"] = "uniform"
        if "recompute_num_layers" not in view:
            out["recompute-num-layers"] = 1
        return out
    if value == "selective":
        return (
            {"recompute-granularity": "selective"}
            | {n: DROP for n in ("recompute_method", "recompute_num_layers") if n in view}
            | drops
        )
    stated = view.first("recompute_granularity", "activations_checkpoint_granularity")
    if value is False and stated is not None and view.framework in _ON_BY_DEFAULT:
        return {stated: _ON_BY_DEFAULT[view.framework]} | {n: DROP for n in _DETAILS if n in view} | drops
    if value is False:
        return {
            n: DROP for n in ("recompute_granularity", "recompute_method", "recompute_num_layers", *drops) if n in view
        }
    return None


def _read_optimizer(view: View) -> Iterator[Reading]:
    entry = view.get("use_distributed_optimizer")
    if entry is not None and flag(entry.value):
        yield "sharding", "distributed-optimizer", entry
    fsdp = view.get("use_megatron_fsdp") or view.get("use_custom_fsdp") or view.get("use_torch_fsdp2")
    if fsdp is not None and flag(fsdp.value):
        yield "sharding", "fsdp", fsdp
    offload = view.get("optimizer_cpu_offload")
    if offload is not None and flag(offload.value):
        yield "offload", ["optimizer"], offload


def _write_optimizer(view: View, field: str, value: Any) -> dict[str, Any] | None:
    if field == "sharding":
        if value == "distributed-optimizer":
            return {"use-distributed-optimizer": True}
        if value in ("ddp", "none"):
            return {"use_distributed_optimizer": DROP} if "use_distributed_optimizer" in view else {}
        return None
    if "optimizer" in value:
        return {"optimizer-cpu-offload": True} if set(value) == {"optimizer"} else None
    return {"optimizer_cpu_offload": DROP} if "optimizer_cpu_offload" in view and not value else None


def _read_sp(view: View) -> Iterator[Reading]:
    entry = view.get("sequence_parallel")
    if entry is not None and flag(entry.value):
        tp = view.get("tensor_model_parallel_size")
        found = INT.read(tp.value) if tp is not None else None
        if found:
            yield "sp", found, entry


def _write_sp(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {"sequence-parallel": True} if value and value > 1 else {"sequence_parallel": DROP}


_NEUTRAL: Final = words(
    """
        global_batch_size num_layers hidden_size ffn_hidden_size num_attention_heads
        num_query_groups group_query_attention max_position_embeddings tokenizer_type
        tokenizer_model data_path split lr min_lr lr_decay_style lr_warmup_fraction weight_decay
        clip_grad adam_beta1 adam_beta2 train_iters train_samples lr_decay_iters lr_warmup_iters
        init_method_std attention_dropout hidden_dropout no_load_optim no_load_rng eval_iters
        eval_interval save_interval log_interval swiglu normalization disable_bias_linear
        untie_embeddings_and_output_weights position_embedding_type rotary_base
        use_rotary_position_embeddings overlap_grad_reduce overlap_param_gather use_mcore_models
        transformer_impl distributed_backend num_workers vocab_size make_vocab_size_divisible_by
        recompute_method recompute_num_layers recompute_modules num_experts moe_router_topk
        moe_aux_loss_coeff moe_grouped_gemm moe_token_dispatcher_type moe_permute_fusion
        moe_shared_expert_overlap num_layers_per_virtual_pipeline_stage
        virtual_pipeline_model_parallel_size accumulate_allreduce_grads_in_fp32
        attention_softmax_in_fp32 ckpt_format expert_tensor_parallel_size
        moe_router_load_balancing_type optimizer_offload_fraction use_precision_aware_optimizer
        exp_avg_dtype exp_avg_sq_dtype num_train_epochs finetune no_save_optim no_save_rng
        padding_free cross_entropy_fusion_impl decoder_first_pipeline_num_layers
        decoder_last_pipeline_num_layers moe_expert_capacity_factor use_cpu_initialization
        """
)

TABLE = Table(
    name="megatron",
    dashes=True,
    keys=(
        Key("micro_batch", ("micro-batch-size",), INT),
        Key("seq_len", ("seq-length", "max-seq-len", "encoder-seq-length"), INT),
        Key("tp", ("tensor-model-parallel-size", "tensor-parallel-size"), INT),
        Key("pp", ("pipeline-model-parallel-size",), INT),
        Key("cp", ("context-parallel-size",), INT),
        Key("ep", ("expert-model-parallel-size",), INT),
        Key("attention", ("attention-backend",), word(_ATTENTION)),
        Key("attention", ("use-flash-attn",), word({"true": "flash2"})),
        Key("fused_ce", ("cross-entropy-loss-fusion",), FLAG),
    ),
    groups=(
        mixed_precision(field="param_dtype"),
        Group(
            ("grad_ckpt",),
            (
                "recompute-granularity",
                "recompute-activations",
                "activations_checkpoint_granularity",
                "recompute-method",
                "recompute-num-layers",
                "checkpoint-activations",
            ),
            _read_recompute,
            _write_recompute,
        ),
        Group(
            ("sharding", "offload"),
            (
                "use-distributed-optimizer",
                "use-megatron-fsdp",
                "use-custom-fsdp",
                "use-torch-fsdp2",
                "optimizer-cpu-offload",
            ),
            _read_optimizer,
            _write_optimizer,
        ),
        Group(("sp",), ("sequence-parallel",), _read_sp, _write_sp),
    ),
    neutral=_NEUTRAL,
    commands=(r"\bpretrain_\w{1,30}\.py", r"\bmegatron\.(?:core|training)", r"\bMegatron-LM\b", r"\bfinetune_gpt\.py"),
    marks=words(
        """
        tensor_model_parallel_size pipeline_model_parallel_size recompute_granularity
        use_distributed_optimizer micro_batch_size transformer_impl use_mcore_models
        """
    ),
    hints=words(
        """
        seq_length num_layers hidden_size num_attention_heads global_batch_size train_iters
        """
    ),
)
