"""What a turn spells out is taken as it stands, whatever is around it; what no run can have is refused."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.chat.context import Context
from oomdoc.chat.conversation import respond
from oomdoc.chat.grammar import understand
from oomdoc.chat.session import Reply, Session
from oomdoc.intake.configs import TABLES
from oomdoc.intake.configs.table import Table
from oomkb.memory.job import Job

TRAINED = "lora of Qwen/Qwen2.5-7B with llamafactory on 2 A100 80GB, 4096 tokens, batch 2, gradient checkpointing on"
SERVED = "vllm serve Qwen/Qwen2.5-32B-Instruct --tensor-parallel-size 2 --max-model-len 32768 on two A6000"
POLICY = "verl GRPO of Qwen/Qwen2.5-7B-Instruct on 8 H100, rollout gpu_memory_utilization 0.5"


def talk(*turns: str) -> tuple[Session, Reply]:
    session = Session()
    for turn in turns:
        session, reply = respond(session, turn)
    return session, reply


def fields(session: Session, names: dict[str, Any]) -> dict[str, Any]:
    found = {name: session.job.get(name) for name in names}
    return {n: list(v) if isinstance(v, tuple) else v for n, v in found.items()}


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ("model=Qwen/Qwen2.5-7B method=full gpu=4090", {"model": "Qwen/Qwen2.5-7B", "method": "full", "gpu": "4090"}),
        ("gpu=3090 gpus=2 model=Qwen/Qwen3-8B method=lora", {"gpu": "3090", "gpus": 2, "method": "lora"}),
        ("oom again: model: google/gemma-2-9b-it, method: full, gpu: T4", {"method": "full", "gpu": "T4"}),
        (
            "model=Qwen/Qwen2.5-14B offload=optimizer,param sharding=zero3 gpus=8 gpu=L40S",
            {"offload": ["optimizer", "param"], "sharding": "zero3", "gpu": "L40S", "gpus": 8},
        ),
        ("sft of Qwen/Qwen2.5-3B-Instruct, full, 2x A100 80GB, zero2, 4096 tokens", {"method": "full"}),
        ("Qwen2.5-7B lora，A100 40G，4096，batch 2", {"seq_len": 4096, "micro_batch": 2}),
        ("mistralai/Mistral-7B-v0.3 full finetune, 4x A100 40GB, batch 2, 2048", {"seq_len": 2048, "micro_batch": 2}),
    ],
)
def test_a_first_turn(turn: str, expected: dict[str, Any]) -> None:
    session, _ = talk(turn)
    assert fields(session, expected) == expected


@pytest.mark.parametrize(
    ("start", "turn", "expected"),
    [
        (TRAINED, "那 max_length 8192 行不行", {"seq_len": 8192}),
        (TRAINED, "cutoff_len 2048 行吗？", {"seq_len": 2048}),
        (TRAINED, "再加上8卡", {"gpus": 8}),
        (
            TRAINED,
            "再加上 8 卡 zero3，优化器 offload 到 cpu",
            {"gpus": 8, "sharding": "zero3", "offload": ["optimizer"]},
        ),
        (TRAINED, "再加 2 张卡", {"gpus": 4}),
        (TRAINED, "don't touch the batch, just seq_len 1024", {"seq_len": 1024, "micro_batch": 2}),
        (TRAINED, "keep the length as it is but batch 1", {"seq_len": 4096, "micro_batch": 1}),
        (TRAINED, "批大小不要动，长度改成 2048", {"seq_len": 2048, "micro_batch": 2}),
        (TRAINED, "gpu=4090", {"gpu": "4090"}),
        (TRAINED, "finetuning_type=full, please", {"method": "full"}),
        (TRAINED, "and --quantization_bit 4?", {"quant": "nf4-double"}),
        (TRAINED, "--deepspeed examples/deepspeed/ds_z2_config.json", {"sharding": "zero2"}),
        (TRAINED, "what about 2048?", {"seq_len": 2048}),
        (SERVED, "and --enforce-eager?", {"serving.cuda_graphs": False}),
        (SERVED, "--enforce-eager", {"serving.cuda_graphs": False}),
        (SERVED, "--no-enforce-eager", {"serving.cuda_graphs": True}),
        (SERVED, "with --kv-cache-dtype fp8 then", {"serving.kv_dtype": "fp8"}),
        (POLICY, "actor_rollout_ref.rollout.tensor_model_parallel_size=2", {"rollout.tensor_parallel": 2, "tp": None}),
        (
            POLICY,
            "actor_rollout_ref.actor.fsdp_config.param_offload=True "
            "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
            {"offload": ["optimizer", "param"]},
        ),
        (POLICY, "try actor_rollout_ref.rollout.n=4 for me", {"generations": 4}),
        (POLICY, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 maybe", {"micro_batch": 2}),
    ],
)
def test_a_later_turn(start: str, turn: str, expected: dict[str, Any]) -> None:
    session, reply = talk(start, turn)
    assert fields(session, expected) == expected, reply.answer


@pytest.mark.parametrize(
    ("turn", "where"),
    [
        ("give me 3.7 gpus", "gpus"),
        ("换成 2.5 张卡", "gpus"),
        ("batch size 1.5", "micro_batch"),
        ("micro_batch=abc", "micro_batch"),
        ("optimizer=adamz", "optimizer"),
        ("gpus=0", "gpus"),
        ("--per_device_train_batch_size -1", "per_device_train_batch_size"),
        ("-1 gpus", "gpus"),
        ("rank 改成 -8", "rank"),
        ("zero stage 5", "zero_stage"),
    ],
)
def test_what_no_run_can_have_is_refused(turn: str, where: str) -> None:
    before, _ = talk(TRAINED)
    session, reply = talk(TRAINED, turn)
    assert reply.changed == {}
    assert session.job == before.job
    assert where in reply.answer


def test_the_value_after_a_refusal_is_for_the_field_that_was_refused() -> None:
    session, _ = talk(SERVED, "gpu_memory_utilization=1.5", "sorry, 0.85 I meant")
    assert session.job.get("serving.gpu_memory_utilization") == 0.85


@pytest.mark.parametrize(
    ("turn", "left"),
    [("remove the param offload", ["optimizer"]), ("去掉优化器 offload", ["param"]), ("no offload at all", [])],
)
def test_one_of_two_offloads_is_taken_away(turn: str, left: list[str]) -> None:
    session, _ = talk("model=Qwen/Qwen2.5-14B gpu=A100-80GB gpus=8 sharding=zero3 offload=optimizer,param", turn)
    assert list(session.job.offload or ()) == left


def test_a_switch_of_a_framework_leaves_the_other_offload() -> None:
    session, _ = talk(
        POLICY,
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
        "actor_rollout_ref.actor.fsdp_config.param_offload=True",
    )
    assert set(session.job.offload or ()) == {"optimizer", "param"}
    session, _ = respond(session, "actor_rollout_ref.actor.fsdp_config.optimizer_offload=False")
    assert list(session.job.offload or ()) == ["param"]


@pytest.mark.parametrize("thanks", ["thanks", "thanks!", "ok thanks", "thx, great", "谢谢", "好的，谢谢"])
def test_thanks_after_a_question_changes_nothing(thanks: str) -> None:
    session, reply = talk(TRAINED, "would offloading the optimizer help?", thanks)
    assert reply.changed == {}
    assert not session.job.offload


VALUES = {
    "micro_batch": 3,
    "eval_micro_batch": 3,
    "seq_len": 3072,
    "prompt_len": 768,
    "completion_len": 768,
    "grad_accum": 12,
    "generations": 6,
    "lora.r": 24,
    "tp": 2,
    "pp": 2,
    "cp": 2,
    "ep": 2,
    "gpus": 4,
    "nodes": 2,
    "max_pixels": 501760,
    "rollout.tensor_parallel": 2,
    "rollout.gpu_memory_utilization": 0.33,
    "serving.gpu_memory_utilization": 0.77,
    "serving.max_model_len": 6144,
    "serving.max_num_seqs": 48,
    "grad_ckpt": False,
    "packing": True,
    "attention": "sdpa",
}
SENTENCES = ("{k}={v}", "ok, try {k}={v} please", "what about --{k} {v}?", "{k} {v} 行不行", "那把 {k} 改成 {v} 呢")


@pytest.mark.parametrize("table", TABLES, ids=[table.name for table in TABLES])
def test_every_key_of_every_framework_in_a_sentence(table: Table) -> None:
    wrong = []
    for key in table.all_keys():
        value = VALUES.get(key.field)
        if value is None or key.codec.read(value) != value:
            continue  # a key that says its field in words, or along with others
        job = job_of(table.name, key.field)
        for name in (n for n in key.names[:2] if n not in table.record.ignores):
            spelled = name.rpartition(":")[2]
            if says_the_same(spelled, value, job, key.field):
                continue
            for sentence in SENTENCES if len(spelled) > 1 and ("_" in spelled or "." in spelled) else SENTENCES[:3]:
                said = sentence.format(k=spelled, v=value)
                found = understand(said, job, Context(job)).changes.get(key.field)
                if found != value:
                    wrong.append((said, key.field, found))
    assert not wrong


def says_the_same(key: str, value: Any, job: Job, field: str) -> bool:
    """Whether a framework takes a switch's key alike, whatever it is set to: LLaMA-Factory's gradient_checkpointing."""
    if not isinstance(value, bool):
        return False
    on, off = (understand(f"{key}={said}", job, Context(job)).changes.get(field) for said in (True, False))
    return on == off


def job_of(framework: str, field: str) -> Job:
    job = {"model": "Qwen/Qwen2.5-7B", "framework": framework, "gpus": 8, "gpu": "H100"}
    if field.startswith(("rollout", "generations", "completion", "prompt")):
        job |= {"objective": "grpo", "rollout": {"engine": "vllm"}}
    return Job.from_document(job | ({"objective": "inference"} if field.startswith("serving") else {}))
