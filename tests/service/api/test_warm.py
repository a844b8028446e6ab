"""A process that computes has loaded what its tasks use before it is forked: the first of a kind costs what others do."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_LOADED_LATE = """
import json, sys

heard, loaded = False, []

def hear(event, arguments):
    if heard and event in ("import", "open"):
        loaded.append(str(arguments[0]))

sys.addaudithook(hear)
from oomdoc.api.tasks import TASKS, run_task
from oomdoc.api.warm import warm

warm()
log = (
    "accelerate launch --num_processes 4 sft.py --model_name_or_path mistralai/Mistral-7B-v0.1\\n"
    "per_device_train_batch_size: 8\\nNVIDIA A100-SXM4-40GB, torch==2.1.0\\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 39.39 GiB of which 1.20 GiB is free."
)
job = {"model": "mistralai/Mistral-7B-v0.1", "method": "qlora", "gpu": "A100 40GB", "seq_len": 2048}
asked = {
    "case-problems": ({"id": "logits/none", "yaml": "schema: 1\\ntitle: {en: A}\\n"}, b""),
    "diagnosis": ({"kind": "text/plain"}, log.encode()),
    "estimate": ({}, json.dumps({"job": job}).encode()),
    "plan": ({"text": "", "filename": "", "job": job, "lang": "zh"}, b""),
    "questions": ({"kind": "text/plain", "style": "full", "context_tokens": 8192}, log.encode()),
    "search": ({"text": "out of memory while saving a checkpoint", "top": 3, "lang": "auto"}, b""),
    "tool": ({"name": "plan", "arguments": {"job": job}}, b""),
    "turn": ({"session": None, "text": "QLoRA of Mistral-7B on two A100 40GB, seq 2048, batch 2: does it fit?"}, b""),
}
assert asked.keys() == TASKS.keys()
found = {}
for name, (arguments, blob) in asked.items():
    heard = True
    outcome, _ = run_task(name, arguments, blob)
    heard = False
    assert "failed" not in outcome, outcome
    found[name], loaded = loaded, []
print(json.dumps(found))
"""


def test_no_task_loads_anything_after_the_warm_up() -> None:
    """A conversation used to load topics and phrases for a second in each worker, which then was replaced as slow."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    run = subprocess.run(
        [sys.executable, "-c", _LOADED_LATE], capture_output=True, text=True, env=environment, check=True, timeout=600
    )
    found = json.loads(run.stdout.splitlines()[-1])
    assert {name: loaded for name, loaded in found.items() if loaded} == {}
