"""Sums that prove a training run's weights, gradients and optimizer states: what a card holds of them against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from oomdoc.diagnosis.accounts import Account, account_of
from oomdoc.diagnosis.result import CauseFinding
from oomdoc.diagnosis.view import View
from oomdoc.messages import say

_LEAST_STATES: Final = 4
"""Bytes per parameter of a weight and its gradient in 16 bits."""
_ALMOST: Final = 0.93
"""Share of a card that weights may take so that nothing which is computed fits beside them."""
_FAR_FROM_FULL: Final = 0.85
_EQUAL: Final = 0.01
"""Part by which two sizes of one thing may differ."""


def second_copy(view: View) -> Iterator[Account]:
    """DistributedDataParallel, when it is made, asks for its gradient buckets: all of the weights once more."""
    wanted, held = view.bytes_of("requested"), view.bytes_of("allocated")
    if wanted and held and "_ddp_init_helper" in view.trace and abs(wanted - held) <= _EQUAL * held:
        yield from account_of(view, "model-states", "second-copy", {"weight_bytes": held})


def gathered_whole(view: View) -> Iterator[Account]:
    """FSDP gathers the whole model at once: it was wrapped as one unit (torch ``distributed/fsdp/_flat_param.py``,
    ``_alloc_padded_unsharded_flat_param``), so that what is sharded saves nothing while it computes.
    """
    wanted = view.bytes_of("requested")
    if not wanted or view.estimate is None or "_unsharded_flat_param" not in view.trace:
        return
    if any(abs(wanted - width * view.estimate.params) <= _EQUAL * wanted for width in (2.0, 4.0)):
        yield from account_of(view, "zero3-gather", "gathered-whole", {"weight_bytes": wanted})


def _whole_on_a_card(view: View) -> bool:
    """Whether a named model is trained with all of its weights on one card, past loading and before saving."""
    job = view.job
    split = job.sharding not in (None, "none", "ddp") or job.offload or (job.tp or 1) * (job.pp or 1) > 1
    named = view.is_stated("model") or view.is_stated("params_b")
    return named and not split and view.phase not in ("load", "eval", "save")


def states_alone(view: View) -> Iterator[Account]:
    """Weights and gradients in 16 bits, whole on one card, are more than the card: no other setting changes that."""
    failure, capacity = view.failure, view.bytes_of("capacity")
    if failure is None or failure.kind != "device" or not capacity or view.estimate is None or view.serving:
        return
    if view.stated("method") != "full" or not _whole_on_a_card(view):
        return
    least = _LEAST_STATES * view.estimate.params
    loaded = (view.bytes_of("allocated") or capacity) >= least / 2  # else they are split, or not those of this model
    if least > capacity and loaded:
        yield from account_of(view, "model-states", "states-alone", {"states_bytes": least, "capacity_bytes": capacity})


def states_created(view: View) -> Iterator[Account]:
    """The failing line makes the optimizer's states, and with them a card holds more than it has.

    torch ``optim/adamw.py``, TransformerEngine and apex ``fused_adam.py``, DeepSpeed ``zero/stage_1_and_2.py``,
    bitsandbytes ``optim/optimizer.py``.
    """
    capacity, states = view.bytes_of("capacity"), view.state_bytes
    if view.failure is None or not capacity or states is None or states <= capacity or view.serving:
        return
    innermost = view.trace.rpartition("\n")[2]
    if view.phase in ("optimizer-init", "optimizer-step") and any(name in innermost for name in _MAKES_STATES):
        yield from account_of(view, "optimizer-init", "states", {"states_bytes": states, "capacity_bytes": capacity})


_MAKES_STATES: Final = ("exp_avg", "_init_group", "initialize_optimizer_states", "init_state")


def states_of_a_rank(view: View) -> Iterator[Account]:
    """What each rank of a model that is split over several keeps of its part, whole, is more than the card."""
    failure, capacity, job, states = view.failure, view.bytes_of("capacity"), view.job, view.state_bytes
    if failure is None or failure.kind != "device" or not capacity or states is None or not view.evidence.documents:
        return
    split = (job.tp or 1) * (job.pp or 1) > 1 and not (job.ep or 1) > 1 and job.sharding in (None, "none", "ddp")
    if not split or job.method != "full" or job.offload or view.phase in ("load", "eval", "save"):
        return
    filled = (view.bytes_of("allocated") or 0) >= _FAR_FROM_FULL * capacity
    if states >= _PLAINLY_MORE * capacity and filled:
        sizes = {"states_bytes": states, "capacity_bytes": capacity}
        yield from account_of(view, "model-states", "states-of-rank", sizes)


_PLAINLY_MORE: Final = 1.25
"""Of a card: states that the arithmetic has at so much are more than it, however little it may be off."""


def frozen_alone(view: View) -> Iterator[Account]:
    """The weights of a model with adapters, whole on one card, leave no room for anything that is computed."""
    capacity, job, held = view.bytes_of("capacity"), view.job, view.bytes_of("allocated")
    if view.failure is None or not capacity or view.serving or not _whole_on_a_card(view):
        return
    if job.method not in ("lora", "freeze") or job.rollout is not None:
        return
    if view.weight_bytes >= _ALMOST * capacity and (held or capacity) >= _ALMOST * view.weight_bytes:
        sizes = {"weight_bytes": view.weight_bytes, "capacity_bytes": capacity}
        yield from account_of(view, "model-states", "frozen-alone", sizes)


def with_states(view: View, causes: tuple[CauseFinding, ...]) -> tuple[CauseFinding, ...]:
    """With the sum of the states among the first cause's reasons, where they are more than the card has."""
    states, capacity = view.state_bytes, view.bytes_of("capacity")
    if not causes or causes[0].cause not in _OF_STATES or not states or not capacity or states <= capacity:
        return causes
    first, said = causes[0], say("account.states", states_bytes=states, capacity_bytes=capacity)
    if any(why.key.startswith("account.") for why in first.why[:1]):
        return causes
    others = (why for why in first.why if why.key != "feature.states")
    return (replace(first, why=(said, *others)), *causes[1:])


_OF_STATES: Final = frozenset({"model-states", "optimizer-init"})
