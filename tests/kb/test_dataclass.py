"""Classes of data behave as those of the library."""

from __future__ import annotations

import copy
import dataclasses
import pickle

from oomkb.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: float = dataclasses.field(default=1.0, compare=False)
    """Not compared."""


@dataclass(slots=True)
class Single:
    value: float


@dataclass(frozen=True)
class Empty:
    pass


def test_they_compare_hash_and_show_as_the_library_s_do() -> None:
    assert Pair(1, 2.0) == Pair(1, 3.0)
    assert len({Pair(1, 2.0), Pair(1, 3.0), Pair(2)}) == 2
    assert Pair(1) != Single(1)
    assert repr(Pair(1)) == "Pair(left=1, right=1.0)"
    nan = float("nan")
    assert Single(nan) == Single(nan)  # the same object
    assert Single.__hash__ is None
    assert Empty() == Empty()
    assert len({Empty(), Empty()}) == 1


def test_the_library_s_functions_take_them() -> None:
    assert dataclasses.replace(Pair(1), left=2) == Pair(2)
    assert dataclasses.asdict(Pair(3)) == {"left": 3, "right": 1.0}
    assert pickle.loads(pickle.dumps(Pair(4))) == copy.deepcopy(Pair(4)) == Pair(4)
    match Pair(5, 6.0):
        case Pair(left, right):
            assert (left, right) == (5, 6.0)
