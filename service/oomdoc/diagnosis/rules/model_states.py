"""Model states: weights, gradients and optimizer states do not fit.

Sign
    It fails whatever the batch size and length, even at 1 and 128. Allocated memory is a small multiple of the
    parameter count: 2 bytes each for 16-bit weights and gradients, 4 for the fp32 master copy, 8 for Adam. Every
    GPU shows the same, and more GPUs change nothing.
Mechanism
    Full training with Adam in mixed precision holds 16 bytes per parameter: 7B needs 104 GiB before the first
    token. DDP keeps all of it on each GPU. ZeRO-1 shards the optimizer, ZeRO-2 the gradients as well, only ZeRO-3
    and FSDP the weights; any of them over one rank shards nothing. Expert-parallel layers shard experts, not the
    dense part, and sparsity saves no memory: all experts are resident. LoRA leaves 2 bytes per frozen parameter.
Confirm
    Compute parameters x bytes / ranks for the stage in force and compare with "allocated". Count the processes:
    ``WORLD_SIZE`` must be what the sharding is meant to divide by.
Fix
    ZeRO-3 or FSDP over all GPUs; LoRA or QLoRA; an 8-bit or CPU-offloaded optimizer; tensor parallelism; more GPUs.
Cost
    ZeRO-3 adds communication, little on NVLink and much over PCIe. CPU offload makes the step slower by several
    times and takes host memory, 12 to 16 bytes per parameter. LoRA changes what is trained.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._compared import IN_VAIN
from oomdoc.diagnosis.rules._copies import flat_copy
from oomdoc.diagnosis.rules._fits import OVER_RANKS, beyond_weights, peaks_over_rest
from oomdoc.diagnosis.rules._late import ran_first
from oomdoc.diagnosis.rules._network import is_light, is_small
from oomdoc.diagnosis.rules._placed import still_placed
from oomdoc.diagnosis.rules._sizes import peak_share, tensor_reasons
from oomdoc.diagnosis.view import FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say
from oomkb.memory.setting import trained_tables

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "model-states"

_CLUES: Final = (
    Clue(
        "states-said",
        WEAK,
        says=r"optimizer states?\b(?! ?(?:dict|init|off|load|sav|check|restor))|\bmodel states?\b(?! ?dict)"
        r"|\b12 ?\* ?\d|(?<!\d)16 bytes|\bestimate_zero|模型状态|优化器状态"
        r"|shard_grad_op|(?:12|16|18|20) bytes (?:per|a|for each) param|gradients? (?:and|plus"
        r"|\+) (?:the )?optimizer|梯度(?:和|加|、|与)优化器|\bno_shard\b"
        r"|zero.?[12]\b[^\n]{0,16}(?:oom|fail|out of|爆|不行|挂|不够)[^\n]{0,24}zero.?3\b[^\n]{0,16}(?:works?"
        r"|runs?|fine|fits|\bok\b|可以|能|没问题|正常)"
        r"|zero.?3 ?(?:\+|with|and|加) ?(?:cpu )?offload[^\n]{0,10}(?:works|runs|fits|fine|可以|能跑"
        r"|没问题)[^\n]{0,30}(?:without|plain|not|no |不|去掉)|冻结[^\n]{0,12}(?:能跑|可以|就好|正常)"
        r"|unfreez\w{1,4}[^\n]{0,60}(?:oom|out of mem)|\b(?:frozen|freez\w{1,3})\b[^\n]{0,40}(?:works?\b|fits|\bfine\b"
        r"|runs(?! out))|解冻[^\n]{0,30}(?:爆|oom|不够)",
        unless=r"offload\w{0,4}[^\n]{0,16}optimizer states?",
    ),
    Clue(
        "full",
        FAIR,
        says=r"full(?:.?parameters?)? (?:\w{1,12} )?(?:fine.?tun|finetun|training|sft)|全(?:参数?|量)[^\n]{0,4}(?:微调"
        r"|训练|更新"
        r"|sft|就爆)"
        r"|full copy of (?:the )?model|fp32 训练|train\w{0,3} [^\n]{0,16}in fp32|model plus gradients"
        r"|(?:more|adding) gpus?[^\n]{0,30}(?:does not|doesn'?t) (?:reduce|help)|加卡没有?用"
        r"|unfreez\w{1,4} (?:all|the|every|more)|(?:lora|freeze|frozen|冻结)[^\n]{0,30}(?:works?|fits|fine|runs"
        r"|能跑|可以|没问题|正常)[^\n]{0,30}(?:full|全参|全量)|(?:from )?lora[^\n]{0,12}(?: to |换成?|改成?"
        r"|切到?)[^\n]{0,4}(?:full|全)"
        r"|(?:with|train\w{0,3}|tun\w{1,3}|updat\w{1,3}) all (?:the )?param\w{0,6}|全参\b|全参(?![数量])"
        r"|(?:zero.?[123]|fsdp) without offload|参数[、,，和与]{1,2}梯度|weights, grad\w{0,6},? and"
        r"|two (?:adam )?moments|whatever (?:batch|the batch|sequence)|(?:identical|the same) for (?:seq|len"
        r"|batch)[^\n]{0,30}\d|怎么(?:减|调|改)[^\n]{0,12}(?:batch|长度)[^\n]{0,12}(?:都|还是|也)",
    ),
    Clue(
        "at-once",
        WEAK,
        says=r"(?:when|as soon as|once) (?:the )?training (?:starts|begins)|(?:at|from) the (?:very )?(?:start"
        r"|beginning) of "
        r"(?:the )?training|before the first (?:step|batch|iteration)|in the first step\b|第一步就|训练(?:一"
        r"|刚)开始就?|一训练就|第一个 ?(?:step|batch|iter)[^\n]{0,4}就",
    ),
    Clue(
        "full-cards",
        WEAK,
        says=r"(?:every|all|each) (?:gpu|card|4|8)s?.{0,24}(?:full|fills?|out of)|每张卡|所有卡|都满",
    ),
    Clue(
        "partition",
        FAIR,
        says=r"shouldn't partition|does not shard|not (?:fully )?sharded|不(?:分片|切分)|placement.?policy",
    ),
)
_ONE: Final = (
    r"(?:even|still|already|down to|minimal|lowest|仍|还是|已经|最小|都).{0,40}(?:batch|bs).{0,14}\b1\b"
    r"|(?:batch|bs).{0,14}\b1\b"
    r".{0,40}(?:still|even|还是|仍|也|都)|not (?:have )?enough memory to process even 1|batch 已经最小"
    r"|batch.?(?:size)? ?(?:已经)?[是为] ?1\b"
)
_LONG: Final = (
    r"long (?:audio|recording|sequence|text|video|sample|context)|audio recording|长文本|长序列|长音频|长视频"
)
_OF_STATES: Final = (".states-said", ".full", ".partition")
"""Clues that speak of states themselves, whatever the model."""
_MEASURES: Final = r"\blmms?[-_]eval\b|\bopencompass\b|\bevalscope\b|\bvlmevalkit\b"
"""Programs that measure a model and train none, whatever starts their processes."""
_SIZED: Final = (
    r"(?<![\w.])\d{1,3}(?:\.\d{1,2})? ?b(?:illion)?\b|\d{3}m (?:model|param)|llama|llava|vicuna|alpaca|mi[sx]tral|qwen"
    r"|glm\b|gpt|\bopt\b|\bm?t5\b|\bxx?l\b|pegasus|bart-large|bloom|falcon|gemma|\bphi\b|internvl|internlm|minicpm"
    r"|baichuan|deepseek|\byi\b"
    r"|cogvlm"
    r"|whisper|flamingo|sdxl|\bflux\b|diffusion|dreambooth|\bwan\b|hunyuan|\b[lv]lms?\b|\bmoe\b|\bdit\b|大模型"
    r"|large language model"
    r"|zero.?[0123]\b|deepspeed|\bfsdp|megatron|\bq?lora\b|full(?:.?parameter)? fine|全(?:参数?|量)|[ahbv][128]00\b"
    r"|a[46]0(?:00)?\b|l40s?\b"
    r"|\bh20\b"
    r"|adam|optimizer|参数量|\bparam(?:eter)?s\b"
)
"""Words of a model with billions of parameters, of what trains one, or of its states. In 36 of 40 reports of a training
without any of them the states were not what ran out: a detector's or a tagger's take a part of a GiB."""
_ELSEWHERE: Final = (
    r"(?:train\w{0,3}|fine-?tun\w{1,3}|训练|微调)[^\n.;。]{0,24}(?:\bok(?:ay)?\b|fine|works?|normal\w{0,2}"
    r"|success\w{0,5}|no problem"
    r"|正常|没问题|可以|成功)[^\n]{0,60}(?:infer\w{0,6}|test\w{0,3}|predict\w{0,4}|eval\w{0,6}|generat\w{0,4}"
    r"|valid\w{0,6}|推理|测试|预测|评估"
    r"|验证|生成)"
    r"|(?:at|during|in) (?:the )?(?:inference|test|testing|prediction)(?: time| phase| stage|\b)|(?:推理|测试"
    r"|预测)(?:的?时候?|阶段|时)|\binit_inference\b|zero[- ]inference"
)
"""What failed holds no gradients."""
_NOT_STATES: Final = (
    r"(?:context|seq\w{0,6}|prompt|max)[ _-]?(?:window|len\w{0,3}|size)?[^\n.]{0,24}\b(?:\d{2,3}k\b|1[0-9]\d{3}\b"
    r"|[2-9]\d{4}\b|\d{6}\b)"
    r"|\b(?:\d{2,3}k|\d{5,6})[- ](?:context|tokens?|seq\w{0,6}|length)|长文本|长上下文|长序列"
    r"|(?<![\d.\w])\d{1,3}(?:\.\d{1,2})? ?m(?:illion)?\b[ -](?:param|model)|(?<![\d.])[1-4]?\d{1,2}m\.(?:sh|ya?ml|json"
    r"|py)\b"
    r"|(?:第一张|0 ?号|只有一[张块])[^\n]{0,12}(?:满|爆|占)[^\n]{0,16}(?:其他|其它|别的|另)"
    r"|(?:其他|其它|另)[^\n]{0,6}(?:卡|gpu)[^\n]{0,12}(?:空|没|不高|低|不占|少)|(?:显存|内存)分配不均|显存不均"
    r"|(?:lower|reduc|decreas|smaller|shrink|halv)\w{0,4}[^\n.]{0,24}(?:batch|\bbs\b|length|seq\w{0,6}|resolution"
    r"|context|max_\w{1,12})"
    r"[^\n.]{0,16}\b(?:it |then |which |that )?(?:works|runs(?! out)|fits|trains|is (?:fine|ok)|helps|fixe[sd])\b"
    r"|(?:batch|bs|长度|分辨率|length)[^\n，。]{0,6}(?:减小|调小|降低|改小|缩小)[^\n]{0,6}(?:可以|就好|正常|能跑"
    r"|没问题|就行)"
    r"|(?:减小|调小|降低|改小|缩小)了?[^\n，。]{0,10}(?:batch|bs|长度|分辨率|length)[^\n]{0,10}(?:可以|就好|正常|能跑"
    r"|没问题|就行)"
    r"|(?:batch|length|len|resolution|size)\w{0,6}[^\n.]{0,12}\d{1,5}[`'\")]{0,2},? (?:setting "
    r"|tokens? )?(?:it )?(?:works|runs(?! out)|fits|is (?:fine|ok)|was normal"
    r"|trains)\b|(?:only|able to|successfully) (?:train|run)\w{0,3}[^\n.]{0,24}(?:batch|resolution)[^\n.]{0,16}\d"
    r"|batch.?size ?(?:=|of|to|:|is)? ?(?:6[4-9]|[7-9]\d|\d{3,4})\b[^\n.]{0,40}(?:oom|out of mem)"
    r"|(?:other|remaining|rest of the) (?:gpus?|cards?|devices?)[^\n.]{0,20}(?:idle|empty|unused|free|almost no)"
)
"""A long context, a model of millions, or one card that is full beside others: none of it is a matter of states."""
_FULL: Final = 0.85
"""States above this part of the card leave no room for anything else."""
_MUCH: Final = 0.45
_OPEN: Final = frozenset({"unknown", "load", "optimizer-init", "optimizer-step"})
"""Places at which states may be what runs out, or that are not told."""
_METHOD: Final = ("method", "quant", "optimizer", "lora")


def weigh(view: View) -> Iterator[Reason]:
    """What the states need on one GPU against what it has."""
    told = [*weigh_clues(view, CAUSE, _CLUES), *_batch_in_vain(view)]
    yield from told
    named = any(reason.message.key.endswith(_OF_STATES) for reason in told)
    sized = named or _of_size(view)
    if not view.training:
        # A server holds none, and where nothing is said of the job, training in full is an assumption.
        if not told and not sized and not view.serving:
            yield Reason(-FAIR, say("cause.out-of-place"))
        return
    yield from ran_first(view)
    # Of a small network the kind of job says so already (:mod:`oomdoc.diagnosis.usual`).
    if (
        (not sized and not is_small(view))
        or view.says(_ELSEWHERE, prose=True) is not None
        or view.says(_NOT_STATES) is not None
    ):
        yield Reason(-FAIR, say("cause.out-of-place"))
    if beyond_weights(view) or peaks_over_rest(view):
        yield Reason(-FAIR, say("cause.out-of-place"))
    if view.stated("optimizer") is None and view.says(_MEASURES) is not None:
        yield Reason(-STRONG, say("cause.out-of-place"))
    copy = flat_copy(view)
    if copy is not None:
        yield Reason(
            FAIR, say("cause.model-states.copy", params=copy.params_b, width=copy.width_bytes, ranks=copy.ranks)
        )
    if still_placed(view):
        yield Reason(-STRONG, say("cause.out-of-place"))
    else:
        yield from tensor_reasons(view, CAUSE)
    yield from peak_share(view, CAUSE)
    states, capacity = view.state_bytes, view.bytes_of("capacity")
    if (tables := _tables_bytes(view)) and capacity and tables > _LARGE_TABLES * capacity:
        yield Reason(STRONG, say("cause.model-states.tables", tables_bytes=tables, capacity_bytes=capacity))
    if states and capacity:
        share = states / capacity
        if share >= _MUCH:
            yield Reason(
                _by_place(view, share), say("cause.model-states.share", states_bytes=states, capacity_bytes=capacity)
            )
        elif share <= 0.25:
            yield Reason(
                -STRONG * view.sureness, say("cause.model-states.small", states_bytes=states, capacity_bytes=capacity)
            )
    if view.job.sharding not in (None, "none", "ddp", "device-map") and view.ranks == 1:
        # With the optimizer on the host, weights and gradients remain, which one rank does not divide either.
        moved = "optimizer" in (view.job.offload or ()) or view.phase == "optimizer-init"
        weight = FAIR if moved else STRONG
        if not _states_fail(view) or view.job.method in ("lora", "qlora"):
            weight = WEAK
        yield Reason(weight, say("cause.model-states.one-rank", sharding=view.job.sharding))
    elif view.job.sharding in (None, "none", "ddp") and (view.ranks or 1) > 1 and sized and _states_fail(view):
        # Where the states can be counted, their share of the card says it already.
        counted = bool(states and capacity)
        weight = FAIR if view.stated("method") == "full" and not counted else WEAK
        yield Reason(weight, say("cause.model-states.replicated", ranks=view.ranks))


def _batch_in_vain(view: View) -> Iterator[Reason]:
    """A batch that cannot be made smaller, or was and to no end: what is left is there for any batch.

    Where both are told of a large model 17 of 22 were of the states, where one is 13 of 23; of small networks 3 of 21.
    """
    one, vain = view.says(_ONE), view.says(IN_VAIN)
    told = one or vain
    if told is None or is_small(view) or is_light(view) or view.says(_LONG) is not None:
        return
    both = one is not None and vain is not None and view.training and view.phase in _OPEN and _of_size(view)
    weight = STRONG if both and view.job.method not in ("lora", "qlora") else FAIR
    yield Reason(weight, say("cause.model-states.batch-one", quote=told.text.strip()[:90]), (told,))


def _states_fail(view: View) -> bool:
    """Whether it failed where states may be what runs out, on a card as far as is known."""
    return (view.failure is None or view.failure.kind == "device") and view.phase in _OPEN


def _by_place(view: View, share: float) -> float:
    """What states that take so much of a card say, by what is told of the method and by where it failed.

    Where full training is told and the place is not, 51 of 57 such failures were of the states; in a forward or
    backward pass 5 of 22, with frozen weights 12 of 33.
    """
    frozen = view.job.method in ("lora", "qlora")
    if not _states_fail(view):
        weight = WEAK
    elif frozen:
        weight = FAIR if share >= _FULL else WEAK
    else:
        weight = STRONG if any(view.stated(name) is not None for name in _METHOD) else FAIR
    # What is divided by a number of ranks that nobody states is a guess.
    guessed = view.job.sharding in OVER_RANKS and view.ranks is None
    return weight * (0.5 if guessed or frozen else 1.0)


_TUNED: Final = frozenset({"dpo", "kto", "orpo", "simpo", "rm", "ppo", "grpo", "rloo"})


def _of_size(view: View) -> bool:
    """Whether anything tells of a model whose states are large: its name or size, its sharding, or what trains it."""
    job = view.job
    told = view.stated("method") or job.objective in _TUNED or job.sharding not in (None, "none", "ddp", "device-map")
    return view.estimate is not None or bool(told) or view.says(_SIZED) is not None


_LARGE_TABLES: Final = 0.2
_STATES: Final = 16
"""Bytes for each trained weight in mixed precision: copy, gradient, master and two moments."""


def _tables_bytes(view: View) -> int:
    """Weights, gradients and states of embedding and head, where they are trained whole beside adapters."""
    if view.job.method not in ("lora", "qlora") or view.shape is None:
        return 0
    dims = view.shape.dims
    return trained_tables(view.job) * dims.vocab * dims.hidden * _STATES
