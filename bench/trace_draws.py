"""Unseen truth for the memory model: jobs drawn at random, traced with real framework code, and priced.

usage: python bench/trace_draws.py ROWS.jsonl --seed N --count K    draws, traces, appends what ROWS lacks, prices all
       python bench/trace_draws.py ROWS.jsonl                       prices what is there

Each job is a family that both transformers and ``families.toml`` know, as a configuration of the catalogue or the
class's own default, with few layers of real width. Its kind's tracer (``trace.py``, ``trace_kbit.py``,
``trace_preference.py``) plays it in a process of its own with a limit on time and memory. Rows go to ROWS as they are
traced; a job that cannot be traced stays there with its ``error``. Printed are the rows with their errors by phase,
worst first, one JSON document a line, and a summary on standard error. Needs the extra ``trace``; TRL and bitsandbytes
for the jobs that use them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import statistics
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from oomkb.catalog import models
from oomkb.errors import OomdocError
from oomkb.memory.families.family import FAMILIES
from oomkb.memory.job import Job
from oomkb.pricing import price
from oomkb.units import GIB

PHASES = {"forward": ("forward", "loss"), "backward": ("backward",), "step": ("optimizer-step",)}
_COUNTS = Path(__file__).parents[1] / "tests/kb/memory/data/family_counts.json"
_PRECISIONS = (("fp32", "bf16"), ("bf16", "none"), ("bf16", "bf16"), ("fp32", "none"), ("fp32", "fp16"))
_OPTIMIZERS = ("adamw",) * 6 + ("sgd", "sgd_momentum", "adafactor", "adafactor_torch", "muon", "rmsprop")
_KINDS = ("full",) * 5 + ("lora",) * 5 + ("fsdp2",) * 4 + ("qlora",) * 2 + ("dpo",) * 2 + ("preference",) * 2


def configurations() -> dict[str, list[dict[str, Any]]]:
    """Configurations by model type: those of the catalogue, else the default of the class."""
    from transformers import AutoModelForCausalLM

    causal = set(AutoModelForCausalLM._model_mapping._model_mapping)
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in models.all_models():
        kind = str(entry.config.get("model_type"))
        if kind in causal & set(FAMILIES) and int(entry.config.get("hidden_size") or 1024) <= 5120:
            found.setdefault(kind, []).append({**entry.config, "name": entry.name})
    for row in json.loads(_COUNTS.read_text())["exact"]:
        if row["model_type"] in causal & set(FAMILIES):
            found.setdefault(row["model_type"], [row["config"]])
    return {kind: rows for kind, rows in found.items() if _decodes(kind, rows[0])}


def _decodes(kind: str, config: dict[str, Any]) -> bool:
    """Whether it is a decoder alone: no part of a pair, no encoder that is trained on masked words."""
    return kind != "whisper" and not config.get("is_encoder_decoder") and FAMILIES[kind] != FAMILIES["bert"]


def _class_of(kind: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return AutoModelForCausalLM._model_mapping[CONFIG_MAPPING[kind]]


def _few(kind: str, config: dict[str, Any]) -> list[str]:
    """The projections that adapters are usually put on, by this family's names."""
    names = FAMILIES[kind].names
    return ["q_proj", "kv_b_proj"] if config.get("kv_lora_rank") else sorted({names[0], names[2]})


def cut(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """The same model with fewer layers."""
    name = next((k for k in ("num_hidden_layers", "n_layer", "n_layers", "num_layers") if k in config), "")
    if not name or config[name] <= layers or "attention_types" in config:
        return config
    kinds = config.get("layer_types") or config.get("layers_block_type") or config.get("hybrid_override_pattern") or ()
    layers = max((layers, *(kinds.index(kind) + 1 for kind in kinds)))
    patterns = (k for k, v in config.items() if isinstance(v, list) or k == "hybrid_override_pattern")
    lists = {k: config[k][:layers] for k in patterns if len(config[k]) == config[name]}
    own = config.get("per_layer_config")
    if isinstance(own, dict):
        lists["per_layer_config"] = {k: v for k, v in own.items() if int(k) < layers}
    return {**config, **lists, name: layers}


def _versions(*packages: str) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return found


def draw(seed: int, number: int, known: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The ``number``-th job of a seed, as a row without its trace."""
    rng = random.Random(f"{seed}-{number}")
    kind = rng.choice(sorted(known))
    config = cut(rng.choice(known[kind]), rng.choice((3, 4, 6)))
    what = rng.choice(_KINDS)
    held, autocast = rng.choice(_PRECISIONS)
    positions = int(config.get("max_position_embeddings") or config.get("n_positions") or 4096)
    job: dict[str, Any] = {
        "model": config,
        **{"objective": "sft", "method": "full", "param_dtype": held, "autocast": autocast},
        **{"optimizer": rng.choice(_OPTIMIZERS), "optimizer_impl": rng.choice(("foreach", "fused", "single"))},
        **{"micro_batch": rng.choice((1, 2, 3, 4)), "seq_len": min(rng.choice((256, 300, 512, 1024, 2048)), positions)},
        **{"grad_ckpt": rng.random() < 0.5, "attention": rng.choice(("sdpa", "sdpa", "eager"))},
        **{"framework": "transformers", "versions": _versions("transformers", "torch", "peft")},
        **{"sharding": "none", "world": 1},
    }
    if job["optimizer"] != "adamw":
        job["optimizer_impl"] = rng.choice(("foreach", "single"))
    made = _class_of(kind)
    if not made._supports_sdpa:
        job["attention"] = "eager"
    job["grad_ckpt"] = job["grad_ckpt"] and made.supports_gradient_checkpointing
    if what == "fsdp2":
        world = rng.choice((2, 4, 8))
        job |= {"sharding": "fsdp2", "world": world, "dp": world, "autocast": "none", "optimizer": "adamw"}
        job |= {"reshard_after_forward": rng.random() < 0.7, "fsdp": {"param_dtype": "bf16", "reduce_dtype": "fp32"}}
    if what in ("dpo", "preference"):
        job["objective"] = "dpo"
    if what == "preference":
        job["framework"] = rng.choice(("trl", "llama-factory"))
        job["objective"] = rng.choice(("dpo", "kto", "orpo", "simpo"))
        job["versions"] |= _versions("trl") if job["framework"] == "trl" else {"llamafactory": "0.9.4"}
    if what == "qlora":
        job |= {"quant": "nf4", "param_dtype": "bf16", "loop": {"kbit_prepared": rng.random() < 0.5}}
        job["versions"] |= _versions("bitsandbytes")
    if what in ("lora", "qlora") or (what != "full" and rng.random() < 0.4):
        targets = rng.choice(("all-linear", "all-linear", _few(kind, config)))
        job |= {"method": "qlora" if what == "qlora" else "lora", "optimizer": "adamw"}
        dtype = "fp32" if what == "qlora" else rng.choice(("fp32", "fp32", "bf16"))
        job["lora"] = {"r": rng.choice((8, 16, 64)), "targets": targets, "dropout": 0.0, "dtype": dtype}
    return {"id": f"{kind}-{seed}-{number}", "kind": what, "job": job}


def _tracer(row: dict[str, Any]) -> Any:
    if row["kind"] == "qlora":
        from trace_kbit import trace as kbit

        return kbit
    if row["kind"] == "preference":
        from trace_preference import trace as preference

        return preference
    import optimizers  # noqa: F401
    from oomdoc.tracing.running import trace

    return trace


def _child(row: dict[str, Any], gib: float, pipe: Any) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(gib * GIB),) * 2)
    try:
        pipe.send({"measured": _tracer(row)(row["job"])})
    except Exception as error:
        pipe.send({"error": f"{type(error).__name__}: {error}"[:300]})


def traced(row: dict[str, Any], seconds: float, gib: float) -> dict[str, Any]:
    """The row with what its trace measured, or with what stopped it."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(row, gib, theirs))
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(seconds) else {"error": f"not traced within {seconds:g} s"}
    except EOFError:
        found = {"error": "the tracing process died"}
    process.kill()
    process.join()
    return {**row, **found}


def priced(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the estimate's error by phase; a job that is refused is 100 % off."""
    if "measured" not in row:
        return row
    try:
        said = price(Job.from_document(row["job"])).estimate
    except OomdocError as error:
        return {**row, "refused": str(error), "errors": {"peak": -1.0}}
    real = row["measured"]
    errors = {"peak": said.allocated_bytes / GIB / real["allocated_gib"] - 1}
    for name, phases in PHASES.items():
        most = max((said.phases[p].total_bytes for p in phases if p in said.phases), default=0)
        errors[name] = most / GIB / real[f"peak_{name}"] - 1
    return {**row, "errors": {name: round(value, 4) for name, value in errors.items()}}


def _summary(rows: list[dict[str, Any]]) -> str:
    lines = []
    for phase in ("peak", *PHASES):
        found = sorted(abs(row["errors"].get(phase, 1.0)) for row in rows)
        within = sum(value <= 0.01 for value in found)
        lines.append(
            f"{phase}: {len(found)} rows, mean {statistics.mean(found):.2%}, median {statistics.median(found):.2%}, "
            f"p90 {found[int(0.9 * (len(found) - 1))]:.2%}, worst {found[-1]:.1%}, within 1 %: {within}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="jobs to draw")
    parser.add_argument("--seconds", type=float, default=120.0, help="time for one trace")
    parser.add_argument("--gib", type=float, default=8.0, help="memory for one trace")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.rows.read_text().splitlines()] if given.rows.exists() else []
    there = {row["id"] for row in rows}
    known = configurations() if given.count else {}
    for number in range(given.count):
        row = draw(given.seed, number, known)
        if row["id"] not in there:
            rows.append(traced(row, given.seconds, given.gib))
            with given.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    rows = [priced(row) for row in rows]
    judged = [row for row in rows if "errors" in row]
    for row in sorted(judged, key=lambda row: -max(map(abs, row["errors"].values()))):
        print(json.dumps(row))
    for row in rows:
        if "error" in row:
            print(f"not traced: {row['id']} ({row['kind']}): {row['error']}", file=sys.stderr)
    if judged:
        print(_summary(judged), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
