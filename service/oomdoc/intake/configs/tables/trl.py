"""TRL: ``SFTConfig(...)``, ``DPOConfig(...)``, ``trl sft`` flags and YAML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import FLAG, FRACTION, INT
from oomdoc.intake.configs.table import Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import bnb
from oomdoc.intake.configs.tables.transformers import TABLE as TRANSFORMERS
from oomdoc.intake.configs.values import flag, number

__all__ = ["TABLE"]

_CALLS: Final = (
    ("SFT", "sft"),
    ("DPO", "dpo"),
    ("GRPO", "grpo"),
    ("KTO", "kto"),
    ("PPO", "ppo"),
    ("ORPO", "orpo"),
    ("CPO", "simpo"),
    ("Reward", "rm"),
    ("RLOO", "grpo"),
    ("GKD", "distill"),
    ("Online", "dpo"),
)
_SCRIPTS: Final = ("sft", "dpo", "grpo", "kto", "ppo", "orpo", "cpo", "reward", "rloo", "gkd", "online")
_SCRIPT_OBJECTIVE: Final = dict(
    zip(_SCRIPTS, ("sft", "dpo", "grpo", "kto", "ppo", "orpo", "simpo", "rm", "grpo", "distill", "dpo"), strict=True)
)


def _read_objective(view: View) -> Iterator[Reading]:
    for stem, objective in _CALLS:
        for suffix in ("Trainer()", "Config()"):
            entry = view.get(stem + suffix)
            if entry is not None:
                yield "objective", objective, entry
                return
    anything = next(iter(view.values()), None)
    for word in view.programs.split():
        base = word.rsplit("/", 1)[-1].removesuffix(".py")
        for part in base.split("_"):
            if part in _SCRIPT_OBJECTIVE and anything is not None:
                yield "objective", _SCRIPT_OBJECTIVE[part], anything
                return


def _read_loss(view: View) -> Iterator[Reading]:
    entry = view.get("loss_type")
    if entry is not None and str(entry.value) in ("chunked_nll", "nll", "dft"):
        yield "fused_ce", entry.value == "chunked_nll", entry


def _write_loss(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {"loss_type": "chunked_nll" if value else "nll"} if "loss_type" in view else None


def _read_vllm(view: View) -> Iterator[Reading]:
    use, mode = view.get("use_vllm"), view.get("vllm_mode")
    on = flag(use.value) if use is not None else None
    if use is not None and on is False:
        yield "rollout.colocated", False, use  # no engine at all, whatever its mode is set to
    elif use is not None and on:
        yield "rollout.engine", "vllm", use
    if mode is not None and on is not False:
        yield "rollout.colocated", str(mode.value).lower() == "colocate", mode


def _write_vllm(view: View, field: str, value: Any) -> dict[str, Any] | None:
    if field == "rollout.colocated":
        return {"vllm_mode": "colocate" if value else "server"}
    return {"use_vllm": True} if value == "vllm" else None


def _read_offload(view: View) -> Iterator[Reading]:
    entry = view.get("activation_offloading")
    if entry is not None and flag(entry.value):
        yield "offload", ["activations"], entry


def _write_offload(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if set(value) <= {"activations"}:
        return {"activation_offloading": bool(value)}
    return None


def _read_reference(view: View) -> Iterator[Reading]:
    """A weight of the divergence of nothing loads no reference, one above nothing does (GRPO, ``grpo_trainer.py``);
    beside adapters the base itself is the reference.
    """
    entry = view.get("beta")
    weight = number(entry.value) if entry is not None else None
    generates = any(name in view for name in ("num_generations", "max_completion_length", "GRPOConfig()"))
    if entry is None or weight is None or not generates:
        return
    adapters = any(flag(view.value(name)) for name in ("use_peft", "use_lora")) or "LoraConfig()" in view
    yield "extra_models", [{"role": "reference"}] if weight > 0 and not adapters else [], entry


TABLE = Table(
    name="trl",
    bases=(TRANSFORMERS,),
    keys=(
        Key("seq_len", ("max_length", "max_seq_length"), INT),
        Key("packing", ("packing", "padding_free"), FLAG),
        Key("prompt_len", ("max_prompt_length",), INT),
        Key("completion_len", ("max_completion_length", "max_new_tokens", "response_length"), INT),
        Key("generations", ("num_generations",), INT),
        Key("rollout.gpu_memory_utilization", ("vllm_gpu_memory_utilization",), FRACTION),
        Key("rollout.tensor_parallel", ("vllm_tensor_parallel_size",), INT),
        Key("rollout.sleep", ("vllm_enable_sleep_mode",), FLAG),
    ),
    groups=(
        Group(("extra_models",), ("beta",), _read_reference, lambda _view, _field, _value: None),
        Group(("objective",), (), _read_objective, lambda v, f, x: None),
        Group(("fused_ce",), ("loss_type",), _read_loss, _write_loss),
        Group(("rollout.engine", "rollout.colocated"), ("use_vllm", "vllm_mode"), _read_vllm, _write_vllm),
        Group(("offload",), ("activation_offloading",), _read_offload, _write_offload),
        bnb(double=("bnb_4bit_use_double_quant", "use_bnb_nested_quant")),
    ),
    neutral=words(
        """
        dataset_name dataset_text_field dataset_train_split dataset_test_split beta eos_token
        reward_model_path sft_model_path reward_funcs num_sample_generations
        local_rollout_forward_batch_size missing_eos_penalty total_episodes vllm_max_model_length
        vllm_max_model_len vllm_server_host vllm_server_port precompute_ref_log_probs
        use_logits_to_keep sync_ref_model kl_coef dataset_config response_template
        assistant_only_loss packing_strategy eval_packing pad_to_multiple_of lora_task_type
        stop_token ds3_gather_for_generation steps_per_generation num_iterations
        generation_batch_size num_ppo_epochs num_mini_batches dataset_num_proc log_completions
        temperature top_p top_k epsilon epsilon_high scale_rewards loss_type model_revision
        chat_template_path cast_lm_head_to_fp32 torch_dtype use_transformers_paged model_init_kwargs
        router_aux_loss_coef precompute_ref_batch_size model_adapter_name ref_adapter_name
        """
    ),
    commands=(
        r"\btrl\b",
        r"\b(?:SFT|DPO|GRPO|KTO|PPO|ORPO|CPO|Reward|RLOO|GKD|BCO|XPO|OnlineDPO|NashMD|PRM)(?:Trainer|Config)\b",
        r"\btrl (?:sft|dpo|grpo|kto)",
    ),
    marks=words(
        """
        dataset_text_field dataset_train_split max_prompt_length vllm_enable_sleep_mode use_peft
        lora_task_type vllm_mode local_rollout_forward_batch_size dataset_num_proc
        use_vllm num_generations max_completion_length
        """
    ),
    hints=words(
        """
        packing max_seq_length num_generations max_completion_length lora_r dataset_name
        """
    )
    | TRANSFORMERS.hints,
)
