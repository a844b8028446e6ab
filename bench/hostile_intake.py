"""What a megabyte of hostile text costs to read: processor seconds for each kind, beside those for a quarter of it.

usage: python bench/hostile_intake.py [--bytes 1000000] [--only WORD] [--limit 1.0]

One line per input: its name, seconds for a quarter, for the whole, their ratio (4 is linear), and a mark where the
limit is passed. The exit status is 1 where any is.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

from oomdoc.intake import read_text
from oomkb.errors import OomdocError

_TRACE = '  File "/a/b/c.py", line 3, in forward\n    x = self.f(x)\n'
_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 1.25 GiB is free.\n"
)
_SMI = (
    "|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |\n"
    "| N/A   33C    P0             62W /  400W |  40000MiB / 81920MiB |      0%      Default |\n"
)

UNITS = {
    "newlines": "\n",
    "blank and newline": " \n",
    "carriage returns": "\r",
    "tabs": "\t",
    "blanks": " ",
    "backslash newline": "\\\n",
    "backslashes": "\\",
    "list items": "- a\n",
    "pairs": "a: b\n",
    "pairs without newline": "a: b ",
    "key=value": "key=value\n",
    "self-assignment": "A=$A$A\n",
    "exports": "export A=B\n",
    "flags": "--a 1 ",
    "flag lines": "--learning_rate 1 \\\n",
    "command substitution": "$(",
    "command substitution lines": "python x.py $(a\n",
    "backticks": "`",
    "braces": "{",
    "closing braces": "}",
    "brackets": "[",
    "parentheses": "(",
    "deep json": '{"a":',
    "json lines": '{"a": 1, "b": [1, 2]}\n',
    "json one line": '{"a": 1}, ',
    "yaml deeper and deeper": None,
    "yaml anchors": "a: &a [*a, *a]\n",
    "billion laughs": None,
    "double quotes": '"',
    "single quotes": "'",
    "quoted lines": "python x --a 'b\n",
    "heredocs": "cat <<EOF\n",
    "heredocs of another name": None,
    "heredocs in heredocs": None,
    "updates": "a\r",
    "tracebacks": _TRACE,
    "out of memory": _OOM,
    "out of memory one line": _OOM.replace("\n", " "),
    "tried to allocate": "Tried to allocate 2.00 GiB ",
    "ranks": "[rank0]: ",
    "rank prefixes": "rank0: ",
    "rank lines": "[rank0]: x\n",
    "workers": "(Worker pid=1) ",
    "nvidia-smi": _SMI,
    "timestamps": "2025-01-01 12:00:00,000 INFO x\n",
    "fences": "```\n",
    "tildes": "~~~yaml\n",
    "calls": "TrainingArguments(a=1,\n",
    "python calls": "x = f(1)\n",
    "imports": "import torch\n",
    "dots": "a.b.",
    "slashes": "a/",
    "versions": "torch==2.1.0 ",
    "models": "Qwen2.5-7B ",
    "gpus": "8 x A100 80GB, ",
    "chinese": "显存爆了",
    "chinese lines": "显存爆了，4张A100\n",
    "emoji": "😀",
    "combining": "é",
    "bidi": "\u202e",
    "one letter": "a",
    "digits": "1",
    "hexadecimal": "0xdeadbeef ",
    "base64": "QUJDRA==",
    "mail": "a@b.co ",
    "addresses": "10.1.2.3 ",
    "tokens": "hf_abcdefghijklmnopqrstuvwxyz ",
    "urls": "https://a.b/c?d=e ",
    "private keys": "-----BEGIN RSA PRIVATE KEY-----\n",
    "escapes": "\x1b[31m",
    "progress": "step 1 loss=1.0\n",
    "progress bars": " 13%|█▎  | 6/45 [01:21<08:46, 13.51s/it]\r",
    "killed": "Killed\n",
    "exit codes": "exitcode: -9\n",
    "xml": "<a><b>",
    "toml": "[a]\nb = 1\n",
    "overrides": "a.b.c=1 ",
    "hydra lines": "  actor.x=1 \\\n",
    "docker": "RUN pip install x\n",
    "questions": "Why is it so?\n",
    "when save": "when save ",
    "keys": "max_length ",
    "config keys": "per_device_train_batch_size: 1\n",
    "keys=": "per_device_train_batch_size=",
    "linked keys": "max_seq_length is set to 1 ",
    "table rows": "| batch size | 1 |\n",
    "names with sizes": "a-b-c-7B-d ",
    "names with dashes": "a-b-",
    "shares": "显存 1/2G ",
    "factors": "80G*8 卡 ",
    "brackets in clauses": "(a) batch size 4 works ",
    "state dicts": "get state dict ",
    "resuming": "resuming when ",
    "wake up": "wake up ",
    "notebook frames": "File ~/a.py:1, in f(x)\n-> 1 x\n",
    "dotted dumps": "world_size ....... 4\n",
    "trainers": "verl GRPO vllm gpu_memory_utilization=0.5\n",
    "homes": "/home/a-",
}


def text_of(name: str, size: int) -> str:
    """The hostile text of a name, of about so many characters."""
    unit = UNITS[name]
    if unit is not None:
        return (unit * (size // len(unit) + 1))[:size]
    if name == "yaml deeper and deeper":
        out, depth = [], 0
        while sum(map(len, out[-1:])) + depth * depth / 2 < size:
            out.append(" " * depth + "a:\n")
            depth += 1
        return "".join(out)[:size]
    if name == "billion laughs":
        return "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, size // 60))[:size]
    if name == "heredocs in heredocs":
        return "".join(f"cat <<E{n}\n--a 1 --b 2\n" for n in range(size // 22))[:size]
    return "".join(f"cat <<E{n}\nx\n" for n in range(size // 12))[:size]


def seconds(text: str) -> float:
    """Processor seconds of reading it."""
    started = time.process_time()
    with contextlib.suppress(OomdocError):
        read_text(text)
    return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=1.0)
    options = parser.parse_args()
    read_text("CUDA out of memory on 8 A100 with Qwen2.5-7B")
    worst = 0.0
    for name in UNITS:
        if options.only not in name:
            continue
        quarter = seconds(text_of(name, options.bytes // 4))
        whole = seconds(text_of(name, options.bytes))
        worst = max(worst, whole)
        mark = "  <-- above the limit" if whole > options.limit else ""
        print(f"{name:28s} {quarter:7.3f} s {whole:7.3f} s  x{whole / max(quarter, 1e-6):5.1f}{mark}", flush=True)
    print(f"worst {worst:.3f} s")
    return int(worst > options.limit)


if __name__ == "__main__":
    sys.exit(main())
