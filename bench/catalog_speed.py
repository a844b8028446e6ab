"""How long looking a name up and scanning a text take: ``python bench/catalog_speed.py [FILE]``.

CPU time, so that a busy machine does not matter much: the first look-up in a fresh process (which reads the data),
a look-up of a name not seen before, and a scan of 20,000 characters (of FILE, else of a made-up report).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

REPORT = """\
Fine-tuning Qwen/Qwen2.5-7B-Instruct with LoRA on 8 x A100-SXM4-80GB, batch size 4, cutoff_len 8192, zero3.
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 3 has a total capacity of 79.15 GiB.
  File "/usr/lib/python3.11/site-packages/transformers/models/qwen2/modeling_qwen2.py", line 1501, in forward
It worked for llama3 8b on a 4090 (24G) before; the 13B model never did. step 3090/5000 loss 2.31 lr 1e-5
"""


def clocked(action: Callable[[], object], times: int = 1) -> float:
    """CPU seconds of one ``action``, mean over ``times``."""
    started = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - started) / times


def main() -> None:
    from oomkb.catalog import gpus, models

    text = Path(sys.argv[1]).read_text(encoding="utf-8") if len(sys.argv) > 1 else REPORT * 60
    text = text[:20_000]
    print(f"first look-up, GPUs:   {1e3 * clocked(lambda: gpus.find('A100 80G')):6.2f} ms")
    print(f"first look-up, models: {1e3 * clocked(lambda: models.find('qwen2.5 7b')):6.2f} ms")
    cards = iter(f"{n} x A100-SXM4-80GB" for n in range(2000))
    names = iter(f"meta-llama/Llama-3.1-8B-x{n}" for n in range(2000))
    print(f"a new card name:       {1e6 * clocked(lambda: gpus.find(next(cards)), 1000):6.1f} µs")
    print(f"a new model name:      {1e6 * clocked(lambda: models.find(next(names)), 1000):6.1f} µs")
    print(f"the same card again:   {1e6 * clocked(lambda: gpus.find('A100 80G'), 1000):6.1f} µs")
    print(f"the same model again:  {1e6 * clocked(lambda: models.find('qwen2.5 7b'), 1000):6.1f} µs")
    for what, scan in (("GPUs", gpus.find_all), ("models", models.find_all)):
        found = len(scan(text))
        print(f"scan of {len(text)}, {what + ':':7} {1e3 * clocked(lambda s=scan: s(text), 50):6.2f} ms, {found} found")


if __name__ == "__main__":
    main()
