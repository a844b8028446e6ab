"""Fixtures: a state folder of its own, and the encoder of hashed words in place of the model."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from standins import HashedWords, some_cases

from oomkb.retrieval import index


@pytest.fixture
def cases():
    return some_cases()


@pytest.fixture
def model(monkeypatch, tmp_path):
    """The stand-in, which remembers what it embedded; the index goes to a temporary folder."""
    stand_in = HashedWords()
    monkeypatch.setenv("OOMDOC_STATE", str(tmp_path / "state"))
    for module in ("index", "views"):
        monkeypatch.setattr(f"oomkb.retrieval.{module}.encoder", lambda *_: stand_in)
    index._held.cache_clear()
    return stand_in
