"""Everything that was handed in, as one :class:`~oomdoc.evidence.Evidence`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from oomdoc.evidence import SIZES, Evidence, Fact, Failure, Message, Outcome, Source, Span, say
from oomdoc.intake import environment
from oomdoc.intake.agreement import merge
from oomdoc.intake.assigned import assigned_in
from oomdoc.intake.comments import noted_hardware, notes_a_version, without_comments
from oomdoc.intake.detect import check_text, framework_of
from oomdoc.intake.digest import digest_of, errors_of, language_of, prose_lines, prose_of, query_of
from oomdoc.intake.failures import Indexed, agreeing, assemble
from oomdoc.intake.growth import growth_signals
from oomdoc.intake.lines import Kind, Line, distinct, is_comment, is_config_file, kinds_of, read_lines
from oomdoc.intake.long_texts import is_long, shortened
from oomdoc.intake.notebooks import is_notebook, notebook_text
from oomdoc.intake.outcomes import complaint_of, outcome_of, question_of_figures
from oomdoc.intake.phase import phase_fact, phase_said
from oomdoc.intake.plain_text import plain
from oomdoc.intake.polarity import with_question_marks
from oomdoc.intake.prose.models import PLAIN_NAME, size_of_name
from oomdoc.intake.prose.words import implied_method
from oomdoc.intake.redact import mask
from oomdoc.intake.run_figures import figures_of, length_of_samples, run_facts
from oomdoc.intake.scanning import failures_of, scan
from oomdoc.intake.sieve import Vocabulary
from oomdoc.intake.signs import read_signs
from oomdoc.intake.statements import read_causes, read_statements
from oomdoc.intake.stream import condense
from oomdoc.intake.supposed import (
    failed,
    supposed_in,
    suppositions_in,
    tells_of_a_run,
    with_suppositions,
    without,
)
from oomdoc.intake.tracebacks import read_frames
from oomdoc.intake.trainers import named_trainer, of_rollout
from oomdoc.intake.wording import text_facts
from oomkb.frameworks import ENGINES, LAUNCHERS, PLAIN, find, has
from oomkb.units import to_gib

if TYPE_CHECKING:
    from oomdoc.intake.configs import ConfigReading

_SCRIPTS: Final = (".sh", ".bash", ".slurm", ".sbatch")
_MAX_SOURCE_CHARS: Final = 4 << 20
"""Characters of one source that are read line by line; of larger ones, what is around the telling lines."""

_GLIMPSE: Final = 4000
"""Characters of a configuration by which the language is decided where there is nothing else."""


def read_text(text: str, name: str = "input") -> Evidence:
    """Evidence of one pasted text."""
    return read([Source(name, text)])


def read(sources: Sequence[Source], options: Mapping[str, Any] | None = None) -> Evidence:
    """Evidence of all sources together, masked; ``options`` are job fields that were stated outright.

    :raises InputError: when a source is not text.
    """
    whole = _read(sources, options)
    questions = suppositions_in(whole.prose) if failed(whole) else ()
    if not questions:
        return whole
    rest = _read(without(sources, questions), options)
    if not tells_of_a_run(rest):
        return whole  # the question is about the run that failed
    supposed = [supposed_in(text, _read([Source("input", text)], None)) for text in questions]
    return with_suppositions(rest, whole, supposed)


def _read(sources: Sequence[Source], options: Mapping[str, Any] | None) -> Evidence:
    warnings: list[Message | str] = []
    given = prepared(sources, warnings)
    own = _without_sourced(given)
    configs = [reading for source in own if (reading := _configs(source, given, warnings)) is not None]
    # A configuration is not a log: it states facts, and says nothing of what happened.
    files = [list(read_lines(source)) for source in own if is_config_file(source)]
    settings = [line for file in files for line in file if not is_comment(line)]
    lines = [line for source in own if not is_config_file(source) for line in read_lines(source)]
    lines, noted = without_comments(lines, [d for reading in configs for d in reading.documents])
    understood = {d.source for reading in configs for d in reading.documents}
    told = [line for line in settings if line.source not in understood]  # scattered settings of no known form
    varied = distinct([*lines, *map(_without_note, settings)])
    words = Vocabulary(line.low for line in (*lines, *settings))
    kinds = kinds_of(lines)
    lines = _marked(lines, kinds)
    found = list(scan(lines, words))
    signals = [s for _, _, reading in found for s in reading.signals]
    placed = read_frames(lines)
    failures = assemble(failures_of(found), lines, kinds, placed, signals)
    outcome, other_outcomes = outcome_of(lines, kinds, failures, signals, placed, words)
    if outcome is None and settings:  # a configuration alone is a job that somebody plans
        outcome = Outcome("question", "job", settings[0].span(), None, 0.8)
    failures = agreeing(failures, outcome, lines, placed)
    known = {id(s) for s in signals}
    signals += [f.signal for _, f in failures if id(f.signal) not in known]
    said = [line for line, kind in zip(lines, kinds, strict=True) if kind == "prose"]
    signals += growth_signals(signals, lines, said, words)
    spoken = [line for line, kind in zip(lines, kinds, strict=True) if kind in ("prose", "config")]
    figures, failing_size = figures_of(lines, said, spoken, words, outcome, failed=bool(failures))
    signals += figures

    facts = [Fact(name, v, Span("--set", 1, 1, f"{name}={v}"), "option") for name, v in (options or {}).items()]
    facts += [_weighed(f) for reading in configs for f in reading.facts]
    facts += _log_facts(found, failures)
    facts += _without_names(text_facts([*lines, *told], [*kinds, *kinds_of(told)], varied, words), configs)
    facts += [*noted, *(f for file in files for f in noted_hardware(file)), *run_facts(lines, words), *failing_size]
    facts = _with_method(facts, varied, words)
    # Of a configuration that is understood, its keys and programs tell, and no name that stands in a value.
    shown = framework_of([line for line in varied if line.source not in understood], words) or _engine_of(failures)
    facts, framework = _of_framework(
        facts, _framework(options or {}, configs, shown), configs, shown, (lines, kinds, words)
    )
    kept, conflicts = merge(facts)
    kept |= size_of_name(kept) | length_of_samples(kept, signals)
    root = next((pair for pair in failures if not pair[1].cascade), None)
    prose = distinct(prose_lines(lines, kinds))
    statements = read_statements(prose)
    outcome = question_of_figures(
        complaint_of(outcome, prose, configured=bool(understood), serves=has(framework, "serving.utilization")),
        signals,
        prose,
    )
    kept["phase"] = phase_fact(lines, kinds, placed, root, signals, kept, phase_said(statements))
    _complete_objective(kept, framework)
    failures = [
        (i, replace(f, phase=kept["phase"].value)) if root is not None and i == root[0] else (i, f) for i, f in failures
    ]
    frames = root[1].frames if root is not None and root[1].frames else tuple(p.frame for p in placed)
    signs = read_signs(lines, kinds, frames, signals, kept["phase"].value, words=words)
    if not any(source.text.strip() for source in own):
        warnings.append(say("intake.empty"))
    return _evidence(
        lines,
        kinds,
        [failure for _, failure in failures],
        configs,
        kept,
        framework,
        environment.releases(
            [line for file in files for line in file if notes_a_version(line)], varied, words, framework, statements
        ),
        signals=tuple(signals),
        outcome=outcome,
        other_outcomes=tuple(other_outcomes),
        conflicts=(*conflicts, *(c for reading in configs for c in reading.conflicts)),
        signs=signs,
        statements=statements,
        warnings=(*warnings, *(w for reading in configs for w in reading.warnings)),
    )


def _without_note(line: Line) -> Line:
    """A setting without the comment behind it, which speaks of what it could be ("either sft or dpo") as well."""
    code, mark, _ = line.text.partition(" #")
    low = line.low.partition(" #")[0]
    return line._replace(text=code, low=low) if mark and code.count('"') % 2 == code.count("'") % 2 == 0 else line


def _without_names(facts: Iterable[Fact], configs: Sequence[ConfigReading]) -> Iterator[Fact]:
    """The facts but aims that stand in the name of a configuration's model (``org/thing-2b-dpo``)."""
    models = [(f.span.source, f.span.line, str(f.value)) for c in configs for f in c.facts if f.name == "model"]
    for fact in facts:
        ends = fact.span.column or 0
        here = [name for source, line, name in models if (source, line) == (fact.span.source, fact.span.line)]
        places = [(at, at + len(name)) for name in here if (at := fact.span.text.find(name)) >= 0]
        if fact.name != "objective" or not any(low < ends <= high for low, high in places):
            yield fact


def _marked(lines: Sequence[Line], kinds: Sequence[Kind]) -> list[Line]:
    """The lines, those of prose with a mark behind a question that has none."""
    marked = with_question_marks("\n".join(line.text for line in lines)).split("\n") if lines else []
    prose = [kind == "prose" for kind in kinds]
    return [line._replace(text=text) if said else line for line, said, text in zip(lines, prose, marked, strict=True)]


def _of_framework(
    facts: list[Fact],
    framework: str | None,
    configs: Sequence[ConfigReading],
    shown: str | None,
    text: tuple[Sequence[Line], Sequence[Kind], Vocabulary],
) -> tuple[list[Fact], str | None]:
    """The facts and the framework; of an engine beside a trainer, the trainer's, the engine being its rollouts'."""
    engine = next((name for name in (framework, *(c.framework for c in configs)) if name in ENGINES), None)
    if engine is None:
        return _of_trainer(facts, framework), framework
    trainer = named_trainer(*text, next((n for n in (framework, shown) if n not in ENGINES), None))
    return (of_rollout(facts, trainer, engine), trainer.name) if trainer is not None else (facts, framework)


def _of_trainer(facts: list[Fact], framework: str | None) -> list[Fact]:
    """The facts without weak words for inference, where the framework only trains: all of them load models."""
    known = find(framework)
    if known is None or known.kind not in ("training", "rl") or known.name in _ALSO_INFER:
        return facts
    return [f for f in facts if (f.name, f.value) != ("objective", "inference") or f.confidence >= _NAMED_AIM]


_ALSO_INFER: Final = frozenset({PLAIN, "diffusers"})
_NAMED_AIM: Final = 0.53
"""Confidence of a word that names inference; loading a model is of any program."""


def _evidence(
    lines: Sequence[Line],
    kinds: Sequence[Kind],
    failures: Sequence[Failure],
    configs: Sequence[ConfigReading],
    facts: dict[str, Fact],
    framework: str | None,
    releases: tuple[Mapping[str, str], tuple[str, str] | None],
    **seen: Any,
) -> Evidence:
    """Put it together; adds language and digest."""
    prose = prose_of(lines, kinds)
    root = next((f for f in failures if not f.cascade), None)
    values = {name: fact.value for name, fact in facts.items() if fact.stated}
    text = "\n".join(line.text for line in lines[:400])
    digest = digest_of(prose, root, values, framework, errors_of(lines, kinds, root))
    return Evidence(
        facts=MappingProxyType(facts),
        failures=tuple(failures),
        documents=tuple(d for reading in configs for d in reading.documents),
        inactive=tuple(i for reading in configs for i in reading.inactive),
        versions=MappingProxyType({**{k: v for c in configs for k, v in c.versions.items()}, **releases[0]}),
        worked_with=releases[1],
        framework=framework,
        recognised=next((c.recognised for c in configs if c.recognised is not None), None),
        language=language_of(prose, text or "\n".join(d.text[:_GLIMPSE] for c in configs for d in c.documents)),
        digest=digest,
        prose=prose,
        cause_words=MappingProxyType(read_causes(query_of(prose, digest))),
        assigned=assigned_in((line.text for line in lines), (d for c in configs for d in c.documents)),
        **seen,
    )


def _complete_objective(facts: dict[str, Fact], framework: str | None) -> None:
    """What fails while it generates or an engine starts, and is no trainer's, is inference."""
    runs = framework in (None, PLAIN) or framework in ENGINES
    served = facts["phase"].value == "generate" or (facts["phase"].value == "engine-init" and framework in ENGINES)
    if served and runs and facts.keys().isdisjoint(_OF_TRAINING):
        facts["objective"] = replace(facts["phase"], name="objective", value="inference")


def _engine_of(failures: Sequence[Indexed]) -> str | None:
    """The engine whose own message a failure is."""
    names = (failure.signal.name.partition("-")[0] for _, failure in failures)
    return next((name for name in names if name in ENGINES), None)


def _with_method(facts: Sequence[Fact], varied: Sequence[Line], words: Vocabulary) -> list[Fact]:
    """The facts with the method that they imply: QLoRA where a person says so and a config sets adapters, which need
    not say over what weights.
    """
    said = any(f.name == "method" and f.value == "qlora" and f.confidence >= _SAID for f in facts)
    kept = [f for f in facts if not (said and f.name == "method" and f.value == "lora")]
    return [*kept, *filter(None, [implied_method(kept, varied, words)])]


_SAID: Final = 0.6
_KEYS_OF_A_CONFIG: Final = 3
"""Settings from which scattered ones tell their framework, whatever a sentence names."""


def _framework(options: Mapping[str, Any], configs: Sequence[ConfigReading], shown: str | None) -> str | None:
    """A config's own framework is surer than what the log shows; an option is surest."""
    if options.get("framework") is not None:
        return str(options["framework"])
    # A key or two that a sentence names are of many frameworks: the one that it names too is meant.
    whole = (r for r in configs if r.documents or len(r.facts) >= _KEYS_OF_A_CONFIG or shown is None)
    named = [reading.framework for reading in whole if reading.framework]
    # A launcher's file beside a run that nobody knows says how it is started, and not whose it is.
    runs = [n for n in named if n not in LAUNCHERS]
    named = runs if runs and all(n == "unknown" for n in runs) and shown is None else named
    sure = [name for name in named if name != "unknown"]
    named = sure if sure or shown is not None else named
    if named and named[0] in ("transformers", "deepspeed", "accelerate", "fsdp") and shown is not None:
        return shown
    return named[0] if named else shown


def prepared(sources: Sequence[Source], warnings: list[Message | str] | None = None) -> list[Source]:
    """Checked, shortened where huge, masked with one table for all."""
    out: list[Source] = []
    table: Mapping[str, str] = {}
    for source in sources:
        check_text(source.text, source.name)
        text = _encodable(source.text.replace("\x00", ""))
        if is_notebook(source.name, text):
            text = notebook_text(text) or text
        if len(text) > _MAX_SOURCE_CHARS or is_long(text):
            text = shortened(condense(text))
            if warnings is not None:
                warnings.append(say("intake.condensed", source=source.name))
        if not is_config_file(source):
            text = plain(text)
        masked = mask(text, table)
        table = masked.table
        out.append(Source(source.name, masked.text))
    return out


def _encodable(text: str) -> str:
    """Without halves of characters (what a broken decoder leaves): nothing can be written that holds one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _without_sourced(sources: list[Source]) -> list[Source]:
    """The sources but those that a script takes its variables from, which speak through it."""
    from oomdoc.intake.configs.companions import of_name, sourced

    scripts = [s for s in sources if s.name.endswith(_SCRIPTS)] if len(sources) > 1 else []
    others = ((name, [s for s in sources if s is not script]) for script in scripts for name in sourced(script.text))
    taken = {found.name for name, rest in others if (found := of_name(name, rest)) is not None}
    return [source for source in sources if source.name not in taken]


def _configs(source: Source, given: Sequence[Source], warnings: list[Message | str]) -> ConfigReading | None:
    """What the config tables read; a table that fails must not cost the log's diagnosis."""
    from oomdoc.intake.configs import read_documents
    from oomdoc.intake.configs.segments import form_of

    try:
        return read_documents(source, [s for s in given if s.name != source.name and form_of(s.name) is not None])
    except Exception as error:
        warnings.append(
            say("intake.config-unread", source=source.name, reason=f"{type(error).__name__}: {error}"[:200])
        )
        return None


_OF_TRAINING: Final = frozenset({"objective", "method", "optimizer", "grad_ckpt", "grad_accum"})
"""Facts of a run that trains, or of which it is known whether it does."""
_CONFIG_DOUBTS: Final = {"gpu_count": 0.75, "seq_len": 0.97, "dtype": 0.93, "objective": 0.93}
"""What other places know better: processes started are not GPUs owned; a prompt's limit is not the whole sequence;
and the dtype is shown as it was written."""


def _weighed(fact: Fact) -> Fact:
    """A config's fact with the confidence that it has beside what logs and prose say."""
    if fact.origin == "prose":
        return replace(fact, confidence=min(fact.confidence, 0.84))
    if fact.name == "model" and isinstance(fact.value, str):
        telling = not PLAIN_NAME.fullmatch(fact.value.rstrip("/").rsplit("/", 1)[-1])
        return replace(fact, value=fact.value.replace("___", "."), confidence=fact.confidence if telling else 0.4)
    return replace(fact, confidence=min(fact.confidence, _CONFIG_DOUBTS.get(fact.name, 1.0)))


def _log_facts(found: Iterable[tuple[int, Any, Any]], failures: Sequence[Indexed]) -> list[Fact]:
    """What the logs state; of a state that is printed repeatedly, the last counts."""
    readings = list(found)
    facts = _failure_facts([failure for _, failure in failures])
    facts += [f for _, parser, reading in readings if parser.name != "memory_usage" for f in reading.facts]
    facts += [f for _, parser, reading in reversed(readings) if parser.name == "memory_usage" for f in reading.facts]
    return facts


def _failure_facts(failures: Sequence[Failure]) -> list[Fact]:
    """The numbers of the root failure; what it does not state, an equal one of another rank may."""
    root = next((f for f in failures if not f.cascade), None)
    if root is None:
        return []
    out: list[Fact] = []
    for name, attribute in SIZES.items():
        value = getattr(root, attribute)
        if value is not None:
            out.append(Fact(name, round(to_gib(value), 5), root.signal.span, "log", 1.0))
    return out
