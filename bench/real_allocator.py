"""The allocator of oomkb.memory.allocator against PyTorch's own, event by event, on a machine without a GPU.

    pip download --no-deps torch==2.13.0          # a CUDA build, as PyPI has it; unpack torch/lib and torch/include
    python bench/real_allocator.py --torch DIR --cuda /usr/local/cuda [--runs 300] [--record FILE.jsonl]

``DIR/torch/lib/libc10_cuda.so`` is the compiled caching allocator of that release. It is run over ``real_allocator/
fake_cuda.cpp``, a CUDA runtime that counts addresses up and keeps no memory, so that what the allocator decides is its
own. Random sequences of allocations, frees, uses on other streams, completed streams and emptied caches, under random
settings and capacities, go through both; address, allocated and reserved bytes are compared after each event, segments
with their blocks at the end. ``--jobs`` sends the first steps of training runs through both as well. ``--record``
writes some of the sequences with the original's answers, for ``tests/kb/memory/test_allocator.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oomkb.memory.allocator.blocks import Block
from oomkb.memory.allocator.caching import CachingAllocator
from oomkb.memory.allocator.config import parse
from oomkb.memory.allocator.events import ALLOC, COMPLETE, EMPTY, FREE, USE
from oomkb.memory.allocator.history import OutOfMemory
from oomkb.memory.allocator.training import training_events
from oomkb.memory.job import Job
from oomkb.pricing import extra_model_shapes, price

HERE = Path(__file__).parent / "real_allocator"
MIB = 1024**2
FIRST = 0x7000_0000_0000
SETTINGS = ("", "expandable_segments:True", "max_split_size_mb:64")
KINDS = ((1, 4096), (512, MIB), (MIB, 10 * MIB), (10 * MIB, 64 * MIB), (2 * MIB, 200 * MIB))


def build(torch: Path, cuda: Path, folder: Path) -> Path:
    """Compile the runtime and the driver program."""
    (folder / "version.map").write_text("libcudart.so.13 { global: *; };\n")
    runtime, program = folder / "libcudart.so.13", folder / "replay"
    include = f"-I{cuda}/include"
    soname = ["-Wl,-soname,libcudart.so.13", f"-Wl,--version-script={folder}/version.map"]
    flags = ["g++", "-O1", include]
    subprocess.run([*flags, "-fPIC", "-shared", str(HERE / "fake_cuda.cpp"), "-o", str(runtime), *soname], check=True)
    nvml = ["-fPIC", "-shared", str(HERE / "fake_nvml.cpp"), "-o", str(folder / "libnvidia-ml.so.1")]
    subprocess.run([*flags, *nvml], check=True)
    library = torch / "torch" / "lib"
    links = [f"-L{library}", "-l:libc10_cuda.so", "-l:libc10.so", str(runtime), f"-Wl,-rpath,{library}:{folder}"]
    source = [f"-I{torch}/torch/include", "-std=c++17", str(HERE / "replay.cpp")]
    subprocess.run([*flags, *source, "-o", str(program), *links], check=True)
    return program


def sequence(rng: random.Random, events: int) -> list[str]:
    """Random commands, with frees that lead to reuse: sizes come from few."""
    sizes = [rng.randint(*rng.choice(KINDS)) for _ in range(rng.randint(3, 25))]
    streams = [0] * 6 + [1, 2] if rng.random() < 0.4 else [0]
    alive: list[int] = []
    out: list[str] = []
    many = rng.randint(5, 60)
    for i in range(events):
        chance = rng.random()
        if alive and (len(alive) > many or chance < 0.42):
            found = alive.pop(rng.choice((-1, 0, rng.randrange(len(alive)))))
            out.append(f"f {found}")
        elif alive and len(streams) > 1 and chance < 0.5:
            out.append(f"u {rng.choice(alive)} {rng.choice(streams)}")
        elif len(streams) > 1 and chance < 0.54:
            out.append(f"d {rng.choice(streams)}")
        elif chance < 0.545:
            out.append("e")
        else:
            size = rng.choice(sizes) if rng.random() < 0.8 else rng.randint(*rng.choice(KINDS))
            out.append(f"a {i} {size} {rng.choice(streams)}")
            alive.append(i)
    return out


def original(program: Path, commands: Sequence[str], capacity: int, conf: str) -> list[str]:
    """What PyTorch's allocator answers."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(program.parent), "PYTORCH_CUDA_ALLOC_CONF": conf}
    env["FAKE_CUDA_CAPACITY"] = str(capacity)
    text = "\n".join(commands)
    done = subprocess.run([str(program)], input=text, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise SystemExit(f"{conf}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return _relative(done.stdout.splitlines())


def _relative(lines: Iterable[str]) -> list[str]:
    """Addresses from the first one on."""
    out = []
    for line in lines:
        words = line.split()
        at = 1 if words[0] == "segment" else 0
        if words[at].isdigit() and int(words[at]) >= FIRST:
            words[at] = str(int(words[at]) - FIRST)
        out.append(" ".join(words))
    return out


def model(commands: Sequence[str], capacity: int, conf: str) -> list[str]:
    """What the replay answers, in the same words."""
    allocator, blocks, out = CachingAllocator(capacity, parse(conf)), dict[int, Block](), []
    for command in commands:
        what, *numbers = command.split()
        first = int(float(numbers[0])) if numbers else 0
        address = "0"
        if what == "a":
            try:
                block = blocks[first] = allocator.malloc(int(numbers[1]), int(numbers[2]))
                address = str(block.address - FIRST if block.address >= FIRST else block.address)
            except OutOfMemory:
                address = "oom"
        elif what == "f" and first in blocks:
            allocator.free(blocks.pop(first))
        elif what == "u" and first in blocks:
            allocator.record(blocks[first], int(numbers[1]))
        elif what == "d":
            allocator.complete(first)
        elif what == "e":
            allocator.empty_cache()
        out.append(f"{address} {allocator.allocated} {allocator.reserved}")
    a = allocator
    out.append(f"peak {a.peak_allocated} {a.peak_reserved} retries {a.retries} ooms {a.ooms}")
    names = {"active_allocated": "allocated", "active_pending_free": "waiting", "inactive": "free"}
    for segment in allocator.segments():
        head = segment[0]
        large = int(not head.pool.small)
        out.append(f"segment {head.address - FIRST} {sum(b.size for b in segment)} {head.stream} {large}")
        out += [f"block {b.size} {names[b.state]}" for b in segment]
    return out


def main() -> int:
    """Compare, and say how many events agreed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=Path, required=True, help="where torch/lib and torch/include lie")
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda"))
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--events", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--jobs", type=Path, help="JSONL with job documents: their first steps go through both as well")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    compared = differing = ooms = 0
    recorded: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        program = build(given.torch.resolve(), given.cuda, Path(folder))
        for run in range(given.runs):
            conf = SETTINGS[run % len(SETTINGS)]
            capacity = rng.choice((256, 512, 1024, 4096)) * MIB
            commands = sequence(rng, given.events)
            theirs, ours = original(program, commands, capacity, conf), model(commands, capacity, conf)
            compared += len(commands)
            ooms += sum(line.startswith("oom") for line in theirs)
            if ours != theirs:
                differing += 1
                if differing <= 3:
                    _explain(commands, theirs, ours, conf, capacity)
            if len(recorded) < 3 * len(SETTINGS):
                recorded.append({"conf": conf, "capacity": capacity, "commands": commands, "answers": theirs})
        for line in given.jobs.read_text(encoding="utf-8").splitlines() if given.jobs else ():
            row = json.loads(line)
            commands, capacity, conf = steps_of(row["job"])
            theirs, ours = original(program, commands, capacity, conf), model(commands, capacity, conf)
            compared += len(commands)
            differing += ours != theirs
            peak = next(text for text in theirs if text.startswith("peak"))
            print(f"  {row['id']}: {len(commands)} events, {'the same' if ours == theirs else 'DIFFERENT'}, {peak}")
    print(f"{given.runs} sequences, {compared} events, {ooms} requests refused: {differing} sequences differ")
    if given.record:
        given.record.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in recorded))
    return 1 if differing else 0


def steps_of(document: dict[str, Any]) -> tuple[list[str], int, str]:
    """A job's first steps as commands, with the card's bytes and the allocator's settings."""
    priced = price(Job.from_document(document))
    recorder = training_events(priced.job, priced.shape, priced.device, shapes=extra_model_shapes(priced.job))
    words = {ALLOC: "a {0.number} {0.size} {0.stream}", FREE: "f {0.number}", USE: "u {0.number} {0.stream}"}
    words |= {COMPLETE: "d {0.stream}", EMPTY: "e"}
    capacity = priced.device.capacity_bytes if priced.device else 1 << 40
    conf = priced.job.env.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return [words[e.what].format(e) for e in recorder if e.what in words], int(capacity), conf


def _explain(commands: Sequence[str], theirs: Sequence[str], ours: Sequence[str], conf: str, capacity: int) -> None:
    for i, (a, b) in enumerate(zip(theirs, ours, strict=False)):
        if a != b:
            asked = commands[i] if i < len(commands) else "at the end"
            print(f"{conf or 'defaults'}, {capacity // MIB} MiB, event {i} ({asked}): original {a!r}, replay {b!r}")
            return
    print(f"{conf or 'defaults'}: {len(theirs)} lines against {len(ours)}")


if __name__ == "__main__":
    sys.exit(main())
