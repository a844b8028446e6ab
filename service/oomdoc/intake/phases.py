"""In which phase of a job it failed: from the frames, else from what was logged last, else from what people say.

``load engine-init optimizer-init forward loss backward optimizer-step eval generate save rollout weight-sync unknown``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from oomdoc.evidence import Frame
from oomdoc.intake.sieve import Expression

__all__ = ["phase_of_frames", "phase_of_log", "phase_of_prose"]

_I: Final = re.IGNORECASE | re.ASCII
# Contexts: once inside, what is called from there belongs to them. The first that matches wins.
_CONTEXTS: Final[tuple[tuple[str, Expression], ...]] = tuple(
    (phase, Expression(text, _I))
    for phase, text in (
        (
            "save",
            r"\bsave_pretrained|save_ckpt|_state_dict_utils|(?<!load_)(?<!_)\bstate_dict\(\)"
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
            r"|eval_step|\bdo_eval|_maybe_log_save_evaluate|compute_metrics",
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
            r"|prepare_vllm_engine|(?:model_runner|worker|scheduler|tp_worker)\.py.{0,40}__init__"
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
            r"|_take_model_step|_optimizer_step|\bstep_and_update",
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
            r"|load_base_model|_init_model|prepare_model_for_(?:kbit|int8)",
        ),
        (
            "generate",
            r"generate_sequences|\.generate\(|\bgenerate\b|_sample\b|greedy_search"
            r"|beam_search|sample_token|compute_logprobs|_get_prompt_logprobs"
            r"|sampler\.py|execute_model|unwrap_model_for_generation|generate_step"
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
    return inner


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
            r"Loading checkpoint shards|Loading (?:safetensors|pt) checkpoint"
            r"|Running tokenizer on|Loading model|loading weights|load_tensors"
            r"|llama_model_load|llama_new_context|cudaMalloc failed|Restoring checkpoint"
            r"|Finished restoring|load_in_\d|Converting format of dataset"
            r"|Map ?:? ?\(?num_proc|Tokenizing",
        ),
        ("eval", r"\*{3,} ?Running Evaluation|Running (?:Evaluation|Prediction)|\bEvaluating\b|eval(?:uation)? step"),
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


_FAILS: Final = (
    r"(?:oom|被 ?kill|out of (?:cuda |gpu )?memory|爆(?:显存|内存|掉|了)?|显存(?:溢出"
    r"|不足|不够|爆)|内存(?:溢出|不足)|溢出|crash|fail|killed|runs? out|挤爆)"
)
_PROSE: Final[tuple[tuple[str, Expression], ...]] = tuple(
    (phase, Expression(text, _I))
    for phase, text in (
        (
            "weight-sync",
            r"(?:weight|parameter|model)s?[- ](?:sync\w{0,10}|update to|transfer to|broadcast)"
            rf"|sync\w{{0,10}} (?:the )?(?:weights|parameters|model)|\brefit\b"
            rf"|updat(?:e|ing) (?:the )?(?:weights|parameters) (?:of|in|to|on|from) (?:the )?(?:inference|vllm"
            rf"|sglang|rollout)"
            rf"|wak(?:e|es|ing)[-_ ]?up\b[^.。\n]{{0,40}}{_FAILS}|{_FAILS}[^.。\n]{{0,40}}\bwak(?:e|es"
            rf"|ing)[-_ ]?up\b|(?:同步|更新)[^。\n]{{0,6}}(?:权重|参数)(?:到|给|至)|权重同步",
        ),
        (
            "load",
            r"(?:when|while|after|on|upon|by) (?:I )?(?:try(?:ing)? to )?resum(?:e|es|ing) (?:the |from |a "
            r"|my )?(?:training|checkpoint|run|last)"
            rf"|(?:resum(?:e|es|ing)|continu(?:e|es|ing) (?:the )?training)[^.。\n]{{0,60}}{_FAILS}|断点续训"
            rf"|恢复训练[^。\n]{{0,12}}{_FAILS}|(?:load"
            rf"|restor)\w{{0,3}}"
            r" (?:the )?(?:saved )?(?:states?|checkpoints?)[^.。\n]{0,24}(?:and )?(?:continue|resume)",
        ),
        (
            "save",
            rf"(?:when(?:ever)?|while|during|after|but|at the end)[^.。\n]{{0,40}}\b(?:sav(?:e"
            r"|es|ed|ing)|checkpointing\b(?<!gradient checkpointing)(?<!activation checkpointing)"
            rf"|checkpoint is)[^.。\n]{{0,60}}|\bsav(?:e|ing) (?:the |a )?(?:model"
            rf"|checkpoint|weights)[^.。\n]{{0,60}}{_FAILS}|保存[^。\n]{{0,24}}(?:时"
            rf"|爆|oom|溢出|的时候|会)|(?:save_pretrained|save_model|save_steps|checkpoint[^.。\n]{{0,30}} is"
            rf" saved)[^.。\n]{{0,40}}(?:{_FAILS}|保存)|合并(?:权重|模型)[^。\n]{{0,16}}(?:oom"
            r"|爆|溢出)"
            r"|(?:when|while|during|after)[^.。\n]{0,40}\bwrit(?:es?|ing) (?:the "
            r"|a )?(?:\w{1,14} )?(?:checkpoint|weights|shards)"
            rf"|(?:{_FAILS}|occurs?|happens?)[^.。\n]{{0,60}}"
            rf"(?:\bat save_steps|(?:\b|\.)save_(?:model|pretrained|checkpoint)\b|merge_and_unload)"
            rf"|\bmerg(?:e|ing) (?:the |a )?(?:lora|adapters?|peft)[^.。\n]{{0,60}}{_FAILS}"
            rf"|(?:export|导出)[^。\n]{{0,24}}(?:合并|merg)|(?:合并|merg)[^。\n]{{0,32}}(?:导出|export)"
            rf"|合并[^。\n]{{0,16}}(?:lora|权重|模型|适配器)?[^。\n]{{0,12}}(?:时|oom|爆|溢出)"
            rf"|\b(?:get|getting|gather(?:ing)?|collect(?:ing)?|consolidat\w{{1,4}})[^.。\n]{{0,16}}state[_ ]?dict"
            rf"|state[_ ]dict[^.。\n]{{0,24}}{_FAILS}"
            r"|after (?:the )?training (?:job )?(?:is |has |was )?(?:complete[sd]?|finish\w{0,3}|done|end\w{0,2})"
            rf"|训练(?:完成|结束)(?:后|之后|时)[^。\n]{{0,16}}{_FAILS}",
        ),
        (
            "eval",
            rf"\b(?:eval(?:uat\w{{1,4}})?|validation|compute_metrics|trainer\.predict)\b[^.。\n]{{0,60}}{_FAILS}"
            r"|\bcompute_metrics\b[^.。\n]{0,60}\b(?:ram|memory)\b"
            rf"|\b(?:eval(?:uat\w{{1,4}})?|validation)[_ ](?:loop|step|epoch)s?[^.。\n]{{0,40}}\b(?:leak|grow"
            rf"|accumulat|cache)"
            rf"|\b(?:leak|grow|accumulat|cache)\w{{0,5}}\b[^.。\n]{{0,48}}\b(?:eval(?:uat\w{{1,4}})?"
            rf"|validation)[_ ](?:loop|step|epoch)"
            rf"|{_FAILS}[^.。\n]{{0,30}}\b(?:during|in|at|when|while)\b[^.。\n]{{0,16}}\b(?:eval"
            rf"|validation)|(?:评估|验证|eval|evaluate|测试集)[^。\n]{{0,20}}(?:时|过程"
            rf"|阶段|的时候|再)?[^。\n]{{0,16}}(?:爆|oom|溢出|不断|显存|超出)|再做 ?eval",
        ),
        (
            "optimizer-init",
            r"(?:optimizer|优化器)[^。\n]{0,24}(?:init(?!ial_)|states? (?:are|is|init)|状态初始化|初始化)"
            r"|initiali[sz]ing[ _](?:the )?optimizer"
            rf"|(?:deepspeed\.initialize|initialize_optimizer)[^.。\n]{{0,40}}{_FAILS}"
            rf"|{_FAILS}[^.。\n]{{0,40}}(?:\bin |: )(?:deepspeed\.initialize|initialize_optimizer)",
        ),
        ("optimizer-step", r"optimizer\.step|optimizer step|参数更新"),
        (
            "backward",
            rf"\.backward\([^.。\n]{{0,40}}{_FAILS}|{_FAILS}[^.。\n]{{0,40}}\.backward\(|(?:during|in|at|on|of"
            rf"|through) (?:the )?(?:\w{{1,8}} of )?(?:(?:first|second|third|\d(?:st|nd|rd|th)|GRPO|PPO|DPO) ){{0,2}}"
            rf"back(?:ward|-?prop)|\d(?:st|nd|rd|th) (?:\w{{1,6}} )?back(?:ward|prop)"
            rf"|backward[^.。\n]{{0,32}}{_FAILS}|反向传播|反向[^。\n]{{0,6}}{_FAILS}",
        ),
        (
            "loss",
            rf"(?:{_FAILS}|allocat\w{{1,4}})(?:[^.。\n]|\.(?=\w)){{0,32}}cross.?entropy"
            rf"|logits\.float\(\)[^.。\n]{{0,24}}{_FAILS}"
            rf"|loss comput\w{{1,6}}|comput\w{{1,4}} (?:the )?loss|calculat\w{{1,4}} (?:the )?loss"
            rf"|计算 ?loss|last frame[^.\n]{{0,60}}cross_entropy|最后一帧[^\n]{{0,60}}cross_entropy"
            rf"|cross.entropy[^.。\n]{{0,30}}{_FAILS}",
        ),
        (
            "load",
            r"(?:when|while|during|before|on|at|in the middle of|half-?way through)[^.。\n]{0,30}\b(?:loading"
            r"(?! (?:the )?[\w.]{0,30}(?:processor|images?|template))|load(?:ed|s)?"
            r"|model (?:is being )?initiali[sz])\b|(?<!down)loading (?:the )?(?:model"
            r"|weights|checkpoint)[^.。\n]{0,40}|(?:oom|out of memory|crash\w{0,3}"
            r"|dies|fails)[^.。\n]{0,50}\b(?:while|when|before|during|half ?way through)[^.。\n]{0,"
            r"24}\b(?:load|initiali[sz])|no longer loads|does not load|加载(?:模型"
            r"|权重|数据)?[^。\n]{0,20}(?:爆|oom|溢出|不足|超|时)|resum(?:e|ing)[^.。\n]{0,30}checkpoint"
            r"|(?:从|加载)[^。\n]{0,12}(?:checkpoint|断点)[^。\n]{0,12}(?:恢复|继续|续训)|断点续训|恢复训练时"
            r"|(?:every|each) (?:rank|process|gpu|worker) loads"
            r"|加载到? ?\d{1,3} ?%|启动失败|couldn'?t load|cannot load|fail(?:s|ed|ing)? to load"
            r"|weights (?:be |are |were |get |is )?(?:all )?loaded (?:to|on|onto) (?:the )?(?:cuda|gpu|first|same)"
            r"|tokenizer oom|(?:process|prepar|tokeniz)(?:e|ing) (?:the )?data(?:set)?\b[^.。\n]{0,60}(?:oom"
            r"|out of mem|killed)"
            r"|(?:oom|out of mem\w{0,3}|killed)[^.。\n]{0,24}(?:process|prepar|tokeniz)(?:e"
            r"|ing) (?:the )?data(?:set)?\b",
        ),
        (
            "generate",
            r"(?:when|while|during|at|on)[^.。\n]{0,24}\b(?:generat\w{1,5}"
            r"|inference|rollout|sampling|decoding|serving)\b|rollout step"
            r"|(?:oom|out of memory|crash)[^.。\n]{0,40}(?:generat\w{1,5}"
            r"|rollout)(?! (?:is|are|was|works?) )|(?:生成|推理|调用|rollout)(?! ?(?:没问题|没有问题|正常"
            r"|都行))[^。\n]{0,20}(?:爆|oom|溢出|时|次数|报 ?cuda|out of mem)"
            r"|\bprefill\b[^.。\n]{0,40}(?:oom|out of mem)|(?:oom|out of mem)[^.。\n]{0,40}\bprefill\b"
            r"|\bgenerate(?:\(\))? with [^.。\n]{0,40}(?:oom|out of mem)|inference (?:oom|out of mem|runs out)"
            r"|\.generate\(\)[^.。\n]{0,40}(?:oom|out of mem)"
            r"|\bmodel\.generate\b[^.。\n]{0,40}(?:oom|out of mem)"
            r"|rollout worker|at inference|many requests|after (?:some|several"
            r"|a few|many) (?:requests|calls)|unwrap_model_for_generation"
            r"|generat\w{1,5}_sequences|middle of serving",
        ),
        (
            "forward",
            rf"(?:in|during|at|doing) (?:the )?(?:\w{{1,8}} )?forward(?: pass)?"
            rf"|forward pass[^.。\n]{{0,30}}{_FAILS}|前向",
        ),
        (
            "engine-init",
            r"engine (?:is )?(?:built|build|init)|during (?:model )?initiali[sz]ation"
            r"|server (?:does not|fails to|won't) start|fails? (?:at|on|during) start(?:up)?"
            r"|warm-?up fails|(?<!训练)(?<!训练刚)(?:初始化就|启动就)|while (?:the )?engine"
            r"|build(?:ing)? (?:the |an )?engine\b|fail\w{0,3} to build [^.\n]{0,24}engine"
            r"|(?:profil|captur)ing (?:cuda ?)?graphs?",
        ),
    )
)


def phase_of_prose(text: str) -> str | None:
    """The phase that people name as the one that fails."""
    text = text[:10_000]
    low = text.lower()
    return next((phase for phase, pattern in _PROSE if pattern.may_match(low) and pattern.search(text)), None)
