"""Shared memory: ``/dev/shm`` is too small.

Sign
    "Bus error", "DataLoader worker is killed", "unable to write to file </torch_...>", "Error while creating shared
    memory segment /dev/shm/nccl-...", exit code -7. The disk has room and the GPU is not involved.
Mechanism
    Data-loader workers pass batches, and NCCL its buffers between ranks of one machine, through ``/dev/shm``.
    Docker gives 64 MB unless told otherwise; Kubernetes the same. More workers or larger images need more.
Confirm
    ``df -h /dev/shm`` in the container, while it runs.
Fix
    ``--shm-size=16g`` or ``--ipc=host``; in Kubernetes an ``emptyDir`` with ``medium: Memory`` at ``/dev/shm``;
    fewer workers; ``torch.multiprocessing.set_sharing_strategy("file_system")``; ``NCCL_SHM_DISABLE=1`` as a slow
    last resort.
Cost
    The memory counts against the container's limit.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import DECISIVE, STRONG, Clue, View, weigh_clues
from oomdoc.evidence import Span
from oomdoc.intake.sieve import alternatives
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "shared-memory"

DISK: Final = (
    r"\bdisk (?:is |usage|space|full|quota)|磁盘|硬盘|(?:writ|sav|download|unzip|extract|dump)\w{1,4} (?:the |a |to )?"
    r"(?:\w{1,12} )?(?:checkpoint|model|file|weights?|shards?|cache|dataset|archive|log)|保存|下载|\bdf -h|\bpip\b"
    r"|/tmp/"
    r"|\.safetensors|\.bin\b|\.tar|inode"
)
"""Of a disk: "no space left" is otherwise the word of /dev/shm, where a program of this kind runs out first."""
_ON_CHIP: Final = r"hardware limit|outofresources|out of resource"
_CLUES: Final = (
    Clue(
        "said",
        DECISIVE,
        says=r"bus error|sigbus|/dev/shm(?! ?(?:is )?(?:large|enough))|nccl-shm|shared memory (?:segment|limit"
        r"|needs?\b|requirements?\b|beyond|usage|is (?:too|not|full))"
        r"|out of shared memory|posix_fallocate|</torch_\d|exitcode:? ?-7|共享内存"
        r"|\bsignal ?(?:no\.?|number|[:=])? ?7\b|exit(?:ed)? (?:with )?(?:code|status)\W{0,4}(?:-7|135)\b",
        unless=_ON_CHIP,
    ),
    Clue(
        "size",
        STRONG,
        says=r"shm.?size|--ipc|insufficient shared mem|shm[^\n]{0,8}\b64 ?m\b|\(shm\)"
        r"|ipc.?host|worker[^\n]{0,24}exited unexpectedly|default shared memory|too many open files"
        r"|(?:docker"
        r"|container|容器)[^\n]{0,60}no space left|no space left[^\n]{0,60}(?:docker|container|容器|workers)"
        r"|num_workers (?:to )?\d{1,2} (?:works|fails|does)|num_workers ?调大",
        unless=_ON_CHIP,
    ),
    Clue(
        "no-space",
        STRONG,
        says=r"no space left on device|errno 28\b",
        unless=DISK,
    ),
)

_CONTAINER: Final = alternatives(r"\b(?:docker|podman|nerdctl) run\b")
_LARGER: Final = alternatives(r"\bshm|/shm|--ipc|--pod\b")
_RANKS: Final = alternatives(
    r"(?:num[-_]shards?|tensor[-_]parallel(?:[-_]size)?|--?tp(?:[-_]size)?|nproc[-_]per[-_]node|num[-_]processes"
    r"|sharded)[ =:\"']{1,4}(?:[2-9]\b|1\d\b|true)"
)
"""More than one process that have to talk: NCCL does it through /dev/shm."""
_TOLD: Final = r"out of memory|\boom\b|killed|显存|内存|\bvram\b"
_CERTAIN: Final = frozenset({"shm-bus-error", "exit-135", "shm-alloc-failed"})
"""A bus error is no other memory's."""


def weigh(view: View) -> Iterator[Reason]:
    """What the message says; a kernel's on-chip shared memory is something else."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    failure = view.failure
    if failure is not None and failure.kind == "shared-memory":
        bus = failure.signal.name in _CERTAIN
        yield Reason(2 * DECISIVE if bus else DECISIVE, say("cause.shared-memory.failure"), (failure.signal.span,))
    elif failure is None and view.says(_TOLD) is None and _LARGER.search(view.text) is None:
        yield from _default_container(view)


def _default_container(view: View) -> Iterator[Reason]:
    """Several processes in a container that was started with the 64 MB it is given by default."""
    for document in view.evidence.documents:
        text = document.text.lower()
        if _CONTAINER.search(text) and _RANKS.search(text) and not _LARGER.search(text):
            span = Span(document.source, document.first_line, 1, document.text.strip().splitlines()[0][:200])
            yield Reason(STRONG, say("cause.shared-memory.container", quote=span.text[:90]), (span,))
            return
