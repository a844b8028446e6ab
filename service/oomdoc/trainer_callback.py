"""A ``TrainerCallback`` for transformers: checks the plan before step 1 and the estimate after it, explains a failure.

    from oomdoc.trainer_callback import OomdocCallback
    trainer = Trainer(..., callbacks=[OomdocCallback()])

The class is made when it is first asked for: importing this module loads neither transformers nor torch. Nothing in
here raises into the training, and the exception of a run that dies stays the one that is seen.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from oomkb.memory.estimate import Estimate
    from oomkb.memory.job import Job

_LOG: Final = logging.getLogger("oomdoc")
_WANTED: Final = 0.5
"""A plan that is less likely to fit than this is warned of."""
_LENGTHS: Final = ("max_length", "max_seq_length", "cutoff_len", "max_completion_length")
_SAMPLES: Final = 64


def job_of_training(
    args: Any,
    model: Any,
    *,
    seq_len: int | None = None,
    train_dataloader: Any = None,
    capacity_gib: float | None = None,
) -> Job:
    """The job that ``TrainingArguments`` and a model in memory describe.

    :param seq_len: tokens per sample; by default the arguments' own limit, else the longest of the first samples.
    :param capacity_gib: of the GPU; by default what the driver says, where there is one.
    :raises OomdocError: for settings that describe no possible run.
    """
    from oomdoc.planner import job_of_text

    settings = {k: v for k, v in args.to_dict().items() if v is not None and k != "deepspeed"}
    job, _ = job_of_text(json.dumps(settings, default=str), "training_args.json")
    sharded = _deepspeed(getattr(args, "deepspeed", None))
    if sharded:
        other, _ = job_of_text(sharded, "ds_config.json")
        job = job.with_fields({k: v for k, v in other.document().items() if k in ("sharding", "offload", "buckets")})
    changes = {**_of_model(model), "world": int(getattr(args, "world_size", 1) or 1)}
    changes["seq_len"] = seq_len or _stated_length(args) or _longest_sample(train_dataloader)
    changes["capacity_gib"] = capacity_gib or _capacity_gib()
    return job.with_fields({k: v for k, v in changes.items() if v is not None})


def _deepspeed(config: Any) -> str:
    if isinstance(config, Mapping):
        return json.dumps(dict(config), default=str)
    if isinstance(config, str) and os.path.isfile(config):  # noqa: PTH113  (people give any spelling of a path)
        with open(config, encoding="utf-8") as file:  # noqa: PTH123
            return file.read(1 << 20)
    return ""


def _of_model(model: Any) -> dict[str, Any]:
    """What the model in memory says of itself: it is the truth, whatever a config file has."""
    config = model.config.to_dict()
    found: dict[str, Any] = {"model": {k: v for k, v in config.items() if v is not None}}
    # The parameters' own dtype: a config may tell of the checkpoint's.
    words = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
    sizes: dict[str, int] = {}
    for parameter in model.parameters():
        name = str(parameter.dtype)
        sizes[name] = sizes.get(name, 0) + int(parameter.numel())
    found["param_dtype"] = words.get(max(sizes, key=lambda n: sizes[n])) if sizes else None
    attention = getattr(model.config, "_attn_implementation", None)
    found["attention"] = {"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash2"}.get(str(attention))
    quantized = "nf4" if getattr(model, "is_loaded_in_4bit", False) else None
    found["quant"] = quantized or ("int8" if getattr(model, "is_loaded_in_8bit", False) else None)
    adapters = getattr(model, "peft_config", None)
    if isinstance(adapters, Mapping) and adapters:
        first = next(iter(adapters.values()))
        targets = getattr(first, "target_modules", None)
        found["method"] = "qlora" if quantized else "lora"
        found["lora"] = {
            "r": getattr(first, "r", 8),
            "targets": targets if isinstance(targets, str) else sorted(targets or ()) or "all-linear",
        }
    return found


def _stated_length(args: Any) -> int | None:
    for name in _LENGTHS:
        value = getattr(args, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _longest_sample(loader: Any) -> int | None:
    """Tokens of the longest of the first samples; the dataset is read, the loader is not moved."""
    dataset = getattr(loader, "dataset", None)
    if dataset is None or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return None
    longest = 0
    for index in islice(range(len(dataset)), _SAMPLES):
        sample = dataset[index]
        ids = sample.get("input_ids") if isinstance(sample, Mapping) else None
        if ids is not None:
            longest = max(longest, len(ids))
    return longest or None


def _cuda() -> Any:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_available() else None


def _capacity_gib() -> float | None:
    cuda = _cuda()
    return None if cuda is None else cuda.get_device_properties(cuda.current_device()).total_memory / (1 << 30)


def _harmless(method: Callable[..., None]) -> Callable[..., None]:
    """Whatever goes wrong in a look at the training is noted and dropped."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:
            _LOG.info("oomdoc: %s", error, exc_info=_LOG.isEnabledFor(logging.DEBUG))

    return call


@functools.cache
def _callback_class() -> type[Any]:
    from transformers import TrainerCallback

    from oomdoc.hook import Watch

    base: Any = TrainerCallback

    class OomdocCallback(base):  # type: ignore[misc]
        """Checks the plan before step 1 and the estimate after it; explains a run that dies of memory.

        :param folder: where reports of failures go (as for ``oomdoc.watch``).
        :param seq_len: tokens per sample, where the arguments do not say.
        :param capacity_gib: of each GPU, where the driver's figure is not the one that counts.
        :param language: of the log lines.
        """

        def __init__(
            self,
            folder: str | None = None,
            *,
            seq_len: int | None = None,
            capacity_gib: float | None = None,
            language: str = "en",
        ) -> None:
            self.estimate: Estimate | None = None
            self._seq_len, self._capacity_gib, self._language = seq_len, capacity_gib, language
            self._watch = Watch(folder)
            self._installed = False

        @_harmless
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not self._installed:
                self._watch.install()
                self._installed = True
            if state.is_world_process_zero:
                from oomkb.pricing import price

                job = job_of_training(
                    args,
                    kwargs["model"],
                    seq_len=self._seq_len,
                    train_dataloader=kwargs.get("train_dataloader"),
                    capacity_gib=self._capacity_gib,
                )
                self.estimate = price(job).estimate
                _check_plan(self.estimate, self._language)
            cuda = _cuda()
            if cuda is not None:
                cuda.reset_peak_memory_stats()

        @_harmless
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            cuda = _cuda()
            if state.global_step == 1 and self.estimate is not None and cuda is not None:
                _check_step(self.estimate, cuda.max_memory_allocated(), self._language)

    return OomdocCallback


def _check_plan(estimate: Estimate, language: str) -> None:
    from oomdoc.diagnosis.forms import needed_of
    from oomdoc.report.words import word

    values = {"peak_bytes": needed_of(estimate), "phase": word(f"phase.{estimate.peak_phase}", language)}
    values |= {"owner": estimate.owner, "capacity_bytes": estimate.capacity_bytes or 0.0}
    probability = estimate.fits_probability
    if estimate.capacity_bytes is None or probability is None:
        _LOG.info(word("callback.planned", language, **values))
    elif probability < _WANTED:
        _LOG.warning(word("callback.does-not-fit", language, probability=f"{probability:.0%}", **values))
    else:
        _LOG.info(word("callback.fits", language, probability=f"{probability:.0%}", **values))


def _check_step(estimate: Estimate, measured_bytes: int, language: str) -> None:
    """After the first step: the allocator's peak against the estimate and its interval."""
    from oomdoc.report.words import word

    span = estimate.intervals.get("allocated")
    outside = span is not None and not span.low_bytes <= measured_bytes <= span.high_bytes
    difference = f"{100 * (estimate.allocated_bytes / max(1, measured_bytes) - 1):+.0f}"
    text = word(
        "callback.outside" if outside else "callback.measured",
        language,
        measured_bytes=measured_bytes,
        estimated_bytes=estimate.allocated_bytes,
        difference=difference,
    )
    _LOG.log(logging.WARNING if outside else logging.INFO, text)


def __getattr__(name: str) -> Any:
    if name != "OomdocCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _callback_class()
