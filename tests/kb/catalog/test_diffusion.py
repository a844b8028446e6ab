"""Pipelines that make images or video: found by the names that people and files write."""

from __future__ import annotations

import pytest

from oomkb.catalog.diffusion import pipeline


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Flux", "FLUX.1"),
        ("sd_xl", "SDXL"),
        ("SDXL", "SDXL"),
        ("sd 1.5", "Stable Diffusion 1.5"),
    ],
)
def test_pipelines_are_found_by_name(name: str, found: str) -> None:
    one = pipeline(name)
    assert one is not None
    assert one.name == found
    assert one.denoiser > one.encoders > 0


def test_other_names_are_none() -> None:
    assert pipeline("Qwen2.5-7B") is None


def test_a_name_of_several_sizes_is_none() -> None:
    assert pipeline("wan2.2") is None
