"""What holds for every test of the service in this process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _patient_with_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other things has a slow disk: that is no store that is down."""
    monkeypatch.setattr("oomdoc.api.work._STORE_S", 600.0)
    monkeypatch.setattr("oomdoc.api.work._OPENING_S", 600.0)
