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
    ],
)
def test_forms(text, name, version):
    assert read_text(text).versions.get(name, "").startswith(version)


def test_the_failing_version_counts():
    text = "With transformers 4.37.2 it runs fine. With transformers 4.38.2 the job dies with CUDA OOM."
    assert read_text(text).versions["transformers"] == "4.38.2"


def test_not_installed_is_no_version():
    assert "tensorflow" not in read_text("- Tensorflow version (GPU?): not installed (NA)").versions
