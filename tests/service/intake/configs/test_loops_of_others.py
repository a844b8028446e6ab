"""Loops that a script leaves to a library, and inputs that it draws itself."""

from __future__ import annotations

from typing import Any

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
DRAWN = """
import torch
from transformers import AutoModelForCausalLM
BATCH, LENGTH = 2, 2048
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype=torch.bfloat16).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    tokens = torch.randint(0, 1000, (BATCH, LENGTH + 1), device="cuda")
    loss = model(input_ids=tokens[:, :-1], labels=tokens[:, 1:]).loss
    loss.backward()
    optimizer.step()
"""


def facts(script: str) -> dict[str, Any]:
    return {name: fact.value for name, fact in read([Source("train.py", script)]).facts.items()}


def test_lightning_s_trainer() -> None:
    found = facts(LIGHTNING)
    wanted = {"micro_batch": 2, "grad_accum": 8, "gpus": 4, "sharding": "zero2", "autocast": "bf16", "seq_len": 512}
    assert {name: found.get(name) for name in wanted} == wanted
    assert found["model"] == "Qwen/Qwen2.5-3B"


def test_token_ids_that_a_script_draws() -> None:
    found = facts(DRAWN)
    assert (found["micro_batch"], found["seq_len"]) == (2, 2048)
