"""Causes that printed figures prove: a log that names what was refused, or what takes the room, is a sum.

Each account is arithmetic on what a program printed of its own memory; none looks at how the report is worded. Where
one holds, its cause comes first, before what the ranker learned from other reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from oomdoc.diagnosis import accounts, requested
from oomdoc.diagnosis.accounts import ALMOST, FAR_FROM_FULL, TUNES, WEIGHT_BYTES, Account, account_of, last_signal
from oomdoc.diagnosis.features.sizes import refused_with_room
from oomdoc.diagnosis.forms import fits_of, price_form
from oomdoc.diagnosis.host import host_need
from oomdoc.diagnosis.own_lines import fewer_cards
from oomdoc.diagnosis.ranker import at_most
from oomdoc.diagnosis.result import CauseFinding
from oomdoc.diagnosis.view import View, ranks_on_one_gpu, trained_beyond
from oomdoc.diagnosis.without_effect import gathered_whole, not_recomputed
from oomdoc.evidence import Failure
from oomkb.catalog.diffusion import pipeline
from oomkb.memory.job import Job
from oomkb.units import GIB

_PROVEN_PROBABILITY: Final = 0.85
"""Probability of a cause that a sum proves: the sum is right, what it is the sum of may have been misread."""
_MIN_GROWN_SHARE: Final = 0.3
"""Share of what was held at the end that must have come with the steps."""
_MUCH_BYTES: Final = 8 * GIB
"""Host memory from which loading alone may be too much for a machine of unknown size."""
_TIMES: Final = 3
"""How often a request must fit into what is reserved and not in use."""
_MIN_CACHED_SHARE: Final = 0.12
"""Share of the card that is much to be reserved and not in use."""
_MIN_OTHERS_SHARE: Final = 0.1
"""Share of the card from which what other processes hold is more than a desktop."""
_WHOLE: Final = 1.01
_MIN_PIPELINE_SHARE: Final = 0.5
"""Share of the card from which a pipeline's weights leave training too little room."""
_SHARDED: Final = frozenset({"zero3", "fsdp", "fsdp2", "hsdp"})
_PRINTED: Final = 0.85
"""Confidence of a shortage that a program printed, by itself or through a library's status."""
_OF_THE_CARD: Final = (
    *("activations", "attention-scores", "logits", "kv-cache", "cuda-graph", "fragmentation", "zero3-gather"),
    *("other-process", "vision-tokens", "rollout-engine"),
)
"""Causes that fill no memory but the card's."""
_OF_SIZE: Final = (
    *("activations", "attention-scores", "logits", "kv-cache", "zero3-gather", "vision-tokens", "long-sample"),
    *("model-states", "optimizer-init", "weights-load", "extra-models", "rollout-engine", "hardware-limit"),
)
"""Causes by which a card has no room: none where several times of what was refused are free."""
_HALF_LEFT: Final = 0.5
"""Probability that causes which are not ruled out must have had among all."""
_UNKNOWN: Final = 0.34
"""The most that is said for one of the others where they had less."""


def proven_causes(view: View, causes: Sequence[CauseFinding]) -> tuple[CauseFinding, ...]:
    """The causes with the proven one first, where there is one, and the disproved ones last."""
    return accounts.with_states(view, _proven(view, causes))


def _proven(view: View, causes: Sequence[CauseFinding]) -> tuple[CauseFinding, ...]:
    # Where there was room, or the same run fits with an older release, no sum of sizes is the cause.
    fits = refused_with_room(view) or view.evidence.worked_with is not None
    accounts_found = (one for make in _ACCOUNTS for one in make(view))
    found = next((one for one in accounts_found if not (fits and one.cause in _OF_SIZE)), None)
    if found is None:
        return _without_disproved(view, causes)
    known = next((c for c in causes if c.cause == found.cause), CauseFinding(found.cause, 0.0))
    likelier = max(known.probability, _PROVEN_PROBABILITY)
    why, evidence = (found.why, *known.why), (found.span, *known.evidence)
    first = replace(known, probability=likelier, why=why, evidence=evidence, is_proven=True)
    others = [c for c in causes if c is not known]
    rest = sum(c.probability for c in others)
    share = (1 - likelier) / rest if rest else 0.0
    return (first, *(replace(c, probability=c.probability * min(1.0, share)) for c in others))


def _disproved(view: View) -> Iterator[str]:
    """Causes that what was printed rules out.

    Fragmentation, where the card has room that no piece of the cache takes, or less than is asked for; that no memory
    ran out, where a program says that it did and neither its figures nor the person say that there was room; states,
    where steps went well before: they were on the card, and the estimate has them otherwise than they are; and causes
    of the memory that did not run out, where a program says which did.
    """
    wanted, free, held = (view.bytes_of(n) for n in ("requested", "free", "allocated"))
    process, outcome = view.bytes_of("process"), view.evidence.outcome
    cached = (
        view.cached_bytes if view.cached_bytes is not None else max(process - held, 0) if process and held else None
    )
    too_large = wanted is not None and free is not None and cached is not None and free + cached < wanted
    with_room = refused_with_room(view)
    if too_large or with_room:
        yield "fragmentation"
    if with_room:
        yield from _OF_SIZE
    printed = outcome.kind if outcome is not None and outcome.confidence >= _PRINTED else ""
    if printed == "device":
        yield "shared-memory"  # no status of the driver speaks of /dev/shm
        if wanted is not None and free is not None and not with_room:
            yield "host-ram"  # pinned host memory is refused without a word on the card
    if printed == "host":
        yield from _OF_THE_CARD
    estimate = None if view.serving else view.estimate
    if estimate is not None and trained_beyond(view.evidence, estimate, view.bytes_of("capacity")) is not None:
        yield from ("model-states", "optimizer-init", "weights-load")
    if last_signal(view, "sglang-load-end", "vllm-weights") is not None and view.phase != "load":
        yield "weights-load"  # the engine says that it has loaded them
    said_free = any(statement.name == "much-memory-free" for statement in view.evidence.statements)
    if printed in ("device", "engine") and not with_room and not said_free:
        yield "not-oom"


def _without_disproved(view: View, causes: Sequence[CauseFinding]) -> tuple[CauseFinding, ...]:
    """The causes with the disproved ones last."""
    disproved = set(_disproved(view))
    if causes and causes[0].cause == _NO_SETTING:
        if view.estimate is None or view.estimate.capacity_bytes is None:
            causes = at_most(_ASKED_ONLY, causes)  # nothing shows that no setting is enough
        elif _fits_in_a_mild_form(view.job):
            disproved.add(_NO_SETTING)
    rest = sum(c.probability for c in causes if c.cause not in disproved)
    if not disproved or not rest:
        return tuple(causes)
    share = sum(c.probability for c in causes) / rest
    others = tuple(replace(c, probability=c.probability * share) for c in causes if c.cause not in disproved)
    # Where what was ruled out was the likeliest by far, how the rest compare is not known.
    if rest < _HALF_LEFT and disproved != {_NO_SETTING}:
        others = at_most(_UNKNOWN, others)
    return (*others, *(replace(c, probability=0.0) for c in causes if c.cause in disproved))


_NO_SETTING: Final = "hardware-limit"
_ASKED_ONLY: Final = 0.5
"""The most that is said for a card that is too small under any setting, where no run could be priced."""
_MILD: Final = {"micro_batch": 1, "grad_ckpt": True}


def _fits_in_a_mild_form(job: Job) -> bool:
    """Whether the run would fit its cards as it is, trained with one sample at a time and checkpointing, or served in
    four bits.
    """
    forms: list[dict[str, Any]] = [{}, {"quant": "awq-int4"} if job.objective == "inference" else _MILD]
    priced = (price_form(job, form) for form in forms)
    return any(one is not None and fits_of(one.estimate) for one in priced)


def _grown(view: View) -> Iterator[Account]:
    """As much more at every printed step as at the one before, and much of what was held at the end."""
    held = view.bytes_of("allocated") or view.bytes_of("capacity")
    for signal in view.evidence.find("growth-over-steps"):
        first, last = signal.data["first_bytes"], signal.data["last_bytes"]
        if held and signal.data.get("steady") and last - first >= _MIN_GROWN_SHARE * held:
            each = (last - first) / (signal.data["points"] - 1)
            sizes = {"first_bytes": first, "last_bytes": last, "each_bytes": each}
            yield from account_of(view, "leak", "grown", sizes, signal.span)


def _on_one_card(view: View) -> Iterator[Account]:
    """The processes of one run, all on the same card."""
    failure = view.failure
    if failure is not None and failure.other_process_bytes and ranks_on_one_gpu(view.evidence):
        count = failure.signal.data.get("other_processes", 0) + 1
        sizes = {"count": count, "rank": failure.signal.rank, "device": failure.signal.data.get("device")}
        cause = "weights-load" if view.phase == "load" else "other-process"
        words = "one-card" if failure.signal.rank is not None else "one-card-all"
        yield from account_of(view, cause, words, {"others_bytes": failure.other_process_bytes, **sizes})


def _others_hold(view: View) -> Iterator[Account]:
    """Other processes hold a good part of the card, and without them the request would have found its room."""
    failure, capacity = view.failure, view.bytes_of("capacity")
    others = _held_elsewhere(failure) if failure is not None else 0
    if failure is None or not others or not capacity:
        return
    if view.job.rollout is not None or view.objective in ("grpo", "ppo") or ranks_on_one_gpu(view.evidence):
        return
    own = max(failure.process_bytes or 0, failure.allocated_bytes or 0)
    apart = own + others <= _WHOLE * capacity  # else the process that is named is this one, seen from outside
    enough = others + (failure.free_bytes or 0) >= (failure.requested_bytes or 0)
    if apart and enough and others >= _MIN_OTHERS_SHARE * capacity and view.weight_bytes <= FAR_FROM_FULL * capacity:
        sizes = {"others_bytes": others, "own_bytes": own, "capacity_bytes": capacity}
        yield from account_of(view, "other-process", "others", sizes)


def _held_elsewhere(failure: Failure) -> int:
    """What other processes hold: as printed, or what a message that names no process leaves of the card."""
    if failure.other_process_bytes or failure.process_bytes:
        return failure.other_process_bytes or 0
    held, free, capacity = failure.reserved_bytes, failure.free_bytes, failure.capacity_bytes
    left = capacity - held - free if capacity and held and free is not None else 0
    return left if capacity and left >= _MIN_LEFT_SHARE * capacity else 0


_MIN_LEFT_SHARE: Final = 0.25
"""Share of the card that is neither PyTorch's nor free, from which it is more than contexts and libraries take."""


def _taken_before(view: View) -> Iterator[Account]:
    """An engine that starts finds less of the card free than the share that it is given."""
    found = last_signal(view, "vllm-startup-free-too-low")
    if found is None:
        return
    free, capacity, wanted = (found.data.get(f"{n}_bytes") for n in ("free", "capacity", "desired"))
    if free and capacity and wanted and free < wanted:
        held = {"held_bytes": capacity - free, "free_bytes": free, "wanted_bytes": wanted, "capacity_bytes": capacity}
        trains = view.objective in ("grpo", "ppo") and (
            view.job.rollout is None or view.job.rollout.colocated is not False
        )
        yield from account_of(view, "rollout-engine" if trains else "other-process", "taken-before", held, found.span)


def _pipeline_weights(view: View) -> Iterator[Account]:
    """The parts of a pipeline that makes images or video, in 16 bits, against the card."""
    capacity, named = view.bytes_of("capacity"), last_signal(view, "diffusion-model")
    parts = pipeline(str(named.data["model"])) if named is not None else None
    if parts is None or named is None or view.failure is None or view.failure.kind != "device" or not capacity:
        return
    narrow = bool(named.data.get("narrow")) or last_signal(view, "narrow-weights") is not None
    if view.job.quant not in (None, "none") or view.job.offload or narrow or view.phase == "forward":
        return
    held = view.bytes_of("allocated")
    if held and held < ALMOST * WEIGHT_BYTES * parts.denoiser:
        return  # the weights are not there whole
    denoiser, encoders = WEIGHT_BYTES * parts.denoiser, WEIGHT_BYTES * parts.encoders
    sizes = {
        "model": parts.name,
        "denoiser_bytes": denoiser,
        "encoders_bytes": encoders,
        "capacity_bytes": capacity,
    }
    both = denoiser + encoders
    if denoiser >= ALMOST * capacity:
        yield from account_of(view, "weights-load", "pipeline-alone", sizes, named.span)
    elif both >= FAR_FROM_FULL * capacity:
        yield from account_of(view, "weights-load", "pipeline-together", sizes, named.span)
    elif view.training and both >= _MIN_PIPELINE_SHARE * capacity:
        yield from account_of(view, "activations", "pipeline-beside", sizes, named.span)


def _gathers_whole(view: View) -> Iterator[Account]:
    """Saving gathers all weights on every card, and they do not fit beside what training holds."""
    capacity, held, job = view.bytes_of("capacity"), view.bytes_of("allocated"), view.job
    if view.phase != "save" or view.failure is None or not capacity or not held or view.estimate is None:
        return
    masters = job.param_dtype == "fp32" or (job.autocast in ("bf16", "fp16") and "param_dtype" in job.assumed)
    whole = view.estimate.params * (4.0 if masters else WEIGHT_BYTES)  # under mixed precision the shards are fp32
    if job.sharding in _SHARDED and job.method == "full" and held + whole > capacity:
        sizes = {"whole_bytes": whole, "held_bytes": held, "capacity_bytes": capacity}
        yield from account_of(view, "checkpoint-save", "gathers-whole", sizes)


def _split_up(view: View) -> Iterator[Account]:
    """The request would fit several times into what is reserved and not in use, and the card is far from full."""
    cached, wanted = view.cached_bytes, view.bytes_of("requested")
    held, capacity = view.bytes_of("allocated"), view.bytes_of("capacity")
    if not cached or not wanted or not held or not capacity:
        return
    if cached >= max(_TIMES * wanted, _MIN_CACHED_SHARE * capacity) and held + wanted <= FAR_FROM_FULL * capacity:
        sizes = {"cached_bytes": cached, "requested_bytes": wanted, "held_bytes": held, "capacity_bytes": capacity}
        yield from account_of(view, "fragmentation", "split-up", sizes)


def _pins(view: View) -> Iterator[Account]:
    """The failing line pins host memory: the driver says "out of memory" where it cannot lock the machine's pages."""
    innermost = view.trace.rpartition("\n")[2]
    if view.failure is not None and not view.bytes_of("capacity") and any(name in innermost for name in _PINNING):
        yield from account_of(view, "host-ram", "pins", {}, view.failure.frames[-1].span)


_PINNING: Final = ("pin_memory()", "cudahostalloc", "cudahostregister", "caching_host_allocator")


def _autotuned(view: View) -> Iterator[Account]:
    """Inductor tries kernels on copies of a layer's inputs and outputs: torch ``_inductor/select_algorithm.py``."""
    if view.failure is not None and any(frame.function in TUNES for frame in view.failure.frames):
        yield from account_of(view, "cuda-graph", "autotuned", {}, view.failure.frames[-1].span)


def _host_short(view: View) -> Iterator[Account]:
    """What is loaded, offloaded or merged needs more host memory than the machine, or the job's limit, gives."""
    outcome, estimate = view.evidence.outcome, view.estimate
    if outcome is None or outcome.memory != "host" or estimate is None:
        return
    given = (view.job.host_gib or 0.0) * GIB
    need = host_need(view.evidence, view.job, estimate, view.shape, view.phase)
    if need is None:
        return
    sizes = {"count": need.count, "copy_bytes": need.copy_bytes, "dtype": need.dtype, "needed_bytes": need.total_bytes}
    if need.total_bytes > given > 0:
        kind = f"{need.kind}-one" if need.kind in ("load", "merge") and need.count == 1 else need.kind
        yield from account_of(view, "host-ram", f"host-{kind}", {"given_bytes": given, **sizes}, outcome.span)
    elif need.kind == "load" and not given and need.total_bytes >= _MUCH_BYTES:
        yield from account_of(view, "host-ram", "host-load-alone", sizes, outcome.span)


_ACCOUNTS: Final[Sequence[Callable[[View], Iterator[Account]]]] = (
    requested.mask_of_patches,
    _pins,
    _autotuned,
    _grown,
    requested.square_of_many,
    accounts.refused_cache,
    accounts.cache_of_context,
    accounts.cache_beyond,
    accounts.allocates_cache,
    accounts.room_taken,
    accounts.cache_too_much,
    accounts.engine_beside,
    accounts.engine_unnamed,
    requested.second_copy,
    gathered_whole,
    not_recomputed,
    _on_one_card,
    _others_hold,
    _taken_before,
    _pipeline_weights,
    accounts.share_below_weights,
    accounts.weights_alone,
    accounts.weights_fill,
    accounts.warmed_up,
    accounts.frozen_alone,
    fewer_cards,
    accounts.states_created,
    accounts.states_alone,
    accounts.states_of_a_rank,
    _gathers_whole,
    _split_up,
    _host_short,
    requested.known_tensor,
)
