"""Other processes: somebody else holds the GPU's memory.

Sign
    The message names other processes ("Process 149826 has 16.98 GiB memory in use"), or capacity minus reserved
    minus free leaves gigabytes that PyTorch never had. A tiny request fails while this process holds little.
    ``nvidia-smi`` shows use without a Python process that you know.
Mechanism
    A card has one memory for all processes: another job, a server, a notebook kernel, a desktop, or a child of a
    killed run that is still alive. All ranks on one GPU (a wrong ``CUDA_VISIBLE_DEVICES`` or ``local_rank``) look
    the same. A CUDA context by itself is 0.3 to 0.6 GiB.
Confirm
    ``nvidia-smi`` and ``fuser -v /dev/nvidia*`` before the start; in a container the holder may be outside of it.
Fix
    End what is left over; choose a free card; one rank per GPU; on a shared machine agree on cards or use a
    scheduler.
Cost
    None.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say
from oomkb.units import GIB

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "other-process"

_TRIFLE: Final = (
    r"\b\d{1,3} ?mi?b?[^\n]{0,12}(?:显存)?[^\n]{0,4}被|nothing else (?:is |was )?(?:open|running)|no other (?:process"
    r"|program)"
    r"|(?:其他|其它)(?:进程|程序)都?关|没有(?:其他|其它|别的)(?:进程|程序)"
)
"""Others that hold next to nothing, are said not to be there, or are asked about in a standing advice."""
_MEMORY: Final = r"(?:memory|vram|显存|gpus?\b)"
_ENDS: Final = (
    r"(?:stop|\bend(?:s|ed|ing)?\b|exit|\bquit|kill|interrupt|crash|finish|terminat|\bclos(?:e|ed|ing)\b|inactive|abort"
    r"|shut ?down|ctrl.?c\b|\bdie[sd]\b|结束|退出|停止|中止|终止|杀|中断|关闭|关掉|崩溃)"
)
_KEPT: Final = (
    r"(?:(?:\bnot|n'?t|never|without|doesnot|没有?|无法|不会?|未)[^\n]{0,20}(?:releas|free[ds]?\b|return|clear|let go"
    r"|give(?:n|s)? back|释放))"
)
_LINGERS: Final = r"(?:still|remain(?:s|ed|ing)?|stays?|仍|依然|还是?)"
_WITHIN: Final = (
    r"colocat|rollout|sleep|\bppo\b|\bgrpo\b|(?:after|at the end of) (?:each|every|the|one|an?)? ?"
    r"(?:step|epoch|validation|evaluation|inference|generation)|显存未使用|del model|empty_cache"
)
"""Memory that the same process, still alive, does not give back."""
_CLUES: Final = (
    Clue(
        "said",
        FAIR,
        says=r"(?:(?<!there is any )(?<!have any )(?<!with no )other|another|someone else'?s?|different) (?:process"
        r"|user|program|job|person)"
        r"|other people(?:'s)? (?:are|is|us|run|job|process)|no such process"
        r"|leftover|shared (?:server|machine|gpu|box|cluster)"
        r"|nvidia-smi.{0,40}(?:no process|nothing|一个python都没有|没有.{0,6}进程|without)"
        r"|kill.{0,24}(?:重跑|still|还占)|残留|师弟|师兄|同学|别人|其他(?:进程|人|程序)(?!都?关)|who is that"
        r"|ollama[^\n]{0,10}(?:开着|占)"
        r"|(?:开着|占)[^\n]{0,10}ollama|在(?:跑|运行)的(?:代码|程序|任务|进程)"
        r"|previous (?:run|process|job|session|server)"
        r"|(?:still|already) (?:occupied|taken|held)\b|without (?:running|starting) anything|(?:上一次|上次"
        r"|之前)的?(?:进程|程序|任务)"
        r"|(?:who is|find (?:out )?who)[^\n]{0,20}gpu|(?:card|gpu)[^\n]{0,10}(?:is |was |already )(?:occupied|taken)"
        r"|显[卡存][^\n]{0,6}被[^\n]{0,4}占|another pid|process with another|jupyter (?:notebook )?kernel"
        r"|notebook[^\n]{0,12}(?:没关|still|keeps)|free memory on device[^\n]{0,60}less than desired|only (?:a few"
        r"|\d{1,3}) mi?b free|worked yesterday|昨天(?:能|还|可以)|(?:used by|for) (?:the )?desktop"
        r"|desktop (?:session|environment)|another container|公用|抢显存"
        r"|second time fails|two services",
        unless=_TRIFLE,
    ),
    Clue(
        "taken",
        STRONG,
        says=r"(?:卡|显存|gpu)[^\n]{0,8}已经?(?:有|被)[^\n]{0,6}占|已有别的占用|(?:卡|gpu|card)[^\n]{0,6}(?:还|都|也"
        r"|上)?"
        r"(?:跑|运行)(?:了|着)?(?:其他|其它|别的|另)|(?:剩余|还剩|只剩)(?:显存)?[^\n]{0,6}\d{1,2} ?gi?b?\b"
        r"|(?:gpu|card)s?\b[^\n]{0,24}(?:at full capacity|fully occupied|fully used|busy with)"
        r"|(?:gpu|card|memory|vram)\b[^\n]{0,24}(?:already|currently) (?:in use|used|occupied|taken|busy)\b"
        r"|(?:vram|gpu memory|device memory|video memory|显存)\b[^\n]{0,24}(?:occupied|held|taken|consumed|eaten"
        r"|hogged) by "
        r"(?:an? |the |my |our )?(?![^\n.]{0,16}(?:cache|model|weight|tensor|activ|grad|optim))[^\n.]{0,30}"
        r"(?:process|program|application|\bapp|\bjob|server|container|user)"
        r"|someone (?:else )?(?:is |was )?(?:using|running)|only (?:has |about )?\d{1,2}(?:\.\d)? ?gi?b? (?:is |are )?"
        r"(?:left|free)\b|avoid(?:ing)? the (?:busy|occupied|used|first) (?:gpu|card)",
        unless=rf"{_TRIFLE}|cuda out of memory\. tried|磁盘|disk|运行内存|\bram\b",
    ),
    Clue(
        "left-behind",
        STRONG,
        says=rf"{_MEMORY}[^\n]{{0,40}}{_KEPT}[^\n]{{0,80}}{_ENDS}|{_ENDS}[^\n]{{0,80}}{_MEMORY}[^\n]{{0,40}}{_KEPT}"
        rf"|{_ENDS}[^\n]{{0,80}}{_KEPT}[^\n]{{0,30}}{_MEMORY}|{_KEPT}[^\n]{{0,16}}{_MEMORY}[^\n]{{0,40}}{_ENDS}"
        rf"|{_ENDS}[^\n]{{0,70}}{_LINGERS}[^\n]{{0,24}}(?:{_MEMORY}|us(?:e|ed|ing)\b|occup|held|taken|占)"
        rf"|{_ENDS}[^\n]{{0,70}}{_MEMORY}[^\n]{{0,24}}{_LINGERS}"
        r"|\bprocess(?:es)?\b[^\n]{0,50} (?:is|are|was|were) not (?:killed|cleaned|terminated|reaped|ended|stopped)\b"
        r"|进程[^\n]{0,12}(?:没有?|未)(?:被)?(?:杀|清理|退出|结束)"
        r"|hold(?:s|ing)? on ?to (?:\w{1,10} )?memory|jobs? keep the gpus?|not killing (?:the )?(?:process|child"
        r"|worker)",
        unless=_WITHIN,
    ),
    Clue(
        "undead",
        STRONG,
        says=r"zombie|僵尸|orphan|defunct|残留的?进程|leftover process|no process(?:es)? (?:of mine|found|running"
        r"|listed"
        r"|shown)|no running process|(?:not|n'?t) have any (?!other)[^\n]{0,20}process|processes[^\n]{0,60}\(empty\)"
        r"|(?:cannot|can'?t|could not|couldn'?t) (?:be )?kill(?:ed)?\b|杀不(?:掉|死)|孤儿进程"
        r"|没有(?:任何)?进程[^\n]{0,12}(?:占|显存)",
    ),
    Clue(
        "shares-card",
        STRONG,
        says=r"(?:several|many|multiple|two|three) (?:\w{1,16} )?(?:models?|instances?|servers?|jobs?|scripts?) "
        r"[^\n]{0,30}(?:one|same|single) (?:gpu|card)|多个?(?:模型|实例|任务|脚本).{0,12}同一"
        r"|(?:workers|processes|jobs|tests|instances|containers) (?:all )?(?:share|run on|are on|use) (?:the same|one"
        r"|a single)"
        r" (?:gpu|card)"
        r"|takes? (?:over )?(?:all|the whole|the entire)[^\n]{0,16}(?:gpu|card)",
    ),
    Clue(
        "contexts",
        STRONG,
        says=r"(?:first|main|same|gpu ?0|0 ?号卡?|cuda:0|device 0)\b[^\n]{0,60}(?:used |occupied "
        r"|taken )?by [^\n]{0,20}"
        r"(?:other|each|every|all)[^\n]{0,12}(?:gpus?|process|ranks?|workers?)"
        r"|(?:all|four|eight|every|each|\d) (?:of the )?(?:ranks?|process(?:es)?|workers?) [^\n]{0,24}(?:on|to|in|use"
        r"|onto) "
        r"(?:the )?(?:cuda:0|gpu ?0|first (?:gpu|card)|same (?:gpu|card)|one (?:gpu|card))"
        r"|process(?:es)? (?:running )?on (?:the )?(?:other )?gpus?\d{0,2}[^\n]{0,40}(?:occup|us|tak)\w{1,4}"
        r"[^\n]{0,40}(?:gpu|memory)|(?:每个|其他|其它)进程[^\n]{0,16}(?:0 ?号|第一张|主)卡",
        unless=r"check whether there is any other",
    ),
)
_CONTEXT_BYTES: Final = int(0.9 * GIB)
"""A CUDA context with its libraries: held by this process itself, where its own total is not stated."""
_LEAST_BYTES: Final = int(0.9 * GIB)
_AT_START: Final = "vllm-startup-free-too-low"
_MOST: Final = 0.5
"""Of a card: what others hold then leaves no job of its size any room."""


def weigh(view: View) -> Iterator[Reason]:
    """Memory in use on the card that this process does not hold."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    yield from _at_the_start(view)
    capacity = view.bytes_of("capacity")
    held = _held_by_others(view)
    if not capacity or held is None:
        return
    told = view.bytes_of("process") is not None or view.bytes_of("other_process") is not None
    beyond = held if told else held - _CONTEXT_BYTES
    part = beyond / capacity
    if beyond >= _LEAST_BYTES and part >= 0.08:
        requested, free = view.bytes_of("requested"), view.bytes_of("free") or 0
        helps = requested is None or requested <= free + held
        weight = 1.5 * DECISIVE if part >= _MOST else DECISIVE if part >= 0.25 else STRONG if part >= 0.15 else WEAK
        yield Reason(
            weight if helps else WEAK, say("cause.other-process.held", held_bytes=held, capacity_bytes=capacity)
        )


def _at_the_start(view: View) -> Iterator[Reason]:
    """An engine that finds the card taken before it has put anything there."""
    failure = view.failure
    if failure is None or failure.signal.name != _AT_START or view.job.rollout is not None or view.says(_WITHIN):
        return
    free, capacity = view.bytes_of("free"), view.bytes_of("capacity")
    if not capacity or free is None:
        return
    held = capacity - free
    message = say("cause.other-process.held", held_bytes=held, capacity_bytes=capacity)
    yield Reason(DECISIVE if held >= 0.25 * capacity else FAIR, message, (failure.signal.span,))


def _names_one(view: View) -> bool:
    return view.failure is not None and view.failure.signal.data.get("other_processes", 1) == 1


def _held_by_others(view: View) -> int | None:
    """What other processes hold, as stated, else what is missing from the sum of this process and the free memory."""
    stated = view.bytes_of("other_process")
    allocated, cached = view.bytes_of("allocated"), view.cached_bytes
    own = (allocated or 0) + (cached or 0)
    if stated is not None:
        # In a container the process does not know its own number: "another" of exactly its own size is itself.
        # So is the only one named in a message that says nothing of its own memory: it was cut before that.
        nameless = view.bytes_of("process") is None
        close = abs(stated - own) < max(2 * GIB, 0.1 * own) if own else _names_one(view)
        return 0 if nameless and close else stated
    capacity, free = view.bytes_of("capacity"), view.bytes_of("free")
    process = view.bytes_of("process")
    if capacity is None or free is None:
        return None
    if process is not None and process >= (allocated or 0):
        return max(capacity - free - process, 0)
    if process == 0:
        return None  # a driver that counts nothing: what it says is in use is as little to be believed
    if not own or allocated is None or cached is None:
        return None
    return max(capacity - free - own, 0)
