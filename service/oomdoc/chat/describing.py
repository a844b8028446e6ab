"""A description or pasted material as job fields: what intake reads, and what the phrases add to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.explicit import read_explicit
from oomdoc.chat.grammar import LONGEST_TURN
from oomdoc.chat.session import flat
from oomdoc.chat.wording import patterns
from oomdoc.diagnosis.known_run import priced_run
from oomdoc.evidence import Evidence, Source
from oomdoc.intake.asked import asked_of
from oomdoc.stated import following
from oomkb.errors import InputError, OomdocError
from oomkb.frameworks import ENGINES
from oomkb.memory.job import Job
from oomkb.memory.setting import ONLINE
from oomkb.untrusted import json_document

_RE: Final = patterns("describing")
_MIN_FACTS: Final = 2
"""Facts beside which a job is worth diagnosing without a failure."""

_PASTED: Final = re.compile(
    r"(?m)^\s{0,8}[\w.-]{2,60}\s?[:=]\s?\S|Traceback|[Ee]rror:|(?:^|\s)--[\w-]{3,40}|out of memory|^\s{0,8}[{}]\s*$"
)
_ALSO: Final = {"tp": ("rollout.tensor_parallel",), "param_dtype": ("autocast",), "autocast": ("param_dtype",)}
"""Fields that intake reads from the same words."""
_NO_OPTIONS: Final = frozenset(
    {"versions", "env", "buckets", "extra_models", "loop", "assumed", "planned", "failed", "world", "dp"}
)
"""Parts of a job that no option states."""
_LOGGED: Final = re.compile(
    r"(?m)^[ \t]*(?:\([^()\n]{2,60}\)[ \t]*)?"
    r"(?:\[?(?:INFO|WARNING|WARN|ERROR|DEBUG)\b|\[?\d{4}-\d\d-\d\d[ T]|\[rank\d).*$"
)
"""Lines that a program printed: no words of the person."""
_LONGEST_CONFIG: Final = 60_000
_NAMED_AIM: Final = 0.6
"""Confidence of a word from which it names another work than the conversation's: evaluating is part of training."""


def is_pasted(text: str) -> bool:
    """Whether a turn is material to read rather than a phrase."""
    stripped = text.strip()
    several = stripped.count("\n") >= 1
    return len(stripped) > LONGEST_TURN or (several and bool(_PASTED.search(stripped) or _LOGGED.search(stripped)))


def tells_of_failure(evidence: Evidence) -> bool:
    """Whether a turn tells that something failed: no question, and no bare complaint."""
    outcome = evidence.outcome
    return outcome is not None and outcome.fails and bool(evidence.failures)


def own_words(text: str) -> str:
    """The text without the lines that a program printed."""
    return _LOGGED.sub("", text).strip() if _LOGGED.search(text) else text


def read_description(text: str, job: Job, *, first: bool) -> tuple[Evidence, dict[str, Any]]:
    """The evidence and the job fields; what only the phrases say is evidence too, so that one job is diagnosed.

    :param job: what the conversation has stated before, evidence of the same run.
    """
    from oomdoc.intake import read

    config = config_of(text)
    if config is not None:
        return read([Source("config.json", text)]), {"model": config, "params_b": None}
    evidence = read([Source("chat", text)])
    inside = not first and job.framework is not None and "framework" not in evidence.facts and not evidence.documents
    if inside:
        evidence = replace(evidence, framework=job.framework)  # what a message is printed by runs inside it
    if not first:
        kept = {n: f for n, f in evidence.facts.items() if n != "objective" or f.confidence >= _NAMED_AIM}
        evidence = replace(evidence, facts=MappingProxyType(kept))
    outcome = evidence.outcome
    if outcome is not None and outcome.name == "complaint" and not _RE["fails"].search(text):
        told = replace(outcome, kind="question", name="question", memory=None)
        evidence = replace(evidence, outcome=told)  # nobody says that anything failed: it is about a run to come
    own = job_fields(evidence)
    if first and evidence.outcome is not None and evidence.outcome.kind == "question":
        return evidence, own
    fields = _stated(text, evidence, own)
    if not first and "param_dtype" in fields and "quant" not in own and fields.get("quant") == "none":
        del fields["quant"]  # sixteen bits are what is computed in; how the weights are stored stays
    known = {n: v for n, v in options_of(flat(job) | _taken_to_be(job)).items() if n not in own}
    said = {n: v for n, v in (known | fields).items() if own.get(n) != v and n not in ("world", "dp")}
    # Without a model only the machine was told of so far.
    if said and (evidence.failures or len(own) > _MIN_FACTS or not job.has_model):
        evidence = read([Source("chat", text)], {n: list(v) if isinstance(v, tuple) else v for n, v in said.items()})
        evidence = replace(evidence, framework=job.framework) if inside and evidence.framework is None else evidence
        # "bf16 mixed precision": what is said of one field may take another's word away.
        fields = {n: v for n, v in fields.items() if n not in own or n in job_fields(evidence)}
    return evidence, fields


def options_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A job's fields as options beside a text that tells of the same run."""
    known = {n: v for n, v in fields.items() if n.partition(".")[0] not in _NO_OPTIONS}
    return {n: list(v) if isinstance(v, tuple) else v for n, v in known.items()}


def _taken_to_be(job: Job) -> dict[str, Any]:
    """What the conversation's answers have taken the run to be where nobody said: what failed is that run."""
    try:
        taken = priced_run(job).job
    except OomdocError:
        return {}
    return {name: taken.get(name) for name in _TAKEN if taken.get(name) is not None} if job.model else {}


_TAKEN: Final = ("grad_ckpt", "micro_batch", "seq_len", "sharding", "method", "serving.max_model_len")


def _stated(text: str, evidence: Evidence, own: Mapping[str, Any]) -> dict[str, Any]:
    """Job fields, dotted: the facts, and the settings that the words name beside them."""
    fields = dict(own)
    if len(text) <= LONGEST_TURN:
        spelled = read_explicit(own_words(text), Context(Job())).fields
        fields |= {name: value for name, value in spelled.items() if name not in fields}
    for name, value in asked_of(evidence).settings.items():
        names = (name, *_ALSO.get(name, ()))
        if fields.keys().isdisjoint(names) and not any(f.startswith(f"{name}.") for f in fields):
            fields[name] = value
    asked = asked_of(evidence)
    if asked.full and "method" not in fields and fields.get("objective") != "inference":
        fields["method"] = "full"
    if asked.length and fields.keys().isdisjoint(("seq_len", "serving.max_model_len", "completion_len")):
        fields["seq_len"] = asked.length
    if fields.get("objective") in ONLINE and asked.completion and "completion_len" not in fields:
        both = asked.request_length or 0
        fields |= {"completion_len": asked.completion}
        fields |= {"prompt_len": both - asked.completion} if both > asked.completion else {}
    server, rollout = "serving.gpu_memory_utilization", "rollout.gpu_memory_utilization"
    if fields.get("objective") in ("grpo", "ppo") and server in fields:
        fields.setdefault(rollout, fields.pop(server))
    if fields.get("objective") == "inference" and fields.get("framework") in ENGINES and "seq_len" in fields:
        fields.setdefault("serving.max_model_len", fields["seq_len"])
    goes_along = following(fields, Job())
    if evidence.documents or asked_of(evidence).axes:
        goes_along.pop("tp", None)  # its engine's default, or that of each run which is compared
    return fields | goes_along


def config_of(text: str) -> dict[str, Any] | None:
    """A model's ``config.json`` that was pasted whole; ``None`` for anything else."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end <= start or "hidden_size" not in text or end - start > _LONGEST_CONFIG:
        return None
    try:
        found = json_document(text[start : end + 1], where="config.json")
    except InputError:
        return None
    whole = isinstance(found, dict) and isinstance(found.get("hidden_size"), int) and "model_type" in found
    return found if whole and isinstance(found, dict) else None


def job_fields(evidence: Evidence) -> dict[str, Any]:
    """The (dotted) job fields that intake reads."""
    from oomdoc.intake.configs import to_job

    job = to_job(evidence.facts, evidence.framework, evidence.versions)
    known = set(Job.__dataclass_fields__) - {"extra", "assumed"}
    return {n: v for n, v in flat(job).items() if n.partition(".")[0] in known and not n.endswith("_text")}
