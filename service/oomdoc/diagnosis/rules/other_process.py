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

_CLUES: Final = (
    Clue(
        "said",
        FAIR,
        says=r"(?:other|another|someone else'?s?|different) (?:process|user|program|job|people|person)"
        r"|no such process|zombie"
        r"|leftover|shared (?:server|machine|gpu|box|cluster)"
        r"|nvidia-smi.{0,40}(?:no process|nothing|一个python都没有|没有.{0,6}进程|without)"
        r"|kill.{0,24}(?:重跑|still|还占"
        r"|显存)|残留|僵尸|师弟|师兄|同学|别人|其他(?:进程|人|程序)|who is that|ollama.{0,10}(?:开|run|占)"
        r"|(?:开|run).{0,10}ollama|在(?:跑|运行)的(?:代码|程序|任务|进程)|previous (?:run|process|job|session|server)"
        r"|(?:still|already) (?:occupied|taken|held)\b|without (?:running|starting) anything|(?:上一次|上次"
        r"|之前)的?(?:进程|程序|任务)"
        r"|(?:who is|find (?:out )?who)[^\n]{0,20}gpu|(?:card|gpu)[^\n]{0,10}(?:is |was |already )(?:occupied|taken)"
        r"|显[卡存][^\n]{0,6}被[^\n]{0,4}占|another pid|process with another|jupyter (?:notebook )?kernel"
        r"|notebook[^\n]{0,12}(?:没关|still|keeps)|free memory on device[^\n]{0,60}less than desired|only (?:a few"
        r"|\d{1,3}) mi?b free|worked yesterday|昨天(?:能|还|可以)|desktop|another container|公用|抢显存"
        r"|(?:卡|显存|gpu)[^\n]{0,8}已经?有?被?(?:别的)?占用|已有别的占用|only has \d{1,2} ?gi?b (?:left|free)"
        r"|ctrl.?c\b"
        r"|second time fails|two services",
    ),
    Clue(
        "left-behind",
        STRONG,
        says=r"(?:won'?t|does(?:n'?t| not)|not|never) (?:let go of|give back|return|free"
        r"|release)[^\n]{0,24}(?:memory|vram)"
        r"[^\n]{0,40}(?:after|even|when|shut|exit|kill|stop)?|hold(?:s|ing)? on ?to (?:\w{1,10} )?memory"
        r"|(?:after|even after) (?:its |the |i |it )?(?:shut ?down|exit|kill|quit|ctrl)[^\n]{0,40}(?:memory|vram|gpu)"
        r"|orphan|进程(?:结束|退出|杀掉)(?:之)?后.{0,16}(?:显存|占)"
        r"|(?:stopped|killed|shut ?down|exited)[^\n]{0,30}(?:but|still)[^\n]{0,30}(?:memory|taken|held|occup)"
        r"|not released after (?:the )?(?:program|process|script|run)|[停退杀]了?[^\n]{0,10}还占|没有退出"
        r"|jobs? keep the gpus?",
        unless=r"colocat|rollout|sleep|\bppo\b|\bgrpo\b",
    ),
    Clue(
        "shares-card",
        STRONG,
        says=r"(?:several|many|multiple|two|three) (?:\w{1,16} )?(?:models?|instances?|servers?|jobs?|scripts?) "
        r"[^\n]{0,30}(?:one|same|single) (?:gpu|card)|多个?(?:模型|实例|任务|脚本).{0,12}同一"
        r"|takes? (?:over )?(?:all|the whole|the entire)[^\n]{0,16}(?:gpu|card)",
    ),
    Clue("named", WEAK, says=r"process \d{2,9} has [1-9]\d?\.?\d* gib"),
)
_CONTEXT_BYTES: Final = int(2.5 * GIB)
"""More than a CUDA context with its libraries and communication buffers."""


def weigh(view: View) -> Iterator[Reason]:
    """Memory in use on the card that this process does not hold."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    capacity = view.bytes_of("capacity")
    held = _held_by_others(view)
    if not capacity or held is None:
        return
    if held >= _CONTEXT_BYTES and held >= 0.08 * capacity:
        part = held / capacity
        requested, free = view.bytes_of("requested"), view.bytes_of("free") or 0
        helps = requested is None or requested <= free + held
        weight = DECISIVE if part >= 0.25 else STRONG if part >= 0.15 else FAIR
        yield Reason(
            weight if helps else FAIR, say("cause.other-process.held", held_bytes=held, capacity_bytes=capacity)
        )


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
    if not own or allocated is None or view.bytes_of("reserved") is None:
        return None
    return max(capacity - free - own, 0)
