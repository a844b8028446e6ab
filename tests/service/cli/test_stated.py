"""``--set`` and the fields of a batch are read by the same schema as at every other interface."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oomdoc.cli.main import app
from oomdoc.stated import stated_fields
from oomkb.errors import JobError


def run(*words: str, text: str = "CUDA out of memory") -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words), input=text)
    return done.exit_code, done.output + str(done.exception or "")


def test_a_size_with_its_unit(tmp_path: Path) -> None:
    status, said = run("diagnose", "-", "--set", "capacity_gib=24 GB", "--format", "json")
    assert status == 0
    assert json.loads(said)["facts"]["capacity_gib"]["value"] == 24.0
    status, said = run("estimate", "--set", "model=Qwen/Qwen2.5-7B", "--set", "capacity_gib=24 GiB", "--format", "json")
    assert status == 0
    assert json.loads(said)["capacity_gib"] == 24.0


@pytest.mark.parametrize(
    "pair", ["capacity_gib=lots", "seq_len=.nan", "micro_batch=[1]", "seqlen=5", "gpus=1e30", "a=" + "[" * 5000]
)
def test_nonsense_is_refused_with_its_place(pair: str) -> None:
    status, said = run("diagnose", "-", "--set", pair)
    assert status != 0
    assert pair.partition("=")[0] in said


def test_the_fields_of_a_batch(tmp_path: Path) -> None:
    file = tmp_path / "reports.jsonl"
    rows = [{"id": "a", "text": "oom", "set": [1]}, {"id": "b", "text": "CUDA out of memory", "set": {"gpus": "8"}}]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    _, said = run("diagnose", "--batch", str(file))
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [row["id"] for row in found] == ["a", "b"]
    assert found[0]["error"]
    assert not found[1]["error"]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"lora": {"r": "16"}}, {"lora.r": 16}),
        ({"serving.gpu_memory_utilization": "90%"}, {"serving.gpu_memory_utilization": 0.9}),
        ({"grad_ckpt": "true", "packing": "no"}, {"grad_ckpt": True, "packing": False}),
        ({"env": {"A": 1}, "env.B": "x"}, {"env.A": "1", "env.B": "x"}),
        ({"offload": "optimizer"}, {"offload": ["optimizer"]}),
        (
            {"zero_stage": "3", "gpu_count": 8, "tried_gib": "512 MiB"},
            {"zero_stage": 3, "gpu_count": 8, "tried_gib": 0.5},
        ),
        ({"seq_len": None}, {}),
    ],
)
def test_values_are_read(given: dict[str, object], read: dict[str, object]) -> None:
    assert stated_fields(given) == read


@pytest.mark.parametrize(
    "given", [[], "x", {"model": {"a": [[[[[[[[[[[[[[1]]]]]]]]]]]]]]}}, {"buckets": {"a": float("nan")}}]
)
def test_values_are_refused(given: object) -> None:
    with pytest.raises(JobError):
        stated_fields(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["[" * 30_000, "a: " + "{b: " * 30_000, "micro_batch: 4\nx: " + "[" * 30_000])
def test_brackets_do_not_end_the_process(tmp_path: Path, text: str) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(text, encoding="utf-8")
    assert "nested more than" in run("estimate", str(file))[1]
    for words in (("plan",), ("check",), ("fix", "--set", "micro_batch=1")):
        assert run(words[0], str(file), *words[1:])[0] in (0, 1, 2, 3)
