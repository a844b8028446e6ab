"""The client against a real server of OpenAI's protocol: `transformers serve` with a checkpoint of random weights."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from oomdoc.language_model import Reply, Unavailable

pytest.importorskip("torch")
pytest.importorskip("openai", reason="transformers serve needs it")


@pytest.mark.slow
def test_every_exchange_has_its_form(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(root / "bench"))
    from endpoint_conformity import raw, served, trials, write_checkpoint

    checkpoint = str(write_checkpoint(tmp_path / "checkpoint"))
    program = shutil.which("transformers", path=str(Path(sys.executable).parent))
    assert program is not None
    with served([program, "serve", "--device", "cpu", "--port", "{port}", checkpoint]) as url:
        came: dict[str, Any] = trials(url, checkpoint)
        status, said = raw(url, checkpoint, stream=True)
    for one in ("one reply", "functions", "a function's result"):
        assert isinstance(came[one], Reply), one
        assert came[one].prompt_tokens > 0
        assert came[one].cut_off
    *pieces, whole = came["a stream"]
    assert pieces
    assert "".join(pieces) == whole.text
    reasons = {what: error.reason for what, error in came.items() if isinstance(error, Unavailable)}
    assert reasons == {"a JSON schema": "cut-off", "another model": "failed", "no time": "timeout"}
    assert status == 200
    assert said.startswith("data: ")
    assert said.rstrip().endswith("data: [DONE]") or '"finish_reason":"length"' in said.replace(" ", "")
