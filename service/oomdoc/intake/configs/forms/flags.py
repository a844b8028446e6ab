"""Commands to settings: flags with and without values, dotted overrides, environment prefixes, launchers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry, Fragment
from oomdoc.intake.configs.forms.flow import parse_flow
from oomdoc.intake.configs.forms.scripts import batch_requests, contents, reached, without_labels
from oomdoc.intake.configs.forms.shell import tokenise
from oomdoc.intake.configs.forms.words import Command, Heredoc, Variable, Word
from oomdoc.intake.configs.values import as_scalar
from oomdoc.intake.configs.wordlist import meanings, words
from oomkb.dataclass import dataclass
from oomkb.frameworks.declared import records
from oomkb.kept import lazy

_FLAG: Final = lazy(r"--?[A-Za-z][\w.\-]{0,100}")
_OVERRIDE: Final = lazy(r"(?:\+{1,2}|~)?([A-Za-z_@][\w./@\-\[\]]{0,160})=")
_OPTION_IF_SET: Final = lazy(r"\$\{\w{1,60}:?\+\s{0,4}-")
"""``${LEN:+--max-model-len $LEN}``: an option where the variable is set, and no value of the flag before it."""
_PROSE: Final = lazy(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]{1,100}")
"""Chinese characters alone: the sentence around a flag (``--enable-prefix-caching 会多占显存吗``), not its value."""
_LAUNCHERS: Final = meanings("launcher")
_STARTS: Final = frozenset[str]().union(*(record.starts for record in records()))
"""What frameworks are started by: before a flag, such a word is a value."""
_SCRIPTS: Final = frozenset({"torchrun", *(record.name for record in records() if record.kind == "launcher")})
"""Launchers that run a script."""
PROGRAMS: Final = _STARTS | words("python python3 FORCE_TORCHRUN")
"""What a command may begin with."""
_SAYS_NOTHING: Final = words(
    "export set cd echo pip source mkdir git conda apt-get pkill killall pgrep kill # : if elif while test [ [["
)
_PRINTS: Final = frozenset({"echo", "printf"})  # what it is given is not run
_ENDED: Final = lazy(r"\b(?:pkill|killall|pgrep)\b[^;&|]{0,200}")  # what ends programs starts none
_SHORT_ENV: Final = frozenset({"-e", "--env"})


@dataclass(slots=True)
class ShellReading:
    """The fragments of a shell text: one per program that is run, plus here-documents of other forms."""

    fragments: list[Fragment] = field(default_factory=list)
    heredocs: list[Heredoc] = field(default_factory=list)


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _is_flag(text: str, word: Word) -> bool:
    plain = not word.quote or text[word.start : word.start + 2] == "--"  # the quotes of the variable behind its sign
    return plain and _FLAG.match(word.text) is not None and not word.text.startswith("---")


def _value(word: Word) -> Any:
    text = word.text
    if word.quote and not word.shared:
        stripped = text.strip()
        if stripped[:1] in ("{", "["):
            return _loose(stripped)
        return text
    if text[:1] in ("{", "["):
        return _loose(text)
    return as_scalar(text)


def _loose(text: str) -> Any:
    try:
        return parse_flow(text, 0, len(text))[0]
    except ValueError:
        return text


class _Reader:
    """One command's words to entries."""

    def __init__(self, text: str, words: list[Word], orphan: str = "") -> None:
        self.text, self.words, self.orphan = text, words, orphan
        self.entries: list[Entry] = []
        self.env: list[Entry] = []
        self.programs: list[str] = []
        self.scope = ""
        self.position = 0

    def run(self) -> _Reader:
        index = 0
        while index < len(self.words):
            index = self.one(index)
        return self

    def emit(self, key: str, value: Any, key_span: tuple[int, int], word: Word | None, style: str, **more: Any) -> None:
        span = word.value_span if word is not None else (key_span[1], key_span[1])
        self.entries.append(
            Entry(
                key=key,
                value=value,
                key_span=key_span,
                value_span=span,
                style=style,  # type: ignore[arg-type]
                scope=self.scope,
                quote=word.quote if word is not None else "",
                shared=word.shared if word is not None else False,
                resolved=word.resolved if word is not None else True,
                off=bool(self.orphan),
                off_reason=self.orphan,
                **more,
            )
        )

    def holds_flags(self, word: Word) -> bool:
        """``$OPTIONS``, ``${OPTIONS[@]}``: the shell makes flags of it, which are read where the variable is set."""
        if _OPTION_IF_SET.match(self.text, word.start):
            return True
        several = word.shared and " " in word.text and self.text[word.start] != "-"
        return word.text.endswith("[@]}") or (several and _FLAG.match(word.text.lstrip()) is not None)

    def one(self, index: int) -> int:
        word = self.words[index]
        if self.holds_flags(word):
            return index + 1
        if _is_flag(self.text, word):
            return self.flag(index)
        match = _OVERRIDE.match(self.text, word.start, word.end) if not word.quote or "=" in word.text else None
        if match is None and word.quote and not word.shared:
            match = _OVERRIDE.match(self.text, word.value_span[0], word.value_span[1])
        if match and "://" not in word.text[: match.end() - match.start() + 3]:
            self.override(word, match)
            return index + 1
        self.positional(word)
        return index + 1

    def override(self, word: Word, match: re.Match[str]) -> None:
        own = word.quote if not word.shared else ""
        inner = self.behind_sign(word, match.end(), word.value_span[1] if own else word.end)
        name = match[1]
        if name.isupper() and "." not in name:
            self.env.append(_env_entry(name, inner, match.span(1)))
        else:
            self.emit(name, _value(inner), match.span(1), inner, "override")

    def behind_sign(self, word: Word, at: int, stop: int) -> Word:
        """What stands behind the "=" of a word: without its quotes, or in the variable that it is."""
        raw = self.text[at:stop]
        inner = Word(raw, at, stop, value_span=(at, stop), resolved=word.resolved)
        if len(raw) >= 2 and raw[0] == raw[-1] and raw[0] in "\"'":
            inner.text, inner.quote, inner.value_span = raw[1:-1], raw[0], (at + 1, stop - 1)
        if "$" in raw:
            inner.text = word.text.split("=", 1)[1]
            if word.shared:
                inner.value_span, inner.quote, inner.shared = word.value_span, word.quote, True
        return inner

    def flag(self, index: int) -> int:
        word = self.words[index]
        match = _FLAG.match(word.text)
        name = match[0] if match else word.text
        start = word.start + (len(name) - len(name.lstrip("-")))
        key = name.lstrip("-")
        key_span = (start, start + len(key))
        if name in _SHORT_ENV and index + 1 < len(self.words) and "=" in self.words[index + 1].text:
            self.docker_env(self.words[index + 1])
            return index + 2
        if len(word.text) > len(name) and word.text[len(name)] == "=":
            inner = self.behind_sign(word, word.start + len(name) + 1, word.end)
            self.emit(key, _value(inner), key_span, inner, "flag=")
            return index + 1
        values = self.values_after(index + 1)
        if name in {"-m", "--module"} and not any(_base(p).startswith("llama-") for p in self.programs[:1]):
            if values:
                self.program(values[0].text, module=True)
                return index + 2
            return index + 1
        if not values:
            self.emit(key, True, key_span, None, "bare")
            return index + 1
        first = values[0]
        commanded = len(values) > 1 or _base(first.text) not in _STARTS
        if (self.looks_program(first) and commanded) or (self.scope in _SCRIPTS and first.text.endswith(".py")):
            self.emit(key, True, key_span, None, "bare")
            return index + 1
        follow = len(values)
        if any(self.looks_program(v) or v.text.endswith(".py") for v in values[1:]):
            values, follow = values[:1], 1  # the rest runs a program
        elif first.is_number and not all(v.is_number for v in values):
            values = values[:1]  # "--ctx-size 32768 on one RTX 4090": the sentence goes on
        if len(values) == 1:
            self.emit(key, _value(first), key_span, first, "flag")
        else:
            self.emit(key, [_value(v) for v in values], key_span, first, "flag", items=_items(values))
        return index + 1 + follow

    def looks_program(self, word: Word) -> bool:
        return _base(word.text) in PROGRAMS or _base(word.text) in _LAUNCHERS

    def docker_env(self, word: Word) -> None:
        name = word.text.partition("=")[0]
        at = word.value_span[0] if word.quote else word.start
        inner = self.behind_sign(word, at + len(name) + 1, word.value_span[1] if word.quote else word.end)
        self.env.append(_env_entry(name, inner, (at, at + len(name))))

    def values_after(self, index: int) -> list[Word]:
        out: list[Word] = []
        while index < len(self.words) and len(out) < 60:
            word = self.words[index]
            if not word.quote and _PROSE.fullmatch(word.text):
                break
            if (
                _is_flag(self.text, word)
                or self.holds_flags(word)
                or (out and _OVERRIDE.match(word.text) and not word.quote)
            ):
                break
            out.append(word)
            index += 1
        return out

    def positional(self, word: Word) -> None:
        if self.position == 0 and not self.programs and not self.text[word.start : word.end].strip():
            return
        self.program(word.text, module=False, word=word)

    def program(self, text: str, *, module: bool, word: Word | None = None) -> None:
        base = _base(text)
        launcher = _LAUNCHERS.get(base) or _LAUNCHERS.get(text)
        if launcher:
            self.scope = launcher
        elif module or text.endswith(".py") or base in PROGRAMS:
            self.scope = base
        if len(self.programs) < 14:
            self.programs.append(_ENDED.sub("", text) if " " in text else text)
        if word is not None and not launcher and base not in PROGRAMS:
            self.emit("@" + str(min(self.position, 9)), text, (word.start, word.start), word, "item")
            self.position += 1


def _items(values: list[Word]) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            key="", value=_value(v), key_span=(v.start, v.start), value_span=v.value_span, style="item", quote=v.quote
        )
        for v in values
    )


def _env_entry(name: str, word: Word, name_span: tuple[int, int]) -> Entry:
    return Entry(
        key=name,
        value=word.text,
        key_span=name_span,
        value_span=word.value_span,
        style="env",
        quote=word.quote,
        shared=word.shared,
        resolved=word.resolved,
    )


def _variable_entry(variable: Variable, *, local: bool) -> Entry:
    entry = _env_entry(variable.name, variable.word, variable.name_span)
    return replace(entry, scope="local") if local and not variable.exported else entry


def entries_of_words(text: str, words: list[Word]) -> tuple[list[Entry], list[Entry], list[str]]:
    """Settings, environment and programs of words that were split elsewhere (a list of arguments in YAML)."""
    reader = _Reader(text, words).run()
    return reader.entries, reader.env, reader.programs


def _commands(
    text: str,
    start: int,
    end: int,
    known: Mapping[str, Variable] | None = None,
    *,
    nested: bool = True,
    folded: bool = False,
) -> tuple[list[Command], list[Heredoc]]:
    """The commands of a text and of the strings in it that hold flags; ``nested`` where it is such a string."""
    shell = tokenise(without_labels(text, start, end), start, end, known, folded=folded)
    depth = int(nested)
    commands: list[Command] = []
    for command in shell.commands:
        commands.append(command)
        for variable in command.variables:
            low, high = variable.word.value_span
            if (
                depth == 0
                and command.runs
                and not variable.word.shared
                and high - low > 8
                and _has_flags(text, low, high)
            ):
                inner = _commands(text, low, high, shell.variables)[0]
                again = re.search(rf"\$\{{?{variable.name}\b", text[low:high])  # options="${options} --more"
                added = text[variable.name_span[1]] == "+" or again is not None
                for line in inner:  # in a variable a line break is a blank like any other
                    line.orphan = "" if line.orphan == "missing-continuation" else line.orphan
                    line.array = f"+{variable.name}" if added or line is not inner[0] else variable.name
                commands += inner
        if depth == 0 and len(command.words) > 1 and command.words[0].text not in _PRINTS:
            for word in command.words[1:]:
                low, high = word.value_span
                if word.quote and not word.shared and high - low > 30 and _has_flags(text, low, high):
                    commands += _commands(text, low, high, shell.variables)[0]
    return commands, shell.heredocs


_DEPTH: Final = 3
"""Here-documents inside one another."""
_INNER_FLAG: Final = lazy(r"(?:^|\s)(?:--[A-Za-z]|\+{0,2}[a-z_]{1,60}(?:\.\w{1,60}){1,8}=)")


def _has_flags(text: str, low: int, high: int) -> bool:
    return len(_INNER_FLAG.findall(text[low:high])) >= 2


_ENOUGH_CONTINUED: Final = 3


def _continued(text: str, before: list[Command], command: Command) -> bool:
    """Whether the lines of the command before are continued with backslashes, all but its last one."""
    previous = next((one for one in reversed(before) if one.words), None)
    if previous is None or not command.words or previous.orphan:
        return False
    low, high = previous.words[0].value_span[0], command.words[0].value_span[0]
    lines = text[low:high].rstrip().split("\n")[:-1]
    continued = sum(line.rstrip().endswith("\\") for line in lines)
    return continued >= _ENOUGH_CONTINUED and continued == len(lines)


def parse_shell(
    text: str,
    start: int = 0,
    end: int | None = None,
    *,
    lenient: bool = True,
    depth: int = 0,
    known: Mapping[str, Variable] | None = None,
    folded: bool = False,
) -> ShellReading:
    """The settings of shell text.

    :param lenient: whether a line of flags after a line without a backslash still counts as in effect (pasted text
        loses its backslashes; a script does not). Where the lines before have theirs, it was not lost in pasting.
    :param known: variables that are set around it.
    :param folded: whether line breaks are blanks, as in YAML's folded texts.
    """
    end = len(text) if end is None else end
    commands, heredocs = _commands(text, start, end, known, nested=False, folded=folded)
    reading = ShellReading()
    env: list[Entry] = []
    asked = batch_requests(text, start, end) if depth == 0 else []
    if asked:
        low, high = asked[0].key_span[0], asked[-1].value_span[1]
        reading.fragments.append(Fragment(form="shell", start=low, end=high, entries=tuple(asked), array="#SBATCH"))
    holds = contents(text, commands)
    for number, command in enumerate(commands):
        env += [_variable_entry(v, local=not command.words) for v in command.variables]
        orphan = command.orphan
        if orphan == "missing-continuation" and lenient and not _continued(text, commands[:number], command):
            orphan = ""
        words = command.words
        if words and words[0].text in _SAYS_NOTHING:
            continue
        reader = _Reader(text, words, orphan).run()
        if not reader.entries and not reader.env and not reader.programs:
            continue
        env += reader.env
        reading.fragments.append(
            Fragment(
                form="shell",
                start=command.start,
                end=command.end,
                entries=tuple(reader.entries),
                programs=tuple(reader.programs),
                array=command.array,
                uses=reached(text, command, holds),
            )
        )
    for body in heredocs:
        if depth < _DEPTH and _has_flags(text, body.start, body.end):
            inner = parse_shell(text, body.start, body.end, lenient=lenient, depth=depth + 1).fragments
            reading.fragments += inner
            env += [e for f in inner for e in f.env]
        else:
            reading.heredocs.append(body)
    if env:
        first = reading.fragments[0] if reading.fragments else Fragment(form="shell", start=start, end=end, entries=())
        reading.fragments[:1] = [replace(first, env=tuple(env))]
    return reading
