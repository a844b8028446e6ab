"""Host memory of real code on the CPU, each case in a process of its own: anonymous and file-backed peaks.

usage: python bench/measure_host.py [FOLDER]    prints one {"id", "measured", "stated"} a line

Sizes are MiB above what the process held once its libraries were imported. ``anon``: memory of its own, ``file``: pages
of mapped files, which the kernel may drop; both sampled from ``/proc`` every 2 ms. The model is a Llama of 0.1 billion
parameters with weights of its own; nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

CASES = (
    "imports",
    "load-same-dtype",
    "load-fp32-as-bf16",
    "load-bf16-as-fp32",
    "load-pickled",
    "save-safetensors",
    "save-after-training",
    "workers-0",
    "workers-2",
    "workers-objects-2",
)
_CONFIG: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 2048,
    "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip
_DATASET = 96 * 2**20
"""Bytes of the data set that the workers inherit."""


def _now() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return {"anon": int(sizes["RssAnon"]) * 1024, "file": int(sizes["RssFile"]) * 1024}


class Peak:
    """Samples this process's memory in a thread while it is entered."""

    def __enter__(self) -> Peak:
        self.start, self.most, self.on = _now(), {"anon": 0, "file": 0}, True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while self.on:
            for name, size in _now().items():
                self.most[name] = max(self.most[name], size - self.start[name])
            time.sleep(0.002)

    def __exit__(self, *_: object) -> None:
        self.on = False
        self.thread.join()
        self.left = {name: size - self.start[name] for name, size in _now().items()}


def _model(dtype: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    make: Any = AutoModelForCausalLM.from_config
    return make(AutoConfig.for_model("llama", **_CONFIG), dtype=getattr(torch, dtype))


def _shared(pid: int) -> tuple[int, int]:
    """Private and proportional bytes of a process."""
    rows = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
    sizes = {row[0]: int(row[1]) * 1024 for row in rows if row[0].startswith(("Private", "Pss:"))}
    return sizes["Private_Clean:"] + sizes["Private_Dirty:"], sizes["Pss:"]


def _collate(rows: list[Any]) -> Any:
    import torch

    return torch.stack([row[0] if isinstance(row, tuple) else torch.tensor(row) for row in rows])


def _workers(count: int, *, objects: bool) -> dict[str, float]:
    """What workers hold for themselves after two passes over a data set of tensors, or of Python's lists of numbers."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    before = _now()["anon"]
    data: Any
    if objects:
        data = [torch.arange(i, i + 512).tolist() for i in range(_DATASET // 40 // 512)]
    else:
        data = TensorDataset(torch.ones(_DATASET // 8 // 512, 512, dtype=torch.long))
    size = _now()["anon"] - before
    loader = DataLoader(data, batch_size=8, collate_fn=_collate, num_workers=count, persistent_workers=bool(count))
    for _ in range(2):
        for _batch in loader:
            pass
    workers = getattr(loader._iterator, "_workers", []) if count else []
    private = [_shared(worker.pid)[0] for worker in workers]
    return {"workers": count, "dataset": size / 2**20, "private_each": sum(private) / max(1, count) / 2**20}


def _case(name: str, folder: Path) -> dict[str, float]:
    import torch
    import transformers

    if name.startswith("workers"):
        return _workers(int(name.rsplit("-", 1)[1]), objects="objects" in name)
    if name == "imports":
        transformers.LlamaForCausalLM  # noqa: B018  (imports its module)
        return {name: size / 2**20 for name, size in _now().items()}
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    _ = transformers.LlamaForCausalLM, transformers.AutoConfig
    if name.startswith("load"):
        source, dtype = {
            "load-same-dtype": ("bfloat16", "bfloat16"),
            "load-fp32-as-bf16": ("float32", "bfloat16"),
            "load-bf16-as-fp32": ("bfloat16", "float32"),
            "load-pickled": ("pickled", "bfloat16"),
        }[name]
        with Peak() as peak:
            model = load(folder / source, dtype=getattr(torch, dtype))
            for parameter in model.parameters():
                parameter.detach().sum()
    else:
        model = load(folder / "bfloat16", dtype=torch.bfloat16)
        if name == "save-after-training":
            model = model.to(torch.float32)
        with Peak() as peak:
            model.save_pretrained(folder / "out")
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    found = {"weights": weights, "anon": peak.most["anon"], "file": peak.most["file"], "anon_left": peak.left["anon"]}
    return {key: size / 2**20 for key, size in found.items()}


def _prepare(folder: Path) -> None:
    import torch

    for dtype in ("bfloat16", "float32"):
        _model(dtype).save_pretrained(folder / dtype)
    model = _model("bfloat16")
    (folder / "pickled").mkdir()
    model.config.save_pretrained(folder / "pickled")
    torch.save(model.state_dict(), folder / "pickled" / "pytorch_model.bin")


def main() -> int:
    if len(sys.argv) > 2:
        found = _case(sys.argv[1], Path(sys.argv[2]))
        print(json.dumps({"id": sys.argv[1], "measured": {k: round(v, 1) for k, v in found.items()}}), flush=True)
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made)
        _prepare(folder)
        for case in CASES:
            quiet = {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
            subprocess.run([sys.executable, __file__, case, str(folder)], check=True, env=quiet)
    return 0


if __name__ == "__main__":
    sys.exit(main())
