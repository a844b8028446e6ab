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
from oomdoc.diagnosis.rules._compared import IN_VAIN, LIMITED, decided_by
from oomdoc.diagnosis.rules._fits import beyond_weights, held_little, peaks_over_rest
from oomdoc.diagnosis.rules._late import long_past
from oomdoc.diagnosis.rules._network import DRAWS, is_small
from oomdoc.diagnosis.rules._shapes import is_map, is_scores, is_vocabulary_wide, refused
from oomdoc.diagnosis.rules._sizes import peak_share, tensor_reasons
from oomdoc.diagnosis.view import FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "activations"

_CLUES: Final = (
    Clue(
        "unchecked",
        STRONG,
        says=r"(?<!model )checkpointing(?![\"' ]{0,2}[:=]).{0,24}(?:\boff\b|false|disabled|forgot|missing|lacks"
        r"|throws|raises|attributeerror)|(?:without|no|turned off"
        r"|disabl\w{1,3}) "
        r"(?:gradient[ _-]|activation[ _-])?checkpoint|(?:forgot|forget|missed)[^\n]{0,20}(?:gradient"
        r"|activation)[ _-]?checkpoint|没(?:有)?开.{0,8}(?:检查点|checkpoint)|(?:drop|remov|turn off"
        r"|not us)\w{0,3} "
        r"(?:the )?(?:gradient|activation)[ _-]?checkpoint"
        r"|(?:必须|只有|一定要|需要)开(?:启)?[^\n]{0,4}(?:梯度|激活|重计算|gradient|activation)[^\n]{0,20}(?:否则|不然"
        r"|才)"
        r"|(?:关|去掉|不开|不用|不加)[^\n]{0,4}(?:梯度检查|重计算|(?:gradient"
        r"|activation)[ _-]?checkpoint)[^\n]{0,24}(?:oom|爆|溢出|不够)"
        r"|only (?:works|fits|runs|trains) (?:with|when|if)[^\n]{0,16}(?:gradient|activation)[ _-]?checkpoint"
        r"|(?:with|enabl\w{1,3}|turning on) (?:gradient|activation)[ _-]?checkpoint\w{0,3}[^\n]{0,30}(?:works|fits"
        r"|fine|runs|no oom|made it|solve)|开(?:启|了)[^\n]{0,6}(?:重计算|检查点|checkpoint)[^\n]{0,8}(?:能|可以|正常"
        r"|不爆)|(?:gradient"
        r"|activation)_?checkpointing=false|(?:do(?:n.?t| not) (?:want|wish|like)|rather not)[^\n]{0,16}(?:gradient"
        r"|activation).?checkpoint",
    ),
    Clue(
        "experts",
        STRONG,
        says=r"(?:more|too many|most|all) (?:of the )?tokens[^\n]{0,60}(?:\bexpert|one (?:gpu|rank|device))"
        r"|expert\w{0,3}[^\n]{0,40}(?:imbalance|unbalanced|uneven|overload|too many tokens|more tokens)"
        r"|accept more tokens|without dropping tokens|专家[^\n]{0,10}(?:不均|过载|倾斜)|负载不均[^\n]{0,12}专家",
    ),
    Clue("selective", FAIR, says=r"use_reentrant|recompute.{0,20}(?:selective|partial)"),
    Clue(
        "layer",
        FAIR,
        frames=r"\bmlp\b|down_proj|up_proj|gate_proj|act_fn|silu|gelu|swiglu|layer_?norm|rms_?norm|feed_?forward"
        r"|dropout"
        r"|rotary|residual|lora_[ab]\b|activations?\.py|self\.act\(",
    ),
    Clue("limited", STRONG, says=LIMITED, prose=True, unless=IN_VAIN),
    Clue(
        "batch",
        FAIR,
        says=r"(?:lower|smaller|reduc\w{1,4}|larger|bigger|increas\w{1,4}|decreas\w{1,4}).{0,24}batch"
        r"|batch.?size.{0,16}(?:larger|greater|bigger|more) than|larger max_?batch_?size"
        r"|max_(?:input_len|num_tokens)(?![\w:]| is not)"
        r"|micro.?batch[^\n]{0,24}(?:too (?:large|big|many)|larger|grow|padded)"
        r"|(?:works|fits|runs|fine|ok|trains) (?:only )?(?:with|at|when|if|for|using) (?:a "
        r"|the )?(?:small\w{0,3} )?batch"
        r"|batch[^\n]{0,12}(?:改成|设为|设置为|调到|降到|改为) ?(?:[2-9]|\d{2})|(?:batch"
        r"|bs)[^\n]{0,10}\d[^\n]{0,6}(?:能跑|才能"
        r"|没问题)|batch[^\n]{0,12}(?:设置?为|=) ?\d{1,4}[^\n]{0,6}(?:就|会|时)[^\n]{0,4}(?:oom|爆|溢出)"
        r"|batch.{0,10}(?:调小|减小|太大|调大)"
        r"|batch(?:.?size)?[ =:]{0,3}\d{1,4} (?:works|is fine|runs|fits|is ok)|what batch.?size"
        r"|batch[^\n]{0,10}(?:does not|doesn'?t) (?:work|fit)",
        unless=IN_VAIN,
    ),
    Clue(
        "context",
        WEAK,
        says=r"\b\d{1,3}k (?:context|sequence|tokens?|seq)|(?:sequence|context|block|prompt).{0,16}(?:long"
        r"|length|size).{0,30}(?:oom|out of|fail)|(?<!no )longer|too long|(?:data|text|input|output) lengths?|long data"
        r"|(?:output|input|response|回答|输出|输入).{0,4}(?:过长|很长|太长)"
        r"|(?:works|fits|runs|fine|ok|trains)[^\n]{0,50}(?:\d{1,3}k|\d{3,6}|short\w{0,3}) ?(?:context|seq|tokens?"
        r"|length"
        r"|cutoff)|(?:长度|len\w{0,3})[^\n]{0,16}(?:超过|大于|改成|调到|最大|只能)[^\n]{0,24}(?:爆|oom|溢出|不足|支持)"
        r"|(?:oom|out of mem\w{0,3}|crash\w{0,3}|fails?)[^\n]{0,40}(?:when|if|with|for|at|beyond|above)[^\n]{0,24}"
        r"(?:long\w{0,3}|larger|increas\w{1,4}|\d{2,3}k)[^\n]{0,16}(?:seq|context|input|prompt|length|token|text)"
        r"|(?:out of mem\w{0,3}|oom|ran out)[^\n]{0,40}(?:when|if|with|for|as soon as)[^\n]{0,40}(?:seq\w{0,6}|length"
        r"|context|tokens|max_len\w{0,3})[^\n]{0,16}(?:higher|larger|greater|more|longer|above|over|beyond|>|bigger)"
        r"(?: than)? ?`?\d"
        r"|(?:rais|increas|going|chang|mov)\w{0,4} (?:the )?(?:max_?seq\w{0,8}|max_?length|cutoff_?len|seq\w{0,8}"
        r"|context|length)[^\n]{0,12}from|short\w{0,3} (?:one|prompt|context|seq\w{0,6}|text)s?[^\n]{0,12}(?:works?"
        r"|fine|ok)\b|短的(?:没问题|可以|能)|(?:长度|上下文|数据|序列)[^\n]{0,6}(?:加长|变长|调长|长一点|拉长|一长)",
    ),
    Clue(
        "calibration",
        WEAK,
        says=r"calibrat|calib_data|校准|awq/quantize|autoawq|llm-?compressor|gptqmodel|auto-?gptq|quantize/quantizer"
        r"|(?:when|while|during) quantizing|量化(?:时|过程|模型时)",
        unless=r"内存|host memory|\bram\b",
    ),
    Clue(
        "said",
        FAIR,
        says=r"(?<![-_a-z])activations\b|activation memory|intermediate (?:activation|tensor|result)|saved tensors"
        r"|激活(?!函数|检查|重)"
        r"|(?:memory|vram|usage|显存)[^\n]{0,16}(?:grows?|scales?|increases?|rises|随着?)[^\n]{0,10}(?:with )?(?:the )?"
        r"(?:sequence|seq|batch|length|长度|resolution|分辨率)"
        r"|weights? fit[^\n]{0,40}(?:but|training|memory)|(?:模型|权重)[^\n]{0,6}只占|block.?size[^\n]{0,6}(?:调大"
        r"|加大)|large block.?size",
        unless=r"optimizer states?|优化器状态|leak|泄",
    ),
    Clue(
        "in-layer",
        FAIR,
        says=r"(?:\bin|\bat|inside|line|在)[^\n]{0,16}(?:\bmlp|down_proj|act_fn|layer ?norm|feed.?forward"
        r"|rotary)[^\n]{0,40}"
        r"(?:forward|out of memory|oom|memory error|前向|显存)",
        prose=True,
    ),
    Clue(
        "remat",
        FAIR,
        says=r"hlo_rematerialization|xla[^\n]{0,40}temporar|increase remat|reduce memory use below"
        r"|temp(?:orary)? allocation: +[1-9]\d",
    ),
    Clue("program", FAIR, says=r"\bprogram\s+[1-9]\d{0,3}(?:\.\d{1,3})?g\b|hlo temp\s+[1-9]"),
    Clue(
        "prefill",
        WEAK,
        says=r"(?:\boom\b|out of memory)[^\n]{0,80}(?:during|in|at|while|on) [^\n]{0,16}prefill|unable to warm ?up"
        r"|(?:prefill|warm-?up).{0,40}(?:oom|out of memory|exceed)"
        r"|prefill[^\n]{0,60}(?:too much|allocat)|预填充|batched.?tokens[^\n]{0,40}(?:oom|out of)",
    ),
    Clue(
        "decoder",
        STRONG,
        says=r"\bvae[ _-]?(?:is |en|de)\w{0,10}|tiled? (?:vae|decod|diffusion)|decod\w{1,4} (?:the )?latents|(?:vae"
        r"|潜空间)[^\n]{0,6}解码",
        unless=r"commit|version|updat|\bmerg|upgrad|更新|版本",
    ),
    Clue(
        "compute-buffer",
        STRONG,
        says=r"device_memory_size|createexecutioncontext|compute buffers?|ggml_gallocr|activation buffers?"
        r"|buffermanager",
    ),
    Clue(
        "growth",
        WEAK,
        says=r"显存.{0,8}(?:一直|一路|不断|越来越).{0,6}(?:涨|增|大|多)",
        unless=r"推理|部署|服务|循环|调用|\beval|多轮|web",
    ),
)


def weigh(view: View) -> Iterator[Reason]:
    """Place of failure, checkpointing, and what the estimate or the message leaves over the states."""
    framed = view.failure is not None and bool(view.failure.frames)
    for reason in weigh_clues(view, CAUSE, _CLUES):
        # Without a traceback the name of a layer is as likely one of a list of modules to adapt.
        if framed or reason.message.key != _LAYER:
            yield reason
    if held_little(view) and view.training:
        yield Reason(STRONG, say("cause.activations.after-load"))
    if view.says(DRAWS) is not None and (size := view.says(_DRAWN)) is not None:
        yield Reason(WEAK, say("cause.activations.drawn", quote=size.text.strip()[:90]), (size,))
    if is_small(view) and (picture := view.says(_PICTURE)) is not None:
        yield Reason(FAIR, say("cause.activations.picture", quote=picture.text.strip()[:90]), (picture,))
    decided = decided_by(view)
    if decided and (view.training or "batch" in decided):
        yield Reason(STRONG, say("cause.activations.decided"))
    elif decided:
        yield Reason(FAIR, say("cause.activations.decided"))
    if long_past(view):
        yield Reason(-WEAK, say("cause.ran-first"))
    yield from tensor_reasons(view, CAUSE)
    if view.training or view.serving:  # else that the layers keep anything is an assumption
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
        yield Reason(WEAK, say("cause.activations.rest", rest_bytes=allocated - states, states_bytes=states))


_DRAWN: Final = (
    r"\b(?:480|540|720|768|1024|1080|1440|2160)p?\b|frames?\b|resolution|分辨率|\d{3,4} ?[x×*] ?\d{3,4}|\d 秒|帧"
)
_PICTURE: Final = (
    r"(?:large|big|huge|4k|8k|high.?res\w{0,7}) (?:size )?(?:images?|pictures?|photos?|scenes?|volumes?|inputs?)"
    r"|(?:images?|inputs?|pictures?|volumes?)\b[^\n]{0,24}too (?:large|big)|(?:image|img|input|patch|crop"
    r"|tile)[ _-]?size"
    r"|\[\d{3,4}, ?\d{3,4}\]|\d{3,4} ?[x×*] ?\d{3,4}|\btil(?:e|ing)\b|tiled|分辨率|大图|(?:图片|图像"
    r"|输入)[^\n]{0,4}(?:太大|过大|尺寸)"
)
"""Sizes of what a network of pictures is fed with: each layer keeps as many values."""
_LAYER: Final = "cause.activations.layer"
_WIDE: Final = range(256, 30_000)
_ROWS: Final = 30_000
_ALIGNED: Final = 128


def _of_a_layer(view: View) -> tuple[int, ...] | None:
    """The shape that was refused, where it is rows of a layer's width: ``[batch, S, H]``, ``[tokens, F]``."""
    shape = refused(view)
    if is_map(shape) and is_small(view):
        return shape
    if len(shape) not in (2, 3) or is_scores(shape) or is_vocabulary_wide(shape):
        return None
    if len(shape) == 2 and shape[0] > _ROWS and shape[0] % _ALIGNED:  # a table of words
        return None
    return shape if shape[-1] in _WIDE and shape[0] * (shape[1] if len(shape) == 3 else 1) >= 1024 else None
