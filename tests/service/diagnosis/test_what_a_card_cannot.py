"""Settings that the card cannot run are said, whatever else was asked; and plans keep within what they say."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import diagnose
from oomdoc.diagnosis.throughput import relative_speed, throughput
from oomdoc.intake import read_text
from oomkb.memory.job import Job
from oomkb.pricing import price

_REPORT = """axolotl, {adapter} of mistralai/Mistral-7B-v0.1 on one {gpu}
base_model: mistralai/Mistral-7B-v0.1
adapter: {adapter}
sequence_len: 4096
micro_batch_size: 4
flash_attention: true
fp16: true
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB
"""


@pytest.mark.parametrize(
    ("gpu", "runs"), [("V100 32GB", False), ("T4 16GB", False), ("RTX 3090", True), ("A100 40GB", True)]
)
@pytest.mark.parametrize("adapter", ["lora", "qlora"])
def test_flash_attention_on_a_card_that_has_none_is_said(gpu: str, runs: bool, adapter: str) -> None:
    found = diagnose(read_text(_REPORT.format(gpu=gpu, adapter=adapter)))
    said = [c for c in found.conflicts if c.field == "attention"]
    assert bool(said) is not runs
    assert all(c.likely == "sdpa" for c in said)


@pytest.mark.parametrize("grad_ckpt", [True, False])
def test_the_host_holds_what_activation_offloading_moves(grad_ckpt: bool) -> None:
    fields = {
        "model": "mistralai/Mistral-7B-v0.1",
        "method": "qlora",
        "micro_batch": 2,
        "seq_len": 4096,
        "gpu": "A100-80GB",
    }
    before = price(Job.from_document({**fields, "grad_ckpt": grad_ckpt})).estimate
    after = price(Job.from_document({**fields, "grad_ckpt": grad_ckpt, "offload": ["activations"]})).estimate
    held = [e.phases["forward"].terms_bytes.get("activations", 0.0) for e in (before, after)]
    assert after.host_bytes >= 0.9 * (held[0] - held[1]) > 0


@pytest.mark.parametrize("length", [2048, 1024, 512])
def test_cutting_samples_is_no_speed(length: int) -> None:
    fields = {"model": "Qwen/Qwen2.5-7B", "method": "lora", "micro_batch": 4, "gpu": "RTX 4090"}
    one, other = (price(Job.from_document({**fields, "seq_len": n})) for n in (4096, length))
    paces = [throughput(p.job, p.shape, p.device) for p in (one, other)]
    assert 0.5 < relative_speed(*paces) < 1.1


def test_optimizers_are_written_as_transformers_spells_them() -> None:
    training_args = pytest.importorskip("transformers.training_args")
    from oomdoc.intake.configs.codecs import OPTIMIZER

    known = {name.value for name in training_args.OptimizerNames}
    for word in ("adamw", "adamw_8bit", "adamw_4bit", "paged_adamw", "paged_adamw_8bit", "lion", "lion_8bit", "sgd"):
        assert OPTIMIZER.write(word, None) in known


@pytest.mark.parametrize("tokens", [16384, 32768, 65536])
def test_a_limit_of_tokens_fills_the_micro_batch(tokens: int) -> None:
    fields = {"model": "Qwen/Qwen2.5-7B", "framework": "verl", "objective": "grpo", "gpu": "H100"}
    lengths = {"prompt_len": 1024, "completion_len": 3072, "gpus": 8, "world": 8}
    limited = price(Job.from_document({**fields, **lengths, "micro_tokens": tokens})).estimate
    counted = price(Job.from_document({**fields, **lengths, "micro_batch": tokens // 4096})).estimate
    terms = [e.phases["loss"].terms_bytes["logits and loss"] for e in (limited, counted)]
    assert terms[0] == pytest.approx(terms[1], rel=0.02)
