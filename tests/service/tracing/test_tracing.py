"""Exact mode: what can be played, and the traced step beside the estimate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oomdoc.tracing import compare, traceable
from oomkb.errors import CatalogError, InputError, JobError
from oomkb.memory.job import Job

TINY = {
    "model_type": "llama",
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": False,
    "max_position_embeddings": 2048,
}
JOB = {"model": TINY, "method": "full", "micro_batch": 2, "seq_len": 512, "optimizer": "adamw", "grad_ckpt": False}


def needs_trace() -> None:
    for name in ("torch", "transformers", "peft"):
        pytest.importorskip(name)


def test_importing_loads_no_torch() -> None:
    script = "import sys, oomdoc.tracing; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_what_cannot_be_played_is_set_aside_and_said() -> None:
    job = Job.from_document(
        {
            "model": "Qwen/Qwen2.5-7B",
            "method": "qlora",
            "quant": "nf4",
            "optimizer": "paged_adamw_8bit",
            "attention": "flash2",
            "sharding": "zero3",
            "world": 8,
            "gpu": "A100-80GB",
            "micro_batch": 1,
            "seq_len": 1024,
        }
    )
    played = traceable(job)
    said = {(m.key, m.values["field"]) for m in played.notes}
    assert said >= {
        ("trace.instead", "attention"),
        ("trace.instead", "optimizer"),
        ("trace.instead", "method"),
        ("trace.instead", "sharding"),
        ("trace.set-aside", "quant"),
    }
    assert (played.job.attention, played.job.optimizer, played.job.sharding) == ("sdpa", "adamw", "none")
    assert played.job.gpu is None
    assert played.document["model"]["model_type"] == "qwen2"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"objective": "grpo"}, "objective"),
        ({"objective": "inference"}, "objective"),
        ({"method": "galore"}, "method"),
        ({"model": None, "params_b": 7}, "model"),
        ({"model": "nobody/knows-this-1b"}, "model"),
    ],
)
def test_what_has_no_step_is_refused(changes: dict[str, object], where: str) -> None:
    document = {k: v for k, v in {**JOB, **changes}.items() if v is not None}
    with pytest.raises((JobError, CatalogError)) as caught:
        traceable(Job.from_document(document))
    assert caught.value.where == where
    assert caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"grad_ckpt": True, "attention": "eager"},
        {"method": "lora", "lora": {"r": 8, "targets": ["q_proj", "v_proj"]}},
        {"sharding": "fsdp2", "world": 4},
        {"objective": "dpo", "micro_batch": 1, "optimizer": "sgd_momentum"},
    ],
)
def test_the_estimate_agrees_with_a_real_step(changes: dict[str, object]) -> None:
    needs_trace()
    found = compare(Job.from_document({**JOB, **changes}))
    rows = {row.name: row for row in found.rows}
    assert found.agrees, found.rows
    assert abs(rows["peak"].difference) < 0.01
    assert rows["peak"].traced_gib == pytest.approx(
        max(rows[n].traced_gib for n in ("forward", "backward", "step")), abs=1e-3
    )
    assert found.params == found.estimate.params


@pytest.mark.slow
@pytest.mark.parametrize(("language", "words"), [("en", "agrees with the trace"), ("zh", "估算与追踪一致")])
def test_the_command(tmp_path: Path, language: str, words: str) -> None:
    needs_trace()
    from oomdoc.cli.main import app

    file = tmp_path / "job.json"
    file.write_text(json.dumps(JOB))
    done = CliRunner().invoke(app, ["trace", str(file), "--set", "seq_len=256", "--lang", language])
    assert done.exit_code == 0, done.output
    assert words in done.output
    document = json.loads(CliRunner().invoke(app, ["trace", str(file), "--format", "json"]).output)
    assert document["agrees"] is True
    assert document["job"]["seq_len"] == 512


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oomdoc.tracing.running", None)
    with pytest.raises(InputError) as caught:
        compare(Job.from_document(JOB))
    assert "oomdoc[trace]" in caught.value.hint


@pytest.mark.slow
def test_the_script_prints_the_same_rows(root: Path, tmp_path: Path) -> None:
    needs_trace()
    file = tmp_path / "jobs.jsonl"
    job = {**JOB, "seq_len": 64}
    file.write_text(
        "\n".join(json.dumps({"id": i, "job": {**job, **c}}) for i, c in ((1, {}), (2, {"optimizer": "x"})))
    )
    command = [sys.executable, str(root / "bench" / "trace.py"), "--batch", "--events", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["measured"]["allocated_gib"] > 0
    assert "optimizer" in second["error"]
    assert " MiB +" in done.stderr
