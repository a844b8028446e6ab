"""Fragmentation: the memory is there, in pieces that are too small.

Sign
    "Reserved by PyTorch but unallocated" is large, larger than the request: 40.69 GiB cached, 35.60 GiB asked for.
    Lengths or image sizes vary from step to step.
Mechanism
    The caching allocator keeps freed blocks and splits them. When sizes change, free pieces lie in segments that
    hold something else and cannot be joined. A new segment needs contiguous memory from the driver, and there is
    none left.
Confirm
    Cached but unallocated memory is above a tenth of the card and above the request. The same job passes with
    expandable segments.
Fix
    ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`` (PyTorch 2.1 and later; not together with some uses of CUDA
    IPC and engines' own memory pools); ``max_split_size_mb`` before; bucketed or padded lengths;
    ``torch.cuda.empty_cache()`` between phases. Where the cache is small, no allocator setting helps.
Cost
    None to a few per cent.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "fragmentation"

_CLUES: Final = (
    Clue(
        "said",
        FAIR,
        says=r"(?<!no )(?<!avoid )(?<!temp )(?<!no memory )(?<!out memory )(?<!pytorch memory )fragment(?!s\b)"
        r"(?!ation\W{1,12}\d)|碎片|reserved.{0,12}(?:but )?(?:is )?(?:not used|unused)"
        r"|has the memory and"
        r"|contiguous (?:region|block|space)|at the bottom of memory|empty_cache[^\n]{0,40}(?:help|fix|solv"
        r"|avoid|好了|可以)"
        r"|expandable_segments[^\n]{0,40}(?:help|fix|solv|好了|可以)|cache flush"
        r"|(?:gigabytes|memory) (?:are |is )?cached|(?:free|unused) inside pytorch"
        r"|empty_cache[^\n]{0,40}makes? it fit|allocator (?:not used|keeps?|retries)|high reserved|保留的?很多|缓存却"
        r"|占着显存又不用|sum of (?:allocated|free)"
        r"|allocated[^\n]{0,20}\d ?gi?b?[^\n]{0,40}(?:reserved|nvidia-smi|cached)[^\n]{0,24}\d ?gi?b"
        r"|(?:reserved|cached)[^\n]{0,20}\d ?gi?b?[^\n]{0,40}allocated[^\n]{0,20}\d ?gi?b",
    ),
    Clue(
        "cache",
        STRONG,
        says=r"(?:large|huge|big|massive|bizarre)\w{0,4} (?:\w{1,12} )?cache|(?:reserved|cached)\b.{0,24}(?:is "
        r"|are |keeps )"
        r"(?:huge|large|much|far|grow)|allocated (?:memory )?(?:is|stays) (?:small|low|constant)"
        r"|缓存.{0,8}(?:离谱|很大|过大|越来越)",
        unless=r"kv.?cache|page cache|sample|activat",
    ),
    Clue("contiguous", FAIR, says=r"largest (?:contiguous|free) (?:region|block|chunk)"),
    Clue(
        "setting-helps",
        STRONG,
        says=r"(?:expandable[ _]segments|max_split_size\w{0,4}|garbage_collection_threshold|cuda_alloc_conf"
        r"|empty_cache)\b"
        r"[^\n]{0,110}(?:help(?:s|ed)|fix(?:es|ed)|solv(?:es|ed)|resolv(?:es|ed)|makes? it (?:work|fit|run)"
        r"|vanish|disappear|goes away|is gone"
        r"|works? (?:again|fine|now)|\bruns? (?:fine|well|through|without)|trains? (?:fine|without)"
        r"|without (?:any )?(?:error|oom)"
        r"|no (?:more )?oom|can (?:now )?(?:train|run)|好了|就可以|解决了|不再)"
        r"|(?:if|when|unless) (?:i|we|you) (?:do ?n'?t|do not|didn'?t)? ?(?:set|use|export) (?:it|this|that)\b"
        r"[^\n]{0,12}(?:oom|out of mem|fail|crash)",
        unless=r"(?:no|not|n'?t|did not|doesn'?t) (?:\w{1,8} )?(?:help|fix|solv|work|resolv)",
    ),
    Clue("setting", WEAK, says=r"expandable_segments|max_split_size"),
)


_LITTLE: Final = 0.04
"""Of a card: so small a cache is what any program has."""


def weigh(view: View) -> Iterator[Reason]:
    """How much is cached against what was asked for and what the card holds."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    cached, requested, capacity = view.cached_bytes, view.bytes_of("requested"), view.bytes_of("capacity")
    if cached is None or capacity is None:
        return
    part = cached / capacity
    allocated, free = view.bytes_of("allocated"), view.bytes_of("free") or 0
    if requested and allocated is not None and allocated <= capacity < allocated + requested:
        yield Reason(-STRONG, say("cause.fragmentation.too-much", needed_bytes=allocated + requested))
        return
    if requested and cached + free < requested and part < _LITTLE:
        yield Reason(-FAIR, say("cause.fragmentation.none", cached_bytes=cached))
        return
    message = say("cause.fragmentation.cached", cached_bytes=cached, requested_bytes=requested or 0)
    if requested and cached >= requested and part >= 0.1:
        yield Reason(DECISIVE if part >= 0.3 else STRONG if part >= 0.2 else FAIR, message)
    elif requested and cached >= requested and part >= 0.04:
        yield Reason(WEAK, message)
    elif part < _LITTLE:
        yield Reason(-WEAK, say("cause.fragmentation.none", cached_bytes=cached))
