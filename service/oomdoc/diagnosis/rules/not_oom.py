"""Not a memory shortage, although it looks like one.

Sign
    Triton's "out of resource: shared memory, Required: 81920, Hardware limit: 65536"; a request of more than 1 EB;
    NCCL's "Cuda failure 2" in a shared-memory transport; a refused small request with most of the card free; "no
    space left on device"; an illegal access.
Mechanism
    A kernel's tile needs more on-chip memory than one multiprocessor has (64 KiB on Turing, 99 KiB on Ada, 227 KiB
    on Hopper): card memory plays no part. A size of exabytes is a negative number read as unsigned. NCCL reports
    any failed driver call with the word memory.
Confirm
    Compare free memory with the request; look for the unit (bytes per block against gigabytes) and the failing
    library.
Fix
    For kernels smaller blocks, fewer stages or another head size, or a version that knows the card; for sizes the
    library's bug; for NCCL its environment (``NCCL_CUMEM_HOST_ENABLE=0``, ``NCCL_DEBUG=INFO`` tells which call
    failed); for disks space.
Cost
    None for memory: no batch size or sharding changes anything.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules.host_ram import refused_with_room
from oomdoc.diagnosis.rules.shared_memory import DISK
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "not-oom"

HUGE_CONTEXT: Final = (
    r"(?:num_ctx|ctx.size|n_ctx|context.(?:length|size|window))\W{1,4}(?:1[3-9]\d{4}|[2-9]\d{5}|\d{7}|1(?:28|31)k\b)"
)
"""A runner that is asked for a cache of so many tokens and dies by a signal has run out of the machine's memory."""
_CLUES: Final = (
    Clue(
        "kernel",
        2 * DECISIVE,
        says=r"outofresources|out of resource:|triton.{0,40}shared memory|dynamic shared memory|too much shared data"
        r"|shared memory per (?:block|sm)|(?:required|available|insufficient) shared memory[^\n]{0,4}\d{5,6}"
        r"|reducing block sizes|memory space [sv]mem|not enough space in the (?:context|scratch)|scoped vmem",
    ),
    Clue(
        "transport",
        STRONG,
        says=r"nccl warn cuda failure(?! 2\b)(?![^\n]{0,8}out of mem)|transport/shm\.cc|nccl.{0,30}cumem",
    ),
    Clue(
        "misleading",
        DECISIVE,
        says=r"mis-?leading[^\n]{0,40}(?:memory|oom)|(?:memory|oom)[^\n]{0,40}mis-?leading|red herring"
        r"|(?:wrong|false|spurious|bogus|incorrect)[ -](?:\w{1,8} )?(?:oom\b|out[ -]of[ -]memory)"
        r"|not (?:really |actually )(?:an? )?(?:oom\b|out of memory)|并不是(?:真的)?(?:显存不足|oom)|(?:误报"
        r"|假)的?(?:oom|显存不足)",
    ),
    Clue(
        "impossible", 2 * DECISIVE, says=r"(?:more than|[>≥]) ?1 ?eb\b|tried to allocate \d{6,12}(?:\.\d{1,3})? ?gi?b"
    ),
    Clue(
        "size",
        DECISIVE,
        says=r"\b1 ?eb\b|(?:size|alloc\w{0,8}|request\w{0,3}|bytes"
        r"|buffer)[^\n.]{0,30}(?<![\d.])\d{16,20}(?!\d)"
        r"|(?<![\d.])\d{16,20} bytes",
    ),
    Clue("written", STRONG, says=r"resource ?exhausted(?:error)?: (?:/|[a-z]:\\)"),
    Clue(
        "pool",
        DECISIVE,
        says=r"(?:pre-?allocat\w{1,4}|occup\w{1,4}|takes?|us(?:es|ing)|reserv\w{1,3}|allocat\w{1,3}|占)[^\n]{0,24}"
        r"(?:\b\d{2,3} ?gi?b?\b|\b(?:[79]\d|8\d) ?%|all (?:of )?(?:the |my )?(?:gpu|card|memory|vram)|满)",
        unless=r"^(?![\s\S]{0,8000}(?:\bjax\b|openpi|\bpi0|flax|\bbrax\b|tensorflow|\bkeras\b|maxtext|easylm))"
        r"|out of memory|\boom\b|exhausted|\bram\b|host memory|cpu memory|crash",
    ),
    Clue(
        "disk",
        WEAK,
        says=r"no space left on device(?![^\n]{0,200}shm)",
        unless=r"/dev/shm|posix_fallocate|nccl-shm",
    ),
    Clue("quota", DECISIVE, says=r"disk quota exceeded|errno 122\b|超出(?:磁盘)?配额"),
    Clue("disk-named", STRONG, says=r"disk quota|磁盘.{0,4}满|\bdisk (?:is |space )?(?:full|exhausted)"),
    Clue(
        "room",
        FAIR,
        says=r"nvidia-smi[^\n]{0,24}\b(?:0 ?mi?b|nothing|empty|idle)\b|(?:plenty|lots|all"
        r"|most) of (?:the )?(?:free )?(?:memory|vram|card)"
        r"[^\n]{0,12}free|(?:idle|empty|unused) (?:gpu|card)|显存(?:还|明明|都)?(?:有|剩)?(?:很多|很空|是空|空着"
        r"|充足)|显卡是空"
        r"|nearly empty|(?:card|gpu) is free|torch\.(?:zeros|tensor|randn|ones)\([^\n]{0,12}\)\.(?:cuda|to)\(",
    ),
    Clue(
        "crash",
        STRONG,
        says=r"illegal memory access|device-side assert(?!ions)|assertion `src|srcselectdimsize|segmentation fault"
        r"|cublas_status_(?!alloc)\w|cudnn_status_(?!alloc|internal_error_dev)\w|cusolver\w{0,8} error|cufft"
        r"|address[^\n]{0,40}(?:out of range|misaligned|not mapped)|misaligned address|out-of-bounds|xid \d{1,3}\b"
        r"|aicore|mte instruction|error code is 507\d{3}"
        r"|no kernel image is available|invalid device function|invalid configuration argument|\becc error|peer mapping"
        r"|file write failed|failed writing file"
        r"|unspecified launch failure|too many resources requested|num_stages|段错误|execution_failed|stack limit"
        r"|driver (?:version )?(?:mismatch|(?:is )?insufficient|(?:is )?too old)|insufficient for cuda|驱动(?:版本)?不"
        r"|initiali[sz]ation error|几千 ?g\b|terabytes|exabytes"
        r"|nccl timeout|nccl 超时|cannot fork|disk (?:is )?full|磁盘(?:空间)?(?:不足"
        r"|满)|下标越界|shared memory per block",
        unless=HUGE_CONTEXT,
    ),
)


def weigh(view: View) -> Iterator[Reason]:
    """The look-alikes' own words, and a refusal with room to spare."""
    failure = view.failure
    measured = failure is not None and failure.kind == "device" and view.bytes_of("requested") is not None
    full = measured and not refused_with_room(view)
    for reason in weigh_clues(view, CAUSE, _CLUES):
        beside = full and reason.message.key.endswith((".crash", ".room"))  # told of another run, or of before it
        yield Reason(min(reason.log_odds, WEAK), reason.message, reason.spans) if beside else reason
    if failure is not None and failure.kind == "other":
        # "No space left on device" without a word of a disk is as often said of /dev/shm.
        sure = failure.signal.name != "disk-full" or view.says(DISK) is not None
        yield Reason(DECISIVE if sure else FAIR, say("cause.not-oom.failure"), (failure.signal.span,))
    if refused_with_room(view):
        yield Reason(STRONG, say("cause.not-oom.free", free_bytes=view.bytes_of("free")))
