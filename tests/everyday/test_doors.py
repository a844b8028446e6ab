"""Fields that are stated wrongly are refused alike by the library, the command, HTTP and MCP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import oomdoc
from oomdoc.chat.conversation import respond
from oomdoc.chat.session import Session

HERE = Path(__file__).parent / "inputs"
OPTIONS: list[dict[str, Any]] = yaml.safe_load((HERE / "options.yaml").read_text())
CHATS: dict[str, Any] = yaml.safe_load((HERE / "chats.yaml").read_text())
_BASE = {"model": "Qwen/Qwen2.5-7B", "gpu": "A100-80GB"}


@pytest.mark.parametrize("case", OPTIONS, ids=[str(c["set"]) for c in OPTIONS])
def test_the_library(case: dict[str, Any]) -> None:
    if case.get("ok"):
        assert oomdoc.estimate(_BASE, **case["set"]).peak_gib > 0
        return
    with pytest.raises(oomdoc.OomdocError) as refused:
        oomdoc.estimate(_BASE, **case["set"])
    assert case.get("near", "") in f"{refused.value}", case["why"]
    with pytest.raises(oomdoc.OomdocError):
        oomdoc.diagnose("Will it fit?", options={**_BASE, **case["set"]})


@pytest.mark.parametrize("case", OPTIONS, ids=[str(c["set"]) for c in OPTIONS])
def test_the_command(case: dict[str, Any]) -> None:
    from oomdoc.cli.main import app

    stated = [part for n, v in {**_BASE, **case["set"]}.items() for part in ("--set", f"{n}={v}")]
    done = CliRunner().invoke(app, ["estimate", *stated, "--format", "json"])
    assert (done.exit_code == 0) is bool(case.get("ok")), case["why"]


@pytest.mark.parametrize("case", CHATS["turns"], ids=[c["say"] for c in CHATS["turns"]])
def test_a_turn(case: dict[str, Any]) -> None:
    session, _ = respond(Session(), CHATS[case["of"]])
    before = session.job.document()
    session, reply = respond(session, case["say"])
    changed = dict(reply.document()["changed"])
    if case.get("refused"):
        assert changed == {}
        assert session.job.document() == before
        return
    wanted = case["changed"]
    assert {n: changed.get(n) for n in wanted} == wanted, case["why"]
    assert set(changed) - {"world", "dp", "seq_len"} <= set(wanted), case["why"]


def test_thanks_after_a_question_changes_nothing() -> None:
    session, _ = respond(Session(), CHATS["sft"])
    session, _ = respond(session, "would offloading the optimizer help?")
    for say in ("thanks", "great, thanks!", "谢谢"):
        _, reply = respond(session, say)
        assert reply.document()["changed"] == {}


def test_a_pasted_config_json_is_the_model() -> None:
    session, _ = respond(Session(), CHATS["sft"])
    text = (
        '{\n "model_type": "qwen2",\n "hidden_size": 3584,\n "num_hidden_layers": 28,\n "num_attention_heads": 28,\n'
        ' "num_key_value_heads": 4,\n "intermediate_size": 18944,\n "vocab_size": 152064\n}'
    )
    session, reply = respond(session, text)
    assert reply.document()["changed"]["model"]["hidden_size"] == 3584
    assert session.job.method == "lora"
