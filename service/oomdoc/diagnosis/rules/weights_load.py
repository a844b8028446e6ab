"""Weights at load: the model does not fit while it is put in place.

Sign
    It fails before the first step: at "Loading checkpoint shards", in ``from_pretrained``, ``load_state_dict`` or
    ``.to(device)``. GPU 0 often fills first. A 4-bit setting is given, but memory climbs as for 16 or 32 bit.
Mechanism
    While loading, a rank may hold more than it will keep: the whole model before it is sharded, fp32 before a cast,
    full precision before quantization. Weights of bitsandbytes are not partitioned by ZeRO-3, so each GPU holds all
    of a 70B in 4 bit, about 37 GiB. ``device_map`` splits layers over visible GPUs in one process, but
    data-parallel launching of several processes puts the whole model on every card. Without a stated dtype
    transformers before 5 loads fp32: 4 bytes per parameter.
Confirm
    Watch ``nvidia-smi`` while loading; print the dtype of the first parameters; multiply parameters by 4, 2, 1 and
    0.5 bytes and see which of them the full card shows.
Fix
    State the dtype; make sure that quantization is applied and supported for this architecture and version;
    ``zero.Init`` or meta-device loading for sharded runs; FSDP with QLoRA in place of ZeRO-3; one process with
    ``device_map`` only where nothing is data parallel; for serving, tensor parallelism over the cards.
Cost
    None for loading right. Quantizing changes numbers; tensor parallelism adds communication.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._fits import beyond_weights, peaks_over_rest, weights_fit
from oomdoc.diagnosis.rules._late import ran_first
from oomdoc.diagnosis.rules._placed import LATER, is_common_matrix, still_placed
from oomdoc.diagnosis.rules._sizes import tensor_reasons
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.evidence import Span
from oomdoc.intake.sieve import alternatives
from oomdoc.messages import say

__all__ = ["CAUSE", "FILLS", "weigh"]

CAUSE: Final = "weights-load"

FILLS: Final = r"\bvllm\b|sglang|lmdeploy|text-generation-(?:launcher|inference)|gpu.memory.utilization"
"""Engines that take the rest of the card for their cache: a full card says nothing of its weights."""

_CLUES: Final = (
    Clue(
        "trace",
        STRONG,
        frames=r"from_pretrained|load_checkpoint|load_state_dict|load_model|load_weights|load_pretrained"
        r"|dispatch_model|safetensors"
        r"|prepare_model_for_(?:kbit|int8)|model\.float\(\)|param\.data\.to\(torch\.float32|set_module_tensor"
        r"|full_state_dict|_from_config\b|\bcls\(config|= ?\w{0,24}model\(config"
        r"|allocator_warmup|create_weights|reset_parameters|initialize_affine|_init_weights"
        r"|__init__\b[^\n]{0,40}self\.\w{1,30} ?= ?[\w.]{0,40}(?:linear|embedding|attention|mlp|feedforward|layer"
        r"|block)\("
        r"|model\w{0,6}\.(?:half\(\)\.)?(?:cuda|to)\((?!\W{0,2}cpu)|\.half\(\)\.cuda\("
        r"|module\.py.{0,40}(?:convert|_apply)\b",
    ),
    Clue(
        "loading",
        FAIR,
        says=r"loading checkpoint shards(?!: {1,3}100)|(?:while|when|during|at|before)\b.{0,24}(?<!-)\b(?:load"
        r"|initiali[sz])(?:ed"
        r"|ing"
        r"|s)?\b|(?:no longer|do(?:es)? not|do(?:es)?n't|fails? to|can't|cannot) load"
        r"|(?<![a-z])loading (?:the )?(?:model|weights)(?! ?(?:weights )?took)|failed to load|(?:model"
        r"|weights) (?:is|are) (?:being )?loaded"
        r"|(?:加|装|载入?)载(?:模型|权重|参数|时|阶段)|载入(?:模型|权重)|模型(?:加载|载入)|加载到.{0,8}(?:显存|gpu"
        r"|卡)"
        r"|(?:all|every|each)(?: of)?(?: the| my)? (?:gpu|card|rank|process|worker)(?:e?s)? (?:will |would |first "
        r"|has to )?"
        r"(?:loads?|holds?) (?:the |a |its own )?(?:full|whole|entire|complete|total|copy)"
        r"|loads? (?:multiple|several|separate|two|its own) cop(?:y|ies) of the (?:\w{1,8} ){0,2}(?:model|weights)"
        r"|(?:每张卡|每个进程|每个卡|各卡)[^\n]{0,8}(?:加载|都有)[^\n]{0,6}(?:一份|一遍|完整|全部|整个)"
        r"|(?<![a-z])load.{0,20}(?:爆|炸|oom)|(?:oom|out of mem\w{0,3}|crash\w{0,3})[^\n]{0,24}(?:when|while|on"
        r"|during|at)"
        r" (?:the )?(?:model )?(?:load|start-?up|launch)|模型太大"
        r"|too (?:big|large) (?:for|to fit)"
        r"|device_map[^\n]{0,30}(?:\bnot\b|没有|doesn'?t)|(?:loads?|loaded|加载)[^\n]{0,16}(?:fp32|float32"
        r"|full precision|全精度)|(?:half precision|bf16|fp16) is (?:larger|bigger)|(?:0 ?号卡"
        r"|gpu ?0)[^\n]{0,6}(?:先满|fills? first)|(?:web|cli|chat)[_ ]?demo[^\n]{0,40}(?:oom|out of|显存)"
        r"|(?:mov\w{1,3}|load\w{0,3}|put\w{0,4}) (?:the )?(?:model|weights|base model|everything)[^\n]{0,20}(?:to|on"
        r"|onto) (?:the )?(?:gpu|every|each|cuda|first)|一启动就|loaded twice|each process loads|每个进程都?加载"
        r"|checkpoint shards[^\n]{0,16}(?:then|oom|out of)|(?:vram|memory) to load\b|before the first token"
        r"|as the (?:shards|weights|layers) (?:are )?load|(?:entire|whole|full|complete) (?:checkpoint"
        r"|weights) (?:to|on|onto|into) (?:the )?(?:gpu|each|every)|到第 ?\d{1,3} ?个? ?shard|(?:还没|没有?)加载完"
        r"|torch\.load[^\n]{0,40}(?:cuda|gpu|every|each)|(?:try|trying|unable|able) to load (?:a |an "
        r"|the )?[\w.-]{1,24} ?(?:model|checkpoint)|why does loading|loading (?:it |the model )?in (?:bf16|fp16"
        r"|4.?bit|8.?bit|int[48])|加载 ?(?:checkpoint|ckpt|检查点|阶段)|(?:都|全)往 ?(?:0 ?号|第一张)卡"
        r"|(?:fails|oom|crash\w{0,3}|dies|out of memory) (?:at|during|in|on) (?:model )?initiali[sz]ation"
        r"|model\.float\(\)|转(?:成|为)? ?fp32|upcast\w{0,3} (?:the )?(?:whole |entire )?model|(?:还没"
        r"|没有?)(?:有)?到?训练(?:阶段|开始)?"
        r"|loads the (?:whole|full|entire|complete) model\b|before (?:reading|touching|seeing) any data",
        phases=("load", "unknown"),
    ),
    Clue("dispatch", DECISIVE, signals=("dispatch-too-large",)),
    Clue(
        "resumed",
        FAIR,
        says=r"resum\w{1,3}[^\n]{0,60}(?:more (?:gpu |video )?memory|(?:smaller|lower|reduce|drop"
        r"|decrease)\w{0,2} (?:the )?"
        r"batch|memory error)|checkpoint[^\n]{0,40}(?:never|not) (?:freed|released)|map_location",
    ),
    Clue(
        "unquantized",
        FAIR,
        says=r"load_in_(?:4|8)?_?bit(?![\"' ]{0,3}[:=] ?(?:false|none|0)|[^\n]{0,8}false)|(?:4|8).?bit.{0,40}(?:still"
        r"|not|oom"
        r"|whole|full)|量化.{0,16}(?:还是|没|不)"
        r"|quantiz\w{1,6}.{0,30}(?:not|still|oom|whole)",
        phases=("load", "unknown"),
        unless=FILLS,
    ),
    Clue(
        "unified",
        FAIR,
        says=r"cudamalloc failed|convert_element_type|arguments\s+[1-9]\d{0,3}(?:\.\d{1,3})?g\b",
        unless=r"compute buffers?|gallocr|kv.?cache_init|allocate buffer for kv",
    ),
    Clue("little-room", DECISIVE, says=r"enough memory to handle (?:\d{1,3}|1[01]\d\d) prefill"),
)
_LOADED: Final = (
    r"gallocr_reserve|fail\w{0,3} to (?:allocate|reserve|create)[^\n]{0,24}(?:compute"
    r"|kv)[ _-]?(?:pp )?(?:buffer|cache)"
    r"|compute (?:pp )?buffers?[^\n]{0,40}(?:fail|out of mem|oom)|kv_cache_init[^\n]{0,8}failed"
    r"|after (?:the )?warm-?up|(?:model|weights) (?:loads?|loaded|is loaded) (?:fine|ok|successfully|without"
    r"|normally)"
    r"|weights (?:took|take) \d|(?:after|once) [^\n]{0,60}(?:from_pretrained|\bload\w{0,3})\b[^\n]{0,60}(?:only|just"
    r"|about"
    r"|around)[^\n]{0,24}\d ?[gm]i?b|(?:启动|加载)[^\n。]{0,30}(?:占用?了?(?:显存|gpu ?内存)?"
    r"|显存(?:占用)?)(?:为|是|大概|大约|约|只有?|仅|在){0,3} ?\d[\d.]{0,5} ?gi?b?\b(?![^\n。]{0,6}(?:爆|oom|溢出))"
    r"|(?:模型|权重)(?:可以|能|能够)?(?:正常)?加载(?:成功|完成|正常|没问题|完了?之?后)|预热(?:之)?后"
)
"""Buffers are reserved and requests served when the weights are in: loading went well."""


_OF_A_CARD: Final = 0.8
_OF_AN_ENGINE: Final = 0.92
"""Weights that leave a tenth of the card are in; what finds no room beside them is an engine's cache."""
_TP: Final = alternatives(
    r"\btp ?[=:] ?(?P<short>[2-9]|16)\b|tensor[_ -]parallel(?:ism)?(?:[_ -]size)?[ =:]{1,3}(?P<long>[2-9]|16)\b"
)


def weigh(view: View) -> Iterator[Reason]:
    """Phase, trace, quantization against sharding, and the weights' size against the card."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    yield from _while_loading(view)
    yield from ran_first(view)
    loaded = view.says(_LOADED) is not None
    if loaded:
        yield Reason(-STRONG, say("cause.ran-first"))
    yield from tensor_reasons(view, CAUSE)
    if peaks_over_rest(view) or beyond_weights(view) or weights_fit(view):
        yield Reason(-FAIR, say("cause.out-of-place"))
    job = view.job
    quantized = job.quant not in (None, "none") or job.method == "qlora"
    if quantized and job.sharding in ("zero3", "fsdp", "fsdp2"):
        yield Reason(
            STRONG, say("cause.weights-load.quantized-sharded", quant=job.quant or "4-bit", sharding=job.sharding)
        )
    weights, capacity = _weights(view), view.bytes_of("capacity")
    cards = view.evidence.value("gpu_count")
    ways = _TP.search(view.text)
    if weights and view.stated("tp") is None and ways is not None and cards != 1:
        weights /= int(next(filter(None, ways.groups())))
        cards = None
    copies = view.setting("dp_size", "data_parallel_size", "dp", "data-parallel-size", "dp-size")
    if isinstance(copies, int) and copies > 1:
        cards = 1  # each card, or group of them, has a whole copy
    if weights and view.serving and view.stated("tp") is None and isinstance(cards, int) and cards > 1:
        weights /= cards  # several cards are there, and nothing says that the engine uses one
    served = loaded or (view.phase in ("generate", "serving") and view.phase_shown)
    most = _OF_AN_ENGINE if view.serving and view.says(FILLS) is not None else _OF_A_CARD
    if weights and capacity and weights > most * capacity and not served:
        yield Reason(_by_place(view), say("cause.weights-load.too-big", weights_bytes=weights, capacity_bytes=capacity))
    yield from _on_the_way(view)


_SURE: Final = 0.75


def _while_loading(view: View) -> Iterator[Reason]:
    """It fails while the model is loaded: shown by frames (28 of 37 were right), told (45 of 73), hinted (23 of 58)."""
    if view.phase != "load":
        return
    fact = view.evidence.facts.get("phase")
    told = fact is None or fact.confidence >= _SURE
    host = view.failure is not None and view.failure.kind != "device"
    span = view.failure.signal.span if view.failure is not None else Span("", 0)
    yield Reason(
        WEAK if host or not told else STRONG if view.phase_shown else FAIR,
        say("cause.weights-load.phase", quote=span.text.strip()[:90]),
        (span,) if span.text or span.line else (),
    )


def _by_place(view: View) -> float:
    """What weights larger than the card say, by where it failed.

    Of 31 such failures of a card while loading 27 were of the weights; in a forward pass or later, 1 of 10.
    """
    if view.failure is None or view.failure.kind != "device":
        return WEAK
    if view.phase == "load":
        return STRONG
    if view.phase != "unknown" and view.phase_shown:
        return 0.0 if view.phase in LATER else WEAK
    return FAIR * view.sureness if view.training else FAIR


def _on_the_way(view: View) -> Iterator[Reason]:
    """One matrix was asked for, and not all of the weights were there yet."""
    whole = still_placed(view)
    if whole:
        yield Reason(
            STRONG,
            say(
                "cause.weights-load.still-placed",
                requested_bytes=view.bytes_of("requested"),
                allocated_bytes=view.bytes_of("allocated"),
                weights_bytes=whole,
            ),
        )
    elif not view.training and is_common_matrix(view):
        yield Reason(STRONG, say("cause.weights-load.matrix", requested_bytes=view.bytes_of("requested")))


def _weights(view: View) -> float:
    """Weights that one GPU holds from loading on, as estimated."""
    load = view.estimate.phases.get("load") if view.estimate is not None else None
    return sum(v for k, v in load.terms_bytes.items() if "weight" in k) if load is not None else 0.0
