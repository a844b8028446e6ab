"""Measuring on recorded replies: prompts hold no label, replies are found again, a conversation goes on in rounds."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROW = {
    "id": "x#1",
    "report": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. It dies in the loss, on two cards.",
    "cause": "eval",
    "also": [],
    "cause_why": "SECRET-LABEL",
    "facts": {"gpu_count": 2, "tried_gib": 4.64, "phase": "loss"},
}
REPLY = {
    "what": "device-memory",
    "what_quote": "CUDA out of memory",
    "causes": [{"cause": "eval", "quote": "It dies in the loss", "sure": "high"}],
    "facts": [
        {"key": "gpu_count", "value": "2", "quote": "on two cards"},
        {"key": "phase", "value": "loss", "quote": "It dies in the loss"},
    ],
    "statements": [],
}


@pytest.fixture
def bench(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(root / "bench"))
    for name in ("fit_ranker", "language_model", "reading_fit", "recorded_turns"):
        sys.modules.pop(name, None)
    import language_model

    monkeypatch.setattr(language_model, "ROOT", tmp_path)
    monkeypatch.setattr(language_model, "REPLIES", tmp_path / "replies.jsonl")
    return language_model


def arguments(**more: Any) -> argparse.Namespace:
    return argparse.Namespace(**({"style": "full", "context": 8192, "misses": True, "plans": False} | more))


def test_export_import_score(bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports, prompts, said = tmp_path / "reports.jsonl", tmp_path / "prompts", tmp_path / "said"
    reports.write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    bench.export(arguments(files=[str(reports)], out=prompts))
    [prompt] = prompts.iterdir()
    assert ROW["report"] in " ".join(prompt.read_text(encoding="utf-8").split())
    assert "SECRET-LABEL" not in prompt.read_text(encoding="utf-8")
    said.mkdir()
    (said / f"{prompt.stem}.json").write_text(f"```json\n{json.dumps(REPLY)}\n```", encoding="utf-8")
    (said / "0000000000000000.json").write_text("I would rather not.", encoding="utf-8")
    bench.import_(argparse.Namespace(source=said, model="somebody", date="2026-11-22"))
    kept = [json.loads(line) for line in (tmp_path / "replies.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(one["key"], one["model"], one["date"]) for one in kept] == [(prompt.stem, "somebody", "2026-11-22")]
    capsys.readouterr()
    bench.score(arguments(files=[str(reports)]))
    printed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "first 100.0%" in printed["with"]
    assert "facts precision 100.0%  recall 100.0%" in printed["with"]
    assert "first 0.0%" in printed["without"]


def test_not_knowing_is_an_answer_and_is_counted(bench: Any) -> None:
    tally = bench.Tally()
    row = {"cause": "unknown"}
    assert tally.causes([], row)
    assert tally.causes(["logits"], row, 0.3)
    assert not tally.causes(["logits"], row, 0.8)
    assert not tally.causes(["logits"], row)
    assert (tally.reports, tally.unknown, tally.unknown_named) == (0, 4, 2)
    assert "left open 2/4" in tally.line("with")


def test_a_conversation_goes_on_in_rounds(bench: Any) -> None:
    from recorded_turns import Recorded, run

    row = {
        "id": "c",
        "job": {"model": "Qwen/Qwen2.5-7B", "method": "lora", "micro_batch": 4, "seq_len": 4096, "gpu": "RTX 4090"},
        "turns": [
            {"say": "could you please have it go through half as many of them each time", "expect": {"micro_batch": 2}}
        ],
    }
    kept: dict[str, Any] = {}
    replies = [
        {"content": "", "tool_calls": [{"name": "change_job", "arguments": {"fields": {"micro_batch": 2}}}]},
        {"content": "That takes 77.77 GiB. Two at a time it is.", "tool_calls": []},
        {"content": "OK", "tool_calls": []},
    ]
    for reply in replies:
        talk = run([row], lambda: Recorded(kept))
        assert talk.turns == 0
        [(key, prompt)] = talk.waiting.items()
        assert "half as many" in prompt
        kept[key] = {"model": "somebody", "date": "2026-11-22", "reply": reply}
    talk = run([row], lambda: Recorded(kept))
    assert not talk.waiting
    assert talk.turns == 1
    assert talk.sentences_withheld == 1  # a figure out of nowhere


def test_the_fit_follows_the_labels(bench: Any) -> None:
    right = {"features": {"model-first-high:eval": 1.0, "model-says:eval": 1.0}, "cause": "eval", "also": []}
    wrong = {"features": {"model-first-high:leak": 1.0, "model-says:leak": 1.0}, "cause": "eval", "also": []}
    import numpy as np

    from reading_fit import CAUSES, Fit

    offset = np.zeros((40, len(CAUSES)))
    trusted, doubted = Fit([right] * 40, offset), Fit([wrong] * 40, offset)
    assert trusted.shared[0] > 3.0 > doubted.shared[0]
    assert doubted.own[list(CAUSES).index("leak")] < 0


def test_lists_of_mappings_are_compared(bench: Any) -> None:
    import recorded_turns

    one, other = [{"role": "reference", "offload": True}], [{"offload": True, "role": "reference"}]
    assert recorded_turns._same("extra_models", one, other)
    assert not recorded_turns._same("extra_models", one, [{"role": "critic"}])
