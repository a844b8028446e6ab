"""Changes as a person sees them: their own key, the old value and the new, what it saves alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from oomdoc.diagnosis.fixes import Remedy, Variant
from oomdoc.diagnosis.fixes._remedy import as_written, is_script, is_serving
from oomdoc.diagnosis.forms import needed_of
from oomdoc.diagnosis.planning.moves import GOALS, Move, _differs, of_moves, of_speed
from oomdoc.diagnosis.planning.prices import Price, Prices
from oomdoc.diagnosis.planning.spelling import DASHED, has_keys, key_of, names_of, own_words, spelled, value_of
from oomdoc.diagnosis.result import Change, SingleFix
from oomdoc.evidence import Message, say
from oomdoc.intake.configs.table import DROP
from oomkb.frameworks import line, supports
from oomkb.memory.job import Job

# The field that names a change when it sets several.
_FIRST: Final = (
    *("micro_batch", "completion_len", "seq_len", "sharding", "method", "offload"),
    *("world", "tp", "gpu", "rollout.colocated"),
)
_ALONG: Final = ("prompt_len", "serving.max_num_batched_tokens")
_CLEARED: Final = frozenset({"dp", "capacity_gib"})


def plain(value: Any) -> Any:
    """A job value as JSON would have it."""
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        named = {n: getattr(value, n) for n in value.__dataclass_fields__}
        return {k: plain(v) for k, v in named.items() if v is not None}
    return value


def _leading(fields: Mapping[str, Any], job: Job) -> str:
    first = ("tp", *_FIRST) if is_serving(job) else _FIRST
    return next((n for n in first if n in fields), next(iter(fields)))


_CONTEXT: Final = {"lm-studio": "Context Length"}


def worded(before: Job, after: Job, name: str, new: Any) -> list[tuple[str, Any, Any]]:
    """Keys with old and new values as the framework has them; a server's switch says what is off."""
    old, framework = before.get(name), before.framework
    key = line(framework, "no-graphs")
    if name == "serving.cuda_graphs" and key is not None and isinstance(new, bool):
        return [(key, False if old is None else not old, not new)]
    context = line(framework, "context") or _CONTEXT.get(framework or "")
    if name == "serving.max_model_len" and context is not None:
        return [(context, old, new)]
    if name.startswith("buckets.") and framework != "deepspeed":
        return [(f"zero_optimization.{name.partition('.')[2]}", old, plain(new))]
    more = set(new or ()) - set(old or ()) if name == "offload" else set()
    switch = line(framework, "offload-activations")
    if more == {"activations"} and switch is not None:
        return [(switch, False, True)]
    if (name in _COMPOSITE or framework in _WHOLE_PATHS) and (new or name != "offload"):
        return _composite(before, after, name, old, new)
    own = [(key, word) for key, word in own_words(framework, name, new) if word is not DROP]
    if not (after.sharding or "").startswith(("fsdp", "hsdp")) and any(key.startswith("fsdp") for key, _ in own):
        own = []  # the plain key says it
    if own and name in _OWN_WORDS:
        said = own_words(framework, name, old) if old is not None else ()
        was = {key: word for key, word in said if word is not DROP}
        dashed = framework in DASHED
        return [(f"--{key}" if dashed and "." not in key else key, was.get(key), word) for key, word in own]
    return [(key_of(framework, name), _written(before, name, old), _written(before, name, new))]


_OWN_WORDS: Final = frozenset({"grad_ckpt", "attention", "fused_ce", "sp", "serving.cuda_graphs", "serving.kv_dtype"})
"""Fields for which frameworks have a switch or a word of their own (``disable_gradient_checkpointing``, ``fa2``)."""
_COMPOSITE: Final = frozenset(
    ["optimizer", "optimizer_impl", "sharding", "offload", "method", "quant", "param_dtype", "autocast"]
)


_WHOLE_PATHS: Final = frozenset({"verl"})
"""Frameworks whose keys are paths: the last parts alone name several settings."""


def _composite(before: Job, after: Job, name: str, old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    """What a framework says with several keys, or with words of its own."""
    words = spelled(before.framework, name, plain(new), sharding=after.sharding)
    was = dict(spelled(before.framework, name, plain(old), sharding=before.sharding)) if old else {}
    said = [(key, was.get(key), value) for key, value in words if was.get(key) != value]
    return said or [(key_of(before.framework, name), _written(before, name, old), _written(before, name, new))]


def _written(job: Job, name: str, value: Any) -> Any:
    return value_of(job.framework, name, value) if isinstance(value, str) else plain(value)


def changes_of(before: Job, after: Job, moves: tuple[Move, ...], prices: Prices) -> tuple[Change, ...]:
    """One change per remedy, and what follows from it (accumulation raised to keep the global batch)."""
    out: list[Change] = []
    shown: set[str] = set()
    for move in moves:
        for remedy, variant in move.all_parts:
            fields = {n: plain(after.get(n)) for n in variant.fields if n not in _CLEARED and n not in shown}
            fields = {n: v for n, v in fields.items() if v != plain(before.get(n))}
            alone = prices.of(variant.fields)
            if fields:
                shown |= set(fields)
                out += _change(before, after, remedy, variant, fields, saved_bytes(prices, remedy, alone))
    # Where the global batch is the setting, accumulation follows by itself and has no key.
    own = supports(before.framework, "grad_accum") and key_of(before.framework, "grad_accum") != "grad_accum"
    if own and after.grad_accum != before.grad_accum and after.grad_accum is not None:
        out.append(
            Change(
                remedy="micro-batch",
                key=key_of(before.framework, "grad_accum"),
                old=before.grad_accum,
                new=after.grad_accum,
                fields={"grad_accum": after.grad_accum},
            )
        )
    return tuple(_merged(out))


def _merged(changes: list[Change]) -> list[Change]:
    """One change a key: ZeRO-3 and then its offload are one other file."""
    once: dict[str, Change] = {}
    for change in changes:
        name = change.key if change.instruction is None else repr(change.instruction)
        earlier = once.get(name)
        if earlier is None or earlier.new == change.new:
            once[name] = change
            continue
        fields = {**earlier.fields, **change.fields}
        saves = max(earlier.saves_bytes, change.saves_bytes)
        once[name] = replace(change, old=earlier.old, saves_bytes=saves, fields=fields)
    return list(once.values())


def saved_bytes(prices: Prices, remedy: Remedy, alone: Price | None) -> int:
    """What a remedy saves alone."""
    # A larger card saves nothing: it has more.
    if alone is None or remedy.name == "other-gpu":
        return 0
    phases = [price.estimate.phases.get(prices.failed_phase or "") for price in (prices.base, alone)]
    if phases[0] is not None and phases[1] is not None:
        return round(phases[0].total_bytes - phases[1].total_bytes)
    served = prices.base.estimate.served
    lacks = served is not None and not served.starts
    paged = any((p.job.optimizer or "").startswith("paged") for p in (prices.base, alone))
    before, after = (_need(p, needed=lacks or paged) for p in (prices.base, alone))
    return round(before - after)


def _need(price: Price, *, needed: bool) -> float:
    """What the card must hold: an engine without room for its cache takes its share all the same, and paged states
    take what is left.
    """
    return (price.estimate.needed_bytes if needed else None) or price.estimate.process_bytes


def _change(
    before: Job, after: Job, remedy: Remedy, variant: Variant, fields: Mapping[str, Any], saves: int
) -> list[Change]:
    """The change under its leading key, and the further keys that say it with the first."""
    name = _leading(fields, before)
    first, *further = worded(before, after, name, fields[name])
    key, old, new = first
    leading = Change(
        remedy=remedy.name,
        key=key,
        old=old,
        new=new,
        saves_bytes=saves,
        instruction=_instruction(variant),
        fields=dict(fields),
    )
    if leading.instruction is not None:
        return [leading]
    more = [(w, dict(fields)) for w in further]
    if is_serving(before):  # limits that go down together
        along = [n for n in _ALONG if n in fields and n != name]
        more += [(w, {n: fields[n]}) for n in along for w in worded(before, after, n, fields[n])]
    return [leading, *(Change(remedy=remedy.name, key=k, old=o, new=n, fields=f) for (k, o, n), f in more)]


_OF_DEEPSPEED: Final = "zero_optimization."
"""How keys of DeepSpeed's own configuration begin, whatever program reads it."""


def words_for(job: Job, key: str, old: Any, new: Any, *, own: bool) -> str | None:
    """The sentence that names a setting: by the key of transformers as an example, or without one; ``None`` where the
    key alone says it.

    :param own: whether the framework has the key.
    """
    server = is_serving(job) and not is_script(job)
    if server or key.startswith(_OF_DEEPSPEED) or (own and "framework" not in job.assumed):
        return None
    counted = old is not None and not isinstance(new, bool | str)
    return "fixes.in-words.named" if own else f"fixes.in-words.{'counted' if counted else 'alone'}"


def in_words(change: Change, job: Job, typed: bool, *, titled: bool = True) -> Change:
    """A change in words where neither the framework nor the person has a key that would say it.

    A run that is only taken for one of plain transformers is shown that library's key beside the words.

    :param typed: whether the key is the person's own.
    :param titled: whether the remedy is named; of several keys of one remedy the first alone says it.
    """
    name = next(iter(change.fields), "")
    own = has_keys(job.framework) and (change.key != name or name in names_of(job.framework, name))
    before = None if name in job.assumed else change.old
    words = words_for(job, change.key, before, change.new, own=own)
    if typed or change.instruction is not None or words is None:
        return change
    old, new = (as_written(v) if isinstance(v, bool) else v for v in (before, change.new))
    line = f"{change.key}: {new}" if old is None else f"{change.key}: {old} → {new}"
    words = "fixes.in-words.further" if own and not titled else words
    title = say(f"fixes.{change.remedy}.title")
    return replace(change, instruction=say(words, title=title, line=line, old=old, new=new))


def _instruction(variant: Variant) -> Message | None:
    first = variant.notes[0] if variant.notes else None
    return first if first is not None and is_instruction(first) else None


def is_instruction(note: Message) -> bool:
    """Whether a variant's note takes the place of its key and value."""
    return note.key.rpartition(".")[2].startswith("how")


def single_fix(before: Job, move: Move, price: Price, prices: Prices, fits: bool | None) -> SingleFix:
    """What one move alone does."""
    fields = {
        n: plain(price.job.get(n)) for n in move.fields if n not in _CLEARED and _differs(before, n, move.fields[n])
    }
    if (
        "micro_batch" in fields
        and supports(before.framework, "grad_accum")
        and price.job.grad_accum != before.grad_accum
    ):
        fields["grad_accum"] = price.job.grad_accum
    name = _leading(fields or move.fields, before)
    key, old, new = worded(before, price.job, name, price.job.get(name))[0]
    change = Change(
        remedy=move.remedy.name,
        key=key,
        old=old,
        new=new,
        saves_bytes=saved_bytes(prices, move.remedy, price),
        instruction=_instruction(move.variant),
        fields=fields,
    )
    return _alone(change, prices, price, fits, of_moves([move], _PLAIN) + of_speed(price.speed, _PLAIN))


_PLAIN: Final = next(g for g in GOALS if g.name == "keep-hardware")


def _alone(change: Change, prices: Prices, price: Price, fits: bool | None, cost: float = 0.0) -> SingleFix:
    likely = None if prices.capacity_bytes is None else price.probability
    return SingleFix(change, round(needed_of(price.estimate)), fits, likely, cost)


def fewer_steps(prices: Prices, wanted: float) -> SingleFix | None:
    """What the common advice to accumulate fewer steps does alone: steps come one after the other, so next to nothing.

    ``None`` where nothing is accumulated, or the framework has no such key.
    """
    job = prices.job
    counted = (job.grad_accum or 1) > 1 and supports(job.framework, "grad_accum")
    price = prices.of({"grad_accum": 1}) if counted else None
    if price is None:
        return None
    change = Change(
        remedy="grad-accum",
        key=key_of(job.framework, "grad_accum"),
        old=job.grad_accum,
        new=1,
        saves_bytes=max(0, round(prices.base.estimate.process_bytes - price.estimate.process_bytes)),
        fields={"grad_accum": 1},
    )
    return _alone(change, prices, price, None if prices.capacity_bytes is None else price.probability >= wanted)
