"""Notebooks are read as what stands in their cells and what was printed."""

from __future__ import annotations

import json

from oomdoc.evidence import Source
from oomdoc.intake import read, read_text
from oomdoc.intake.notebooks import is_notebook, notebook_text

CELLS = [
    {"cell_type": "markdown", "source": ["# Fine-tuning on a single T4\n", "It runs out of memory."]},
    {"cell_type": "code", "source": ["!pip install -q trl\n", "%load_ext x\n", "import torch"], "outputs": []},
    {
        "cell_type": "code",
        "source": [
            "from trl import SFTConfig, SFTTrainer\n",
            "args = SFTConfig(per_device_train_batch_size=8, max_length=2048, gradient_checkpointing=False)\n",
            "trainer = SFTTrainer('Qwen/Qwen2.5-7B', args=args)\n",
            "trainer.train()",
        ],
        "outputs": [
            {"output_type": "stream", "name": "stdout", "text": ["step 3 loss=1.2\n"]},
            {"output_type": "display_data", "data": {"image/png": "AAAA" * 1000, "text/plain": ["<Figure>"]}},
            {
                "output_type": "error",
                "ename": "OutOfMemoryError",
                "evalue": "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.74 GiB",
                "traceback": [
                    "\x1b[0;31m---------\x1b[0m",
                    'File "/usr/lib/python3/transformers/trainer.py", line 3, in training_step\n    loss.backward()',
                ],
            },
        ],
    },
    {"cell_type": "code", "source": "%%bash\nvllm serve Qwen/Qwen2.5-7B \\\n  --max-model-len 4096", "outputs": None},
]
NOTEBOOK = json.dumps({"cells": CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_code_output_and_prose_are_read():
    evidence = read([Source("train.ipynb", NOTEBOOK)])
    assert evidence.root is not None
    assert evidence.root.requested_bytes == 2 << 30
    assert evidence.facts["micro_batch"].value == 8
    assert evidence.facts["seq_len"].value == 2048
    assert evidence.facts["model"].value == "Qwen/Qwen2.5-7B"
    assert evidence.facts["phase"].value == "backward"
    assert "It runs out of memory." in evidence.prose
    assert {"trl", "vllm"} <= {d.framework for d in evidence.documents}


def test_pasted_without_a_name():
    assert is_notebook("input", NOTEBOOK)
    assert read_text(NOTEBOOK).root is not None


def test_commands_stand_in_fences_of_their_own():
    text = notebook_text(NOTEBOOK)
    assert text is not None
    assert "```bash\npip install -q trl\n```" in text
    assert "```bash\nvllm serve" in text
    assert "AAAA" not in text


def test_what_is_cut_off_is_read_as_it_stands():
    assert notebook_text(NOTEBOOK[:-40]) is None
    assert notebook_text("[" * 100_000) is None
    assert notebook_text('{"cells": [1, {"cell_type": "code", "source": 3, "outputs": [4]}]}') is not None
    assert read([Source("train.ipynb", NOTEBOOK[:-40])]).root is not None
