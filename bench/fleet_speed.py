"""How many logs of a fleet one core diagnoses in a second, by wall clock and by processor time.

usage: python bench/fleet_speed.py [--logs 400] [--kib 64] [--workers 1] [--plans] [--profile]

The logs are made up but of the usual kinds: training output with an allocation failure in it, a killed process, a
server that lacks room for its KV cache, and jobs that were fine; half of them fail. One process does the work unless
--workers says otherwise; what is loaded once (cases, the index) is loaded before the clock starts. The machine's other
load makes the wall clock slow, so the processor time is printed beside it.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import random
import tempfile
import time
from pathlib import Path

from oomdoc.fleet import Settings, run_fleet, summarise
from oomdoc.fleet.running import diagnose_log, find_logs, read_rows

MODELS = ("Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.3", "Qwen/Qwen2.5-14B")
CARDS = (("NVIDIA A100-SXM4-80GB", 79.15), ("NVIDIA H100 80GB HBM3", 79.11), ("Tesla V100-SXM2-32GB", 31.74))


def head(rng: random.Random, card: str) -> str:
    model = rng.choice(MODELS)
    return (
        f"$ torchrun --nproc_per_node 8 train.py --model_name_or_path {model} --bf16 --max_seq_length "
        f"{rng.choice((2048, 4096, 8192))} --per_device_train_batch_size {rng.choice((1, 2, 4))} "
        f"--gradient_checkpointing {rng.choice(('True', 'False'))} --deepspeed ds_z{rng.choice((2, 3))}.json\n"
        f"[INFO] 8 x {card}\n[INFO] transformers==4.57.1 torch==2.8.0 deepspeed==0.17.2\n"
    )


def failure(rng: random.Random, kind: int, capacity: float) -> str:
    rank, size = rng.randrange(8), rng.choice((0.5, 1.16, 2.32, 4.64, 9.28))
    if kind == 0:
        return (
            f"[rank{rank}]: Traceback (most recent call last):\n"
            f'[rank{rank}]:   File "/x/transformers/trainer.py", line 3730, in training_step\n'
            f"[rank{rank}]:     loss = self.compute_loss(model, inputs)\n"
            f'[rank{rank}]:   File "/x/transformers/loss/loss_utils.py", line 36, in fixed_cross_entropy\n'
            f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size:.2f} GiB. "
            f"GPU {rank} has a total capacity of {capacity} GiB of which {size / 2:.2f} GiB is free. Of the allocated "
            f"memory {capacity - 6:.2f} GiB is allocated by PyTorch, and 1.21 GiB is reserved but unallocated.\n"
        )
    if kind == 1:
        return (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=42.0. "
            "Some of the step tasks have been OOM Killed.\n"
        )
    return (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine.\n"
    )


def write_logs(folder: Path, count: int, size_bytes: int) -> None:
    rng = random.Random(7)
    for number in range(count):
        card, capacity = rng.choice(CARDS)
        steps = []
        length = 0
        while length < size_bytes:
            step = len(steps)
            steps.append(
                f"{{'loss': {rng.random():.4f}, 'grad_norm': {rng.random():.3f}, 'epoch': {step / 100:.2f}}}\n"
            )
            length += len(steps[-1])
        kind = rng.randrange(6)
        text = head(rng, card) + "".join(steps) + (failure(rng, kind, capacity) if kind < 3 else "training done\n")
        (folder / f"job-{number:05d}.log").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=400)
    parser.add_argument("--kib", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-speed-") as name:
        folder = Path(name) / "logs"
        folder.mkdir()
        write_logs(folder, given.logs, given.kib << 10)
        for log in list(find_logs([str(folder)]))[:12]:
            diagnose_log(log, plans=given.plans)
        settings = Settings(Path(name) / "rows.jsonl", workers=given.workers, plans=given.plans)
        profile = cProfile.Profile() if given.profile else None
        if profile:
            profile.enable()
        wall, processor = time.perf_counter(), time.process_time()
        count = run_fleet([str(folder)], settings)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        if profile:
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        summary = summarise(read_rows(settings.output))
    figures = {
        "logs": count,
        "kib": given.kib,
        "workers": given.workers,
        "failures": summary["failures"],
        "logs_per_s_per_core_wall": round(count / wall / given.workers, 1),
    }
    if given.workers == 1:
        figures["logs_per_s_of_processor_time"] = round(count / processor, 1)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
