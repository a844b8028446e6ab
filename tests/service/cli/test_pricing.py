"""A batch of jobs: in order, on several processes as on one, with a line for what cannot be priced."""

import io
import json
import os
from pathlib import Path

import pytest

from oomdoc.cli import pricing
from oomdoc.report.estimates import estimate_document, estimate_line
from oomkb.errors import InputError
from oomkb.memory.job import Job
from oomkb.pricing import price


def rows(count):
    models = ("Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.2-1B", "google/gemma-2-2b", "no/such-model")
    return [
        (i + 1, {"id": str(i), "job": {"model": models[i % 4], "micro_batch": 1 + i % 3, "seq_len": 256 * (1 + i % 5)}})
        for i in range(count)
    ]


def test_processes_do_not_change_the_lines(monkeypatch):
    some = rows(60)
    alone = pricing.priced_lines(some, Path("x"), "en")
    monkeypatch.setattr(pricing, "_MIN_ROWS_FOR_PROCESSES", 20)
    monkeypatch.setattr(pricing, "_cores", lambda: 3)
    together = pricing.priced_lines(some, Path("x"), "en")
    assert together == alone
    assert [json.loads(line)["id"] for line in together] == [str(i) for i in range(60)]
    assert sum(bool(json.loads(line)["error"]) for line in alone) == 15


def test_a_process_that_dies_costs_no_line(monkeypatch):
    some = rows(20)
    alone = pricing.priced_lines(some, Path("x"), "en")
    monkeypatch.setattr(pricing, "_MIN_ROWS_FOR_PROCESSES", 10)
    monkeypatch.setattr(pricing, "_cores", lambda: 2)
    monkeypatch.setattr(pricing, "_write", lambda *_: os._exit(9))
    assert pricing.priced_lines(some, Path("x"), "en") == alone


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_line_is_the_document_as_json(language):
    for model, more in (
        ("Qwen/Qwen2.5-7B", {"method": "lora", "offload": ["optimizer"], "packing": False}),
        ("deepseek-ai/DeepSeek-V3", {"sharding": "zero3", "world": 64, "gpu": "H100", "framework": "llama-factory"}),
        ("Qwen/Qwen3-8B", {"framework": "vllm", "serving": {"max_model_len": 8192}, "gpu": "A100 80GB"}),
    ):
        found = price(Job.from_document({"model": model, **more})).estimate
        for identifier in ('7", "assumed": {', None, "编号"):
            document = estimate_document(found, identifier=identifier, language=language)
            line = estimate_line(found, identifier=identifier, language=language)
            assert line == json.dumps(document, ensure_ascii=False)


def test_what_was_read_before_a_broken_line_is_answered():
    def broken():
        yield from rows(3)
        raise InputError("not JSON", where="jobs.jsonl:4")

    out = io.StringIO()
    with pytest.raises(InputError):
        pricing.run(broken(), Path("jobs.jsonl"), "en", out.write)
    assert len(out.getvalue().splitlines()) == 3


def test_windows_do_not_change_the_order(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(pricing, "_WINDOW", 7)
    pricing.run(iter(rows(23)), Path("x"), "zh", out.write)
    assert [json.loads(line)["id"] for line in out.getvalue().splitlines()] == [str(i) for i in range(23)]
