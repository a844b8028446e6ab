"""``defaults:`` lists are followed within the files at hand, as Hydra puts configurations together."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.intake.configs import read_documents, to_job
from oomdoc.intake.configs.hydra import files_named, included
from oomdoc.intake.configs.named import _from_classes
from oomkb.pricing import price

BASE = (
    "num_layers: 12 # of each\nhidden_size: 768\nffn_hidden_size: 3072\nnum_attention_heads: 12\nactivation: 'gelu'\n"
)
PAIR = (
    "defaults:\n  - .@model.encoder: base_config\n  - .@model.decoder: base_config\n\n"
    "name: pair\ntrainer:\n  devices: 8\n  num_nodes: 1\n  precision: bf16\nexp_manager:\n  exp_dir: null\n"
    "model:\n  micro_batch_size: 4\n  tensor_model_parallel_size: 2\n  seq_length: 512\n  megatron_amp_O2: True\n"
)


def facts(source, *others):
    return {f.name: f for f in read_documents(source, others).facts}


def test_an_encoder_and_a_decoder_are_taken_in():
    found = facts(Source("conf/pair.yaml", PAIR), Source("conf/base_config.yaml", BASE))
    assert found["micro_batch"].value == 4
    config = found["model_config"].value
    assert (config["model_type"], config["num_layers"], config["num_decoder_layers"]) == ("t5", 12, 12)
    assert config["d_model"] == 768
    span = found["model_config"].span
    assert (span.source, span.line) == ("conf/base_config.yaml", 2)
    assert span.text.startswith("hidden_size: 768")


def test_a_pair_is_priced_by_its_sizes():
    """T5-base: 12 + 12 layers of width 768 are some 220 million parameters (Raffel et al. 2020, table of models)."""
    reading = read_documents(Source("conf/pair.yaml", PAIR), [Source("conf/base_config.yaml", BASE)])
    priced = price(to_job({f.name: f for f in reading.facts}, reading.framework, reading.versions))
    assert priced.shape.params == pytest.approx(220e6, rel=0.2)


def test_without_the_file_nothing_is_made_up():
    assert "model_config" not in facts(Source("conf/pair.yaml", PAIR))


@pytest.mark.parametrize(
    ("item", "name", "package"),
    [
        ("- optimizer: adam", "conf/optimizer/adam.yaml", "optimizer"),
        ("- optimizer/adam", "conf/optimizer/adam.yaml", "optimizer"),
        ("- optimizer@actor.optim: adam", "conf/optimizer/adam.yaml", "actor.optim"),
        ("- optional optimizer: adam", "conf/optimizer/adam.yaml", "optimizer"),
        ("- override /optimizer: adam", "conf/optimizer/adam.yaml", "optimizer"),
        ("- /optimizer@_global_: adam  # at the top", "conf/optimizer/adam.yaml", ""),
        ("- optimizer: 'adam'", "conf/optimizer/adam.yaml", "optimizer"),
        ("- adam", "conf/adam.yaml", ""),
        ("- .@x: adam", "conf/adam.yaml", "x"),
    ],
)
def test_where_keys_go(item, name, package):
    main = Source("conf/main.yaml", f"defaults:\n  - _self_\n  {item}\na: 1\n")
    found = included(main, [Source(name, "lr: 1\n"), Source("conf/other.yaml", "b: 1\n")])
    assert [(one.source.name, one.package) for one in found] == [(name, package)]


def test_a_header_tells_the_package():
    main = Source("main.yaml", "defaults:\n  - optimizer: adam\n")
    found = included(main, [Source("optimizer/adam.yaml", "# @package _global_\nlr: 1\n")])
    assert [one.package for one in found] == [""]


def test_own_keys_win_and_levels_are_followed():
    main = Source(
        "c/main.yaml", "defaults:\n  - model@model: small\n\nmodel:\n  path: Qwen/Qwen2.5-7B\ntrainer:\n  n: 1\n"
    )
    small = Source("c/model/small.yaml", "defaults:\n  - ../lora@lora: r8\npath: Qwen/Qwen2.5-0.5B\n")
    again = Source("c/loop.yaml", "defaults:\n  - loop\n  - main\n")
    assert [one.source.name for one in included(main, [small, again])] == ["c/model/small.yaml"]
    assert facts(main, small, again).get("model") is None or facts(main, small)["model"].value == "Qwen/Qwen2.5-7B"
    assert len(included(again, [main, small, again])) <= 40


def test_what_is_taken_in_speaks_through_its_file_only():
    evidence = read([Source("conf/pair.yaml", PAIR), Source("conf/base_config.yaml", BASE)])
    assert "model_config" in evidence.facts
    assert {d.source for d in evidence.documents} == {"conf/pair.yaml"}
    alone = read([Source("conf/base_config.yaml", BASE)])
    assert alone.facts.keys() != evidence.facts.keys()


def test_files_on_disk(tmp_path: Path):
    (tmp_path / "optim").mkdir()
    (tmp_path / "optim" / "adam.yaml").write_text("defaults:\n  - base\nlr: 1\n")
    (tmp_path / "optim" / "base.yaml").write_text("lr: 2\n")
    (tmp_path / "main.yaml").write_text("defaults:\n  - optim: adam\n  - missing: x\n  - ../../etc: passwd\n")
    assert [p.name for p in files_named(tmp_path / "main.yaml")] == ["adam.yaml", "base.yaml"]


@pytest.mark.parametrize(
    ("code", "model"),
    [
        ("llm.LlamaModel(llm.Llama31Config70B())", "meta-llama/Llama-3.1-70B"),
        ("config: Qwen3Config30B_A3B", "Qwen/Qwen3-30B-A3B"),
        ("llm.MixtralConfig8x7B()", "mistralai/Mixtral-8x7B-v0.1"),
        ("llm.qwen25_7b.pretrain_recipe(num_nodes=1)", "Qwen/Qwen2.5-7B"),
        ("recipes.llama3_70b_16k", "meta-llama/Meta-Llama-3-70B"),
        ("llm.qwen2_1p5b", "Qwen/Qwen2-1.5B"),
        ("llm.Nemotron4Config15B()", 15.0),
        ("TrainingArguments()", None),
        ("LoraConfig(r=8)", None),
    ],
)
def test_models_named_by_a_class(code, model):
    found = next(_from_classes(code), None)
    assert (found[1] if found else None) == model
