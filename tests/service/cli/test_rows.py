"""Many rows are answered in their order, whatever the number of processes."""

import os

import pytest

from oomdoc.cli import rows
from oomkb.errors import InputError, OomdocError


def _work(numbered: rows.Row) -> dict[str, object]:
    number, row = numbered
    return {"number": number, "id": row["id"], "process": os.getpid()}


def _rows(count: int, broken_at: int | None = None):
    for number in range(1, count + 1):
        if number == broken_at:
            raise InputError("not JSON", where=f"x:{number}")
        yield number, {"id": f"r{number}"}


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_order_is_kept(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(rows, "cores", lambda: cores)
    found = list(rows.answered(_work, _rows(60), streamed=False))
    assert [one["number"] for one in found] == list(range(1, 61))
    own = {one["process"] for one in found} == {os.getpid()}
    assert own == (cores == 1)


def test_few_rows_stay_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "cores", lambda: 4)
    assert {one["process"] for one in rows.answered(_work, _rows(9), streamed=False)} == {os.getpid()}


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("broken_at", [3, 40])
def test_a_broken_row_ends_it_after_the_answers_before(
    monkeypatch: pytest.MonkeyPatch, cores: int, broken_at: int
) -> None:
    monkeypatch.setattr(rows, "cores", lambda: cores)
    answers, found = rows.answered(_work, _rows(60, broken_at), streamed=False), []
    for _ in range(broken_at - 1):
        found.append(next(answers)["number"])
    with pytest.raises(InputError, match="not JSON"):
        next(answers)
    assert found == list(range(1, broken_at))


def test_of_a_stream_no_row_is_read_before_the_last_is_answered() -> None:
    asked: list[int] = []

    def written():
        for number in range(1, 4):
            asked.append(number)
            yield number, {"id": f"r{number}"}

    answers = rows.answered(_work, written(), streamed=True)
    assert next(answers)["number"] == 1
    assert asked == [1]


def _killed(_numbered: rows.Row) -> dict[str, object]:
    os._exit(9)


def test_a_process_that_is_killed_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "cores", lambda: 2)
    with pytest.raises(OomdocError, match="was killed"):
        list(rows.answered(_killed, _rows(40), streamed=False))
