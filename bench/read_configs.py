"""How well the configuration readers understand the examples that frameworks ship.

    python bench/read_configs.py FOLDER [--misses] [--only FRAMEWORK] [--patches]

FOLDER holds one checkout (or its example folders) per framework, named after the framework. Nothing of it is kept.
Counted are the files that configure or launch a run: those in which a memory setting is named. A setting counts as
memory-relevant by its name alone, judged apart from the tables. Printed per framework: files read without a crash,
framework recognised, memory-relevant keys understood, jobs priced (of all, and of those whose text or name names a
model at all: templates leave it to whoever fills them in), and (``--patches``) files in which a patch reads
back and leaves every other line as it was.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oomdoc.evidence import Source
from oomdoc.intake.configs import patch, read_documents, to_job
from oomdoc.intake.configs.companions import companion_files
from oomkb.frameworks import canonical

SUFFIXES = {".yaml", ".yml", ".json", ".sh", ".toml"}
WITH_PYTHON = {"xtuner", "trl"}
SKIPPED = re.compile(
    r"(?:^|/)(?:data|dataset|datasets|assets|docs|tests?|\.github|requirements|tool_config|interaction_config)/|dataset_info|/package"
)
MEMORY = re.compile(
    r"(?:micro_?batch|batch_size_per|per_device|train_micro|grad(?:ient)?_accum|accumulative|accumulate_grad|cutoff|max_?len|seq_?len|max_seq"
    r"|sequence_len|max_(?:prompt|response|completion|model)_len|checkpointing|recompute|lora_r|lora_dim|lora_rank|lora_target|target_modules"
    r"|quant(?:ization)?_bit|load_in_|double_quant|zero_stage|zero_optimization\.stage|offload|bucket_size|fsdp|parallel_size|parallel_dim"
    r"|flash_attn|flash_attention|attn_impl|optim(?:izer)?$|optimizer\.type|torch_dtype|model_dtype|bf16|fp16|precision$|packing|packed|liger"
    r"|gpu_memory_util|mem_fraction|max_num_seqs|num_generations|finetuning_type|tuner_type|train_type|adapter$|use_peft|nproc|num_gpus|n_gpus"
    r"|num_processes|remove_padding|persistence_threshold|max_live|sub_group)",
    re.I,
)
NEVER = re.compile(
    r"enable_checkpointing|checkpoint_callback|dist_checkpointing|async_checkpoint|s3_checkpointing|save_optimizer|fusion$|arg_mappings",
    re.I,
)
AGNOSTIC = {"accelerate", "deepspeed", "fsdp"}
SERVING = {"vllm", "sglang", "lmdeploy"}


@dataclass
class Tally:
    """Counts of one framework's files."""

    files: int = 0
    crashed: int = 0
    recognised: int = 0
    keys: int = 0
    understood: int = 0
    runs: int = 0
    named: int = 0
    priced: int = 0
    patched: int = 0
    patches: int = 0
    wrong: collections.Counter[str] = field(default_factory=collections.Counter)
    unknown: collections.Counter[str] = field(default_factory=collections.Counter)
    errors: collections.Counter[str] = field(default_factory=collections.Counter)


def candidates(root: Path, name: str) -> list[Path]:
    """The files of a checkout that may configure a run."""
    suffixes = SUFFIXES | ({".py"} if name in WITH_PYTHON else set())
    return sorted(
        p
        for p in root.rglob("*")
        if p.is_file() and p.suffix in suffixes and not SKIPPED.search(p.relative_to(root).as_posix())
    )


def beside(path: Path) -> list[Source]:
    """The files that a ``defaults:`` list of this one names: who runs it has them too."""
    found = companion_files(path, path.read_text("utf-8", "replace")) if path.suffix in (".yaml", ".yml") else []
    named = ((Path(one.name).relative_to(path.parent), one.text) for one in found)
    return [Source(f"{path.parent.name}/{name}", text) for name, text in named]


def is_configuration(path: Path, text: str) -> bool:
    """Whether a file names memory settings: two lines, or one beside a launch."""
    if path.suffix == ".py" and not re.search(r"(?:Config|Arguments|from_pretrained|dict)\(", text):
        return False
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    setting = re.compile(r"[\"']?(?:--|[\w.\"']*)?[\w.\-]*[\"']?\s*[:= ]")
    named = sum(
        1 for line in lines if MEMORY.search(line.replace("-", "_")[:200].split("#")[0]) and setting.search(line)
    )
    return named >= 2


def expected(name: str) -> set[str]:
    """What a file of this checkout may rightly be: of its framework, or a launcher's or engine's own file."""
    own = canonical(name.replace("deepspeedexamples", "deepspeed")) or name
    more = {"megatron"} if own in ("ms-swift", "nemo", "verl", "deepspeed") else set()
    base = {"transformers", "megatron", "trl"} if own == "deepspeed" else {"trl"} if own == "unsloth" else set()
    return {own, *AGNOSTIC, *SERVING, *more, *base}


def one(path: Path, name: str, tally: Tally, *, patches: bool) -> None:
    """Count one file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if not is_configuration(path, text):
        return
    tally.files += 1
    try:
        reading = read_documents(Source(f"{path.parent.name}/{path.name}", text), beside(path))
    except Exception as error:  # a crash is what is being counted
        tally.crashed += 1
        tally.errors[f"{path}: {error!r}"] += 1
        return
    if reading.framework in expected(name):
        tally.recognised += 1
    else:
        tally.wrong[f"{reading.framework}: {path}"] += 1
    for document in reading.documents:
        for setting in document.settings:
            if (
                MEMORY.search(setting.key.replace("-", "_"))
                and not NEVER.search(setting.key)
                and not container(setting, document.settings)
            ):
                tally.keys += 1
                tally.understood += setting.known
                if not setting.known:
                    tally.unknown[setting.key] += 1
    facts = {f.name: f for f in reading.facts}
    job = to_job(facts, reading.framework, reading.versions)
    if reading.framework not in AGNOSTIC:
        tally.runs += 1
        before = tally.priced
        price(job, tally, path)
        tally.named += tally.priced > before or names_a_model(path, text)
    if patches:
        round_trip(path, text, job, tally)


FAMILY = re.compile(
    r"(?:llama|qwen|mi[sx]tral|gemma|phi|deepseek|glm|internlm|baichuan|falcon|opt|bloom|pythia|gpt|bert|t5|mpt|yi|olmo|"
    r"granite|smollm|internvl|minicpm|nemotron|mamba|moonlight|aya)"
    r"[\w.]{0,12}[-_/ ]?[\w.\-]{0,24}?(?<![\w.])?\d{1,3}(?:\.\d)?[bm](?![a-z])",
    re.I,
)
SIZES = re.compile(r"^\s*[\"']?(?:--)?(?:hidden_size|hidden-size)[\"']?\s*[:= ]\s*\d", re.M)


def names_a_model(path: Path, text: str) -> bool:
    """Whether a file names a model by its size, or describes one; judged by the text alone, apart from the readers."""
    lines = [line.split("#")[0][:400] for line in (path.stem, *text.splitlines()) if not line.lstrip().startswith("#")]
    return any(FAMILY.search(line) for line in lines) or bool(SIZES.search(text))


def container(setting: Any, settings: Any) -> bool:
    """A mapping's own key, which holds settings but is none."""
    return isinstance(setting.value, dict) or (
        setting.value is None and any(s.key.startswith(setting.key + ".") for s in settings)
    )


def price(job: Any, tally: Tally, path: Path) -> None:
    """Whether an estimate can be made of the job."""
    try:
        from oomkb.pricing import price as priced

        priced(job)
        tally.priced += 1
    except Exception as error:  # every reason counts as not priced
        tally.errors[f"price {type(error).__name__}: {str(error)[:90]} {path.name}"] += 1


def round_trip(path: Path, text: str, job: Any, tally: Tally) -> None:
    """Change each setting the file states: it must read back, and at most a few lines may differ."""
    wanted = {
        "micro_batch": lambda v: v + 1,
        "seq_len": lambda v: v + 64,
        "grad_ckpt": lambda v: not v if isinstance(v, bool) else True,
        "lora.r": lambda v: v * 2,
        "serving.max_model_len": lambda v: v // 2 or 1,
        "grad_accum": lambda v: v + 1,
        "tp": lambda v: v * 2,
        "pp": lambda v: v * 2,
        "cp": lambda v: v * 2,
        "ep": lambda v: v * 2,
        "generations": lambda v: v // 2 or 1,
        "completion_len": lambda v: v // 2 or 1,
        "prompt_len": lambda v: v // 2 or 1,
        "max_pixels": lambda v: v // 2,
        "eval_micro_batch": lambda v: v + 1,
        "packing": lambda v: not v,
        "lora.targets": lambda v: ["q_proj", "v_proj"] if v == "all-linear" else "all-linear",
        "lora.dropout": lambda v: v + 0.05,
        "sharding": {"zero1": "zero2", "zero2": "zero3", "zero3": "zero2"}.get,
        "quant": {"nf4": "nf4-double", "nf4-double": "nf4"}.get,
        "rollout.gpu_memory_utilization": lambda v: round(v / 2, 3),
        "rollout.tensor_parallel": lambda v: v * 2,
        "serving.gpu_memory_utilization": lambda v: round(v / 2, 3),
        "serving.max_num_seqs": lambda v: v // 2 or 1,
    }
    for name, change in wanted.items():
        old = job.get(name)
        if old is None:
            continue
        value = change(old)
        one_kind = name == "quant" and job.framework == "torchtune"  # torchao has a single 4-bit format
        if value is None or value == old or one_kind:
            continue
        tally.patches += 1
        try:
            done = patch(text, filename=path.name, changes={name: value})
        except Exception as error:  # a crash is what is being counted
            tally.errors[f"patch crash {error!r} {path}"] += 1
            continue
        before, after = (collections.Counter(t.splitlines(keepends=True)) for t in (text, done.text))
        lost = sum((before - after).values())
        most = 3 + (len(old) if isinstance(old, tuple) else 0)  # a list may take a line for each of its items
        if not done.unplaced and lost <= most and done.text != text:
            tally.patched += 1
        else:
            tally.errors[f"patch {name}={value} {dict(done.unplaced)} lost {lost} {path}"] += 1


def share(part: int, whole: int) -> str:
    return f"{part}/{whole} {part / whole:6.1%}" if whole else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--patches", action="store_true")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    total = Tally()
    print(
        f"{'framework':18} {'files':>6} {'read':>12} {'recognised':>16} {'keys understood':>20}"
        f" {'priced':>16} {'of those naming one':>20} {'patched':>16}"
    )
    for root in sorted(p for p in arguments.folder.iterdir() if p.is_dir()):
        if arguments.only and root.name != arguments.only:
            continue
        tally = Tally()
        for path in candidates(root, root.name):
            one(path, root.name, tally, patches=arguments.patches)
        show(root.name, tally)
        if arguments.misses:
            for title, counter in (
                ("not recognised", tally.wrong),
                ("unknown key", tally.unknown),
                ("error", tally.errors),
            ):
                for what, count in counter.most_common(40):
                    print(f"    {title} x{count}: {what}")
        for name in (
            "files",
            "crashed",
            "recognised",
            "keys",
            "understood",
            "runs",
            "named",
            "priced",
            "patched",
            "patches",
        ):
            setattr(total, name, getattr(total, name) + getattr(tally, name))
    show("all", total)
    return 0


def show(name: str, t: Tally) -> None:
    print(
        f"{name:18} {t.files:6} {share(t.files - t.crashed, t.files):>12} {share(t.recognised, t.files):>16} "
        f"{share(t.understood, t.keys):>20} {share(t.priced, t.runs):>16} "
        f"{share(t.priced, t.named):>20} {share(t.patched, t.patches):>16}"
    )


if __name__ == "__main__":
    sys.exit(main())
