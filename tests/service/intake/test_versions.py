"""Library versions in the forms in which people list them."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("transformers==4.57.1", "transformers", "4.57.1"),
        ("torch                     2.6.0+cu124", "torch", "2.6.0+cu124"),
        ("- PyTorch version: 2.6.0", "torch", "2.6.0"),
        ("- PyTorch version (GPU?): 2.0.1+cu117 (True)", "torch", "2.0.1+cu117"),
        ("- `transformers` version: 4.30.0.dev0", "transformers", "4.30.0.dev0"),
        ("Torch 2.5.1, Torchtune 0.4.0", "torchtune", "0.4.0"),
        ("环境：llamafactory 0.9.2, DeepSpeed 0.16.7", "deepspeed", "0.16.7"),
        ("image quay.io/ascend/vllm-ascend:v0.12.0rc1-openeuler", "vllm-ascend", "0.12.0rc1"),
        ("flash_attn=2.5.8 via conda", "flash-attn", "2.5.8"),
        ("I use vLLM v0.8.4", "vllm", "0.8.4"),
        ("用vllm0.8.4部署", "vllm", "0.8.4"),
    ],
)
def test_forms(text, name, version):
    assert read_text(text).versions.get(name, "").startswith(version)


def test_the_failing_version_counts():
    text = "With transformers 4.37.2 it runs fine. With transformers 4.38.2 the job dies with CUDA OOM."
    assert read_text(text).versions["transformers"] == "4.38.2"


def test_not_installed_is_no_version():
    assert "tensorflow" not in read_text("- Tensorflow version (GPU?): not installed (NA)").versions


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("OOM with vllm 0.6.2. Please upgrade to vllm 0.6.3, it is fixed there.", {"vllm": "0.6.2"}),
        ("Try upgrading to transformers 4.45.1", {}),
        ("It is fixed in transformers 4.45", {}),
        ("this needs flash-attn>=2.3.0", {}),
        ("建议升级到 vllm 0.6.3", {}),
        ("Installing deepspeed==0.14.0 solves it", {}),
        ("降级到 vllm==0.5.4 就好了", {}),
        ("downgrading to torch 2.2 fixes the problem (I'm on torch 2.3.0)", {"torch": "2.3.0"}),
        ("The release notes of vllm 0.7.0 mention lower memory. We run vllm 0.6.4.", {"vllm": "0.6.4"}),
    ],
)
def test_what_one_should_have_is_not_what_there_was(text, versions):
    assert dict(read_text(text).versions) == versions


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("after upgrading to transformers 4.46.0 it OOMs", {"transformers": "4.46.0"}),
        ("升级 transformers==4.46.0 之后 OOM", {"transformers": "4.46.0"}),
        ("upgraded from torch 2.3.0 to torch 2.4.0 and now OOM", {"torch": "2.4.0"}),
        ("vllm takes more system memory after upgrading to v0.9.0.1", {"vllm": "0.9.0.1"}),
        ("Unsloth uses more VRAM after updating to 2025.10.1 from 2025.5.8", {"unsloth": "2025.10.1"}),
        ("llama factory 升级到 0.9.3 之后 OOM", {"llamafactory": "0.9.3"}),
        ("vllm OOM, CUDA upgraded to 12.4.1", {}),
    ],
)
def test_what_one_came_to_counts_also_without_a_name(text, versions):
    assert dict(read_text(text).versions) == versions


def test_the_engine_s_own_banner_is_surest():
    text = "with the vLLM 0.17.1 runner:\nINFO [core.py:101] Initializing a V1 LLM engine (v0.17.2.dev0+g95c) with config: model='x'"
    assert read_text(text).versions["vllm"] == "0.17.2.dev0+g95c"


def test_misspelt_names():
    assert read_text("With verion of transfomers == 4.53.0 it OOMs").versions == {"transformers": "4.53.0"}
    assert read_text("deep speed 0.14.0 OOM").versions == {"deepspeed": "0.14.0"}
