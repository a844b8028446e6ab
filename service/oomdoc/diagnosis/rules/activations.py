"""Activations: what the layers keep for the backward pass.

Sign
    The failure lies in a layer's forward pass (an MLP projection, a norm, dropout) or at the start of the backward
    pass, and moves with micro-batch and sequence length. Weights and optimizer states fit with room to spare.
    Gradient checkpointing is off or does not cover whole layers.
Mechanism
    Without checkpointing a layer keeps roughly 34 bytes per token and hidden unit in 16 bit, MLP intermediates and
    norms' inputs included: Llama-3.1-8B with 4 x 2048 tokens needs about 55 GiB beyond its weights. With
    checkpointing only each layer's input stays, 2 bytes per token and hidden unit, plus one layer recomputed at a
    time. LoRA saves the optimizer, not the activations: the gradient still has to pass through every frozen layer.
Confirm
    Run with micro-batch 1 and half the sequence: the peak over the weights shrinks in proportion. Print whether
    ``model.is_gradient_checkpointing`` holds.
Fix
    Gradient checkpointing over whole decoder layers; micro-batch 1 with accumulation raised to keep the global
    batch; FlashAttention; a shorter maximum length; offloaded checkpoints; context parallelism.
Cost
    Checkpointing recomputes the forward pass: about 30 % more time, the same numbers. A smaller micro-batch with
    more accumulation gives the same gradient and loses some utilisation.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._fits import beyond_weights, peaks_over_rest
from oomdoc.diagnosis.rules._late import long_past
from oomdoc.diagnosis.rules._shapes import is_scores, is_vocabulary_wide
from oomdoc.diagnosis.rules._sizes import peak_share, tensor_reasons
from oomdoc.diagnosis.view import FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "activations"

_CLUES: Final = (
    Clue(
        "unchecked",
        STRONG,
        says=r"checkpointing.{0,24}(?:\boff\b|false|disabled|forgot|missing|lacks"
        r"|throws|raises|attributeerror)|(?:without|no|turned off"
        r"|disabl\w{1,3}) "
        r"(?:gradient[ _-]|activation[ _-])?checkpoint|没(?:有)?开.{0,8}(?:检查点|checkpoint)|(?:gradient"
        r"|activation)_?checkpointing[\"' :=]{1,4}false",
    ),
    Clue("selective", FAIR, says=r"activation_checkpointing|use_reentrant|recompute.{0,20}(?:selective|partial)"),
    Clue(
        "layer",
        FAIR,
        frames=r"\bmlp\b|down_proj|up_proj|gate_proj|act_fn|silu|gelu|swiglu|layer_?norm|rms_?norm|feed_?forward"
        r"|dropout"
        r"|rotary|residual|lora_[ab]\b|activations?\.py|self\.act\(",
    ),
    Clue(
        "batch",
        FAIR,
        says=r"micro.?batch|(?:lower|smaller|reduc\w{1,4}|larger|bigger|increas\w{1,4}"
        r"|decreas\w{1,4}).{0,24}batch|batch.?size"
        r".{0,16}(?:larger|greater|bigger|more) than|max.?batch.?size|max_input_len"
        r"|(?:works|fits|runs|fine|ok|trains) (?:only )?(?:with|at|when|if|for|using) (?:a "
        r"|the )?(?:small\w{0,3} )?batch"
        r"|batch[^\n]{0,12}(?:改成|设为|设置为|调到|降到|改为) ?\d|(?:batch|bs)[^\n]{0,10}\d[^\n]{0,6}(?:能跑|才能"
        r"|没问题)"
        r"|max_num_tokens|batch.{0,10}(?:调小|减小|太大|调大)"
        r"|batch(?:.?size)?[ =:]{0,3}\d{1,4} (?:works|is fine|runs|fits|is ok)|what batch.?size"
        r"|batch[^\n]{0,10}(?:does not|doesn'?t) (?:work|fit)",
    ),
    Clue(
        "context",
        WEAK,
        says=r"\b\d{1,3}k (?:context|sequence|tokens?|seq)|(?:sequence|context|block|prompt).{0,16}(?:long"
        r"|length|size).{0,30}(?:oom|out of|fail)|(?:longer|too long)|(?:data|text|input|output) lengths?|long data"
        r"|(?:output|input|response|回答|输出|输入).{0,4}(?:过长|很长|太长)"
        r"|(?:works|fits|runs|fine|ok|trains)[^\n]{0,50}(?:\d{1,3}k|\d{3,6}|short\w{0,3}) ?(?:context|seq|tokens?"
        r"|length"
        r"|cutoff)|(?:长度|len\w{0,3})[^\n]{0,16}(?:超过|大于|改成|调到|最大|只能)[^\n]{0,24}(?:爆|oom|溢出|不足|支持)"
        r"|(?:oom|out of mem\w{0,3}|crash\w{0,3}|fails?)[^\n]{0,40}(?:when|if|with|for|at|beyond|above)[^\n]{0,24}"
        r"(?:long\w{0,3}|larger|increas\w{1,4}|\d{2,3}k)[^\n]{0,16}(?:seq|context|input|prompt|length|token|text)"
        r"|(?:rais|increas|going|chang|mov)\w{0,4} (?:the )?(?:max_?seq\w{0,8}|max_?length|cutoff_?len|seq\w{0,8}"
        r"|context|length)[^\n]{0,12}from|short\w{0,3} (?:one|prompt|context|seq\w{0,6}|text)s?[^\n]{0,12}(?:works?"
        r"|fine|ok)\b|短的(?:没问题|可以|能)|(?:长度|上下文|数据|序列)[^\n]{0,6}(?:加长|变长|调长|长一点|拉长|一长)",
    ),
    Clue(
        "calibration",
        FAIR,
        says=r"calibrat|calib_data|校准|awq/quantize|autoawq|llm-?compressor|gptqmodel|auto-?gptq|quantize/quantizer"
        r"|(?:when|while|during) quantizing|量化(?:时|过程|模型时)",
        unless=r"内存|host memory|\bram\b",
    ),
    Clue("remat", FAIR, says=r"hlo_rematerialization|reduce memory use below|temp(?:orary)? allocation: +[1-9]\d"),
    Clue("program", FAIR, says=r"\bprogram\s+[1-9]\d{0,3}(?:\.\d{1,3})?g\b|hlo temp\s+[1-9]"),
    Clue(
        "prefill",
        FAIR,
        says=r"unable to warm ?up|(?:prefill|warm-?up).{0,40}(?:oom|out of memory|exceed)"
        r"|prefill[^\n]{0,60}(?:too much|allocat)|预填充|batched.?tokens[^\n]{0,40}(?:oom|out of)",
    ),
    Clue("compute-buffer", STRONG, says=r"compute buffers?|ggml_gallocr|activation buffers?|buffermanager"),
    Clue("growth", WEAK, says=r"显存.{0,8}(?:一直|一路|不断|越来越).{0,6}(?:涨|增|大|多)"),
)


def weigh(view: View) -> Iterator[Reason]:
    """Place of failure, checkpointing, and what the estimate or the message leaves over the states."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    if long_past(view):
        yield Reason(-WEAK, say("cause.ran-first"))
    yield from tensor_reasons(view, CAUSE)
    yield from peak_share(view, CAUSE)
    if peaks_over_rest(view):
        yield Reason(STRONG, say("cause.activations.steps"))
    elif (shape := _of_a_layer(view)) is not None:
        yield Reason(FAIR, say("cause.activations.shape", shape=" × ".join(map(str, shape))))
    elif beyond_weights(view):
        yield Reason(WEAK, say("cause.large-request", requested_bytes=view.bytes_of("requested") or 0))
    if view.training and view.stated("grad_ckpt") is False:
        yield Reason(FAIR, say("cause.activations.not-on"))
    allocated, states = view.bytes_of("allocated"), view.state_bytes
    frozen = view.job.method in ("lora", "qlora")
    left = 0.2 if frozen else 0.5
    if allocated and states and view.training and allocated - states > left * allocated:
        yield Reason(FAIR, say("cause.activations.rest", rest_bytes=allocated - states, states_bytes=states))


_WIDE: Final = range(256, 30_000)


def _of_a_layer(view: View) -> tuple[int, ...] | None:
    """The shape that was refused, where it is rows of a layer's width: ``[batch, S, H]``, ``[tokens, F]``."""
    refused = view.failure.signal.data.get("shape") if view.failure is not None else None
    shape = tuple(int(n) for n in refused or ())
    if len(shape) not in (2, 3) or is_scores(shape) or is_vocabulary_wide(shape):
        return None
    return shape if shape[-1] in _WIDE and shape[0] * (shape[1] if len(shape) == 3 else 1) >= 1024 else None
