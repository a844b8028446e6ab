"""What a question compares, side by side: what each alternative needs and holds, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oomdoc.diagnosis.forms import (
    FITS,
    Side,
    beyond_share,
    counts_for,
    fewest_cards,
    fits_of,
    host_is_short,
    needed_of,
    price_form,
    verdict_on,
)
from oomdoc.diagnosis.planned import Choice
from oomdoc.diagnosis.planning.planner import mildest_plan
from oomdoc.diagnosis.planning.quantities import largest_of, most_steps
from oomdoc.diagnosis.result import Grid
from oomdoc.diagnosis.run_words import cards_of, names_of, shared_of, step_of
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, say
from oomdoc.intake.asked import NOTHING_ASKED, Asked
from oomdoc.intake.wanted import Wanted
from oomkb.catalog import gpus, models
from oomkb.dataclass import dataclass
from oomkb.errors import ARITHMETIC_ERRORS, OomdocError
from oomkb.frameworks import ENGINES, has
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.memory.states import GGUF_BYTES
from oomkb.pricing import device_of
from oomkb.units import GIB

_BATCHES: Final = (1, 2, 4, 8, 16)
_LENGTHS: Final = (1024, 2048, 4096, 8192, 16384)
_CONTEXTS: Final = (4096, 8192, 32768, 131072)
_CARDS: Final = (1, 2, 4, 8)
_METHODS: Final = ("full", "lora", "qlora")
_FORMATS: Final = (("bf16", "none"), ("fp8", "fp8"), ("int4", "awq-int4"))
_EXPERTS: Final = {"mxfp4": ("mxfp4", "mxfp4"), "int4-experts": ("int4", "int4-experts")}
_FILES: Final = (("F16", "none"), ("Q8_0", "q8_0"), ("Q6_K", "q6_k"), ("Q4_K_M", "q4_k_m"))

_SIZES: Final = (1, 4, 8, 14, 32, 70)
"""Billions of parameters of models that are usual."""
_USES: Final = (
    ("serve-16", {"objective": "inference", "quant": "none"}),
    ("serve-4", {"objective": "inference", "quant": "awq-int4"}),
    *((method, {"objective": "sft", "method": method}) for method in ("qlora", "lora", "full")),
)

_Row = tuple[str, Mapping[str, Any]]


def grid_for(choice: Choice, view: View, sides: Sequence[Side]) -> Grid | None:
    """The table for a question; none where the run cannot be priced, or a whole config says what it is."""
    job = choice.job
    if not choice.careful or choice.asked.wanted == "reserved":
        return None
    if view.estimate is None:
        alone = job.model is None and job.params_b is None and (job.gpu is not None or job.capacity_gib is not None)
        return _of_card(job) if alone and not choice.asked.diffusion else None
    if sides:
        return _compared(sides)
    if job.objective == "inference":
        longest = view.shape.dims.max_positions if view.shape is not None else 0
        return _served(job, longest or max(_CONTEXTS), view.job.quant)
    if choice.asked.wanted in ("batch", "length"):
        return _sizes(job)
    return _methods(job) if job.objective in (None, "sft", "pretrain", "dpo") else _sizes(job)


def _of_card(job: Job) -> Grid | None:
    """What a card holds of models of usual sizes: served, and trained."""
    plain = _without_use(job)
    served = job.framework in ENGINES
    uses = [(name, _shared(plain, fields)) for name, fields in _USES if not served or "method" not in fields]
    return _grid("uses-sizes", plain, uses, [(f"{size}B", {"params_b": size}) for size in _SIZES])


def _without_use(job: Job) -> Job:
    return job.with_fields(dict.fromkeys(("method", "quant", "objective", "serving", "micro_batch", "seq_len", "lora")))


def _shared(job: Job, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A use on several cards: they share what is trained."""
    several = (job.gpus or 1) > 1 and job.sharding is None and fields.get("objective", "inference") != "inference"
    return _together(fields, {"sharding": "zero3"}) if several else fields


def largest_models(job: Job) -> list[tuple[str, float]]:
    """Billions of parameters of the largest model that the cards hold, by use; of one that is stated alone."""
    plain, named = _without_use(job), [use for use in _USES if use[0] == job.method and "method" not in job.assumed]
    if job.objective == "inference" and job.quant is not None and "quant" not in job.assumed:
        plain = job
        named = [("serve-16" if job.quant == "none" else "serve-4" if job.quant in _FOUR_BITS else "serve", {})]
    found = []
    for name, fields in named or _USES:
        form = _shared(plain, fields)

        def fits(eighths: int, form: Mapping[str, Any] = form) -> bool:
            return bool(_cell(plain, {**form, "params_b": round(eighths / 8, 2)})[1])

        found.append((name, most_steps(fits, 8 * _LARGEST_B) / 8))
    return found


_FOUR_BITS: Final = frozenset({"q4_k_m", "q4_0", "awq-int4", "gptq-int4", "nf4", "int4", "mxfp4", "nvfp4"})
_LARGEST_B: Final = 512


def _compared(sides: Sequence[Side]) -> Grid | None:
    """What is compared in two ways, the first by the second: the figures of the answer's lines, priced once."""
    parts = [side.asked.parts for side in sides]
    if all(len(both) == 2 for both in parts):
        rows, columns = (
            [both[n] for i, both in enumerate(parts) if both[n] not in [p[n] for p in parts[:i]]] for n in (0, 1)
        )
        found = [(side.asked.parts, side) for side in sides]
        cells = [[next((s for both, s in found if both == (row, col)), None) for col in columns] for row in rows]
        if any(cell is None for row in cells for cell in row):
            return None  # not every one by every other: each on as many cards as it takes
        named, heads = (tuple(names_of(one)[0] for one in ones) for ones in (rows, columns))
        needs = tuple(tuple(cell.needed_bytes if cell else None for cell in row) for row in cells)
        fits = tuple(tuple(cell.fits if cell else None for cell in row) for row in cells)
        return Grid("compared", named, heads, needs, fits)
    return None


def _sizes(job: Job) -> Grid | None:
    rows = [(str(n), {"micro_batch": n}) for n in _BATCHES]
    columns = [(f"{n:,}", {"seq_len": n}) for n in _lengths(job, _LENGTHS)]
    return _grid("batch-length", job, rows, columns)


def _methods(job: Job) -> Grid | None:
    """Full, LoRA and QLoRA over numbers of cards, those that hold no copies sharing their states."""
    plain = job.with_fields({"method": None, "quant": None, "gpus": None, "nodes": None, "world": None, "dp": None})
    sharding = job.sharding if "sharding" not in job.assumed else None
    plain = plain if sharding else plain.with_fields({"sharding": None})
    stated = [] if "method" in job.assumed or job.method is None else [job.method]
    rows: list[_Row] = [(m, {"method": m}) for m in _METHODS if m in stated or len(stated) == 0 or m != "full"]
    rows = [row for row in rows if job.objective != "pretrain" or row[0] == "full"]
    counts = sorted({*_CARDS, (job.gpus or 1) * (job.nodes or 1)})[:5]
    device = gpus.find(job.gpu) if job.gpu else None
    counts = [1] if device is not None and device.unified else counts
    columns = [(f"{n} ×", {"gpus": n, **({"sharding": sharding or "zero3"} if n > 1 else {})}) for n in counts]
    return _grid("methods-cards" if sharding else "methods-cards-shared", plain, rows, columns)


def _served(job: Job, longest: int, quant: str | None) -> Grid | None:
    """How the weights are stored over context lengths, for one request.

    :param quant: how they are stored in this run, as the model is released where nothing is stated.
    """
    fixed = job.quant if "quant" not in job.assumed else None
    formats = _formats(job, quant)
    if quant not in (None, "none") and all(row[1] != quant for row in formats):
        formats = (*formats, (quant.upper() if quant in GGUF_BYTES else quant, quant))
    named = [row for row in formats if fixed in (None, row[1])]
    rows: list[_Row] = [(name, {"quant": quant}) for name, quant in named]
    lengths = _lengths(job, [n for n in _CONTEXTS if n <= longest] or [longest])
    columns: list[_Row] = [(f"{n:,}", {"serving.max_model_len": n}) for n in lengths]
    together = (job.get("serving.concurrency") or 1) > 1
    return _grid("formats-context-together" if together else "formats-context", job, rows, columns)


def _formats(job: Job, quant: str | None) -> Sequence[tuple[str, str]]:
    """Formats that weights are published in and the engine reads: none above the model's own, and of 4-bit experts no
    other.
    """
    entry = models.find(job.model) if isinstance(job.model, str) else None
    own = models.stored_quant(entry.config) if entry is not None else None
    if own in _EXPERTS:
        return (_EXPERTS[own],)
    if quant in GGUF_BYTES:
        return _FILES
    formats: tuple[tuple[str, str], ...] = _FORMATS[1:] if own == "fp8" else _FORMATS
    device = device_of(job)
    multiplies = device is None or device.can("fp8") or not has(job.framework, "fp8.native")
    if device is not None and not device.can("bf16"):
        formats = tuple(("fp16", stored) if name == "bf16" else (name, stored) for name, stored in formats)
    return formats if multiplies else tuple(row for row in formats if row[1] != "fp8")


def _lengths(job: Job, usual: Sequence[int]) -> list[int]:
    """Usual lengths, and the one of the job among them."""
    own = job.seq_len or job.get("serving.max_model_len")
    return sorted({*usual, own})[:5] if isinstance(own, int) and "seq_len" not in job.assumed else list(usual)


def _grid(name: str, job: Job, rows: Sequence[_Row], columns: Sequence[_Row]) -> Grid | None:
    needs, fits = [], []
    for _, row in rows:
        found = [_cell(job, _together(row, column)) for _, column in columns]
        needs.append(tuple(need for need, _ in found))
        fits.append(tuple(fit for _, fit in found))
    if not any(need is not None for row in needs for need in row):
        return None
    return Grid(name, tuple(n for n, _ in rows), tuple(n for n, _ in columns), tuple(needs), tuple(fits))


def _together(row: Mapping[str, Any], column: Mapping[str, Any]) -> dict[str, Any]:
    """DeepSpeed leaves 4-bit weights whole on every card: they are sharded by FSDP."""
    both = {**row, **column}
    whole = both.get("method") == "qlora" and both.get("sharding") == "zero3"
    return {**both, "sharding": "fsdp"} if whole else both


def _cell(job: Job, fields: Mapping[str, Any]) -> tuple[float | None, bool | None]:
    priced = price_form(job, dict(fields))
    if priced is None:
        return None, None
    fits = False if host_is_short(priced.job, priced.estimate) else fits_of(priced.estimate)
    return needed_of(priced.estimate), fits


_MAX_REMEDIED_SIDES: Final = 2
"""Alternatives that do not fit and are planned for: a plan takes some tenths of a second."""
_MAX_CHANGES_OF_A_SIDE: Final = 4


@dataclass(frozen=True, slots=True)
class Plain:
    """What an answer is about."""

    stated: Job
    """As stated, with what was chosen marked as assumed."""
    job: Job
    """Completed."""
    estimate: Estimate
    careful: bool
    asked: Asked = NOTHING_ASKED
    sides: tuple[Side, ...] = ()
    """Every run that the question asks about, where these are several, priced."""
    printed_tokens: float | None = None
    """What the engine's own log says that its cache holds."""

    @property
    def wanted(self) -> Wanted:
        """What is asked; the largest batch of a server is how many requests it holds."""
        return "requests" if self.asked.wanted == "batch" and self.estimate.served is not None else self.asked.wanted

    @property
    def compared(self) -> frozenset[str]:
        """Fields in which the compared runs differ: as the question sets them, and how each model is stored."""
        formats = {(p.job.quant, p.job.param_dtype) for side in self.sides if (p := side.priced) is not None}
        stored = {"quant"} if len(formats) > 1 else set()
        return frozenset(name for side in self.sides for name in side.asked.fields) | stored

    @property
    def answer(self) -> str:
        """``fits tight does-not-fit``, ``unknown`` without a card."""
        return "does-not-fit" if host_is_short(self.job, self.estimate) else verdict_on(self.estimate)


def enough_cards(about: Plain) -> Iterator[Message]:
    """How many cards hold the run, where that is asked and those that are named do not."""
    stated = about.stated.world or (about.stated.gpus or 0) * (about.stated.nodes or 1)
    if about.wanted != "cards" or about.sides or "gpus" in about.stated.assumed or not stated:
        return
    if about.answer == "fits" or about.estimate.capacity_bytes is None:
        return
    priced = fewest_cards(about.stated, [count for count in counts_for(about.stated) if count > stated])
    if priced is not None:
        yield say("answer.cards-enough", cards=cards_of(priced.job), needed_bytes=needed_of(priced.estimate))


def comparison(about: Plain) -> Iterator[Message]:
    """A verdict and a figure for each run that is asked about, in the order of the question, and what they share."""
    if not about.sides:
        return
    yield from map(_verdict, about.sides)
    yield from _difference(about)
    counted = about.asked.concurrency is not None and any(side.capacity_bytes is not None for side in about.sides)
    if (about.wanted == "requests" or counted) and all(side.requests is not None for side in about.sides):
        held = [say("answer.side-requests", name=names_of(s.asked), requests=s.requests) for s in about.sides]
        yield say("answer.compared-requests", sides=held)
    yield from _caches_of_sides(about)
    if about.wanted in ("batch", "length"):
        yield from _largest_of_sides(about)
    yield from _remedies_of_sides(about)
    yield from _speeds_of_cards(about)
    job = about.job
    yield say("answer.compared-run", parts=shared_of(job, about.compared))
    named = [side.asked.name.lower().startswith("zero") for side in about.sides]
    stages = [str(side.fields.get("sharding", "")) for side in about.sides]
    if (job.world or 1) == 1 and any(stage.startswith("zero") for stage in stages):
        yield say("answer.zero-alone" if any(named) else "answer.several-split")
    if all(side.fits for side in about.sides) and all(named):
        yield say("answer.compared-shards")


def _caches_of_sides(about: Plain) -> Iterator[Message]:
    """What the KV cache of each alternative holds, where an engine takes its share of a card."""
    served = [
        (side.asked, side.priced.estimate.served) for side in about.sides if side.fits and side.priced is not None
    ]
    pools = [(asked, one) for asked, one in served if one is not None and one.shared_bytes and one.token_bytes]
    if len(pools) < len(about.sides):
        return
    sizes = [(asked, one.cache_bytes / one.token_bytes, one.cache_bytes) for asked, one in pools]
    yield say(
        "answer.compared-caches",
        sides=[
            say("answer.side-cache", name=names_of(a), tokens=f"{int(n) // 1000 * 1000:,}", size_bytes=b)
            for a, n, b in sizes
        ],
    )


def _speeds_of_cards(about: Plain) -> Iterator[Message]:
    """How fast servers on different cards read their memory, which bounds the speed of one user's tokens."""
    priced = [(side.asked, side.priced.job) for side in about.sides if side.priced is not None]
    cards = [(asked, card) for asked, job in priced if (card := device_of(job)) is not None]
    speeds = [(asked, card.bandwidth_bytes_per_s) for asked, card in cards if card.bandwidth_bytes_per_s]
    if about.estimate.served is None or len({card.name for _, card in cards}) < 2 or len(speeds) < len(cards):
        return
    told = [say("answer.side-speed", name=names_of(asked), speed=f"{speed / 1e9:,.0f}") for asked, speed in speeds]
    yield say("answer.compared-speeds", sides=told)
    if any((job.gpus or 1) > (job.tp or 1) for _, job in priced):
        yield say("answer.compared-in-turn")


def _difference(about: Plain) -> Iterator[Message]:
    """By how much one of two ways to do the same takes less."""
    needs = [(side.needed_bytes, side) for side in about.sides if side.needed_bytes is not None]
    if len(about.sides) != 2 or len(needs) != 2 or not _OF_A_WAY.isdisjoint(about.compared):
        return
    (least, less), (most, _) = sorted(needs, key=lambda one: one[0])
    if most - least >= _MIN_DIFFERENCE_BYTES:
        yield say("answer.compared-less", name=names_of(less.asked), size_bytes=most - least)


_OF_A_WAY: Final = frozenset({"model", "params_b", "gpu", "gpus", "capacity_gib", "nodes"})
"""Fields in which compared runs are different runs, not two ways to do one."""
_MIN_DIFFERENCE_BYTES: Final = 0.1 * GIB


def _largest_of_sides(about: Plain) -> Iterator[Message]:
    """The largest batch or length of each alternative."""
    names = ("micro_batch",) if about.wanted == "batch" else ("seq_len", "serving.max_model_len")
    if any(name in side.fields for side in about.sides for name in names):
        return  # the sides are themselves sizes of that kind
    found = []
    for side in about.sides:
        try:
            sizes = largest_of(about.stated.with_fields(side.fields), careful=about.careful, wanted=FITS)
        except OomdocError:
            return
        most = next((sizes[n] for n in names if n in sizes), None)
        if most:
            found.append(say("answer.side-most", name=names_of(side.asked), most=f"{most:,}"))
    if found:
        yield say(f"answer.compared-{about.wanted}", sides=found)


_OF_A_REQUEST: Final = frozenset({"seq_len", "serving.max_model_len", "serving.concurrency"})


def _remedies_of_sides(about: Plain) -> Iterator[Message]:
    """What would make an alternative fit that does not: the question may well be which of them can be had at all."""
    lacking = [side for side in about.sides if side.fits is False and side.priced is not None]
    needed_by_each = about.asked.request_length and about.asked.concurrency  # a shorter context serves none of them
    needs = _OF_A_REQUEST if needed_by_each else frozenset[str]()
    for side in lacking[:_MAX_REMEDIED_SIDES]:
        try:
            plan = mildest_plan(
                about.stated.with_fields(side.fields), {*side.fields, *needs}, careful=about.careful, wanted=FITS
            )
        except (OomdocError, *ARITHMETIC_ERRORS):
            continue
        if plan is not None and len(plan.changes) <= _MAX_CHANGES_OF_A_SIDE:
            changes = [step_of(change) for change in plan.changes]
            host = plan.estimate.host_bytes
            key = "answer.side-with-host" if host >= GIB else "answer.side-with"
            needed = needed_of(plan.estimate)
            yield say(key, name=names_of(side.asked), changes=changes, needed_bytes=needed, host_bytes=host)


def _verdict(side: Side) -> Message:
    """Yes or no, and what it needs; only just where it is less than the card holds, and more than to count on."""
    if side.priced is None:
        return say("answer.side-refused", name=names_of(side.asked), problem=side.problem)
    estimate, have = side.priced.estimate, (side.priced.job.host_gib or 0.0) * GIB
    assert side.needed_bytes is not None
    values: dict[str, Any] = {"needed_bytes": side.needed_bytes, "capacity_bytes": side.capacity_bytes}
    if side.fits is None:
        key = "amount"
    elif host_is_short(side.priced.job, estimate):
        key, values = "host-short", {**values, "host_bytes": estimate.host_bytes, "have_bytes": have}
    elif side.fits:
        key = "fits"
    elif (beyond := beyond_share(side.priced.job, estimate)) is not None:
        key, sizes = beyond
        values |= sizes
    else:
        key = "tight" if verdict_on(estimate) == "tight" else "not"
    return say(f"answer.side-{key}", name=names_of(side.asked), **values)
