"""Parameter counts against the modules that transformers builds (``bench/count_params.py`` does all of them)."""

from __future__ import annotations

import pytest

from oomkb.catalog import models

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
