"""Which facts, job fields and parts of a question the role of a number may set, and which it rules out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oomdoc.intake.numbers import Listed
from oomdoc.intake.quantities.reader import Quantity, quantities_in
from oomkb.kept import compiled

_LENGTHS: Final = ("seq_len", "serving.max_model_len", "max_model_len", "length", "target", "bare_length")
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "length": (*_LENGTHS, "request"),
    "prompt_tokens": ("prompt_len", "request"),
    "output_tokens": ("completion_len", "completion"),
    "request_tokens": ("request",),
    "batched_tokens": ("serving.max_num_batched_tokens", "max_num_batched_tokens"),
    "micro_batch": ("micro_batch", "eval_micro_batch"),
    "global_batch": ("global_batch",),
    "grad_accum": ("grad_accum",),
    "batch": ("micro_batch", "eval_micro_batch"),
    "users": ("serving.concurrency", "serving.max_num_seqs", "max_num_seqs", "concurrency"),
    "generations": ("generations",),
    "gpu_count": ("gpus", "gpu_count", "cards", "world", "tp"),
    "gpus_per_node": ("gpus", "gpu_count", "cards", "per_machine"),
    "nodes": ("nodes",),
    "tp": ("tp", "rollout.tensor_parallel", "gpus", "gpu_count"),
    "pp": ("pp",),
    "dp": ("dp", "world"),
    "cp": ("cp", "sp"),
    "ep": ("ep",),
    "zero_stage": ("zero_stage", "sharding"),
    "instances": ("servers",),
    "card_memory": ("capacity_gib",),
    "host_memory": ("host_gib",),
    "used_memory": ("process_gib", "allocated_gib", "reserved_gib"),
    "free_memory": ("free_gib",),
    "requested_memory": ("tried_gib",),
    "params": ("params_b",),
    "lora_r": ("lora.r", "lora_r"),
    "lora_alpha": ("lora.alpha", "lora_alpha"),
    "utilization": ("serving.gpu_memory_utilization", "gpu_memory_utilization"),
}
"""Role to what it may set, the job's field first; roles that are not here set nothing."""
SET_BY: Final[frozenset[str]] = frozenset(name for names in FIELDS.values() for name in names)
"""Everything that a role may set: of anything else no role is an argument against."""
SURE: Final = 0.5
"""Probability from which a role sets a field."""
MIN_LIKELY: Final = 0.1
"""Probability that a number is of a field below which it does not set it."""


def at(text: str, start: int, end: int) -> Quantity | None:
    """The quantity that overlaps a place."""
    return next((q for q in quantities_in(text) if q.start < end and start < q.end), None)


def refuted(text: str, field: str, start: int, end: int) -> bool:
    """Whether the number at a place is hardly of a field."""
    found = at(text, start, end)
    if found is None or field not in SET_BY:
        return False
    if found.role == "request_tokens" and field in _LENGTHS:
        return any(q.role == "length" and q.probability >= SURE for q in quantities_in(text))
    return likely(found, field) < MIN_LIKELY


def likely(found: Quantity, field: str) -> float:
    """The probability that a number is of one of the roles that set a field."""
    return sum(p for role, p in ((found.role, found.probability), *found.others) if field in FIELDS.get(role, ()))


_LISTED: Final = frozenset(
    [
        "seq_len",
        "micro_batch",
        "grad_accum",
        "gpus",
        "nodes",
        "tp",
        "pp",
        "cp",
        "ep",
        "generations",
        "lora.r",
        "lora.alpha",
        "completion_len",
        "prompt_len",
        "capacity_gib",
        "serving.concurrency",
        "serving.gpu_memory_utilization",
        "serving.max_num_batched_tokens",
    ]
)
"""Job fields that numbers of a question set."""


_NEGATIVE: Final = compiled(r"(?:[=:：]\s?|\b(?:to|at) |[成到为])-\Z")


def _is_alone(text: str, found: Quantity) -> bool:
    """Whether nothing but the number stands in its clause: what it is of does not stand there."""
    before, behind = _PAUSE.split(text[: found.start])[-1], _PAUSE.split(text[found.end :])[0]
    return not (before.strip() or behind.strip())


_PAUSE: Final = compiled(r"[,，;；。?？!！\n]|\.\s")


def listed(text: str) -> Iterator[Listed]:
    """The numbers whose role surely sets a job field."""
    for found in quantities_in(text):
        field = FIELDS.get(found.role, ("",))[0]
        if _NEGATIVE.search(text, 0, found.start) or _is_alone(text, found):
            continue
        if field in _LISTED and likely(found, field) >= SURE:
            value = int(found.value) if found.value == int(found.value) else found.value
            yield Listed(field, value, found.start, found.end)


def chance(found: Quantity, *roles: str) -> float:
    """The probability that a number has one of the roles."""
    return sum(p for role, p in ((found.role, found.probability), *found.others) if role in roles)


def at_once(text: str) -> int | None:
    """Requests or users at once: the number that most probably counts them."""
    best = max(quantities_in(text), key=lambda q: chance(q, "users"), default=None)
    return int(best.value) if best is not None and chance(best, "users") >= _MIN_CHANCE else None


def lengths_of(text: str) -> tuple[int | None, int | None]:
    """Tokens of the window and of a usual request, where the text names both; else of the one that it names.

    Beside a number of users, the number of tokens that is most probably one request's is it, and the window is another.
    """
    tokens = [
        q for q in quantities_in(text) if chance(q, *_OF_TOKENS) >= SURE and _MIN_TOKENS <= q.value <= _MAX_TOKENS
    ]
    of_request = {id(q): chance(q, "request_tokens", "prompt_tokens") for q in tokens}
    request = max(tokens, key=lambda q: of_request[id(q)], default=None)
    if request is not None and of_request[id(request)] < (_MIN_CHANCE if at_once(text) else SURE):
        request = None
    windows = [q for q in tokens if chance(q, "length") >= SURE and (request is None or q.value > request.value)]
    window = next(iter(windows), None)
    return (int(window.value) if window else None), (int(request.value) if request else None)


_OF_TOKENS: Final = ("length", "request_tokens", "prompt_tokens")
_MIN_TOKENS, _MAX_TOKENS = 16, 1 << 22
_MIN_CHANCE: Final = 0.3
"""Probability of a role that is looked for, where no other number has it more probably."""


def value_of(text: str, role: str, *, least: float = SURE) -> float | None:
    """The first number that surely has a role."""
    return next((q.value for q in quantities_in(text) if q.role == role and q.probability >= least), None)
