"""The library's three calls; every interface makes the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oomdoc.evidence import Source

if TYPE_CHECKING:
    from oomdoc.language_model.reader import Reader
    from oomdoc.report.report import EstimateReport, Report
    from oomkb.memory.job import Job
    from oomkb.retrieval.search import Match


def diagnose(
    text: str | Sequence[Source],
    *,
    configs: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    language: str = "auto",
    plans: bool = True,
    language_model: bool = True,
) -> Report:
    """Read a log, a config, a command or a question (in any mix) and say what ran out of memory and what would fit.

    :param text: what was pasted, or several named sources.
    :param configs: further files by name, for example ``{"train.yaml": "..."}``.
    :param options: job fields stated outright, for example ``{"gpu": "V100-16GB", "gpus": 8}``.
    :param language: ``en``, ``zh``, or ``auto`` for the language of the input.
    :param plans: whether to search for plans that fit (most of the time of a diagnosis).
    :param language_model: whether the language model that ``OOMDOC_LLM_URL`` names may read it too; none is asked
        where that is not set.
    :raises InputError: for input that cannot be read.
    :raises JobError: for an option that no job has (with the nearest name), or that describes no possible run.
    """
    reader: Reader | None = None
    if language_model:
        from oomdoc.language_model.connection import from_environment

        if (model := from_environment()) is not None:
            from oomdoc.language_model.reader import reading_by

            reader = reading_by(model)
    sources = [Source("input", text)] if isinstance(text, str) else list(text)
    sources += [Source(name, content) for name, content in (configs or {}).items()]
    return diagnosed(sources, options=options, language=language, plans=plans, reader=reader)


def diagnosed(
    sources: Sequence[Source],
    *,
    options: Mapping[str, Any] | None,
    language: str,
    plans: bool,
    reader: Reader | None,
) -> Report:
    """As :func:`diagnose`, of sources.

    :param reader: reads the sources beside oomdoc.
    """
    from oomdoc.chat.further import in_parts
    from oomdoc.diagnosis.engine import diagnose as run
    from oomdoc.intake import read
    from oomdoc.intake.redact import mask, masked_tree
    from oomdoc.intake.several import several_questions
    from oomdoc.report.report import Report
    from oomdoc.stated import stated_fields

    stated = {} if options is None else masked_tree(stated_fields(options))

    def report(of: Sequence[Source]) -> Report:
        evidence = read(of, stated)
        if reader is not None:
            evidence = reader(of, evidence)
        return Report(run(evidence, plans=plans), evidence.language if language == "auto" else language)

    whole = report(sources)
    if len(sources) != 1 or stated or several_questions(sources[0].text) is None:
        return whole
    several = several_questions(mask(sources[0].text).text)  # the questions are quoted
    return (
        whole if several is None else in_parts(whole, several, lambda first: report([Source(sources[0].name, first)]))
    )


def estimate(job: Job | Mapping[str, Any] | None = None, /, **fields: Any) -> EstimateReport:
    """Price a job: what each GPU holds, phase by phase and term by term.

    ``oomdoc.estimate(model="Qwen/Qwen3-8B", method="qlora", gpu="RTX 4090").peak_gib`` is a number; see
    :class:`EstimateReport` for the rest. What is not given is filled: as the framework would where ``framework`` is
    given, else as a careful person starts (one sample, gradient checkpointing, at most 2,048 tokens).

    :param job: a job document (a mapping, as in YAML or JSON).
    :param fields: job fields, in place of a document or on top of it; a name that no job has is refused.
    :raises JobError: for a job that describes no possible run; ``where`` names the field.
    :raises CatalogError: for a model or GPU that is not known and cannot be estimated.
    """
    from oomdoc.report.report import EstimateReport
    from oomkb.memory.job import Job
    from oomkb.pricing import price_planned

    found = job if isinstance(job, Job) else Job.from_document(job or {})
    if fields:
        from oomdoc.stated import stated_fields

        found = found.with_fields(stated_fields(fields))
    return EstimateReport(price_planned(found))


def search(text: str, *, top: int = 5) -> list[Match]:
    """The known cases that look like ``text``, best first."""
    from oomdoc.diagnosis.searching import search as run

    return run(text, top=top)
