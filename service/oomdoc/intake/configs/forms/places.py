"""Where the nodes of a Python tree stand in a text."""

from __future__ import annotations

import re
from typing import Any


class Places:
    """ast's (line, byte column) to characters from the start of the text."""

    def __init__(self, text: str, base: int) -> None:
        self.text, self.base = text, base
        self.starts = [0]
        for match in re.finditer(r"\r\n|\r|\n", text):
            self.starts.append(match.end())
        self.ascii = text.isascii()

    def at(self, line: int, column: int) -> int:
        """The place of a line and a column."""
        start = self.starts[min(line - 1, len(self.starts) - 1)]
        if not self.ascii:
            end = self.starts[line] if line < len(self.starts) else len(self.text)
            column = len(self.text[start:end].encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))
        return self.base + start + column

    def of(self, node: Any) -> tuple[int, int]:
        """Where a node begins and ends."""
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)
