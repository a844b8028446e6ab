"""Fuzz what takes input: no exception but a refusal, no input that takes long, no figure beyond any machine.

usage: python bench/fuzz_intake.py [--seconds 120] [--only text|file|stream|patch|estimate|diagnose|document|mask]
                                   [--keep FOLDER] [--seeds FOLDER] [--plain] [--runs N]

With atheris installed (the extra ``fuzz``) inputs are found by coverage, else mixtures are made up (--plain). What
broke something is written to --keep, and its name printed; the exit status is then 1. The seeds are fragments of
logs, configurations and commands; --seeds adds the files of a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import gzip
import hashlib
import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.intake.configs import patch, read_documents
from oomdoc.intake.redact import mask
from oomdoc.intake.stream import load_source
from oomdoc.library import diagnose, estimate
from oomdoc.planner import job_of_text, plan_document, plan_job
from oomdoc.stated import stated_fields
from oomkb.errors import OomdocError
from oomkb.memory.families.family import FAMILIES
from oomkb.memory.job import Job
from oomkb.memory.names import NAMES as CONFIG_NAMES
from oomkb.records.loader import parse_case
from oomkb.untrusted import json_document, yaml_document

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
    "0b model ",
    "Tried to allocate 1;0Btotalcapacity2Balreadyallocated5GBreservedintotal",
    "model: &a [*a]\n? [a]\ndate: 2001-13-45\nx: .inf\n",
    "num_hidden_layers: 10000000\nhidden_size: 1e400\n",
    "seq_len: 99999999999999999999\nmicro_batch: NaN\n",
)


SHARES = {"mask": 60, "file": 70, "patch": 50, "document": 24, "estimate": 24, "text": 22, "stream": 4, "diagnose": 2}
"""Runs of each check among 256: a diagnosis takes as long as a hundred files, and reads with the same code."""
KINDS = tuple(SHARES)
TURNS = tuple(kind for kind, share in SHARES.items() for _ in range(share))
PARSERS = (
    "oomdoc.intake",
    "oomdoc.stated",
    "oomdoc.planner",
    "oomkb.limits",
    "oomkb.untrusted",
    "oomkb.records",
    "oomkb.memory.job",
)
"""Whose branches guide the fuzzer: what is computed from what was read has next to none of its own."""


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


def check_diagnosis(text: str, name: str) -> None:
    """The whole diagnosis, in every form that it is shown in."""
    with contextlib.suppress(OomdocError):
        report = diagnose([Source(name, text)])
        document = report.document()
        json.dumps(document, allow_nan=False)
        report.text()
        report.markdown()
        report._repr_html_()
        if document["estimate"]:
            check_figures(document["estimate"])


def check_estimate(text: str, rng: random.Random) -> None:
    """A job document of nonsense: refused, or priced with figures that a machine could show."""
    job = nonsense_job(rng, text)
    with contextlib.suppress(OomdocError):
        document = estimate(job).document()
        json.dumps(document, allow_nan=False)
        check_figures(document)
    with contextlib.suppress(OomdocError):
        stated_fields(job)
    with contextlib.suppress(OomdocError):
        plan_document(plan_job("", "", {k: v for k, v in job.items() if k in FIELDS}), "en")


def check_figures(document: dict[str, Any]) -> None:
    """Finite, not negative, in order, and within a petabyte."""
    peak = document["peak_gib"]
    assert 0 <= peak["allocated"] <= 1e6
    assert 0 <= peak["reserved"] <= 1e6
    assert 0 <= peak["process"] <= 1e6
    assert 0 <= document["host_gib"] <= 1e6
    assert document["fits_probability"] is None or 0 <= document["fits_probability"] <= 1


def check_document(text: str) -> None:
    """As YAML and JSON from outside, as a case record, and as a memory snapshot's neighbour."""
    for read_one in (yaml_document, json_document):
        with contextlib.suppress(OomdocError):
            read_one(text, where="x")
    with contextlib.suppress(OomdocError):
        parse_case(text, case_id="leak/x")
    with contextlib.suppress(OomdocError):
        job_of_text(text, "x.yaml")


def check_mask(text: str) -> None:
    """Masking can be undone, keeps lines, and changes nothing the second time."""
    text = text.encode("utf-8", "replace").decode()
    masked = mask(text)
    assert masked.restore() == text
    assert masked.text.count("\n") == text.count("\n")


ODD: tuple[Any, ...] = (
    *(0, -1, 1, 2, 7, 10**6, 10**9, 2**31, 2**63, 10**30, 0.5, -0.5, 1e300, float("inf"), float("nan"), True, None),
    *("", "1", "4k", "24 GB", "NaN", "1e400", "auto", "90%", "x" * 5000, [], {}, [[]], [1], {"a": 1}, ["optimizer", 1]),
)
FIELDS = tuple(f.name for f in dataclasses.fields(Job) if f.name not in ("extra", "assumed"))
CONFIG_KEYS = tuple(key for names in CONFIG_NAMES.values() for key in names)
MODELS = (
    "Qwen/Qwen2.5-7B",
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "nobody/nothing",
)
USUAL: dict[str, Any] = {
    "micro_batch": 4,
    "seq_len": 4096,
    "method": "lora",
    "objective": "sft",
    "gpus": 8,
    "gpu": "A100",
    "sharding": "zero3",
    "lora": {"r": 8},
    "serving": {"max_model_len": 4096, "gpu_memory_utilization": 0.9},
    "rollout": {"engine": "vllm", "colocated": True},
    "extra_models": [{"role": "reference", "model": "Qwen/Qwen2.5-7B"}],
    "grad_ckpt": True,
    "quant": "nf4",
    "optimizer": "adamw",
    "images": 2,
    "pp": 2,
    "tp": 2,
}
SHAPE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "intermediate_size": 11008,
}


def nonsense_job(rng: random.Random, text: str) -> dict[str, Any]:
    """Usual fields with some of odd values; the model by name, or a configuration changed in the same way."""
    odd = (*ODD, text[:200])
    job: dict[str, Any] = {"model": rng.choice(MODELS)}
    job.update({k: USUAL[k] for k in rng.sample(sorted(USUAL), rng.randrange(8))})
    if rng.random() < 0.4:
        kinds = sorted(FAMILIES)
        shape = (
            SHAPE
            | {"model_type": rng.choice(kinds)}
            | {rng.choice(CONFIG_KEYS): rng.choice(odd) for _ in range(rng.randrange(4))}
        )
        job["model"] = (
            shape | {rng.choice(("vision_config", "text_config", "layer_types")): rng.choice(odd)}
            if rng.random() < 0.3
            else shape
        )
    for _ in range(rng.randrange(4)):
        job[rng.choice(FIELDS)] = rng.choice(odd)
    for part, names in (
        ("lora", ("r", "targets", "dropout")),
        ("serving", ("max_model_len", "max_num_seqs", "kv_dtype")),
    ):
        if rng.random() < 0.2:
            job[part] = {rng.choice(names): rng.choice(odd)}
    return job


def check_stream(data: bytes, folder: Path) -> None:
    """Read it as a file, packed or not."""
    path = folder / "x.log"
    for form in (data, gzip.compress(data, 1), b"\x1f\x8b" + data, b"\x28\xb5\x2f\xfd" + data):
        path.write_bytes(form)
        with contextlib.suppress(OomdocError):
            load_source(path)


class Fuzzer:
    """Runs one input through all that is asked for, and keeps what breaks."""

    def __init__(self, only: str, keep: Path) -> None:
        self.only, self.keep = only, keep
        self.folder = Path(tempfile.mkdtemp())
        self.runs = 0
        self.broken: dict[str, str] = {}

    def one(self, data: bytes) -> None:
        """Any bytes: the first chooses the name, the second the check, the rest is the text."""
        self.runs += 1
        first, second = (data[0], data[1]) if len(data) > 1 else (0, 0)
        name, what = NAMES[first % len(NAMES)], self.only or TURNS[second % len(TURNS)]
        text = data[2:].decode("utf-8", errors="surrogateescape" if first > 0xF0 else "replace")
        checks: dict[str, Callable[[], Any]] = {
            "text": lambda: check_text(text, name),
            "file": lambda: check_file(text, name),
            "stream": lambda: check_stream(data, self.folder),
            "patch": lambda: check_patch(text, name),
            "estimate": lambda: check_estimate(text, random.Random(data)),
            "diagnose": lambda: check_diagnosis(text, name),
            "document": lambda: check_document(text),
            "mask": lambda: check_mask(text),
        }
        self.run(what, checks[what], data)

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
    return bytes([rng.randrange(256), rng.randrange(256)]) + "".join(parts)[:6000].encode("utf-8", "surrogatepass")


def lighten() -> None:
    """Leave out what no input can break and every diagnosis takes: the encoder, and looking for new case files."""
    import zlib

    import numpy

    from oomkb.records.loader import pin_cases
    from oomkb.retrieval.onnx_model import OnnxEncoder

    width = 384

    def any_vectors(_self: OnnxEncoder, texts: Sequence[str]) -> Any:
        drawn = [numpy.random.default_rng(zlib.crc32(t.encode("utf-8", "replace"))).normal(size=width) for t in texts]
        return numpy.stack([v / numpy.linalg.norm(v) for v in drawn]).astype(numpy.float32)

    pin_cases()
    OnnxEncoder.encode_quickly = any_vectors  # type: ignore[method-assign]


def with_atheris(fuzzer: Fuzzer, seconds: float, runs: int, seeds: Path) -> None:
    """Guided by coverage, in a process of its own: the fuzzer's loop ends the process that it runs in."""
    import atheris

    child = os.fork()
    if child == 0:
        lighten()
        for number in range(100):  # what is loaded late is loaded now
            fuzzer.one(made_up(random.Random(number), FRAGMENTS))
        for found in [o for o in gc.get_objects() if isinstance(o, FunctionType)]:
            if str(found.__module__).startswith(PARSERS):
                atheris.instrument_func(found)
        gc.freeze()
        arguments = [sys.argv[0], f"-max_total_time={int(seconds)}", "-max_len=4000", "-verbosity=0"]
        arguments += ["-print_final_stats=1", f"-runs={runs or -1}", str(seeds)]
        atheris.Setup(arguments, fuzzer.one)
        atheris.Fuzz()
        os._exit(0)
    os.waitpid(child, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", choices=("", *KINDS), default="")
    parser.add_argument("--runs", type=int, default=0, help="stop after so many inputs")
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
            with_atheris(fuzzer, options.seconds, options.runs, Path(folder))
    else:
        end = time.monotonic() + options.seconds
        while time.monotonic() < end and not 0 < options.runs <= fuzzer.runs:
            fuzzer.one(made_up(rng, pieces))
        print(f"{fuzzer.runs} inputs")
    broken = set(options.keep.iterdir()) - before if options.keep.exists() else set()
    print(f"{len(broken)} kinds of trouble")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
