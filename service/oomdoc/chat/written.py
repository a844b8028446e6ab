"""The configuration as a conversation has left it: the pasted one with the changes written in, or its lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from oomdoc.chat import parts
from oomdoc.chat.describing import job_fields
from oomdoc.chat.session import Session, flat
from oomdoc.evidence import Source
from oomdoc.report.estimates import not_written
from oomdoc.report.words import word
from oomkb.frameworks import ENGINE, PLAIN
from oomkb.memory.job import Job

_CIRCUMSTANCES: Final = frozenset(
    {
        "framework",
        "versions",
        "env",
        "gpu",
        "capacity_gib",
        "host_gib",
        "world",
        "dp",
        "params_b",
        "planned",
        "failed",
        "nodes",
    }
)
"""What no line of a configuration says, or what follows from others."""
_OF_LAUNCHES: Final = frozenset({"gpus", "tp"})
_BESIDE: Final = ("serving.max_model_len", "serving.gpu_memory_utilization", "serving.kv_dtype", "tp", "micro_batch")
"""Settings that people say in words beside a command."""
_UNSAID: Final[tuple[Any, ...]] = (None, "none", [], "sft", "pretrain", "inference")
"""Values that go without saying."""
_SETTING: Final = re.compile(
    r"(?:(?:set|use|then|now|ok|把|改成)\s)?(?P<key>[\w.-]{2,60})\s?[:=]\s?(?P<value>\S[^\n]{0,80}?)"
)
_LINES: Final = 30
"""A longer configuration is shown as a diff."""


def configuration(session: Session, *, diff: bool, language: str, only: Collection[str] | None = None) -> list[str]:
    """The person's own text with the changes since, else the lines that say the job in its framework's keys.

    :param only: fields of which alone the lines are wanted.
    """
    said = _rewritten(session, diff=diff, language=language) if session.written else []
    return said or _lines(session.job, language, only)


def _rewritten(session: Session, *, diff: bool, language: str) -> list[str]:
    from oomdoc.diagnosis.planning.patching import ranked
    from oomdoc.intake import read
    from oomdoc.intake.configs import patch

    evidence = read([Source("chat", session.written)])
    before, after = job_fields(evidence), flat(session.job)
    changes = _changed(before, after)
    said: list[str] = []
    why: dict[str, str] = {}
    for document in ranked(evidence):
        if document.form == "shell":  # what is said beside a command, it does not say
            says = job_fields(read([Source("chat", document.text)]))
            changes |= {n: after[n] for n in _BESIDE if after.get(n) is not None and says.get(n) is None}
        done = patch(document.text, filename=document.source, framework=document.framework, changes=changes)
        if done.error or len(done.unplaced) == len(changes) > 0:
            continue
        whole = not diff and document.text.count("\n") < _LINES
        said += ["```", (done.text if whole else done.diff or done.text).strip("\n"), "```"]
        changes = {n: v for n, v in changes.items() if n in done.unplaced}
        why = {n: not_written(n, reason, done.framework, language) for n, reason in done.unplaced.items()}
        if not changes:
            break
    own = {"seq_len"} if "serving.max_model_len" in after else set()  # a server's context is the length
    left = {n: v for n, v in changes.items() if n not in _OF_LAUNCHES | own}
    if said and left:
        said += [
            word("chat.unplaced", language, changes=parts.shown_changes(left, language)),
            *(why[n] for n in left if n in why),
        ]
    return said


def edited(session: Session, turn: str) -> dict[str, Any]:
    """What a line means that stands with another value in the pasted configuration: ``mode = "full"``."""
    from oomdoc.intake import read

    match = _SETTING.fullmatch(turn.strip())
    if match is None:
        return {}
    line = re.compile(rf"(?m)^([ \t]*){re.escape(match['key'])}([ \t]*[:=][ \t]*)\S.*$")
    if len(line.findall(session.written)) != 1:
        return {}
    text = line.sub(lambda m: f"{m[1]}{match['key']}{m[2]}{match['value']}", session.written)
    before, after = (job_fields(read([Source("chat", version)])) for version in (session.written, text))
    return _changed(before, after)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ, with their values after; circumstances are none."""
    return {n: after.get(n) for n in (*after, *before) if before.get(n) != after.get(n) and n not in _CIRCUMSTANCES}


def _lines(job: Job, language: str, only: Collection[str] | None) -> list[str]:
    """One line a field, in the keys of the framework; of a run without one, in those of the usual one."""
    from oomdoc.diagnosis.planning.changes import worded
    from oomdoc.diagnosis.planning.spelling import DASHED, has_keys, names_of

    usual = ENGINE if job.objective == "inference" else PLAIN
    named = has_keys(job.framework)
    job = job if named else job.with_fields({"framework": usual})
    head = word("chat.in-keys" if named else "chat.in-usual-keys", language, framework=job.framework)
    lines: list[str] = []
    for name, value in flat(job).items():
        if name in _CIRCUMSTANCES | {"gpus"} or value in _UNSAID or (only is not None and name not in only):
            continue
        sharding = job.sharding if name != "sharding" else None
        for key, _, new in worded(Job(framework=job.framework, sharding=sharding), job, name, value):
            if key != name or name in names_of(job.framework, name):
                lines.append(_line(key, new, dashed=job.framework in DASHED))
    return [head, "```", *dict.fromkeys(lines), "```"] if lines else [word("chat.which-framework", language)]


def _line(key: str, value: Any, *, dashed: bool) -> str:
    shown = parts.shown_value(value)
    if dashed or key.startswith("--"):
        option = key if key.startswith("-") or "." in key else f"--{key}"
        return option if value is True else f"{option} {shown}"
    return f"{key}={shown}" if "." in key else f"{key}: {shown}"
