"""Host memory: the machine's RAM ran out, not the GPU's.

Sign
    No CUDA message, the process is simply gone: "Killed", exit code -9 or 137, "oom-killer", Ray's "node running
    low on memory", or "DefaultCPUAllocator: can't allocate memory". GPU use is low. Or a CUDA allocation is refused
    although most of the card is free: on WSL and Windows, memory for pinned buffers and the driver's commit limit
    is the host's.
Mechanism
    Each rank reads a checkpoint by itself: four ranks of a 26 GB checkpoint are 104 GB at once. CPU offload holds
    master weights and moments on the host, 12 bytes per parameter (90 GiB for 8B) and pinned copies beside it. Data
    loaders, tokenised sets and decoded images grow with workers and steps. Consolidating a sharded model to save it
    needs all of it in RAM.
Confirm
    ``dmesg | grep -i -E 'killed process|oom'``; ``free -g`` while it runs; in a container the cgroup's limit, not
    the machine's.
Fix
    Safetensors and low-memory loading, one rank after the other; less offload or NVMe; ``pin_memory: false``; fewer
    workers, streaming data; swap; a larger memory limit for the container; on WSL raise ``memory=`` in
    ``.wslconfig``.
Cost
    NVMe offload is slow; unpinned memory makes transfers slower.
"""

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say
from oomkb.units import GIB

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "host-ram"

CARD: Final = (
    r"(?:(?<![a-z\d.])(?:\d{3,4} ?(?:ti|super)?|[avthl]\d{1,3})|显卡|gpu)[^\n]{0,6}(?<![\d.])\d{1,2} ?gi?b? ?的?内存"
    r"|\d{1,2} ?gi?b? ?内存的?(?:显卡|gpu)"
)
"""A card with the word that elsewhere means the machine's memory: the same is meant by it in the rest of the text."""

_OF_A_GPU: Final = (
    r"gpus?(?: \w{1,8}){0,3} (?:with|has|have|of) \d{1,3} ?gb? (?:of )?ram|gpu[ -]?'?s? ?ram|\bcuda ?(?:out of|oom)"
    r"|tried to allocate|vram(?! (?:is |was |use|stay|usage|not|free))|memory on (?:the |my )?gpu"
)
"""A card's memory called RAM."""
_PLENTY: Final = (
    r"free (?:host |cpu |system )?(?:ram|memory) left|(?:plenty|lots) of (?:host |cpu |system |free )*(?:ram|memory)"
    r"|\bram (?:is|seems|looks) (?:fine|ok|enough|not (?:the|a) )|内存(?:还|是)?(?:足够|充足|够的|没有?问题)"
)
"""Host memory that is not short."""
_CLUES: Final = (
    Clue(
        "killed",
        DECISIVE,
        says=r"(?:exit|return)s?(?: with)?(?: return)? ?code\W{0,4}-9|exitcode:? ?-9|\bsigkill\b"
        r"|exit(?:ed)?.{0,12}\b137\b|oom.?kill|out of memory: kill|signal 9\b|killed process|进程.{0,8}killed"
        r"|直接被 ?kill|killed?(?=[了掉])|(?:就|后|都|又|自动|进程) ?被? ?killed?\b|\bkilled$|\*\*killed"
        r"|sigterm\W{0,3}killed|(?:出现|显示|报|直接|提示|输出|变成) ?\bkilled\b"
        r"|[(（\"'`]killed[)）\"'`]"
        r"|(?:out of|exhausts?) (?:cpu|host|system) (?:memory|ram)\b",
    ),
    Clue(
        "ended",
        STRONG,
        says=r"\b(?:was|been|being|gets?|got|is|are) (?!not |never )(?:\w{2,12} )?killed\b|被 ?(?:系统"
        r"|操作系统)? ?(?:kill|杀)"
        r"|\bkilled by (?:the |my )?(?:system|os|kernel|oom|linux|ubuntu|windows|slurm|docker|colab|kubernetes)"
        r"|(?:无故|突然).{0,4}kill|oomkilled|\bevicted\b|memory cgroup"
        r"|exceeded (?:its |the |job |step )?memory limit|kernel (?:died|dies|crash|appears to have died)"
        r"|session crashed|swap (?:memory |space |file )?(?:is |was )?(?:full|used up|exhausted|thrash)|bad_alloc"
        r"|swap(?:分区|空间)?[^\n]{0,4}(?:用光|用完|耗尽|占满|打满|满了|爆)|交换(?:分区|空间)[^\n]{0,4}(?:用光|用完"
        r"|耗尽|满)"
        r"|(?:machine|system|server|pc|computer|机器|系统|电脑)[^\n]{0,16}(?:freez|froze|unresponsive|hangs|卡死"
        r"|死机)"
        r"|(?:process|script|python|job|training) (?:just |simply |silently )?(?:vanish|disappear)\w{0,3}"
        r"|(?:node|machine|box|server|host) swaps|swap(?:s|ping)? to death|thrash|进程(?:直接|突然"
        r"|自己)?(?:没了|消失|不见)"
        r"|\bkilled (?:right |immediately |directly |just )?(?:after|at|when|while|during|before)\b"
        r"|(?:cluster|scheduler|system|\bos\b|kernel|slurm|kubernetes|watchdog) (?:always |then |just )?(?:kill"
        r"|evict)s?\b"
        r"|\b(?:why|suddenly|will|would|to) (?:\w{1,12} ){0,3}be killed\b"
        r"|(?:background|loader|pool|data) (?:worker|process)\w{0,3}[^\n]{0,30}(?:no longer alive|died|terminated"
        r"|killed)|workers? (?:are |is |was |were )?(?:no longer alive|died)\b|broken ?process ?pool"
        r"|terminated abruptly",
        unless=r"can(?:no|')?t be killed|bus error|segmentation fault|被杀不掉|杀不(?:掉|死)",
    ),
    Clue(
        "data",
        STRONG,
        says=r"(?:tokeniz(?:e|ing|er training)|preprocess\w{0,5}|pre-?process\w{0,5}|process(?:ing)? (?:the )?data"
        r"|map \(num_proc"
        r"|train_from_iterator|train_new_from_iterator|load_dataset|datasets?\.map|分词|数据(?:预)?处理)"
        r"[^\n]{0,140}(?:\boom\b|out(?:ing)? of memory|内存|killed|\bram\b)"
        r"|(?:\boom\b|out(?:ing)? of memory|内存|killed|\bram\b).{0,60}(?:tokeniz(?:e|ing)|preprocess|pre-process"
        r"|process(?:ing)? (?:the )?data|处理数据|数据(?:预)?处理|分词)|tokenizer oom"
        r"|(?:num_proc|\.map\b|tokeniz\w{1,4}|preprocess\w{0,5}|分词|预处理"
        r"|处理数据)[^\n]{0,100}(?:process\w{0,2} (?:\w{1,8} ){0,3}(?:less and less|fewer)"
        r"|fewer and fewer|subprocess\w{0,2} (?:has |have )?(?:abruptly )?died|进程[^\n]{0,8}(?:越来越少|变少"
        r"|减少|消失|被杀))",
        unless=r"cuda out of memory|显存|tried to allocate",
    ),
    Clue(
        "replay",
        STRONG,
        says=r"replay ?(?:buffer|memory)[^\n]{0,80}(?:memory|\bram\b|\d ?gb|内存)|(?:memory|\bram\b"
        r"|内存)[^\n]{0,60}replay"
        r" ?(?:buffer|memory)|(?:system|machine|computer) does ?(?:n't"
        r"|not)? (?:apparently )?(?:not )?have (?:apparently )?"
        r"enough memory\b|经验(?:回放|池)[^\n]{0,40}内存",
        unless=r"cuda out of memory|显存|tried to allocate",
    ),
    Clue(
        "in-memory",
        FAIR,
        says=r"(?:load|read|cach|stor|keep|put|hold)\w{0,4} (?:\w{1,8} )?(?:all|whole|entire|every|full)[^\n]{0,40}"
        r"(?:in|into|to|in the) (?:a |the |cpu |system )?(?:memory|list|ram|dict)\b"
        r"|(?:dataset|images|data|corpus|features|samples|files) [^\n]{0,24}(?:in|into|to) (?:the )?(?:memory|ram)\b"
        r"|lazy ?load|(?:数据|图片|样本)[^\n]{0,12}(?:读|加载|载)入?(?:到|进)?内存|一次性?(?:全部)?(?:读"
        r"|加载)[^\n]{0,12}内存",
        unless=r"cuda|\bgpu|\bvram\b|显存",
    ),
    Clue(
        "allocator",
        DECISIVE,
        says=r"arraymemoryerror|\bmemoryerror\b|memory pressure \(oom\)|abruptly died|defaultcpuallocator"
        r"|cannot allocate memory|ray_memory_usage_threshold|node running low on memory"
        r"|std::bad_alloc|cudahostalloc|mlock failed|cudamallochost|\benomem\b|errno 12\b"
        r"|unable to allocate \d[\d.]{0,8} [gmt]ib for an array|java\.lang\.outofmemory"
        r"|\bray ?out ?of ?memory ?error|ggml_assert[^\n]{0,160}mem_buffer ?!= ?null|ggml_aligned_malloc|os error 12\b"
        r"|(?:buffer of type|unable to allocate|failed to allocate(?: buffer)?) cpu(?:_\w{1,12})?\b(?! ?kv)"
        r"|memory allocation of \d{4,16} bytes failed|alloc_cpu\.cpp|cpu_buffer_type_alloc_buffer"
        r"|exceeds \d{1,3} ?% of (?:free )?system memory|by allocator (?:mkl)?_?cpu\b|\(winerror 1455\)|os error 1455"
        r"|javascript heap out of memory|llvm error: out of memory|cudahostregister",
    ),
    Clue(
        "said",
        STRONG,
        says=r"(?:cpu|system|host|main|node) (?:ram|memory|oom)\b.{0,40}\b(?:full|out\b|exhaust|runs? (?:out|full)|oom"
        r"|exceed|grow|fill|not enough|kill|leak|usage|error)|cpu oom|(?:out of|fills? (?:up )?(?:the )?"
        r"|exhaust\w{0,3}|run\w{0,4} out of|exceed\w{0,3}) (?:all )?(?:cpu|system|host|main|node) (?:ram"
        r"|memory)"
        r"|(?:gb|tb) (?:of )?(?:host |system |cpu )ram (?:filled|full|is|was)|out of host memory"
        r"|host memory.{0,24}(?:killed|full|out)"
        r"|(?<![\w-])ray (?:的 ?)?oom"
        r"|(?:cpu|system|host|main|physical|server'?s?|machine'?s?) (?:ram|memory)\b[^\n]{0,40}(?:insufficient|consum"
        r"|huge"
        r"|\bhigh\b|used up|limit|spik|balloon|blow|climb|increas|skyrocket|100 ?%)|(?:uses?|using|takes?|needs?"
        r"|requires?"
        r"|consum\w{1,3}|eats?|eating) (?:\w{1,10} ){0,4}(?:\d{2,4} ?[gt]i?b? (?:of )?)?(?:cpu|system|host"
        r"|physical) (?:ram|memory)"
        r"|\bdram\b(?! ?(?:buffer|bank|core|channel|[:：=]))|不是显存|非显存|(?:打|撑"
        r"|挤)爆(?:了)?(?:整个)?(?:服务器|机器"
        r"|主机|节点|系统)?的?内存|爆内存|内存(?:爆|溢出|不够"
        r"|占满|用量)|(?:机器|主机|系统|cpu) ?内存|\d+g?b? ?内存.{0,16}(?:爆|不)"
        r"|(?:uses?|using|fills?|eats?|takes?) (?:up )?(?:all|too much|the whole) (?:of )?(?:the |my )?"
        r"(?:cpu memory|host memory)\b|内存(?:都|全|已经?)?被?(?:吃|占|用|打|撑|跑|耗)(?:满|爆|光|完|尽)"
        r"|(?:kills?|takes? down|freezes|crashes) (?:the |my |our )?(?:box|node|host|server|machine)\b"
        r"|(?:all )?the memory (?:of|on|in) (?:the |my )?(?:server|machine|host|node|box)|\bfree -[hgm]\b"
        r"|how much (?:cpu |host |system )?ram\b|需要多少内存|killed due to memory|ram_util\w{0,8}"
        r"|memory usage on this node|(?:cpu|host|system)[ -](?:out of memory|oom)",
        unless=rf"{CARD}|cuda ?(?:error: ?)?内存|gpu ?\d? ?的?总?内存|{_PLENTY}",
    ),
    Clue(
        "ram",
        STRONG,
        says=r"\b(?:huge|abnormal|large|excessive|insane|massive|crazy|ridiculous|enormous) amounts? of (?:system "
        r"|cpu )?ram\b"
        r"|\boom (?:of |in )?ram\b|\bram (?:oom|usage|is full|runs? out|fills?)|(?:gb|tb) (?:of )?ram (?:filled|full"
        r"|is|was)|out of ram"
        r"|(?:uses?|takes?|needs?|requires?|consum\w{1,3}|eats?) (?:\w{1,10} ){0,3}\d{2,4} ?[gt]i?b? (?:of )?ram\b"
        r"|(?:eats?|eating|filling|fills?|used?|using|takes?|consum\w{1,3}) (?:up )?(?:all|all of|too much|so much"
        r"|more|lots of|a lot of|the whole)? ?(?:my |the |available )*\bram\b"
        r"|\bram\b[^\n]{0,30}(?:is not enough|not enough|insufficient|exhaust|keeps? (?:grow|increas|ris))"
        r"|all available ram|(?:oom|out of memory)[^\n]{0,40}\b(?:on|with|of) \d{2,4}(?:\.\d)? ?gb (?:of )?ram\b"
        r"|\b\d{2,4} ?gb? (?:of )?ram\b.{0,30}(?:full|out|not enough)|(?:more|less|enough|smaller|lower"
        r"|limited) ram\b|\bgb of ram\b|(?:in|into|to|than|from|available) (?:the |my )?ram\b",
        unless=rf"{_OF_A_GPU}|{_PLENTY}",
    ),
    Clue(
        "swapped",
        STRONG,
        says=r"\bswap ?(?:file|partition|size|space|memory)\b|(?:increas|add|creat|enlarg|resiz)\w{0,3} (?:the |a "
        r"|more |my )?swap\b|\bzram\b|page ?file|paging file|virtual memory|commit limit|虚拟内存|交换(?:分区|空间"
        r"|文件)",
        unless=r"--swap-space|swap_space|swap-space|lack of cpu swap",
    ),
    Clue(
        "converted",
        FAIR,
        says=r"\bconver(?:t|ts|sion|ting|t\.py)\b[^\n]{0,120}(?:memory|\bram\b|\boom\b|killed)|(?:memory|\bram\b"
        r"|\boom\b|killed)[^\n]{0,100}\bconver(?:t|sion|ting)\b|(?:转换|转成|转为)[^\n]{0,40}(?:内存|killed|被杀)",
        unless=r"cuda (?:out of memory|oom|error)|gpu memory|\bvram\b|显存",
    ),
    Clue(
        "large",
        FAIR,
        says=r"(?<![\d.])(?:[3-9]\d\d|[1-9]\d{3}) ?gi?b?(?: of)?(?: \w{1,8})? memory\b"
        r"|\d(?:\.\d{1,2})? ?tb(?: of)?(?: \w{1,8})? memory\b"
        r"|memory(?: size)? (?:is|of|:) ?(?:25[0-9]|[3-9]\d\d|[1-9]\d{3}) ?gi?b?\b"
        r"|(?:[3-9]\d\d|[1-9]\d{3}) ?gb? ?的?内存|\dt ?内存",
        unless=rf"{CARD}|gpu memory|\bvram\b|tried to allocate|cuda out of memory",
    ),
    Clue(
        "amount",
        FAIR,
        says=r"\b\d{1,4} ?gi?b?(?: of)?(?: (?:system|cpu|host|main|ddr\d))? ram\b",
        unless=rf"{_OF_A_GPU}|{_PLENTY}|\bvram\b|allocating tensor|out of cuda|gpu memory|\bm[1-5]\b|\bmps\b|\[metal\]",
    ),
    Clue(
        "mentioned",
        FAIR,
        says=r"(?:cpu|system|host|main|node) (?:ram|memory)(?! ?[:=]? ?\d)|(?<!cpu )swap.?space",
        unless=rf"system ram: [\d.]{{1,9}} gb|{_PLENTY}|lack of cpu swap",
    ),
    Clue(
        "short",
        FAIR,
        says=r"(?<![显存卡a-z])(?<!gpu )(?<!cuda )内存(?:.{0,4}(?:不足|耗尽|打满|爆满|跑满|超"
        r"|一直|持续|不断))|超(?:出)?内存"
        r"|(?:insufficient|enough|more) (?:cpu|system|host) mem|每个进程.{0,12}内存",
        unless=rf"{CARD}|mps|统一内存|tried to allocate",
    ),
    Clue(
        "on-cpu",
        FAIR,
        says=r"device (?:is|=|:) ?[\"']?cpu|\bcpu[- ]only|\[cpu\]|(?:train|run|infer|load|execut)\w{0,5} (?:it "
        r"|the model "
        r"|everything |only )?on (?:the |a )?cpu\b|纯 ?cpu|(?:只用|仅用|使用) ?cpu|without (?:a |any )gpu",
        unless=rf"{_OF_A_GPU}|\bxpu\b|显存|\bgpu (?:memory|oom)|cuda error",
    ),
    Clue(
        "computer",
        FAIR,
        says=r"(?:system|laptop|computer|node|kernel|\bpc|workstation|\bvm) (?:to )?r[ua]ns? out of memory|(?:laptop"
        r"|node"
        r"|computer)s? with \d+ ?[gt]i?b? (?:of )?memory|\d ?tb?(?: of)? memory machine",
        unless=rf"{_OF_A_GPU}|显存|cuda error",
    ),
    Clue("heap", STRONG, says=r"malloc_arena_max|jemalloc|tcmalloc|malloc_trim"),
    Clue("stand", FAIR, says=r"mem\(gb\) command|\bon node with \d.{0,12}memory|and \d{2,4} ?g(?:b)? memory"),
)


_KILLED: Final = r"\bkilled?\b|被杀|cpu ?内存|主机内存|服务器内存|\bram\b|bad_alloc|cannot allocate"
_WINDOWS: Final = (
    Clue("windows", FAIR, says=r"\bwsl2?\b|/mnt/(?:[c-f]|wsl)/|desktop-[a-z0-9]{5,}"),
    Clue("windows", WEAK, says=r"\bwindows\b", unless=r"\bwsl2?\b|context windows?"),
)
_PINNED: Final = Clue(
    "pinned",
    STRONG,
    says=r"\bwsl2?\b|/mnt/wsl/|(?:cpu|model|layer|sequential|optimizer|activation)[ _-]?off-?load|off-?load(?:ing|ed)?"
    r"|blocks?.{0,4}swap|swap.{0,4}blocks?|pin(?:ned|_memory)|page-?locked|ram and (?:an? )?(?:rtx|gtx)"
    r"|use_gradient_checkpointing ?= ?[\"']unsloth|锁页|卸载到 ?(?:cpu|内存)",
)
"""The driver's own refusal, without the sizes of PyTorch's allocator, where something pins host memory."""
_FULL: Final = 0.75
_MACHINE: Final = frozenset({"mentioned", "amount", "large"})
"""Signs that tell what machine it is, more than what it lacks."""
_SIZED: Final = frozenset({"torch-cuda-oom", "paddle-oom", "tensorflow-oom", "xla-hbm-exhausted"})
_OF_CARDS: Final = (
    r"显卡|显存|\bgpu|\bcuda|batch|\b[2345]0[5-9]0(?: ?ti)?\b|\b[avht]\d{1,3}\b|卡上|单卡|多卡|\d ?卡"
    r"|zero[-_ ]?[123]|lora|grad|梯度|shot"
)
_SETTLED: Final = (
    r"(?:cpu|主机|系统|机器|服务器|节点|主|物理) ?的?内存|内存条|\bram\b|killed?\b|被杀|不是显存|非显存"
    r"|(?<![\d.])\d{3,4} ?g|\dt\b"
)
"""Words that settle that 内存 is the machine's."""


def weigh(view: View) -> Iterator[Reason]:
    """A host failure, or a device failure with most of the device free."""
    doubtful, measured = _either(view), _measured(view)
    for reason in weigh_clues(view, CAUSE, _CLUES):
        sign = reason.message.key.rpartition(".")[2]
        if measured and sign in _MACHINE:
            continue
        told = sign in ("said", "short")
        yield Reason(WEAK, reason.message, reason.spans) if told and (doubtful or measured) else reason
    failure = view.failure
    if not _card_is_full(view):
        yield from weigh_clues(view, CAUSE, _WINDOWS)
    if failure is not None and failure.signal.name == "cuda-driver-oom":
        yield from weigh_clues(view, CAUSE, (_PINNED,))
    if failure is not None and failure.kind == "host" and (meant := _meant(view)):
        yield Reason(meant, say("cause.host-ram.failure"), (failure.signal.span,))
    if refused_with_room(view):
        message = say(
            "cause.host-ram.free", free_bytes=view.bytes_of("free"), requested_bytes=view.bytes_of("requested")
        )
        hosted = any(weigh_clues(view, CAUSE, (*_WINDOWS, _PINNED)))
        yield Reason(DECISIVE if hosted else STRONG, message)


def _measured(view: View) -> bool:
    """Whether a card's allocator gave the sizes of its refusal: the machine's memory is then only a description."""
    failure = view.failure
    sized = failure is not None and failure.kind == "device" and failure.signal.name in _SIZED
    return bool(sized and view.bytes_of("requested")) and not refused_with_room(view)


def _either(view: View) -> bool:
    """Whether 内存 may be the card's: cards and batches are spoken of, and nothing that settles it."""
    return "内存" in view.text and view.says(_OF_CARDS) is not None and view.says(_SETTLED) is None


def _meant(view: View) -> float:
    """How surely a failure that was read as one of the host is that: people call a card's memory 内存 as well."""
    failure = view.failure
    if view.says(CARD) and not view.says(_KILLED):
        return 0.0
    if failure is not None and failure.signal.name == "worker-vanished":
        return STRONG  # a loader's worker dies of /dev/shm as often
    if (
        failure is not None
        and failure.signal.name == "said-host"
        and re.search("泄[漏露]|leak", failure.signal.span.text)
    ):
        return STRONG
    told = failure.signal.span.text if failure is not None and failure.signal.name == "said-host" else ""
    if "内存" in told and not view.says(_SETTLED):
        return WEAK if _either(view) else FAIR
    return DECISIVE


def _card_is_full(view: View) -> bool:
    """Whether the message shows the card's own memory taken, by this process or others."""
    capacity, free, requested = view.bytes_of("capacity"), view.bytes_of("free"), view.bytes_of("requested")
    if free is not None and requested is not None:
        return free < max(requested, GIB)
    held = (view.bytes_of("allocated") or 0) + (view.cached_bytes or 0)
    return bool(capacity and held >= _FULL * capacity)


def refused_with_room(view: View) -> bool:
    """Whether a request was refused although several times its size was free on the device."""
    free, requested = view.bytes_of("free"), view.bytes_of("requested")
    return bool(free and requested and free > 2 * GIB and free > 3 * requested)
