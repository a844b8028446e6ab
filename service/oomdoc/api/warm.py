"""What a server does before its first request, so that no request waits for it."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final

from oomdoc.api.tasks import reported, run_task

_LOG: Final = logging.getLogger("oomdoc.service")

_MODELS: Final = ("Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B", "google/gemma-2-9b")
_METHODS: Final = ("lora", "full", "qlora")
COLLECT_AFTER: Final = (20_000, 1_000, 50)
"""A diagnosis makes some ten thousand objects that live for its time and next to no cycles among them. What is older
lies in caches: going over it held one request in two hundred up for 140 ms and found nothing."""


def warm() -> None:
    """Do each task once before the first request: it loads what all further ones of its kind use.

    A worker whose first conversation loaded the topics of questions took a second for it, counted as slow, and made
    room for one that had not loaded them either.
    """
    _done(_tasks())


def price_common_jobs() -> None:
    """Beside the first requests, play the steps that most reports tell of: each costs 5 ms the first time."""
    _done(_diagnosis(_report(model, method)) for model, method in product(_MODELS, _METHODS))
    gc.freeze()


_Task = tuple[str, dict[str, Any], bytes]
_QUESTION: Final = "What is gradient checkpointing, and does LoRA of Qwen2.5-7B fit on one RTX 4090 with seq 4096?"

_CONCEPT: Final = "What is gradient checkpointing?"
"""No run answers it: topics are looked for."""
_ASKED_IN_CHINESE: Final = "用一张 4090 对 Qwen2.5-7B 做 LoRA 微调，序列长度 4096，会爆显存吗？"


def _tasks() -> Iterator[_Task]:
    """At least one of every kind that :data:`oomdoc.api.tasks.TASKS` has."""
    log, job = _report("Qwen/Qwen2.5-7B", "lora"), {"model": "Qwen/Qwen2.5-7B", "gpu": "RTX 4090"}
    for text in (log, _QUESTION, _CONCEPT):
        yield _diagnosis(text)
    yield "questions", {"kind": "text/plain", "style": "full", "context_tokens": 8192}, log.encode()
    yield "estimate", {}, json.dumps({"job": job}).encode()
    yield "plan", {"text": "", "filename": "", "job": job, "lang": "en"}, b""
    yield "search", {"text": "CUDA out of memory", "top": 1, "lang": "auto"}, b""
    for text in (_QUESTION, _ASKED_IN_CHINESE):
        yield "turn", {"session": None, "text": text}, b""
    yield "tool", {"name": "estimate", "arguments": {"job": job}}, b""
    yield "case-problems", {"id": "leak/none", "yaml": "schema: 1\n"}, b""


def _diagnosis(text: str) -> _Task:
    return "diagnosis", {"kind": "text/plain"}, text.encode()


def _done(tasks: Iterable[_Task]) -> None:
    for task, arguments, blob in tasks:
        try:
            reported(run_task(task, arguments, blob))
        except Exception:  # the server starts all the same: /readyz says what is wrong
            _LOG.exception("warm-up failed")


def _report(model: str, method: str) -> str:
    return (
        f"accelerate launch --num_processes 2 train.py --model_name_or_path {model}\n"
        f"method: {method}\nper_device_train_batch_size: 4\ncutoff_len: 4096\n"
        "NVIDIA GeForce RTX 4090, torch==2.4.0, transformers==4.45.0\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. "
        "GPU 0 has a total capacity of 23.64 GiB of which 0.50 GiB is free."
    )


@contextlib.contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep the collector from going over the cases and catalogues again and again: they stay as long as the server.

    A full collection over them held a request up for 95 ms, and all collections took 5 % of the time.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
