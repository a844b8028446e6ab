"""Peaks of a step of preference training, with the loss functions of the trainers themselves.

usage: python bench/trace_preference.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``framework: trl``: methods of TRL's own trainers (``pip install trl``: DPO, KTO, ORPO, CPO with SimPO's loss), called
on a stand-in that has the attributes they read, over the model as accelerate wraps it. ``framework: llama-factory``:
``train/dpo/trainer.py`` and ``train/kto/trainer.py`` (0.9.4) replayed in plain torch.
Where code selects by a mask, everything is selected: completions are as long as the sequences.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter, scalars
from trace_steps import counted, stepped


class _Accelerator:
    """What the trainers ask of accelerate on one process."""

    device = torch.device("cpu")

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job

    def gather(self, tensor: Any) -> Any:
        """Of one process."""
        return tensor

    gather_for_metrics = gather
    unwrap_model = gather

    def autocast(self) -> Any:
        """The job's."""
        return running.autocast(self.job)


def wrapped(model: Any, job: dict[str, Any]) -> Any:
    """``Accelerator.prepare_model``: forward under autocast, its outputs in fp32."""
    from accelerate.utils import convert_outputs_to_fp32

    if job.get("autocast") in (None, "none"):
        return model
    inner = model.forward.__func__
    model.forward = MethodType(torch.autocast("cpu", dtype=building.DTYPES[job["autocast"]])(inner), model)
    model.forward = MethodType(convert_outputs_to_fp32(model.forward.__func__), model)
    return model


@contextmanager
def everything_selected() -> Any:
    """Indexing by a mask takes all of it; ``nonzero`` of labels takes one half."""
    tensor: Any = torch.Tensor
    plain, find = tensor.__getitem__, torch.nonzero

    def get(self: Any, index: Any) -> Any:
        if isinstance(index, torch.Tensor) and index.dtype == torch.bool:
            flat = self.reshape(-1, *self.shape[index.ndim :])
            return flat.clone() if flat.untyped_storage() is self.untyped_storage() or flat._base is not None else flat
        return plain(self, index)

    def put(self: Any, index: Any, value: Any) -> None:
        if isinstance(index, torch.Tensor) and index.dtype == torch.bool:
            self.masked_fill_(index, value)
        else:
            set_plain(self, index, value)

    set_plain = tensor.__setitem__
    tensor.__getitem__, tensor.__setitem__ = get, put
    torch.nonzero = lambda t, as_tuple=False: torch.arange(-(-len(t) // 2)).view(-1, 1)  # type: ignore[assignment]
    try:
        yield
    finally:
        tensor.__getitem__, tensor.__setitem__ = plain, set_plain
        torch.nonzero = find


def _stand_in(kind: Any, model: Any, reference: Any, job: dict[str, Any], **more: Any) -> Any:
    trainer = object.__new__(kind)
    trainer.__dict__.update(
        {
            **{"model": model, "ref_model": reference, "accelerator": _Accelerator(job), "beta": 0.1, "ld_alpha": None},
            **{"precompute_ref_logps": False, "aux_loss_enabled": False, "f_divergence_type": "reverse_kl"},
            **{"loss_types": ["sigmoid"], "loss_weights": [1.0], "use_weighting": False, "label_smoothing": 0.0},
            **{"_metrics": defaultdict(lambda: defaultdict(list)), "_total_train_tokens": 0, "calculate_KL": True},
            **{"args": SimpleNamespace(gradient_checkpointing_kwargs={"use_reentrant": False}), "_tp_size": 1},
            **{"is_encoder_decoder": False, "padding_value": 0, "pad_token_id": 0, "loss_type": "kto"},
            **{
                "desirable_weight": 1.0,
                "undesirable_weight": 1.0,
                "is_vision_model": False,
                "use_liger_kernel": False,
                **more,
            },
        }
    )
    return trainer


def _inputs(rows: int, length: int) -> dict[str, Any]:
    ids = running.token_ids(rows, length, "cpu")
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": torch.ones_like(ids)}


def trl_loss(model: Any, job: dict[str, Any], reference: Any) -> Any:
    """The loss as TRL's trainer for the objective computes it."""
    rows, length = job["micro_batch"], job["seq_len"]
    if job["objective"] == "dpo":
        from trl import DPOTrainer

        if hasattr(DPOTrainer, "concatenated_forward"):
            return _older(DPOTrainer, model, job, reference)
        return _stand_in(DPOTrainer, model, reference, job)._compute_loss(model, _inputs(2 * rows, length), False)
    if job["objective"] == "kto":
        from trl import KTOTrainer

        more = {f"KL_{name}": value for name, value in _inputs(rows, length).items()}
        batch = {**_inputs(rows, length), **more, "label": torch.ones(rows, dtype=torch.bool)}
        return _stand_in(KTOTrainer, model, reference, job)._compute_loss(model, batch, False)
    pairs: dict[str, Any] = {}
    for side in ("chosen", "rejected"):
        found = _inputs(rows, length)
        pairs |= {f"{side}_input_ids": found["input_ids"], f"{side}_attention_mask": found["attention_mask"]}
        pairs[f"{side}_labels"] = found["input_ids"].clone()
    if job["objective"] == "orpo":
        from trl.experimental.orpo import ORPOTrainer

        return _stand_in(ORPOTrainer, model, None, job).get_batch_loss_metrics(model, pairs)[0]
    from trl.experimental.cpo import CPOTrainer

    more = {"loss_type": "simpo", "cpo_alpha": 0.0, "simpo_gamma": 0.5, "alpha": 0.0}
    return _stand_in(CPOTrainer, model, None, job, **more).get_batch_loss_metrics(model, pairs)[0]


def _older(kind: Any, model: Any, job: dict[str, Any], reference: Any) -> Any:
    """TRL 0.12 to 0.29: prompts of one token, so that the lengths are the same."""
    import trl.trainer.dpo_trainer as module

    module.flush_left = lambda *tensors: tensors
    rows, length = job["micro_batch"], job["seq_len"]
    batch = {}
    for side, tokens in (("prompt", 1), ("chosen", length - 1), ("rejected", length - 1)):
        found = _inputs(rows, tokens)
        batch |= {f"{side}_input_ids": found["input_ids"], f"{side}_attention_mask": found["attention_mask"]}
    more = {"loss_type": ["sigmoid"], "loss_weights": None, "max_length": None, "use_logits_to_keep": False}
    trainer = _stand_in(kind, model, reference, job, **more, padding_free=False, reference_free=False, use_dpop=False)
    trainer._peft_has_been_casted_to_bf16 = trainer.use_num_logits_to_keep = False
    trainer.ref_adapter_name, trainer.model_adapter_name, trainer.truncation_mode = None, None, "keep_end"
    names = dict.fromkeys(("rpo_alpha", "ld_alpha", "use_liger_loss", "rpo_alpha"))
    trainer.args = SimpleNamespace(**names, f_divergence_type="reverse_kl")
    trainer.f_divergence_type, trainer.is_peft_model = "reverse_kl", reference is None
    return trainer.get_batch_loss_metrics(model, batch)[0]


def _logps(model: Any, job: dict[str, Any], rows: int) -> Any:
    ids = running.token_ids(rows, job["seq_len"], "cpu")
    with running.autocast(job):
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits.to(torch.float32)
        picked = torch.gather(logits[:, :-1, :].log_softmax(-1), dim=2, index=ids[:, 1:].clone().unsqueeze(2)).squeeze(
            2
        )
        return picked.sum(-1), logits


def factory_loss(model: Any, job: dict[str, Any], reference: Any) -> Any:
    """LLaMA-Factory's loss."""
    rows = job["micro_batch"]
    if job["objective"] == "kto":
        return _factory_kto(model, job, reference)
    policy, logits = _logps(model, job, 2 * rows)
    if job["objective"] == "dpo":
        with torch.no_grad(), model.disable_adapter() if reference is None else nullcontext():
            ref = _logps(reference or model, job, 2 * rows)[0]
        policy = policy - ref
    chosen, rejected = policy.split(rows)
    loss: Any = -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected))
    if job["objective"] == "orpo":
        loss = loss - chosen
    return (loss + 0 * logits.detach().mean()).mean()


def _factory_kto(model: Any, job: dict[str, Any], reference: Any) -> Any:
    def both(network: Any) -> Any:
        rows = job["micro_batch"]
        half = torch.arange(-(-rows // 2)), torch.arange(rows // 2)
        logps, logits = _logps(network, job, rows)
        with torch.no_grad():
            _logps(network, job, rows)
        return logps, [logits[i] for i in half]

    policy, logits = both(model)
    with torch.no_grad(), model.disable_adapter() if reference is None else nullcontext():
        ref, _ = both(reference or model)
    loss = 1 - torch.sigmoid(0.1 * (policy - ref))
    return loss.mean() + 0 * sum(x.detach().sum() for x in logits)


def trace(job: dict[str, Any]) -> dict[str, float]:
    """Peaks of the phases of the second step, in GiB."""
    model, reference = building.prepare(job), None
    paired = job["objective"] in ("dpo", "kto")
    if paired and not job.get("lora"):
        reference = building.build_model(job).eval().requires_grad_(False)
    with FakeTensorMode(allow_non_fake_inputs=True), everything_selected(), scalars():
        networks = [n for n in (model, reference) if n is not None]
        for network in networks:
            building.materialise(network, "cpu")
        if "trl" in job["framework"]:
            for network in networks:
                if _fused(job):
                    import trl.kernels.chunked_logprob as kernels
                    from trl.trainer.utils import add_fused_lm_head

                    # As on a GPU: Triton's kernels work in place, and cuBLAS adds products to fp32.
                    kernels._forward_tile = kernels._backward_tile = kernels._addmm_fp32 = lambda *a, **k: None

                    base = network.get_base_model() if hasattr(network, "get_base_model") else network
                    add_fused_lm_head(base, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
                wrapped(network, job)
        with Meter() as meter:
            loss = partial(trl_loss if "trl" in job["framework"] else factory_loss, model, job, reference)
            return stepped(meter, counted(meter, networks), model, job, loss)


def _fused(job: dict[str, Any]) -> bool:
    import trl

    return tuple(int(x) for x in trl.__version__.split(".")[:2]) >= (1, 15)


def main() -> int:
    for line in Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        try:
            row["measured"] = trace(row["job"])
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:300]
            if len(sys.argv) > 2:
                raise
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
