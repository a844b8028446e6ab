"""What a person's own training script says as a whole: its setup, its loop, and what the loop keeps alive."""

from __future__ import annotations

import json

import pytest

from oomdoc.evidence import Source
from oomdoc.intake.configs import read_documents, to_job
from oomdoc.intake.configs.scripts.knowledge import calls
from oomdoc.intake.read import read

HEAD = """import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("org/name-1b")
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
LOOP = """for step, batch in enumerate(loader):
    out = model(**batch)
    out.loss.backward()
    opt.step()
    opt.zero_grad()
"""


def facts(text, name="train.py"):
    return {fact.name: fact for fact in read_documents(Source(name, text)).facts}


def value(text, field):
    fact = facts(text).get(field)
    return fact.value if fact is not None else None


@pytest.mark.parametrize(
    ("made", "optimizer", "how"),
    [
        ("torch.optim.AdamW(model.parameters(), fused=True)", "adamw", "fused"),
        ("torch.optim.AdamW(model.parameters(), foreach=False)", "adamw", "single"),
        ("torch.optim.SGD(model.parameters(), lr=1)", "sgd", None),
        ("torch.optim.SGD(model.parameters(), lr=1, momentum=0.9)", "sgd_momentum", None),
        ("torch.optim.Muon(model.parameters())", "muon", None),
        ("bnb.optim.AdamW8bit(model.parameters())", "adamw_8bit", None),
        ("bnb.optim.AdamW(model.parameters(), optim_bits=8)", "adamw_8bit", None),
        ("Lion(model.parameters())", "lion_pytorch", None),
        ("GaLoreAdamW8bit([{'params': list(model.parameters()), 'rank': 128}])", "galore_adamw_8bit", None),
        ("FusedAdam(model.parameters())", "adamw", "fused"),
        ("my.Optimizer(model.parameters())", None, None),
    ],
)
def test_the_optimizer_is_read_by_its_class_and_arguments(made, optimizer, how):
    imports = "import bitsandbytes as bnb\nfrom lion_pytorch import Lion\nfrom galore_torch import GaLoreAdamW8bit\n"
    text = imports + "from apex.optimizers import FusedAdam\n" + HEAD.rsplit("opt =", 1)[0] + f"opt = {made}\n" + LOOP
    assert (value(text, "optimizer"), value(text, "optimizer_impl")) == (optimizer, how)


def test_two_optimizers_of_different_kinds_leave_it_open():
    text = HEAD + "if args.big:\n    opt = torch.optim.SGD(model.parameters(), lr=1)\n" + LOOP
    assert value(text, "optimizer") == "adamw"  # what an open condition guards is not taken
    assert value(text.replace("if args.big:\n    ", ""), "optimizer") is None


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        ("out = model(**b)\n    out.loss.backward()", {"loop.loss": "model", "loop.outputs_kept": True}),
        ("loss = model(**b).loss\n    loss.backward()", {"loop.loss": "model", "loop.outputs_kept": None}),
        ("out = model(**b)\n    out.loss.backward()\n    del out", {"loop.outputs_kept": None}),
        ("out = model(**b)\n    out = out.loss\n    out.backward()", {"loop.outputs_kept": None}),
        (
            "logits = model(x).logits\n    F.cross_entropy(logits.view(-1, 9), y.view(-1)).backward()",
            {"loop.loss": "script", "loop.outputs_kept": True, "loop.loss_autocast": None},
        ),
        (
            "logits = model(x).logits\n    s = logits[:, :-1].contiguous()\n    crit(s.view(-1, 9), y).backward()",
            {"loop.loss": "script-shifted"},
        ),
        (
            "with torch.autocast('cuda', dtype=torch.bfloat16):\n        logits = model(x).logits\n"
            "    crit(logits.float(), y).backward()",
            {"loop.loss": "script", "loop.loss_autocast": False, "autocast": "bf16"},
        ),
    ],
)
def test_who_computes_the_loss_and_what_outlives_the_step(step, wanted):
    read_ = facts(HEAD + f"crit = nn.CrossEntropyLoss()\nfor b in loader:\n    {step}\n    opt.step()\n")
    assert {name: read_[name].value if name in read_ else None for name in wanted} == wanted


def test_names_of_a_function_that_is_one_step_end_with_it():
    body = "def step(batch):\n    out = model(**batch)\n    out.loss.backward()\n    opt.step()\n    return out.loss.item()\n"
    text = HEAD + body + "for batch in loader:\n    step(batch)\n"
    assert value(text, "loop.outputs_kept") is None
    assert value(text, "loop.loss") == "model"


def test_the_facts_are_the_jobs():
    text = HEAD + LOOP.replace("zero_grad()", "zero_grad(set_to_none=False)")
    evidence = read([Source("train.py", text)])
    job = to_job(evidence.facts, evidence.framework)
    assert (job.loop.zero_grad_in_place, job.loop.outputs_kept, job.objective) == (True, True, "sft")


def test_a_notebooks_cells_are_one_program():
    cells = [
        HEAD.split("opt =", maxsplit=1)[0],
        "opt =" + HEAD.split("opt =")[1],
        LOOP + "    seen.append(out.logits)\n",
    ]
    document = {"nbformat": 4, "cells": [{"cell_type": "code", "source": c, "outputs": []} for c in cells]}
    evidence = read([Source("train.ipynb", json.dumps(document))])
    assert (evidence.facts["optimizer"].value, evidence.facts["loop.outputs_kept"].value) == ("adamw", True)


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("model = model.half()", "param_dtype", "fp16"),
        ("model.to(torch.bfloat16)", "param_dtype", "bf16"),
        ("other.half()", "param_dtype", None),
        ("model = torch.compile(model)", "compile", True),
        ("model = nn.parallel.DistributedDataParallel(model)", "sharding", "ddp"),
        ("model.gradient_checkpointing_enable()", "grad_ckpt", True),
        ("if FLAGS.gc:\n    model.gradient_checkpointing_enable()", "compile", None),
        ("loader = DataLoader(data, batch_size=6, num_workers=3)", "micro_batch", 6),
        ("loader = DataLoader(data, batch_size=6, num_workers=3)", "extra.dataloader_num_workers", 3),
        ("from peft import prepare_model_for_kbit_training as p\nmodel = p(model)", "loop.kbit_prepared", True),
        ("from peft import prepare_model_for_kbit_training as p\nmodel = p(model)", "grad_ckpt", True),
        ("from peft import prepare_model_for_kbit_training as p\nmodel = p(model, False)", "grad_ckpt", None),
    ],
)
def test_what_is_set_up(line, field, expected):
    assert value(f"{HEAD}{line}\n{LOOP}", field) == expected


def test_every_fact_names_its_line():
    text = HEAD + LOOP.replace("zero_grad()", "zero_grad(set_to_none=False)")
    read_ = facts(text)
    assert "zero_grad" in read_["loop.zero_grad_in_place"].span.text
    assert "AdamW" in read_["optimizer"].span.text


def test_micro_batches_are_counted():
    every = LOOP.replace("    opt.step()\n    opt.zero_grad()\n", "    if (step + 1) % ACC == 0:\n        opt.step()\n")
    assert value(HEAD + "ACC = 4\n" + every, "grad_accum") == 4
    nested = "while True:\n    for _ in range(3):\n        model(**b).loss.backward()\n    opt.step()\n"
    assert value(HEAD + nested, "grad_accum") == 3


def test_comments_texts_and_what_is_switched_off_say_nothing():
    text = (
        HEAD.split("opt =", maxsplit=1)[0]
        + 'DEBUG = False\n# opt.zero_grad(set_to_none=False)\nHELP = "model.half()"\n'
    )
    text += "if DEBUG:\n    model.half()\nwith torch.no_grad():\n    logits = model(x).logits\n"
    read_ = facts(text)
    assert not {"param_dtype", "optimizer", "loop.loss", "loop.outputs_kept", "loop.zero_grad_in_place"} & set(read_)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "a." * 4000 + "b\n",
        HEAD + "".join(f"{'    ' * i}for a{i} in model(x):\n" for i in range(60)) + "    " * 60 + "pass\n",
        HEAD + "a = a\nb = c\nc = b\n" + "model.to(a)\nloader = DataLoader(d, batch_size=b)\n" + LOOP,
        HEAD + "model = f(model)\n" * 3000 + LOOP,
    ],
    ids=["chain", "nested", "circular", "long"],
)
def test_odd_programs_are_read_without_error(text):
    read_documents(Source("train.py", text))


def test_the_table_of_calls_holds_words_of_the_job():
    known = calls()
    assert len(known.optimizers) > 25
    assert known.optimizers["torch.optim.Muon"] == ("muon", "")
    assert "Adafactor" not in known.bare  # torch's and transformers' hold different states


def test_a_variable_called_dtype_is_not_what_the_weights_are_held_in():
    text = "dtype = 'bfloat16'\n" + HEAD + LOOP
    assert value(text, "param_dtype") is None
    assert value(text.replace('-1b")', '-1b", torch_dtype=dtype)'), "param_dtype") == "bf16"
