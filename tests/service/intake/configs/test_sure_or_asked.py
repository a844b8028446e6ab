"""What is read of a file whose framework is not sure, and what is written nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.intake.configs import guessing, patch, to_job
from oomdoc.intake.configs.key_words import model

SERVE = """\
docker rm -f chat
docker run -d --name chat --gpus all \\
  --ipc=host \\
  vllm/vllm-openai:latest \\
  --model org/Thing-7B \\
  --max-model-len 8192 \\
  ${SEQS:+--max-num-seqs $SEQS} \\
  --gpu-memory-utilization 0.8

if ! docker ps --filter name=chat | grep -q chat; then
  docker logs --tail 40 chat
fi
"""

NEARLY_LLAMA_FACTORY = """\
training_stage: sft
finetuning_type: lora
model_name_or_path: org/Thing-7B
cutoff_len: 1024
enable_gradient_checkpointing: true
train_micro_batch_size_per_gpu: 4
gradient_accumulation_steps: 4
deepspeed_config_path: configs/z2.json
train_model_precision: bf16
tokenizer_use_fast: true
save_train_log: true
io_workers: 3
lora_rank: 64
"""

DATACLASS = """\
from dataclasses import dataclass


@dataclass
class TrainConfig:
    lr: float = 1e-4
    num_epochs: int = 3
    weight_decay: float = 0.0
    micro_batch_size: int = 4
    gradient_accumulation_steps: int = 2
    context_length: int = 4096
    use_peft: bool = False
    peft_method: str = "lora"
"""


def job_of(text: str, name: str) -> Any:
    evidence = read([Source(name, text)])
    return to_job(evidence.facts, evidence.framework, evidence.versions)


def test_a_new_flag_joins_the_command_that_runs_the_engine():
    done = patch(SERVE, filename="serve.sh", changes={"serving.kv_dtype": "fp8"})
    lines = done.text.splitlines()
    at = next(n for n, line in enumerate(lines) if "--kv-cache-dtype fp8" in line)
    assert at < next(n for n, line in enumerate(lines) if "docker ps" in line)
    assert lines[at - 1].endswith("\\") or lines[at].endswith("\\")


def test_a_flag_that_stands_in_an_expansion_is_not_written_again():
    done = patch(SERVE, filename="serve.sh", changes={"serving.max_num_seqs": 8})
    assert done.text == SERVE
    assert done.error


@pytest.mark.parametrize("changes", [{"sharding": "zero3"}, {"optimizer": "adamw_8bit"}])
def test_a_framework_that_is_not_sure_gets_no_new_keys(changes):
    done = patch(NEARLY_LLAMA_FACTORY, filename="a.yaml", changes=changes)
    assert done.text == NEARLY_LLAMA_FACTORY
    assert done.error


def test_what_stands_in_it_is_read_and_changed():
    job = job_of(NEARLY_LLAMA_FACTORY, "a.yaml")
    assert (job.micro_batch, job.grad_accum, job.seq_len, job.grad_ckpt) == (4, 4, 1024, True)
    done = patch(NEARLY_LLAMA_FACTORY, filename="a.yaml", changes={"seq_len": 512})
    assert done.text == NEARLY_LLAMA_FACTORY.replace("cutoff_len: 1024", "cutoff_len: 512")


def test_a_dataclass_of_settings_is_a_configuration():
    job = job_of(DATACLASS, "config.py")
    assert (job.micro_batch, job.grad_accum, job.seq_len) == (4, 2, 4096)
    assert job.method == "full", "its adapters are switched off"
    done = patch(DATACLASS, filename="config.py", changes={"micro_batch": 1})
    assert done.text == DATACLASS.replace("micro_batch_size: int = 4", "micro_batch_size: int = 1")


def test_double_quantization_is_switched_off_where_single_is_asked_for():
    text = "model_name_or_path: org/Thing-7B\nload_in_4bit: true\nbnb_4bit_use_double_quant: true\nper_device_train_batch_size: 1\nuse_peft: true\nlora_r: 8\n"
    done = patch(text, filename="a.yaml", changes={"quant": "nf4"})
    assert done.text == text.replace("double_quant: true", "double_quant: false")


def test_one_request_at_once_is_no_default():
    text = "FROM llama3:8b\nPARAMETER num_ctx 2048\n"
    done = patch(text, filename="Modelfile", changes={"serving.max_num_seqs": 1})
    assert done.text == text
    assert done.error


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ("--pp-stages 4 --grad-ckpt --lora_dim_r 4", {"pp": 4, "grad_ckpt": True, "lora.r": 4}),
        ("--n-accum-steps 5 --max_generate_tokens 700", {"grad_accum": 5, "completion_len": 700}),
        ("--num_heads 12 --log_every 50 --val_bs 64 --eval_max_len 9000", {"micro_batch": None, "seq_len": None}),
    ],
)
def test_keys_that_no_table_has_are_known_by_their_words(flags, fields):
    text = f"python my_own_loop.py --lr 1e-4 --epochs 3 --seed 1 --out runs/a {flags}\n"
    job = job_of(text, "run.sh")
    assert {name: job.get(name) for name in fields} == fields


def test_the_weights_are_those_of_the_labelled_keys():
    bench = Path(__file__).parents[4] / "bench"
    done = subprocess.run(
        [sys.executable, "-c", "import train_config_keys; print(train_config_keys.key())"],
        cwd=bench, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert model().key == done.stdout.strip(), "run bench/train_config_keys.py --write"


LOGGED_ONLY = """\
import mlflow
from transformers import AutoModelForCausalLM

MAX_LEN = 512
model = AutoModelForCausalLM.from_pretrained("org/Thing-7B")
mlflow.log_params({"max_length": MAX_LEN, "gradient_checkpointing": False})
"""


def test_what_a_program_only_writes_down_is_not_changed_there():
    done = patch(LOGGED_ONLY, filename="train.py", changes={"grad_ckpt": True})
    assert done.text == LOGGED_ONLY
    assert done.error
    done = patch(LOGGED_ONLY, filename="train.py", changes={"seq_len": 256})
    assert done.text == LOGGED_ONLY.replace("MAX_LEN = 512", "MAX_LEN = 256")


def test_the_command_of_a_unit_is_read():
    unit = "[Service]\nExecStart=/opt/llama.cpp/llama-server \\\n  -m /models/Qwen3-8B-Q4_K_M.gguf \\\n  --ctx-size 16384\n"
    job = job_of(unit, "llama.service")
    assert "Qwen3-8B" in str(job.model)
    assert job.get("serving.max_model_len") == 16384


def test_adapters_over_four_bits_stay_where_plain_ones_are_off():
    base = "lr: 1e-4\nnum_epochs: 3\nweight_decay: 0.1\nmicro_batch_size: 2\nmax_seq_len: 2048\nlora_r: 8\nuse_lora: false\n"
    assert job_of(base, "t.yaml").method == "full"
    assert job_of(base + "use_qlora: true\n", "t.yaml").method == "qlora"


def test_the_words_of_so_many_keys_and_no_more_are_looked_at(monkeypatch):
    seen = []
    monkeypatch.setattr(guessing, "meaning_of", lambda key: seen.append(key) or ("none", 1.0))
    text = "lr: 1e-4\nepochs: 3\nwarmup_steps: 3\n" + "".join(f"some_key_{n}: {n}\n" for n in range(5000))
    read([Source("a.yaml", text)])
    assert 0 < len(set(seen)) <= guessing._MAX_BY_WORDS


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("worker:\n  actor:\n    model:\n      model_path: m\n      lora:\n        rank: 0\n  rollout:\n    n: 5\n"
         "    tensor_parallel_size: 2\n    gpu_memory_utilization: 0.6\n", "easyr1.yaml"),
        ("python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=m actor_rollout_ref.model.lora_rank=0\n", "v.sh"),
    ],
)  # fmt: skip
def test_adapters_of_rank_zero_are_none(text, name):
    assert job_of(text, name).method == "full"


def test_a_run_that_trains_its_projector_alone_gets_no_adapters():
    text = (
        "deepspeed llava/train/train_mem.py --model_name_or_path lmsys/vicuna-7b-v1.5 --version plain \\\n"
        "    --tune_mm_mlp_adapter True --mm_projector_type mlp2x_gelu --per_device_train_batch_size 32\n"
    )
    done = patch(text, filename="pretrain.sh", changes={"method": "lora"})
    assert done.text == text
    assert done.error


def test_checkpointing_of_megatrons_trainer_has_a_key_of_its_own():
    text = (
        "stage: sft\nfinetuning_type: full\nmodel_name_or_path: Qwen/Qwen2-VL-7B-Instruct\ncutoff_len: 4096\n"
        "tensor_model_parallel_size: 4\npipeline_model_parallel_size: 2\nper_device_train_batch_size: 1\n"
    )
    done = patch(text, filename="qwen2_vl_full.yaml", changes={"grad_ckpt": True})
    assert "recompute_granularity: full" in done.text


def test_sglang_names_the_layout_of_an_fp8_cache():
    text = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --mem-fraction-static 0.85\n"
    done = patch(text, filename="serve.sh", changes={"serving.kv_dtype": "fp8"})
    assert "--kv-cache-dtype fp8_e4m3" in done.text


WRAPPER = """\
python train_on_our_data.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct --dataset custom --template qwen \\
    --finetuning_type lora --lora_target q_proj,v_proj --lora_rank 8 --cutoff_len 8192 --dataset_dir data \\
    --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --output_dir out
"""


def test_a_script_of_ones_own_gets_no_new_flag():
    for changes in ({"grad_ckpt": True}, {"attention": "flash2"}):
        done = patch(WRAPPER, filename="run.sh", changes=changes)
        assert (done.text, bool(done.error)) == (WRAPPER, True)
    assert "--cutoff_len 4096" in patch(WRAPPER, filename="run.sh", changes={"seq_len": 4096}).text


def test_an_optimizer_that_a_companion_may_set_is_not_added():
    text = (
        "deepspeed llava/train/train_mem.py --deepspeed ./zero2.json --model_name_or_path lmsys/vicuna-7b-v1.5 \\\n"
        "    --version v1 --mm_projector_type mlp2x_gelu --per_device_train_batch_size 16\n"
    )
    done = patch(text, filename="finetune.sh", changes={"optimizer": "adamw_8bit"})
    assert done.text == text
    assert done.unplaced == {"optimizer": "companion"}


def test_a_batch_is_not_made_smaller_without_its_accumulation():
    text = (
        "base_model: m\nlora_rank: 16\nper_device_batch_size: 2\ngrad_accum: 16\nmax_seq_len: 2048\nmerge_after: true\n"
    )
    done = patch(text, filename="sft.yaml", changes={"micro_batch": 1, "grad_accum": 32})
    assert "per_device_batch_size: 1" not in done.text or "grad_accum: 32" in done.text


AGAIN = """\
BS=8
if [ "$(nvidia-smi -L | wc -l)" -eq 4 ]; then
    BS=2
fi
llamafactory-cli train --model_name_or_path m --stage sft --per_device_train_batch_size $BS --finetuning_type lora
"""


def test_a_variable_that_a_branch_sets_again_is_replaced_where_it_is_used():
    done = patch(AGAIN, filename="run.sh", changes={"micro_batch": 1})
    assert "--per_device_train_batch_size 1" in done.text
    assert "BS=8\n" in done.text
    assert "BS=2\n" in done.text
