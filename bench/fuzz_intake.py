"""Fuzz the reading of pasted texts, files and streams: no exception but a refusal, and no input that takes long.

usage: python bench/fuzz_intake.py [--seconds 120] [--only text|file|stream|patch] [--keep FOLDER] [--seeds FOLDER]

With atheris installed (the extra ``fuzz``) inputs are found by coverage, else mixtures are made up (--plain). What
broke something is written to --keep, and its name printed; the exit status is then 1. The seeds are fragments of
logs, configurations and commands; --seeds adds the files of a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.intake.configs import patch, read_documents
from oomdoc.intake.stream import read_stream
from oomkb.errors import OomdocError

NAMES = ("input", "x.yaml", "x.json", "x.sh", "x.py", "x.toml", "x.ipynb", "Dockerfile", "x.env", "x.log")
LIMIT_S_PER_KB = 0.2
"""Processor seconds that a kilobyte may take, beside half a second for all: instrumented code is several times slower,
and what grows too fast shows all the same."""

FRAGMENTS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
    "(GPU 0; 10.00 GiB total capacity; 8.00 GiB already allocated; 1.00 GiB free; 9.00 GiB reserved in total)",
    "Traceback (most recent call last):\n",
    '  File "/home/x/a.py", line 3, in forward\n    loss.backward()\n',
    "[rank0]: ",
    "(Worker pid=12, ip=10.0.0.1) ",
    "2025-01-01 12:00:00,000 INFO ",
    "8×A100 80G ",
    "4 张 V100 显存 32G ",
    "deepspeed --num_gpus 8 train.py --per_device_train_batch_size 4 \\\n  --bf16 True \\\n",
    "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B \\\n",
    "export A=$((1024 * 2))\nB=${A:-${C}}\n",
    '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}',
    "defaults:\n  - _self_\n  - optimizer: adam\nmodel: &m\n  name: Qwen/Qwen2.5-7B\nother: *m\n",
    "args = TrainingArguments(per_device_train_batch_size=2**3, **kw)\n",
    "[tool]\na = [1, 2]\n",
    "cat <<EOF > x.json\n{}\nEOF\n",
    "```yaml\n",
    "```\n",
    "~~~",
    "exits with return code = -9\n",
    "transformers==4.57.1 torch 2.8.0+cu128\n",
    "爆显存了，batch size 改成 1 还是 OOM",
    "max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache (1000)",
    "hf_abcdefghijklmnopqrstuvwxyz012345 a@b.co 10.1.2.3 /home/bob/x -----BEGIN RSA PRIVATE KEY-----\nAAA\n",
    "|  0  NVIDIA A100-SXM4-80GB  On | 00000000:07:00.0 Off | 0 |\n| N/A 33C P0 62W / 400W | 40000MiB / 81920MiB |\n",
    " 13%|██████            | 6/45 [01:21<08:46, 13.51s/it]\r",
    '{"cells": [{"cell_type": "code", "source": ["!pip x\\n"], "outputs": [{"text": ["CUDA out of memory"]}]}]}',
    "\x1b[31m",
    "\r\n",
    "\t",
    "$(",
    "{{ x }}",
    "<<",
    "\\",
    '"',
    "'",
    "\u2028",
    "\ud800",
    "İ",
    "ſ",
    "\x00",
)


def check_text(text: str, name: str = "input") -> None:
    """Read it; what comes out must keep the promises of evidence."""
    with contextlib.suppress(OomdocError):
        evidence = read([Source(name, text)])
        assert len(evidence.digest.encode("utf-8", "replace")) <= 4096
        for fact in evidence.facts.values():
            assert 0 <= fact.confidence <= 1
            assert fact.span.line >= 1
        hash(evidence.language)


def check_file(text: str, name: str) -> None:
    """Read it as a configuration: nothing may be raised at all."""
    reading = read_documents(Source(name, text))
    for document in reading.documents:
        for setting in document.settings:
            assert setting.span.line >= 1


def check_patch(text: str, name: str) -> None:
    """Change it: the text must come back whole where nothing could be placed."""
    with contextlib.suppress(OomdocError):
        done = patch(text, filename=name, changes={"micro_batch": 1, "grad_ckpt": True})
        assert done.unplaced or done.text or not text


def check_stream(data: bytes, folder: Path) -> None:
    """Read it as a file, packed or not."""
    path = folder / "x.log"
    for form in (data, gzip.compress(data, 1), b"\x1f\x8b" + data, b"\x28\xb5\x2f\xfd" + data):
        path.write_bytes(form)
        with contextlib.suppress(OomdocError):
            read_stream(path)


class Fuzzer:
    """Runs one input through all that is asked for, and keeps what breaks."""

    def __init__(self, only: str, keep: Path) -> None:
        self.only, self.keep = only, keep
        self.folder = Path(tempfile.mkdtemp())
        self.runs = 0
        self.broken: dict[str, str] = {}

    def one(self, data: bytes) -> None:
        """Any bytes: the first chooses the name, the rest is the text."""
        self.runs += 1
        name = NAMES[data[0] % len(NAMES)] if data else NAMES[0]
        text = data[1:].decode("utf-8", errors="surrogateescape" if data[:1] > b"\xf0" else "replace")
        checks: dict[str, Callable[[], Any]] = {
            "text": lambda: check_text(text, name),
            "file": lambda: check_file(text, name),
            "patch": lambda: check_patch(text, name),
        }
        if self.only in ("", "stream") and (self.only or len(data) % 8 == 0):
            checks["stream"] = lambda: check_stream(data, self.folder)
        for what, check in checks.items():
            if self.only in ("", what):
                self.run(what, check, data)

    def run(self, what: str, check: Callable[[], Any], data: bytes) -> None:
        """One check in bounded time."""
        started = time.process_time()
        try:
            check()
        except Exception as error:  # whatever it is, it is what is being looked for
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.report(f"{what} {type(error).__name__} {Path(place.filename).name}:{place.lineno}", data)
        used = time.process_time() - started
        if used > 0.5 + LIMIT_S_PER_KB * len(data) / 1024 and self.runs > 20:
            self.report(f"{what} slow", data, f"{used:.2f} s for {len(data)} bytes")

    def report(self, kind: str, data: bytes, more: str = "") -> None:
        """Print and keep the first input of each kind."""
        if kind in self.broken:
            return
        self.keep.mkdir(parents=True, exist_ok=True)
        path = self.keep / f"{kind.split(maxsplit=1)[0]}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        self.broken[kind] = str(path)
        print(f"{kind} {more} -> {path}", flush=True)


def made_up(rng: random.Random, pieces: Sequence[str]) -> bytes:
    """Fragments glued, cut, repeated and with characters changed."""
    parts = []
    for _ in range(rng.randrange(1, 12)):
        piece = rng.choice(pieces)
        if rng.random() < 0.2:
            piece = piece[rng.randrange(len(piece)) :] if piece else piece
        if rng.random() < 0.1:
            piece *= rng.randrange(1, 60)
        if rng.random() < 0.3 and piece:
            at = rng.randrange(len(piece))
            piece = piece[:at] + rng.choice("\n\t\\\"'{}[]():=$#-*&|<>,.0Aa显\x00\r ") + piece[at + rng.randrange(3) :]
        parts.append(piece + rng.choice(("", "", "\n", " ", "\n\n", ", ")))
    return bytes([rng.randrange(256)]) + "".join(parts)[:6000].encode("utf-8", "surrogatepass")


def with_atheris(fuzzer: Fuzzer, seconds: float, seeds: Path) -> None:
    """Guided by coverage, in a process of its own: the fuzzer's loop ends the process that it runs in."""
    import atheris

    child = os.fork()
    if child == 0:
        atheris.instrument_all()
        arguments = [sys.argv[0], f"-max_total_time={int(seconds)}", "-max_len=4000", "-verbosity=0", str(seeds)]
        atheris.Setup(arguments, fuzzer.one)
        atheris.Fuzz()
        os._exit(0)
    os.waitpid(child, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", choices=("", "text", "file", "stream", "patch"), default="")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "fuzz_intake")
    parser.add_argument("--seeds", type=Path)
    parser.add_argument("--plain", action="store_true", help="made-up mixtures only, without coverage")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    fuzzer = Fuzzer(options.only, options.keep)
    pieces = list(FRAGMENTS)
    for path in sorted(options.seeds.rglob("*")) if options.seeds else []:
        if path.is_file() and path.stat().st_size < 20_000:
            pieces.append(path.read_text(encoding="utf-8", errors="replace")[:3000])
    rng = random.Random(options.seed)
    before = set(options.keep.iterdir()) if options.keep.exists() else set()
    if not options.plain and find_spec("atheris") is not None:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(400):
                (Path(folder) / str(number)).write_bytes(made_up(rng, pieces))
            with_atheris(fuzzer, options.seconds, Path(folder))
    else:
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            fuzzer.one(made_up(rng, pieces))
        print(f"{fuzzer.runs} inputs")
    broken = set(options.keep.iterdir()) - before if options.keep.exists() else set()
    print(f"{len(broken)} kinds of trouble")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
