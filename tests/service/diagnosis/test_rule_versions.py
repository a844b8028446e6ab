"""What people write when a version is at fault, and what only looks like it."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.rules import RULES
from oomdoc.intake import read_text

RULE = next(rule for rule in RULES if rule.CAUSE == "version-regression")


def signs(text: str) -> set[str]:
    view = view_of(read_text(text))[0]
    return {r.message.key.rpartition(".")[2] for r in RULE.weigh(view) if r.log_odds > 0}


@pytest.mark.parametrize(
    ("sign", "text"),
    [
        ("since-update", "OOM on every start since I upgraded the webui this morning"),
        ("since-update", "After updating axolotl my old job runs out of memory"),
        ("since-update", "The latest torchtune release makes the same recipe need 10 GB more and OOM"),
        ("commit-named", "CUDA OOM with 4be17aa, the build from last night; older ones are good"),
        ("commit-named", "out of memory since b3201 of the server, loading the model"),
        ("commit-named", "The parent commit loads this model, HEAD goes out of memory"),
        ("commit-named", "Build A: driver 550, loads. Build B: driver 560, out of memory"),
        ("reverted", "OOM in the first step. Downgrading peft solved it."),
        ("reverted", "fixed by `git checkout` of the tag before; with main it is out of memory"),
        ("reverted", "新版本显存不足，回退一个版本就恢复了"),
        ("before-after", "Three days ago this notebook stopped working: CUDA out of memory, I did nothing"),
        ("before-after", "I have been using this workflow for a year, now it is OOM"),
        ("unchanged", "OOM now. The same script was running last spring, everything else is the same"),
        ("unchanged", "现在爆显存，同样的配置以前可以跑"),
        ("takes-more", "FSDP2 needs much more memory per GPU than FSDP1 for this LoRA"),
        ("takes-more", "Any version >= 0.9.2 needs twice the VRAM for the same model"),
        ("comparison", "vLLM 0.9.0 OOMs where 0.8.5 did not"),
        ("comparison", "driver 535 works, with 550 I get out of memory"),
        ("comparison", "accelerate 0.30 uses 10GB more per GPU than 0.29, OOM"),
        ("comparison", "It only happens on main, the release branch is fine; OOM"),
        ("reverted", "Pinning torch==2.3.1 makes the OOM go away"),
        ("reverted", "换回 0.3.2 版本就不 OOM 了"),
        ("since-update", "After bumping transformers my training dies with CUDA OOM"),
        ("since-update", "git pull 之后就 OOM 了"),
        ("before-after", "同样的脚本上个月还能跑，现在 OOM"),
        ("takes-more", "Memory usage doubled in the new version, OOM"),
        ("comparison", "Out of memory with flash-attn 2.7.1, runs fine with flash-attn 2.6.3"),
        ("comparison", "I could serve 16K tokens with 0.5.4, now with 0.6.1 it is OOM at 4K"),
        ("comparison", "升级后爆显存：框架3.5.0占用相比框架3.4.1多了一倍"),
        ("comparison", "When I use peft 0.12.0, OOM at the first step"),
        ("comparison", "GPU memory grows until OOM. This does not happen with the server at v0.4.2"),
        ("comparison", "Higher VRAM use since v1.3.0, out of memory with two adapters"),
        ("comparison", "CUDA OOM in 0.7.2.post1 but 0.7.1 is working"),
        ("commit-named", "I am out of memory when I update to 3fa9c21, nothing else changed"),
        ("commit-named", "1b2c3d4 version fits my card, HEAD is OOM"),
        ("bisected", "This commit is causing CUDA OOM when the model is sharded"),
        ("before-after", "OOM on main. I can train the same model with a previous trl version without any problem"),
        ("before-after", "The job ran fine with the old deepspeed, it is out of memory now"),
        ("before-after", "新代码爆显存，之前的版本训练一切正常"),
        ("two", "OOM at step one.\naccelerate 0.31.0 - out of memory\naccelerate 0.30.1 - 14 GB"),
    ],
)
def test_a_version_at_fault_is_heard(sign: str, text: str) -> None:
    assert sign in signs(text)


@pytest.mark.parametrize(
    ("sign", "text"),
    [
        ("since-update", "OOM after the first optimizer update of the training"),
        ("since-update", "It still goes out of memory after upgrading to a larger GPU"),
        ("since-update", "out of memory after updating the weights of the rollout engine"),
        ("commit-named", "We are on main @ 4be17aa, vLLM colocated, OOM in generation"),
        ("reverted", "Should I downgrade something? OOM with an 8 GB card"),
        ("before-after", "Previously, I tried to train on another data set and stopped it. Now out of memory"),
        ("before-after", "之前都可以运行，今天换了个大模型就爆显存"),
        ("unchanged", "OOM, while Qwen with the same command runs without trouble"),
        ("comparison", "Training runs fine, then OOM at 2.5 epochs with batch size 8"),
        ("comparison", "On a p3.2xlarge it ran properly with less data; now OOM"),
        ("comparison", "Converting with a 3.8 TB machine works, on 1.9TB it is killed"),
        ("comparison", "I see similar memory use on other machines, with torch 1.4.0 it runs too and ends OOM"),
        ("update-named", "CUDA OOM even after upgrading to Colab Pro"),
        ("update-named", "helm upgrade --install my-server; the server is OOM"),
        ("comparison", "I lowered it: gpu_memory_utilization 0.95 -> 0.93, OOM"),
        ("before-after", "OOM at the first training step before the forward pass"),
        ("before-after", "The memory goes up until it does not fit any more"),
        ("latest", "CUDA OOM. Browser: Firefox, latest version."),
        ("comparison", "With accelerate=0.30.0 on two cards, fine-tuning a model is OOM"),
        ("comparison", "CUDA out of memory with bakllava:7b-v1.5 when sending a picture"),
        ("comparison", "OOM on Ubuntu 22.04 with every setting"),
        ("comparison", "The OOM goes away when I reduce `gpu_memory_utilization` from 0.95 to 0.85"),
        ("two", "CUDA OOM with transformers 4.44.0, accelerate 0.31.0 and torch 2.4.0"),
        ("two", "Tried trl 0.9.6 and trl 0.10.1, both ... OOM. trl 0.9.6 and trl 0.10.1 both"),
    ],
)
def test_what_only_looks_like_it_is_not(sign: str, text: str) -> None:
    assert sign not in signs(text)
