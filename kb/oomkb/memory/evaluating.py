"""An evaluation between steps: what a batch holds, and logits that are kept for metrics.

The Trainer asks for a loss, so that logits, their fp32 copy and its log-softmax stand at once. With ``compute_metrics``
the logits of all batches stay on the GPU until ``eval_accumulation_steps`` moves them (transformers 5.23,
``trainer.py``, ``evaluation_loop``; ``trainer_pt_utils.py``, ``EvalLoopContainer``): each batch, gathered from
all ranks, is joined to those before it in a new tensor. ``preprocess_logits_for_metrics`` makes them small before.
"""

from __future__ import annotations

import math

from oomkb.memory.job import Job
from oomkb.memory.lengths import typical_rows
from oomkb.memory.ranks import stated_count
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape


def evaluation_terms(job: Job, s: Setting, shape: ModelShape) -> dict[str, float]:
    """Terms of a batch at the fullest instant of an evaluation.

    Autocast caches its casts of trained fp32 weights without gradients as well, to the end of the forward pass.
    """
    d, c = shape.dims, s.compute_bytes
    rows = typical_rows(s.eval_batch) if s.loose else float(s.eval_batch)
    tokens = rows * s.seq / (s.cp * s.sp)
    words = tokens * d.vocab / s.tp
    cast = s.autocast and not s.adapters and s.param_bytes == 4
    matrices = shape.linear_params / s.tp / s.pp + d.vocab * d.embed_width / s.tp
    batches, logits = _kept(job, s), words * (4.0 if s.autocast else c)
    layer = tokens * (3 * d.ffn / s.tp + 5 * d.hidden) * c if not d.experts else 0.0
    passing = {
        "logits and loss": max(words * (c + 8), layer - tokens * d.hidden * c) + (batches - 1) * logits,
        "recomputed layer": tokens * d.hidden * c,
        "cast weights": matrices * c if cast else 0.0,
    }
    joining = 2 * batches * logits if batches > 1 else 0.0
    return passing if sum(passing.values()) >= joining else {"logits and loss": joining}


def _kept(job: Job, s: Setting) -> int:
    """Batches whose logits are on the GPU at once, the one in hand included."""
    stated = job.extra
    if not stated.get("compute_metrics") or stated.get("preprocess_logits_for_metrics"):
        return 1
    samples, steps = stated_count(job, "eval_samples"), stated_count(job, "eval_accumulation_steps")
    counts = [math.ceil(samples / s.eval_batch)] if samples is not None else []
    # What is kept was gathered from all ranks before.
    counts += [steps * s.dp] if steps is not None else []
    return max(1, min(counts, default=1))
