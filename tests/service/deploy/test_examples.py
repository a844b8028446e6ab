"""The examples beside the code run: the SLURM prolog, the pre-commit hook."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

STUB = '#!/bin/sh\nfor word in "$@"; do printf "[%s]" "$word"; done\necho\nexit 3\n'


def prolog(root: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in (("oomdoc", STUB), ("nvidia-smi", "#!/bin/sh\necho 'NVIDIA H100 80GB HBM3'\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    settings = {"PATH": f"{tools}:{os.environ['PATH']}", **environment}
    script = str(root / "service" / "deploy" / "slurm-prolog.sh")
    return subprocess.run(["bash", script], env=settings, capture_output=True, text=True, timeout=60)


def test_the_prolog_speaks_into_the_jobs_log_and_never_fails(root: Path, tmp_path: Path) -> None:
    config = tmp_path / "my train.yaml"
    config.write_text("model: x\n")
    given = {"TRAIN_CONFIG": str(config), "SLURM_GPUS_ON_NODE": "8", "SLURM_JOB_NUM_NODES": "2"}
    done = prolog(root, tmp_path, **given)
    words = f"[check][{config}][--gpu][NVIDIA H100 80GB HBM3][--gpus][8][--set][nodes=2]"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"print oomdoc: {words}\n", "")
    assert prolog(root, tmp_path, **given, SLURM_PROCID="1").stdout == ""
    assert prolog(root, tmp_path, TRAIN_CONFIG=str(tmp_path / "gone.yaml")).stdout == ""
    done = prolog(root, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_prolog_is_clean(root: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    subprocess.run([shellcheck, str(root / "service" / "deploy" / "slurm-prolog.sh")], check=True, timeout=60)


def test_the_hook_calls_what_exists(root: Path, tmp_path: Path) -> None:
    from oomdoc.cli.main import app

    (hook,) = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text("utf-8"))
    example = yaml.safe_load((root / "service" / "deploy" / "pre-commit-config.yaml").read_text("utf-8"))
    (used,) = example["repos"][0]["hooks"]
    assert used["id"] == hook["id"]
    assert re.search(hook["files"], "configs/train.yaml")
    assert re.search(used["files"], "configs/deep/train.yml")
    config = tmp_path / "train.yaml"
    config.write_text("model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\nfinetuning_type: lora\ncutoff_len: 512\n")
    done = CliRunner().invoke(app, [*hook["entry"].split()[1:], *used["args"], str(config)])
    assert done.exit_code == 0, done.output
    config.write_text("model_name_or_path: Qwen/Qwen2.5-72B\nstage: sft\nfinetuning_type: full\ncutoff_len: 8192\n")
    assert CliRunner().invoke(app, [*hook["entry"].split()[1:], *used["args"], str(config)]).exit_code == 3
