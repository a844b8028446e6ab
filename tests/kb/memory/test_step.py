"""The price of a step is the same whatever was priced before, and follows what runs keep."""

import os
import subprocess
import sys

import pytest

from oomkb.frameworks import complete
from oomkb.memory.activations import step_of
from oomkb.memory.forms import add
from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.setting import resolve_setting
from oomkb.memory.shape import ModelShape
from oomkb.pricing import price

LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 1408, "vocab_size": 32000,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
JOBS = [
    {"model": LLAMA, "grad_ckpt": True},
    {"model": LLAMA, "method": "lora", "lora": {"r": 8}, "autocast": "bf16"},
    {"model": MIXTRAL, "sharding": "fsdp2", "world": 8, "grad_ckpt": True, "fused_ce": True},
    {"model": LLAMA, "sharding": "zero3", "world": 8, "attention": "eager"},
]


@pytest.mark.parametrize("document", JOBS)
def test_a_price_is_the_same_whatever_was_priced_before(document):
    sizes = [(b, n) for b in (1, 2, 5) for n in (64, 700, 4096)]
    job, shared = Job.from_document(document), ModelShape.from_config(document["model"], name="shared")
    for batch, length in (*sizes, *reversed(sizes)):
        asked = job.with_fields({"micro_batch": batch, "seq_len": length})
        alone = estimate(asked, ModelShape.from_config(document["model"], name=f"{batch} x {length}")).phases
        again = estimate(asked, shared).phases
        assert again.keys() == alone.keys()
        for name in again:
            assert again[name].total_bytes == pytest.approx(alone[name].total_bytes, rel=1e-12)


@pytest.mark.parametrize("document", JOBS)
def test_the_fullest_of_all_instants_is_found(document):
    shape = ModelShape.from_config(document["model"])
    step = step_of(resolve_setting(Job.from_document(document), shape), shape)
    for tokens, length in ((64, 64), (1400, 700), (20480, 4096)):
        for phase, parts in step._played.instants.items():
            found = step._at(phase, tokens, tokens * length)
            for key, instants in parts.items():
                beside = step._further[key[1]].values()
                every = [
                    add(step._own.total(base), step._own.total(form), *beside)
                    for base, forms in instants
                    for form in forms
                ]
                most = max(c + t * tokens + q * tokens * length for c, t, q in every)
                assert found[key][0] == pytest.approx(most, rel=1e-12)


def test_the_same_job_costs_the_same_again():
    job = Job.from_document({**JOBS[0], "micro_batch": 4, "seq_len": 512})
    first = price(job).estimate
    for n in range(6):
        price(job.with_fields({"seq_len": 600 + n}))
    assert price(job).estimate.allocated_bytes == pytest.approx(first.allocated_bytes, rel=1e-12)


def test_terms_come_in_the_same_order_whatever_strings_hash_to():
    code = (
        "from oomkb.memory.job import Job; from oomkb.pricing import price;"
        "e = price(Job.from_document({'model': 'Qwen/Qwen3-30B-A3B', 'grad_ckpt': True})).estimate;"
        "print([(n, list(p.terms_bytes)) for n, p in e.phases.items()])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


SMALL = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
}
PARTITIONED = [
    # AOTAutograd's min-cut partitioner (torch 2.13, inductor's decompositions) over 512 tokens of transformers' models on
    # the CPU, bytes a layer keeps for each token; what only the CPU's attention makes is taken off: keys and values
    # expanded over all heads, and its output a second time.
    ({"model_type": "llama", **SMALL}, "none", 17704 - 2048),
    ({"model_type": "llama", **SMALL}, "bf16", 31272 - 2048),
    ({"model_type": "qwen3", "head_dim": 64, **SMALL}, "none", 19288 - 2048),
    ({"model_type": "qwen3", "head_dim": 64, **SMALL}, "bf16", 32856 - 2048),
    (
        {"model_type": "gpt2", "n_embd": 512, "n_head": 8, "vocab_size": 1024, "attn_pdrop": 0.0, "resid_pdrop": 0.0},
        "none",
        17448 - 1024,
    ),
]


@pytest.mark.parametrize(("config", "autocast", "bytes_each"), PARTITIONED)
def test_what_a_compiled_layer_keeps(config, autocast, bytes_each):
    kept = []
    for layers in (2, 4):
        model = {**config, "n_layer" if config["model_type"] == "gpt2" else "num_hidden_layers": layers}
        precision = {"param_dtype": "bf16" if autocast == "none" else "fp32", "autocast": autocast}
        document = {
            "model": model,
            "method": "full",
            "objective": "pretrain",
            "packing": True,
            "compile": True,
            **precision,
        }
        document |= {"micro_batch": 2, "seq_len": 256, "grad_ckpt": False, "attention": "sdpa", "framework": "pytorch"}
        shape, job = ModelShape.from_config(model), complete(Job.from_document(document))
        constant, linear, square = step_of(resolve_setting(job, shape), shape).saved
        kept.append(constant + 512 * linear + 512 * 256 * square)
    assert (kept[1] - kept[0]) / 2 / 512 == pytest.approx(bytes_each, rel=0.005)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_unsloth_before_chunked_losses_writes_the_gradient_over_whole_logits(kind):
    """``kernels/cross_entropy_loss.py`` up to 2024.11.7: 16-bit logits, scaled and capped where they are read."""
    model = {**LLAMA, "model_type": kind, "vocab_size": 128000, "final_logit_softcapping": 30.0}
    job = {"model": model, "framework": "unsloth"}
    job |= {"method": "lora", "lora": {"r": 8}, "param_dtype": "bf16", "autocast": "bf16", "grad_ckpt": True}
    job |= {"micro_batch": 2, "seq_len": 2048, "packing": True}
    old, new = (
        price(complete(Job.from_document({**job, "versions": {"unsloth": said}}))).estimate
        for said in ("2024.7", "2025.6")
    )
    logits = 2 * 2048 * 128000 * 2
    assert (old.allocated_bytes - new.allocated_bytes) / logits == pytest.approx(1.0, abs=0.5)


@pytest.mark.parametrize(("version", "share"), [("2025.6", 0.0), ("2025.8.9", 0.25), ("2025.9.1", 1.0)])
def test_a_chunk_of_unsloths_loss_is_as_large_as_its_target_allows(version, share):
    """3.9 GiB of fp32 logits: by fours from 1 GiB in August 2025, one chunk from half of the free memory since."""
    job = {"model": {**LLAMA, "vocab_size": 128000}, "framework": "unsloth", "method": "lora", "lora": {"r": 8}}
    job |= {"param_dtype": "bf16", "autocast": "bf16", "grad_ckpt": True, "micro_batch": 4, "seq_len": 2048}
    priced = price(complete(Job.from_document({**job, "packing": True, "versions": {"unsloth": version}})))
    logits = 8192 * 128000 * 2
    said = priced.estimate.phases["loss"].terms_bytes["logits and loss"]
    assert said == pytest.approx(share * 2 * logits, abs=2**27)
