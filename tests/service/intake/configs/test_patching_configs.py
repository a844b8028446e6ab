from __future__ import annotations

import ast
import collections
import dataclasses
import json
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoc.evidence import Source
from oomdoc.intake.configs import patch, patch_batch_row, read_documents, to_job

LF = "# 单卡\nmodel_name_or_path: a/b-7b   # base\nstage: sft\nfinetuning_type: full\ncutoff_len: 4096  # long\nper_device_train_batch_size: 2\ndeepspeed: examples/deepspeed/ds_z2_config.json\nbf16: true\n"
SWIFT = "NPROC_PER_NODE=2 \\\nswift sft \\\n    --model a/b-7b \\\n    --train_type lora \\\n    --max_length 8192 \\\n    --gradient_checkpointing false \\\n    --output_dir out\n"
VERL = "python3 -m verl.trainer.main_ppo \\\n    algorithm.adv_estimator=grpo \\\n    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \\\n    actor_rollout_ref.rollout.gpu_memory_utilization=0.8 $@\n"
TRL = "from trl import SFTConfig\n\nargs = SFTConfig(\n    output_dir='out',\n    per_device_train_batch_size=4,\n    max_length=4096,\n    bf16=True\n)\n"
DEEPSPEED = '{\n  "zero_optimization": {\n    "stage": 2,\n    "overlap_comm": true\n  },\n  "train_micro_batch_size_per_gpu": 4\n}\n'
MEGATRON = "ARGS=(\n    --micro-batch-size 4\n    --seq-length 8192\n    --bf16\n)\ntorchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]}\n"
VLLM = "vllm serve a/b-7b \\\n  --max-model-len 32768 \\\n  --gpu-memory-utilization 0.95\n"
NEMO = "trainer:\n  devices: 8\n  precision: bf16\nmodel:\n  micro_batch_size: 4\n  tensor_model_parallel_size: 1\n"
TUNE = "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  lora_rank: 8\nbatch_size: 2\nenable_activation_checkpointing: False\n"
UNSLOTH = 'from unsloth import FastLanguageModel\nmax_seq_length = 4096  # any\nm, t = FastLanguageModel.from_pretrained(\n    model_name = "a/b-7b",\n    max_seq_length = max_seq_length,\n    load_in_4bit = False,\n)\n'
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: false\n  fsdp_sharding_strategy: SHARD_GRAD_OP\nnum_processes: 4\n"
XTUNER = "from mmengine.config import read_base\nmax_length = 2048\npack_to_max_length = True\nbatch_size = 2  # per device\naccumulative_counts = 8\noptim_type = AdamW\n"
TOML = "[training]\nper_device_train_batch_size = 8\ngradient_checkpointing = false # no\n"
COMPOSE = (
    'services:\n  llm:\n    image: vllm/vllm-openai:v0.8.5\n    command:\n      - --max-model-len\n      - "32768"\n'
)


def lines_lost(before, after):
    return sum(
        (
            collections.Counter(before.splitlines(keepends=True)) - collections.Counter(after.splitlines(keepends=True))
        ).values()
    )


@pytest.mark.parametrize(
    ("name", "text", "changes", "expected", "changed"),
    [
        ("a.yaml", LF, {"seq_len": 1024}, ["cutoff_len: 1024  # long"], 1),
        ("a.yaml", LF, {"sharding": "zero3"}, ["deepspeed: examples/deepspeed/ds_z3_config.json"], 1),
        ("a.yaml", LF, {"offload": ["optimizer"]}, ["deepspeed: examples/deepspeed/ds_z2_offload_config.json"], 1),
        (
            "a.yaml",
            LF,
            {"method": "qlora", "lora.r": 16},
            ["finetuning_type: lora", "quantization_bit: 4", "lora_rank: 16"],
            1,
        ),
        ("a.yaml", LF, {"fused_ce": True, "attention": "flash2"}, ["enable_liger_kernel: true", "flash_attn: fa2"], 0),
        ("a.yaml", LF, {"grad_ckpt": False}, ["disable_gradient_checkpointing: true"], 0),
        (
            "run.sh",
            SWIFT,
            {"seq_len": 4096, "grad_ckpt": True},
            ["    --max_length 4096 \\", "    --gradient_checkpointing true \\"],
            2,
        ),
        ("run.sh", SWIFT, {"gpus": 4}, ["NPROC_PER_NODE=4 \\"], 1),
        (
            "run.sh",
            SWIFT,
            {"env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            ["export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"],
            0,
        ),
        ("run.sh", SWIFT, {"sharding": "zero3"}, ["    --deepspeed zero3 \\"], 0),
        (
            "run.sh",
            VERL,
            {"micro_batch": 2, "offload": ["param"]},
            [
                "    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\",
                "    actor_rollout_ref.actor.fsdp_config.param_offload=True \\",
            ],
            1,
        ),
        (
            "t.py",
            TRL,
            {"micro_batch": 1, "grad_ckpt": True},
            ["    per_device_train_batch_size=1,", "    gradient_checkpointing=True,"],
            1,
        ),
        ("t.py", TRL, {"optimizer": "adamw_8bit"}, ["    optim='adamw_8bit',"], 0),
        ("ds.json", DEEPSPEED, {"sharding": "zero3"}, ['    "stage": 3,'], 1),
        ("ds.json", DEEPSPEED, {"offload": ["optimizer"]}, ['    "offload_optimizer": {', '      "device": "cpu",'], 0),
        (
            "m.sh",
            MEGATRON,
            {"micro_batch": 1, "grad_ckpt": True},
            ["    --micro-batch-size 1", "    --recompute-granularity full"],
            1,
        ),
        (
            "s.sh",
            VLLM,
            {"serving.max_model_len": 8192, "serving.cuda_graphs": False},
            ["  --max-model-len 8192 \\", "  --enforce-eager \\"],
            1,
        ),
        ("n.yaml", NEMO, {"tp": 8, "micro_batch": 1}, ["  tensor_model_parallel_size: 8", "  micro_batch_size: 1"], 2),
        (
            "t.yaml",
            TUNE,
            {"quant": "nf4", "grad_ckpt": True},
            ["  _component_: torchtune.models.llama3_1.qlora_llama3_1_8b", "enable_activation_checkpointing: True"],
            2,
        ),
        (
            "u.py",
            UNSLOTH,
            {"seq_len": 2048, "quant": "nf4-double"},
            ["max_seq_length = 2048  # any", "    load_in_4bit = True,"],
            2,
        ),
        (
            "acc.yaml",
            ACCELERATE,
            {"sharding": "fsdp", "offload": ["param", "optimizer"]},
            ["  fsdp_sharding_strategy: FULL_SHARD", "  fsdp_offload_params: true"],
            2,
        ),
        (
            "x.py",
            XTUNER,
            {"micro_batch": 1, "optimizer": "paged_adamw_8bit"},
            ["batch_size = 1  # per device", "optim_type = PagedAdamW8bit"],
            2,
        ),
        (
            "c.toml",
            TOML,
            {"micro_batch": 2, "grad_ckpt": True},
            ["per_device_train_batch_size = 2", "gradient_checkpointing = true # no"],
            2,
        ),
        ("docker-compose.yml", COMPOSE, {"serving.max_model_len": 8192}, ['      - "8192"'], 1),
        (
            "compose.yml",
            "services:\n  a:\n    image: vllm/vllm-openai:v0.10.1\n    command:\n      - --model=a/b-7b\n      - --max-model-len\n      - ${LEN:-4096}\n",
            {"serving.max_model_len": 8192},
            ["      - ${LEN:-8192}"],
            1,
        ),
        (
            "compose.yml",
            "services:\n  a:\n    image: own/vllm\n    environment:\n      - MAX_MODEL_LEN=${LEN:-4096}\n",
            {"serving.max_model_len": 8192},
            ["      - MAX_MODEL_LEN=${LEN:-8192}"],
            1,
        ),
        (
            "task.yml",
            "type: task\ncommands:\n  - pip install trl\n  - python train.py\n    --model_name_or_path a/b-7b\n    --per_device_train_batch_size 8\n    --gradient_checkpointing True\n",
            {"micro_batch": 4, "grad_ckpt": False},
            ["    --per_device_train_batch_size 4", "    --gradient_checkpointing False"],
            2,
        ),
        (
            "recipe.yaml",
            "defaults:\n  port: 8000\n  length: 4096\ncommand: |\n  vllm serve a/b-7b --port {port} \\\n    --max-model-len {length}\n",
            {"serving.max_model_len": 8192},
            ["  length: 8192"],
            1,
        ),
        (
            "tree.yaml",
            "args:\n  per_device_train_batch_size: 8\n  gradient_accumulation_steps: 4\n  gradient_checkpointing: false\n  num_train_epochs: 2\n  save_strategy: 'no'\n  weight_decay: 0.0\n  per_device_eval_batch_size: 8\n  learning_rate: 1e-5\n  optim: adamw_torch\n",
            {"optimizer": "adamw_8bit"},
            ["  optim: adamw_8bit"],
            1,
        ),
        (
            ".env",
            "MAX_MODEL_LEN=2048  # tokens\nMAX_NUM_SEQS_1=4\n",
            {"serving.max_model_len": 1024},
            ["MAX_MODEL_LEN=1024  # tokens"],
            1,
        ),
    ],
)
def test_only_the_lines_in_question_change(name, text, changes, expected, changed):
    for original in (text, text.replace("\n", "\r\n") if not name.endswith(".sh") else text):
        done = patch(original, filename=name, changes=changes)
        assert dict(done.unplaced) == {}
        assert done.error is None
        now = {line.rstrip("\r\n") for line in done.text.splitlines(keepends=True)}
        assert [line for line in expected if line not in now] == []
        assert lines_lost(original, done.text) == changed
        if "\r\n" in original:
            assert "\n" not in done.text.replace("\r\n", "")


def test_a_diff_applies(tmp_path):
    done = patch(LF, filename="a.yaml", changes={"seq_len": 512, "micro_batch": 1})
    (tmp_path / "a.yaml").write_text(LF)
    (tmp_path / "d.patch").write_text(done.diff)
    subprocess.run(["git", "apply", "d.patch"], cwd=tmp_path, check=True)
    assert (tmp_path / "a.yaml").read_text() == done.text


def test_what_cannot_be_said_is_named_and_nothing_changes():
    done = patch(DEEPSPEED, filename="ds.json", changes={"lora.r": 8})
    assert done.unplaced == {"lora.r": "no-key"}
    assert done.text == DEEPSPEED
    assert done.error
    assert patch(LF, filename="a.yaml", changes={"attention": "nonsense"}).unplaced == {"attention": "not-a-value"}


def test_what_is_so_already_changes_nothing():
    assert patch(LF, filename="a.yaml", changes={"seq_len": 4096, "sharding": "zero2"}).diff == ""


def test_a_removed_last_flag_leaves_no_dangling_backslash():
    text = "deepspeed --module openrlhf.cli.train_sft \\\n   --max_len 2048 \\\n   --bf16 \\\n   --gradient_checkpointing\n"
    done = patch(text, filename="a.sh", changes={"grad_ckpt": False})
    assert done.text.endswith("   --bf16\n")


def test_batch_row_has_the_contract_form():
    row = {"id": "x", "framework": "llama-factory", "filename": "a.yaml", "text": LF, "set": {"seq_len": 512}}
    out = patch_batch_row(row)
    assert out["id"] == "x"
    assert out["error"] is None
    assert "+cutoff_len: 512  # long" in out["diff"]
    assert json.loads(json.dumps(out)) == out


_FILES = [
    ("a.yaml", LF),
    ("run.sh", SWIFT),
    ("v.sh", VERL),
    ("t.py", TRL),
    ("m.sh", MEGATRON),
    ("u.py", UNSLOTH),
    ("t.yaml", TUNE),
    ("n.yaml", NEMO),
]
_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "micro_batch": st.integers(1, 64),
        "seq_len": st.integers(1, 200_000),
        "lora.r": st.integers(1, 512),
        "fused_ce": st.booleans(),
        "grad_accum": st.integers(1, 64),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(_FILES), _CHANGES)
def test_what_is_written_reads_back(file, changes):
    name, text = file
    done = patch(text, filename=name, changes=changes)
    reading = read_documents(Source(name, done.text))
    job = to_job({f.name: f for f in reading.facts}, reading.framework)
    for field, value in changes.items():
        if field not in done.unplaced and job.get(field) is not None:
            assert job.get(field) == value
    before, after = text.splitlines(), done.text.splitlines()
    assert len(after) >= len(before)


@pytest.mark.shared
def test_development_rows(shared_data):
    rows = [json.loads(line) for line in (shared_data / "patches_dev.jsonl").read_text().splitlines() if line]
    for row in rows:
        done = patch_batch_row(row)
        lines = {line.rstrip("\r\n") for line in done["text"].splitlines(keepends=True)}
        assert [line for line in row["expect_lines"] if line not in lines] == [], row["id"]


def test_offload_that_is_off_already_stays_as_it_is_written():
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  offload_optimizer_device: none\n  offload_param_device: none\n  zero_stage: 3\nmixed_precision: bf16\nnum_processes: 8\n"
    done = patch(text, filename="zero3.yaml", changes={"offload": ["optimizer"]})
    assert done.text == text.replace("optimizer_device: none", "optimizer_device: cpu")


_LOADED = 'from transformers import AutoModelForCausalLM\nm = AutoModelForCausalLM.from_pretrained("org/model-7b"{})'


@pytest.mark.parametrize(
    "later", ['.to("cuda:1")\n', ".cuda()\n", "\nm.to(device)\n", "\nm = m.cuda()\n", ".to(torch.float16)\n"]
)
def test_a_model_that_is_moved_elsewhere_is_left_alone(later):
    done = patch(_LOADED.format("") + later, filename="run.py", changes={"quant": "int8"})
    assert done.unplaced
    assert done.text == _LOADED.format("") + later


_AXOLOTL_FULL = "base_model: org/thing-7b\nsequence_len: 1024\nmicro_batch_size: 2\nval_set_size: 0\ndatasets:\n  - path: x\n    type: alpaca\n"
_SWIFT = "swift sft \\\n  --model org/thing-7b \\\n  --tuner_type full \\\n  --max_length 512 \\\n  --per_device_train_batch_size 1\n"
_OPENRLHF = "deepspeed --module openrlhf.cli.train_sft \\\n  --model.model_name_or_path org/thing-7b \\\n  --data.max_len 512 \\\n  --ds.packing_samples \\\n  --ds.zero_stage 2 \\\n  --train.micro_batch_size 2\n"


@pytest.mark.parametrize(
    ("name", "text", "change"),
    [
        ("a.yaml", _AXOLOTL_FULL, {"generations": 4}),
        ("a.yaml", _AXOLOTL_FULL, {"lora.r": 8}),
        ("a.yaml", _AXOLOTL_FULL, {"quant": "nf4"}),
        ("a.yaml", _AXOLOTL_FULL, {"rollout.gpu_memory_utilization": 0.4}),
        ("s.sh", _SWIFT, {"completion_len": 256}),
        ("s.sh", _SWIFT, {"quant": "nf4"}),
        ("o.sh", _OPENRLHF, {"lora.r": 8}),
    ],
)
def test_what_the_run_makes_no_use_of_is_not_written(name, text, change):
    done = patch(text, filename=name, changes=change)
    assert (done.text, dict(done.unplaced)) == (text, dict.fromkeys(change, "without-use"))
    assert "lora_r: 8" in patch(_AXOLOTL_FULL, filename="a.yaml", changes={"method": "lora", "lora.r": 8}).text


def test_keys_of_a_second_trainer_are_added_only_where_it_is_started():
    assert patch(_SWIFT, filename="s.sh", changes={"tp": 2}).unplaced == {"tp": "no-key"}
    megatron = _SWIFT.replace("swift sft", "megatron sft").replace("per_device_train", "micro")
    assert "tensor_model_parallel_size 2" in patch(megatron, filename="s.sh", changes={"tp": 2}).text


def test_a_switch_is_taken_out_and_not_told_false():
    done = patch(_OPENRLHF, filename="o.sh", changes={"packing": False})
    assert done.text == _OPENRLHF.replace("  --ds.packing_samples \\\n", "")


def test_what_ends_programs_is_no_launch():
    text = 'pkill -9 sglang\nssh root@$HOST "killall vllm ; ray stop"\nsleep 3\n'
    assert patch(text, filename="run.sh", changes={"serving.max_model_len": 4096}).text == text


def test_a_value_is_kept_apart_from_the_comment_behind_an_empty_key():
    text = _AXOLOTL_FULL.replace("micro_batch_size: 2", "micro_batch_size: # 2 was too much")
    assert "micro_batch_size: 3 # 2 was" in patch(text, filename="a.yaml", changes={"micro_batch": 3}).text


@pytest.mark.parametrize(
    ("text", "optimizer", "line"),
    [
        (
            'actor:\n  backend: "fsdp:d2"\n  path: org/thing-7b\n  optimizer:\n    type: adam\nrollout:\n  max_concurrent_rollouts: 8\ngconfig:\n  n_samples: 2\n  max_new_tokens: 64\ncluster:\n  n_gpus_per_node: 8\n',
            "adamw_8bit",
            None,
        ),
        (
            "checkpoint_dir: checkpoints/org/thing-7b\nprecision: bf16-true\ndevices: 1\ntrain:\n  global_batch_size: 8\n  micro_batch_size: 1\n  lr_warmup_steps: 1\noptimizer:\n  class_path: torch.optim.AdamW\n",
            "adamw_8bit",
            "  class_path: bitsandbytes.optim.AdamW8bit",
        ),
    ],
    ids=["areal", "litgpt"],
)
def test_an_optimizer_is_written_as_the_framework_spells_it_or_not_at_all(text, optimizer, line):
    done = patch(text, filename="run.yaml", changes={"optimizer": optimizer})
    assert line in done.text.splitlines() if line else (done.text == text and done.unplaced)


def test_a_file_of_a_second_trainer_gets_none_of_the_first_ones_keys():
    text = "model: org/thing-7b\ntuner_type: full\nmax_length: 512\nmicro_batch_size: 1\ntensor_model_parallel_size: 2\nrecompute_granularity: full\ntruncation_strategy: delete\n"
    for change in ({"sharding": "zero3"}, {"optimizer": "adamw_8bit"}, {"grad_accum": 4}):
        assert patch(text, filename="m.yaml", changes=change).text == text


def test_in_a_form_that_takes_other_keys_only_what_stands_is_changed():
    text = "model: org/thing-7b\nmodel_class: llm\nkernel_config:\n  name: auto\ndist_config:\n  name: fsdp2\nmicro_batch_size: 1\ncutoff_len: 1024\n"
    assert patch(text, filename="v.yaml", changes={"grad_accum": 4}).text == text
    assert "cutoff_len: 512" in patch(text, filename="v.yaml", changes={"seq_len": 512}).text


def test_degrees_of_attention_and_experts_apart_are_read_and_not_rewritten():
    text = 'actor:\n  backend: "megatron:(attn:d2p1t4|ffn:d2p1t1e4)"\n  path: org/thing-7b\nrollout:\n  max_concurrent_rollouts: 8\ngconfig:\n  n_samples: 2\n  max_new_tokens: 64\ncluster:\n  n_gpus_per_node: 8\n'
    facts = {f.name: f.value for f in read_documents(Source("a.yaml", text)).facts}
    assert (facts["tp"], facts["ep"]) == (4, 4)
    assert patch(text, filename="a.yaml", changes={"tp": 2}).text == text


def test_a_launcher_s_flag_stands_before_the_script():
    text = "accelerate launch --num_processes 2 --use_deepspeed \\\n    train.py conf.yaml\n"
    done = patch(text, filename="run.sh", changes={"sharding": "zero2"}).text
    assert done.index("--zero_stage 2") < done.index("train.py")
    plain = text.replace(" --use_deepspeed", "")
    assert patch(plain, filename="run.sh", changes={"offload": ["optimizer"]}).text == plain


def test_a_value_that_points_to_another_field_s_is_not_written_over_there():
    text = "policy:\n  model_name: org/thing-7b\n  train_global_batch_size: 8\n  max_total_sequence_length: 2048\n  generation:\n    max_new_tokens: ${policy.max_total_sequence_length}\ngrpo:\n  num_prompts_per_step: 4\n"
    assert patch(text, filename="g.yaml", changes={"completion_len": 512}).text == text
    assert "max_total_sequence_length: 1024" in patch(text, filename="g.yaml", changes={"seq_len": 1024}).text


def test_a_loss_of_another_trainer_is_not_replaced():
    text = "model_name_or_path: org/thing-7b\nloss_type: sigmoid\nbeta: 0.1\nmax_length: 512\nper_device_train_batch_size: 1\nhub_model_revision: main\n"
    assert "chunked_nll" not in patch(text, filename="d.yaml", changes={"fused_ce": True}).text


def test_a_whole_length_is_not_added_where_prompt_and_completion_are_counted_apart():
    text = "model_name_or_path: org/thing-7b\nreward_funcs:\n- accuracy\nhub_model_revision: main\nnum_generations: 4\nmax_prompt_length: 256\nmax_completion_length: 512\nper_device_train_batch_size: 4\n"
    assert patch(text, filename="g.yaml", changes={"seq_len": 1024}).unplaced == {"seq_len": "without-use"}
    assert "max_completion_length: 128" in patch(text, filename="g.yaml", changes={"completion_len": 128}).text


def test_a_module_of_settings_gets_no_name_that_none_of_its_calls_takes():
    done = patch(XTUNER, filename="x.py", changes={"fused_ce": True})
    assert (done.text, set(done.unplaced)) == (XTUNER, {"fused_ce"})


@pytest.mark.parametrize(
    ("name", "text", "changes"),
    [
        ("infer.yaml", "model:\n  model_name: a/b-7b\n  model_max_length: 2048\ngeneration:\n  max_new_tokens: 9\nengine: VLLM\n", {"grad_ckpt": True}),
        ("run.sh", VERL.replace("adv_estimator=grpo", "adv_estimator=grpo actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"), {"param_dtype": "bf16"}),
        ("model.sh", 'MODEL_ARGS=" \\\n    --micro-batch-size 1 \\\n    --num-layers 32 \\\n    --seq-length 4096 \\\n    --use-mcore-models \\\n"\n', {"tp": 2}),
        ("tune.yaml", TUNE.replace("lora_llama3", "llama3").replace("  lora_rank: 8\n", ""), {"method": "lora"}),
        ("train.py", "from trl import DPOConfig\nfrom transformers import AutoModelForCausalLM\ndef f(args):\n    c = DPOConfig(max_length=9)\n    return AutoModelForCausalLM.from_pretrained(args.path)\n", {"model": "a/c-7b"}),
        ("eval.yaml", "model:\n  model_name: a/b-7b\n  torch_dtype_str: bfloat16\ntasks:\n  - evaluation_backend: lm_harness\n    task_name: x\n", {"micro_batch": 1}),
        ("rm.sh", "deepspeed --module openrlhf.cli.train_rm \\\n  --model.model_name_or_path a/b-7b \\\n  --data.max_len 512 \\\n  --train.micro_batch_size 2\n", {"nodes": 2}),
        ("two.sh", "swift rollout \\\n  --model a/b-7b\n\nmegatron rlhf \\\n  --rlhf_type grpo \\\n  --model a/b-7b \\\n  --micro_batch_size 8 \\\n  --num_generations 8 \\\n  --bf16 true\n", {"grad_accum": 4}),
        ("used.py", '"""\naccelerate launch cpo.py \\\n    --model_name_or_path a/b-7b \\\n    --per_device_train_batch_size 4 \\\n    --max_steps 9\n"""\nfrom trl import CPOTrainer\n', {"eval_micro_batch": 1}),
    ],
)  # fmt: skip
def test_what_would_reach_nothing_is_not_written(name, text, changes):
    done = patch(text, filename=name, changes=changes)
    assert (done.text, done.diff) == (text, "")
    assert done.error
    assert set(done.unplaced) == set(changes)


def test_a_notebook_is_changed_in_the_strings_of_its_lines():
    cells = ["# as short as it gets\n", UNSLOTH + "x = '数据'\n"]
    source = [
        {"cell_type": "code", "source": c.splitlines(keepends=True), "outputs": [], "metadata": {}} for c in cells
    ]
    text = json.dumps({"cells": source, "nbformat": 4}, indent=1, ensure_ascii=False)
    done = patch(text, filename="train.ipynb", changes={"seq_len": 1024, "quant": "nf4-double"})
    assert done.error is None
    assert json.loads(done.text)["cells"][0] == source[0]
    changed = "".join(json.loads(done.text)["cells"][1]["source"])
    assert changed == cells[1].replace("4096", "1024").replace("load_in_4bit = False", "load_in_4bit = True")
    assert lines_lost(text, done.text) == 2


def test_what_a_cell_printed_is_left_as_it_was():
    printed = {
        "cell_type": "code",
        "source": UNSLOTH.splitlines(keepends=True),
        "outputs": [{"text": UNSLOTH.splitlines(keepends=True)}],
    }
    text = json.dumps({"cells": [printed, printed], "nbformat": 4}, indent=1)
    done = patch(text, filename="train.ipynb", changes={"seq_len": 1024})
    assert done.error is None
    first, second = (cell for cell in json.loads(done.text)["cells"])
    assert (first["outputs"], second["outputs"]) == (printed["outputs"], printed["outputs"])


RUN = "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 4 --bf16 True"


@pytest.mark.parametrize(
    "text",
    [
        f"I run {RUN} and it fails.",
        f"We ran `{RUN}` and it fails.",
        f"{RUN} dies at the second step with an error",
        f"{RUN}，显存不够",
        "With SFTConfig per_device_train_batch_size=4, gradient_accumulation_steps=2, bf16=True. It dies.",
    ],
)
def test_a_sentence_is_no_configuration(text):
    done = patch(text, filename="input", changes={"micro_batch": 1})
    assert (done.text, done.unplaced) == (text, {"micro_batch": "in-sentence"})


@pytest.mark.parametrize(
    "text",
    [f"I run\n$ {RUN}  # as in the paper, says B\nand it fails.", f"```\n{RUN}\n```", "max_length=9\nbf16=true\n"],
)
def test_a_line_of_its_own_is_one(text):
    field = "micro_batch" if RUN in text else "seq_len"
    assert patch(text, filename="input", framework="transformers", changes={field: 1}).text != text


@pytest.mark.parametrize(
    ("filename", "text", "changes"),
    [
        ("__init__.py", 'from trl import ORPOConfig\n\n__all__ = ["ORPOConfig"]\n', {"sharding": "fsdp"}),
        (
            "serve.sh",
            "vllm serve Qwen/Qwen3-8B-FP8 --max-model-len 8192 --gpu-memory-utilization 0.9\n",
            {"quant": "nf4"},
        ),
        (
            "grpo.sh",
            "python src/open_r1/grpo.py --model_name_or_path Qwen/Qwen2.5-7B --max_prompt_length 512 --num_generations 8 "
            "--per_device_train_batch_size 1\n",
            {"seq_len": 1024},
        ),
        (
            "train.py",
            "from unsloth import FastLanguageModel\nfrom trl import SFTConfig\nm, t = FastLanguageModel.from_pretrained(\n"
            '    model_name="a/b-7b",\n)\nargs = SFTConfig(per_device_train_batch_size=1)\n',
            {"max_pixels": 401408},
        ),
        (
            "own.sh",
            "deepspeed main.py --model_name_or_path a/b-7b --per_device_train_batch_size 4 --max_seq_len 512 --zero_stage 2\n",
            {"optimizer": "adamw_8bit"},
        ),
        (
            "own.sh",
            "mpirun -n 8 python qlora_finetuning.py --base_model a/b-7b --micro_batch_size 8 --batch_size 128\n",
            {"sharding": "fsdp"},
        ),
        (
            "o.sh",
            "python -m openrlhf.cli.train_dpo --zero_stage 3 --max_len 9 --micro_train_batch_size 1\n",
            {"model": "a/b-7b"},
        ),
        ("o.yaml", "optimizer:\n  _component_: torch.optim.AdamW\n  lr: 1e-5\nbatch_size: 2\n", {"optimizer": None}),
        (
            "sft.sh",
            "torchrun -m verl.trainer.fsdp_sft_trainer data.max_length=9 data.micro_batch_size_per_gpu=2 model.partial_pretrain=a/b-7b\n",
            {"tp": 2},
        ),
        (
            "x.py",
            "from trlx.data.configs import TrainConfig, TRLConfig\nc = TRLConfig(train=TrainConfig(seq_length=9, batch_size=2), method=PPOConfig(num_rollouts=8))\n",
            {"micro_batch": 1},
        ),
        (
            "ds.json",
            '{\n  "train_batch_size": "$BS",\n  "gradient_accumulation_steps": 1,\n  "zero_optimization": {"stage": 3}\n}\n',
            {"micro_batch": 3},
        ),
        (
            "nested.yaml",
            "grpo:\n  per_device_train_batch_size: 6\n  num_generations: 6\n  max_completion_length: 9\n  use_vllm: true\nlora:\n  r: 16\n",
            {"lora.r": 8},
        ),
        (
            "two.sh",
            'A="0,1"\nB="2,3"\nCUDA_VISIBLE_DEVICES="$A" vllm serve a/b-7b &\nCUDA_VISIBLE_DEVICES="$B" torchrun train.py --model_name_or_path a/b-7b\n',
            {"gpus": 3},
        ),
    ],
)
def test_what_would_reach_nothing_is_refused(filename, text, changes):
    done = patch(text, filename=filename, changes=changes)
    assert (done.text, set(done.unplaced)) == (text, set(changes))


def test_code_takes_a_list_and_the_key_that_is_read_is_changed():
    code = "from peft import LoraConfig\nc = LoraConfig(r=8, target_modules='all-linear')\n"
    done = patch(code, filename="t.py", changes={"lora.targets": ["q_proj", "v_proj"]})
    assert "target_modules=['q_proj', 'v_proj']" in done.text.replace('"', "'")
    recipe = XTUNER + "load_from = None\npretrained_model_name_or_path = 'a/b-7b'\n"
    done = patch(recipe, filename="r.py", framework="xtuner", changes={"model": "a/c-1b"})
    assert "load_from = None" in done.text
    assert "a/c-1b" in done.text


def test_transformers_own_arguments_take_no_key_of_a_framework_built_on_it() -> None:
    script = """from transformers import TrainingArguments
from trl import SFTTrainer

args = TrainingArguments(output_dir="out", per_device_train_batch_size=4)
trainer = SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args)
"""
    transformers = pytest.importorskip("transformers")
    fields = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    changed = ""
    for change in ({"seq_len": 1024}, {"packing": True}, {"offload": ["activations"]}, {"grad_ckpt": True}):
        done = patch(script, filename="train.py", framework="trl", changes=change)
        changed += done.text
        call = next(n for n in ast.walk(ast.parse(done.text)) if isinstance(n, ast.Call))
        assert {keyword.arg for keyword in call.keywords} <= fields, change
    assert "gradient_checkpointing=True" in changed


@pytest.mark.parametrize("quote", ['"', "'", ""])
def test_a_switch_is_taken_out_of_a_list_of_arguments_with_its_line(quote):
    items = "".join(f"      - {quote}{word}{quote}\n" for word in ("--model", "a/b-7b", "--enforce-eager"))
    text = f"containers:\n  - image: vllm/vllm-openai:v0.8.5\n    args:\n{items}"
    done = patch(text, filename="deployment.yaml", changes={"serving.cuda_graphs": True})
    assert done.text == text.replace(f"      - {quote}--enforce-eager{quote}\n", "")


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"serving.cuda_graphs": True}, '["vllm", "serve", "a/b-7b", "--max-model-len", "4096"]'),
        ({"serving.max_model_len": None}, '["vllm", "serve", "a/b-7b", "--enforce-eager"]'),
    ],
)
def test_an_argument_within_brackets_leaves_no_empty_string(change, left):
    words = '["vllm", "serve", "a/b-7b", "--enforce-eager", "--max-model-len", "4096"]'
    done = patch(f"image: vllm/vllm-openai:v0.8.5\ncommand: {words}\n", filename="compose.yaml", changes=change)
    assert done.text.endswith(f"command: {left}\n")


def test_the_value_that_holds_where_a_variable_is_not_set_is_what_changes():
    text = 'LEN="${LEN:-4096}"\nswift sft --model a/b-7b --max_length "${LEN}" --gradient_accumulation_steps ${GA:-8}\n'
    assert patch(text, filename="a.sh", changes={"seq_len": 2048}).text == text.replace(":-4096", ":-2048")
    assert patch(text, filename="a.sh", changes={"grad_accum": 16}).text == text.replace(":-8", ":-16")
    text = 'MODEL_ID="${MODEL_ID:-a/b-7b}"\ntorchrun train.py --model_id "$MODEL_ID"\necho "run: python demo.py --model_id $MODEL_ID --x 1"\n'
    assert patch(text, filename="a.sh", changes={"model": "c/d-8b"}).text == text.replace("a/b-7b", "c/d-8b")


def test_a_flag_that_a_branch_gives_is_not_given_twice():
    text = 'CMD=(swift sft --model a/b-7b --max_length 2048)\nif [ "$N" -gt 1 ]; then\n  CMD+=(--deepspeed "$DS")\nfi\n"${CMD[@]}"\n'
    done = patch(text, filename="a.sh", framework="ms-swift", changes={"sharding": "zero3"})
    assert done.text.count("--deepspeed") == 1
    assert done.unplaced or 'CMD+=(--deepspeed "zero3")' in done.text
    text = "steps=$((total / (cards * nodes)))\nswift sft --model a/b-7b --max_length 9 --gradient_accumulation_steps=$steps\n"
    done = patch(text, filename="a.sh", framework="ms-swift", changes={"grad_accum": 4})
    assert done.text.count("--gradient_accumulation_steps") == 1


def test_the_lengths_of_model_and_data_change_together():
    text = "dataset:\n  seq_length: 8192\n  packed_sequence_specs:\n    packed_sequence_size: 8192\ntrain:\n  train_iters: 9\n  micro_batch_size: 1\nmodel:\n  seq_length: 8192\n"
    done = patch(text, filename="a.yaml", framework="megatron-bridge", changes={"seq_len": 4096})
    assert done.text == text.replace("8192", "4096")


def test_a_fused_loss_of_axolotl_comes_with_its_plugin() -> None:
    """``chunked_cross_entropy`` makes the logits whole and widens them chunk by chunk: it is no fused loss."""
    config = "base_model: a/b-7b\nadapter: qlora\nchunked_cross_entropy: true\nplugins:\n  - axolotl.integrations.spectrum.SpectrumPlugin\n"
    assert _fused(config) is None
    done = patch(config, filename="a.yaml", framework="axolotl", changes={"fused_ce": True})
    assert "liger_fused_linear_cross_entropy: true" in done.text
    assert "  - axolotl.integrations.liger.LigerPlugin" in done.text
    assert "chunked_cross_entropy" not in done.text
    assert _fused(done.text) is True


AXOLOTL = "base_model: a/b-7b\nsequence_len: 4096\nplugins:\n  - axolotl.integrations.kd.KDPlugin\n"
CUT = AXOLOTL + "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"


@pytest.mark.parametrize(
    ("config", "before", "wanted", "says"),
    [
        (CUT, True, False, "cut_cross_entropy: false"),
        (CUT + "liger_fused_linear_cross_entropy: false\n", True, False, "cut_cross_entropy: false"),
        (CUT + "cut_cross_entropy: false\n", False, True, "cut_cross_entropy: true"),
        (AXOLOTL + "cut_cross_entropy: false\n", False, True, "  - axolotl.integrations.liger.LigerPlugin"),
        (AXOLOTL + "liger_cross_entropy: true\n", None, True, "liger_cross_entropy: false"),
        (AXOLOTL.replace(":\n  -", ":"), None, True, "[axolotl.integrations.kd.KDPlugin, axolotl.integrations.liger"),
    ],
)
def test_the_plugins_that_axolotl_has_stay_beside_that_of_the_fused_loss(config, before, wanted, says) -> None:
    """``cut_cross_entropy`` is on by default where its plugin is there (``CutCrossEntropyArgs``)."""
    assert _fused(config) is before
    done = patch(config, filename="a.yaml", framework="axolotl", changes={"fused_ce": wanted})
    assert says in done.text
    assert "axolotl.integrations.kd.KDPlugin" in done.text
    assert _fused(done.text) is wanted


def _fused(config: str) -> bool | None:
    reading = read_documents(Source("a.yaml", config))
    return to_job({f.name: f for f in reading.facts}, reading.framework).fused_ce
