"""verl: Hydra overrides (``actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4``) and its YAML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import DTYPE, FLAG, FRACTION, INT, MODEL, NUMBER, TARGETS, TEXT
from oomdoc.intake.configs.table import Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.values import flag, whole

__all__ = ["TABLE"]

_ESTIMATOR: Final = "algorithm.adv_estimator"
_GRPO: Final = (
    "grpo",
    "rloo",
    "reinforce_plus_plus",
    "remax",
    "opo",
    "gpg",
    "grpo_passk",
    "reinforce_plus_plus_baseline",
)
_OFFLOAD: Final = {
    "optimizer": ("actor.fsdp_config.optimizer_offload", "actor.megatron.optimizer_offload"),
    "param": ("actor.fsdp_config.param_offload", "actor.megatron.param_offload"),
    "activations": ("model.enable_activation_offload",),
}


def _read_objective(view: View) -> Iterator[Reading]:
    entry = view.get(_ESTIMATOR)
    if entry is not None:
        word = str(entry.value).lower().rsplit(".", 1)[-1]
        yield "objective", "grpo" if word in _GRPO or "grpo" in word else "ppo", entry
        return
    if "sft_trainer" in view.programs or "fsdp_sft" in view.programs:
        first = next(iter(view.values()), None)
        if first is not None:
            yield "objective", "sft", first


def _write_objective(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {_ESTIMATOR: {"ppo": "gae", "grpo": "grpo"}[value]} if value in ("ppo", "grpo") else None


def _read_offload(view: View) -> Iterator[Reading]:
    parts, where = [], None
    for part, names in _OFFLOAD.items():
        name = view.first(*names)
        if name is not None and flag(view[name].value):
            parts.append(part)
            where = view[name]
    if where is not None:
        yield "offload", parts, where


def _write_offload(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    out: dict[str, Any] = {}
    megatron = any(".megatron." in n for n in view)
    for part, names in _OFFLOAD.items():
        name = view.first(*names)
        if part in value:
            out[name or names[-1 if megatron else 0]] = True
        elif name is not None and flag(view[name].value):
            out[name] = False
    return out


def _read_strategy(view: View) -> Iterator[Reading]:
    entry = view.get("actor.strategy") or view.get("model.strategy")
    if entry is not None and str(entry.value) in ("fsdp", "fsdp2"):
        yield "sharding", entry.value, entry
    elif entry is not None and str(entry.value) == "megatron":
        yield "sharding", "distributed-optimizer", entry


def _write_strategy(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {"actor.strategy": value} if value in ("fsdp", "fsdp2") else None


def _read_method(view: View) -> Iterator[Reading]:
    entry = view.get("model.lora_rank")
    if entry is not None and whole(entry.value) is not None:
        yield "method", "lora" if (whole(entry.value) or 0) > 0 else "full", entry


def _write_method(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if value == "lora":
        return {"model.lora_rank": whole(view.value("model.lora_rank")) or 32}
    return {"model.lora_rank": 0} if value == "full" else None


_GLOBAL: Final = ("actor.ppo_micro_batch_size", "data.micro_batch_size")


def _ranks(view: View) -> int | None:
    gpus = whole(view.value("trainer.n_gpus_per_node"))
    return gpus * (whole(view.value("trainer.nnodes")) or 1) if gpus else None


def _read_global(view: View) -> Iterator[Reading]:
    """The old key counts the samples of all ranks together."""
    name, ranks = view.first(*_GLOBAL), _ranks(view)
    total = whole(view[name].value) if name is not None else None
    if name is not None and total and ranks and total % ranks == 0:
        yield "micro_batch", total // ranks, view[name]


def _write_global(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name, ranks = view.first(*_GLOBAL), _ranks(view)
    return {name: value * ranks} if name is not None and ranks else None


def _read_reference(view: View) -> Iterator[Reading]:
    """GRPO loads a reference only for a divergence that counts (``need_reference_policy`` in ``ray_trainer.py``); PPO
    a critic, which may be another model than the actor.
    """
    entry, critic = view.get("actor.use_kl_loss"), view.get("critic.model.path")
    estimator = str(view.value(_ESTIMATOR) or "gae").lower()
    own = MODEL.read(critic.value) if critic is not None else None
    if critic is not None and own and estimator == "gae" and own != MODEL.read(view.value("model.path")):
        yield "extra_models", [{"role": "critic", "model": own}], critic
    if entry is not None and "grpo" in estimator and flag(entry.value) is not None:
        wanted = flag(entry.value) or bool(flag(view.value("algorithm.use_kl_in_reward")))
        yield "extra_models", [{"role": "reference", "offload": True}] if wanted else [], entry


_RECOMPUTE: Final = "actor.megatron.override_transformer_config.recompute_granularity"


def _read_recompute(view: View) -> Iterator[Reading]:
    entry = view.get(_RECOMPUTE)
    if entry is not None:
        word = str(entry.value).lower()
        yield "grad_ckpt", "selective" if word == "selective" else word == "full", entry


def _write_recompute(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if _RECOMPUTE not in view:
        return None
    return {_RECOMPUTE: {True: "full", False: None}.get(value, value)}


_ROLES: Final = (
    "actor.",
    "ref.",
    "critic.",
    "critic.model.",
    "reward_model.",
    "reward_model.model.",
    "reward_model.rollout.",
    "rollout.",
    "model.",
    "",
)
_ENGINE: Final = words(
    """
        fsdp_config.param_offload fsdp_config.optimizer_offload fsdp_config.fsdp_size fsdp_config.model_dtype
        fsdp_config.offload_policy fsdp_config.reshard_after_forward fsdp_config.forward_prefetch
        fsdp_config.use_orig_params fsdp_config.wrap_policy.min_num_params fsdp_config.min_num_params
        fsdp_config.mixed_precision.param_dtype fsdp_config.mixed_precision.reduce_dtype
        fsdp_config.mixed_precision.buffer_dtype fsdp_config.dtype fsdp_config.strategy fsdp_config.forward_only
        fsdp_config.entropy_checkpointing fsdp_config.entropy_from_logits_with_chunking fsdp_config.seed
        fsdp_config.use_torch_compile fsdp_config.full_determinism fsdp_config._target_ fsdp_config.cpu_offload
        fsdp_config.offload_params megatron.param_offload megatron.grad_offload megatron.optimizer_offload
        megatron.use_remove_padding megatron.tensor_model_parallel_size megatron.pipeline_model_parallel_size
        megatron.virtual_pipeline_model_parallel_size megatron.context_parallel_size
        megatron.expert_model_parallel_size megatron.expert_tensor_parallel_size
        megatron.use_distributed_optimizer megatron.override_transformer_config.recompute_granularity
        megatron.override_transformer_config.recompute_modules
        megatron.override_transformer_config.recompute_method
        megatron.override_transformer_config.recompute_num_layers lora.target_modules optim.optimizer
        optim.override_optimizer_config.optimizer_offload_fraction
        optim.override_optimizer_config.use_precision_aware_optimizer
        optim.override_optimizer_config.optimizer_cpu_offload entropy_checkpointing
        sum_pi_squared_checkpointing enable_activation_offload forward_micro_batch_size
        forward_micro_batch_size_per_gpu log_prob_micro_batch_size log_prob_micro_batch_size_per_gpu
        micro_batch_size_per_gpu tensor_model_parallel_size pipeline_model_parallel_size data_parallel_size
        expert_parallel_size max_model_len max_num_seqs ulysses_sequence_parallel_size
    """
)
_OF_ROLES: Final = frozenset(role + name for role in _ROLES for name in _ENGINE)
"""Each role has an engine of its own with the same settings; what prices the run is the actor's."""

TABLE = Table(
    name="verl",
    own_prefixes=("actor_rollout_ref.",),
    keys=(
        Key("model", ("model.path", "model.partial_pretrain"), MODEL),
        Key(
            "micro_batch",
            (
                "actor.ppo_micro_batch_size_per_gpu",
                "data.micro_batch_size_per_gpu",
                "actor.micro_batch_size_per_device_for_update",
            ),
            INT,
        ),
        Key("prompt_len", ("data.max_prompt_length",), INT),
        Key("completion_len", ("data.max_response_length",), INT),
        Key("seq_len", ("data.max_length",), INT),
        Key("grad_ckpt", ("model.enable_gradient_checkpointing",), FLAG),
        Key("param_dtype", ("actor.fsdp_config.model_dtype", "model.fsdp_config.model_dtype"), DTYPE),
        Key("packing", ("model.use_remove_padding", "use_remove_padding"), FLAG),
        Key("fused_ce", ("model.use_fused_kernels",), FLAG),
        Key("fused_ce", ("model.use_liger",), FLAG),
        Key("reshard_after_forward", ("actor.fsdp_config.reshard_after_forward",), FLAG),
        Key("lora.r", ("model.lora_rank",), INT),
        Key("lora.alpha", ("model.lora_alpha",), NUMBER),
        Key("lora.targets", ("model.target_modules",), TARGETS),
        Key("gpus", ("trainer.n_gpus_per_node",), INT),
        Key("nodes", ("trainer.nnodes",), INT),
        Key("tp", ("actor.megatron.tensor_model_parallel_size",), INT),
        Key("pp", ("actor.megatron.pipeline_model_parallel_size",), INT),
        Key("cp", ("actor.megatron.context_parallel_size",), INT),
        Key("ep", ("actor.megatron.expert_model_parallel_size",), INT),
        Key("sp", ("actor.ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size"), INT),
        Key("generations", ("rollout.n",), INT),
        Key("rollout.engine", ("rollout.name",), TEXT),
        Key("rollout.gpu_memory_utilization", ("rollout.gpu_memory_utilization",), FRACTION),
        Key("rollout.tensor_parallel", ("rollout.tensor_model_parallel_size",), INT),
        Key("rollout.sleep", ("rollout.free_cache_engine",), FLAG),
    ),
    groups=(
        Group(("objective",), (_ESTIMATOR,), _read_objective, _write_objective),
        Group(
            ("extra_models",),
            ("actor.use_kl_loss", "critic.model.path"),
            _read_reference,
            lambda _view, _field, _value: None,
        ),
        Group(("offload",), tuple(n for names in _OFFLOAD.values() for n in names), _read_offload, _write_offload),
        Group(("sharding",), ("actor.strategy", "model.strategy"), _read_strategy, _write_strategy),
        Group(("method",), ("model.lora_rank",), _read_method, _write_method),
        Group(("micro_batch",), _GLOBAL, _read_global, _write_global),
        Group(("grad_ckpt",), (_RECOMPUTE,), _read_recompute, _write_recompute),
    ),
    prefixes=("actor_rollout_ref.", "policy.", "worker."),
    neutral=_OF_ROLES
    | words(
        """
        data.train_batch_size actor.ppo_mini_batch_size actor.use_dynamic_bsz
        actor.ppo_max_token_len_per_gpu rollout.enforce_eager
        rollout.log_prob_micro_batch_size_per_gpu rollout.log_prob_micro_batch_size
        ref.log_prob_micro_batch_size_per_gpu ref.log_prob_micro_batch_size
        ref.fsdp_config.param_offload critic.ppo_micro_batch_size_per_gpu
        critic.ppo_micro_batch_size critic.model.path critic.model.fsdp_config.param_offload
        critic.model.fsdp_config.optimizer_offload critic.model.use_remove_padding
        critic.model.enable_gradient_checkpointing critic.ulysses_sequence_parallel_size
        rollout.max_num_batched_tokens rollout.max_num_seqs rollout.max_model_len
        rollout.log_prob_max_token_len_per_gpu rollout.log_prob_use_dynamic_bsz
        ref.log_prob_use_dynamic_bsz ref.log_prob_max_token_len_per_gpu critic.use_dynamic_bsz
        critic.ppo_max_token_len_per_gpu critic.forward_max_token_len_per_gpu
        critic.forward_micro_batch_size_per_gpu critic.strategy rollout.enable_chunked_prefill
        rollout.dtype rollout.load_format actor.fsdp_config.fsdp_size
        actor.fsdp_config.forward_prefetch actor.fsdp_config.wrap_policy.min_num_params
        ref.megatron.tensor_model_parallel_size ref.megatron.pipeline_model_parallel_size
        critic.megatron.tensor_model_parallel_size ref.ulysses_sequence_parallel_size
        ref.megatron.param_offload actor.megatron.grad_offload
        critic.megatron.pipeline_model_parallel_size critic.ppo_mini_batch_size
        actor.entropy_checkpointing ref.megatron.expert_model_parallel_size
        critic.megatron.param_offload critic.megatron.optimizer_offload critic.megatron.grad_offload
        ref.strategy reward_model.rollout.gpu_memory_utilization
        reward_model.rollout.tensor_model_parallel_size reward_model.micro_batch_size_per_gpu
        reward_model.micro_batch_size reward_model.max_length
        reward_model.model.fsdp_config.param_offload ref.megatron.context_parallel_size
        actor.megatron.expert_tensor_parallel_size ref.megatron.expert_tensor_parallel_size
        actor.megatron.virtual_pipeline_model_parallel_size
        ref.megatron.virtual_pipeline_model_parallel_size rollout.data_parallel_size
        rollout.expert_parallel_size rollout.pipeline_model_parallel_size
        actor.megatron.override_transformer_config.recompute_method
        actor.megatron.override_transformer_config.recompute_num_layers
        actor.megatron.override_transformer_config.gradient_accumulation_fusion
        actor.fsdp_config.offload_policy ref.fsdp_config.reshard_after_forward
        ref.fsdp_config.forward_prefetch rollout.prompt_length rollout.response_length
        data.max_model_len reward_model.model.use_remove_padding critic.model.lora_rank
        critic.model.target_modules critic.megatron.expert_model_parallel_size
        critic.megatron.context_parallel_size critic.fsdp_config.param_offload ref.strategy
        reward_model.strategy actor.optim.lr
        """
    ),
    commands=(
        r"\bverl\.trainer\b",
        r"\bverl\b",
        r"\brecipe\.\w{1,30}\.main_",
        r"\bmain_(?:ppo|dapo|spin|eval|generation)\b",
        r"\bfsdp_sft_trainer\b",
    ),
    marks=words(
        """
        actor_rollout_ref.actor.ppo_mini_batch_size actor_rollout_ref.rollout.name
        actor_rollout_ref.model.path algorithm.adv_estimator data.max_response_length
        actor_rollout_ref.rollout.gpu_memory_utilization trainer.n_gpus_per_node
        model.partial_pretrain ppo_micro_batch_size_per_gpu ppo_mini_batch_size adv_estimator
        free_cache_engine ulysses_sequence_parallel_size log_prob_micro_batch_size_per_gpu
        max_response_length
        """
    ),
    hints=words(
        """
        data.train_files data.val_files data.train_batch_size trainer.project_name
        trainer.total_epochs
        """
    ),
)
