"""The shipped catalogues are sound, and the lint sees each kind of fault."""

from __future__ import annotations

import dataclasses

import pytest
from bench.lint_catalog import lint_catalog, lint_devices, lint_models, unverified

from oomkb.catalog import gpu_data, model_data
from oomkb.units import GIB


def test_the_shipped_catalogues_are_sound():
    assert [str(p) for p in lint_catalog()] == []


def test_the_unverified_are_counted_and_grow_no_more():
    left = unverified()
    assert len(left.devices) <= 47, str(left)
    assert len(left.models) <= 35, str(left)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": ""}, "no source"),
        ({"capacity_bytes": 500 * GIB}, "above the size on the box"),
        ({"capacity_bytes": GIB}, "less than half"),
        ({"compute_capability": None}, "no compute capability"),
        ({"tflops": {"fp99": 1.0}}, "rate fp99"),
        ({"name": "Nothing At All"}, "its own name finds nothing"),
    ],
)
def test_device_faults(changes, said):
    entry = next(e for e in gpu_data.entries() if e.device.name == "RTX 4090")
    wrong = dataclasses.replace(entry, device=dataclasses.replace(entry.device, **changes))
    assert any(said in p.message for p in lint_devices((wrong,)))


def test_a_name_twice():
    entry = gpu_data.entries()[0]
    messages = [p.message for p in lint_devices((entry, entry))]
    assert any("stands twice" in m for m in messages)
    assert any("written like" in m for m in messages)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": "somewhere"}, "no source"),
        ({"source": "https://huggingface.co/somebody"}, "the page of somebody"),
        ({"params": None}, "no parameter count"),
        ({"params": 70_000_000_000}, "but called 7b"),
        ({"config": {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 5}}, "cannot share"),
        ({"config": {"model_type": "x", "num_attention_heads": 7, "hidden_size": 64}}, "head_dim is not given"),
        ({"config": {"model_type": "x", "num_hidden_layers": 4, "layer_types": ["a"]}}, "1 layer types for 4 layers"),
        ({"config": {"hidden_size": 4}}, "no model_type"),
    ],
)
def test_model_faults(changes, said):
    family = next(f for f in model_data.families() if f.file == "llama.json")
    wrong = dataclasses.replace(family.models[0], **changes)
    assert any(said in p.message for p in lint_models((dataclasses.replace(family, models=(wrong,)),)))


def test_an_alias_twice():
    family = model_data.families()[0]
    twin = dataclasses.replace(family.models[0], name="other/twin-1b")
    found = lint_models((dataclasses.replace(family, models=(family.models[0], twin)),))
    assert any("also finds" in p.message for p in found)
