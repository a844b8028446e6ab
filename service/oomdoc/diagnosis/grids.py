"""The small tables of an answer: what a run needs by batch and length, method and cards, weight format and context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oomdoc.diagnosis.forms import (
    Side,
    fits_of,
    host_is_short,
    needed_of,
    price_form,
)
from oomdoc.diagnosis.planned import Choice
from oomdoc.diagnosis.planning.quantities import most_steps
from oomdoc.diagnosis.result import Grid
from oomdoc.diagnosis.run_words import cards_of, names_of
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, say
from oomdoc.intake.asked import asked_of, asks_need, card_in_question
from oomkb.catalog import gpus, models
from oomkb.frameworks import ENGINES, has
from oomkb.memory.job import Job
from oomkb.memory.states import GGUF_BYTES
from oomkb.pricing import device_of

_BATCHES: Final = (1, 2, 4, 8, 16)
_LENGTHS: Final = (1024, 2048, 4096, 8192, 16384)
_CONTEXTS: Final = (4096, 8192, 32768, 131072)
_CARDS: Final = (1, 2, 4, 8)
_METHODS: Final = ("full", "lora", "qlora")
_FORMATS: Final = (("bf16", "none"), ("fp8", "fp8"), ("int4", "awq-int4"))
_EXPERTS: Final = {"mxfp4": ("mxfp4", "mxfp4"), "int4-experts": ("int4", "int4-experts")}
_FILES: Final = (("F16", "none"), ("Q8_0", "q8_0"), ("Q6_K", "q6_k"), ("Q4_K_M", "q4_k_m"))

_FEW_BITS: Final = (("Q3_K_M", "q3_k_m"), ("Q2_K", "q2_k"), ("IQ2_XXS", "iq2_xxs"), ("IQ1_S", "iq1_s"))
"""Files of models that no usual one fits, in the order of their bits."""
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
    why_held = choice.asked.wanted == "reserved"
    if not choice.careful or (why_held and (view.estimate is not None or not view.is_stated("method"))):
        return None
    if view.estimate is None:
        unnamed = not job.has_model and not choice.asked.diffusion
        asked = job.has_card or choice.asked.wanted in _SIZED
        return _usual_sizes(job, trains=choice.asked.trains) if unnamed and asked else None
    if sides:
        return _compared(sides)
    if job.objective == "inference":
        longest = view.shape.dims.max_positions if view.shape is not None else 0
        return _served(job, longest or max(_CONTEXTS), view.job.quant)
    if choice.asked.wanted in ("batch", "length") or job.objective not in (None, "sft", "pretrain", "dpo"):
        return _sizes(job, view.shape.dims.max_positions if view.shape is not None else 0)
    return _methods(job)


def grid_beside_failure(view: View, stated: Job) -> Grid | None:
    """What models of usual sizes need, where a failure of one that is not named is told of and its need asked."""
    outcome = view.evidence.outcome
    unnamed = view.estimate is None and not view.is_stated("model") and not view.is_stated("params_b")
    if outcome is None or outcome.kind != "said" or not unnamed:
        return None
    asked = asked_of(view.evidence)
    sized = asks_need(view.evidence) or (asked.wanted == "fit" and card_in_question(view.evidence) is not None)
    if asked.diffusion or not sized:
        return None
    return _usual_sizes(stated.with_fields({"planned": True}), trains=asked.trains)


_SIZED: Final = ("amount", "cards")
"""What is asked for where a table over the sizes of models answers a question that names no card either."""


def _usual_sizes(job: Job, *, trains: bool) -> Grid | None:
    """What models of usual sizes need, served and trained, or in the one use that is stated."""
    plain = _without_use(job)
    use = job.objective if "objective" not in job.assumed else None
    served = job.framework in ENGINES or use == "inference"
    trained = (use is not None or trains) and not served
    uses = [
        (name, _shared(plain, fields))
        for name, fields in _USES
        if not (served and "method" in fields) and not (trained and "method" not in fields)
    ]
    return _grid("uses-sizes", plain, uses, [(f"{size}B", {"params_b": size}) for size in _SIZES])


def _without_use(job: Job) -> Job:
    use = ("method", "quant", "objective", "serving", "micro_batch", "seq_len", "lora")
    return job.with_fields(dict.fromkeys((*use, *job.assumed)))


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


def largest_models_told(job: Job) -> Iterator[Message]:
    """How large a model the card holds, by use."""
    sizes = [(say(f"grid.row-{use}"), size) for use, size in largest_models(job) if size >= _LEAST_B]
    if sizes:
        shown = [
            say("answer.largest-model", use=use, size=f"{size:.0f}" if size >= 10 else f"{size:.1f}")
            for use, size in sizes
        ]
        yield say("answer.largest-models", cards=cards_of(job), sizes=shown)


_LEAST_B: Final = 0.3
"""Billions of parameters below which no size is named."""
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


def _sizes(job: Job, longest: int) -> Grid | None:
    """Batches over lengths.

    :param longest: positions that the model has; none of the lengths that nobody states is beyond them.
    """
    rows = [(str(n), {"micro_batch": n}) for n in _BATCHES]
    usual = [n for n in _LENGTHS if not longest or n <= longest]
    columns = [(f"{n:,}", {"seq_len": n}) for n in _lengths(job, usual)]
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


def _files_that_fit(job: Job) -> tuple[tuple[str, str], ...]:
    """The usual files; of a model that none of them fits, those down to the first that does, or to the least."""
    files = (*_FILES, *_FEW_BITS)
    priced = [price_form(job, {"quant": quant, "serving.max_model_len": _CONTEXTS[0]}) for _, quant in files]
    first = next((n for n, one in enumerate(priced) if one is not None and fits_of(one.estimate)), len(files) - 1)
    unknown = priced[-1] is None or priced[-1].estimate.capacity_bytes is None
    return _FILES if unknown or first < len(_FILES) else files[len(_FILES) - 1 : first + 1]


def _served(job: Job, longest: int, quant: str | None) -> Grid | None:
    """How the weights are stored over context lengths, for one request.

    :param quant: how they are stored in this run, as the model is released where nothing is stated.
    """
    fixed = job.quant if "quant" not in job.assumed else None
    formats = _formats(job, quant)
    if formats == _FILES and fixed is None:
        formats = _files_that_fit(job)
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
