"""Shell text to commands: quotes, continuations, comments, variables, arrays and here-documents, with every place kept.

This reads what people paste, so it forgives: an unclosed quote is a character, a prompt or ``!`` before a command is
skipped, a line of flags after a line without a backslash still belongs to the command (and is noted).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from oomdoc.intake.configs.forms.branches import Branches
from oomdoc.intake.configs.forms.expansion import arithmetic, balanced, braces, expand, write_through
from oomdoc.intake.configs.forms.words import UNIT_COMMANDS, Command, Heredoc, Shell, Variable, Word, declares
from oomdoc.intake.configs.wordlist import words

__all__ = ["Shell", "tokenise"]

_CHUNK: Final = re.compile(r"[^\s\"'\\$`#;&|<>()]+")
_NAME: Final = re.compile(r"[A-Za-z_]\w{0,80}")
_ASSIGN: Final = re.compile(r"([A-Za-z_]\w{0,80})\+?=")
_CONTINUED: Final = re.compile(r"\\(\r?\n|[ \t]{1,20}\r?\n|\Z)")
_HEREDOC: Final = re.compile(r"<<-?[ \t]*([\"']?)(\w{1,40})\1")
_FLATTENED: Final = re.compile(r"\\[ \t]{1,20}(?=-|[\w.+]{1,80}=)")
_TO_FILL_IN: Final = re.compile(r"<[A-Za-z][\w /.\-]{0,60}>")
"""What documentation writes for a value of one's own: ``<model>``; no redirection."""
_QUOTE_REACH: Final = 6000
_SKIPPED: Final = words("$ ! %%bash %%sh then do else nohup sudo exec time { } fi done")
_MAX_UNCLOSED: Final = 50
"""Substitutions without an end that are looked for in one piece of text."""


class _Tokeniser:
    def __init__(self, text: str, start: int, end: int, *, folded: bool = False) -> None:
        self.text, self.at, self.end, self.folded = text, start, end, folded
        self.out = Shell()
        self.branches = Branches(text)
        self.command = Command(start=start)
        self.word: Word | None = None
        self.word_parts: list[str] = []
        self.cut = ""
        self.after_continuation = False
        self.in_array = False
        self.redirect = False
        self.pending: list[tuple[re.Match[str], str]] = []
        self.set_again: set[str] = set()
        """Variables that a branch of which nobody knows whether it runs sets to something else."""
        self.unclosed = 0

    def run(self) -> Shell:
        while self.at < self.end:
            self.step()
        self.finish_command()
        return self.out

    # -- words ---------------------------------------------------------------------------------------------------
    def open(self, at: int) -> Word:
        if self.word is None:
            self.word = Word("", at, at)
            self.word_parts = []
        return self.word

    def add(self, piece: str, at: int, stop: int) -> None:
        word = self.open(at)
        self.word_parts.append(piece)
        word.end = stop
        self.at = stop

    def finish_word(self) -> None:
        word = self.word
        if word is None:
            return
        self.word = None
        word.text = "".join(self.word_parts)
        if word.value_span == (0, 0):
            word.value_span = (word.start, word.end)
        if self.redirect:
            self.redirect = False
            if self.pending and not self.pending[-1][1]:
                self.pending[-1] = (self.pending[-1][0], word.text)
            self.command.end = max(self.command.end, word.end)
            return
        self.place(word)

    def place(self, word: Word) -> None:
        command = self.command
        if not command.words and not command.variables:
            command.start = word.start
            self.mark_orphan(word)
        if declares(command.words):
            match = _ASSIGN.match(self.text, word.start, word.end)
            if match and match[1] in UNIT_COMMANDS:
                word = Word(word.text[match.end() - word.start :], match.end(), word.end, quote=word.quote)
            elif match:
                self.assign(word, match)
                return
            if word.text in _SKIPPED and not word.quote and not command.words:
                if word.text == "fi":
                    self.branches.close()
                return
        command.words.append(word)
        command.end = word.end

    def mark_orphan(self, word: Word) -> None:
        """Flags that begin a command of their own were cut off from the one before."""
        if not word.text.startswith("-") or self.in_array:
            return
        previous = self.out.commands[-1] if self.out.commands else None
        if previous is not None and (len(previous.words) > 1 or previous.orphan):
            self.command.orphan = self.cut or previous.orphan or "missing-continuation"

    def assign(self, word: Word, match: re.Match[str]) -> None:
        at = match.end()
        value = Word(
            word.text[at - word.start :] if word.text.startswith(match[0]) else "", at, word.end, shared=word.shared
        )
        value.resolved = word.resolved
        raw = self.text[at : word.end]
        inner = raw[1:-1] if len(raw) >= 2 and raw[0] == raw[-1] and raw[0] in "\"'" else None
        value.quote = raw[0] if inner is not None else ""
        value.value_span = (at, word.end) if inner is None else (at + 1, word.end - 1)
        if word.value_span != (word.start, word.end) and word.shared:
            value.value_span = word.value_span
        command = self.command
        exported = bool(command.words) and command.words[0].text in ("export", "env")
        runs = self.branches.runs
        value.resolved = value.resolved and runs
        variable = Variable(match[1], value, (match.start(1), match.end(1)), exported)
        command.variables.append(variable)
        command.end = word.end
        if not runs and match[1] in self.out.variables and "$" not in raw:
            self.set_again.add(match[1])
        if runs and (match[1] not in self.out.variables or value.resolved):
            self.out.variables[match[1]] = variable

    # -- commands ------------------------------------------------------------------------------------------------
    def finish_command(self, cut: str = "") -> None:
        self.finish_word()
        command = self.command
        self.branches.command(command.words)
        command.runs = self.branches.runs
        if command.words or command.variables:
            if command.words:
                for variable in command.variables:
                    variable.exported = True
            self.out.commands.append(command)
        if command.words or command.variables or cut:
            self.cut = cut
        self.command = Command(start=self.at)
        self.after_continuation = False

    def step(self) -> None:
        text, at = self.text, self.at
        match = _CHUNK.match(text, at, self.end)
        if match:
            self.after_continuation = False
            self.add(match[0], at, match.end())
            return
        char = text[at]
        handler = _HANDLERS.get(char)
        if handler is not None:
            handler(self)
        else:  # other blanks
            self.finish_word()
            self.at += 1

    def newline(self) -> None:
        self.finish_word()
        if self.in_array or self.folded:
            self.at += 1
            return
        self.finish_command()
        self.at += 1
        self.bodies()

    def bodies(self) -> None:
        pending, self.pending = self.pending, []
        for opened, target in pending:
            start = self.at
            at = start
            while at < self.end:
                stop = self.text.find("\n", at, self.end)
                stop = self.end if stop < 0 else stop
                if self.text[at:stop].strip() == opened[2]:
                    self.at = min(stop + 1, self.end)
                    break
                at = stop + 1
            else:
                at = self.at = self.end
            known = {} if opened[1] else dict(self.out.variables)
            self.out.heredocs.append(Heredoc(start, min(at, self.end), target, known))

    def backslash(self) -> None:
        match = _CONTINUED.match(self.text, self.at, self.end)
        if match is None and _FLATTENED.match(self.text, self.at, self.end):
            # A command whose line breaks were lost on the way: the backslash is all that is left of them.
            self.finish_word()
            self.at += 1
            return
        if match is None:
            piece = self.text[self.at + 1 : min(self.at + 2, self.end)]
            self.add(piece, self.at, min(self.at + 2, self.end))
            return
        self.finish_word()
        blank_after = match[1].strip("\r\n") != ""
        self.at = match.end()
        if blank_after and not self.in_array:
            self.finish_command("blank-after-backslash")
        else:
            self.after_continuation = True

    def hash(self) -> None:
        if self.word is not None:
            self.add("#", self.at, self.at + 1)
            return
        stop = self.text.find("\n", self.at, self.end)
        stop = self.end if stop < 0 else stop
        ends_in_backslash = self.text[self.at : stop].rstrip().endswith("\\")
        cuts = bool(self.command.words) and not self.in_array and (self.after_continuation or ends_in_backslash)
        self.at = stop
        if cuts:
            self.finish_command("cut-by-comment")

    def quote(self) -> None:
        text, at, char = self.text, self.at, self.text[self.at]
        close = self.closing(at, char)
        if close < 0:
            self.add(char, at, at + 1)
            return
        first = self.word is None
        inner = text[at + 1 : close]
        piece, resolved = (inner, True) if char == "'" else expand(inner, self.out.variables)
        word = self.open(at)
        word.resolved = word.resolved and resolved
        self.add(piece, at, close + 1)
        ends = self.at >= self.end or text[self.at] in " \t\r\n;|&)\\"
        if first and ends:
            word.quote, word.value_span = char, (at + 1, close)
        if ends and (first or text[word.start : at].endswith("=")):
            self.through_variable(word, inner)

    def closing(self, at: int, char: str) -> int:
        stop = min(self.end, at + 1 + _QUOTE_REACH)
        where = at + 1
        while True:
            close = self.text.find(char, where, stop)
            if close < 0 or char == "'" or self.text[close - 1] != "\\":
                return close
            where = close + 1

    def dollar(self) -> None:
        text, at = self.text, self.at
        if text.startswith(("$(", "$["), at):
            stop = balanced(text, at + 1, self.end) if self.unclosed < _MAX_UNCLOSED else at + 2
            self.unclosed += stop == at + 2
            word, doubled = self.open(at), text.startswith("$((", at)
            inner = text[at + 2 + doubled : stop - 1 - doubled] if doubled or text[at + 1] == "[" else "?"
            number = arithmetic(inner, self.out.variables)
            word.resolved = word.resolved and number is not None
            self.add(text[at:stop] if number is None else str(number), at, stop)
            return
        stop = self.variable_end(at)
        first = self.word is None
        word = self.open(at)
        piece, resolved = expand(text[at:stop], self.out.variables)
        word.resolved = word.resolved and resolved
        self.add(piece, at, stop)
        if first and (stop >= self.end or text[stop] in " \t\r\n;|&)\\"):
            word.value_span = (at, stop)
            self.through_variable(word, text[at:stop])
        elif text[word.start : at].endswith("=") and (stop >= self.end or text[stop] in " \t\r\n;|&)\\"):
            self.through_variable(word, text[at:stop])

    def through_variable(self, word: Word, raw: str) -> None:
        """A word that is nothing but a variable is written where the variable is set."""
        if self.set_again.intersection(_NAME.findall(raw)):
            return  # to change one of its values would do for some runs only: a new one stands in its place
        found = write_through(word, raw, self.text, self.out.variables)
        if found is not None and self.branches.runs:
            self.out.variables[found.name] = found

    def variable_end(self, at: int) -> int:
        text = self.text
        if text.startswith("${", at):
            return braces(text, at + 1, self.end)
        match = _NAME.match(text, at + 1, self.end)
        return (
            match.end() if match else min(at + 2, self.end) if text[at + 1 : at + 2] in "@#?$*!0123456789" else at + 1
        )

    def backtick(self) -> None:
        close = self.text.find("`", self.at + 1, min(self.end, self.at + 500))
        if close < 0 or self.text[self.at : close].count("\n"):
            self.finish_word()
            self.at += 1
            return
        word = self.open(self.at)
        word.resolved = False
        self.add(self.text[self.at : close + 1], self.at, close + 1)

    def separator(self) -> None:
        self.finish_command()
        self.at += 1

    def ampersand(self) -> None:
        if self.text.startswith("&>", self.at):
            self.finish_word()
            self.redirect = True
            self.at += 2
        elif self.at and self.text[self.at - 1] in "<>":
            self.at += 1
        else:
            self.separator()

    def less(self) -> None:
        blank = _TO_FILL_IN.match(self.text, self.at, self.end)
        if blank is not None:
            self.open(self.at).resolved = False
            self.add(blank[0], self.at, blank.end())
            return
        match = _HEREDOC.match(self.text, self.at, self.end)
        self.finish_word()
        if match:
            words = [w.text for w in self.command.words]
            target = words[-1] if words and words[0] == "read" else ""
            self.pending.append((match, target))
            self.at = match.end()
        else:
            self.redirect = True
            self.at += 1

    def greater(self) -> None:
        if self.word is not None and "".join(self.word_parts).isdigit():
            self.word = None
        self.finish_word()
        while self.at < self.end and self.text[self.at] in ">&":
            self.at += 1
        self.redirect = True

    def opening(self) -> None:
        if self.word is not None and self.text[self.at - 1] == "=" and declares(self.command.words):
            name = "".join(self.word_parts)[:-1]
            self.word, self.command.words = None, []
            self.finish_command()
            self.in_array = True
            self.command.array = f"+{name[:-1]}" if name.endswith("+") else name
            self.at += 1
            return
        self.finish_command()
        self.at += 1

    def closing_paren(self) -> None:
        self.finish_word()
        array = self.in_array
        self.in_array = False
        if array or not self.text[self.at - 1].isalnum():
            self.finish_command()
        self.at += 1


_HANDLERS: Final = {
    "\n": _Tokeniser.newline,
    "\\": _Tokeniser.backslash,
    "#": _Tokeniser.hash,
    '"': _Tokeniser.quote,
    "'": _Tokeniser.quote,
    "$": _Tokeniser.dollar,
    "`": _Tokeniser.backtick,
    ";": _Tokeniser.separator,
    "|": _Tokeniser.separator,
    "&": _Tokeniser.ampersand,
    "<": _Tokeniser.less,
    ">": _Tokeniser.greater,
    "(": _Tokeniser.opening,
    ")": _Tokeniser.closing_paren,
}


_Known = Mapping[str, Variable] | None


def tokenise(text: str, start: int = 0, end: int | None = None, known: _Known = None, *, folded: bool = False) -> Shell:
    """The commands, variables and here-documents of ``text[start:end]``. Linear in its length.

    :param known: variables that are set around it, for a command kept in a string; ``folded``: line breaks are blanks.
    """
    tokeniser = _Tokeniser(text, start, len(text) if end is None else end, folded=folded)
    tokeniser.out.variables.update(known or {})
    return tokeniser.run()
