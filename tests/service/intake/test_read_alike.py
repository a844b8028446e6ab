"""One log in the forms in which people paste it: what is read from it stays the same."""

from __future__ import annotations

import html
import json
import random

import pytest

from oomdoc.intake import read_text

LOGS = {
    "loss": """Traceback (most recent call last):
  File "/workspace/train.py", line 88, in <module>
    run()
  File "/opt/lib/python3.11/site-packages/transformers/models/qwen2/modeling_qwen2.py", line 878, in forward
    loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
  File "/opt/lib/python3.11/site-packages/transformers/loss/loss_utils.py", line 36, in ForCausalLMLoss
    logits = logits.float()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB. GPU 0 has a total capacity of 39.39 GiB of which 5.12 GiB is free. Process 40112 has 34.26 GiB memory in use. Of the allocated memory 33.10 GiB is allocated by PyTorch, and 671.33 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.""",
    "collective": """Traceback (most recent call last):
  File "/workspace/train.py", line 120, in main
    dist.barrier()
torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 2 'out of memory'""",
    "other": """Traceback (most recent call last):
  File "/workspace/train.py", line 55, in <module>
    loss = model(ids, labels=ids).loss
RuntimeError: CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call.""",
}  # fmt: skip


def _each(prefix: str):
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


def _interleaved(text: str) -> str:
    order, left = random.Random(3), [[f"[rank{n}]: {line}" for line in text.split("\n")] for n in range(8)]
    out = []
    while any(left):
        out.append(order.choice([lines for lines in left if lines]).pop(0))
    return "\n".join(out)


def _spaced(text: str) -> str:
    order = random.Random(1)
    parts = [line.partition(line.lstrip()[:1] or "\0") for line in text.split("\n")]
    return "\n".join(
        a + b + "".join(c * (1 + (c == " " and order.random() < 0.4)) for c in rest) for a, b, rest in parts
    )


def _wrapped(text: str) -> str:
    return "\n".join(line[at : at + 100] for line in text.split("\n") for at in range(0, len(line), 100))


def _with_bars(text: str) -> str:
    bar = "\nStep:  12%|█▋        | 100/900 [02:11<11:10,  1.21it/s]\n"
    return "\n".join(line + (bar if n % 3 == 1 else "") for n, line in enumerate(text.split("\n"))).replace(
        "\n\n", "\n"
    )


FORMS = {
    "rank": _each("[rank3]: "),
    "ray": _each("\x1b[36m(RayWorker pid=123, ip=10.0.0.7)\x1b[0m "),
    "srun": _each("3: "),
    "compose": _each("worker-0  | "),
    "kubectl": _each("[pod/sft-worker-0/pytorch] "),
    "cri": _each("2026-11-28T10:00:01.123456789Z stderr F "),
    "loguru": _each("2026-11-28 10:00:01.123 | ERROR    | app.worker:run:88 - "),
    "logging": _each("2026-11-28 10:00:01,123 - app.worker - ERROR - "),
    "journal": _each("Nov 28 10:00:01 node7 python[2211]: "),
    "numbered": lambda text: "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(text.split("\n"), 1)),
    "quoted": _each("> "),
    "records": lambda text: "\n".join(json.dumps({"level": "error", "msg": line}) for line in text.split("\n")),
    "exception": lambda text: json.dumps({"level": "ERROR", "message": "job failed", "exc_info": text}),
    "one-string": json.dumps,
    "bytes": lambda text: f"stderr={text.encode()!r}",
    "shell-fence": lambda text: f"```bash\n{text}\n```",
    "html": lambda text: f"<pre><code>{html.escape(text)}</code></pre>",
    "wide-marks": lambda text: text.translate(str.maketrans(",:();", "，：（）；")),
    "spaced": _spaced,
    "wrapped": _wrapped,
    "bars": _with_bars,
    "interleaved": _interleaved,
}


def _read(text: str):
    evidence = read_text(text)
    root, outcome = evidence.root, evidence.outcome
    facts = {n: f.value for n, f in evidence.facts.items() if f.stated and n not in ("gpu_count", "phase")}
    return outcome.kind, root.kind, root.signal.name, root.requested_bytes, root.free_bytes, facts


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LOGS)
def test_a_log_reads_the_same(name, form):
    assert _read(FORMS[form](LOGS[name])) == _read(LOGS[name])


@pytest.mark.parametrize("form", FORMS)
def test_the_phase_is_the_same(form):
    assert read_text(FORMS[form](LOGS["loss"])).facts["phase"].value == "loss"
