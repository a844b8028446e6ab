"""In which phase of a job it failed: from the frames, else from what was logged last.

``load engine-init optimizer-init forward loss backward optimizer-step eval generate save rollout weight-sync unknown``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from oomdoc.evidence import Frame
from oomdoc.intake.sieve import Expression

__all__ = ["phase_of_frames", "phase_of_log"]

_I: Final = re.IGNORECASE | re.ASCII
# Contexts: once inside, what is called from there belongs to them. The first that matches wins.
_CONTEXTS: Final[tuple[tuple[str, Expression], ...]] = tuple(
    (phase, Expression(text, _I))
    for phase, text in (
        (
            "save",
            r"\bsave_pretrained|save_ckpt|_state_dict_utils(?!\.py\W{1,4}_(?:pre|post)_load)"
            r"|(?<!load_)(?<!_)\bstate_dict\(\)"
            r"|_full_pre_state_dict|save_model|save_checkpoint|_save_to_state_dict"
            r"|_save_checkpoint|torch\.save\b|consolidat\w{0,12}|full_optim_state_dict"
            r"|get_state_dict\b|undo_layout|_gather_state|model_checkpointing"
            r"|save_16bit|merge_and_unload|on_save\b|save_only_model|dist_checkpointing/(?:strategie"
            r"s|serialization)",
        ),
        (
            "eval",
            r"evaluation_loop|prediction_loop|prediction_step|\bevaluate\b"
            r"|nested_concat|nested_gather|pad_across_processes|\bvalidation_step"
            r"|eval_step|\bdo_eval|_maybe_log_save_evaluate|compute_metrics|\ball_eval\b|\bevaluator\.\w"
            r"|\bsimple_evaluate"
            r"|/evaluat(?:ion|or)s?[/.]|\bvalidate\b|\bval_step",
        ),
        (
            "weight-sync",
            r"update_weights?(?:_from|_in)|sync_weights|broadcast_to_vllm"
            r"|_broadcast_to|load_weights_from_tensor|resume_memory_occupation"
            r"|wake_up",
        ),
        (
            "engine-init",
            r"profile_run|determine_num_available_blocks|determine_available_memory"
            r"|_dummy_run|_dummy_sampler_run|_initialize_kv_caches|initialize_cache"
            r"|initialize_kv_cache|kv_cache_manager|from_engine_args|init_device"
            r"|capture_model|compile_or_warm_up|capture_cuda_?graph|_capture"
            r"|CudaGraphRunner|init_memory_pool|EngineCore\w{0,8}__init__"
            r"|init_engine|create_engine|warm_?up\b|Warmup|LLMEngine|AsyncLLM\b"
            r"|prepare_vllm_engine|(?:model_runner|(?<!model_)worker|scheduler|tp_worker)\.py.{0,40}__init__"
            r"|MemoryPool|alloc_memory_pool",
        ),
        (
            "optimizer-init",
            r"initialize_optimizer_states|_configure_zero_optimizer|LowLevelZeroOptimizer"
            r"|setup_optimizer|create_optimizer\b|_configure_optimizer|zero_optim_wrapper"
            r"|stage_1_and_2\.py.{0,30}__init__|stage3\.py.{0,30}(?:__init__"
            r"|_create_fp32|_setup_for_real|initialize_optimizer)|deepspeed\.initialize"
            r"|build_optimizer|_create_fp32_partitions|fp32_flat|_prepare_deepspeed"
            r"|load_optimizer|_load_optimizer",
        ),
        (
            "optimizer-step",
            r"optimizer\.step\(|optimizer_step|_use_grad|_multi_tensor_adam"
            r"|_foreach_|_single_tensor_adam|_init_group|optim/\w{1,30}\.py.{0,20} (?:step"
            r"|_?adamw?|_init_group)\b|hybrid_adam|fused_adam|take_model_step"
            r"|_take_model_step|_optimizer_step|\bstep_and_update|exp_avg\w{0,3}\.(?:sqrt|mul_|lerp_)|\.addcdiv_\(",
        ),
        (
            "load",
            r"from_pretrained|load_state_dict|_load_pretrained|load_checkpoint"
            r"|_load_state_dict|load_model\b|set_module_tensor_to_device|load_weights"
            r"|caching_allocator_warmup|dispatch_model|create_and_replace"
            r"|load_in_\dbit|dataloader\.py|safetensors|torch\.load|restore_checkpoint"
            r"|_initialize_affine_weight|(?:model|modeling_\w{1,40}|transformer)\.py __init__|init_empty"
            r"|_materialize|create_weights|convert_and_load|fsdp2_load_full"
            r"|run_sft\(model_args|quantize_\dbit|init_model\b|build_model\b"
            r"|(?:Distributed|FullySharded)DataParallel\(|\bFSDP\(|fully_shard\(|\b_wrap_model\b|accelerator\.prepare\("
            r"|_pre_load_state_dict|_sync_module_states"
            r"|load_base_model|_init_model|prepare_model_for_(?:kbit|int8)",
        ),
        (
            "generate",
            r"generate_sequences|\.generate\(|\bgenerate\b|_sample\b|greedy_search"
            r"|beam_search|sample_token|compute_logprobs|_get_prompt_logprobs"
            r"|sampler\.py|execute_model|run_busy_loop|event_loop_(?:normal|overlap)|unwrap_model_for_generation"
            r"|generate_step"
            r"|_beam|chat\b|stream_chat|rollout",
        ),
        (
            "backward",
            r"\.backward\(|\bbackward\b|run_backward|_engine_run_backward"
            r"|backward_step|update_policy.{0,2}backward",
        ),
    )
)
_LOSS: Final = Expression(
    r"cross_entropy|ForCausalLMLoss|loss_function|fixed_cross|log_softmax"
    r"|logsumexp|entropy_from_logits|log_?probs?\b|logprobs|_loss_step"
    r"|compute_loss|loss_fct|get_batch_logps|selective_log|dpo_loss"
    r"|\bloss_fn|loss_func|calculate_log_probs|\.logits\.float|concatenated_forward.{0,40}lo"
    r"gits|_get_per_token_logps|DistributedLogprob|vocab_parallel",
    _I,
)
_FORWARD: Final = Expression(
    r"\bforward\b|_call_impl|modeling_\w{1,40}\.py|scaled_dot_product"
    r"|softmax|matmul|\bmodel\(|_prepare_decoder_attention|attn|mlp"
    r"|training_step|train_step|pre_forward|all_?gather|linear\.py"
    r"|activations?\.py|rotary|self_attention|dot_product_attention|apply_sdpa|_pre_forward|_forward\("
    r"|\w{1,60}_forward\b"
    r"|compute_ref_log_prob",
    _I,
)
_REMOTE: Final = Expression(r"compute_(?:ref_)?log_probs?\b|forward_micro_batch", _I)
"""Passes of RL trainers that only name the loss's input: whether it is the loss is for the frames inside to say."""
_FIRST_STATE: Final = re.compile(
    r"exp_avg(?:_sq)?['\"]?\] ?= ?torch\.zeros|zeros_like.{0,40}(?:exp_avg"
    r"|preserve_format)",
    _I,
)


def phase_of_frames(frames: Sequence[Frame]) -> str | None:
    """The phase that a traceback (outermost frame first) shows; ``None`` where no frame tells."""
    texts = [f"{frame.file} {frame.function} {frame.code}" for frame in frames]
    lows = [text.lower() for text in texts]
    whole = "\n".join(lows)
    seen = [phase for phase, pattern in _CONTEXTS if pattern.may_match(whole) and _any(pattern, texts, lows)]
    inner = None
    for text, low in zip(texts, lows, strict=True):
        if _REMOTE.may_match(low) and _REMOTE.search(text):
            inner = "forward"
        elif _LOSS.may_match(low) and _LOSS.search(text):
            inner = "loss"
        elif _FORWARD.may_match(low) and _FORWARD.search(text):
            inner = "forward" if inner is None or not _generic(text) else inner
    last_load = bool(texts) and "load" in seen and inner is None
    for phase in seen:
        if phase == "load" and inner is not None and not last_load and not _ends_in_load(texts):
            continue
        if phase == "backward" and not _any(_BACKWARD, texts, lows):
            continue
        if (
            phase == "generate"
            and inner == "loss"
            and not any("generate" in t or "sampler" in t or "logprobs" in t for t in texts)
        ):
            continue
        return phase
    return "load" if inner is None and _places_model(lows) else inner


_MOVED: Final = re.compile(
    r"module\.py\W{1,4}(?:_apply|convert|to|cuda|half|float)\b|\bt\.to\(|param_applied = fn\(|model\w{0,8}\.(?:to|cuda"
    r"|half"
    r"|float)\("
)
_BACK: Final = re.compile(r"offload|onload|sleep|wake|swap|load_\w{0,12}to_gpu|move_\w{0,12}to_\w{0,6}gpu|reload")


def _places_model(lows: Sequence[str]) -> bool:
    """Whether a whole module is being moved or cast at the end, and not one that was there before."""
    return any(map(_MOVED.search, lows[-2:])) and not any(map(_BACK.search, lows))


_BACKWARD: Final = Expression(
    r"\.backward\(|run_backward|autograd/__init__\.py|accelerator\.backward"
    r"|backward_step| backward\b",
    _I,
)


def _any(pattern: Expression, texts: Sequence[str], lows: Sequence[str]) -> bool:
    return any(pattern.may_match(low) and pattern.search(text) for text, low in zip(texts, lows, strict=True))


def _generic(text: str) -> bool:
    """Frames of plumbing inside which the loss is computed as well as the layers."""
    return bool(re.search(r"nn/(?:modules|functional)|_tensor\.py|utils/_|performance\.py|_call_impl", text))


def _ends_in_load(texts: Sequence[str]) -> bool:
    pattern = dict(_CONTEXTS)["load"]
    return any(pattern.search(text) for text in texts[-4:])


_LOG: Final[tuple[tuple[str, Expression], ...]] = tuple(
    (phase, Expression(text, _I))
    for phase, text in (
        (
            "optimizer-init",
            r"Using DeepSpeed \w{0,10} ?Optimizer|Building extension module \w{0,4}cpu_adam"
            r"|Time to load \w{0,4}cpu_adam|cpu_adam op|Creating (?:fp16|bf16"
            r"|torch)\w{0,10} ?(?:ZeRO|unfused)|initialize_optimizer|Initializing optimizer states"
            r"|(?:Before|After) creating (?:fp16|fp32|bf16) partitions|(?:Before|After) initializ\w{1,4} optimizer"
            r"|ZeRoOffload initialize \[end"
            r"|Adam Optimizer #0",
        ),
        (
            "engine-init",
            r"gpu_memory_utilization|KV cache|# (?:GPU|cuda) blocks|Capturing (?:the )?(?:model"
            r"|cuda ?graph)|Memory profiling|Initializing an? (?:V1 )?LLM engine"
            r"|init engine|Capture cuda graph|mem_fraction_static|mem-fraction-static"
            r"|Method Warmup|warm(?:ing)? ?up|gptManager|tllm|api_server|Avail(?:able)? mem",
        ),
        (
            "load",
            r"Loading checkpoint shards|Loading pipeline components|Fetching \d{1,3} files|Loading (?:safetensors"
            r"|pt) checkpoint"
            r"|Running tokenizer on|Loading model|loading weights|load_tensors"
            r"|llama_model_load|llama_new_context|cudaMalloc failed|Restoring checkpoint"
            r"|Finished restoring|load_in_\d|Converting format of dataset"
            r"|Map ?:? ?\(?num_proc|Tokenizing",
        ),
        (
            "eval",
            r"\*{3,} ?Running Evaluation|Running (?:Evaluation|Prediction)|\bEvaluating\b|eval(?:uation)? step"
            r"|\b(?:Validation|Validating|Sanity Checking|Testing|Predicting|Evaluation)(?: DataLoader \d{1,2}"
            r"| Sanity Check)?"
            r": {1,4}\d{1,3}(?:%|it)|\*{2,} ?(?:Validation|Running Validation)",
        ),
        (
            "save",
            r"Saving model checkpoint|Saving checkpoint|returning from state_dict\(\)|config saved in"
            r"|['\"]train_runtime['\"]:|Special tokens file saved|saved in \S{1,200}special_tokens"
            r"|save_checkpoint|Saving (?:the )?(?:model"
            r"|state|sharded)",
        ),
        ("forward", r"Compute (?:ref(?:erence)? |old )?log ?probs"),
        (
            "generate",
            r"generate_sequences|Generat\w{1,5} (?:sequences|rollouts?):? |rollout step|Finish generating|Timer sleep"
            r"|sleep mode freed|Received request|Added request|Running: \d{1,4} reqs",
        ),
    )
)


def phase_of_log(lines: Sequence[str]) -> str | None:
    """The phase of the last log line before the failure that names one."""
    last = lines[-60:]
    whole = "\n".join(last).lower()
    patterns = [(phase, pattern) for phase, pattern in _LOG if pattern.may_match(whole)]
    for text in reversed(last) if patterns else ():
        low = text.lower()
        for phase, pattern in patterns:
            if pattern.may_match(low) and pattern.search(text):
                return phase
    return None
