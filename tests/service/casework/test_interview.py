"""`oomdoc case new` and `case add` as a person meets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from oomdoc.cli import case as case_command
from oomdoc.cli.main import app
from oomkb.records.lint import lint_text

DIAGNOSIS = {
    "schema": "oomdoc.diagnosis/1",
    "summary": "The logits do not fit.",
    "causes": [{"cause": "logits", "probability": 0.8, "why": ["one fp32 copy"], "evidence": []}],
    "facts": {"gpu": {"value": "V100", "stated": True}},
}
ANSWERS = [
    "logit",  # no cause: asked again
    "logits",
    "Qwen2 DPO long context",
    "The fp32 copy of the logits did not fit",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB",
    "",  # transformers
    "Qwen/Qwen2.5-7B",
    "lora",
    "RTX 4090",
    "8",
    "none",  # no number: asked again
    "2",
    "4096",
    "Liger's fused loss",
    "http://not-secure.example",  # no https: asked again
    "https://github.com/vllm-project/vllm/issues/1",
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_command, "_interactive", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_an_interview_makes_a_record(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["case", "new", "--folder", str(tmp_path)], input="\n".join(ANSWERS) + "\n")
    assert done.exit_code == 0, done.output
    assert "near it: logits" in done.output
    assert "no https link" in done.output
    path = tmp_path / "logits" / "qwen2-dpo-long-context.yaml"
    record = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert record["before"]["model"] == "Qwen/Qwen2.5-7B"
    assert (record["before"]["micro_batch"], record["before"]["seq_len"], record["before"]["world"]) == (2, 4096, 8)
    assert record["hardware"] == {"gpu": "RTX 4090", "count": 8}
    assert record["references"][0]["url"] == "https://github.com/vllm-project/vllm/issues/1"
    messages = {p.message for p in lint_text(path.read_text(encoding="utf-8"), case_id=f"logits/{path.stem}")}
    assert messages <= {"still says FILL IN", "holds no Chinese"}


@pytest.mark.usefixtures("terminal")
def test_what_is_left_empty_is_left_out(tmp_path: Path) -> None:
    answers = ["A title", "A line", "vllm", "", "", "", "", "", "", "", ""]
    done = CliRunner().invoke(
        app, ["case", "new", "kv-cache", "--folder", str(tmp_path)], input="\n".join(["short", *answers]) + "\n"
    )
    assert done.exit_code == 0, done.output
    record = yaml.safe_load((tmp_path / "kv-cache" / "short.yaml").read_text(encoding="utf-8"))
    assert record["frameworks"] == ["vllm"]
    assert record["before"] == {"world": 1}
    assert record["fixes"] == []


def test_without_a_terminal_nothing_is_asked(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["case", "new", "--folder", str(tmp_path)], input="logits\nx\n")
    assert "no cause and no slug" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("terminal")
def test_a_diagnosis_names_the_cause(tmp_path: Path) -> None:
    source = tmp_path / "d.json"
    source.write_text(json.dumps(DIAGNOSIS))
    words = ["case", "new", "--folder", str(tmp_path / "cases"), "--from-diagnosis", str(source)]
    done = CliRunner().invoke(app, words, input="mine\n")
    assert done.exit_code == 0, done.output
    record = yaml.safe_load((tmp_path / "cases" / "logits" / "mine.yaml").read_text(encoding="utf-8"))
    assert record["hardware"] == {"gpu": "V100"}


def test_a_diagnosis_that_the_server_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy")
    from oomdoc.store import open_store

    url = f"sqlite:///{tmp_path / 'kept.db'}"
    store = open_store(url)
    identifier = store.add_diagnosis(language="en", input_masked="x", result=DIAGNOSIS)
    store.close()
    monkeypatch.setenv("OOMDOC_DATABASE_URL", url)
    words = ["case", "new", "logits", "kept", "--folder", str(tmp_path / "cases"), "--from-diagnosis"]
    done = CliRunner().invoke(app, [*words, identifier])
    assert done.exit_code == 0, done.output
    assert "V100" in (tmp_path / "cases" / "logits" / "kept.yaml").read_text(encoding="utf-8")
    done = CliRunner().invoke(app, [*words, "no-such-id"])
    assert "no diagnosis 'no-such-id' is kept" in str(done.exception)
    done = CliRunner().invoke(app, [*words, "missing.json"])
    assert "cannot be read" in str(done.exception)


def test_errors_of_adding_name_the_next_step(tmp_path: Path, root: Path) -> None:
    file = tmp_path / "logit" / "mine.yaml"
    file.parent.mkdir()
    shutil.copy(root / "cases" / "logits" / "dpo-large-vocabulary.yaml", file)
    private = tmp_path / "private"
    done = CliRunner().invoke(app, ["case", "add", str(file), "--folder", str(private)])
    assert getattr(done.exception, "hint", "") == "did you mean logits?"
    done = CliRunner().invoke(app, ["case", "add", str(file), "--folder", str(private), "--cause", "logits"])
    assert done.exit_code == 0, done.output
    assert (private / "logits" / "mine.yaml").is_file()
    (tmp_path / "in-the-way").write_text("")
    words = ["case", "add", str(file), "--cause", "logits", "--folder", str(tmp_path / "in-the-way")]
    assert "can be written" in getattr(CliRunner().invoke(app, words).exception, "hint", "")
