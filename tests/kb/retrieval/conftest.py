"""Fixtures: a state folder of its own, and the encoder of hashed words in place of the model."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from standins import HashedWords, some_cases

from oomkb.retrieval import index, search


@pytest.fixture
def cases():
    return some_cases()


@pytest.fixture
def model(monkeypatch, tmp_path):
    """The stand-in, which remembers what it embedded; the index goes to a temporary folder."""
    stand_in = HashedWords()
    monkeypatch.setenv("OOMDOC_STATE", str(tmp_path / "state"))
    for module in ("index", "views", "search"):
        monkeypatch.setattr(f"oomkb.retrieval.{module}.encoder", lambda *_: stand_in)
    # The shipped curves were fitted to the real model's cosines.
    open_curves = replace(search.calibration(), related_bias=50.0, least_probability=0.0)
    monkeypatch.setattr(search, "calibration", lambda: open_curves)
    index._held.cache_clear()
    return stand_in
