"""Rules of a record: conditions over keys that mean a field's value, and the keys that a value is written as.

A condition is written ``key``, ``key=word``, ``key~part`` or ``key>number``; several apart by blanks must all hold, and
the first one's setting is where the value is read. Keys apart by commas mean the same: the first that is there counts.

- ``key``: a switch that is on; ``key=on``, ``key=off``; ``!`` before a condition turns it around;
- ``key=a|b``: one of these words; ``key=*``: any value; ``key=-``: the key is absent (or one of several words);
  ``key=?``: a value other than nothing, or a section with that name;
- ``key~part``: the value has this part; ``key>0``: a number above; ``a>b``: above the number of another key;
  ``a<>b``: two keys name different models;
- ``@program~part``: what is run; ``@script=word``: a word of the script's name; ``@call~name``: something called;
  ``@word~part``: a word of the command; ``@form=yaml``; ``@dotted=no``: no key has sections; ``@framework=name``.

The value is a word, a list, or ``$codec``: what a codec reads from the first key (``$codec:key``: from another).
Writing is a list of values (``a|b``; ``*`` any; ``+part`` a list with this part), the changes, and conditions for them.
A change is ``key=word`` (``$``: the value itself, ``$codec``: as a codec writes it, ``'no``: this text), ``?key=word``
(where the key says nothing), ``+key=word`` (where the key is there), ``-key`` (take it out).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from oomdoc.intake.configs.codecs import MODEL
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import DROP, Codec, Group, Need, Reading, View, norm
from oomdoc.intake.configs.values import as_scalar, flag, number
from oomkb.dataclass import dataclass
from oomkb.frameworks.declared import NeedRow, RuleRow
from oomkb.kept import lazy

_CONDITION: Final = lazy(r"(?P<off>!?)(?P<keys>@?[^=~>]*?)(?:(?P<how><>|=|~|>)(?P<what>.*))?\Z")


def present(view: View, names: Sequence[str], heads: frozenset[str] = frozenset()) -> str:
    """The key to write: the one that is there, else the one that fits best into what is."""
    found = view.first(*names)
    if found is not None or len(names) == 1:
        return found or names[0]
    if not any("." in key and key.split(".")[0] in heads for key in view):
        return names[0]
    return max(names, key=lambda name: ("." in name, max(_shared_parts(name, key) for key in view)))


def _shared_parts(a: str, b: str) -> int:
    count = 0
    for one, other in zip(a.split(".")[:-1], b.split("."), strict=False):
        if one != other:
            break
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class _Condition:
    names: tuple[str, ...]
    how: str
    what: str
    off: bool
    heads: frozenset[str]

    def entry(self, view: View) -> Entry | None:
        """Where it is said."""
        if self.names[0].startswith("@") and not self.names[0][1:2].isdigit():
            return _somewhere(view, self.names[0], self.what)
        name = view.first(*self.names)
        if name is not None or self.how != "=" or self.what != "?":
            return view[name] if name is not None else None
        return next((view[k] for k in view if k.startswith(tuple(f"{n}." for n in self.names))), None)

    def holds(self, view: View) -> bool:
        return self._says(view) is not self.off

    def _says(self, view: View) -> bool:
        if self.names[0].startswith("@") and not self.names[0][1:2].isdigit():
            return _about(view, self.names[0], self.what, self.heads)
        entry = self.entry(view)
        if self.how == "=" and (entry is None or entry.value in ("", None)) and "-" in self.what.split("|"):
            return True
        return entry is not None and _compared(view, entry, self.how, self.what)


def _compared(view: View, entry: Entry, how: str, what: str) -> bool:
    value = entry.value
    if how == "":
        return flag(value) is True
    if how == "~":
        return what.lower() in (" ".join(map(str, value)) if isinstance(value, list) else str(value)).lower()
    if how == ">":
        bound = number(what) if number(what) is not None else number(view.value(norm(what)))
        found = number(value)
        return bound is not None and (found if found is not None else -2.0) > bound
    if how == "<>":
        return MODEL.read(value) is not None and MODEL.read(value) != MODEL.read(view.value(what))
    if what in ("on", "off"):
        return flag(value) is (what == "on")
    if what == "?":
        return value not in (None, "", False, []) or any(k.startswith(entry.key + ".") for k in view)
    return what == "*" or str(value).lower() in what.split("|")


_SPLIT: Final = lazy(r"[\s]+")


def _about(view: View, subject: str, what: str, heads: frozenset[str]) -> bool:
    """What a condition that begins with ``@`` says of the document."""
    if subject == "@dotted":
        return any("." in key and key.split(".")[0] in heads for key in view) == (what == "yes")
    said = {"@form": view.form, "@framework": view.framework}
    if subject in said:
        return said[subject] == what
    return _somewhere(view, subject, what) is not None


def _somewhere(view: View, subject: str, what: str) -> Entry | None:
    entries = list(view.values())
    if subject == "@call":
        return (
            None if view.form != "python" else next((entry for key, entry in view.items() if key.endswith(what)), None)
        )
    if subject == "@word":
        texts = ((e, f"{e.scope} {e.value}" if e.style in ("item", "flag") else e.scope) for e in entries)
        return next((e for e, text in texts if what in text.lower()), None)
    if subject == "@script":
        runs = (word.rsplit("/", 1)[-1].removesuffix(".py") for word in _SPLIT.split(view.programs))
        return entries[0] if entries and any(what in run.split("_") for run in runs) else None
    entries = [entry for entry in entries if entry.resolved]
    if subject == "@program" and what in view.programs:
        return next((e for e in entries if what in str(e.value) or what in e.scope), entries[0] if entries else None)
    return None


def _conditions(text: str, heads: frozenset[str]) -> list[_Condition]:
    out = []
    for word in text.split():
        found = _CONDITION.match(word)
        if found is None or not found["keys"]:
            raise ValueError(f"no condition: {word}")
        names = tuple(n if n[0] == "@" else norm(n) for n in found["keys"].split(","))
        what = norm(found["what"] or "") if found["how"] == "<>" else found["what"] or ""
        out.append(_Condition(names, found["how"] or "", what, bool(found["off"]), heads))
    return out


def _needed(first: _Condition) -> frozenset[str] | None:
    """The keys of which one has to be there for a value to be read; ``None`` where it may stand elsewhere."""
    elsewhere = first.names[0].startswith("@") and not first.names[0][1:2].isdigit()
    return None if elsewhere or first.what == "?" else frozenset(first.names)


_CANNOT: Final = object()
"""What a codec has no spelling for."""
_Change = Callable[[View, Any], Iterator[tuple[str, Any]]]


def _change(word: str, codecs: Mapping[str, Codec], heads: frozenset[str]) -> _Change:
    mark = word[0] if word[0] in "?+-" else ""
    written, _, text = word.removeprefix(mark).partition("=")
    spelt = tuple(written.split(","))
    names = tuple(map(norm, spelt))
    back = dict(zip(names, spelt, strict=True))

    def change(view: View, value: Any) -> Iterator[tuple[str, Any]]:
        if mark == "-":
            yield from ((name, DROP) for name in names)
            return
        name = present(view, names, heads)
        entry = view.get(name)
        if (mark == "+" and entry is None) or (mark == "?" and view.value(name) not in (None, 0)):
            return
        made = value if text == "$" else text[1:] if text[:1] == "'" else as_scalar(text)
        made = text[1:-1].split(",") if text[:1] == "[" else made
        if text[:1] == "$" and text[1:]:
            made = codecs[text[1:]].write(value, entry.value if entry else None)
            made = _CANNOT if made is None else made
        if mark == "+" and entry is not None and {str(entry.value).lower(), str(made).lower()} == {"none"}:
            return  # it says so already
        yield back.get(name, name), made

    return change


def _fits(pattern: Any, value: Any) -> bool:
    if isinstance(pattern, str) and pattern.startswith("+"):
        return isinstance(value, list | tuple) and pattern[1:] in value
    if isinstance(pattern, list | tuple):
        return isinstance(value, list | tuple) and set(pattern) == set(value)
    if isinstance(pattern, bool) or isinstance(value, bool):
        return pattern is value or pattern == "*"
    return pattern == "*" or str(value) in str(pattern).split("|")


def never(_view: View, _field: str, _value: Any) -> None:
    """How a group writes that is only read."""


def rule_group(row: RuleRow, codecs: Mapping[str, Codec], heads: frozenset[str]) -> Group:
    """The group of keys that a rule reads and writes.

    :param heads: the sections that the framework's keys have.
    """
    cases = [(_conditions(text, heads), value) for text, value in row.read]
    needed = [_needed(conditions[0]) for conditions, _ in cases]
    writes = []
    for pattern, changes, *when in row.write:
        words = changes.split() if isinstance(changes, str) else changes
        made = [_change(word, codecs, heads) for word in words]
        writes.append((pattern, made, _conditions(when[0], heads) if when else []))

    def read(view: View) -> Iterator[Reading]:
        for (conditions, value), keys in zip(cases, needed, strict=True):
            if (keys is None or view.has_any(keys)) and all(condition.holds(view) for condition in conditions):
                found = _value(view, conditions[0], value, codecs)
                if found is not None:
                    yield (row.field, *found)
                    return

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        for pattern, changes, when in writes:
            if _fits(pattern, value) and all(condition.holds(view) for condition in when):
                done = dict(pair for change in changes for pair in change(view, value))
                return None if any(made is _CANNOT for made in done.values()) else done
        return None

    first = [name for conditions, _ in cases for name in conditions[0].names if name[0] != "@" and conditions]
    names = tuple(dict.fromkeys(first)) if row.keys is None else tuple(row.keys.split())
    return Group((row.field,), names, read, write if writes else never)


def need_of(row: NeedRow, heads: frozenset[str]) -> Need:
    """What a framework takes only beside something else, as its record says."""
    when, also = _conditions(row.when, heads), _conditions(row.also, heads)

    def broken(view: View) -> bool:
        return all(c.holds(view) for c in when) and not all(c.holds(view) for c in also)

    keys = {name for condition in (*when, *also) for name in condition.names}
    return Need(frozenset(keys), broken, " ".join(map(_shown, row.also.split())))


def _shown(condition: str) -> str:
    """A condition as a setting to write: the first of its keys, and the first of its words."""
    off, found = condition[:1] == "!", _CONDITION.match(condition)
    if found is None or found["how"] in ("~", "<>"):
        return condition
    key = found["keys"].split(",")[0]
    if found["how"] == ">":
        return f"{key} {'<=' if off else '>'} {found['what']}"
    said = (found["what"] or "true").split("|")[0]
    said = {"on": "true", "off": "false", "-": "null", "true": "true"}.get(said, said)
    return f"{key}={'false' if off and said == 'true' else said}"


def _value(view: View, first: _Condition, value: Any, codecs: Mapping[str, Codec]) -> tuple[Any, Entry] | None:
    if isinstance(value, str) and value.startswith("$"):
        name, _, other = value[1:].partition(":")
        codec = codecs[name]
        if other:
            entry, read = first.entry(view), codec.read(view.value(*map(norm, other.split(","))))
            return (read, entry) if entry is not None and read is not None else None
        entries = [view[name] for name in first.names if name in view]
        return next(((read, e) for e in entries if (read := codec.read(e.value)) is not None), None)
    entry = first.entry(view)
    return (_filled(view, value), entry) if entry is not None else None


_NAMED: Final = lazy(r"\{([\w.]{1,80})\}")


def _filled(view: View, value: Any) -> Any:
    if isinstance(value, str):
        return _NAMED.sub(lambda found: str(view.value(norm(found[1])) or ""), value)
    if isinstance(value, list):
        return [_filled(view, item) for item in value]
    if isinstance(value, dict):
        return {k: MODEL.read(view.value(norm(v[1:]))) if str(v)[:1] == "$" else v for k, v in value.items()}
    return value
