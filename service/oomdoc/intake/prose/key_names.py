"""Names of settings that matter for memory, over all frameworks: key -> (fact, kind of value, doubt).

Only for mentions in text that no framework's table could read. ``doubt`` is what makes a more telling key win.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["FLAGS", "KEYS", "TEXT_KEYS"]


def _keys(fact: str, kind: str, doubt: float, names: str) -> dict[str, tuple[str, str, float]]:
    return dict.fromkeys(names.split(), (fact, kind, doubt))


KEYS: Final[dict[str, tuple[str, str, float]]] = {
    **_keys(
        "micro_batch",
        "int",
        0.0,
        "per_device_train_batch_size per_gpu_train_batch_size micro_batch_size "
        "micro_train_batch_size train_micro_batch_size_per_gpu "
        "device_train_microbatch_size batch_per_device batch_per_devices "
        "device_batch_size micro_batch_size_per_gpu ppo_micro_batch_size_per_gpu "
        "batch_size_per_gpu "
        "per_gpu_batch_size local_batch_size batch_size_per_device batch_size_per_core "
        "per_core_batch_size actor_micro_batch_size",
    ),
    **_keys("micro_batch", "int", 0.2, "batch_size bsz bs batch_size_training train_batch_size_per_gpu batchsize"),
    **_keys(
        "grad_accum",
        "int",
        0.0,
        "gradient_accumulation_steps grad_accum grad_accum_steps gradient_accumulation "
        "accumulation_steps accumulate_grad_batches accimulation_steps "
        "accumulative_counts grad_accumulation_steps accumulate_steps grad_acc_steps gradient_acc_steps",
    ),
    **_keys(
        "seq_len",
        "int",
        0.0,
        "cutoff_len max_seq_length max_seq_len seq_length sequence_len seq_len sequence_length block_size",
    ),
    **_keys("seq_len", "int", 0.05, "max_length model_max_length max_len encoder_seq_length max_source_length"),
    **_keys(
        "_prompt_len",
        "int",
        0.0,
        "prompt_max_len max_prompt_length max_prompt_len max_prompt_seq_len max_prompt_tokens",
    ),
    **_keys(
        "_completion_len",
        "int",
        0.0,
        "generate_max_len max_response_length max_completion_length max_answer_seq_len "
        "max_completion_len response_length",
    ),
    **_keys(
        "zero_stage",
        "stage",
        0.0,
        "zero_stage actor_zero_stage deepspeed deepspeed_config strategy zero_optimization_stage ds_config config_file",
    ),
    **_keys("tp", "int", 0.0, "tensor_parallel_size tensor_model_parallel_size tp tp_size"),
    **_keys("tp", "int", 0.1, "vllm_tensor_parallel_size model_parallel_size infer_tp rollout_tp"),
    **_keys("pp", "int", 0.0, "pipeline_parallel_size pipeline_model_parallel_size pp pp_size"),
    **_keys(
        "gpu_memory_utilization", "float", 0.0, "gpu_memory_utilization mem_fraction_static vllm_gpu_memory_utilization"
    ),
    **_keys("max_model_len", "int", 0.0, "max_model_len vllm_max_model_len"),
    **_keys("max_model_len", "int", 0.1, "num_ctx ctx_size max_total_tokens session_len"),
    **_keys(
        "model",
        "model",
        0.0,
        "model_name_or_path model_id_or_path pretrain pretrained_model_name_or_path "
        "base_model actor_model_name_or_path model_path base_model_name "
        "model_path_to_load hf_checkpoint",
    ),
    **_keys("model", "model", 0.1, "model model_name model_id load model_dir base_model_name_or_path path_to_model"),
    **_keys("model", "model", 0.3, "model_type checkpoint_dir pretrained"),
    **_keys("method", "method", 0.0, "finetuning_type train_type sft_type tuner_type peft_type training_mode"),
    **_keys("method", "adapter", 0.0, "use_lora use_peft use_qlora"),
    **_keys("method", "rank", 0.05, "lora_rank lora_r"),
    **_keys("quant", "4bit", 0.1, "load_in_4bit"),
    **_keys("quant", "bits", 0.1, "quantization_bit quant_bits load_in_bit quantization"),
    **_keys("objective", "objective", 0.0, "stage rlhf_type training_type adv_estimator advantage_estimator"),
    **_keys("objective", "preference", -0.03, "pref_loss dpo_loss"),
    **_keys("dtype", "dtype", 0.0, "torch_dtype dtype mixed_precision precision amp_dtype"),
    **_keys("dtype", "bf16", 0.05, "bf16 pure_bf16"),
    **_keys("dtype", "fp16", 0.05, "fp16"),
    **_keys(
        "grad_ckpt",
        "bool",
        0.0,
        "gradient_checkpointing grad_checkpoint activation_checkpointing "
        "checkpoint_activations enable_gradient_checkpointing "
        "actor_gradient_checkpointing enable_activation_checkpointing "
        "recompute_activations use_gradient_checkpointing",
    ),
    **_keys("grad_ckpt", "recompute", 0.0, "recompute_granularity"),
    **_keys(
        "attention",
        "attention",
        0.0,
        "flash_attn attn_impl attn_implementation _attn_implementation use_flash_attn "
        "attention_implementation use_flash_attention_2 flash_attention",
    ),
    **_keys("fsdp", "fsdp", 0.0, "fsdp use_fsdp enable_fsdp"),
    **_keys(
        "fsdp",
        "verl",
        0.1,
        "param_offload grad_offload optimizer_offload fsdp_size reshard_after_forward "
        "fsdp_transformer_layer_cls_to_wrap fsdp_sharding_strategy",
    ),
    **_keys("fsdp", "distributed", 0.0, "distributed_type actor_strategy"),
    **_keys("offload", "adam_offload", 0.0, "adam_offload offload_optimizer offload_optimizer_device"),
    **_keys(
        "gpu_count",
        "devices",
        0.14,
        "cuda_visible_devices ascend_rt_visible_devices hip_visible_devices npu_visible_devices",
    ),
    **_keys(
        "gpu_count",
        "int",
        0.2,
        "nproc_per_node num_processes num_gpus n_gpus_per_node ngpus_per_node "
        "gpus_per_node num_devices n_gpu num_shard",
    ),
    **_keys("_nodes", "int", 0.0, "nnodes num_nodes num_node num_machines"),
}

TEXT_KEYS: Final[dict[str, dict[str, Any]]] = {
    "method": {
        "full": "full",
        "lora": "lora",
        "qlora": "qlora",
        "freeze": "freeze",
        "dora": "lora",
        "galore": "galore",
        "longlora": "lora",
        "adalora": "lora",
        "oft": "oft",
    },
    "objective": {
        "sft": "sft",
        "pt": "pretrain",
        "dpo": "dpo",
        "kto": "kto",
        "rm": "rm",
        "ppo": "ppo",
        "grpo": "grpo",
        "orpo": "orpo",
        "simpo": "simpo",
        "group_norm": "grpo",
        "gkd": "distill",
        "cpt": "pretrain",
        "gspo": "grpo",
        "dapo": "grpo",
        "reinforce_plus_plus": "reinforce++",
        "reinforce": "reinforce++",
        "rloo": "rloo",
        "cpo": "simpo",
    },
    "preference": {"orpo": "orpo", "simpo": "simpo"},
    "dtype": {
        "bf16": "bf16",
        "bfloat16": "bfloat16",
        "fp16": "fp16",
        "float16": "float16",
        "half": "fp16",
        "fp32": "fp32",
        "float32": "float32",
        "float": "fp32",
        "torch.bfloat16": "bfloat16",
        "torch.float16": "float16",
        "torch.float32": "float32",
        "bf16_true": "bf16",
        "bf16_mixed": "bf16",
        "16_mixed": "fp16",
        "16_true": "fp16",
        "amp_bf16": "bf16",
    },
    "attention": {
        "fa2": "flash2",
        "flash_attention_2": "flash2",
        "flash_attn": "flash2",
        "flash_attention": "flash2",
        "true": "flash2",
        "sdpa": "sdpa",
        "eager": "eager",
        "flash_attention_3": "flash3",
        "fa3": "flash3",
        "": "flash2",
        "flash": "flash2",
        "flash2": "flash2",
        "xformers": "xformers",
        "flex_attention": "flex",
        "triton": "flash2",
    },
    "rank": {**{str(r): "lora" for r in range(1, 2049)}},
    "adapter": {"true": "lora", "1": "lora", "": "lora", "'true'": "lora"},
    "4bit": {"true": "nf4", "": "nf4", "1": "nf4"},
    "bits": {"4": "nf4", "8": "int8", "bitsandbytes": "nf4", "awq": "awq-int4", "gptq": "gptq-int4", "fp8": "fp8"},
    "bf16": {"true": "bf16", "": "bf16", "1": "bf16", "yes": "bf16"},
    "fp16": {"true": "fp16", "": "fp16", "1": "fp16", "yes": "fp16"},
    "recompute": {"full": True, "selective": True, "none": False},
    "fsdp": {
        "full_shard": True,
        "full_shard auto_wrap": True,
        "true": True,
        "": True,
        "offload": True,
        "shard_grad_op": True,
        "hybrid_shard": True,
    },
    "verl": {"true": True, "false": True, "1": True, "full_shard": True, "hybrid_shard": True, "-1": True},
    "distributed": {"fsdp": True, "fsdp2": True},
    "adam_offload": {"true": ("optimizer",), "": ("optimizer",), "cpu": ("optimizer",), "1": ("optimizer",)},
}

FLAGS: Final[dict[str, dict[str, Any]]] = {}
