"""Rules for the roles of reinforcement learning: which models there are, and on how many GPUs each stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from oomdoc.intake.configs.codecs import MODEL
from oomdoc.intake.configs.rules import present
from oomdoc.intake.configs.table import Group, Reading, View
from oomdoc.intake.configs.values import flag, whole

Options = Mapping[str, tuple[str, ...]]
_SECTIONS: Final = frozenset(["actor", "data", "ds", "model", "rollout", "train"])


def roles_on_gpus(engines: tuple[str, ...], _: Options) -> Group:
    """Actor, critic, reference and reward on GPUs of their own, as ``--actor_num_gpus_per_node`` places them.

    Those that are not placed together add up (``colocate_actor_ref``, ``colocate_all_models``), engines among them.
    """

    def of(view: View, role: str, name: str) -> int:
        return whole(view.value(f"{role}_{name}", f"{role}.{name}")) or 0

    def gpus(view: View, role: str) -> int:
        return of(view, role, "num_gpus_per_node") * (of(view, role, "num_nodes") or 1)

    def on(view: View, *names: str) -> bool:
        return bool(flag(view.value(*names) or False))

    def total(view: View) -> int:
        actor, critic, reference, reward = (gpus(view, role) for role in ("actor", "critic", "ref", "reward"))
        if on(view, *together):
            return actor
        first = max(actor, reference) if on(view, *beside) else actor + reference
        second = (
            max(critic, reward)
            if on(view, "colocate_critic_reward", "train.colocate_critic_reward")
            else critic + reward
        )
        return (
            first
            + second
            + sum(of(view, e, "num_engines") * (of(view, e, "tensor_parallel_size") or 1) for e in engines)
        )

    together, beside = ("colocate_all_models", "train.colocate_all"), ("colocate_actor_ref", "train.colocate_actor_ref")

    def read(view: View) -> Iterator[Reading]:
        per_node = view.first("actor_num_gpus_per_node", "actor.num_gpus_per_node")
        nodes = view.first("actor_num_nodes", "actor.num_nodes")
        if per_node and whole(view[per_node].value):
            yield "gpus", whole(view[per_node].value), view[per_node]
        if per_node:
            yield "gpu_count", total(view), view[per_node]
            if any(gpus(view, role) for role in ("ref", "reward", "critic")) and not on(view, *together):
                yield "extra_models", [{"role": "reference"}] if on(view, *beside) else [], view[per_node]
        if nodes and whole(view[nodes].value):
            yield "nodes", whole(view[nodes].value), view[nodes]

    def write(view: View, field: str, value: Any) -> dict[str, Any] | None:
        name = {"gpus": "num_gpus_per_node", "nodes": "num_nodes"}.get(field)
        if name is None or not (view.has_any(placed) or "ppo" in view.programs):
            return None
        return {present(view, (f"actor_{name}", f"actor.{name}"), _SECTIONS): value}

    placed = frozenset(f"{role}{mark}num_gpus_per_node" for role in ("actor", "critic", "ref") for mark in "_.")
    names = tuple(f"actor{mark}{name}" for mark in "_." for name in ("num_gpus_per_node", "num_nodes"))
    return Group(("gpus", "nodes", "extra_models"), names, read, write)


_CRITICS: Final = ("gae", "None")
"""Estimators of an advantage that need a critic; one that is not named is the first."""


def models_of_roles(_words: tuple[str, ...], _: Options) -> Group:
    """Critic, reference and reward model beside the actor, each with its own section (verl).

    A reference is there where a divergence from it is computed. Where no switch for that is named at all, but the
    reference is configured, it is a release that always has one (verl before 0.2, and what was made of it).
    """
    estimator, switches = "algorithm.adv_estimator", ("actor.use_kl_loss", "algorithm.use_kl_in_reward")

    def on(view: View, *names: str) -> bool:
        return any(bool(flag(view[name].value)) for name in names if name in view)

    def beside(view: View, role: str) -> dict[str, Any]:
        model = MODEL.read(view.value(f"{role}.model.path"))
        offloads = on(view, f"{role}.fsdp_config.param_offload", f"{role}.model.fsdp_config.param_offload")
        name = model.rsplit("/", 1)[-1] if model and model[0] in "/~." else model
        return ({"model": name} if name else {}) | ({"offload": True} if offloads else {})

    def read(view: View) -> Iterator[Reading]:
        named = view.first(estimator, "critic.model.path")
        if named is None:
            return
        kind, silent = str(view.value(estimator)), not any(name in view for name in switches)
        reward, critic = on(view, "reward_model.enable"), kind in _CRITICS
        reference = on(view, *switches) or (silent and critic and bool(beside(view, "ref")))
        if silent and not critic and not reward:
            return
        out = [{"role": "critic", **beside(view, "critic")}] if critic else []
        out += [{"role": "reference", "offload": True}] if reference or (silent and not critic) else []
        out += [{"role": "reward", **beside(view, "reward_model")}] if reward else []
        yield "extra_models", out, view[named]

    names = (*switches, estimator, "critic.model.path")
    return Group(("extra_models",), names, read, lambda _view, _name, _value: None)
