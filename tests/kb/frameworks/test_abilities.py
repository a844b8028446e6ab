"""What frameworks can be told, from their records."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.fixes._remedy import feature_of
from oomkb.frameworks import FRAMEWORKS, has, line
from oomkb.frameworks.declared import records
from oomkb.memory.job import Job


@pytest.mark.parametrize(
    ("framework", "feature", "versions", "expected"),
    [
        ("transformers", "fsdp", {}, True),
        ("fsdp", "fsdp.offload", {}, True),
        ("trl", "lora", {}, True),
        ("trl", "fused_ce.rl", {"trl": "0.15"}, False),
        ("trl", "fused_ce.rl", {"trl": "0.17"}, True),
        ("transformers", "grad_ckpt.offload", {"transformers": "5.0"}, False),
        ("transformers", "grad_ckpt.offload", {"transformers": "5.23.0"}, True),
        ("transformers", "grad_ckpt.offload", {}, False),  # of a release later than those that are listed
        ("transformers", "fused_ce", {}, True),
        (None, "grad_ckpt.offload", {}, False),
        (None, "packing", {}, True),
        ("open-r1", "precompute_ref", {}, True),
        ("nemo-rl", "sp.megatron", {}, True),
        ("llama-factory", "fused_ce", {"llamafactory": "0.8.3"}, False),
        ("vllm", "lora", {}, False),
        ("colossalai", "zero.gemini", {}, True),
        ("nothing-known", "zero", {}, True),
    ],
)
def test_a_feature_is_there_from_its_version_on(framework, feature, versions, expected):
    assert has(framework, feature, versions) is expected


def test_an_engine_that_no_record_describes_can_what_engines_can():
    assert has("some-server", "serving.tp", {}, serving=True)
    assert not has("some-server", "lora", {}, serving=True)


def test_a_line_is_that_of_the_record_or_of_its_base():
    assert line("open-r1", "packing") == line("trl", "packing")
    assert line("trl", "packing") is not None
    assert line("llava", "packing") is None
    assert line(None, "packing") is None


def _sources(folder):
    """Code, and the tables that it interprets beside the records themselves."""
    tables = (p for p in folder.rglob("*.toml") if p.parent.name != "records")
    return "".join(p.read_text("utf-8") for p in (*folder.rglob("*.py"), *tables))


def test_every_line_is_one_that_something_asks_for(root):
    asked = _sources(root / "service/oomdoc/diagnosis")
    for record in records():
        for name in record.lines:
            assert f'"{name.removeprefix("pipeline-")}"' in asked, f"{record.name}: {name}"
    assert {record.name for record in records()} == {framework.name for framework in FRAMEWORKS}


def test_every_feature_is_one_that_something_asks_for(root):
    asked = _sources(root / "service") + _sources(root / "kb")
    # Asked for as ``feature_of`` spells them.
    composed = {f"{name}.{kind}" for name in ("fused_ce", "offload.activations") for kind in ("preference", "rl")}
    names = {record.name for record in records()} - {"fsdp"}
    for record in records():
        for word in {w.partition("@")[0] for w in record.features.split()} - names - composed:
            assert f'"{word}"' in asked, f"{record.name}: {word}"


def test_a_feature_may_depend_on_the_objective():
    grpo, dpo, sft = (Job(framework="trl", objective=name) for name in ("grpo", "dpo", "sft"))
    assert [feature_of("padding_free", job) for job in (grpo, dpo, sft)] == [
        "padding_free.rl",
        "padding_free.preference",
        "padding_free",
    ]
    assert has("trl", "padding_free")
    assert not has("trl", "padding_free.rl")
    assert has("verl", "padding_free.rl")
