"""Logs of any size in bounded memory: only what is around telling lines is kept, with the beginning and the end.

A chunk is searched for a handful of rare literals with ``bytes.find``; lines are made only around hits. A gigabyte
that says nothing costs one pass of memory bandwidth. Gzip and Zstandard are unpacked on the way.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

from oomdoc.evidence import Source
from oomdoc.hook_report import CAPTURE_SCHEMA, report_text
from oomdoc.intake.detect import check_text
from oomdoc.intake.long_texts import telling
from oomdoc.isolation import run_isolated
from oomkb.errors import InputError

_MAX_BYTES: Final = 512 << 20


def is_snapshot(head: bytes) -> bool:
    """Whether a file begins like a binary pickle (protocols 2 to 5)."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def snapshot_text(file: Path, where: str) -> str:
    """The snapshot as lines: totals, the largest holders, a traceback of the request that failed if it holds one.

    :raises InputError: when it is no memory snapshot, or needs more memory or time to read than it may have.
    """
    if file.stat().st_size > _MAX_BYTES:
        raise InputError("the snapshot is too large", where=where, hint="record fewer entries (max_entries)")
    return str(run_isolated("oomdoc.snapshots", file, where=where)["text"])


Progress = Callable[[int, int | None], None]
"""Called with bytes read and bytes in all (of the file as stored), the latter ``None`` where it is not known."""

_CHUNK: Final = 8 << 20
_SMALL: Final = 4 << 20
"""Bytes that are read whole."""
_HEAD: Final = 512 << 10
_TAIL: Final = 512 << 10
_BEFORE: Final = 12 << 10
"""Bytes before a hit that are kept: a traceback and its interleaved neighbours."""
_AFTER: Final = 6 << 10
_BUDGET: Final = 2 << 20
"""Bytes kept around hits in all; the first ones, then (in half as much again) the latest."""

_LITERALS: Final = telling()


class _Kept:
    """The parts of a stream that are worth reading, in order, within a budget."""

    def __init__(self) -> None:
        self.head = b""
        self.early: list[tuple[int, bytes]] = []
        self.late: list[tuple[int, bytes]] = []
        self.early_size = 0
        self.late_size = 0
        self.end = 0

    def add(self, at: int, piece: bytes) -> None:
        """Keep ``piece`` (which begins at byte ``at``) unless it was kept before."""
        if at < self.end:
            piece, at = piece[self.end - at :], self.end
        if not piece:
            return
        self.end = at + len(piece)
        if self.early_size < _BUDGET:
            self.early.append((at, piece))
            self.early_size += len(piece)
            return
        self.late.append((at, piece))
        self.late_size += len(piece)
        while self.late_size > _BUDGET // 2 and len(self.late) > 1:
            self.late_size -= len(self.late.pop(0)[1])


def load_source(path: str | Path, progress: Progress | None = None, *, limit_bytes: int | None = None) -> Source:
    """A file as a source: whole when it is small, else its beginning, its end and what is around telling lines.

    :param limit_bytes: unpacked bytes that are read at most; ``None`` for files of one's own.
    :raises InputError: when it cannot be read, is no text, is damaged, or unpacks to more than ``limit_bytes``.
    """
    file = Path(path)
    try:
        if file.is_dir():
            raise InputError("this is a folder", where=str(file), hint="give the log or config files in it")
        with file.open("rb") as raw:
            head = raw.read(4)
        if is_snapshot(head):
            return Source(str(path), snapshot_text(file, str(file)))
        with _opened(file) as (stream, position, total):
            bounded = stream if limit_bytes is None else cast("IO[bytes]", _Bounded(stream, limit_bytes, str(file)))
            text = _condensed(bounded, position, total, progress)
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError("no such file", where=str(file), hint="check the path; a question goes in quotes") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", where=str(file), hint="is it complete and unpacked?") from error
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("this is UTF-16", where=str(file), hint="save it as UTF-8")
    plain = text.decode("utf-8", errors="replace")
    check_text(plain, str(file))
    return _report_of_hook(str(path), text) or Source(str(path), plain)


def _report_of_hook(name: str, text: bytes) -> Source | None:
    """What ``oomdoc.watch()`` wrote at a failure, as the text that it diagnosed; under a name that is no config's."""
    if CAPTURE_SCHEMA.encode() not in text[:80]:
        return None
    try:
        return Source(f"{name} (report)", report_text(json.loads(text)))
    except (AttributeError, RecursionError, TypeError, ValueError):
        return None  # somebody else's file


class _Bounded:
    """A stream that may give so many bytes and no more."""

    def __init__(self, stream: IO[bytes], limit_bytes: int, where: str) -> None:
        self._stream, self._left, self._where = stream, limit_bytes, where

    def read(self, size: int) -> bytes:
        """As of any stream.

        :raises InputError: where there is more than may be read.
        """
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise InputError("it unpacks to too much", where=self._where, hint="send the part around the failure")
        return data


def condense(text: str) -> str:
    """The same for a long text that is in memory already."""
    data = text.encode("utf-8", errors="replace")
    stream = io.BytesIO(data)
    return _condensed(stream, stream.tell, len(data), None).decode("utf-8", errors="replace")


@contextmanager
def _opened(file: Path) -> Iterator[tuple[IO[bytes], Callable[[], int], int | None]]:
    """The unpacked stream, the position in the stored file, and that file's size."""
    total = file.stat().st_size
    with file.open("rb") as raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=raw) as packed:
                yield cast("IO[bytes]", packed), raw.tell, total
        elif magic == b"\x28\xb5\x2f\xfd":
            with _zstandard(raw, file) as unpacked:
                yield unpacked, raw.tell, total
        elif magic[:3] == b"BZh" or magic in (b"\xfd7zX", b"PK\x03\x04"):
            raise InputError(
                "this kind of archive is not unpacked", where=str(file), hint="unpack it, or use gzip or zstd"
            )
        else:
            yield raw, raw.tell, total


@contextmanager
def _zstandard(raw: IO[bytes], file: Path) -> Iterator[IO[bytes]]:
    try:
        import zstandard
    except ImportError as error:
        raise InputError(
            "reading .zst needs the package zstandard", where=str(file), hint="pip install zstandard"
        ) from error
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(raw, read_across_frames=True) as reader:
            yield reader
    except zstandard.ZstdError as error:
        raise InputError(f"cannot be unpacked: {error}", where=str(file), hint="is it complete?") from error


def _condensed(stream: IO[bytes], position: Callable[[], int], total: int | None, progress: Progress | None) -> bytes:
    kept, carry, at = _Kept(), b"", 0
    first = stream.read(_SMALL)
    rest = stream.read(_CHUNK) if len(first) == _SMALL else b""
    if not rest:
        if progress is not None:
            progress(position(), total)
        return first
    kept.head = first[:_HEAD]
    kept.end = _HEAD
    tail = b""
    chunk = first + rest
    while chunk:
        block = carry + chunk
        _search(block, at - len(carry), kept)
        tail = (tail + chunk)[-_TAIL:] if len(chunk) < _TAIL else chunk[-_TAIL:]
        at += len(chunk)
        carry = block[-(_BEFORE + _AFTER) :]
        if progress is not None:
            progress(position(), total)
        chunk = stream.read(_CHUNK)
    return _joined(kept, tail, at)


def _search(block: bytes, start: int, kept: _Kept) -> None:
    """Keep the surroundings of every hit in a block; a region that hits again and again is taken once."""
    hits: list[tuple[int, int]] = []
    for literal in _LITERALS:
        at, count = block.find(literal), 0
        while at >= 0 and count < 400:
            hits.append((max(0, at - _BEFORE), min(len(block), at + _AFTER)))
            count += 1
            at = block.find(literal, at + _AFTER)
    if not hits:
        return
    hits.sort()
    low, high = hits[0]
    for begin, end in hits[1:]:
        if begin <= high:
            high = max(high, end)
        else:
            _keep(block, start, low, high, kept)
            low, high = begin, end
    _keep(block, start, low, high, kept)


def _keep(block: bytes, start: int, low: int, high: int, kept: _Kept) -> None:
    """Whole lines of ``block[low:high]``, at most what is left of the budget in one piece."""
    high = min(high, low + _BUDGET // 2)
    low = block.rfind(b"\n", 0, low) + 1
    newline = block.find(b"\n", high)
    kept.add(start + low, block[low : newline + 1 if 0 <= newline < high + 8192 else high])


def _joined(kept: _Kept, tail: bytes, size: int) -> bytes:
    parts = [kept.head[: kept.head.rfind(b"\n") + 1] or kept.head]
    parts += [piece for _, piece in (*kept.early, *kept.late)]
    begin = size - len(tail)
    tail = tail[kept.end - begin :] if kept.end > begin else tail[tail.find(b"\n") + 1 :]
    parts.append(tail)
    return b"\n".join(part.rstrip(b"\n") for part in parts if part)
