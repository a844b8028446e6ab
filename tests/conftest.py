"""Fixtures that every test may use."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def load_bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A script of ``bench/`` by its name, as a module; it imports its neighbours."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The evaluation data, where a checkout has it beside it (`OOMDOC_SHARED` or ../shared); else the test is skipped."""
    folder = Path(os.environ.get("OOMDOC_SHARED") or ROOT.parent / "shared") / "data"
    if not folder.is_dir():
        pytest.skip("the evaluation data is not beside this checkout")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests never write into a person's own state or catalogue, and share one index."""
    os.environ.setdefault("OOMDOC_STATE", str(ROOT / ".state"))
    os.environ["OOMDOC_HOME"] = str(tmp_path_factory.mktemp("home"))
    os.environ.pop("OOMDOC_CASES", None)
    # Servers inside a test compute in threads; those that are tested as processes have processes of their own.
    os.environ["OOMDOC_DIAGNOSING_PROCESSES"] = "0"
