"""What the logits of an evaluation take, where they are kept until its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, say
from oomkb.frameworks import has
from oomkb.units import GIB

_LOGIT_BYTES: Final = 4
"""Models return fp32 logits for the loss (transformers ``loss/loss_utils.py``); bf16 ones take half."""


def kept_logits(view: View) -> Iterator[Message]:
    """One sample's logits and those of all samples, for a run that fails while it evaluates.

    transformers ``trainer.py``, ``evaluation_loop``: without ``prediction_loss_only`` or
    ``preprocess_logits_for_metrics`` the logits of every batch stay on the card, with ``eval_accumulation_steps`` in
    host memory.
    """
    length = view.stated("seq_len")
    framework = view.job.framework
    if view.phase != "eval" or view.shape is None or not length or not view.is_stated("model"):
        return
    if framework is not None and not has(framework, "eval"):
        return
    each = float(length) * view.shape.dims.vocab * _LOGIT_BYTES
    sizes = {"length": int(length), "vocab": view.shape.dims.vocab, "each_bytes": each}
    yield say("answer.eval-logits", **sizes)
    count = next((s.data["count"] for s in view.evidence.find("samples-counted")), None)
    if count is None:
        return
    host = (view.job.host_gib or 0.0) * GIB
    key = "answer.eval-all-beyond" if 0 < host < count * each else "answer.eval-all"
    yield say(key, count=count, all_bytes=count * each, host_bytes=host)
