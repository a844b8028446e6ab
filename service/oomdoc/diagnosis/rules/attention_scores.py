"""Attention scores: tensors as large as the square of the sequence.

Sign
    The trace ends in an attention function that is not a fused kernel: ``matmul(q, k)``, ``softmax``, a causal or
    sliding-window mask, ``scaled_dot_product_attention`` on a card without a fused path. The request is often
    larger than the whole card and equals heads x S x S x 2 or 4 bytes: 12 x 65536 x 65536 x 4 B = 192 GiB.
Mechanism
    Eager attention writes one score per pair of tokens and head, and the softmax a second time, in fp32 where the
    model upcasts. Four times the memory for twice the length. SDPA falls back to its mathematical form where no
    fused kernel takes the mask, the dtype or the head size; masks of S x S are built even beside FlashAttention by
    some model code.
Confirm
    The request quadruples when the length doubles. Print ``model.config._attn_implementation``; test with
    ``torch.nn.attention.sdpa_kernel`` restricted to the fused kernels and see it refuse.
Fix
    FlashAttention-2 (Ampere or newer) or SDPA with its fused kernels and no dense mask; shorter sequences or
    smaller images; on Volta and Turing SDPA's memory-efficient kernel, as FlashAttention-2 does not run there.
Cost
    None: fused attention is faster and differs in the last bits only.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._compared import longest_told
from oomdoc.diagnosis.rules._fits import beyond_weights, of_whole_model
from oomdoc.diagnosis.rules._network import DRAWS, is_small, of_pictures
from oomdoc.diagnosis.rules._scores import (
    buffer_of_scores,
    round_request,
    scores_bytes,
    scores_requested,
    scores_told,
    training_scores_bytes,
    unfused,
)
from oomdoc.diagnosis.rules._shapes import einsum_of_pairs, is_scores, shapes_in
from oomdoc.diagnosis.rules._sizes import peak_share, tensor_reasons
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say
from oomkb.units import GIB

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "attention-scores"

_CLUES: Final = (
    Clue(
        "trace",
        DECISIVE,
        frames=r"scaled_dot_product|apply_sdpa|eager_attention|attn_weights|attention_scores|attention_probs"
        r"|matmul\(q"
        r"|baddbmm|(?:causal|sliding_window|attention|decoder|full)\w{0,12}_mask|_make_causal|torch\.tril|repeat_kv"
        r"|create_block_mask|dot_product_attention|multi_head_attention_forward|attention_interface|attn_bias"
        r"|expand_mask|mask_4d|4d_mask|q ?@ ?k"
        r"|query\w{0,8}, ?key\w{0,8}\.transpose|attn_scores?\b|qk_?dot|indexer|mqa_logits"
        r"|deep_gemm[^\n]{0,60}attention",
    ),
    Clue(
        "operator",
        STRONG,
        says=r"op_name=[^\n]{0,120}atten\w{0,8}[^\n]{0,24}/(?:sub|softmax|exp|div|reduce_max|reduce_sum|add|mul"
        r"|select_n|dot_general)\b",
    ),
    Clue(
        "recording",
        FAIR,
        says=r"(?:long|\d ?(?:hours?|hrs?|min(?:ute)?s?)(?: of)?|whole)[ -][^\n]{0,16}(?:audio|recording|speech"
        r"|podcast)"
        r"|(?:audio|recording|speech)s?[^\n]{0,24}(?:long(?:er)?\b|\d ?(?:hours?|hrs?|minutes?))|长(?:音频|录音|语音)"
        r"|(?:音频|录音)[^\n]{0,12}(?:过长|太长|小时|分钟)",
        unless=r"\btrain|fine.?tun|训练|微调",
    ),
    Clue("softmax", STRONG, frames=r"(?<!log_)(?<!log)softmax\b"),
    Clue(
        "einsum",
        DECISIVE,
        says=r"->\W{0,6}[a-z]{0,3}h(?:qk|ts|ij|lm|st)\b|\b(?:bhqk|bhts|bhij|bnts|bhlm)\b",
    ),
    Clue(
        "unfused",
        STRONG,
        says=r"unfused ?(?:dot ?product)? ?attention|flashattention ?= ?false|falls? back to (?:the )?(?:math|eager"
        r"|unfused"
        r"|naive)|flex_attention|block_?mask|head_?dim\w{0,4} ?(?:>|=|of|over|above)"
        r"|attention[^\n]{0,40}falls? back|(?:不支持|用不了|没法用|装不了|没有) ?flash|turn(?:ing|ed) (?:off flash"
        r"|flash[^\n]{0,16}off)|without flash kernels|(?:v100|t4|2080|turing|volta|old gpu)s?[^\n]{0,30}flash"
        r"|sdpa[^\n]{0,12}(?:math|退回|fallback)|eager ?注意力|换成 ?sdpa|disables? (?:the )?(?:memory.efficient"
        r"|flash|fused)",
    ),
    Clue(
        "square",
        STRONG,
        says=r"(?:doubl\w{1,3}|2x|twice)[^\n]{0,24}(?:length|seq|context|tokens)[^\n]{0,40}(?:4x|four|quadrupl)"
        r"|翻倍.{0,16}(?:四|4) ?倍|\bo\((?:n|s|l|heads\*l)\^?2\)|(?:seq\w{0,8}|length|s|n)\^2\b|平方"
        r"|square of (?:the )?(?:seq|length|context|number)|seq ?[×x*] ?seq|(?:causal|attention|4d"
        r"|dense) mask[^\n]{0,24}(?:huge|large|quadratic|占)|attention scores|attention[^\n]{0,40}(?:allocat"
        r"|申请)[^\n]{0,16}(?:tens|hundreds|上百|几十)|materiali[sz]es? (?:the )?(?:scores|attention|full matrix)"
        r"|\[(?:batch\w{0,5}|bs?z?), ?(?:num_)?(?:heads?|h|n_heads?), ?(?:seq\w{0,6}|[sltn]"
        r"|q_len), ?(?:seq\w{0,6}|[sltn]|k\w{0,5})\]|\d{1,3}k 到 ?\d{1,3}k[^\n]{0,12}(?:四|4) ?倍"
        r"|\bn ?[x×*] ?n (?:matrix|scores?|mask)|q ?@? ?k\^t\b|\bqk\^?t\b|heads? [x×*] seq|heads?(?:_num"
        r"|s)? ?[x×*] ?seq\w{0,6} ?[x×*] ?seq"
        r"|原生 ?(?:的 ?)?attention|(?:native|naive|plain|pytorch'?s?) attention|(?:with|in|using|under) eager\b",
    ),
    Clue(
        "eager",
        STRONG,
        says=r"attn_implementation\W{1,4}eager|eager attention|with eager[^\n]{0,8}(?:oom|out of|crash|fail)"
        r"|eager[^\n]{0,8}(?:换|改)[^\n]{0,6}(?:flash|sdpa)|vanilla attention|math (?:kernel|sdp)"
        r"|s ?[x*] ?s (?:mask|score|matrix)"
        r"|quadratic|without flash.?att|no flash.?att|flash.?attn?\W{1,4}(?:false|off|disabled)|关(?:闭"
        r"|了).{0,4}flash|only supports ampere|flash.?att\w{0,6}.{0,6}支不支持|not compiled with flash"
        r"|(?:没有?|不|未)(?:使?用|装|开)[^\n]{0,4}(?:xformers?|flash)|(?:xformers"
        r"|flash.?att\w{0,6})[^\n]{0,24}(?:not (?:install|avail|support|found|compil|enabl)|missing"
        r"|unavailable"
        r"|装不上|没装|未安装|没有安装|暂时还未安装|安装不|不支持|没开|未开启|未启用)|(?:without|missing|lacks?|no) "
        r"(?:xformers|memory.efficient att)|output_attentions\W{1,3}true|score matri|attention matri|注意力矩阵"
        r"|output_attentions(?! ?[=:] ?false)",
    ),
)


_ATTENTION: Final = r"atten|attn|transformer|score|softmax|\bbert|heads?\b"
"""Axes of which the last two are alike are also features over a square picture."""
_MUCH: Final = 0.4
_LOGIT_BYTES: Final = 6
"""A word's logit in 32 bit, with half as much for what is not counted as told."""
_ANY_CARD_BYTES: Final = 48 * GIB
"""A request of this size is hardly ever one of weights."""


def weigh(view: View) -> Iterator[Reason]:
    """Trace, request and the attention in use."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    yield from tensor_reasons(view, CAUSE)
    if view.stated("attention") is not None or unfused(view):  # else that scores exist at all is an assumption
        yield from peak_share(view, CAUSE)
    if beyond_weights(view):
        yield Reason(WEAK, say("cause.large-request", requested_bytes=view.bytes_of("requested") or 0))
    square = next((shape for shape in shapes_in(view) if is_scores(shape)), None)
    if square is not None and (not is_small(view) or view.says(_ATTENTION) is not None):
        yield Reason(STRONG, say("cause.attention-scores.shape", shape=" × ".join(map(str, square))))
    elif einsum_of_pairs(view):
        yield Reason(STRONG, say("cause.attention-scores.pairs"))
    needed = scores_bytes(view)
    if needed is not None:
        weight = DECISIVE if scores_told(view) else STRONG
        yield Reason(weight, say("cause.attention-scores.long-text", scores_bytes=needed))
        if unfused(view):
            yield Reason(FAIR, say("cause.attention-scores.before-fused"))
    elif unfused(view) and (needed := training_scores_bytes(view)) is not None:
        yield Reason(STRONG, say("cause.attention-scores.before-fused-training", scores_bytes=needed))
    if unfused(view) and (rows := scores_requested(view)) is not None:
        yield Reason(STRONG, say("cause.attention-scores.requested", shape=" × ".join(map(str, rows))))
    elif round_request(view) and (not of_pictures(view) or view.says(DRAWS) is not None):
        yield Reason(FAIR, say("cause.attention-scores.round", requested_bytes=view.bytes_of("requested") or 0))
    if buffer_of_scores(view):
        yield Reason(STRONG, say("cause.attention-scores.buffer", requested_bytes=view.bytes_of("requested") or 0))
    yield from _request(view)
    if view.stated("attention") == "eager":
        yield Reason(FAIR, say("cause.attention-scores.in-use"))


def _request(view: View) -> Iterator[Reason]:
    """A request that is large for the card, where nothing else asks for so much at once."""
    failure, requested, capacity = view.failure, view.bytes_of("requested"), view.bytes_of("capacity")
    if not requested or failure is None or failure.kind != "device" or view.phase in ("optimizer-init", "load", "save"):
        return
    if failure.signal.name.startswith("xla") or of_whole_model(view):  # a program's temporaries are one request
        return
    if capacity and requested > _MUCH * capacity:
        weight = FAIR if _also_others(view, requested) else STRONG
        yield Reason(weight, say("cause.attention-scores.huge", requested_bytes=requested, capacity_bytes=capacity))
    elif not capacity and requested > _ANY_CARD_BYTES:
        yield Reason(FAIR, say("cause.attention-scores.beyond", requested_bytes=requested))


def _also_others(view: View, requested: int) -> bool:
    """Whether something else may be as large: an unrolled picture, or the logits of all rollouts or of a long text."""
    if (of_pictures(view) and view.says(DRAWS) is None) or view.objective in ("grpo", "ppo", "rloo"):
        return True
    words = view.shape.dims.vocab if view.shape is not None else 0
    return requested < words * longest_told(view) * (view.job.micro_batch or 1) * _LOGIT_BYTES
