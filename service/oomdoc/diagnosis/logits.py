"""What a failure tells of logits: whole ones where a fused loss was assumed, and those that an evaluation keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import IMPLIED, Inferred
from oomdoc.diagnosis.tensors import Scene, tensors_for
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence, Message, say
from oomkb.frameworks import has
from oomkb.kept import lazy
from oomkb.memory.job import Assumption, Job
from oomkb.pricing import Priced, price_if_possible
from oomkb.units import GIB

_LOGIT_BYTES: Final = 4
"""Models return fp32 logits for the loss (transformers ``loss/loss_utils.py``); bf16 ones take half."""
_GATHERED: Final = lazy(r"nested_concat|all_preds|torch_pad_and_concatenate")
"""Functions of transformers' Trainer that join the outputs of an evaluation's batches."""
_LEAST_MATCH: Final = 0.9
"""Probability from which a request is taken to be the logits."""


def with_whole_logits(evidence: Evidence, job: Job, priced: Priced) -> tuple[Job, Priced, Inferred] | None:
    """The run with whole logits, where a framework's default is a fused loss and a copy of the logits was asked for."""
    failure, completed = evidence.root, priced.job
    if failure is None or failure.kind != "device" or not failure.requested_bytes or completed.objective == "inference":
        return None
    implied = _implied(job, priced, failure.requested_bytes)
    if (not completed.fused_ce or "fused_ce" not in completed.assumed) and not implied:
        return None
    scene = Scene(phase=failure.phase, allocated_bytes=failure.allocated_bytes, made_up=job.model is None)
    matches = tensors_for(failure.requested_bytes, priced.shape, completed.with_fields(implied), scene)
    if not matches or matches[0].cause != "logits" or matches[0].match < _LEAST_MATCH:
        return None
    whole = job.assuming({n: Assumption(v, IMPLIED) for n, v in ({"fused_ce": False} | implied).items()})
    if (found := price_if_possible(whole)) is None:
        return None
    why = say("inferred.whole-logits", asked_bytes=failure.requested_bytes)
    return whole, found, Inferred("fused_ce", value=False, probability=matches[0].match, why=why)


def _implied(job: Job, priced: Priced, requested_bytes: float) -> dict[str, int]:
    """The micro-batch that a request for whole fp32 logits means, where the length is stated and the batch is not."""
    completed = priced.job
    if job.micro_batch is not None or job.seq_len is None or (completed.cp or 1) > 1 or (completed.tp or 1) > 1:
        return {}
    samples = requested_bytes / (_LOGIT_BYTES * priced.shape.dims.vocab * job.seq_len)
    batch = round(samples)
    near = 1 <= batch <= _MAX_BATCH and abs(samples - batch) <= _NEAR * batch
    return {"micro_batch": batch} if near and batch != completed.micro_batch else {}


_MAX_BATCH: Final = 64
_NEAR: Final = 0.003
"""Share by which a request may differ from a whole number of samples' logits: the last token has none."""


def kept_logits(view: View) -> Iterator[Message]:
    """One sample's logits and those of all samples, for a run that fails while it evaluates.

    transformers ``trainer.py``, ``evaluation_loop``: without ``prediction_loss_only`` or
    ``preprocess_logits_for_metrics`` the logits of every batch stay on the card, with ``eval_accumulation_steps`` in
    host memory.
    """
    length = view.stated("seq_len")
    framework = view.job.framework
    if view.phase != "eval":
        return
    if view.shape is None or not length or not view.is_stated("model"):
        if _GATHERED.search(view.trace):
            yield say("answer.eval-kept")
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
