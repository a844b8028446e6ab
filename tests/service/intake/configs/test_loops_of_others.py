"""Scripts with a loop of their own, or with a library's: what the calls in them say."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.evidence import Source
from oomdoc.intake import read

LIGHTNING = """
import lightning as L
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = None

    def configure_model(self):
        if self.model is None:
            self.model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B", torch_dtype=torch.float32)

    def training_step(self, batch, _):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=1e-5)

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-3B")
data = data.map(lambda b: tok(b["text"], truncation=True, max_length=512), batched=True)
loader = DataLoader(data, batch_size=2)
trainer = L.Trainer(devices=4, strategy="deepspeed_stage_2", precision="bf16-mixed", accumulate_grad_batches=8)
trainer.fit(Lit(), loader)
"""


def facts(script: str) -> dict[str, Any]:
    return {name: fact.value for name, fact in read([Source("train.py", script)]).facts.items()}


def test_lightning_s_trainer() -> None:
    found = facts(LIGHTNING)
    wanted = {"micro_batch": 2, "grad_accum": 8, "gpus": 4, "sharding": "zero2", "autocast": "bf16", "seq_len": 512}
    assert {name: found.get(name) for name in wanted} == wanted
    assert found["model"] == "Qwen/Qwen2.5-3B"


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("opt = torch.optim.AdamW(model.parameters(), fused=True)", "optimizer_impl", "fused"),
        ("opt = bnb.optim.PagedAdamW8bit(model.parameters())", "optimizer", "paged_adamw_8bit"),
        ("opt = mine.Optimizer(model.parameters())", "optimizer", None),
        ("model = nn.parallel.DistributedDataParallel(model)", "sharding", "ddp"),
        ("fully_shard(model, reshard_after_forward=False)", "reshard_after_forward", False),
        ("fully_shard(model, offload_policy=CPUOffloadPolicy())", "offload", ["optimizer", "param"]),
        ("policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)", "autocast", "bf16"),
        ("model.gradient_checkpointing_enable()", "grad_ckpt", True),
        ("model = prepare_model_for_kbit_training(model)", "grad_ckpt", True),
        ("a, b = DataLoader(train, batch_size=6), DataLoader(test, batch_size=1)", "micro_batch", 6),
        ("tokenizer = AutoTokenizer.from_pretrained('org/other-1b')", "model", "org/name-1b"),
        ("trainer = L.Trainer(strategy='deepspeed_stage_3_offload')", "offload", ["optimizer", "param"]),
        ("trainer = L.Trainer(strategy=DeepSpeedStrategy(stage=3))", "sharding", "zero3"),
    ],
)
def test_what_calls_beside_a_model_say(line: str, field: str, expected: Any) -> None:
    head = (
        "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('org/name-1b')\n"
    )
    assert facts(f"{head}{line}\n").get(field) == expected
