"""A service with its bots, cut off from the network: every call out goes to a fake platform that checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from oomdoc.api.app import create_app
from oomdoc.api.routes import integrations
from oomdoc.bots import bot
from oomdoc.settings import Settings

LOG = (
    "Training Qwen2.5-7B with LoRA on 8 x V100 16GB, per_device_train_batch_size: 4, cutoff_len: 4096\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. "
    "GPU 0 has a total capacity of 15.77 GiB of which 1.00 GiB is free."
)
Handler = Callable[[httpx.Request], httpx.Response]
Service = Callable[..., TestClient]


@pytest.fixture(scope="session")
def log() -> str:
    """A report that is diagnosed."""
    return LOG


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Have a turn answered in these pieces, as with a language model; the settings that go with it."""

    def answered(*pieces: str | Exception, often: bool = True) -> dict[str, Any]:
        def turn(*_args: Any, **_more: Any) -> Iterator[str | dict[str, Any]]:
            for piece in pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
            yield {"answer": "".join(map(str, pieces)).strip()}

        monkeypatch.setattr(integrations, "answering", turn)
        monkeypatch.setattr(bot, "_REVISED_EVERY_S", 0.0 if often else float("inf"))
        return {"llm_url": "http://127.0.0.1:9/v1"}

    return answered


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Make a service: ``service(handler, **settings)``; all replicas of a test share one store."""
    opened = []

    def make(handler: Handler, **settings: Any) -> TestClient:
        app = create_app(Settings(database_url=f"sqlite:///{tmp_path}/oomdoc.db", **settings))
        app.state.bot_transport = httpx.MockTransport(handler)
        opened.append(app)
        return TestClient(app)

    yield make
    for app in opened:
        app.state.work.close()
