"""In which phase an operation of a compiled graph works: TensorFlow's nodes and XLA's operators are named after it.

TensorFlow prints ``[[node gradients/h3/attn/truediv_grad/...]]``, XLA ``op_name="jit(train_step)/jit(main)/jvp(Model)/
h/4/attention/..."``: no traceback is needed to see what was computed.
"""

from __future__ import annotations

import re
from typing import Final

from oomdoc.intake.sieve import Expression

__all__ = ["phase_of_operation"]

_NODE: Final = Expression(
    r"\[\[(?:\{\{)?node:? ?(?P<node>[^\s=}\]\[,]{2,200})|caused by op u?['\"](?P<op>[^'\"\n]{2,200})['\"]"
    r"|op_name=\\?[\"'](?P<xla>[^\"'\n]{2,300})[\"']",
    re.IGNORECASE,
)
_SLOT: Final = r"(?:adam\w{0,10}|momentum|rmsprop|adagrad|adafactor|lamb|lars|adam_[mv])(?:_\d{1,2})?"
# The first that matches wins.
_NODES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (phase, re.compile(pattern, re.IGNORECASE))
    for phase, pattern in (
        ("optimizer-init", rf"(?:^|/){_SLOT}/(?:initiali[sz]er|assign|zeros)"),
        ("optimizer-step", rf"(?:^|/){_SLOT}/update|apply_?(?:grad|adam)|resourceapply"),
        ("load", r"restorev2|/initiali[sz]er/|(?:^|/)save/assign|/assign\b"),
        ("save", r"(?:^|/)save(?:v2)?(?:/|$)|savev2"),
        ("backward", r"(?:^|/)gradients?(?:_\d{1,2})?/|_grad(?:_\d{1,2})?(?:/|$)|gradient_tape"),
        ("generate", r"sample_sequence|beam_search|decod\w{1,3}/while|/generate"),
        ("eval", r"(?:^|/)(?:eval|validation)\w{0,4}/"),
        ("forward", r"/"),
    )
)
_OPERATORS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (phase, re.compile(pattern, re.IGNORECASE))
    for phase, pattern in (
        ("backward", r"transpose\(jvp"),
        ("forward", r"jvp\("),
        ("generate", r"\bp?jit\(\w{0,20}(?:generate|sample|prefill|decode|greedy|beam)|/generate"),
        ("eval", r"\bp?jit\(\w{0,20}(?:eval|validation|predict)"),
        ("optimizer-step", r"apply_(?:updates|gradients)|scale_by_|adamw?\b|opt_state"),
        (
            "load",
            r"\bp?jit\(\w{0,20}init|\bp?jit\(_?(?:normal|uniform|truncated_normal|threefry\w{0,9})\b|_normal_real"
            r"|threefry|erf_inv|random_bits|create_train_state",
        ),
        ("forward", r"\bp?jit\(\w{0,20}(?:train|step|forward|apply|loss)"),
    )
)


def phase_of_operation(text: str) -> str | None:
    """The phase of the first operation that is named; ``None`` where none is, or its name does not tell."""
    text = text[:60_000]
    if not _NODE.may_match(text.lower()):
        return None
    found = _NODE.search(text)
    if found is None:
        return None
    name = found["node"] or found["op"]
    table = _NODES if name else _OPERATORS
    name = name or found["xla"]
    return next((phase for phase, pattern in table if pattern.search(name)), None)
