"""Files of projects that no record describes, or that wrap a framework which one does: what is read, what is written."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.intake.configs import patch, to_job


def job_of(text: str, name: str) -> Any:
    evidence = read([Source(name, text)])
    return to_job(evidence.facts, evidence.framework, evidence.versions)


TRAIN = "python3 {script} --model_name {model} --learning_rate 1e-4 --num_epochs 3 --weight_decay 0.1 {more}\n"


def train(more: str = "", script: str = "main.py", model: str = "org/thing-7b") -> str:
    return TRAIN.format(more=more, script=script, model=model)


SECTIONS = "trainer:\n  learning_rate: 1e-4\n  num_epochs: 3\n  weight_decay: 0.1\n{0}"


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("t.sh", train("--max_length 2048 --micro_bsz 2"), {"seq_len": 2048, "micro_batch": 2}),
        ("t.sh", train("--block_size 512 --device_batch_size 8"), {"seq_len": 512, "micro_batch": 8}),
        ("t.sh", train("--train_type custom_qlora"), {"method": "qlora"}),
        ("t.sh", train("--finetune_type full_finetune"), {"method": "full"}),
        ("t.sh", train("--train_type hqq_dora"), {"method": None}),
        ("t.sh", train("--use_lora true --use_qlora true"), {"method": "qlora"}),
        ("t.sh", train("--optim galore_adamw8bit_per_layer"), {"method": "galore", "optimizer": "galore_adamw_8bit"}),
        ("t.yaml", SECTIONS.format("adapter:\n  type: lora\n  r: 8\n"), {"lora.r": 8}),
        ("t.yaml", SECTIONS.format("lora_parameters:\n  rank: 4\n  dropout: 0.1\n"), {"lora.r": 4, "lora.dropout": 0.1}),
        ("t.yaml", SECTIONS.format("moe:\n  rank: 4\n"), {"lora.r": None}),
        ("t.toml", 'lora_rank = 8\nlearning_rate = 1e-4\nepochs = 2\nwarmup_steps = 1\nlora_alpha = 8\n[[datasets]]\nname = "a"\nsequence_len = 4096\n', {"seq_len": 4096}),
        ("t.yaml", SECTIONS.format("eval_dataset:\n  max_seq_length: 128\nlora_r: 4\n"), {"seq_len": None}),
        ("t.yaml", SECTIONS.format("slurm:\n  num_nodes: 2\n  gpus_per_node: 4\nlora_r: 4\n"), {"nodes": 2, "gpus": 4}),
        ("t.yaml", SECTIONS.format("model:\n  hf_model_ckpt: org/Thing-Mistral-7B\nlora_r: 4\nmicro_batch_size: 2\n"), {"model": "org/Thing-Mistral-7B"}),
        ("train_reward.sh", train(script="src/train_reward.py", more="--max_length 64"), {"objective": "rm"}),
        ("t.sh", train(script="run_pretrain.py", more="--max_length 64"), {"objective": "pretrain"}),
        ("run-qlora.json", '{"model_name_or_path": "org/thing-2b-dpo", "lora_rank": 8, "output_dir": "out/sft", "optim": "adamw_torch", "num_train_epochs": 1, "per_device_train_batch_size": 1}', {"method": "qlora", "objective": "sft"}),
    ],
)  # fmt: skip
def test_what_is_read(name: str, text: str, fields: dict[str, Any]) -> None:
    job = job_of(text, name)
    assert {field: job.get(field) for field in fields} == fields


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.yaml", SECTIONS.format("dataset_type: axolotl\nlora_r: 4\nmicro_batch_size: 2\nseq_len: 8\n")),
        ("t.sh", train("--lora_r 4 --micro_batch_size 2 --run_name nemo-run")),
        ("t.sh", 'case "$A" in *nemo*|*verl*) B=1;; esac\n' + train("--lora_r 4 --micro_batch_size 2")),
    ],
)
def test_a_name_in_a_value_is_no_framework(name: str, text: str) -> None:
    assert read([Source(name, text)]).framework == "unknown"


PROGRAM = """\
from dataclasses import dataclass, field
from transformers import TrainingArguments, AutoModelForCausalLM
from peft import LoraConfig

@dataclass
class Own:
    name: str
    rank: int = 8
    batch: int = field(default=2)
    modules: list = field(default_factory=lambda: ["q_proj"])

def main(own: Own):
    model = AutoModelForCausalLM.from_pretrained(own.name)
    config = LoraConfig(r=own.rank, target_modules=own.modules)
    args = TrainingArguments(output_dir="o", per_device_train_batch_size=own.batch, num_train_epochs=1)
"""


def test_an_argument_that_is_a_field_of_a_class_has_its_default() -> None:
    job = job_of(PROGRAM, "train.py")
    assert (job.model, job.get("lora.r"), job.get("lora.targets"), job.micro_batch) == (None, 8, ("q_proj",), 2)
    done = patch(PROGRAM, filename="train.py", changes={"lora.r": 4, "micro_batch": 1})
    assert done.text == PROGRAM.replace("rank: int = 8", "rank: int = 4").replace("default=2", "default=1")


def test_an_argument_that_is_a_member_of_a_dictionary_is_read_there() -> None:
    head = (
        'from transformers import TrainingArguments\nCONFIG = {"batch": 4, "steps": 8, "lr": 1e-4}\ndef main(config):\n'
    )
    text = (
        head
        + '    return TrainingArguments("o", per_device_train_batch_size=config["batch"], gradient_accumulation_steps=CONFIG["steps"])\n'
    )
    job = job_of(text, "train.py")
    assert (job.micro_batch, job.grad_accum) == (4, 8)
    assert patch(text, filename="train.py", changes={"micro_batch": 2}).text == text.replace('"batch": 4', '"batch": 2')


def test_a_field_that_two_classes_have_is_left_as_it_is() -> None:
    head = "from trl import SFTConfig\n"
    text = head + "".join(
        f"class {n}:\n    per_device_train_batch_size: int = 4\n    max_length: int = 64\n" for n in "AB"
    )
    assert patch(text, filename="c.py", changes={"micro_batch": 1}).text == text


SWAP = "models:\n  a:\n    cmd: |\n      /app/llama-server\n      -m /m/a-7b.gguf\n      --ctx-size 8192\n      -np 1\n  b:\n    cmd: |\n      /app/llama-server\n      -m /m/b-8b.gguf\n      --ctx-size {0}\n      -np 1\n"


def test_a_text_whose_lines_go_on_with_options_is_one_command() -> None:
    job = job_of(SWAP.format(4096), "swap.yaml")
    assert (job.get("serving.max_num_seqs"), job.get("serving.max_model_len")) == (1, None)


def test_what_several_runs_say_alike_is_changed_in_each() -> None:
    text = SWAP.format(4096)
    assert patch(text, filename="s.yaml", changes={"serving.max_num_seqs": 2}).text == text.replace("-np 1", "-np 2")
    assert patch(text, filename="s.yaml", changes={"serving.max_model_len": 2048}).text == text
    both = train("--max_length 64 --lora_r 4") + train("--max_length 64 --lora_r 8")
    assert patch(both, filename="t.sh", changes={"seq_len": 32}).text == both.replace("_length 64", "_length 32")
    assert patch(both, filename="t.sh", changes={"lora.r": 2}).text == both


def test_what_is_added_to_an_array_in_pieces_is_one_command() -> None:
    text = "P=()\nP+=(\n  --num-layers 4 --hidden-size 64 --num-attention-heads 4\n  --data-path $D --train-iters 10\n)\nP+=(\n  --micro-batch-size 2\n)\nP+=(\n  --tensor-model-parallel-size 4\n)\n"
    job = job_of(text, "params.sh")
    assert (job.micro_batch, job.tp, job.objective) == (2, 4, "pretrain")


@pytest.mark.parametrize(
    ("label", "card"), [("nvidia-gpu-l4:1", "L4"), ("nvidia-l40s:2", "L40S"), ("A100-80GB:8", "A100-80GB")]
)
def test_a_label_names_its_card_behind_the_maker(label: str, card: str) -> None:
    text = f"kind: Model\nspec:\n  url: hf://org/thing-7b\n  engine: VLLM\n  args:\n    - --max-model-len=2048\n  resourceProfile: {label}\n"
    assert job_of(text, "m.yaml").gpu == card


ZERO = '{\n  "zero_optimization": {\n    "stage": 3,\n    "offload_param": {\n      "device": "cpu"\n    },\n    "offload_optimizer": {\n      "device": "cpu"\n    }\n  },\n  "train_micro_batch_size_per_gpu": 1\n}\n'
LAUNCH = "distributed_type: DEEPSPEED\ncompute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  offload_optimizer_device: {0}\n  offload_param_device: {1}\n  zero_stage: 3\nnum_processes: 8\n"
VERL = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.max_prompt_length=64 data.max_response_length=32 actor_rollout_ref.model.path=org/thing-7b actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.actor.fsdp_config.param_offload=true actor_rollout_ref.actor.fsdp_config.grad_offload=true\n"
COMPOSE = "services:\n  o:\n    image: ollama/ollama\n    environment:\n      - OLLAMA_KV_CACHE_TYPE=q8_0\n      - OLLAMA_CONTEXT_LENGTH=4096\n"


@pytest.mark.parametrize(
    ("name", "text", "changes", "wanted"),
    [
        ("ds.json", ZERO, {"sharding": "zero2"}, ZERO.replace('    "offload_param": {\n      "device": "cpu"\n    },\n', "").replace("3", "2")),
        ("a.yaml", LAUNCH.format("cpu", "cpu"), {"sharding": "zero2"}, LAUNCH.format("cpu", '"none"').replace("zero_stage: 3", "zero_stage: 2")),
        ("v.sh", VERL, {"offload": []}, VERL.replace("true", "false")),
        ("v.sh", VERL, {"tp": 2}, VERL),
        ("c.yaml", COMPOSE, {"serving.kv_dtype": "fp8"}, COMPOSE),
        ("c.yaml", COMPOSE, {"serving.kv_dtype": "q4_0"}, COMPOSE.replace("q8_0", "q4_0")),
        ("l.sh", "python -m llama_cpp.server --model a-7b.Q4_K_M.gguf --n_ctx 4096 \\\n  --port 1\n", {"serving.kv_dtype": "q8_0"}, "python -m llama_cpp.server --model a-7b.Q4_K_M.gguf --n_ctx 4096 --type_k 8 --type_v 8 --flash_attn true \\\n  --port 1\n"),
        ("w.sh", "bash run_inner.sh " + VERL.partition("main_ppo ")[2], {"fused_ce": True}, "bash run_inner.sh " + VERL.partition("main_ppo ")[2]),
        ("t.yaml", SECTIONS.format("slurm:\n  num_nodes: 2\n  gpus_per_node: 4\nlora_r: 4\nmicro_batch_size: 2\nseq_len: 64\n"), {"nodes": 3}, SECTIONS.format("slurm:\n  num_nodes: 3\n  gpus_per_node: 4\nlora_r: 4\nmicro_batch_size: 2\nseq_len: 64\n")),
    ],
)  # fmt: skip
def test_what_is_written(name: str, text: str, changes: dict[str, Any], wanted: str) -> None:
    assert patch(text, filename=name, changes=changes).text == wanted


@pytest.mark.parametrize(("devices", "offload"), [(("none", "none"), ()), (("cpu", "none"), ("optimizer",))])
def test_that_nothing_is_offloaded_may_be_stated(devices: tuple[str, str], offload: tuple[str, ...]) -> None:
    assert job_of(LAUNCH.format(*devices), "a.yaml").offload == offload


def test_prompt_and_answer_together_are_the_length_of_a_sample() -> None:
    assert job_of(VERL, "v.sh").seq_len == 96


def test_the_default_of_a_script_s_argument_is_written_inside_it() -> None:
    text = '#!/bin/bash\nLEN="${2:-80000}"\nvllm serve "$1" --max-model-len "$LEN"\n'
    made = patch(text, filename="serve.sh", changes={"serving.max_model_len": 32768})
    assert 'LEN="${2:-32768}"' in made.text
