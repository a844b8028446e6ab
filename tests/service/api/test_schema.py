"""No request that the OpenAPI document allows, and none near it, makes the service fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

schemathesis = pytest.importorskip("schemathesis")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schema")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_server_error(folder: Path) -> None:
    from oomdoc.api.app import create_app
    from oomdoc.settings import Settings

    app = create_app(Settings(database_url=f"sqlite:///{folder}/x.db", rate_per_minute=1_000_000))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    seen = set()
    for result in schema.get_all_operations():
        seen.add(_checked(result.ok()))
    assert {"/v1/diagnose", "/v1/estimate", "/v1/plan", "/v1/search", "/v1/chat"} <= seen


def _checked(operation: Any) -> str:
    @settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def send(data: st.DataObject) -> None:
        answer = data.draw(operation.as_strategy()).call()
        told = f"{operation.method} {operation.path}: {answer.status_code} {answer.text[:300]}"
        assert answer.status_code < 500 or (answer.status_code, operation.path) == (503, "/readyz"), told

    send()
    return str(operation.path)
