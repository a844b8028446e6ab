"""From a job document to an estimate: defaults, the model's shape and the GPU looked up, then pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final

from oomkb.catalog import gpus, models
from oomkb.dataclass import dataclass
from oomkb.errors import ARITHMETIC_ERRORS, CatalogError, JobError, Note, OomdocError, note
from oomkb.frameworks import complete, otherwise
from oomkb.memory import model as memory
from oomkb.memory.device import Device
from oomkb.memory.estimate import Estimate
from oomkb.memory.intervals import joined
from oomkb.memory.job import FIELD_NAMES, Job
from oomkb.memory.releases import is_litgpt
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

# lit-gpt holds embedding and head as two parameters whatever the checkpoint does (``litgpt/model.py``, ``GPT``).
_UNTIED: Final[Mapping[str, bool]] = {"tie_word_embeddings": False}
_LARGEST_GIB: Final = 1e6
"""A petabyte on one GPU: beyond it a figure says only that a value was a slip."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A completed job with what was looked up for it and its estimate."""

    job: Job
    shape: ModelShape
    device: Device | None
    estimate: Estimate


def price(job: Job, *, careful: bool = False) -> Priced:
    """Price a job.

    :param careful: fill what is open as a careful person starts, not as the framework's defaults have it.

    :raises JobError: for a job that describes no possible run, or names neither a model nor ``params_b``.
    """
    return _priced(job, careful)


@lru_cache(maxsize=64)
def _priced(job: Job, careful: bool) -> Priced:
    """What is asked of one run in one answer is priced once."""
    try:
        completed = complete(job, careful=careful)
        shape = shape_of(completed)
        device = device_of(completed)
        estimate = memory.estimate(completed, shape, device, shapes=extra_model_shapes(completed))
        other = None if careful else otherwise(job, completed)
        if other is not None:
            shapes = extra_model_shapes(other)
            estimate = joined(estimate, partial(memory.estimate, other, shape, device, shapes=shapes))
    except ARITHMETIC_ERRORS as error:
        raise JobError(
            f"these values describe no run that can be priced ({type(error).__name__})",
            where="job",
            hint="check the sizes of model and batch",
            note=note("job.not-priced"),
        ) from error
    _check_possible(estimate)
    return Priced(completed, shape, device, estimate)


def price_planned(job: Job) -> Priced:
    """Price a job document: as its framework would run it where it names one, else as a careful person starts.

    :raises JobError: as :func:`price`.
    """
    priced = price(job, careful=job.framework is None)
    misspelt = tuple(warning for name in job.extra if (warning := _misspelt(name)) is not None)
    if not misspelt:
        return priced
    return replace(priced, estimate=replace(priced.estimate, warnings=(*priced.estimate.warnings, *misspelt)))


def price_if_possible(job: Job, fields: Mapping[str, Any] = MappingProxyType({})) -> Priced | None:
    """The job with these fields set, priced; ``None`` for one that no run can be."""
    try:
        return price(job.with_fields(fields))
    except (OomdocError, *ARITHMETIC_ERRORS):
        return None


@lru_cache(maxsize=1024)
def _misspelt(name: str) -> Note | None:
    """A key of a job document that is no field, and is spelt almost like one."""
    close = get_close_matches(name[:80], FIELD_NAMES, n=1, cutoff=0.8)
    return note("job.misspelt", field=name[:80], close=close[0]) if close else None


def _check_possible(estimate: Estimate) -> None:
    """:raises JobError: where a figure is none that any machine could show."""
    figures = (estimate.allocated_bytes, estimate.reserved_bytes, estimate.process_bytes, estimate.host_bytes)
    if not all(0 <= figure <= _LARGEST_GIB * GIB for figure in figures):
        raise JobError(
            f"a GPU would hold more than {_LARGEST_GIB:,.0f} GiB",
            where="job",
            hint="one of batch, length and model is in another unit",
            note=note("job.impossible", most=f"{_LARGEST_GIB:,.0f}"),
        )


def extra_model_shapes(job: Job) -> dict[str, ModelShape]:
    """Shapes of the models beside the main one that the catalogue knows, by the names the job uses."""
    names = {extra.model for extra in job.extra_models or () if isinstance(extra.model, str)}
    found = {name: models.find(name) for name in names}
    return {name: _named_shape(entry.name, untied=is_litgpt(job)) for name, entry in found.items() if entry is not None}


def check_device(job: Job) -> None:
    """Refuse a GPU that is named but not known, for callers that asked for it by name.

    A log may name any card; pricing goes on without a verdict there.

    :raises CatalogError: with the nearest names.
    """
    if job.gpu is None or job.capacity_gib is not None or gpus.find(job.gpu) is not None:
        return
    close = get_close_matches(job.gpu, [d.name for d in gpus.all_devices()], n=3, cutoff=0.4)
    near = f"perhaps {', '.join(close)}; or " if close else ""
    raise CatalogError(
        f"{job.gpu!r} is not in the GPU catalogue",
        where="gpu",
        hint=f"{near}set capacity_gib",
        note=note("job.gpu-unknown", gpu=job.gpu),
    )


def shape_of(job: Job) -> ModelShape:
    """The shape of the trained (or served) model.

    :raises JobError: where neither ``model`` nor ``params_b`` says enough.
    """
    if isinstance(job.model, str):
        entry = models.find(job.model)
        if entry is not None:
            return _named_shape(entry.name, untied=is_litgpt(job), length=models.length_in_name(job.model))
        if job.params_b is None:
            raise JobError(
                f"{job.model!r} is not in the model catalogue",
                where="model",
                hint="give its config.json as an object, add it with `oomdoc model add config.json`, or set params_b",
                note=note("job.model-unknown", model=job.model),
            )
    elif job.model is not None:
        return ModelShape.from_config({**job.model, **_UNTIED} if is_litgpt(job) else job.model)
    if job.params_b is None:
        raise JobError(
            "no model is named",
            where="model",
            hint="set model (a hub id or a config.json) or params_b",
            note=note("job.no-model"),
        )
    return ModelShape.from_params_b(job.params_b)


_SAME_LENGTH: Final = 0.9
"""Of the length in a model's name: a configuration with as much is that model's own ("200K" is 200,000)."""


@lru_cache(maxsize=1024)
def _named_shape(name: str, *, untied: bool = False, length: int | None = None) -> ModelShape:
    """The shape of a catalogued model, with the context of ``length`` tokens that a longer variant's name states."""
    entry = models.find(name)
    if entry is None:
        raise CatalogError(
            f"{name!r} is not in the model catalogue", where="model", note=note("job.model-unknown", model=name)
        )
    is_longer = length is not None and (models.context_length(entry.config) or 0) < _SAME_LENGTH * length
    longer = {"max_position_embeddings": length} if is_longer else {}
    return ModelShape.from_config({**entry.config, **longer, **(_UNTIED if untied else {})})


def device_of(job: Job) -> Device | None:
    """The GPU, with a stated capacity in place of the catalogue's; ``None`` where neither is stated."""
    return gpus.sized(job.gpu, job.capacity_gib, job.host_gib)
