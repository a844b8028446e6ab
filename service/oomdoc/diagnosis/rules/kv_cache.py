"""KV cache: keys and values of the tokens being served.

Sign
    The engine says so: "No available memory for the cache blocks", "max seq len (163840) is larger than the maximum
    number of tokens that can be stored in KV cache (13360)". Or a server runs for a while and fails under load.
Mechanism
    A token costs 2 x layers x KV heads x head size x bytes: 128 KiB for Llama-3.1-8B in 16 bit, so 32,768 tokens
    are 4 GiB. The engine takes ``gpu_memory_utilization`` x capacity in all, subtracts weights and the peak of a
    profiling run, and makes blocks of the rest. A model's own maximum length (131,072 and more) is the default
    request. Transformers' ``generate`` grows the cache with each token and beam.
Confirm
    The start-up log prints weights, peak activations and what is left for blocks; recompute the line.
Fix
    Set ``max_model_len`` to what is needed; raise ``gpu_memory_utilization`` where the card is free, or lower it
    where the failure comes at run time; fewer concurrent sequences; fp8 cache; tensor parallelism; a quantized
    model.
Cost
    A shorter maximum refuses longer requests. fp8 changes numbers slightly. Fewer sequences cost throughput.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._shapes import shapes_in
from oomdoc.diagnosis.rules._sizes import peak_share, tensor_reasons
from oomdoc.diagnosis.rules.vision_tokens import DRAWS, is_vision_model
from oomdoc.diagnosis.rules.weights_load import FILLS
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "kv-cache"

_CLUES: Final = (
    Clue(
        "engine-says",
        DECISIVE,
        signals=("vllm-kv-cache-too-small", "vllm-no-cache-blocks", "sglang-kv-full"),
        says=r"no available memory for the cache blocks|max(?:imum)? (?:model"
        r"|seq)\w{0,3} len\w{0,3} \(?\d[^\n]{0,60}(?:larger|kv)|stored in kv cache"
        r"|(?<!available )kv cache (?:memory|is needed|pool is full)|reserved for kv cache is -"
        r"|available kv cache memory: ?-|allocate buffer for kv cache|kv_cache_init(?:\(\))?:? failed"
        r"|# (?:gpu|cuda) blocks: 0\b|try to lower your batch size|lack of cpu swap space"
        r"|enough memory to handle (?:\d{5,7}"
        r"|[2-9]\d{3}|1[2-9]\d\d) prefill",
    ),
    Clue(
        "named",
        FAIR,
        says=r"(?<!use.)(?<!no.)kv.?cache(?!_utils|\d?_init:|[-_]dtype|_init:)|max.batch.prefill|max.batch.total"
        r"|n_ctx\b(?! {0,12}[=:] {0,6}(?:[1-3]?\d{1,3}|40\d\d)\b)|cache.max.entry|max.model.len|session.len"
        r"|max.num.seqs|past_key_values|max.total.tokens|mem.fraction.static|context_length ?[=:] ?\d|num_ctx"
        r"|--?ctx.size"
        r"|(?:huge|large|long|longer|\d{1,4}[km]) (?:token )?context|(?:extend|increas)\w{0,3} (?:the )?context"
        r"|\bctx\b(?!->|\.)"
        r"|max_new_tokens\W{1,4}(?:[2-9]\d{3}|\d{5})|num_return_sequences\W{1,4}(?:[4-9]\b|\d\d)"
        r"|context (?:length |size |window )?(?:is )?(?:extended|enlarged|larger|bigger)|(?:larger|bigger"
        r"|enlarg\w{0,3}) (?:the )?context|context (?:length|size|window)?s? ?(?:above|over|beyond|larger|bigger|more) "
        r"|concurrent(?! (?:nvcc|thread|compil|job|download|writ|process))|并发|多轮对话|chat history"
        r"|long conversations?|(?:长文本"
        r"|太长)[^\n]{0,4}生成|生成[^\n]{0,4}太长|上下文(?:长度|窗口)?[^\n]{0,6}[大调设]|for the cache|static cache"
        r"|under load"
        r"|\b\d{2,4} (?:concurrent |parallel |simultaneous )?(?:users|clients)\b"
        r"|paged.?attention|number of (?:generated|new) tokens|\d{1,3}k new tokens|轮数[^\n]{0,4}多"
        r"|多轮(?:之?后|聊天)|上下文[^\n]{0,6}\d{2,4} ?k|缓存块|kv ?块"
        r"|tokens of (?:kv )?cache|\b\d{1,4} parallel (?:requests|sequences|streams|slots)|cache (?:space|room)"
        r"|(?:长文档|长文章|长对话)[^\n]{0,4}(?:问答|推理|生成|总结)|k/v (?:blocks?|cache)"
        r"|\b0 (?:gpu|cuda) blocks"
        r"|use_cache\W{1,3}false[^\n]{0,40}(?:away|fix|work|no oom|fine|help|fits|runs|不)|(?:关闭|禁用"
        r"|关掉) ?use_cache",
        unless=r"required shared memory|shared memory (?:size|limit)|out of shared memory",
    ),
    Clue(
        "turns",
        STRONG,
        says=r"(?:[几多两二三]|\d[~\-\d]{0,4}) ?轮(?:次|连续|左右)?的?(?:对话|聊天|问答|交互|提问)|(?:随着|不断|持续"
        r"|连续|多次)"
        r"(?:地|的|进行){0,2}(?:交互|对话|聊天|问答|提问)|(?:对话|聊天|交互|问答)[^\n。]{0,24}(?:飙升|增加|增长|上涨"
        r"|上升|越来越|爆|溢出"
        r"|oom)|问(?:了)?(?:第)?[一二两三几\d]个?(?!下)(?:问题)?[^\n。]{0,20}(?:oom|out of mem|爆|报错|溢出)"
        r"|(?:after|within) (?:only |just )?(?:a few|several|some|two|three|four|five"
        r"|\d{1,3}) (?:\w{1,10} )?(?:messages"
        r"|turns|exchanges|questions|replies|rounds|chats)\b|\b(?:few|\d{1,2}) messages\b|back and forth"
        r"|as (?:the |a )?(?:conversation|chat|history|generation|dialog\w{0,3})[^\n]{0,24}(?:grows?|continues?|goes on"
        r"|gets? longer|progress)|(?:conversation|chat|history|dialog\w{0,3})s? (?:grows?|gets? long|becomes? long)"
        r"|memory[^\n]{0,40}(?:while|as) (?:more )?(?:tokens|text|words) (?:are|is) (?:being )?generated",
        unless=r"训练|微调|fine-?tun|\btrain(?:ing|s)?\b|history\W{1,12}\[\]|image|图|视频|video",
    ),
    Clue("workspace", FAIR, says=r"setting maximum total tokens \(|requested memory: ?[\d.]{1,9} \(gigabytes\)"),
    Clue(
        "trace",
        STRONG,
        frames=r"(?<!init_)cache_engine(?!\"|', )|_allocate_kv_cache"
        r"|(?<!use_)(?<!no_)(?<!use-)(?<!no-)kv_cache(?!_utils\.py:\d{1,5}\]|_init:|_dtype)|(?<!kv_)cache_utils"
        r"|dynamiccache|exllamav\dcache|create_state_tensors|staticcache"
        r"|init_device_cache|past_key_value",
    ),
)


_SMALL_BYTES: Final = 2**30
_SMALL: Final = 0.1


def _little(view: View) -> bool:
    """Whether the log prints the cache's size, and it is next to nothing beside the weights or the card."""
    sizes = {"kv": 0.0, "model": 0.0, "compute": 0.0}
    for signal in view.evidence.find("llama-cpp-buffers"):
        sizes[str(signal.data.get("what", "")).lower()] += float(signal.data.get("size_bytes") or 0)
    most = max(view.bytes_of("capacity") or 0, sizes["model"])
    return 0 < sizes["kv"] <= max(_SMALL_BYTES if not most else 0, _SMALL * most)


_NO_CACHE: Final = r"cache.max.entry.count\W{1,3}0(?:\.0[0-4]\d{0,4})?(?![.\d])"
_ON_CHIP: Final = r"required shared memory|out of resource: shared memory"
_LEAST: Final = 0.05


def _no_share(view: View) -> bool:
    """Whether the cache is told to take next to nothing."""
    share = view.setting("cache_max_entry_count")
    return isinstance(share, int | float) and share < _LEAST


_HEADS: Final = frozenset({64, 80, 96, 128, 160, 192, 256})


def _pairs_of(view: View) -> tuple[int, ...] | None:
    """A shape that holds keys and values of many positions in one: an axis of two, and heads of the usual widths."""
    return next((shape for shape in shapes_in(view) if len(shape) >= 5 and 2 in shape and shape[-1] in _HEADS), None)


def _left(view: View) -> float | None:
    """The share of the card that the weights leave, where they fit and leave next to nothing."""
    load = view.estimate.phases.get("load") if view.estimate is not None else None
    capacity = view.bytes_of("capacity")
    if load is None or not capacity or view.stated("model") is None or view.says(FILLS) is None:
        return None
    cards = view.evidence.value("gpu_count")
    if isinstance(cards, int) and cards > 1 and view.stated("tp") is None:
        return None  # whether the engine uses one of them or all is not told
    left = 1 - sum(v for k, v in load.terms_bytes.items() if "weight" in k) / capacity
    return left if _NEXT_TO_NOTHING[0] < left < _NEXT_TO_NOTHING[1] else None


_NEXT_TO_NOTHING: Final = (0.08, 0.3)


def _weights_fit(view: View) -> bool:
    """Whether an engine's start fails on a card that holds the weights, with room for more."""
    load = view.estimate.phases.get("load") if view.estimate is not None and _pooled(view) else None
    capacity, failure = view.bytes_of("capacity"), view.failure
    if load is None or not capacity or failure is None or failure.kind != "device" or view.phase != "engine-init":
        return False
    weights = sum(v for k, v in load.terms_bytes.items() if "weight" in k)
    return view.stated("model") is not None and 0 < weights < _ROOMY * capacity and not is_vision_model(view)


_ROOMY: Final = 0.85


def _pooled(view: View) -> bool:
    """Whether an engine makes one pool of what weights and profiling leave."""
    return view.estimate is not None and view.estimate.served is not None


def weigh(view: View) -> Iterator[Reason]:
    """What the engine says and how much of the card it is told to take."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    shape = _pairs_of(view)
    if shape is not None:
        yield Reason(STRONG, say("cause.kv-cache.shape", shape=" × ".join(f"{n:,}" for n in shape)))
    yield from tensor_reasons(view, CAUSE)
    # An engine takes all that is left on purpose: its cache is the largest share where the job fits as well.
    if not _pooled(view) or (view.fullness is not None and view.fullness >= 1.0):
        yield from peak_share(view, CAUSE)
    if view.signal("vllm-startup-free-too-low") is not None:  # the card was taken before the engine took its share
        yield Reason(-FAIR, say("cause.out-of-place"))
    if view.says(_NO_CACHE) is not None or _no_share(view) or _little(view) or view.says(_ON_CHIP) is not None:
        yield Reason(-STRONG, say("cause.out-of-place"))
    if not view.serving or view.says(DRAWS) is not None:
        return
    share = view.stated("serving.gpu_memory_utilization")
    if share is not None and share >= 0.85:
        yield Reason(WEAK, say("cause.kv-cache.utilisation", share=share))
    left = _left(view)
    if left is not None:
        yield Reason(FAIR, say("cause.kv-cache.little-left", percent=round(100 * left)))
    elif _weights_fit(view):
        yield Reason(FAIR, say("cause.kv-cache.weights-fit"))
    if view.phase in ("generate", "serving"):
        yield Reason(WEAK, say("cause.kv-cache.phase"))
    if view.phase in ("engine-init", "unknown"):
        yield Reason(WEAK, say("cause.kv-cache.engine"))
