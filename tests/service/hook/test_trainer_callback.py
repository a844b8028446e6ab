"""The callback in a real, tiny run of transformers' Trainer on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import logging, sys
import torch, transformers
from oomdoc.trainer_callback import OomdocCallback

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
config = transformers.LlamaConfig(
    vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
)
model = transformers.LlamaForCausalLM(config)
if FAIL:
    # What CUDA's allocator raises, from inside the second step's loss.
    plain, calls = model.lm_head.forward, []
    def forward(hidden):
        calls.append(1)
        logits = plain(hidden)
        if len(calls) > 1:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 4.64 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.00 GiB is free."
            )
        return logits
    model.lm_head.forward = forward
data = [{"input_ids": torch.arange(48), "labels": torch.arange(48)} for _ in range(8)]
args = transformers.TrainingArguments(
    output_dir=FOLDER, per_device_train_batch_size=2, max_steps=3, report_to=[], use_cpu=True, save_strategy="no",
    optim="adamw_torch", disable_tqdm=True,
)
callback = OomdocCallback(FOLDER, capacity_gib=CAPACITY)
transformers.Trainer(model=model, args=args, train_dataset=data, callbacks=[callback]).train()
print("peak", callback.estimate.allocated_bytes, callback.estimate.params, sum(p.numel() for p in model.parameters()))
"""


def train(folder: Path, *, fail: bool = False, capacity_gib: float | None = None) -> subprocess.CompletedProcess[str]:
    for name in ("torch", "transformers", "accelerate"):
        pytest.importorskip(name)
    script = f"FAIL, CAPACITY, FOLDER = {fail!r}, {capacity_gib!r}, {str(folder)!r}\n{RUN}"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)


def test_importing_it_loads_nothing() -> None:
    script = "import sys, oomdoc.trainer_callback; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_another_name_is_an_error() -> None:
    import oomdoc.trainer_callback as module

    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = module.Nothing


@pytest.mark.slow
def test_a_run_that_fits_is_left_alone(tmp_path: Path) -> None:
    done = train(tmp_path, capacity_gib=80.0)
    assert done.returncode == 0, done.stderr[-2000:]
    _, peak, estimated, real = done.stdout.splitlines()[-1].split()
    assert estimated == real
    # Weights, gradients and two moments in fp32 at the least.
    assert float(peak) > 16 * int(real)
    assert "WARNING oomdoc" not in done.stderr
    assert "INFO oomdoc: this run is estimated to need" in done.stderr


@pytest.mark.slow
def test_a_failing_run_is_warned_of_captured_and_not_masked(tmp_path: Path) -> None:
    done = train(tmp_path, fail=True, capacity_gib=0.25)
    assert done.returncode == 1
    assert "WARNING oomdoc: this run is estimated to need" in done.stderr
    assert "of 0.25 GiB" in done.stderr
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB" in done.stderr
    (path,) = tmp_path.glob("oom-rank0-*.json")
    report = json.loads(path.read_text())
    assert report["settings"]["per_device_train_batch_size"] == 2
    assert any(t["name"] == "logits" and t["shape"] == [2, 48, 512] for t in report["tensors"])
    assert "LlamaForCausalLM" in report["modules"]
    assert "oomdoc (report:" in done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_job_of_a_model_with_adapters() -> None:
    for name in ("torch", "transformers", "peft", "accelerate"):
        pytest.importorskip(name)
    import transformers
    from peft import LoraConfig, get_peft_model

    from oomdoc.trainer_callback import job_of_training

    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4
    )
    model = get_peft_model(
        transformers.LlamaForCausalLM(config), LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
    )
    args = transformers.TrainingArguments(
        output_dir="unused",
        per_device_train_batch_size=3,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        optim="adafactor",
        use_cpu=True,
        report_to=[],
    )
    job = job_of_training(args, model, seq_len=128, capacity_gib=24.0)
    assert (job.method, job.lora.r, job.lora.targets) == ("lora", 4, ("q_proj",))
    assert (job.micro_batch, job.grad_accum, job.grad_ckpt, job.optimizer) == (3, 2, True, "adafactor")
    assert (job.seq_len, job.capacity_gib, job.world, job.param_dtype) == (128, 24.0, 1, "fp32")


def test_the_first_step_is_held_against_the_estimate(caplog: pytest.LogCaptureFixture) -> None:
    from oomdoc.trainer_callback import _check_step
    from oomkb.memory.job import Job
    from oomkb.pricing import price

    job = {"model": "Qwen/Qwen2.5-0.5B", "method": "full", "micro_batch": 1, "seq_len": 512}
    estimate = price(Job.from_document(job)).estimate
    with caplog.at_level("INFO", logger="oomdoc"):
        _check_step(estimate, int(estimate.allocated_bytes), "en")
        _check_step(estimate, int(10 * estimate.allocated_bytes), "zh")
    first, second = caplog.records
    assert (first.levelname, second.levelname) == ("INFO", "WARNING")
    assert "+0 %" in first.message
    assert "-90 %" in second.message
