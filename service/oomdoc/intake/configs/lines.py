"""Lines and columns of the offsets in a source, and in those that are read with it."""

from __future__ import annotations

from bisect import bisect_right

from oomdoc.evidence import Source, Span


class Lines:
    """Offsets to lines and columns."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.further: list[tuple[int, Lines]] = []
        self.starts = [0]
        at = source.text.find("\n")
        while at >= 0:
            self.starts.append(at + 1)
            at = source.text.find("\n", at + 1)

    @property
    def text(self) -> str:
        """The text that offsets count in, all sources together."""
        return "\n".join((self.source.text, *(inner.source.text for _, inner in self.further)))

    def span(self, offset: int) -> Span:
        """The place of an offset, with its line's text."""
        if self.further and offset >= self.further[0][0]:
            base, lines = next((b, found) for b, found in reversed(self.further) if offset >= b)
            return lines.span(offset - base)
        line = bisect_right(self.starts, offset) - 1
        start = self.starts[line]
        stop = self.starts[line + 1] if line + 1 < len(self.starts) else len(self.source.text)
        text = self.source.text[start : min(stop, start + 300)].rstrip("\r\n")
        return Span(self.source.name, line + 1, offset - start + 1, text)

    def extend(self, source: Source) -> int:
        """Count a further source's offsets from the number that is returned."""
        base = (
            self.further[-1][0] + len(self.further[-1][1].source.text) if self.further else len(self.source.text)
        ) + 1
        self.further.append((base, Lines(source)))
        return base
