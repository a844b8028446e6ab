"""Time ``oomdoc estimate --batch`` for 10,000 jobs over every model of the catalogue, start-up included.

    python bench/estimate_batch.py [--jobs 10000] [--mixed] [--command oomdoc] [--profile]

By default five ways to run a model, with any batch size and length, on any card; ``--mixed`` draws method, sharding,
checkpointing and framework one by one, so that few jobs are alike. The draw is always the same. Prints wall and CPU
seconds of the command and of an empty loop (of ten million rounds, 0.4 s on an idle core: the machine may be busy),
and the largest resident size. ``--profile`` runs the same jobs in this process under cProfile instead.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import random
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CARDS = ("A100-SXM4-80GB", "H100-SXM5-80GB", "RTX 4090", "RTX 3090", "L40S", "V100-SXM2-32GB", "MI300X", "A6000")
METHODS = ("full", "lora", "qlora")
SHARDINGS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2")


PRESETS = (
    {"method": "lora", "lora": {"r": 16}, "grad_ckpt": True, "framework": "trl", "sharding": "none"},
    {"method": "qlora", "lora": {"r": 16}, "grad_ckpt": True, "framework": "llama-factory", "sharding": "none"},
    {"method": "full", "grad_ckpt": True, "framework": "axolotl", "sharding": "fsdp2", "world": 8},
    {"method": "full", "grad_ckpt": True, "framework": "llama-factory", "sharding": "zero3", "world": 8},
    {"framework": "vllm", "serving": {"max_model_len": 8192}},
)


def jobs(count: int, *, mixed: bool) -> list[dict]:
    """Documents over all models of the catalogue, the same ones every time."""
    from oomkb.catalog import models

    draw = random.Random(7)
    names = [entry.name for entry in models.all_models()]
    found = []
    for i in range(count):
        way = drawn(draw) if mixed else dict(draw.choice(PRESETS))
        if "serving" not in way:
            way |= {"micro_batch": draw.choice((1, 2, 4, 8)), "seq_len": draw.choice((512, 1024, 2048, 4096, 8192))}
        found.append({"id": f"{i}", "job": {"model": names[i % len(names)], "gpu": draw.choice(CARDS), **way}})
    return found


def drawn(draw: random.Random) -> dict:
    """One way to run a model, each choice by itself."""
    if draw.random() < 0.1:
        return {"framework": "vllm", "serving": {"max_model_len": 8192}}
    method = draw.choice(METHODS)
    way = {
        "method": method,
        "grad_ckpt": draw.random() < 0.6,
        "sharding": "none" if method == "qlora" else draw.choice(SHARDINGS),
        "world": draw.choice((1, 2, 8)),
    }
    framework = draw.choice(("trl", "llama-factory", "axolotl", None))
    adapters = {} if method == "full" else {"lora": {"r": draw.choice((8, 16, 64))}}
    return {**way, **adapters, **({"framework": framework} if framework else {})}


def empty_loop() -> float:
    """CPU seconds of ten million rounds of nothing."""
    started, total = time.process_time(), 0
    for i in range(10_000_000):
        total += i
    return time.process_time() - started


def profiled(path: Path) -> None:
    """The batch in this process, under the profiler."""
    from oomdoc.cli.common import json_lines
    from oomdoc.cli.pricing import line_of

    profile = cProfile.Profile()
    profile.enable()
    for row in json_lines(path):
        line_of(row, path, "en")
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--command", default=shutil.which("oomdoc") or str(Path(sys.executable).with_name("oomdoc")))
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    rows = jobs(given.jobs, mixed=given.mixed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        if given.profile:
            profiled(path)
            return
        started = time.perf_counter()
        done = subprocess.run(
            [*shlex.split(given.command), "estimate", "--batch", str(path), "--format", "json"],
            capture_output=True,
            text=True,
            check=True,
        )
        wall = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    refused = sum(bool(json.loads(line)["error"]) for line in done.stdout.splitlines())
    print(
        f"{len(rows)} jobs over {len({row['job']['model'] for row in rows})} models: {wall:.1f} s, "
        f"{used.ru_utime + used.ru_stime:.1f} s of CPU (an empty loop {empty_loop():.2f} s), "
        f"{used.ru_maxrss / 1024:.0f} MiB at most, {refused} refused"
    )


if __name__ == "__main__":
    main()
