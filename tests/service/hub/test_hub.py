"""A model's configuration from a hub: kept for good, and every refusal names the next step."""

from __future__ import annotations

import httpx
import pytest

from oomdoc.hub import add_from_hub
from oomkb.catalog import models
from oomkb.errors import CatalogError

CONFIG = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}


def client(status: int = 200, **content: object) -> httpx.Client:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/lab/tiny-quux/resolve/main/config.json"
        return httpx.Response(status, **content)  # type: ignore[arg-type]

    return httpx.Client(transport=httpx.MockTransport(answer))


def test_a_config_is_kept() -> None:
    assert add_from_hub("lab/tiny-quux", client=client(json=CONFIG)).name == "lab/tiny-quux"
    found = models.find("lab/tiny-quux")
    assert found is not None
    assert found.config["hidden_size"] == 64


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (client(404), "does not give"),
        (client(content=b"<html>"), "not JSON"),
        (client(content=b"[" + b"1," * 600_000 + b"1]"), "larger than"),
        (client(json=[1, 2]), "no JSON object"),
    ],
)
def test_refusals(given: httpx.Client, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        add_from_hub("lab/tiny-quux", client=given)


@pytest.mark.parametrize("name", ["", "no-owner", "../../etc/passwd", "a/b/c", "https://x/y"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(CatalogError, match="no hub id"):
        add_from_hub(name)
