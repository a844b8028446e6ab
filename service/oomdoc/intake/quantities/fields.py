"""Which facts, job fields and parts of a question the role of a number may set, and which it rules out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from oomdoc.intake.numbers import Listed
from oomdoc.intake.polarity import clause
from oomdoc.intake.quantities.reader import Quantity, quantities_in
from oomdoc.intake.worded import ROWS
from oomkb.errors import JobError
from oomkb.kept import compiled
from oomkb.memory.job_reading import read_field

_LENGTHS: Final = ("seq_len", "serving.max_model_len", "max_model_len", "target")
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "length": _LENGTHS,
    "prompt_tokens": ("prompt_len",),
    "output_tokens": ("completion_len",),
    "batched_tokens": ("serving.max_num_batched_tokens", "max_num_batched_tokens"),
    "micro_batch": ("micro_batch", "eval_micro_batch"),
    "grad_accum": ("grad_accum",),
    "batch": ("micro_batch", "eval_micro_batch"),
    "users": ("serving.concurrency", "serving.max_num_seqs", "max_num_seqs"),
    "generations": ("generations",),
    "gpu_count": ("gpus", "gpu_count", "world", "tp"),
    "gpus_per_node": ("gpus", "gpu_count"),
    "nodes": ("nodes",),
    "tp": ("tp", "rollout.tensor_parallel", "gpus", "gpu_count"),
    "pp": ("pp",),
    "dp": ("dp", "world"),
    "cp": ("cp", "sp"),
    "ep": ("ep",),
    "zero_stage": ("zero_stage", "sharding"),
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


def refuted(text: str, field: str, start: int, end: int) -> bool:
    """Whether the number at a place is hardly of a field."""
    found = _at(text, start, end)
    return found is not None and refutes(found, text, field)


def is_likely(text: str, field: str, start: int, end: int) -> bool:
    """Whether the number at a place is more probably of a field than not."""
    found = _at(text, start, end)
    return found is not None and _likely(found, field) >= SURE


def _at(text: str, start: int, end: int) -> Quantity | None:
    """The number at a place."""
    return next((q for q in quantities_in(text) if q.start < end and start < q.end), None)


def refutes(found: Quantity, text: str, field: str) -> bool:
    """Whether what a number is of rules out that it sets a field."""
    if field not in SET_BY:
        return False
    if field in FIELDS["lora_r"] and is_of_process(text, found.start, found.end):
        return True
    if found.role == "request_tokens" and field in _LENGTHS:
        return value_of(text, "length") is not None
    return _likely(found, field) < MIN_LIKELY


def is_of_process(text: str, start: int, end: int) -> bool:
    """Whether a rank at a place is one of the processes: "[rank3]:", "rank 3 died"."""
    return any(match.start() < end and start < match.end() for match in ROWS["process_rank"].finditer(text))


def _likely(found: Quantity, field: str) -> float:
    """The probability that a number is of one of the roles that set a field."""
    return chance(found, *(role for role, fields in FIELDS.items() if field in fields))


_UNLISTED: Final = frozenset({"dp", "zero_stage", "host_gib", "process_gib", "free_gib", "tried_gib", "params_b"})
"""Job fields that numbers of a question do not set by their role alone."""


_OF_EVALUATION: Final = ROWS["name.eval_micro_batch"]
_NEGATIVE: Final = compiled(r"(?:[=:：]\s?|\b(?:to|at) |[成到为])-\Z")
_MAX_BEFORE: Final = 8
"""Characters before a number that say that it is negative."""
_PAUSE: Final = compiled(r"[,，;；。?？!！\n]|\.\s")
_MAX_OF_CLAUSE: Final = 64


def around(text: str, found: Quantity) -> tuple[str, str]:
    """What stands before and behind a number in its clause; at most 64 characters each."""
    before = _PAUSE.split(text[max(0, found.start - _MAX_OF_CLAUSE) : found.start])[-1]
    return before, _PAUSE.split(text[found.end : found.end + _MAX_OF_CLAUSE], maxsplit=1)[0]


def listed(text: str) -> Iterator[Listed]:
    """The numbers whose role surely sets a job field."""
    for found in quantities_in(text):
        field = FIELDS.get(found.role, ("",))[0]
        if not field or field in _UNLISTED or _likely(found, field) < SURE:
            continue
        if found.role == "lora_r" and is_of_process(text, found.start, found.end):
            continue
        alone = not any(part.strip() for part in around(text, found))  # nothing says what it is of
        if not alone and not _NEGATIVE.search(text, max(0, found.start - _MAX_BEFORE), found.start):
            if field == "micro_batch" and _OF_EVALUATION.search(clause(text, found.start, found.end)) is not None:
                field = "eval_micro_batch"
            yield Listed(field, whole(found.value), found.start, found.end)


def whole(value: float) -> int | float:
    """The value, whole where it is."""
    return int(value) if value == int(value) else value


def is_possible(one: Listed) -> bool:
    """Whether a run can have such a value: there are no 6.5 requests at once."""
    head, _, tail = one.field.partition(".")
    try:
        read_field(head, {tail: one.value} if tail else one.value)
    except JobError:
        return False
    return True


def chance(found: Quantity, *roles: str) -> float:
    """The probability that a number has one of the roles."""
    return sum(p for role, p in ((found.role, found.probability), *found.others) if role in roles)


_LIMIT: Final = compiled(
    r"(?:^|\s)(?:-np|--parallel)[ =]\Z|(?i:max[-_](?:num[-_]seqs|running[-_]requests))[\"'`]?[ ]?[=: ][ ]?\Z"
)
"""Before the number of requests that an engine takes at once at most: none need be there."""


def at_once(text: str) -> int | None:
    """Requests or users at once: the number that most probably counts them.

    "Both" counts what is named beside it. What an engine takes at most is no number of requests: the slots of llama.cpp
    share the context that stands beside them, and the others wait where the cache is full.
    """
    counts = (q for q in quantities_in(text) if q.written.lower() != "both" and not _LIMIT.search(text, 0, q.start))
    best = max(counts, key=lambda q: chance(q, "users"), default=None)
    return int(best.value) if best is not None and chance(best, "users") >= MIN_CHANCE else None


def lengths_of(text: str, *, of_requests: bool = False) -> tuple[int | None, int | None]:
    """Tokens of the window and of a usual request, where the text names both; else of the one that it names.

    Beside a number of users, the number of tokens that is most probably one request's is it, and the window is another.

    :param of_requests: whether it is asked how many requests there may be.
    """
    tokens = [q for q in quantities_in(text) if chance(q, *OF_TOKENS) >= SURE and MIN_TOKENS <= q.value <= MAX_TOKENS]
    request = max(tokens, key=_chance_of_request, default=None)
    least = MIN_CHANCE if of_requests or at_once(text) else SURE
    request = request if request is not None and _chance_of_request(request) >= least else None
    windows = (q for q in tokens if chance(q, "length") >= SURE and (request is None or q.value > request.value))
    window = next(windows, None)
    return (int(window.value) if window else None), (int(request.value) if request else None)


def _prompt_and_answer(text: str) -> int | None:
    """The tokens that go in and that come out, where they stand beside each other: "6k in + 2k out"."""
    for prompt, answer in pairwise(quantities_in(text)):
        goes_in = chance(prompt, "prompt_tokens") >= MIN_CHANCE or _GOES_IN.match(text, prompt.end) is not None
        tokens = chance(prompt, "prompt_tokens", "request_tokens") >= SURE
        comes_out = chance(answer, "output_tokens") >= MIN_CHANCE
        if goes_in and tokens and comes_out and MIN_TOKENS <= prompt.value <= MAX_TOKENS:
            return int(prompt.value + answer.value)
    return None


_GOES_IN: Final = compiled(r"(?i)\s?(?:tokens?\s)?(?:in(?:put)?\b(?!\s[a-z])|进|输入)")


def tokens_of(text: str, role: str) -> int | None:
    """The first length that surely has the role; of a range (``3-6k``) its end."""
    sizes = sure_of(text, role)
    for n, found in enumerate(sizes):
        ends = n + 1 < len(sizes) and _RANGE.fullmatch(text, found.end, sizes[n + 1].start) is not None
        if not ends and MIN_TOKENS <= found.value <= MAX_TOKENS:
            return int(found.value)
    return None


_RANGE: Final = compiled(r"\s*(?:[-~–—]|to|到|至)\s*")


def request_of(text: str, *, of_requests: bool = False) -> int | None:
    """Tokens of a request: what goes in and what comes out, together."""
    if (whole := _prompt_and_answer(text)) is not None:
        return whole
    prompt = tokens_of(text, "prompt_tokens")
    if prompt is None:
        return lengths_of(text, of_requests=of_requests)[1]
    return prompt + (tokens_of(text, "output_tokens") or 0)


def _chance_of_request(found: Quantity) -> float:
    return chance(found, "request_tokens", "prompt_tokens")


OF_TOKENS: Final = ("length", "request_tokens", "prompt_tokens")
"""Roles of tokens of one request or sample."""
MIN_TOKENS, MAX_TOKENS = 16, 1 << 22
MIN_CHANCE: Final = 0.3
"""Probability of a role that is looked for, where no other number has it more probably."""


def sure_of(text: str, role: str) -> list[Quantity]:
    """The numbers that surely have a role, in order."""
    return [q for q in quantities_in(text) if q.role == role and q.probability >= SURE]


LEAST_OTHERS: Final = 0.4
"""Probability from which a size is what something else holds of the card."""


def sizes_of_others(text: str) -> list[float]:
    """What something else holds of the card, GiB."""
    return [q.value for q in quantities_in(text) if chance(q, "other_memory") >= LEAST_OTHERS]


def value_of(text: str, role: str) -> float | None:
    """The first number that surely has a role."""
    return next((q.value for q in sure_of(text, role)), None)
