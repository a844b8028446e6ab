"""Programs whose settings are constants, dictionaries or fields, and commands that a program puts together."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.intake.configs import patch, read_documents


def said(text: str, name: str = "train.py") -> tuple[str | None, dict[str, Any]]:
    reading = read_documents(Source(name, text))
    return reading.framework, {fact.name: fact.value for fact in reading.facts}


TRAINS = "import torch\nfrom mine import Net\nLR = 2e-4\nWARMUP_STEPS = 10\n{0}\ndef main():\n    {1}\n    Net(LR, WARMUP_STEPS).fit()\nmain()\n"


def program(settings: str, body: str = "pass") -> str:
    return TRAINS.format(settings, body)


@pytest.mark.parametrize(
    ("settings", "body", "fields"),
    [
        ("MICRO_BATCH_SIZE = 6", "load(MICRO_BATCH_SIZE)", {"micro_batch": 6}),
        ("max_seq_length: int = 768\ngradient_checkpointing = True", "go(max_seq_length, gradient_checkpointing)", {"seq_len": 768, "grad_ckpt": True}),
        ('peft_cfg = {"lora_r": 24, "lora_alpha": 48}', "go(**peft_cfg)", {"lora.r": 24, "lora.alpha": 48}),
        ("from dataclasses import dataclass\n@dataclass\nclass Args:\n    device_batch_size: int = 3\n    grad_accum_steps: int = 5", "go(Args())", {"micro_batch": 3, "grad_accum": 5}),
        ("class CFG:\n    per_gpu_batch_size = 12", "go(CFG)", {"micro_batch": 12}),
    ],
)  # fmt: skip
def test_settings_that_a_program_keeps_in_one_place_are_read(settings: str, body: str, fields: dict[str, Any]) -> None:
    framework, found = said(program(settings, body))
    assert framework == "unknown"
    assert {name: found.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    ("settings", "body"),
    [
        ("X = 1", "micro_bsz = 6"),  # a local variable
        ("micro_bsz = 6\nif X:\n    micro_bsz = 2", "go(micro_bsz)"),
        ("micro_bsz = 6", "global micro_bsz; micro_bsz = 2"),
        ("micro_bsz = 6\nmicro_bsz //= 2", "go(micro_bsz)"),
        ("micro_bsz = TOTAL // 4", "go(micro_bsz)"),
        ("cfg = {'micro_bsz': 6}\ncfg.update(more())", "go(cfg)"),
        ("micro_bsz = 6\nexec(open('over.py').read())", "go(micro_bsz)"),
        ("class EvalConfig:\n    micro_bsz = 6", "go(EvalConfig)"),
        ("class Config:\n    micro_bsz = 6", "go(Config); Config.micro_bsz = 2"),
    ],
)
def test_what_a_program_may_set_otherwise_is_not_read(settings: str, body: str) -> None:
    assert "micro_batch" not in said(program(settings, body))[1]


def test_a_program_that_does_not_train_keeps_its_variables() -> None:
    text = "import torch\nMICRO_BATCH_SIZE = 6\nMAX_SEQ_LEN = 512\nscore(MICRO_BATCH_SIZE, MAX_SEQ_LEN)\n"
    assert said(text, "score.py") == (None, {})


def test_a_constant_is_changed_where_one_place_defines_it() -> None:
    text = program("MICRO_BATCH_SIZE = 8  # of a card\nEVAL_BATCH = 8", "go(MICRO_BATCH_SIZE, EVAL_BATCH)")
    done = patch(text, filename="train.py", changes={"micro_batch": 2})
    assert done.text == text.replace("MICRO_BATCH_SIZE = 8", "MICRO_BATCH_SIZE = 2")
    twice = program("MICRO_BATCH_SIZE = 8\nTRAIN_CFG = {'micro_batch_size': 8}", "go(MICRO_BATCH_SIZE, TRAIN_CFG)")
    assert patch(twice, filename="train.py", changes={"micro_batch": 2}).error


def test_an_engine_s_section_in_a_program_that_trains_is_the_rollouts() -> None:
    text = program(
        'LORA_RANK = 8\nvllm_cfg = {"max_model_len": 4096, "gpu_memory_utilization": 0.4}', "go(LORA_RANK, vllm_cfg)"
    )
    framework, found = said(text)
    assert framework == "unknown"
    assert found["rollout.gpu_memory_utilization"] == 0.4
    assert not {"serving.max_model_len", "serving.gpu_memory_utilization", "seq_len"} & found.keys()


def test_the_one_optimizer_of_a_whole_model_is_the_program_s() -> None:
    one = program(
        "micro_batch_size = 2", "o = torch.optim.AdamW(net.parameters(), lr=LR, fused=True); go(micro_batch_size)"
    )
    assert (said(one)[1]["optimizer"], said(one)[1]["optimizer_impl"]) == ("adamw", "fused")
    done = patch(one.replace("fused", "foreach"), filename="train.py", changes={"optimizer_impl": "single"})
    assert "foreach=False" in done.text
    part = one.replace("net.parameters()", "net.head.parameters()")
    assert "optimizer" not in said(part)[1]


def test_dictionaries_of_a_configuration_in_python_are_sections() -> None:
    text = (
        "training = {'local_batch_size': 12, 'seq_len': 4096, 'steps': 10, 'max_norm': 1.0}\n"
        "parallelism = {'tensor_parallel_degree': 2, 'pipeline_parallel_degree': 1, 'context_parallel_degree': 1}\n"
        "activation_checkpoint = {'mode': 'none'}\noptimizer = {'name': 'AdamW', 'lr': 1e-4, 'eps': 1e-8}\n"
        "metrics = {'log_freq': 5}\n"
    )
    framework, found = said(text, "small.py")
    assert framework == "torchtitan"
    assert (found["micro_batch"], found["tp"], found["grad_ckpt"]) == (12, 2, False)
    done = patch(text, filename="small.py", changes={"grad_ckpt": True})
    assert done.text == text.replace("'none'", "'full'")


SERVES = """import subprocess
import modal
MODEL = "org/thing-8b"
CARDS = 2
LENGTH = "4096"
EAGER = True
@app.function(gpu=f"A100-80GB:{CARDS}")
def serve():
    cmd = ["vllm", "serve", MODEL, "--port", "8000"]
    cmd += [f"--tensor-parallel-size={CARDS}", "--max-model-len", LENGTH]
    cmd.extend(["--max-num-seqs", str(64)])
    if EAGER:
        cmd.append("--enforce-eager")
    subprocess.Popen(cmd)
"""


def test_a_command_that_is_a_list_is_read_through_constants() -> None:
    framework, found = said(SERVES, "app.py")
    assert framework == "vllm"
    assert found.items() >= {
        "model": "org/thing-8b", "tp": 2, "gpus": 2, "serving.max_model_len": 4096, "serving.max_num_seqs": 64, "serving.cuda_graphs": False,
    }.items()  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({"tp": 4}, "CARDS = 2", "CARDS = 4"),
        ({"serving.max_model_len": 2048}, '"4096"', '"2048"'),
        ({"serving.max_num_seqs": 16}, "str(64)", "str(16)"),
        ({"serving.cuda_graphs": True}, "EAGER = True", "EAGER = False"),
    ],
)
def test_a_constant_of_a_command_is_changed(changes: dict[str, Any], old: str, new: str) -> None:
    assert patch(SERVES, filename="app.py", changes=changes).text == SERVES.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"--max-model-len", LENGTH]', '"--max-model-len", length()]'),
        ("    subprocess", "    if more():\n        cmd += ['--max-model-len', '512']\n    subprocess"),
        ("    subprocess", "    cmd.extend(more())\n    subprocess"),
        ('LENGTH = "4096"', 'LENGTH = "4096"\nif more():\n    LENGTH = "512"'),
    ],
)
def test_what_a_command_may_be_given_besides_is_not_read(old: str, new: str) -> None:
    text = SERVES.replace(old, new)
    assert "serving.max_model_len" not in said(text, "app.py")[1]
    assert patch(text, filename="app.py", changes={"serving.max_model_len": 2048}).error


def test_a_switch_that_stands_in_a_list_is_not_taken_out() -> None:
    text = SERVES.replace('"--port", "8000"]', '"--enforce-eager"]').replace("if EAGER", "if False")
    assert patch(text, filename="app.py", changes={"serving.cuda_graphs": True}).error


LAUNCHED = "accelerate launch --num_processes {n} own_loop.py --policy org/x-3b --batch_size 2 --lr 1e-5 --warmup_steps 9 --gradient_checkpoint --seed 1 --data d\n"


def test_a_batch_that_the_ranks_cannot_share_is_each_rank_s() -> None:
    framework, found = said(LAUNCHED.format(n=6), "run.sh")
    assert framework == "unknown"
    assert (found["micro_batch"], found["grad_ckpt"]) == (2, True)
    assert "micro_batch" not in said(LAUNCHED.format(n=2), "run.sh")[1]
    assert "micro_batch" not in said(LAUNCHED.format(n=6).replace("--seed 1", "--tensor_parallel_size 3"), "run.sh")[1]
    done = patch(LAUNCHED.format(n=6), filename="run.sh", changes={"micro_batch": 1})
    assert done.text == LAUNCHED.format(n=6).replace("--batch_size 2", "--batch_size 1")
    assert patch(LAUNCHED.format(n=6), filename="run.sh", changes={"micro_batch": 12}).error


def test_a_launcher_s_file_does_not_name_the_project_beside_it() -> None:
    config = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 6\n"
    evidence = read([Source("run.sh", LAUNCHED.format(n=6)), Source("acc.yaml", config)])
    assert evidence.framework == "unknown"


def test_a_comment_behind_a_setting_names_no_aim() -> None:
    text = "lr: 1e-5\nmax_seq_length: 512\nloss: sft  # the aim, sft or dpo training\nmicro_batch_size: 2\nseed: 1\nout: o\n"
    aim = read([Source("c.yaml", text)]).facts.get("objective")
    assert aim is None or aim.value == "sft"


def test_rollouts_of_a_phase_are_not_those_of_a_prompt() -> None:
    text = "lr: 1e-5\nmax_seq_length: 512\n{0}:\n  num_rollouts: 128\n  seed: 3\n  out: o\n"
    assert "generations" not in said(text.format("ppo"), "c.yaml")[1]
    assert said(text.format("grpo"), "c.yaml")[1]["generations"] == 128
