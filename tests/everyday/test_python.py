"""``oomdoc.estimate`` returns a small object with numbers."""

from __future__ import annotations

import oomdoc


def test_the_readme_example() -> None:
    found = oomdoc.estimate(model="Qwen/Qwen2.5-7B", method="lora", seq_len=4096, gpu="RTX 4090")
    assert isinstance(found.peak_gib, float)
    assert 15 < found.needed_gib <= found.peak_gib < 30
    assert found.fits in (True, False)
    low, high = found.interval
    assert low < found.peak_gib <= high
    assert found.by_phase[found.peak_phase]["weights"] > 10
    assert found.document()["peak_gib"]["process"] == found.peak_gib
    assert len(repr(found)) < 80


def test_repr_of_a_report_is_short() -> None:
    assert len(repr(oomdoc.diagnose("Will Qwen3-8B QLoRA fit on one RTX 4090?"))) < 80


def test_a_figure_is_drawn() -> None:
    figure = oomdoc.estimate(model="Qwen/Qwen2.5-0.5B").plot()
    assert figure.axes


def test_a_failed_run_keeps_the_defaults_of_its_framework() -> None:
    text = (
        "trl SFTTrainer of Qwen/Qwen2.5-0.5B on a T4, nothing else set.\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB."
    )
    assert oomdoc.diagnose(text).document()["estimate"]["assumed"]["micro_batch"]["value"] == 8


def test_a_framework_that_is_named_keeps_its_defaults() -> None:
    found = oomdoc.estimate(model="Qwen/Qwen2.5-0.5B", framework="transformers")
    assert found.assumed["micro_batch"] == 8
    assert oomdoc.estimate(model="Qwen/Qwen2.5-0.5B").assumed["micro_batch"] == 1
