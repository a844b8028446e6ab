"""verl's entropy beside log-probabilities: bytes for every word of the vocabulary, compiled and as it is written.

usage: python bench/trace_log_probs.py    prints one {"id", "bytes"} a line

``pip install verl`` (0.9.1): ``utils/torch_functional.entropy_from_logits``, which the FSDP engine compiles unless
``use_torch_compile`` is off. Compiled: the buffers as large as the logits in the code that the compiler makes for the
processor. As written: under CUDA's autocast, on tensors without values; the temporary inside ``logsumexp`` (ATen
``ReduceOps.cpp``) is none of them.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing.meter import Meter

_TOKENS, _WORDS = 64, 5003
_BYTES = {"float32": 4, "bfloat16": 2}


def _compiled(function: Any, dtype: Any) -> float:
    """Most bytes a word of the buffers in the compiler's code, one at a time, and of the logits."""
    from torch._inductor.utils import run_and_get_code

    logits = torch.randn(_TOKENS, _WORDS, dtype=dtype)
    with torch.no_grad():
        _, code = run_and_get_code(torch.compile(function, dynamic=False), logits)
    rows = re.findall(rf"empty_strided\w*\(\({_TOKENS}, {_WORDS}\), .*?torch\.(\w+)\)", "\n".join(code))
    return float(dtype.itemsize + sum(_BYTES[row] for row in rows))


def _written(function: Any, dtype: Any) -> float:
    """Most bytes a word under CUDA's autocast to bf16, the logits included."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    with FakeTensorMode(), torch.no_grad(), Meter() as meter:
        logits = torch.empty(_TOKENS, _WORDS, dtype=dtype, device="cuda")
        function(logits)
    torch.set_autocast_enabled("cuda", False)
    return float(meter.peak) / _TOKENS / _WORDS


def main() -> int:
    from verl.utils.torch_functional import entropy_from_logits

    for name, measure in (("compiled", _compiled), ("written", _written)):
        found = measure(entropy_from_logits, torch.bfloat16)
        print(json.dumps({"id": name, "bytes": round(found, 1)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
