"""What people write when a setting does nothing, and what only looks like it."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.rules import RULES
from oomdoc.intake import read_text

RULE = next(rule for rule in RULES if rule.CAUSE == "inactive-setting")
SMI = "| {0} RTX 4090 | {1}MiB / 24564MiB | 0% Default |\n"


def signs(text: str) -> set[str]:
    view = view_of(read_text(text))[0]
    return {r.message.key.rpartition(".")[2] for r in RULE.weigh(view) if r.log_odds > 0}


@pytest.mark.parametrize(
    ("sign", "text"),
    [
        ("option-named", "--swap-space-limit seems to have no effect, the card fills and it is OOM"),
        ("option-named", "The loader is ignoring load_in_8bit: CUDA OOM"),
        ("option-named", "gradient checkpointing does not work with this model, out of memory as before"),
        ("option-named", "设置了 offload_param 但是不生效，显存还是爆了"),
        ("takes-more", "The int8 model needs more VRAM than the bf16 one and goes OOM"),
        ("takes-more", "4bit 量化之后显存反而更高，直接 OOM"),
        ("wrong-card", "I set device cuda:2, but it still allocates on cuda:0 and is OOM"),
        ("wrong-card", "All replicas are placed on GPU 0 until it is out of memory"),
        ("one-gpu", "四张卡，只有一张卡在工作，其余都是空的，然后 OOM"),
        ("one-gpu", "两卡训练，第一张卡直接爆显存，另一张显存占用很低"),
        ("one-gpu", "Out of memory, while two of the cards are idle"),
        ("said", "LoRA 开不开，显存占用都没有变化，都是 OOM"),
        ("option-named", "--offload has no influence on GPU memory: OOM"),
        ("option-named", "zero3 is never activated here, OOM"),
        ("said", "I forgot to pass the config, so it was plain DDP: OOM"),
        ("said", "vram usage with the flag is the same as without it, OOM"),
        ("one-gpu", "device_map puts everything on the first GPU and it is out of memory"),
        ("one-gpu", "多卡训练只用到了第 0 张卡，OOM"),
        ("card-of-many", "out of memory:\n" + SMI.format(0, 24100) + SMI.format(1, 8)),
    ],
)
def test_a_setting_without_effect_is_heard(sign: str, text: str) -> None:
    assert sign in signs(text)


@pytest.mark.parametrize(
    ("sign", "text"),
    [
        ("said", "--exp-name=x --overwrite\nOOM at start"),
        ("said", "host memory grows and does not decrease after the request, then killed"),
        ("said", "内存一直上涨，显存没有变化，最后被杀"),
        ("said", "OOM when the cache is not used"),
        ("still-same", "I use the large data set, but training is out of memory"),
        ("still-same", "The batch size is set to 1, still CUDA OOM"),
        ("takes-more", "Full fine-tuning needs more memory than int8 with adapters; OOM"),
        ("wrong-card", "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity)"),
        ("one-gpu", "There is only one process on the GPU, and it is out of memory"),
        ("one-gpu", "I offload all layers to the gpu, OOM"),
        ("card-of-many", "out of memory:\n" + SMI.format(0, 24100) + SMI.format(1, 23900)),
    ],
)
def test_what_only_looks_like_it_is_not(sign: str, text: str) -> None:
    assert sign not in signs(text)


PLAIN = "8x A100 40GB, full fine-tuning of Llama-2-7B with AdamW in fp32, batch size 1, started as {0} finetune_train.py cfg.yaml: CUDA out of memory"


def test_a_trainer_started_as_one_process_on_a_machine_of_many_cards() -> None:
    assert "plain-start" in signs(PLAIN.format("python"))
    assert "plain-start" not in signs(PLAIN.format("torchrun --nproc_per_node 8"))


def test_one_process_of_a_job_that_fits_shards_nothing_that_matters() -> None:
    command = "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 1 train_lora.py --deepspeed ds_z2.json --q_lora True"
    small = f"QLoRA of Llama-2-7B, 4-bit, LoRA r=8, 2x V100 32GB, OOM\n```\n{command} --lora_r 8\n```"
    assert "one-process" not in signs(small)
