"""Importing oomdoc loads nothing heavy, and a cold answer needs neither torch nor sentence-transformers."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {
    "torch",
    "numpy",
    "faiss",
    "pydantic",
    "fastapi",
    "sentence_transformers",
    "onnxruntime",
    "transformers",
    "yaml",
    "rich",
    "typer",
}


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.splitlines()[-1].split())


def test_import_is_light() -> None:
    assert not loaded_after("import oomdoc; dir(oomdoc)") & HEAVY


def test_pricing_needs_no_numpy() -> None:
    code = "import oomdoc; oomdoc.estimate({'model': 'Qwen/Qwen2.5-7B', 'micro_batch': 1, 'seq_len': 512})"
    assert not loaded_after(code) & (HEAVY - {"yaml"})


def test_a_diagnosis_needs_no_torch() -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB"
    code = f"import oomdoc; oomdoc.diagnose({text!r}); oomdoc.diagnose({text!r})"
    assert not loaded_after(code) & {"torch", "sentence_transformers", "transformers", "fastapi"}
