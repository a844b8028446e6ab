"""Where in a line a credential stands: behind a name for one in any syntax, or by a form that is drawn at random.

A name counts by its words (``spring.datasource.dbPassword``, ``--hub-token``, ``AccessKeySecret``, ``数据库密码``). How
strongly they say that a secret follows decides what a value must look like to be taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cache
from string import ascii_letters, digits
from typing import Final

from oomdoc.intake.patterns import patterns
from oomkb.kept import compiled

_RE: Final = patterns(__file__)
_OF_NAMES: Final = ascii_letters + digits + "_-"
_SHORTEST: Final = {3: 4, 2: 6, 1: 12}
"""By how strongly a name says that it is a credential's: the shortest value that is taken for one."""
_LONGEST_HEAD: Final = 400
_LINES_BEHIND: Final = 3
_MOST_ROWS: Final = 200
"""Lines on which a value may stand that is named on one before; rows of a table below its head."""
Span = tuple[int, int]


class _Says(IntEnum):
    """How strongly a name says that a credential stands behind it."""

    NOTHING = 0
    LITTLE = 1
    KEY = 2
    PASSWORD = 3


def _words(name: str) -> frozenset[str]:
    return frozenset(_RE.rows[f"words.{name}"].pattern.split("|"))


_ABROAD: Final = {
    form for word in _words("abroad") for form in (word, word.encode("ascii", "backslashreplace").decode())
}
STEMS: Final = tuple(sorted(_words("stems") | _ABROAD))
"""What a line must hold (in lower case) for a name of a credential to stand in it."""
_STEM: Final = compiled("|".join(map(re.escape, sorted(STEMS, key=len, reverse=True))), re.IGNORECASE)
_PASSWORDS, _KEYS, _OWNERS = _words("passwords"), _words("keys"), _words("owners")
_QUALIFIERS: Final = _OWNERS | _words("others")
_ENDINGS, _BEHIND, _OTHERS = tuple(_words("endings")), _words("behind"), _words("others")


_RUN_TOGETHER: Final = ("apikey", "authkey", "accesskey", "authtoken", "csrftoken", "sessionid", "sessid")


@cache
def _says(name: str) -> _Says:
    """Of a name in ASCII, by its words."""
    words = [word.lower() for word in _RE["word"].findall(name)]
    while len(words) > 1 and words[-1] in _BEHIND:
        words.pop()
    if not words:
        return _Says.NOTHING
    last, before = words[-1], words[:-1]
    if last == "pass":
        return _Says.NOTHING if _OTHERS.intersection(before) else _Says.PASSWORD if before else _Says.KEY
    if last in _PASSWORDS or (len(last) > 5 and last.endswith(_ENDINGS) and last not in _OTHERS):
        return _Says.PASSWORD
    if last not in _KEYS:
        return _Says.KEY if last.endswith(_RUN_TOGETHER) else _Says.NOTHING
    if _OTHERS.intersection(before):
        return _Says.NOTHING
    sure = _OWNERS.intersection(before) or last == "token" or (name.isupper() and before)
    return _Says.KEY if sure else _Says.LITTLE


def _is_random(run: str, share: float, words: str = "run_words") -> bool:
    """Whether capitals, small letters and digits alternate as they do not in names that people give."""
    in_words = sum(map(len, _RE[words].findall(run)))
    return len(_RE["run_letters"].findall(run)) > share * len(run) and 3 * in_words < len(run)


def _names(line: str) -> list[tuple[str, int, int, _Says]]:
    """The names in a line that say that a credential follows, with start and end; no placeholders."""
    names: list[tuple[str, int, int, _Says]] = []
    at = 0
    while (found := _STEM.search(line, last := at)) is not None:
        start, at = found.span()
        name, says = found[0], _Says.PASSWORD
        if name.lower() not in _ABROAD:
            at -= name.endswith("=")
            before, behind = line[max(last, start - 60) : start], line[at : at + 40]
            if "\x1b" in before:
                before = _RE["colour"].split(before)[-1]
            start -= len(before) - len(before.rstrip(_OF_NAMES))
            at += len(behind) - len(behind.lstrip(_OF_NAMES))
            name = line[start:at]
            apart = name[0] != "-" and line[start - 1 : start] == " "
            word = _RE["word_before"].search(line, max(0, start - 20), start) if apart else None
            if word is not None and word[1].lower() in _QUALIFIERS:
                name = f"{word[1]}_{name}"
            says = _says(name.strip("-"))
        if says is not _Says.NOTHING and not (line[start - 1 : start] == "<" and _RE["placeholder"].match(line, start)):
            names.append((name, start, at, says))
    return names


def named_values(line: str) -> Iterator[Span]:
    """Where values stand that a name before them makes credentials: (start, end), in order, apart from each other."""
    names, done = _names(line), 0
    stops = [*(start for _, start, _, _ in names[1:]), len(line)]
    for (name, start, end, says), stop in zip(names, stops, strict=False):
        span = None if start < done else _value(line, name, end, says) or _further_on(line, end, stop, says)
        if span is not None:
            yield span
            done = span[1]


def _value(line: str, name: str, at: int, says: _Says) -> Span | None:
    """The value right behind a name that ends there."""
    joint = _RE["joint"].match(line, at)
    abroad = name.lower() in _ABROAD
    if abroad and (glued := _RE["glued"].match(line, at)) is not None:
        start, end = glued.span(glued.lastgroup or "v")
        return (start, end) if _is_credential(line[start:end], says, sure=False, apart=True) else None
    if joint is not None:
        apart = False
    else:
        # Flags, variables of files that take them so, and names of passwords in a sentence have a space alone.
        joint, apart = _RE["space"].match(line, at), not name.startswith("-") and not name.isupper()
    if joint is None:
        return None
    quoted = _RE["quoted"].match(line, joint.end())
    bare = None if quoted else _RE["bare"].match(line, joint.end())
    found = quoted or bare
    if found is None:
        return None
    value, listed = found["v"], "," in joint[0]
    if bare is not None:
        value = _RE["next_name"].split(value, maxsplit=1)[0].rstrip(".,;:!?)]}|，。；")
        if says is _Says.PASSWORD and (remark := _RE["remark"].match(value)) is not None:
            value = remark["v"]
    sure = (quoted is not None and not listed) or name.startswith("-")
    if not _is_credential(value[:256], says, sure=sure, apart=apart or (listed and "_" not in name)):
        return None
    start, end = found.start("v"), found.start("v") + len(value)
    rest = _RE["rest"].match(line, end) if bare is not None and end == found.end() else None
    return start, rest.end() if rest is not None else end


def _is_credential(value: str, says: _Says, *, sure: bool, apart: bool) -> bool:
    if len(value) < _SHORTEST[says] or _RE["harmless"].match(value.lstrip()):
        return False
    if _RE["name"].fullmatch(value) and _says(value) is not _Says.NOTHING:
        return False
    if says is _Says.LITTLE or (apart and says is _Says.KEY):
        return _is_drawn(value)
    letters, numbers = _RE["letter"].search(value) is not None, _RE["number"].search(value) is not None
    if not sure and _RE["code"].match(value):
        return False
    if says is _Says.PASSWORD:
        return (letters and numbers and len(value) > 5) if apart else not _RE["figure"].fullmatch(value)
    return letters and (numbers or (sure and len(value) > 7))


def _is_drawn(value: str) -> bool:
    """Whether a value was drawn at random: hexadecimal digits, or letters and digits that alternate."""
    if _RE["drawn"].fullmatch(value) is None:
        return False
    if any(_RE["hexadecimal"].fullmatch(part) for part in value.split(".")):
        return True
    parts = _RE["segments"].findall(value) if len(_RE["digit"].findall(value)) > 1 else ()
    return len(value) > 15 and any(
        _is_random(p, 0.3, "long_words") and _RE["hex_digits"].fullmatch(p) is None for p in parts
    )


def _further_on(line: str, at: int, stop: int, says: _Says) -> Span | None:
    """What stands further on in a line that names a credential: behind "is" or a colon, or drawn at random."""
    stop = min(stop, at + 120)
    if says is _Says.PASSWORD and (said := _RE["said"].match(line, at, stop)) is not None:
        value = said["v"].rstrip(".,;:!?)]}，。；")
        if _is_credential(value, says, sure=False, apart=True):
            return said.start("v"), said.start("v") + len(value)
    for begun in _RE["piece"].finditer(line, at, stop + 20):
        found = _RE["piece"].match(line, begun.start(), begun.start() + 4000)
        if found is None or begun.start() >= stop or _RE["digest"].search(line, at, begun.start()):
            return None
        if _is_drawn(found[0]):
            return found.span()
    return None


def further_values(lines: Sequence[str], at: int, rows: set[int]) -> Iterator[tuple[int, int, int]]:
    """What stands on lines behind one that names credentials: by itself on the next ones, or in columns of a table.

    :param rows: of tables whose head was met: they are none; those of further ones are added.
    :returns: line, start and end of each.
    """
    line = lines[at]
    if len(line) > _LONGEST_HEAD or not (names := _names(line)):
        return
    if at not in rows:
        yield from _in_columns(lines, at, rows)
    _, _, end, says = names[-1]
    if _RE["open_end"].match(line, end) is None or _RE["digest"].search(line, end):
        return
    for number in range(at + 1, min(at + 1 + _LINES_BEHIND, len(lines))):
        found = _RE["alone"].match(lines[number])
        if found is not None and _is_credential(found["v"][:256], says, sure=False, apart=True):
            yield number, *found.span("v")
        elif _RE["no_value"].match(lines[number]):
            continue
        return


def _in_columns(lines: Sequence[str], at: int, rows: set[int]) -> Iterator[tuple[int, int, int]]:
    for separator in {found[0] if len(found[0]) == 1 else "  " for found in _RE["columns"].finditer(lines[at].strip())}:
        heads = _cells(lines[at], separator)
        titles = [_RE["title"].match(lines[at], *cell) for cell in heads]
        said = [_Says.NOTHING if title is None else _title_says(title["v"]) for title in titles]
        if (
            len(heads) < 2
            or not any(said)
            or any(t is None and lines[at][slice(*c)].strip() for t, c in zip(titles, heads, strict=True))
        ):
            continue
        for number in range(at + 1, min(at + 1 + _MOST_ROWS, len(lines))):
            if _RE["ruled"].match(lines[number]):
                continue
            cells = _cells(lines[number], separator)
            if len(cells) != len(heads):
                break
            rows.add(number)
            for says, cell in zip(said, cells, strict=True):
                found = _RE["cell"].match(lines[number], *cell) if says is not _Says.NOTHING else None
                if found is not None and _is_credential(found["v"][:256], says, sure=False, apart=True):
                    yield number, *found.span("v")


def _title_says(title: str) -> _Says:
    """Of the title of a column, in any of the languages."""
    return _Says.PASSWORD if title.lower().endswith(tuple(_ABROAD)) else _says(title.replace(" ", "_"))


def _cells(line: str, separator: str) -> list[Span]:
    """Where the cells of a row stand, without what frames it."""
    stripped = line.strip(" |│" if separator in "|│" else " ")
    cells, start = list[Span](), line.find(stripped) if stripped else 0
    end = start + len(stripped)
    while (stop := line.find(separator, start, end)) >= 0:
        cells.append((start, stop))
        start = stop + 1
        while separator == "  " and line[start : start + 1] == " ":
            start += 1
    return [*cells, (start, end)]


def random_runs(text: str) -> list[Span]:
    """Where letters and digits stand that were drawn at random: (start, end), in order, apart from each other.

    Hexadecimal digests, names of classes and kernels, and C++ symbols are none.
    """
    found: list[Span] = []
    last = 0
    spans = [hit.span() for hit in _RE["run"].finditer(text)]
    kinds = ("run_base64", "run_key") if spans else ("run_base64",)  # a key holds a run
    spans += [hit.span() for name in kinds for hit in _RE[name].finditer(text)]
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        (start, end), run = span, text[slice(*span)]
        if "." in run and start >= last:
            found.append((start, last := end))
        if start < last or run.islower() or run.isupper() or not _is_random(run, 0.4):
            continue
        if sum(letter.isdigit() for letter in run) < 2 or _RE["run_name"].search(run):
            continue
        if _RE["run_digest"].search(text, max(0, start - 400), start):
            continue
        while (more := _RE["run_behind"].match(text, end)) and (len(more[0]) < 3 or _is_random(more[0], 0.3)):
            end = more.end()
        while (less := _RE["run_before"].search(text, max(last, start - 42), start)) and _is_random(less[0], 0.3):
            start = less.start()
        found.append((start, end))
        last = end
    return found
