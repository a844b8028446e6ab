"""A PPO step of policy and critic, both trained as a whole on one device, without a GPU.

usage: python bench/trace_ppo.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``framework: trl``: the inner loop of TRL's PPO trainer (``trl/experimental/ppo/ppo_trainer.py`` before 1.16, where it
has gone): the critic's pass, then the policy's, one loss, one backward pass, one optimizer; outputs live until the
step is over. Others: verl's two updates one after the other (``workers/actor/dp_actor.py``, ``dp_critic.py``), each
with its own optimizer; a phase's peak is the larger of both. Sequences are completions but for their first token.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter, scalars
from trace_steps import counted, stepped, traced


class _Both(torch.nn.Module):
    def __init__(self, policy: Any, critic: Any) -> None:
        super().__init__()
        self.policy, self.critic = policy, critic


def critic_of(job: dict[str, Any]) -> Any:
    """A model with one number a token for an output."""
    from transformers import AutoModelForTokenClassification

    extra = next(m for m in job["extra_models"] if m["role"] == "critic")
    config = building.build_config(extra.get("model") or job["model"])
    config.num_labels, config.use_cache = 1, False
    config.classifier_dropout = 0.0
    make: Any = AutoModelForTokenClassification.from_config
    with torch.device("meta"):
        model = make(config, attn_implementation="sdpa", dtype=building.DTYPES[job["param_dtype"]])
    if job.get("grad_ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def _picked(logits: Any, ids: Any) -> Any:
    """Row by row (``selective_log_softmax``, ``logprobs_from_logits_v2``)."""
    if logits.dtype == torch.float32:
        picked = torch.gather(logits, dim=-1, index=ids.unsqueeze(-1)).squeeze(-1)
        return picked - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    found = []
    for row, labels in zip(logits, ids, strict=True):
        found.append(torch.log_softmax(row, dim=-1).gather(dim=-1, index=labels.unsqueeze(-1)).squeeze(-1))
    return torch.stack(found)


def _clipped(logps: Any) -> Any:
    ratio = torch.exp(logps - logps.detach())
    return torch.max(-ratio, -torch.clamp(ratio, 0.8, 1.2)).mean()


def _valued(values: Any) -> Any:
    old = values.detach()
    clipped = torch.clamp(values, old - 0.2, old + 0.2)
    return 0.5 * torch.max(torch.square(values - 1), torch.square(clipped - 1)).mean()


def _inputs(job: dict[str, Any]) -> dict[str, Any]:
    ids = running.token_ids(job["micro_batch"], job["seq_len"], "cpu")
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}


def _joint(both: Any, job: dict[str, Any]) -> Any:
    inputs = _inputs(job) | {"output_hidden_states": True}

    def passes() -> Any:
        output = both.critic.model(**inputs)
        values = both.critic.score(output.hidden_states[-1])
        return both.policy(**inputs), values

    with running.autocast(job):
        output, values = passes()
    logits = output.logits[:, :-1]
    logits /= 0.7
    loss = _clipped(_picked(logits, inputs["input_ids"][:, 1:])) + 0.1 * _valued(values[:, :-1].squeeze(-1))
    return loss, (output, logits)


def _policy(model: Any, job: dict[str, Any]) -> Any:
    inputs = _inputs(job)
    with running.autocast(job):
        logits = model(**inputs).logits
        logits.div_(0.7)
        return _clipped(_picked(logits[:, :-1], inputs["input_ids"][:, 1:]))


def _critic(model: Any, job: dict[str, Any]) -> Any:
    with running.autocast(job):
        return _valued(model(**_inputs(job)).logits[:, :-1].squeeze(-1))


def trace(job: dict[str, Any]) -> dict[str, float]:
    """Peaks by phase, in GiB."""
    policy, critic = building.prepare(job), critic_of(job)
    with FakeTensorMode(allow_non_fake_inputs=True), scalars():
        for network in (policy, critic):
            building.materialise(network, "cpu")
        with Meter() as meter:
            row = counted(meter, (policy, critic))
            if "trl" in job["framework"]:
                both = _Both(policy, critic)
                return stepped(meter, row, both, job, lambda: _joint(both, job))
            return _alternating(meter, row, policy, critic, job)


def _alternating(meter: Meter, row: dict[str, int], policy: Any, critic: Any, job: dict[str, Any]) -> dict[str, float]:
    found = []
    keep: list[Any] = []  # optimizers live on
    plain = running.make_optimizer

    def kept(params: Any, job: dict[str, Any]) -> Any:
        keep.append(plain(params, job))
        return keep[-1]

    running.make_optimizer = kept
    # The critic's states are there before the policy's step is counted, and the other way round.
    for network, loss in ((critic, _critic), (policy, _policy), (critic, _critic)):
        if network is critic and keep:
            running.make_optimizer = lambda params, job: keep[0]
        found.append(stepped(meter, dict(row), network, job, lambda network=network, loss=loss: loss(network, job)))
    running.make_optimizer = plain
    return {name: max(one[name] for one in found[1:]) for name in found[0]}


if __name__ == "__main__":
    sys.exit(traced(trace))
