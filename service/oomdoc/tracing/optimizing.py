"""The optimizers whose step runs on a CPU as it does on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from oomkb.errors import InputError, JobError

LEARNING_RATE: Final = 1e-5


def make_optimizer(params: Any, job: dict[str, Any]) -> Any:
    """The job's optimizer over ``params``.

    :raises JobError: for one that runs on GPUs only.
    :raises InputError: where the package it lives in is not installed.
    """
    name = job.get("optimizer") or "adamw"
    make = MAKERS.get(name)
    if make is None:
        raise JobError(
            f"{name!r} cannot be traced without a GPU", where="optimizer", hint=f"one of {', '.join(MAKERS)}"
        )
    try:
        return make(list(params), job)
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed", where="optimizer", hint=f"pip install {error.name}"
        ) from error


def flags(job: dict[str, Any]) -> dict[str, Any]:
    """How the job has its optimizer work."""
    impl = job.get("optimizer_impl") or "foreach"
    return {"foreach": impl == "foreach", "fused": impl == "fused"}


def foreach(job: dict[str, Any]) -> bool:
    """Whether it takes all parameters together."""
    return (job.get("optimizer_impl") or "foreach") == "foreach"


def _adafactor(params: list[Any], job: dict[str, Any]) -> Any:
    from transformers.optimization import Adafactor

    make: Any = Adafactor  # as the Trainer makes it
    return make(params, lr=LEARNING_RATE, relative_step=False, scale_parameter=False)


MAKERS: Final[dict[str, Callable[[list[Any], dict[str, Any]], Any]]] = {
    "adamw": lambda p, job: torch.optim.AdamW(p, lr=LEARNING_RATE, **flags(job)),
    "sgd": lambda p, job: torch.optim.SGD(p, lr=LEARNING_RATE, **flags(job)),
    "sgd_momentum": lambda p, job: torch.optim.SGD(p, lr=LEARNING_RATE, momentum=0.9, **flags(job)),
    "adagrad": lambda p, job: torch.optim.Adagrad(p, lr=LEARNING_RATE, foreach=foreach(job)),
    "rmsprop": lambda p, job: torch.optim.RMSprop(p, lr=LEARNING_RATE, foreach=foreach(job)),
    "adafactor": _adafactor,
}
"""By the name that :func:`make_optimizer` takes."""
