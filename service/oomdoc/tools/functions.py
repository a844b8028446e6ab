"""The functions: diagnose, estimate, compare, extrapolate, plan, fix, search, explain, scan.

Each takes plain values and gives a form of :mod:`oomdoc.tools.forms`; all raise :class:`~oomkb.errors.OomdocError` with
place and next step for what they cannot take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import linear_regression
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from oomdoc.stated import following, stated_fields
from oomdoc.tools import compact, forms
from oomdoc.tools.forms import Detail, JobFields, JobFieldsShort, Language
from oomkb.errors import InputError, JobError
from oomkb.memory.job import FIELD_NAMES, Job
from oomkb.units import GIB

Progress = Callable[[float, str], None]
"""(part that is done, what comes next)"""

_MAX_JOBS: Final = 16
_MIN_SIZES: Final = 2
_DETAIL: Final = "full: everything that was computed (20 times as long)."


def _silent(_part: float, _next: str) -> None:
    return


def job_of(fields: Any, base: Job | None = None) -> Job:
    """A job of (dotted or nested) fields, on top of another; ``None`` clears what that one has.

    :raises JobError: for an unknown field (with the nearest name) or a value that no run can have.
    """
    stated = stated_fields(fields)
    given = fields if isinstance(fields, dict) else {}
    if isinstance(given.get("model"), Mapping) and base is not None:  # a configuration is taken whole
        base = base.with_fields({"model": given["model"]})
    job = (base or Job()).with_fields(_cleared(given) | stated | following(stated, base or Job()))
    if base is not None and "gpu" in given and given.get("capacity_gib") is None:
        job = job.with_fields({"capacity_gib": None})
    if base is not None and {"model"} <= set(given) and "params_b" not in given:
        job = job.with_fields({"params_b": None})
    if base is not None and (base.tp or 1) > 1 and base.sp == base.tp and "tp" in given and "sp" not in given:
        job = job.with_fields({"sp": job.tp})  # sequences are split over the tensor-parallel group
    # What follows from the number of GPUs is worked out anew.
    if base is not None and {"gpus", "nodes"} & set(given) and not {"world", "dp"} & set(given):
        job = job.with_fields({"world": (job.gpus or 1) * (job.nodes or 1), "dp": None})
    return job


def _cleared(given: Mapping[str, Any]) -> dict[str, None]:
    """The (dotted) fields that are given as ``None``."""
    plain = {name for name, value in given.items() if value is None}
    inner = {
        f"{name}.{part}" for name, of in given.items() if isinstance(of, Mapping) for part, v in of.items() if v is None
    }
    return dict.fromkeys(name for name in plain | inner if name.partition(".")[0] in FIELD_NAMES)


def diagnose(
    text: Annotated[str, Field(description="Log, config, command or question, in any mix, as it was pasted.")],
    configs: Annotated[dict[str, str] | None, Field(description="Further files: name -> text.")] = None,
    job: Annotated[JobFieldsShort | None, Field(description="What is known beside the text.")] = None,
    lang: Literal["auto", "en", "zh"] = "auto",
    detail: Annotated[Detail, Field(description=_DETAIL)] = "short",
    progress: Progress = _silent,
) -> forms.Diagnosed:
    """Say why a job ran out of memory (or that it did not) and which changes would fit.

    Give the raw log together with the config or launch command.
    """
    from oomdoc.library import diagnose as run

    progress(0.1, "reading and searching for plans")
    document = run(text, configs=configs, options=job, language=lang).document()
    progress(0.9, "writing")
    return forms.Diagnosed.model_validate(compact.diagnosis(document, detail))


def estimate(
    job: JobFields,
    lang: Language = "en",
    detail: Annotated[Detail, Field(description=_DETAIL)] = "short",
    progress: Progress = _silent,
) -> forms.Estimated:
    """Say what each GPU holds at its peak for a job, and whether it fits.

    What is not stated is filled as the framework would, or carefully where none is named, and listed in assumed.
    """
    from oomdoc.diagnosis.forms import host_is_short
    from oomdoc.report.estimates import estimate_document
    from oomdoc.report.words import word
    from oomkb.pricing import device_of, price_planned

    stated = job_of(job)
    whole = price_planned(stated)
    priced = whole.estimate
    found = estimate_document(priced, language=lang)
    if host_is_short(stated, priced):
        short = word("chat.host-short", lang, host_bytes=priced.host_bytes, have_bytes=(stated.host_gib or 0.0) * GIB)
        found |= {"fits": False, "fits_probability": 0.0, "warnings": [*(found.get("warnings") or []), short]}
    shown = compact.estimate(found, detail) | {"card": compact.card(device_of(stated)), "model": compact.model(whole)}
    return forms.Estimated.model_validate(shown)


def compare(
    jobs: Annotated[list[JobFields], Field(min_length=1, max_length=_MAX_JOBS, description="Each on top of base.")],
    base: Annotated[JobFieldsShort | None, Field(description="Fields that all of them share.")] = None,
    names: Annotated[list[str] | None, Field(description="What to call them in the answer.")] = None,
    lang: Language = "en",
    progress: Progress = _silent,
) -> forms.Comparison:
    """Price jobs side by side: peak, whether each fits, host memory, relative speed, and the fastest that fits."""
    from oomdoc.planner import compare as run
    from oomdoc.report.words import render

    if not 1 <= len(jobs) <= _MAX_JOBS:
        raise InputError(f"{len(jobs)} jobs", where="jobs", hint=f"1 to {_MAX_JOBS}")
    shared = job_of(base or {})
    found = []
    for index, fields in enumerate(jobs):
        try:
            found.append(job_of(fields, shared))
        except JobError as error:
            raise JobError(error.message, where=f"jobs[{index}].{error.where}", hint=error.hint) from error
    progress(0.1, f"pricing {len(found)} jobs")
    rows = []
    priced = run(found)
    for index, compared in enumerate(priced):
        name = names[index] if names and index < len(names) else compact.named(jobs[index], index)
        problem = render(compared.problem, lang) if compared.problem is not None else None
        rows.append(forms.Row(name=name, problem=problem, **compact.row(compared, priced[0])))
    fitting = [r for r in rows if r.fits is not False and r.relative_speed is not None]
    best = max(fitting, key=lambda r: r.relative_speed or 0.0, default=None)
    return forms.Comparison(rows=rows, best=best.name if best else None)


def extrapolate(
    points: Annotated[list[forms.Point], Field(min_length=2, max_length=32, description="Two sizes or more.")],
    at: Annotated[list[float], Field(max_length=32, description="Sizes that nobody measured.")] = [],  # noqa: B006
    room_gib: Annotated[float | None, Field(gt=0, le=1e6, description="What may be used, GiB.")] = None,
    progress: Progress = _silent,
) -> forms.Extrapolated:
    """Work out other sizes from what somebody measured of the same run at two sizes or more, without any model of it.

    Memory grows in a straight line with micro-batch, cached tokens, users and images; with length where attention is
    fused. Only sizes may differ between the points.
    """
    sizes, held = [point.size for point in points], [point.gib for point in points]
    if len(set(sizes)) < _MIN_SIZES:
        raise InputError("all points have one size", where="points", hint="give what was measured at another size")
    each, fixed = linear_regression(sizes, held)
    rows = []
    for size in at:
        row: dict[str, Any] = {"size": size, "needed_gib": round(fixed + each * size, 3)}
        if room_gib is not None:
            row |= {"fits": row["needed_gib"] <= room_gib, "spare_gib": round(room_gib - row["needed_gib"], 3)}
        rows.append(row)
    return forms.Extrapolated(
        fixed_gib=round(fixed, 3),
        each_gib=round(each, 4),
        largest_miss_gib=round(max(abs(fixed + each * s - h) for s, h in zip(sizes, held, strict=True)), 3),
        rows=rows,
        largest=int((room_gib - fixed) / each) if room_gib is not None and each > 0 and room_gib > fixed else None,
    )


def plan(
    job: Annotated[JobFields | None, Field(description="The job, or what differs from the text.")] = None,
    text: Annotated[str, Field(description="A config or launch script, as it stands.")] = "",
    filename: Annotated[str, Field(description="Its name.")] = "",
    hardware: Annotated[
        Literal["fixed", "any"], Field(description="any: plans may take other or more GPUs, too.")
    ] = "fixed",
    lang: Language = "en",
    detail: Annotated[Detail, Field(description=_DETAIL)] = "short",
    progress: Progress = _silent,
) -> forms.Planned:
    """Say before a run whether it fits, the largest batch and length that do, and the changes that would make it fit.

    Every plan comes with its job fields; estimate of the job with them gives the same figure.
    """
    from oomdoc.diagnosis.forms import host_is_short
    from oomdoc.planner import plan_document, plan_job

    progress(0.1, "searching for plans")
    found = plan_job(text, filename, stated_fields(job or {}), fixed_hardware=hardware == "fixed")
    document = plan_document(found, lang)
    if host_is_short(found.job, found.table.estimate):
        no = {"fits": False, "fits_probability": 0.0}
        document |= {**no, "largest": {}, "estimate": document["estimate"] | no}
    progress(0.9, "writing")
    return forms.Planned.model_validate(compact.planned(document, detail))


def fix(
    text: Annotated[str, Field(description="The config, command or script.")],
    fields: Annotated[JobFieldsShort, Field(description="Job fields to write, for example a plan's fields.")],
    filename: Annotated[str, Field(description="Its name; its ending tells what it is.")] = "",
    framework: Annotated[str | None, Field(description="Whose keys; default: recognised from the text.")] = None,
    whole: Annotated[bool, Field(description="Whether to give the whole file back, not the diff alone.")] = False,
    lang: Language = "en",
    progress: Progress = _silent,
) -> forms.Fixed:
    """Write job fields into a file in its own framework's keys; comments, order and all other lines stay."""
    from oomdoc.intake.configs import patch
    from oomdoc.report.estimates import not_written

    done = patch(text, filename=filename or "input", framework=framework, changes=stated_fields(fields))
    if done.error and not done.unplaced:
        raise InputError(done.error, where=filename or "text")
    reasons = {f: not_written(f, why, done.framework, lang) for f, why in done.unplaced.items()}
    return forms.Fixed(framework=done.framework, diff=done.diff, text=done.text if whole else "", unplaced=reasons)


def search(
    text: Annotated[str, Field(description="An error, a symptom or a question.")],
    top: Annotated[int, Field(ge=1, le=20)] = 5,
    lang: Language = "en",
    progress: Progress = _silent,
) -> forms.Found:
    """Find known out-of-memory cases that look like a text, each with its public thread."""
    from oomdoc.diagnosis.searching import find_cases
    from oomdoc.report.document import match_document

    matches = find_cases(text, top=max(1, min(top, 20)))
    return forms.Found(matches=[match_document(match, lang) for match in matches])


def explain(
    cause: Annotated[str, Field(description="A cause's or topic's id; empty: the list of both.")] = "",
    lang: Language = "en",
    progress: Progress = _silent,
) -> forms.Explained:
    """Say what a cause is (sign, mechanism, how to confirm and fix it, cost), or what is known of a concept."""
    from oomdoc.diagnosis.pages import page
    from oomkb.records.taxonomy import CAUSES
    from oomkb.topics import topics

    if not cause.strip():
        lines = [f"{name}: {texts[lang == 'zh']}" for name, texts in sorted(CAUSES.items())]
        lines += [f"{topic.id}: {topic.title[lang]}" for topic in topics().values()]
        return forms.Explained(cause="", page="\n".join(lines))
    return forms.Explained(cause=cause.strip(), page=page(cause.strip(), lang))


def scan(
    requirements: Annotated[str, Field(description="The text of requirements.txt or pip freeze.")],
    lang: Language = "en",
    progress: Progress = _silent,
) -> forms.Advisories:
    """List known memory regressions among installed versions, with the versions that fix them."""
    from oomdoc.diagnosis.regressions import scan as scan_versions
    from oomdoc.diagnosis.regressions import scan_seen
    from oomdoc.intake.requirements import parse_requirements

    versions = parse_requirements(requirements)
    found = [advisory.document(lang) for advisory in scan_versions(versions)]
    seen = [advisory.document(lang) for advisory in scan_seen(versions)]
    return forms.Advisories(scanned=len(versions), advisories=found, seen=seen)


ALL: Final[Sequence[Callable[..., Any]]] = (
    *(diagnose, estimate, compare, extrapolate, plan, fix, search, explain, scan),
)
