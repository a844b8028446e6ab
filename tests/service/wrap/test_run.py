"""`oomdoc run`: the command's own bytes, status and signals; the diagnosis under a log that ran out of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oomdoc.wrap import Tail, sources_of

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.00 GiB is free."


def oomdoc(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oomdoc", "run", "--", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("status", [0, 1, 7])
def test_output_and_status_are_the_commands_own(status: int) -> None:
    script = f"import sys; print('out'); print('err', file=sys.stderr); sys.exit({status})"
    done = oomdoc(sys.executable, "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (status, "out\n", "err\n")


def test_options_of_the_command_are_left_alone() -> None:
    done = oomdoc(sys.executable, "-c", "import sys; print(sys.argv[1:])", "--lang", "fr", "--help", "-x")
    assert done.stdout == "['--lang', 'fr', '--help', '-x']\n"


def test_standard_input_passes() -> None:
    done = oomdoc(sys.executable, "-c", "print(input().upper())", input="hello\n")
    assert done.stdout == "HELLO\n"


def test_a_memory_failure_is_diagnosed_under_the_log(tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\nper_device_train_batch_size: 4\n"
    )
    script = f"import sys; print({OOM!r}, file=sys.stderr); sys.exit(1)"
    done = oomdoc(sys.executable, "-c", script, str(config))
    assert done.returncode == 1
    first, _, rest = done.stderr.partition("oomdoc")
    assert OOM in first
    assert "GiB" in rest


def test_signals_reach_the_command() -> None:
    script = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *a: sys.exit(5)); print('ready', flush=True); time.sleep(60)"
    command = [sys.executable, "-m", "oomdoc", "run", "--", sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 5


def test_death_by_signal_is_told_as_a_shell_does() -> None:
    done = oomdoc(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == 137


def test_a_terminal_stays_a_terminal() -> None:
    import pty

    script = "import sys; print(sys.stdout.isatty(), sys.stderr.isatty())"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "oomdoc", "run", "--", sys.executable, "-c", script]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    output = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            chunk = os.read(ours, 4096)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    assert process.wait(timeout=60) == 0
    assert b"True True" in output


def test_an_unknown_command_is_an_error() -> None:
    done = oomdoc("no-such-command-anywhere")
    assert done.returncode == 2
    assert "no-such-command-anywhere" in done.stderr


def test_the_tail_is_bounded_and_keeps_both_ends() -> None:
    tail = Tail()
    tail.add(b"first line\n")
    for number in range(3000):
        tail.add(f"line {number}\n".encode() * 200)
    tail.add(b"last line\n")
    text = tail.text()
    assert text.startswith("first line\n")
    assert text.endswith("last line\n")
    assert len(text) < 6 << 20


def test_config_files_in_the_command_are_read(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text("{}")
    names = [s.name for s in sources_of(["torchrun", "train.py", f"--deepspeed={file}", "missing.yaml"], "x")]
    assert names == ["output", "command", str(file)]


def test_a_kill_by_the_kernel_is_told_by_its_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oomdoc import wrap
    from oomdoc.cli.main import app

    counters = tmp_path / "memory.events"
    counters.write_text("low 0\noom 1\noom_kill 3\n")
    monkeypatch.setattr(wrap, "_KILL_COUNTERS", (str(counters), str(tmp_path / "missing")))
    assert wrap.oom_kills() == 3

    def killed(_command: object) -> wrap.Finished:
        counters.write_text("oom_kill 4\n")
        return wrap.Finished(137, "step 1\n")

    monkeypatch.setattr(wrap, "run_command", killed)
    done = CliRunner().invoke(app, ["run", "--", "python", "train.py"])
    assert done.exit_code == 137
    assert "Host memory ran out" in done.stderr
    # Killed by a person: the counters stand still, and nothing is claimed.
    monkeypatch.setattr(wrap, "run_command", lambda _command: wrap.Finished(137, "step 1\n"))
    assert CliRunner().invoke(app, ["run", "--", "python", "train.py"]).stderr == ""


def test_a_busy_command_is_passed_on_whole() -> None:
    script = "import sys\nfor i in range(60000): print('line', i, flush=i % 7 == 0)\nprint('end', file=sys.stderr)"
    done = oomdoc(sys.executable, "-c", script)
    assert done.stdout == "".join(f"line {i}\n" for i in range(60000))
    assert done.stderr == "end\n"
