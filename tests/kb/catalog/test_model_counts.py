"""Parameter counts against the modules that transformers builds (``bench/count_params.py`` does all of them)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomkb.catalog import models

ROWS = Path(__file__).parent / "data/published_counts.jsonl"
PUBLISHED = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
"""Totals that the hub's safetensors metadata, a framework's presets or a training log state."""
UNUSED = {"google/gemma-4-E2B-it": 0.005, "google/gemma-4-E4B-it": 0.008}
"""Files that hold keys and values of layers which use those of another: no module has them."""

FORMULAS = [
    e
    for e in models.all_models()
    if e.config["model_type"] in {"qwen", "chatglm", "internlm2", "baichuan", "minicpm", "exaone", "mimo"}
]


@pytest.mark.parametrize("entry", [e for e in FORMULAS if "visual" not in e.config], ids=lambda e: e.name)
def test_counts_by_formula(entry):
    from bench.count_params import count_config

    assert count_config(entry.config) == pytest.approx(entry.params, rel=1e-3)


@pytest.mark.slow
def test_counts_by_building_every_model():
    pytest.importorskip("transformers")
    from bench.count_params import TOLERANCE, count_config, unchecked

    wrong = []
    for entry in models.all_models():
        if unchecked(entry) is None and abs(count_config(entry.config) - entry.params) > TOLERANCE * entry.params:
            wrong.append(entry.name)
    assert wrong == []


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["name"])
def test_counts_against_published_ones(row):
    entry = models.find(row["name"])
    assert entry is not None
    assert entry.name == row["name"]
    assert entry.params == pytest.approx(row["params"], rel=UNUSED.get(row["name"], 1e-3))
    assert "counted " not in entry.source
