"""The answer to a question or a plan: yes or no, the figure, what was assumed, and what would change the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from oomdoc.diagnosis.advice import uneven_heads
from oomdoc.diagnosis.comparing import Plain, comparison, enough_cards
from oomdoc.diagnosis.fixes.helper_models import PRECOMPUTED
from oomdoc.diagnosis.forms import (
    CARD_USABLE,
    FITS,
    beyond_share,
    host_is_short,
    most_of,
    needed_of,
    needs_by_count,
)
from oomdoc.diagnosis.grids import largest_models_told
from oomdoc.diagnosis.host_answers import beyond_card_and_host, host_memory
from oomdoc.diagnosis.own_figures import by_own_figures, held_for
from oomdoc.diagnosis.planned import asks_why_held, counted, is_planned, put_off, runs_on, wants_figure
from oomdoc.diagnosis.planning.quantities import largest_of, need_with
from oomdoc.diagnosis.result import Diagnosis, Plan
from oomdoc.diagnosis.run_words import (
    assumed_of,
    cards_of,
    experts_held,
    image_tokens,
    model_of,
    names_of,
    of_usual_sizes,
    run_of,
)
from oomdoc.diagnosis.serving_answers import (
    cache_alone,
    held_by_engine,
    launch_options,
    longest_with_small_cache,
    printed_tokens,
    put_off_requests,
    queued,
    reserved,
    room,
    servers,
)
from oomdoc.diagnosis.unused import unused_numbers
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, say
from oomdoc.intake.asked import NOTHING_ASKED, Asked, asked_of
from oomdoc.intake.outcomes import OTHER_SUBJECT
from oomdoc.intake.wanted import Wanted
from oomkb.catalog import gpus
from oomkb.catalog.diffusion import pipeline
from oomkb.errors import ARITHMETIC_ERRORS, OomdocError
from oomkb.frameworks import line as line_of
from oomkb.frameworks import min_compute
from oomkb.frameworks.circumstances import named_size
from oomkb.units import GIB

_BOXES: Final = (8, 12, 16, 24, 32, 40, 48, 80, 96, 141, 180)
"""Sizes of cards as they are sold, in GB."""
_SPLIT_OVER: Final = (2, 4, 8, 16)
_COMFORTABLE: Final = 0.9
"""Of a card: what a run needs at most that is to start on it without a second thought."""
_SPLIT_BOXES: Final = (24, 48, 80, 141)
"""Sizes of cards, in GB, of which several are counted."""
_TERMS: Final = {
    "states": (
        "model states",
        *("weights", "gradients", "optimizer states", "fp32 masters"),
        *("adapters", "reference model", "reward model", "critic model"),
    ),
    "optimizer": ("optimizer states", "fp32 masters"),
    "logits": ("logits and loss",),
    "activations": ("activations", "recomputed layer", "attention scores"),
    "gradients": ("gradients",),
    "weights": ("weights",),
}
"""Terms of the memory table, under the words of questions; the first gives the name."""
_NO_IMAGES: Final = "estimate.images-not-counted"
_BY_ESTIMATE: Final = frozenset(f"answer.{key}" for key in ("side-fits", "side-not", "side-tight", "compared-less"))
"""What the estimate says of two sides, where somebody measured one of them."""
_MAX_PARTS: Final = 6
"""Terms of the peak that are named."""
_MIN_PART: Final = 0.04
"""Share of what is needed from which a term is named."""


def answer_to(view: View, found: Diagnosis) -> tuple[Message, ...]:
    """The sentences on a question; none where nothing is asked."""
    if put_off(view.evidence):
        return tuple(put_off_requests(view, asked_of(view.evidence)))
    if asks_why_held(view.evidence, found.job):
        held = tuple(held_by_engine(view))  # what was printed comes before what is computed
        if held or found.outlook is None:
            return held or (say("answer.reserved-plain"),)
    if is_planned(view.evidence) and not wants_figure(view.evidence):
        other = view.evidence.outcome is not None and view.evidence.outcome.name == OTHER_SUBJECT
        return (say("answer.other-subject" if other else "answer.no-run"),)
    if found.outlook is None:
        return ()
    if view.estimate is None and found.grid is not None:
        asks_size = found.asked is not None and found.asked.wanted == "model"
        return (*(largest_models_told(found.job) if asks_size else ()), *of_usual_sizes(found.job))
    if view.estimate is None:
        if found.asked is not None and found.asked.diffusion:
            return (*_parts_of_pipeline(view), say("answer.diffusion"))
        refused = _refused(found)
        return (say("answer.unknown") if refused is None else say("answer.refused", problem=refused),)
    asked = found.asked or NOTHING_ASKED
    about = Plain(found.job, view.job, view.estimate, found.careful, asked, found.sides, printed_tokens(view))
    own, said = tuple(by_own_figures(about, view.evidence)), answer_of(about)
    first, *after = (*own, *(tuple(_not_measured(said, own)) if own and found.sides else said))
    uncounted = (say(one.key, **dict(one.values)) for one in view.estimate.warnings if one.key == _NO_IMAGES)
    lead = (*servers(view, asked), first, *launch_options(about))
    return (*lead, *uneven_heads(view), *uncounted, *after, *unused_numbers(found))


def _not_measured(said: Iterable[Message], own: Iterable[Message]) -> Iterator[Message]:
    """What the estimate says of sides, without what a person's own figures say of them."""
    runs = [run for one in own for run in one.values["runs"]]
    fitting = [run.values["name"] for run in runs if run.key == "answer.own-fits"]
    for one in said:
        helped = one.key.startswith("answer.side-with") and one.values["name"] in fitting
        if one.key not in _BY_ESTIMATE and not helped:
            yield one


def _refused(found: Diagnosis) -> Message | str | None:
    """Why no run can be as it is stated, where the model is known."""
    told = next((warning.values for warning in found.warnings if warning.values.get("impossible")), None)
    sized = found.job.params_b is not None or isinstance(found.job.model, str)
    return told["problem"] if told is not None and sized else None


def _parts_of_pipeline(view: View) -> Iterator[Message]:
    """What the weights of a model that makes images or video take, in 16, 8 and 4 bits."""
    named, job = next(view.evidence.find("diffusion-model"), None), view.job
    parts = pipeline(str(named.data["model"])) if named is not None else None
    denoiser = parts.denoiser if parts is not None else (job.params_b or named_size(job) or 0.0) * 1e9
    if denoiser:
        name = parts.name if parts is not None else model_of(job)
        sizes = {"half_bytes": 2 * denoiser, "eighth_bytes": denoiser, "fourth_bytes": denoiser / 2}
        yield say("answer.pipeline", model=name, **sizes)
        if parts is not None and parts.encoders:
            yield say("answer.pipeline-encoders", encoders_bytes=2 * parts.encoders)


_LEADS: Final[Mapping[str, tuple[str, ...]]] = {
    "batch": ("answer.limit", "answer.compared-batch"),
    "length": ("answer.limit", "answer.compared-length"),
    "requests": ("answer.room", "answer.compared-requests"),
    "host": ("answer.host",),
    "share": ("answer.share",),
    "reserved": ("answer.states", "answer.parts"),
}
"""What stands first where it is asked for: keys by how they begin."""


def answer_of(about: Plain) -> tuple[Message, ...]:
    """The sentences, the decisive one first."""
    if explained := tuple(reserved(about)):
        return explained
    out = [
        *_needed_card(about),
        *_other_engine(about),
        *cache_alone(about),
        *(list(comparison(about)) or [decisive(about)]),
        *enough_cards(about),
    ]
    experts = experts_held(about.job) if about.asked.counts_active else None
    out += [] if experts is None else [experts]
    out += [*image_tokens(about.job, about.estimate), *_split_over_cards(about)]
    out += [*_share(about), *_parts(about), *_reference(about), *host_memory(about)]
    assumed = list(assumed_of(about.job, about.compared))
    if assumed:
        out.append(say("answer.assumed", assumed=assumed))
    out += [*held_for(about), *_flips(about)]
    leads = (("answer.image-tokens",) if about.asked.of_image_tokens else ()) + _LEADS.get(about.wanted, ())
    first = [m for m in out if leads and m.key.startswith(leads) and m.key != "answer.limit-alone"]
    return (*first, *(m for m in out if m not in first))


def _needed_card(about: Plain) -> Iterator[Message]:
    """Whether it takes the card that the question names: not where a smaller or another one that is named is enough."""
    card = about.asked.needed_card
    device = gpus.find(card) if card else None
    if device is None:
        return
    enough = [side for side in about.sides if side.fits and side.asked.fields.get("gpu") != device.name]
    own = any(side.fits and side.asked.fields.get("gpu") == device.name for side in about.sides)
    if enough and any("gpu" in side.asked.fields for side in about.sides):
        yield say("answer.need-not", card=card, name=names_of(enough[0].asked))
    elif own:
        yield say("answer.need", card=card)
    elif about.estimate.capacity_bytes is None and not about.sides:
        box = next((b for b in _BOXES if needed_of(about.estimate) <= CARD_USABLE * b * GIB), None)
        if box is not None and box * GIB < 0.9 * device.capacity_bytes:
            yield say("answer.need-not-box", card=card, box=box)


def _other_engine(about: Plain) -> Iterator[Message]:
    """That the engine of the question is not built for the card, where the answer is about another."""
    engine, job = about.asked.engine, about.job
    if engine is not None and job.framework != engine and not runs_on(engine, job):
        yield say("answer.engine-too-old", engine=engine, gpu=job.gpu, least=min_compute(engine), instead=job.framework)


def _split_over_cards(about: Plain) -> Iterator[Message]:
    """How many cards of each usual size would hold it together, where no card is named."""
    job, estimate = about.job, about.estimate
    alone = (job.world or 1) == 1 and "gpus" in job.assumed
    if estimate.capacity_bytes is not None or about.sides or not alone or about.wanted in ("cache", "host", "share"):
        return
    usable = CARD_USABLE * (job.get("serving.gpu_memory_utilization") or 1.0) * GIB
    needs = {1: needed_of(estimate), **needs_by_count(about.stated, _SPLIT_OVER)}
    counts = {box: next((n for n, need in needs.items() if need <= usable * box), 0) for box in _SPLIT_BOXES}
    several = [f"{count} × {box} GB" for box, count in counts.items() if count > 1]
    if several:
        yield say("answer.split-over", cards=several)


def _share(about: Plain) -> Iterator[Message]:
    """What the term that is asked about takes, at its largest, of the run or of each that is compared."""
    terms = _TERMS.get(about.asked.term or "", ())
    if not terms:
        return
    name = say(f"term.{terms[0]}")
    if about.sides:
        priced = [side for side in about.sides if side.priced is not None]
        sizes = [(names_of(side.asked), most_of(side.priced.estimate, *terms)) for side in priced if side.priced]
        yield say("answer.shares", name=name, sides=[say("answer.part", name=n, size_bytes=b) for n, b in sizes])
        return
    size, needed = most_of(about.estimate, *terms), needed_of(about.estimate)
    yield say("answer.share", name=name, size_bytes=size, percent=round(100 * size / needed), needed_bytes=needed)
    if about.asked.in_all and (count := about.job.world or 1) > 1:
        yield say("answer.share-in-all", count=count, size_bytes=count * size)


def decisive(about: Plain) -> Message:
    """Whether the run fits, and what it needs."""
    job, estimate = about.job, about.estimate
    if host_is_short(job, estimate):
        sizes = {"host_bytes": estimate.host_bytes, "have_bytes": (job.host_gib or 0.0) * GIB}
        return say("answer.host-short", run=run_of(job), needed_bytes=needed_of(estimate), **sizes)
    values: dict[str, Any] = {"run": run_of(job), "needed_bytes": needed_of(estimate), "cards": cards_of(job)}
    if (together := beyond_card_and_host(job, estimate)) is not None:
        return say("answer.spills-too-large", together_bytes=together, **values)
    if estimate.capacity_bytes is None or estimate.fits_probability is None:
        box = next((b for b in _BOXES if needed_of(estimate) <= CARD_USABLE * b * GIB), None)
        if box is None:
            return say("answer.amount" if (job.world or 1) > 1 else "answer.amount-in-all", **values)
        wider = next((b for b in _BOXES if needed_of(estimate) <= _COMFORTABLE * b * GIB), box)
        return say("answer.amount-edge" if wider > box else "answer.amount-box", box=box, wider=wider, **values)
    percent = min(99, max(1, round(100 * estimate.fits_probability)))
    values |= {"capacity_bytes": estimate.capacity_bytes, "percent": percent}
    if job.failed and about.answer in ("fits", "tight"):
        return say("answer.failed", **values)
    if counted(job):
        enough = "answer.cards" if (job.world or 1) > 1 else "answer.cards-one"
        return say(enough if estimate.fits_probability >= FITS else "answer.cards-none", **values)
    if about.answer == "fits" and about.wanted in ("amount", "batch", "length", "requests", "host", "share"):
        return say("answer.amount-fits", **values)
    if about.answer != "fits" and (beyond := beyond_share(job, estimate)) is not None:
        part, sizes = beyond
        return say(f"answer.{about.answer}-{part}", **values, **sizes)
    return say(f"answer.{about.answer}", **values)


_INSTEAD: Final = (("lora", {"method": "lora"}), ("qlora", {"method": "qlora"}))


def _instead(about: Plain) -> Iterator[Message]:
    """The mildest other form of the run that would fit: fewer trained weights, or smaller stored ones."""
    if about.estimate.fits_probability is None:
        return
    stated = about.stated
    if stated.objective == "inference":
        forms: list[tuple[str, dict[str, Any]]] = [("int4", {"quant": "awq-int4"})]
        forms = forms if stated.quant in (None, "none", "fp8", "int8") else []
    else:
        forms = [(name, dict(fields)) for name, fields in _INSTEAD if name != about.job.method]
        forms = forms if about.job.method in ("full", "lora") and stated.objective != "pretrain" else []
    for name, fields in forms:
        need, fits = need_with(stated, fields, careful=about.careful)
        if need and fits:
            shown = name if name == "int4" else say(f"answer.method-{name}")
            yield say("answer.instead", form=shown, needed_bytes=need)
            return


def _parts(about: Plain) -> Iterator[Message]:
    """What most of it is, the rest together with what CUDA and its libraries take."""
    estimate = about.estimate
    terms = dict(estimate.phases[estimate.peak_phase].terms_bytes)
    if estimate.served is not None:
        terms["kv cache"] = estimate.served.needed_bytes
    needed = needed_of(estimate)
    largest = sorted(((s, name) for name, s in terms.items() if s >= _MIN_PART * needed), reverse=True)[:_MAX_PARTS]
    rest = needed - sum(size for size, _ in largest)
    if about.sides or len(largest) < 2 or rest < 0:
        return
    parts = [say("answer.part", name=say(f"term.{name}"), size_bytes=size) for size, name in largest]
    if rest >= _MIN_PART * needed:
        parts.append(say("answer.part", name=say("term.other"), size_bytes=rest))
    yield say("answer.parts", parts=parts)


def _reference(about: Plain) -> Iterator[Message]:
    """What the reference model takes of it, and what does without one, where the question speaks of it."""
    held = about.estimate.phases[about.estimate.peak_phase].terms_bytes.get("reference model", 0.0)
    if about.asked.of_reference and about.job.objective in ("dpo", "kto") and not about.sides:
        line = line_of(about.job.framework, "reference-precompute") or PRECOMPUTED
        yield say("answer.reference" if held else "answer.reference-none", held_bytes=held, line=line)
        capacity, rest = about.estimate.capacity_bytes, needed_of(about.estimate) - held
        if held and capacity:
            key = "fits" if rest <= CARD_USABLE * capacity else "tight" if rest <= capacity else "not"
            yield say(f"answer.reference-without-{key}", rest_bytes=rest, capacity_bytes=capacity)


def _flips(about: Plain) -> Iterator[Message]:
    """What would turn a yes over: the largest batch and length that fit, and checkpointing."""
    if about.sides:
        return
    job, served = about.job, about.estimate.served
    sizes: Mapping[str, int] = {}
    if about.answer == "fits" or about.wanted in ("batch", "length"):
        try:
            sizes = largest_of(about.stated, careful=about.careful, wanted=FITS)
        except OomdocError:
            return
    batch, length, longest = (sizes.get(n) for n in ("micro_batch", "seq_len", "serving.max_model_len"))
    if longest and longest >= (job.get("serving.max_model_len") or 0):
        count = job.get("serving.concurrency") or 1
        together = say("answer.limit-context-together", length=f"{longest:,}", count=count)
        yield together if count > 1 else say("answer.limit-context", length=f"{longest:,}")
    elif batch and length and served is None:
        here, now = f"{job.seq_len or 0:,}", job.micro_batch or 1
        key = "limit-alone" if batch == now else "limit-length" if about.wanted == "length" else "limit"
        key = "limit-batch" if length <= (job.seq_len or 0) and batch > now else key  # the model itself takes no more
        yield say(f"answer.{key}", batch=batch, length=f"{length:,}", here=here, now=now)
    elif batch == 0 and served is None and about.answer != "fits":
        here = f"{job.seq_len or 0:,}"
        key = "limit-no-batch" if length else "limit-none"
        yield say(f"answer.{key}", length=f"{length or 0:,}", here=here, now=job.micro_batch or 1)
    elif batch and length == 0:
        yield say("answer.limit-batch", batch=batch, here=f"{job.seq_len or 0:,}")
    waits = tuple(queued(about))
    yield from (*longest_with_small_cache(about, longest or 0), *waits, *room(about))
    if served is not None and not served.starts and served.largest_length and not waits:
        yield say("answer.starts-up-to", length=f"{served.largest_length:,}")
    if about.answer != "fits" and not waits:
        yield from _instead(about)
    elif job.grad_ckpt is True and "grad_ckpt" in job.assumed and job.objective != "inference":
        need, fits = need_with(about.stated, {"grad_ckpt": False}, careful=about.careful)
        if need and not fits:
            yield say("answer.without-checkpointing", needed_bytes=need)


def sizes_with(plan: Plan, wanted: Wanted, asked: Asked) -> Iterator[Message]:
    """How long or how large a batch the run may have once a plan is followed, where a report asks for it.

    :param asked: what the report says besides, the tokens of one request among it.
    """
    served = plan.estimate.served if wanted == "requests" and plan.priced else None
    if served is not None and (each := asked.request_length or asked.length):
        yield say("answer.then-requests", count=served.tokens // each, each=each, tokens=served.tokens)
    if wanted not in ("length", "batch") or not plan.priced or plan.fits_probability < FITS:
        return
    name = "serving.max_model_len"
    if wanted == "length" and any(name in change.fields for change in plan.changes):
        yield say("answer.then-length", length=f"{plan.job.get(name):,}")  # as long as what was printed leaves room for
        return
    try:
        sizes = largest_of(plan.job, careful=False, wanted=FITS)
    except (OomdocError, *ARITHMETIC_ERRORS):
        return
    if wanted == "batch" and (batch := sizes.get("micro_batch")):
        yield say("answer.then-batch", batch=batch)
    elif wanted == "length" and (length := sizes.get(name) or sizes.get("seq_len")):
        yield say("answer.then-length", length=f"{length:,}")
