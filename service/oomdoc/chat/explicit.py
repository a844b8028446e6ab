"""Settings that a turn spells out: ``key=value``, ``--flag value``, a key and its value, in any framework's spelling.

They are understood whatever stands around them, read by the tables that read config files, and refused where no run can
have the value: nothing else in the turn may be taken for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.phrases import ALIASES, is_off
from oomdoc.chat.session import flat
from oomdoc.chat.wording import patterns, words
from oomdoc.evidence import Source
from oomdoc.intake.configs.declared import TABLES, all_names, table
from oomdoc.intake.configs.launch import ENVIRONMENT, LAUNCH_KEYS
from oomdoc.intake.configs.table import Group, Key, norm
from oomdoc.intake.numbers import read_number
from oomdoc.intake.quantities.fields import is_of_process
from oomdoc.stated import DOTTED_FIELDS, stated_fields
from oomkb.dataclass import dataclass
from oomkb.errors import JobError
from oomkb.memory.job import Job

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_SPELLED: Final = re.compile(
    r"(?<![\w./-])(?P<flag>--?)?(?P<key>[A-Za-z][\w-]{0,48}(?:\.[A-Za-z][\w-]{0,40}){0,5})"
    r"(?:\s{0,2}(?P<equals>[=:：]|->|→)\s{0,2}|\s{0,2}(?:[改换变设调降升加提减开拉](?:成|为|到|至|回)?|[是为到取用给])\s{0,2}(?=[\d.A-Za-z$+-])"
    r"|\s{1,2}(?:to\s|is\s|at\s|of\s)?)"
    r"(?P<value>[+-]?(?:\d{1,3}(?:,\d{3}){1,3}(?!\d)|\d{1,10})(?:\.\d{0,6})?(?:e-?\d{1,2})?\s?(?:k|K|%|GiB|GB|G)?(?![A-Za-z0-9_])"
    r"|[A-Za-z$][\w.+/${}-]{0,120}(?:,[A-Za-z][\w.-]{0,40}(?![\w.-]|\s?[=:：])){0,4})"
)
_BARE_FLAG: Final = re.compile(
    r"(?<![\w-])--(?P<key>[A-Za-z][\w-]{2,48})(?=[\s,;?!，。；？！)]|\.(?!\w)|$)(?!\s{1,2}[\w.+/-]*\d)"
)
_SWITCH_NAME: Final = re.compile(r"(?<![\w./-])[a-z][a-z0-9]{0,24}(?:_[a-z0-9]{1,24}){1,6}(?![\w./:=-])")
SENTENCE_WORDS: Final = words("sentence")
"""Words of a sentence that no setting is called."""
_RE: Final = patterns("explicit")
_SWITCHES: Final = {"on": True, "off": False, "true": True, "false": False, "yes": True, "no": False}
_GROUPED: Final = frozenset({"quant", "sharding", "offload", "method", "grad_ckpt", "autocast", "extra_models"})
"""Fields that keys say in words of their own (``quantization_bit: 4``)."""
_SHORTEST_NAME: Final = 3
_NAMED: Final = frozenset({"gpu", "model", "framework"})
"""Fields whose value is a name, also where it looks like a number (``gpu=4090``)."""
_LISTS: Final = frozenset({"offload", "lora.targets"})
_BARE: Final = frozenset({"n", "r", "mb", "bs", "zero", "seq", "rank"})
"""Names that are words as well: understood with ``=`` or before a number."""
_SIZE_UNIT: Final = re.compile(r"\s?(?:gib|gb|g)\Z")
_OF_LORA: Final = re.compile(r"(?i)(?<!q)\blora\s(?:of\s)?\Z")
_PLAIN_NUMBER: Final = re.compile(r"[+-]?\d*\.?\d+(?:e[+-]?\d+)?")
_SPACES: Final = re.compile(
    r"(?i)(?<![\w-])(?:(micro)[ -](train|batch|rollout)(?:[ -](batch))?(?:[ -](size))?|(zero)[ -](stage))"
    r"(?=\s?(?:[=:]|\d|to\b))"
)


@dataclass(frozen=True, slots=True)
class Explicit:
    """The fields that a turn spells out, where they stand, and why one of them is refused."""

    fields: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    spans: tuple[tuple[int, int], ...] = ()
    refused: JobError | None = None


@dataclass(frozen=True, slots=True)
class _Setting:
    """One key with its value, as written."""

    key: str
    value: str
    span: tuple[int, int]
    equals: str = ""
    flag: bool = False

    @property
    def name(self) -> str:
        return self.key.replace("-", "_").lower()

    @property
    def signed(self) -> bool:
        return bool(self.equals or self.flag)

    @property
    def own(self) -> bool:
        """Whether a job's field is set by its own name, with a sign."""
        return bool(self.equals) and _is_field(self.name)


def read_explicit(turn: str, context: Context) -> Explicit:
    """What a turn spells out; the first impossible value is kept as a refusal."""
    text = _SPACES.sub(lambda m: "_".join(p for p in m.groups() if p).ljust(len(m[0])), turn)
    found: dict[str, Any] = {}
    spans: list[tuple[int, int]] = []
    for_tables: list[_Setting] = []
    for setting in _settings(text):
        if setting.name == "rank" and is_of_process(text, *setting.span):
            continue
        try:
            fields = _fields(setting, context)
        except JobError as error:
            if not _by_tables([setting], context.job)[0]:
                return Explicit(found, (*spans, setting.span), error)
            fields = None  # what it says there is not this field's value: a rank of 0 is no LoRA
        if fields is None:
            for_tables.append(setting)
        elif fields or setting.flag:
            found.update(fields)
            start, end = setting.span
            before = _OF_LORA.search(text, max(0, start - 8), start) if "lora.r" in fields else None
            spans.append((before.start() if before else start, end))
    for_tables += _switches(text, [*spans, *(s.span for s in for_tables)], context.job)
    read, used = _by_tables(for_tables, context.job)
    return Explicit({**read, **found}, (*spans, *used), None)


def only_settings(turn: str, context: Context) -> bool:
    """Whether a turn is nothing but settings that it spells out, and filling words: ``seq_len=1024 please``."""
    spans = read_explicit(turn, context).spans
    return bool(spans) and not _RE["says_nothing"].sub("", blanked(turn, spans)).strip()


def blanked(turn: str, spans: Iterable[tuple[int, int]]) -> str:
    """The turn with blanks where something has been read, so that nothing is read twice."""
    for start, end in spans:
        turn = f"{turn[:start]}{' ' * (end - start)}{turn[end:]}"
    return turn


def _settings(text: str) -> Iterator[_Setting]:
    start, rest = 0, text
    while (match := _SPELLED.search(text, start)) is not None:
        key, value = match["key"].lower(), match["value"]
        word = not match["equals"] and not match["flag"]
        sentence = key in SENTENCE_WORDS or (
            word
            and not value[0].isdigit()
            and value[0] not in "+-"
            and not ("_" in key or (_joined(key) and _known(key)))
        )
        # "--enforce-eager please", "pure_bf16 then": before a word that is no value of it.
        switch = (
            (match["flag"] or "_" in key) and not match["equals"] and value.lower() in SENTENCE_WORDS - _SWITCHES.keys()
        )
        if sentence or switch:
            start = match.start() + max(1, len(match["key"]))
            continue
        yield _Setting(
            match["key"], value.strip().rstrip("."), match.span(), match["equals"] or "", bool(match["flag"])
        )
        start = match.end()
        rest = f"{rest[: match.start()]}{' ' * (start - match.start())}{rest[start:]}"
    for match in _BARE_FLAG.finditer(rest):
        off = match["key"].startswith("no-")
        yield _Setting(match["key"].removeprefix("no-"), "false" if off else "true", match.span(), flag=True)


def _switches(text: str, taken: Sequence[tuple[int, int]], job: Job) -> Iterator[_Setting]:
    """Switches that are named without a value: ``pure_bf16 then``, ``turn off use_galore``."""
    for match in _SWITCH_NAME.finditer(text):
        if any(start < match.end() and match.start() < end for start, end in taken):
            continue
        on, off = (_Setting(match[0], value, match.span(), flag=True) for value in ("true", "false"))
        read = [_by_tables([setting], job)[0] for setting in (on, off)]
        if read[0] and read[0] != read[1]:
            yield off if is_off(text, *match.span()) else on


def _fields(setting: _Setting, context: Context) -> dict[str, Any] | None:
    """The job fields of one setting; none for a key that is nobody's; ``None`` where the frameworks' tables say."""
    name = setting.name
    if setting.key in ENVIRONMENT:
        field, read = ENVIRONMENT[setting.key]
        return stated_fields({field: read(setting.value)})
    if name in _BARE and not setting.signed and not setting.value.lstrip("+-")[:1].isdigit():
        return {}
    if setting.own:
        return _checked(setting, name, context)
    own = table(context.job.framework)
    if own and setting.flag and own.knows(name) and not _said_by(setting.key, own.name) and name not in ALIASES:
        return {}  # the framework has it, and it says nothing of memory
    named = field_named(name, context.job.framework)
    if named is None and "." in name and _known(setting.key):
        return None
    if named is None and "." in name:
        named = field_named(name.rpartition(".")[2], context.job.framework)
    if named is None or named in _GROUPED:
        return None if setting.signed or "_" in name else {}
    if not setting.signed and not _joined(setting.key) and name not in ALIASES:
        return {}
    return _checked(setting, named, context)


def _checked(setting: _Setting, field: str, context: Context) -> dict[str, Any] | None:
    """The field with its value, refused under the name that the person used.

    After a colon a sentence may follow; after ``=`` there is a value or a slip.
    """
    if field.rpartition(".")[2] == "gpu_memory_utilization":
        field = context.utilization
    given = _value(field, setting.value)
    if field == "zero_stage":
        stage = stated_fields({"zero_stage": given})["zero_stage"]
        return {"sharding": "ddp" if stage == 0 else f"zero{stage}"}
    try:
        return stated_fields({field: given})
    except JobError as error:
        if isinstance(given, bool | str) and setting.equals != "=":
            return None
        raise JobError(error.message, where=setting.key, hint=error.hint, note=error.note) from error


def _value(field: str, value: str) -> Any:
    if field in _NAMED:
        return value
    if field in _LISTS and (field == "offload" or "," in value):
        return [] if value.lower() in ("none", "false", "no", "off") else value.split(",")
    return _scalar(value, share=field.endswith("utilization"))


def _scalar(value: str, *, share: bool) -> Any:
    low = value.lower()
    if low in _SWITCHES:
        return _SWITCHES[low]
    text = _SIZE_UNIT.sub("", low.replace(",", ""))
    try:
        number = float(text) if _PLAIN_NUMBER.fullmatch(text) else read_number(text.removesuffix("%").strip())
    except ValueError:
        return value
    if text.endswith("%") or (share and number == int(number) and 5 <= number <= 100):
        return number / 100
    return int(number) if number == int(number) and "e" not in text and "." not in text else number


def _by_tables(settings: Sequence[_Setting], job: Job) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """What the frameworks' tables make of the lines together, the job's own first, and where those stand."""
    found: dict[str, Any] = {}
    used: list[tuple[int, int]] = []
    known = (table.name for s in settings for table in TABLES if _said_by(s.key, table.name))
    for name in dict.fromkeys([job.framework, *known]):
        here = [
            s
            for s in settings
            if _said_by(s.key, name) and (name == job.framework or not _said_by(s.key, job.framework))
        ]
        said = frozenset().union(*(_said_by(s.key, name) for s in here))
        read = {n: v for n, v in _read_lines(here, name).items() if here and n.partition(".")[0] in said}
        moved = _offload(here, job, name) if "offload" in said else None
        if moved is not None:
            read["offload"] = moved
        found = {**read, **found}
        used += [s.span for s in here if read and s.span not in used]
    return found, used


def _offload(settings: Sequence[_Setting], job: Job, framework: str | None) -> list[str] | None:
    """Switches of single offloads, on top of those that the job has; ``None`` where there are none."""
    present = list(job.offload or ())
    said = False
    for setting in settings:
        switch = {**_SWITCHES, "cpu": True, "nvme": True, "none": False}.get(setting.value.lower())
        if switch is None:
            continue
        parts = _read_lines([replace(setting, value="true")], framework).get("offload") or ()
        said = said or bool(parts)
        present = [p for p in present if p not in parts] + (list(parts) if switch else [])
    return sorted(present) if said else None


def _read_lines(settings: Sequence[_Setting], framework: str | None) -> Mapping[str, Any]:
    """The (dotted) fields of the settings, read as a file of a framework."""
    keys = (s.key if s.key in all_names() else s.key.replace("-", "_") for s in settings)
    return _read("\n".join(f"{key}: {s.value}" for key, s in zip(keys, settings, strict=True)), framework)


@lru_cache(maxsize=256)
def _read(text: str, framework: str | None) -> Mapping[str, Any]:
    from oomdoc.intake.configs import read_documents, to_job

    reading = read_documents(Source("turn.yaml", text), framework=framework)
    return flat(to_job({f.name: f for f in reading.facts}, framework, {}))


@cache
def _said_by(key: str, framework: str | None) -> frozenset[str]:
    """The fields (without their parts) that a key says in a framework's files or launchers."""
    parts = key.replace("-", "_").split(".")
    names = {".".join(parts[n:]) for n in range(len(parts))}
    found = {"gpus", "nodes", "world"} if not names.isdisjoint(LAUNCH_KEYS) else set()
    own = table(framework)
    rows: list[Key | Group] = [*own.all_keys(), *own.all_groups()] if own is not None else []
    read = names - own.record.ignores if own is not None else names
    for row in rows:
        if not read.isdisjoint(norm(n) for n in row.names):
            found |= {row.field} if isinstance(row, Key) else set(row.fields)
    return frozenset(f.partition(".")[0] for f in found)


def _joined(key: str) -> bool:
    """Whether a name has several parts, as words of a sentence have not."""
    return not {"_", ".", "-"}.isdisjoint(key)


def _known(key: str) -> bool:
    last = key.rpartition(".")[2]
    return any(k in all_names() for k in (key, key.replace("-", "_"), last, last.replace("-", "_")))


_OWN_FIELDS: Final = frozenset(Job.__dataclass_fields__) - {"extra", "assumed", "versions", "env", "buckets"}


def _is_field(name: str) -> bool:
    return name in _OWN_FIELDS or name in DOTTED_FIELDS


@cache
def _fields_by_key(framework: str) -> Mapping[str, str]:
    """A key, whole and by its last part -> its field in the framework's own table, else in most tables."""
    votes: dict[str, Counter[str]] = {}
    for each in TABLES:
        own = each.name == framework
        for key in each.all_keys():
            for name in key.names:
                plain = norm(name.rpartition(":")[2]).lower()
                last = plain.rpartition(".")[2]
                for spelt in {plain, last} if len(last) > _SHORTEST_NAME else {plain}:
                    if len(spelt) > 1 or own:
                        votes.setdefault(spelt, Counter())[key.field] += len(TABLES) if own else 1
    return {name: fields.most_common(1)[0][0] for name, fields in votes.items()}


def field_named(key: str, framework: str | None) -> str | None:
    """The job field that a key of any framework, a short name or the field's own name stands for."""
    name = key.replace("-", "_").lower()
    if name in ALIASES or _is_field(name):
        return ALIASES.get(name, name)
    field = _fields_by_key(framework or "").get(name)
    return field if field and field.partition(".")[0] in _OWN_FIELDS - {"model"} else None
