"""Reports as people paste them, about 3 KB: a crash of a training run with its command, configuration and traceback.

A fresh one differs from all others in what makes reports differ: model, card, sizes, lengths, rank, times, paths.
"""

from __future__ import annotations

import random

_MODELS = (
    "Qwen/Qwen2.5-7B",
    "meta-llama/Llama-3.1-8B",
    "mistralai/Mistral-7B-v0.3",
    "Qwen/Qwen2.5-14B",
    "google/gemma-2-9b",
)
_CARDS = (
    ("NVIDIA A100-SXM4-80GB", 79.15),
    ("NVIDIA GeForce RTX 4090", 23.64),
    ("Tesla V100-PCIE-32GB", 31.74),
    ("NVIDIA H100 80GB HBM3", 79.11),
)
_METHODS = ("lora", "full", "qlora")
_LOSS = (
    ("transformers/models/qwen2/modeling_qwen2.py", "forward", "logits = self.lm_head(hidden_states)"),
    ("transformers/loss/loss_utils.py", "ForCausalLMLoss", "logits = logits.float()"),
    ("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss(input, target)"),
)
_BACKWARD = (
    ("accelerate/accelerator.py", "backward", "loss.backward(**kwargs)"),
    ("torch/_tensor.py", "backward", "torch.autograd.backward("),
    ("torch/autograd/graph.py", "_engine_run_backward", "return Variable._execution_engine.run_backward("),
)
_BYTES = 3000


def report(seed: int) -> str:
    """One report; the same seed gives the same text."""
    pick = random.Random(seed)
    model, (card, capacity) = pick.choice(_MODELS), pick.choice(_CARDS)
    tried, free = pick.uniform(0.3, 8), pick.uniform(0.05, 1.5)
    frames = pick.choice((_LOSS, _BACKWARD))
    env = pick.choice(("/opt/conda", "/home/user/venv", "/root/miniconda3"))
    day = f"2025-{pick.randint(1, 12):02d}-{pick.randint(1, 28):02d}"
    lines = [
        f"accelerate launch --num_processes {pick.choice((1, 2, 4, 8))} train.py --model_name_or_path {model}",
        f"method: {pick.choice(_METHODS)}  per_device_train_batch_size: {pick.choice((1, 2, 4, 8))}",
        f"cutoff_len: {pick.choice((1024, 2048, 4096, 8192))}",
        f"gradient_checkpointing: {pick.choice(('true', 'false'))}",
        f"torch=={pick.choice(('2.3.1', '2.4.0', '2.5.1'))} transformers=={pick.choice(('4.44.2', '4.46.0'))}  {card}",
    ]
    steps = 0
    crash = _crash(env, frames, tried, capacity, free, pick)
    while sum(map(len, lines)) + len(crash) < _BYTES - 100:
        steps += 1
        lines.append(
            f"{day} 10:{steps:02d}:{pick.randint(0, 59):02d} | INFO | step {steps} loss {pick.uniform(0.5, 3):.4f}"
        )
    return "\n".join(lines) + "\n" + crash


def _crash(
    env: str, frames: tuple[tuple[str, str, str], ...], tried: float, capacity: float, free: float, pick: random.Random
) -> str:
    text = "Traceback (most recent call last):\n"
    for file, name, line in (("train.py", "<module>", "trainer.train()"), *frames):
        place = file if file == "train.py" else f"{env}/lib/python3.11/site-packages/{file}"
        text += f'  File "{place}", line {pick.randint(20, 2000)}, in {name}\n    {line}\n'
    held = capacity - free - pick.uniform(0.3, 1.0)
    return text + (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried:.2f} GiB. "
        f"GPU {pick.randint(0, 7)} has a total capacity of {capacity:.2f} GiB of which {free:.2f} GiB is free. "
        f"Process {pick.randint(1000, 99999)} has "
        f"{capacity - free:.2f} GiB memory in use. Of the allocated memory {held:.2f} GiB is allocated by PyTorch, and "
        f"{pick.uniform(0.05, 0.6):.2f} GiB is reserved by PyTorch but unallocated."
    )


def mixed(number: int, *, fresh: float, seed: int = 0, known: int = 40) -> bytes:
    """The ``number``-th of a run's reports: a share of ``fresh`` ones, the others repeats of ``known`` ones."""
    pick = random.Random(number * 7919 + seed)
    if pick.random() < fresh:
        return report(1_000_000 * (seed + 1) + number).encode()
    return report(pick.randrange(known)).encode()
