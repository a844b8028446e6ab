"""A plan as a patch of the person's own files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from oomdoc.diagnosis.planning.printed import typed_key
from oomdoc.diagnosis.planning.spelling import key_of, spelt_in, value_of, with_dashes
from oomdoc.diagnosis.result import Change, Plan, SingleFix
from oomdoc.evidence import Document, Evidence
from oomdoc.intake.configs import Patched, Text, patch
from oomkb.errors import OomdocError

_ENGINES: Final = frozenset({"deepspeed", "accelerate"})
_LOGS: Final = (".log", ".out", ".err")


Written = dict[tuple[int, str], "Patched | None"]
"""By document and changes, in their order: what was written for the plans of one diagnosis."""


def patched(plan: Plan, evidence: Evidence, written: Written | None = None) -> Plan:
    """The plan with a unified diff over the documents that were read, and each change's file named.

    A field goes where its key stands already, else into the fullest file of the framework. Fields that find no place
    in any document stay as changes without a file.

    :param written: what was written already for other plans of the same evidence, to be added to.
    """
    wanted = fields_to_write(plan, evidence)
    if not wanted or not evidence.documents:
        return replace(plan, changes=tuple(_as_typed(change, evidence) for change in plan.changes))
    diffs: list[str] = []
    placed: dict[str, Document] = {}
    patch = _Patches({} if written is None else written)
    for present in (True, False):
        for document in ranked(evidence):
            left = {n: v for n, v in wanted.items() if n not in placed and spelt_in(document, n) is present}
            if left:
                placed.update(dict.fromkeys(patch.taken(document, left), document))
    for document in ranked(evidence):
        changes = {n: wanted[n] for n, where in placed.items() if where is document}
        diff = patch.diff(document, changes)
        if diff:
            diffs.append(diff.rstrip("\n"))
    changed = tuple(_as_written([_placed(plan, change, placed) for change in plan.changes], placed, patch))
    return replace(plan, patch="\n".join(diffs) + "\n" if diffs else "", changes=changed)


def _as_typed(change: Change, evidence: Evidence) -> Change:
    """The change under the key that a person typed before its old value, where they typed one."""
    name = next((n for n in change.fields if evidence.value(n) == change.old), None)
    if name is None or change.instruction is not None or change.old is None or evidence.facts[name].origin == "option":
        return change
    key = typed_key(evidence.facts[name])
    return change if key is None else replace(change, key=key)


def fields_to_write(plan: Plan, evidence: Evidence) -> dict[str, Any]:
    """The job fields that a file has to say for the plan, those of a group one by one."""
    wanted: dict[str, Any] = {}
    for change in plan.changes:
        wanted.update(_dotted(change.fields))
    if "completion_len" in wanted and not any(spelt_in(d, "seq_len") for d in evidence.documents):
        wanted.pop("seq_len", None)  # the sum of prompt and completion is no setting of its own
    return wanted


def _as_written(changes: Sequence[Change], placed: Mapping[str, Document], patch: _Patches) -> Iterator[Change]:
    """Changes in the keys and values that the patch writes: what is listed is what the file will say."""
    wanted = {name: value for change in changes for name, value in _dotted(change.fields)}
    groups = [list(found) for _, found in groupby(changes, key=lambda c: (c.fields, c.instruction is None, c.file))]
    alone = [_written(dict(_dotted(group[0].fields)), group[0], placed, patch) for group in groups]
    taken = {key for settings in alone for key, _, _ in settings}
    for group, settings in zip(groups, alone, strict=True):
        first, own = group[0], settings
        if first.instruction is not None:
            yield from group
            continue
        if not own:  # what is taken only beside another change is what the whole patch writes and no other claims
            own = [setting for setting in _written(wanted, first, placed, patch) if setting[0] not in taken]
            taken.update(key for key, _, _ in own)
        if all(new is None for _, _, new in own):
            yield from group  # in no file, or nothing but a key that goes
            continue
        elsewhere = len({id(placed.get(name)) for name, _ in _dotted(first.fields)}) > 1
        if elsewhere:  # a part of it is another file's, or the launcher's
            keys = {key for key, _, _ in own}
            yield from (replace(change, file=None) for change in group if change.key not in keys)
        for number, (key, old, new) in enumerate(own):
            saves = 0 if number or elsewhere else first.saves_bytes
            yield replace(first, key=key, old=old, new=new, saves_bytes=saves)


def _written(
    wanted: Mapping[str, Any], change: Change, placed: Mapping[str, Document], patch: _Patches
) -> list[tuple[str, Any, Any]]:
    """The settings that so many fields write into the document of a change; none where it has no document."""
    document = next((placed[name] for name, _ in _dotted(change.fields) if name in placed), None)
    if document is None:
        return []
    return patch.settings(document, {name: value for name, value in wanted.items() if placed.get(name) is document})


_NESTED: Final = ("lora", "rollout", "serving", "loop", "buckets")
_FOLLOWS: Final = frozenset({"lora.dtype"})
"""What the library settles by itself."""


def _dotted(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Fields as a file may say them: those of a group one by one."""
    for name, value in fields.items():
        if name in _NESTED and isinstance(value, Mapping):
            yield from ((f"{name}.{n}", v) for n, v in value.items() if f"{name}.{n}" not in _FOLLOWS)
        else:
            yield name, value


def ranked(evidence: Evidence) -> Sequence[Document]:
    """The framework's own files first, then engine files, fullest first; what a log echoes is nobody's to change."""

    def rank(document: Document) -> tuple[bool, int, str, int]:
        other = document.framework != evidence.framework and document.framework not in _ENGINES
        return other, -len(document.settings), document.source, document.first_line

    own = (d for d in evidence.documents if not _in_log(d, evidence))
    return sorted(own, key=rank)


def _in_log(document: Document, evidence: Evidence) -> bool:
    """Whether a document is a line of a log. In one pasted text, log and command together, the command is patched."""
    if document.source.lower().endswith(_LOGS):
        return True
    failed = {signal.span.source for signal in evidence.signals}
    return document.source in failed and any(d.source not in failed for d in evidence.documents)


class _Patches:
    """Documents with changes written into them, each once: where all go into one document, that is the patch."""

    def __init__(self, written: Written) -> None:
        self._written = written

    def taken(self, document: Document, changes: Mapping[str, Any]) -> list[str]:
        """The fields that a document can take."""
        done = self._of(document, changes)
        return [] if done is None else [name for name in changes if name not in done.unplaced]

    def diff(self, document: Document, changes: Mapping[str, Any]) -> str:
        """The unified diff; empty where nothing is changed."""
        done = self._of(document, changes)
        return done.diff if done is not None else ""

    def settings(self, document: Document, changes: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        """The settings that the changes write: key, value before (``None``: not there) and value after."""
        done = self._of(document, changes)
        return [] if done is None or not done.diff else list(_differing(document, done.text))

    def _of(self, document: Document, changes: Mapping[str, Any]) -> Patched | None:
        key = (id(document), repr(sorted(changes.items(), key=itemgetter(0))))
        if key not in self._written:
            self._written[key] = _patch(document, changes)
        return self._written[key]


def _differing(document: Document, text: str) -> Iterator[tuple[str, Any, Any]]:
    """The settings in which a changed text differs, read as the patch has read them already."""
    before, now = (Text(each, document.source, document.framework).settings for each in (document.text, text))
    for key in (*(k for k in before if k not in now), *now):
        old, new = before.get(key), now.get(key)
        if old != new or isinstance(old, bool) is not isinstance(new, bool):
            yield with_dashes(key, replace(document, text=text)), old, new


def _patch(document: Document, changes: Mapping[str, Any]) -> Patched | None:
    if not changes:
        return None
    try:
        done = patch(
            document.text,
            filename=document.source,
            framework=document.framework,
            changes=changes,
            first_line=document.first_line,
        )
    except OomdocError:
        return None
    return None if done.error else done


def _is(plan: Plan, name: str, value: Any, shown: Any) -> bool:
    return bool(value == shown) or (isinstance(value, str) and value_of(plan.job.framework, name, value) == shown)


def as_spelled(fix: SingleFix, evidence: Evidence) -> SingleFix:
    """The fix with its key as the person's own file spells it, where one has it."""
    change = fix.change
    for document in ranked(evidence):
        for name in change.fields:
            plain = key_of(document.framework, name)
            if spelt_in(document, name) and change.key.lstrip("-") == plain.lstrip("-"):
                return replace(fix, change=replace(change, key=key_of(document.framework, name, [document])))
    return fix


def _placed(plan: Plan, change: Change, placed: Mapping[str, Document]) -> Change:
    """The change with its file, and its key as that file spells it."""
    leading = next((n for n, value in change.fields.items() if _is(plan, n, value, change.new)), "")
    document = placed.get(leading) or next((placed[n] for n in change.fields if n in placed), None)
    if document is None:
        return change
    own = key_of(document.framework, leading, [document]) if leading in placed else change.key
    key = change.key if own == leading else own  # what several keys say has its words already
    return replace(change, file=document.source, key=key)
