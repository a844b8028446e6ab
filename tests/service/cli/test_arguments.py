"""What people type: questions, slips of names, commands whose packages are not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oomdoc.checking import check_text
from oomdoc.cli.main import _asked_for, _extra_with, app
from oomdoc.planner import plan_job
from oomkb.errors import InputError


def test_a_question_is_an_argument() -> None:
    result = CliRunner().invoke(app, ["diagnose", "Will Qwen3-8B QLoRA fit on one RTX 4090?", "--no-plans"])
    assert result.exit_code == 1
    assert "QLoRA of Qwen3-8B" in result.output


@pytest.mark.parametrize(
    "question",
    [
        "显卡就一张 RTX 4090，" * 8 + "Qwen3-8B 的 QLoRA 放得下吗",
        "how many 8k chats of Qwen2.5-14B Q4_K_M fit a 3090 in llama.cpp",
    ],
    ids=["more bytes than a file name may have", "ends like a file name"],
)
def test_a_question_is_never_taken_for_a_file(question: str) -> None:
    result = CliRunner().invoke(app, ["diagnose", question, "--no-plans"])
    assert result.exit_code == 1, result.output
    assert "GiB" in result.output


@pytest.mark.parametrize("name", ["nosuch", "my nosuch.log", "日志.txt"])
def test_a_mistyped_file_is_no_question(name: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        CliRunner().invoke(app, ["diagnose", name], catch_exceptions=False)


def test_a_file_with_a_blank_in_its_name_is_read(tmp_path: Path) -> None:
    path = tmp_path / "my log"
    path.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    result = CliRunner().invoke(app, ["diagnose", str(path), "--no-plans", "--format", "json"])
    assert json.loads(result.output)["failure"]["requested_gib"] == 2


def test_a_misspelt_field_of_a_job_document_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: Qwen/Qwen2.5-7B\nmethod: lora\nseqlen: 4096\n")
    result = CliRunner().invoke(app, ["estimate", str(path)])
    assert result.exit_code == 0
    assert "seqlen: a job has no such field (perhaps seq_len)" in " ".join(result.output.split())


def test_check_and_plan_price_the_same_run() -> None:
    text = "model: Qwen/Qwen2.5-7B\nmethod: lora\nseq_len: 2048\ngpu: RTX 4090\n"
    assert plan_job(text, "job.yaml", {}).table.estimate.fits is True
    assert check_text(text, "job.yaml", {}).fits is True


@pytest.mark.parametrize(
    ("module", "extra"),
    [("pydantic_settings", "serve"), ("psycopg", "postgres"), ("sqlalchemy.orm", "serve"), ("numpy", ""), ("py", "")],
)
def test_a_missing_package_names_its_extra(module: str, extra: str) -> None:
    assert _extra_with(module) == extra


def test_plain_arguments_are_taken_without_validators(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n", "utf-8")
    code = (
        "import sys; sys.argv = ['oomdoc', 'diagnose', sys.argv[1], '--format', 'json', '--set', 'gpus=2']\n"
        "try:\n    import oomdoc.__main__\nfinally:\n    print([m for m in ('typer._adapters', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout.rpartition("\n[")[0])["job"]["gpus"] == 2
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_word_that_is_no_choice_is_refused_with_those_that_are() -> None:
    result = CliRunner().invoke(app, ["diagnose", "does it fit?", "--format", "jsn"])
    assert result.exit_code == 2
    assert "markdown" in result.output


def test_only_the_command_that_is_asked_for_is_made_ready() -> None:
    alone = _asked_for(["diagnose"])
    result = CliRunner().invoke(alone, ["diagnose", "Will Qwen3-8B QLoRA fit on one RTX 4090?", "--no-plans"])
    assert result.exit_code == 1
    assert len(alone.registered_commands) == 1
    assert len(app.registered_commands) > 10
    assert _asked_for(["case"]) is _asked_for([]) is _asked_for(["nosuch"]) is app
