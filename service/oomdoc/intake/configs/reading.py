"""From text to facts: what every configuration in a source says, where, and what of it is not in effect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Final

from oomdoc.evidence import Conflict, Document, Fact, Inactive, Message, Origin, Recognised, Setting, Source, say
from oomdoc.intake.agreement import conflict
from oomdoc.intake.configs.analysis import Doc, analyse, believed, known_as
from oomdoc.intake.configs.companions import LINKS, named_files, of_name, sourced
from oomdoc.intake.configs.extra_settings import extra_facts
from oomdoc.intake.configs.guessing import CONFIDENCE as GUESSED
from oomdoc.intake.configs.guessing import concerns_memory
from oomdoc.intake.configs.inactive import find_inactive
from oomdoc.intake.configs.jobs import contract_facts
from oomdoc.intake.configs.launch import LAUNCH_KEYS, launch_facts
from oomdoc.intake.configs.lines import Lines
from oomdoc.intake.configs.named import hinted_model, named_method, named_objective, scripted_objective
from oomdoc.intake.configs.segments import form_of
from oomdoc.intake.configs.table import norm
from oomdoc.intake.configs.values import flag
from oomdoc.intake.notebooks import is_notebook, notebook_text
from oomdoc.intake.prose.models import tidy_model
from oomkb.dataclass import dataclass
from oomkb.frameworks import ENGINES, LAUNCHERS, has
from oomkb.kept import lazy

_ORIGINS: Final[Mapping[str, Origin]] = {
    "yaml": "config",
    "json": "config",
    "toml": "config",
    "shell": "command",
    "python": "code",
    "env": "env",
    "ini": "prose",
}
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReading:
    """What the configurations of one source say."""

    facts: tuple[Fact, ...] = ()
    """One per name: contract names and (dotted) job fields."""
    documents: tuple[Document, ...] = ()
    inactive: tuple[Inactive, ...] = ()
    framework: str | None = None
    """Canonical, ``unknown`` for a run's configuration of a framework that is not known, ``None`` without one."""
    recognised: Recognised | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    warnings: tuple[Message | str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


def _doubtful(docs: Sequence[Doc]) -> frozenset[str]:
    """Fields that several commands of a framework that is not known do not all say alike: which counts is not known.

    Likewise of a file that serves several models.
    """
    runs = [{name: value for name, value, _ in d.readings()} for d in docs if d.unknown and d.form == "shell"]
    served = [{n: v for n, v, _ in d.readings()} for d in docs if d.table is not None and d.table.name in ENGINES]
    served = [run for run in served if "model" in run]
    runs += served if len({str(run["model"]) for run in served}) > 1 else []
    said = {name for run in runs for name in run if any(o.get(name) != run[name] for o in runs)}
    return frozenset(said - {"gpus", "nodes"})


UNKNOWN: Final = "unknown"
"""The name of a framework that is not known."""


def main_document(docs: Sequence[Doc]) -> Doc | None:
    """The document of the run: the one with most settings among the most telling ones, or what builds on its framework.

    The cells of a notebook each import something of their own.
    """
    telling = sorted(
        (d for d in docs if d.table is not None or d.unknown), key=lambda d: (believed(d), -len(d.entries))
    )
    first = telling[0] if telling else None
    if first is None or first.form != "python":
        return first
    python = ((d, d.table) for d in telling if d.form == "python" and d.table is not None and d.marks[0])
    return next((d for d, own in python if first.table in own.bases and own.name not in LAUNCHERS), first)


_MAX_UNREAD: Final = 12


def _recognised(main: Doc, settings: Sequence[Setting]) -> Recognised:
    """What the run's document was taken for, and what of it was not understood although it speaks of memory."""
    unread = [s for s in settings if not s.known and s.value not in (None, "") and concerns_memory(s.key)]
    used = {entry.key_span for _, _, entry in main.readings()}
    if main.unknown:
        read = {entry.key for entry in main.settings if entry.key_span in used}
        unread = [s for s in unread if s.key not in read]
    return Recognised(
        main.table.name if main.table is not None else UNKNOWN,
        round(main.probability, 3),
        round(main.unknown_keys, 3),
        tuple(s for s in unread if not isinstance(s.value, dict))[:_MAX_UNREAD],
        tuple(name for name, _, _ in main.readings()) if main.unknown else (),
    )


def _notices(found: Recognised | None, source: Source) -> list[Message]:
    """The warning for an unknown framework: what was taken from it, and what may matter."""
    if found is None or found.name != UNKNOWN:
        return []
    share = round(found.unknown_keys * 100)
    out = [say("intake.framework-unknown", source=source.name, share=share)]
    if found.guessed:
        out.append(say("intake.framework-guessed", fields=", ".join(found.guessed)))
    if found.unread:
        out.append(say("intake.framework-unread", settings=_listed(found.unread)))
    return out


def _listed(settings: Sequence[Setting]) -> str:
    return ", ".join(f"{s.key} = {str(s.value)[:40]}" for s in settings[:6])


def _facts(doc: Doc, lines: Lines) -> list[Fact]:
    origin = _ORIGINS.get(doc.form, "config")
    confidence = GUESSED if doc.unknown else 0.9 if doc.form == "ini" else 1.0
    out = [Fact(n, v, lines.span(e.key_span[0]), origin, confidence) for n, v, e in doc.readings()]
    if doc.form in ("shell", "yaml", "env", "python"):
        out += [
            Fact(n, v, lines.span(e.key_span[0]), origin, confidence) for n, v, e in launch_facts(doc.entries, doc.env)
        ]
    return out


def _keep(facts: Iterable[Fact]) -> tuple[dict[str, Fact], list[Conflict]]:
    kept: dict[str, Fact] = {}
    conflicts: list[Conflict] = []
    for fact in facts:
        current = kept.get(fact.name)
        if current is None:
            kept[fact.name] = fact
        elif current.value != fact.value and len(conflicts) < 50 and (found := conflict(current, fact)) is not None:
            conflicts.append(found)
    return kept, conflicts


_SIZE: Final = lazy(r"[0-9](?:[._][0-9])?[bBmM](?![a-zA-Z])|[0-9]")
_PLACEHOLDER: Final = lazy(
    r"x{2,}|your.*|path|to|models?|model[_-]?(?:path|dir|name)|.*checkpoint-?[0-9]*.*|.*merged.*|output.*", re.I
)


def _named(fact: Fact) -> Fact:
    """A model's fact under the model's own name: a path's last part, a hint only where it names none."""
    if fact.name != "model" or not isinstance(fact.value, str):
        return fact
    value = fact.value.rstrip("/").replace("___", ".")
    parts = [p for p in value.split("/") if p]
    local = value[:1] in "/.~" or len(parts) > 2 or "\\" in value
    base = tidy_model(value) if local else value
    if any(_PLACEHOLDER.fullmatch(p) for p in ([base] if local else parts)) or (local and not _SIZE.search(base)):
        return replace(fact, value=base, confidence=0.4)
    return replace(fact, value=base)


def _unevaluated(docs: Iterable[Doc], kept: dict[str, Fact]) -> None:
    """A batch for evaluations that are switched off is no evaluation: it stays a hint."""
    batch = kept.get("eval_micro_batch")
    if batch is None:
        return
    said = {norm(e.key).rsplit(".", 1)[-1]: e.value for d in docs for e in d.entries if not e.off}
    strategy = said.get("eval_strategy", said.get("evaluation_strategy"))
    # As configs write it, and as TrainingArguments print themselves (``no``, ``IntervalStrategy.NO``).
    never = strategy is False or str(strategy).lower().rpartition(".")[2] == "no"
    wanted = flag(said.get("do_eval"))
    if (never and not wanted) or (wanted is False and (strategy is None or never)):
        kept["eval_micro_batch"] = replace(batch, confidence=_OFF)


_OFF: Final = 0.45
"""Of what is stated and not in effect."""
_SERVERS: Final = ("vllm-serve", "vllm serve", "swift rollout", "sglang.launch_server", "vllm.entrypoints")
_OF_ENGINE: Final = {
    "tp": "rollout.tensor_parallel",
    "serving.gpu_memory_utilization": "rollout.gpu_memory_utilization",
}


def _of_server(docs: Sequence[Doc], doc: Doc, *, notebook: bool) -> bool:
    """Whether a command starts a server that a training run beside it generates with, or was given its data by."""
    started = doc.form == "python" and any(e.style in ("flag", "flag=", "bare") for e in doc.entries)
    if doc.table is None or not (doc.form == "shell" or started):
        return False
    forms = _ORIGINS if notebook or started else ("shell",)
    own = doc.table.name in ENGINES or any(s in doc.programs for s in _SERVERS)
    others = [d for d in docs if d is not doc and d.form in forms]
    runs = [d for d in others if d.program or (d.table is not None and d.table.name not in ENGINES)]
    return own and any(len(d.readings()) > 1 for d in runs)


def _as_engine(facts: Iterable[Fact]) -> list[Fact]:
    """A server's settings as those of the rollout."""
    return [replace(f, name=_OF_ENGINE[f.name]) for f in facts if f.name in _OF_ENGINE]


_APART: Final = frozenset({"seq_len", "completion_len", "objective"})
_SUPERVISED: Final = frozenset({"sft", "pretrain", "dpo", "orpo", "simpo", "kto", "rm"})
"""Objectives of a run that generates nothing itself."""


def _settings(doc: Doc, lines: Lines) -> tuple[Setting, ...]:
    known = (doc.table.known | LAUNCH_KEYS) if doc.table else LAUNCH_KEYS
    sections = doc.table.sections if doc.table else ()
    out = []
    listed = doc.settings[:2000]
    for entry, shown in zip(listed, known_as(listed, doc.table), strict=True):
        if entry.style == "call" or entry.key.startswith("@"):
            continue
        key = norm(shown.key)
        last = key.rsplit(".", 1)[-1]
        call = entry.scope.rsplit(".", 1)[-1]
        understood = (
            key in known or last in known or f"{call}:{key}" in known or (sections != () and key.startswith(sections))
        )
        out.append(Setting(entry.key, entry.value, lines.span(entry.key_span[0]), understood))
    return tuple(out)


def _document(doc: Doc, source: Source, lines: Lines, shift: int = 0) -> Document:
    start = 0 if doc.whole_file else source.text.rfind("\n", 0, max(0, doc.start - shift)) + 1
    end = len(source.text) if doc.whole_file else doc.end - shift
    whole = source.text[start:end]
    text = without_words(whole) if doc.form == "shell" else whole
    if text == whole and source.text[end : end + 1] == "\n":
        text += "\n"  # its last line ends as the others do
    return Document(
        framework=doc.table.name if doc.table else UNKNOWN,
        form=doc.form,
        source=source.name,
        first_line=lines.span(start + shift).line,
        text=text,
        settings=_settings(doc, lines),
    )


def without_words(command: str) -> str:
    """A command without the sentence that goes on behind it on its last line: "vllm serve m on one 4090, fits?".

    Options, operators and redirections end no command; words do where one begins a phrase, or is Chinese.
    """
    at = command.rstrip().rfind("\n") + 1
    found = _GOES_ON.search(command, max(at, command.rfind(" -")))
    if found is None or not _OPERATORS.isdisjoint(command[at : found.start()]):
        return command
    return command[: found.start()]


_OPERATORS: Final = frozenset("#;&\"'")
"""What may stand before words that are no sentence: a comment, a further command, a quoted argument."""
_GOES_ON: Final = lazy(
    r"(?:\s|,|，)\s?(?:(?:on|with|in|for|at|from|and|but|does|will|would|can|is|fits?|dies|crashes|fails|gives)"
    r"\s(?=[^\n|&<>]{0,400}\Z)|(?=[\u4e00-\u9fff][^\n|&<>]{0,400}[吗呢么够？?，。][^\n|&<>]{0,400}\Z))"
)


_OF_RUNTIME: Final = lazy(r"(?:PYTORCH|CUDA|NCCL|TORCH|NVTE|VLLM|SGLANG|XFORMERS|OLLAMA|UNSLOTH|MALLOC)_\w")
"""Variables by which the libraries of a run behave; what else is exported (paths, keys, names) is the person's."""


def _variables(docs: Iterable[Doc], lines: Lines) -> Iterator[Fact]:
    """Facts ``env.NAME``, the last of each name first."""
    for home, entry in reversed([(doc, e) for doc in docs for e in doc.env]):
        late = entry.key.endswith("ALLOC_CONF") and any(at < entry.key_span[0] for _, at in home.notes)
        stated = entry.resolved and isinstance(entry.value, str) and entry.value and entry.scope != "local"
        if stated and not late and _OF_RUNTIME.match(entry.key) and not entry.key.endswith("VISIBLE_DEVICES"):
            yield Fact(f"env.{entry.key}", entry.value, lines.span(entry.key_span[0]), "env")


def read_documents(source: Source, others: Sequence[Source] = (), framework: str | None = None) -> ConfigReading:
    """Read every configuration, command and snippet in a source. Never raises for what a person may paste.

    :param others: further sources in which files that this one names (a DeepSpeed JSON) are looked up.
    :param framework: the framework, where it is known.
    """
    source, read_as = _as_text(source)
    cut: list[int] = []
    lines, shift = _with_sourced(source, others)
    docs = [doc for doc in analyse(read_as, lines.text, framework, cut) if doc.end > shift or not shift]
    facts: list[Fact] = []
    main = main_document(docs)
    servers = [doc for doc in docs if _of_server(docs, doc, notebook=read_as == "notebook")]
    main = main_document([doc for doc in docs if doc not in servers]) if servers else main
    doubtful = _doubtful(docs)
    for doc in sorted((d for d in docs if d not in servers), key=believed):
        engine = doc.table is not None and doc.table.name in ENGINES
        found = [f for f in _facts(doc, lines) if not (doc.unknown and f.name in doubtful)]
        facts += [replace(f, confidence=_OFF) if engine and f.name in doubtful else f for f in found]
    objectives = {fact.value for fact in facts if fact.name == "objective"}
    if objectives.isdisjoint(_SUPERVISED) and (objectives or read_as != "notebook"):
        facts += [fact for doc in servers for fact in _as_engine(_facts(doc, lines))]
    facts = [_named(f) for f in _linked(docs, others) + facts]
    kept, conflicts = _keep(facts)
    name = main.table.name if main is not None and main.table is not None else UNKNOWN if main is not None else None
    _unevaluated(docs, kept)
    if has(name, "prompt_apart") and kept.keys() >= _APART and kept["objective"].value == "grpo":
        kept["prompt_len"] = replace(kept.pop("seq_len"), name="prompt_len")  # the length is the prompt's alone
    if name is not None and not any(n in kept for n in ("model", "model_config", "params_b")):
        for fact in hinted_model(docs, source, lines):
            kept.setdefault(fact.name, fact)
    if "objective" not in kept and main is not None and main.form == "shell":
        kept.update((fact.name, fact) for fact in scripted_objective(main, lines))
    if "objective" not in kept and main is not None and not main.programs.strip() and has(name, "objective.by_script"):
        kept.update((fact.name, fact) for fact in named_objective(docs, source, lines))
    if "lora.r" in kept and kept.keys().isdisjoint(("method", "quant")):
        kept.update((fact.name, fact) for fact in named_method(docs, source, lines))
    for fact in (*extra_facts(docs, lines), *_variables(docs, lines)):
        kept.setdefault(fact.name, fact)
    for fact in contract_facts(kept, name):
        kept.setdefault(fact.name, fact)
    real = [d for d in docs if d.form != "ini" and (d.table is not None or d.unknown)]
    recognised = _recognised(main, _settings(main, lines)) if main is not None and main.form != "ini" else None
    return ConfigReading(
        facts=tuple(kept.values()),
        documents=tuple(_document(d, source, lines, shift) for d in real),
        inactive=tuple(find_inactive(docs, lines, others)),
        framework=name if kept or real else None,
        recognised=recognised,
        conflicts=tuple(conflicts),
        warnings=(
            *(say("intake.config-cut", source=source.name, line=lines.span(at).line) for at in sorted(cut)[:1]),
            *_notices(recognised, source),
            *_absent(docs, source, others, lines, shift),
        ),
    )


def _as_text(source: Source) -> tuple[Source, str]:
    """A notebook as text; and the name that decides its form."""
    if not is_notebook(source.name, source.text):
        return source, source.name
    return Source(source.name, notebook_text(source.text) or source.text), "notebook"


def _with_sourced(source: Source, others: Sequence[Source]) -> tuple[Lines, int]:
    """A script behind the files that it sources, where those were handed in; and the offset where it begins."""
    first = [found for name in sourced(source.text) if (found := of_name(name, others)) is not None] if others else []
    if not first:
        return Lines(source), 0
    lines = Lines(first[0])
    for further in first[1:]:
        lines.extend(further)
    return lines, lines.extend(source)


def _linked(docs: Sequence[Doc], others: Sequence[Source]) -> list[Fact]:
    """Facts of the DeepSpeed or accelerate file that a command or config names, where it was handed in too."""
    out: list[Fact] = []
    for doc in docs:
        for entry in doc.entries:
            if norm(entry.key).rsplit(".", 1)[-1] not in LINKS or not isinstance(entry.value, str):
                continue
            other = of_name(entry.value, others) if "." in entry.value else None
            if other is not None:
                inner, lines = analyse(other.name, other.text), Lines(other)
                out += [f for d in inner if d.table is not None for f in _facts(d, lines)]
    return out


def _absent(docs: Sequence[Doc], source: Source, others: Sequence[Source], lines: Lines, shift: int) -> list[Message]:
    """Files that a whole file names and that were not handed in: what they say is not known."""
    if form_of(source.name) is None:
        return []
    out = []
    for name, at in named_files(docs, lines.text):
        if of_name(name, others) is None and at >= shift:
            out.append(say("intake.companion-missing", source=source.name, line=lines.span(at).line, file=name))
    return out[:3]
