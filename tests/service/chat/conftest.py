from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "language_model"))

from standin import StandIn, completion


@pytest.fixture
def endpoint() -> Iterator[StandIn]:
    made = StandIn(lambda _request: completion("{}"))
    yield made
    made.close()
