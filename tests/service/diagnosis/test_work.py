"""How much is worked out for one diagnosis, counted: what a machine is busy with beside changes every time, not this."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import oomdoc
from oomkb.memory import model

REPORT = """accelerate launch --num_processes 2 train.py --model_name_or_path mistralai/Mistral-7B-v0.3
method: lora  per_device_train_batch_size: 4
cutoff_len: 4096
gradient_checkpointing: false
torch==2.4.0 transformers==4.46.0  NVIDIA GeForce RTX 4090
  File "/opt/conda/lib/python3.11/site-packages/torch/autograd/graph.py", line 825, in _engine_run_backward
    return Variable._execution_engine.run_backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.24 GiB. GPU 0 has a total capacity of 23.64 GiB of
which 0.62 GiB is free. Of the allocated memory 22.10 GiB is allocated by PyTorch.
"""

MOST_PRICED = 82


@pytest.fixture(scope="module", autouse=True)
def _met_before() -> None:
    """What is loaded and played once for all is not counted."""
    oomdoc.diagnose(REPORT).document()


def test_a_diagnosis_prices_few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, here = [], threading.get_ident()

    def estimate(*given: Any, **named: Any) -> Any:
        if threading.get_ident() == here:  # a server of another test may still be at work
            counted.append(given)
        return made(*given, **named)

    made = model.estimate
    monkeypatch.setattr(model, "estimate", estimate)
    oomdoc.diagnose(REPORT).document()
    assert len(counted) <= MOST_PRICED


def test_a_diagnosis_leaves_next_to_nothing_for_the_collector() -> None:
    """Each price held what held it: a thousand objects a diagnosis waited for the collector, a tenth of the time."""
    gc.collect()
    gc.disable()
    try:
        oomdoc.diagnose(REPORT).document()
        assert gc.collect() <= 100
    finally:
        gc.enable()
