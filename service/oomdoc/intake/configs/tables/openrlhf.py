"""OpenRLHF: dashed and dotted flags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import ATTENTION, DTYPE, FLAG, FRACTION, INT, MODEL, NUMBER, TARGETS
from oomdoc.intake.configs.table import DROP, Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import bnb, zero_word
from oomdoc.intake.configs.values import flag, whole

__all__ = ["TABLE"]

_STAGE: Final = ("zero_stage", "ds.zero_stage")
_OFFLOAD: Final = ("adam_offload", "ds.adam_offload")
_CKPT: Final = ("gradient_checkpointing", "actor.gradient_checkpointing_enable", "model.gradient_checkpointing_enable")
_OBJECTIVES: Final = (
    ("train_sft", "sft"),
    ("train_dpo", "dpo"),
    ("train_kto", "kto"),
    ("train_rm", "rm"),
    ("train_ppo", "ppo"),
    ("train_grpo", "grpo"),
    ("train_knowledge_distillation", "distill"),
    ("train_kd", "distill"),
    ("train_prm", "sft"),
)
_ESTIMATOR: Final = ("advantage_estimator", "algo.advantage.estimator")


def _dotted(view: View) -> bool:
    return any(
        "." in k and k.split(".")[0] in ("ds", "train", "data", "rollout", "actor", "vllm", "model") for k in view
    )


def _pick(view: View, names: tuple[str, ...]) -> str:
    return view.first(*names) or (names[1] if _dotted(view) and len(names) > 1 else names[0])


def _read_objective(view: View) -> Iterator[Reading]:
    estimator = view.first(*_ESTIMATOR)
    for mark, objective in _OBJECTIVES:
        if mark in view.programs:
            entry = next(
                (e for e in view.values() if mark in str(e.value) or mark in e.scope), next(iter(view.values()), None)
            )
            if entry is None:
                return
            if objective == "ppo" and estimator and "group" in str(view[estimator].value):
                yield "objective", "grpo", view[estimator]
            elif objective == "dpo" and flag(view.value("ipo")):
                yield "objective", "dpo", entry
            else:
                yield "objective", objective, entry
            return


def _read_zero(view: View) -> Iterator[Reading]:
    name = view.first(*_STAGE)
    if name:
        found = zero_word(whole(view[name].value))
        if found:
            yield "sharding", found, view[name]
    name = view.first(*_OFFLOAD)
    if name and flag(view[name].value):
        yield "offload", ["optimizer"], view[name]


def _write_zero(view: View, field: str, value: Any) -> dict[str, Any] | None:
    if field == "sharding":
        if value in ("ddp", "none"):
            return {_pick(view, _STAGE): 0}
        return {_pick(view, _STAGE): int(str(value)[-1])} if str(value).startswith("zero") else None
    if set(value) - {"optimizer"}:
        return None
    return {_pick(view, _OFFLOAD): True if value else DROP}


def _read_ckpt(view: View) -> Iterator[Reading]:
    name = view.first(*_CKPT)
    if name:
        yield "grad_ckpt", bool(flag(view[name].value)), view[name]


def _write_ckpt(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = view.first(*_CKPT) or (
        "actor.gradient_checkpointing_enable"
        if _dotted(view) and "actor.model_name_or_path" in view
        else "model.gradient_checkpointing_enable"
        if _dotted(view)
        else "gradient_checkpointing"
    )
    return {name: True if value else DROP}


def _read_bf16(view: View) -> Iterator[Reading]:
    entry = view.get("bf16")
    if entry is not None and flag(entry.value):
        yield "param_dtype", "bf16", entry


def _write_bf16(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if _dotted(view):
        return None
    return {"bf16": True if value == "bf16" else DROP} if value in ("bf16", "fp32") else None


def _read_lora(view: View) -> Iterator[Reading]:
    name = view.first("lora_rank", "ds.lora.rank")
    if name:
        rank = whole(view[name].value) or 0
        four = view.first("load_in_4bit", "ds.load_in_4bit")
        yield "method", ("qlora" if four and flag(view[four].value) else "lora") if rank > 0 else "full", view[name]


def _write_lora(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    rank = _pick(view, ("lora_rank", "ds.lora.rank"))
    four = _pick(view, ("load_in_4bit", "ds.load_in_4bit"))
    keep = whole(view.value("lora_rank", "ds.lora.rank")) or 64
    if value == "full":
        return {n: DROP for n in (rank, four) if n in view}
    return (
        {rank: keep} | ({four: True} if value == "qlora" else {four: DROP} if four in view else {})
        if value in ("lora", "qlora")
        else None
    )


def _read_gpus(view: View) -> Iterator[Reading]:
    colocated = view.first("colocate_all_models", "train.colocate_all")
    if colocated and flag(view[colocated].value):
        yield "rollout.colocated", True, view[colocated]
    engines = view.first("vllm_num_engines", "vllm.num_engines")
    if engines and (whole(view[engines].value) or 0) > 0:
        yield "rollout.engine", "vllm", view[engines]
    per_node = view.first("actor_num_gpus_per_node", "actor.num_gpus_per_node")
    nodes = view.first("actor_num_nodes", "actor.num_nodes")
    if per_node and whole(view[per_node].value):
        yield "gpus", whole(view[per_node].value), view[per_node]
    if per_node:
        yield "gpu_count", _all_gpus(view), view[per_node]
    beside = _beside_actor(view)
    if per_node and beside is not None:
        yield "extra_models", beside, view[per_node]
    if nodes and whole(view[nodes].value):
        yield "nodes", whole(view[nodes].value), view[nodes]


def _beside_actor(view: View) -> list[dict[str, Any]] | None:
    """The helper models on the actor's GPUs; ``None`` where all are, or nothing places them."""
    placed = any(_role_gpus(view, role) for role in ("ref", "reward", "critic"))
    if not placed or flag(view.value("colocate_all_models", "train.colocate_all") or False):
        return None
    both = flag(view.value("colocate_actor_ref", "train.colocate_actor_ref") or False)
    return [{"role": "reference"}] if both else []


def _role_gpus(view: View, role: str) -> int:
    per_node = whole(view.value(f"{role}_num_gpus_per_node", f"{role}.num_gpus_per_node")) or 0
    return per_node * (whole(view.value(f"{role}_num_nodes", f"{role}.num_nodes")) or 1)


def _all_gpus(view: View) -> int:
    """GPUs of all roles: those that are not placed together add up."""

    def on(*names: str) -> bool:
        return bool(flag(view.value(*names) or False))

    actor = _role_gpus(view, "actor")
    if on("colocate_all_models", "train.colocate_all"):
        return actor
    critic, reference, reward = (_role_gpus(view, r) for r in ("critic", "ref", "reward"))
    first = max(actor, reference) if on("colocate_actor_ref", "train.colocate_actor_ref") else actor + reference
    second = max(critic, reward) if on("colocate_critic_reward", "train.colocate_critic_reward") else critic + reward
    engines = whole(view.value("vllm_num_engines", "vllm.num_engines")) or 0
    return first + second + engines * (whole(view.value("vllm_tensor_parallel_size", "vllm.tensor_parallel_size")) or 1)


def _write_gpus(view: View, field: str, value: Any) -> dict[str, Any] | None:
    names = {
        "gpus": ("actor_num_gpus_per_node", "actor.num_gpus_per_node"),
        "nodes": ("actor_num_nodes", "actor.num_nodes"),
        "rollout.colocated": ("colocate_all_models", "train.colocate_all"),
    }
    if field == "rollout.colocated":
        return {_pick(view, names[field]): True if value else DROP}
    return {_pick(view, names[field]): value} if field in names else None


TABLE = Table(
    name="openrlhf",
    keys=(
        Key("model", ("pretrain", "actor.model_name_or_path", "model.model_name_or_path"), MODEL),
        Key("micro_batch", ("micro_train_batch_size", "train.micro_batch_size"), INT),
        Key("seq_len", ("max_len", "data.max_len"), INT),
        Key("prompt_len", ("prompt_max_len", "data.prompt_max_len"), INT),
        Key("completion_len", ("generate_max_len", "rollout.max_new_tokens"), INT),
        Key("param_dtype", ("ds.param_dtype", "param_dtype"), DTYPE),
        Key("attention", ("attn_implementation", "ds.attn_implementation"), ATTENTION),
        Key("packing", ("packing_samples", "ds.packing_samples"), FLAG),
        Key("fused_ce", ("use_liger_kernel", "ds.use_liger_kernel"), FLAG),
        Key("lora.r", ("lora_rank", "ds.lora.rank"), INT),
        Key("lora.alpha", ("lora_alpha", "ds.lora.alpha"), NUMBER),
        Key("lora.dropout", ("lora_dropout", "ds.lora.dropout"), NUMBER),
        Key("lora.targets", ("target_modules", "ds.lora.target_modules"), TARGETS),
        Key("tp", ("ds_tensor_parallel_size", "ds.tensor_parallel_size"), INT),
        Key("sp", ("ring_attn_size", "ds.ring_attn_size"), INT),
        Key("generations", ("n_samples_per_prompt", "rollout.n_samples_per_prompt"), INT),
        Key("rollout.gpu_memory_utilization", ("vllm_gpu_memory_utilization", "vllm.gpu_memory_utilization"), FRACTION),
        Key("rollout.tensor_parallel", ("vllm_tensor_parallel_size", "vllm.tensor_parallel_size"), INT),
        Key("rollout.sleep", ("vllm_enable_sleep", "vllm.enable_sleep"), FLAG),
    ),
    groups=(
        Group(("objective",), ("advantage_estimator",), _read_objective, lambda v, f, x: None),
        Group(("sharding", "offload"), (*_STAGE, *_OFFLOAD), _read_zero, _write_zero),
        Group(("grad_ckpt",), _CKPT, _read_ckpt, _write_ckpt),
        Group(("param_dtype",), ("bf16",), _read_bf16, _write_bf16),
        bnb(("load_in_4bit", "ds.load_in_4bit"), ("load_in_8bit",)),
        Group(("method",), ("lora_rank", "ds.lora.rank"), _read_lora, _write_lora),
        Group(
            ("gpus", "nodes", "rollout.colocated", "rollout.engine", "extra_models"),
            (
                "actor_num_gpus_per_node",
                "actor_num_nodes",
                "colocate_all_models",
                "vllm_num_engines",
                "train.colocate_all",
                "actor.num_gpus_per_node",
                "actor.num_nodes",
                "vllm.num_engines",
            ),
            _read_gpus,
            _write_gpus,
        ),
    ),
    neutral=words(
        """
        train_batch_size train.batch_size micro_rollout_batch_size rollout_batch_size
        rollout.micro_batch_size rollout.batch_size max_epochs max_samples dataset input_key
        output_key save_path ckpt_path learning_rate actor_learning_rate critic_learning_rate
        init_kl_coef ref_num_nodes ref_num_gpus_per_node reward_num_nodes reward_num_gpus_per_node
        critic_num_nodes critic_num_gpus_per_node apply_chat_template prompt_data reward_pretrain
        critic_pretrain ref_pretrain flash_attn use_wandb save_steps logging_steps eval_steps
        colocate_actor_ref colocate_critic_reward vllm_sync_backend enforce_eager
        deepspeed_enable_sleep ds.enable_sleep beta zpg ds.zpg grad_accum_dtype ds.grad_accum_dtype
        overlap_comm ds.overlap_comm ring_head_stride normalize_reward load_checkpoint reward_model
        ref_reward_offload use_kl_loss kl_estimator async_train vllm.enforce_eager
        train.dynamic_batch_enable train.max_tokens_per_gpu rollout.max_tokens_per_gpu
        dynamic_filtering enable_prefix_caching vllm.enable_prefix_caching teacher_model
        reward.offload ref.offload aux_loss_coef use_dynamic_batch train_max_tokens_per_gpu
        rollout_max_tokens_per_gpu ref.num_nodes ref.num_gpus_per_node reward.num_nodes
        reward.num_gpus_per_node critic.num_nodes critic.num_gpus_per_node remote_rm_url
        ds.deepcompile best_of_n max_new_tokens
        """
    ),
    commands=(r"\bopenrlhf\b", r"\bOpenRLHF\b", r"\btrain_(?:sft|ppo|dpo|rm|kto|ppo_ray)\.py"),
    marks=words(
        """
        micro_train_batch_size micro_rollout_batch_size adam_offload packing_samples ds.zero_stage
        train.micro_batch_size actor.model_name_or_path vllm_num_engines generate_max_len
        prompt_max_len
        """
    ),
    hints=frozenset(["pretrain", "zero_stage", "max_len", "train_batch_size"]),
)
