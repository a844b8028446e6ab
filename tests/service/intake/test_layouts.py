"""Tensor against pipeline parallelism, and machines that divide cards."""

import pytest

import oomdoc
from oomdoc.intake import read_text
from oomdoc.intake.asked import asked_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Two RTX 4090s, vLLM, Qwen2.5-14B. Is tensor parallel or pipeline parallel better?", ["TP 2", "PP 2"]),
        ("vLLM Qwen2.5-32B on 4x A100 80GB: PP=4 vs TP=4, which needs less memory?", ["PP 4", "TP 4"]),
        ("2 张 4090 部署 Qwen2.5-14B，用张量并行还是流水线并行省显存？", ["TP 2", "PP 2"]),
        ("Is tensor parallelism or pipeline parallelism better for a 14B?", []),  # over how many cards nobody says
        ("Megatron TP 8 and PP 2 on 16 H100, does a 70B fit?", []),
    ],
)
def test_two_ways_to_spread_a_model(text: str, names: list[str]) -> None:
    assert [side.name for side in asked_of(read_text(text)).alternatives] == names


def test_both_are_priced_on_the_cards_that_are_there() -> None:
    found = oomdoc.diagnose("vLLM Qwen2.5-14B on two 4090: TP=2 vs PP=2, which takes less memory?").diagnosis
    jobs = [side.priced.job for side in found.sides if side.priced is not None]
    assert [(job.tp, job.pp, job.gpus) for job in jobs] == [(2, 1, 2), (1, 2, 2)]


@pytest.mark.parametrize(
    ("text", "machines"),
    [
        ("Llama 3 70B full finetune ZeRO-3 on 2 nodes x 8 H100 80GB, OOM in step 1", (8, 2)),
        ("4 台机器每台 4 张 A100 80G，Qwen2.5-32B 全参 zero3 爆显存", (4, 4)),
        ("ZeRO-3 on 16 H100s, OOM in step 1 with a 70B", (16, None)),
    ],
)
def test_cards_of_several_machines_are_those_of_each(text: str, machines: tuple[int, int | None]) -> None:
    job = oomdoc.diagnose(text).diagnosis.job
    assert (job.gpus, job.nodes) == machines


def test_one_replica_divides_no_optimizer_states() -> None:
    text = """Llama 3 70B, Megatron-LM, 2 nodes x 8 H100 80GB
--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --use-distributed-optimizer --bf16 --micro-batch-size 1
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 3 has a total capacity of 79.11 GiB of which 211.06 MiB is free."""
    said = oomdoc.diagnose(text).text()
    assert "takes all 16 GPUs for one replica" in " ".join(said.split())
