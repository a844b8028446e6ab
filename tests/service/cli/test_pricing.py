"""A batch of jobs: in order, on several processes as on one, with a line for what cannot be priced."""

import io
import json
import os
from pathlib import Path

import pytest

from oomdoc.cli import pricing
from oomkb.errors import InputError


def rows(count):
    models = ("Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.2-1B", "google/gemma-2-2b", "no/such-model")
    return [
        (i + 1, {"id": str(i), "job": {"model": models[i % 4], "micro_batch": 1 + i % 3, "seq_len": 256 * (1 + i % 5)}})
        for i in range(count)
    ]


def test_processes_do_not_change_the_lines(monkeypatch):
    some = rows(60)
    alone = pricing.priced_lines(some, Path("x"), "en")
    monkeypatch.setattr(pricing, "_ROWS_EACH", 20)
    monkeypatch.setattr(pricing, "cores", lambda: 3)
    together = pricing.priced_lines(some, Path("x"), "en")
    assert together == alone
    assert [json.loads(line)["id"] for line in together] == [str(i) for i in range(60)]
    assert sum(bool(json.loads(line)["error"]) for line in alone) == 15


HERE, LINE_OF = os.getpid(), pricing.line_of


def here_alone(numbered, path, language):
    return LINE_OF(numbered, path, language) if os.getpid() == HERE else os._exit(9)


def test_a_process_that_dies_costs_no_line(monkeypatch):
    some = rows(20)
    alone = pricing.priced_lines(some, Path("x"), "en")
    monkeypatch.setattr(pricing, "_ROWS_EACH", 10)
    monkeypatch.setattr(pricing, "cores", lambda: 2)
    monkeypatch.setattr(pricing, "line_of", here_alone)
    assert pricing.priced_lines(some, Path("x"), "en") == alone


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
