"""Whatever is pasted, the work grows with its length and no faster, and very large inputs cost no more than large ones.

Work is counted in lines of Python run (loops and comprehensions included), which no other load on the machine changes.
``bench/hostile_intake.py`` measures the same inputs, a megabyte each, in processor time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import util
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoc.evidence import Source
from oomdoc.intake import read, read_text
from oomdoc.intake.configs import read_documents
from oomdoc.intake.long_texts import MAX_LINES, shortened
from oomkb.errors import InputError

_spec = util.spec_from_file_location("hostile_intake", Path(__file__).parents[3] / "bench" / "hostile_intake.py")
assert _spec is not None
assert _spec.loader is not None
hostile = util.module_from_spec(_spec)
_spec.loader.exec_module(hostile)

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.15 GiB"


def lines_run(work: Callable[[], Any]) -> int:
    """How many lines of Python the work runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except InputError:
        pass
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", sorted(hostile.UNITS))
def test_work_grows_with_the_length(name):
    """Four times the input takes four times the work, with room for what looks a bounded way ahead; never sixteen times."""
    hostile_text = hostile.text_of
    read_text(hostile_text(name, 300))  # what is worked out once for a process
    small = lines_run(lambda: read_text(hostile_text(name, 1000)))
    large = lines_run(lambda: read_text(hostile_text(name, 4000)))
    assert large < 8 * small + 3000


@pytest.mark.parametrize("name", ["x.yaml", "x.json", "x.sh", "x.py", "x.toml", "x.ipynb", "Dockerfile"])
@pytest.mark.parametrize("unit", ["a: b\n", '{"a":', "- a\n", "A=$A$A\n", "[a]\nb = 1\n", "f(a=1,\n", "a.b=1 ", "$("])
def test_work_grows_with_the_length_of_a_file(name, unit):
    read_documents(Source(name, unit * 50))
    small = lines_run(lambda: read_documents(Source(name, unit * 200)))
    large = lines_run(lambda: read_documents(Source(name, unit * 800)))
    assert large < 8 * small + 3000


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(u for u in hostile.UNITS.values() if u)), min_size=1, max_size=4))
def test_work_grows_with_the_length_of_mixtures(units):
    unit = "".join(units)
    small = lines_run(lambda: read_text(unit * 8))
    large = lines_run(lambda: read_text(unit * 32))
    assert large < 8 * small + 6000


@pytest.mark.parametrize("at", [0, 60_000, 119_999])
def test_a_failure_in_very_many_lines_is_found(at):
    lines = ["x"] * 120_000
    lines[at] = OOM
    evidence = read_text("\n".join(lines))
    assert evidence.root is not None
    assert evidence.root.requested_bytes == 2 << 30
    assert "intake.condensed" in [getattr(w, "key", w) for w in evidence.warnings]


def test_thinning_keeps_ends_and_what_is_telling():
    lines = [f"line {n}" for n in range(200_000)]
    lines[90_000] = OOM
    short = shortened("\n".join(lines)).split("\n")
    assert len(short) <= MAX_LINES
    assert short[0] == "line 0"
    assert short[-1] == "line 199999"
    assert OOM in short
    assert "line 89990" in short
    assert shortened("a\nb") == "a\nb"


def test_of_very_many_failures_the_first_and_the_last_stay():
    lines = [f"x {n}\n{OOM} {n}" for n in range(100_000)]
    short = shortened("\n".join(lines))
    assert f"{OOM} 0\n" in short
    assert short.endswith(f"{OOM} 99999")
    assert short.count("\n") < MAX_LINES


def test_the_last_state_of_a_progress_bar_stays():
    text = "\r".join(f" {n % 100}%|█ | {n}/99999 [01:21<08:46, 13.51s/it]" for n in range(99_999)) + f"\n{OOM}\n"
    evidence = read_text(text)
    assert evidence.root is not None
    assert evidence.root.step == 99_998


def test_what_is_too_large_for_a_configuration_is_told():
    text = "".join(f"per_device_train_batch_size: {n % 7 + 1}\n" for n in range(9000))
    evidence = read([Source("x.yaml", text)])
    assert "intake.config-cut" in [getattr(w, "key", w) for w in evidence.warnings]
    small = read([Source("x.yaml", text[:2000])])
    assert not small.warnings


@pytest.mark.parametrize("unit", ["if a:\n ", "if a; then\n", "case a in\n", "if a; if b; "])
def test_arms_that_never_end_are_looked_for_once(unit):
    """Each searched the rest of the text for its end: a minute for the 150,000 characters that are read."""
    started = time.process_time()
    read_documents(Source("run.sh", unit * (120_000 // len(unit))))
    assert time.process_time() - started < 5
