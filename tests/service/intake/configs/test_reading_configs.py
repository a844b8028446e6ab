from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoc.evidence import Source
from oomdoc.intake.configs import TABLES, read_documents, to_job
from oomdoc.intake.configs.forms.yaml import parse_yaml
from oomkb.frameworks import canonical
from oomkb.frameworks.declared import records


def read(text, name="pasted.txt", **more):
    reading = read_documents(Source(name, text), **more)
    return reading, {f.name: f.value for f in reading.facts}


def job_of(text, name="pasted.txt"):
    reading = read_documents(Source(name, text))
    return to_job({f.name: f for f in reading.facts}, reading.framework, reading.versions)


def test_tables_are_sorted_and_equal_the_records():
    names = [t.name for t in TABLES]
    assert names == sorted(names)
    assert set(names) == {record.name for record in records() if record.keys or record.rules or record.reads}
    assert all(canonical(n) == n for n in names)


def test_yaml_between_chinese_prose_with_places():
    text = "大家好，我在 3090 上训练\n\nmodel_name_or_path: 01-ai/Yi-1.5-6B-Chat\nstage: sft\nfinetuning_type: lora\ncutoff_len: 4096  # 太长\nfp16: true\n\n显存不够怎么办？"
    reading, facts = read(text)
    assert reading.framework == "llama-factory"
    assert facts["seq_len"] == 4096
    assert facts["method"] == "lora"
    span = next(f.span for f in reading.facts if f.name == "seq_len")
    assert (span.line, span.column, span.source) == (6, 1, "pasted.txt")
    assert "太长" in span.text


def test_swift_command_with_environment_prefix():
    text = "NPROC_PER_NODE=4 \\\nCUDA_VISIBLE_DEVICES=0,1,2,3 \\\n!swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B-Instruct \\\n  --train_type lora --max_length 8192 --deepspeed zero3_offload --quant_bits 4"
    _, facts = read(text, "run.sh")
    assert facts["objective"] == "dpo"
    assert facts["method"] == "qlora"
    assert facts["gpu_count"] == 4
    assert facts["zero_stage"] == 3
    assert facts["offload"] == ["optimizer", "param"]


@pytest.mark.parametrize(("use", "shared"), [("true", True), ("false", False)])
def test_no_engine_is_switched_on_by_its_mode_alone(use, shared):
    _, facts = read(f"swift rlhf --rlhf_type grpo --model a/b-7b --use_vllm {use} --vllm_mode colocate", "run.sh")
    assert facts["rollout.colocated"] is shared


def test_shell_variables_arithmetic_and_defaults():
    text = 'HOME_DIR=${HOME_DIR:-"${HOME}/m"}\nMODEL=$HOME_DIR/Qwen3-30B-A3B\nP=$((1024 * 2))\npython3 -m verl.trainer.main_ppo \\\n  actor_rollout_ref.model.path=$MODEL \\\n  data.max_prompt_length=$P data.max_response_length=$((P * 4)) \\\n  trainer.nnodes=${NODES:-2} trainer.n_gpus_per_node=8 algorithm.adv_estimator=grpo\n'
    _, facts = read(text, "run.sh")
    assert facts["model"] == "Qwen3-30B-A3B"
    assert (facts["prompt_len"], facts["completion_len"]) == (2048, 8192)
    assert (facts["nodes"], facts["gpus"], facts["gpu_count"]) == (2, 8, 16)


def test_a_comment_inside_a_command_cuts_it_off():
    text = "deepspeed --module openrlhf.cli.train_sft \\\n  --pretrain m/m-7b \\\n  --zero_stage 2 \\\n  # --adam_offload \\\n  --micro_train_batch_size 2 \\\n  --max_len 2048\n"
    reading, facts = read(text, "run.sh")
    assert "micro_batch" not in facts
    assert {(i.setting, i.reason) for i in reading.inactive} == {
        ("micro_train_batch_size", "inactive.cut-by-comment"),
        ("max_len", "inactive.cut-by-comment"),
    }


@pytest.mark.parametrize(
    ("name", "text", "reason", "setting"),
    [
        (
            "run.sh",
            "NPROC_PER_NODE=1 swift sft --model a/b-7b --train_type full --deepspeed zero3 --max_length 9",
            "one-process",
            "deepspeed",
        ),
        (
            "run.sh",
            "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model a/b-7b --use_vllm false --vllm_mode colocate"
            " --offload_optimizer true",
            "engine-off",
            "offload_optimizer",
        ),
        (
            "a.yaml",
            "model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\ncutof_len: 4\n",
            "unknown-key",
            "cutof_len",
        ),
        (
            "fsdp.yaml",
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: NO_WRAP\n  fsdp_sharding_strategy: FULL_SHARD\nnum_processes: 4\n",
            "one-unit",
            "fsdp_config.fsdp_auto_wrap_policy",
        ),
        (
            "t.py",
            'import torch\nimport os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"\n',
            "set-after-import",
            "PYTORCH_CUDA_ALLOC_CONF",
        ),
        (
            "run.sh",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\npython train.py --per_device_train_batch_size 2\n",
            "not-exported",
            "PYTORCH_CUDA_ALLOC_CONF",
        ),
        (
            "run.sh",
            "CUDA_VISIBLE_DEVICES=0,1 python train.py --model_name_or_path a/b --per_device_train_batch_size 2\n",
            "data-parallel",
            "CUDA_VISIBLE_DEVICES",
        ),
        ("run.sh", "vllm serve a/b-7b\n  --max-model-len 4096\n", "missing-continuation", "max-model-len"),
    ],
)
def test_settings_not_in_effect(name, text, reason, setting):
    reading, _ = read(text, name)
    assert (setting, f"inactive.{reason}") in {(i.setting, i.reason) for i in reading.inactive}


def test_what_is_in_effect_is_not_called_inactive():
    text = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nNPROC_PER_NODE=8 swift sft --model a/b-7b --train_type lora --deepspeed zero3\n"
    assert read(text, "run.sh")[0].inactive == ()


def test_deepspeed_json_and_its_looking_up():
    config = json.dumps(
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "bf16": {"enabled": True}}
    )
    _, facts = read(config, "ds.json")
    assert (facts["zero_stage"], facts["offload"], facts["param_dtype"]) == (3, ["param"], "bf16")
    command = "torchrun --nproc_per_node 2 train.py --per_device_train_batch_size 2 --deepspeed conf/ds.json\n"
    _, facts = read(command, "run.sh", others=[Source("ds.json", config)])
    assert (facts["zero_stage"], facts["micro_batch"], facts["gpu_count"]) == (3, 2, 2)


def test_python_keyword_arguments_through_variables():
    text = "max_len = 1024 * 4\nfrom trl import DPOConfig\nargs = DPOConfig(max_length=max_len, per_device_train_batch_size=2, bf16=True)\nbatch = collate(max_length=7)\n"
    reading, facts = read(text, "train.py")
    assert reading.framework == "trl"
    assert (facts["objective"], facts["seq_len"], facts["micro_batch"], facts["autocast"]) == ("dpo", 4096, 2, "bf16")


def test_quantisation_in_a_script():
    text = 'import torch\nfrom transformers import AutoModelForCausalLM, BitsAndBytesConfig\nb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True)\nm = AutoModelForCausalLM.from_pretrained("google/gemma-2-27b-it", quantization_config=b, torch_dtype=torch.bfloat16)\n'
    job = job_of(text, "a.py")
    assert (job.quant, job.model, job.param_dtype) == ("nf4-double", "google/gemma-2-27b-it", "bf16")


def test_arguments_in_a_compose_file():
    text = 'services:\n  llm:\n    image: vllm/vllm-openai:v0.8.5\n    environment:\n      - NCCL_DEBUG=WARN\n    command:\n      - --model\n      - a/b-24b\n      - --max-model-len\n      - "32768"\n'
    reading, facts = read(text, "docker-compose.yml")
    assert (reading.framework, facts["max_model_len"], facts["objective"]) == ("vllm", 32768, "inference")
    assert {f.name: f.value for f in reading.facts}["env.NCCL_DEBUG"] == "WARN"


def test_megatron_sizes_become_a_model():
    text = "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 40 --hidden-size 5120 --num-attention-heads 40 --ffn-hidden-size 13824 --swiglu --seq-length 4096 --micro-batch-size 2 --tensor-model-parallel-size 4 --bf16"
    job = job_of(text, "run.sh")
    assert job.model["hidden_size"] == 5120
    assert job.model["num_hidden_layers"] == 40
    assert (job.tp, job.gpus, job.nodes, job.param_dtype) == (4, 8, 2, "bf16")
    assert job.model["hidden_dropout"] == 0.1  # unless set otherwise
    plain = job_of(text.replace("--swiglu", "--hidden-dropout 0.0"), "run.sh").model
    assert (plain["hidden_dropout"], plain["attention_dropout"], plain["use_parallel_residual"]) == (0.0, 0.1, False)


def test_zero_turns_mixed_precision_into_held_dtype():
    job = job_of(
        "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\nbf16: true\ndeepspeed: x/ds_z3_config.json\n",
        "a.yaml",
    )
    assert (job.sharding, job.param_dtype, job.autocast) == ("zero3", "bf16", "none")


def test_scattered_keys_in_prose():
    _, facts = read(
        "I set per_device_train_batch_size=1 and cutoff_len 从 4096 改成，still OOM; gradient_accumulation_steps: 16"
    )
    assert facts["micro_batch"] == 1
    assert facts["grad_accum"] == 16


def test_duplicate_keys_the_last_one_counts():
    assert (
        read("base_model: a/b\nsequence_len: 1\nsequence_len: 2048\nsample_packing: true\n", "a.yaml")[1]["seq_len"]
        == 2048
    )


_BITS = st.sampled_from(
    [
        "a:",
        " ",
        "\n",
        "- ",
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        "\\\n",
        "--flag ",
        "$",
        "${A",
        "(",
        ")",
        "#",
        "`",
        "```\n",
        "cutoff_len: 1",
        "x=1",
        "SFTConfig(",
        "<<EOF\n",
        "&a ",
        "*a",
        "|",
        "\r\n",
        "\t",
        "显存",
        "python t.py ",
        "\x00",
        "stage: 3",
        "9" * 30,
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_BITS, max_size=60),
    st.sampled_from(["p.txt", "a.yaml", "a.sh", "a.json", "a.py", "a.toml", "Dockerfile", "a.ipynb"]),
)
def test_no_text_breaks_the_reader(pieces, name):
    text = "".join(pieces)
    reading, _ = read(text, name)
    to_job({f.name: f for f in reading.facts}, reading.framework)
    for fact in reading.facts:
        assert 1 <= fact.span.line <= text.count("\n") + 1


def test_bombs_are_bounded():
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"k{i}: &k{i} [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" for i in range(50))
    read(bomb, "a.yaml")
    read("[" * 100_000, "a.json")
    read("x = " + "(" * 5_000, "a.py")
    read("".join(f"{' ' * i}k:\n" for i in range(500)), "a.yaml")
    read("per_device_train_batch_size: " + "9" * 10_000, "a.yaml")


@pytest.mark.parametrize(
    ("name", "text", "fact", "value"),
    [
        (
            "a/run_llama3_8B.sh",
            "deepspeed train.py --model_name_or_path $1 --zero_stage 3 --per_device_train_batch_size 2",
            "model",
            "meta-llama",
        ),
        (
            "opt/run_6.7b_lora.sh",
            "deepspeed main.py --model_name_or_path $1 --zero_stage 3 --per_device_train_batch_size 2",
            "params_b",
            6.7,
        ),
        (
            "x.sh",
            "BASE=/data/Qwen2.5-7B-Instruct\ntorchrun train.py --bert_model bert-large-uncased --per_device_train_batch_size 2 --fp16 true",
            "model",
            "bert-large-uncased",
        ),
    ],
)
def test_a_model_named_elsewhere_is_a_hint(name, text, fact, value):
    found = {f.name: f for f in read_documents(Source(name, text)).facts}
    assert fact in found, sorted(found)
    assert not found[fact].stated
    assert str(found[fact].value).startswith(str(value))


def test_commands_kept_in_strings_know_the_variables_around_them():
    text = 'MODEL="meta-llama/Llama-3.1-8B-Instruct"\nOPTS="--gradient_accumulation_steps 4 --bf16 true"\nCMD="deepspeed train.py --model_name_or_path $MODEL --per_device_train_batch_size 2"\neval $CMD $OPTS\n'
    _, facts = read(text, "run.sh")
    assert facts["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert (facts["micro_batch"], facts["grad_accum"]) == (2, 4)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "run.sh",
            "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --context-len 32000",
            {"serving.max_model_len": 32000},
        ),
        (
            "c.toml",
            '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\nlocal_batch_size = 1\n'
            "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8\n[activation_checkpoint]\nmode = 'full'\n",
            {"model": "llama3-8B", "sharding": "hsdp", "seq_len": 8192, "grad_ckpt": True},
        ),
        (
            "ppo.yaml",
            "max_seq_len: 2048\nvariables:\n  max_gen_len: 32\n  generations_per_prompt: 4\nmodel:\n  loss_type: ppo\n"
            "  pretrained_model_name_or_path: org/thing-8b\nglobal_train_batch_size: 32\ndevice_train_microbatch_size: 1\n"
            "fsdp_config:\n  sharding_strategy: FULL_SHARD\n  activation_checkpointing: true\nprecision: amp_bf16\n",
            {"objective": "ppo", "completion_len": 32, "generations": 4, "sharding": "fsdp"},
        ),
        (
            "train.yaml",
            "trainer:\n  precision: bf16-true\n  accumulate_grad_batches: 2\n  max_epochs: 1\nmodel:\n  hf_path: org/thing-8b\n"
            "  optim:\n    optimizer_class: torch.optim.AdamW\n    lr: 1e-5\ndata:\n  chat_template: x\n  num_proc: 4\n  cache: true\nseed_everything: 1\nlogging_level: DEBUG\n",
            {"model": "org/thing-8b", "param_dtype": "bf16", "grad_accum": 2, "optimizer": "adamw"},
        ),
    ],
)
def test_settings_under_other_names(name, text, expected):
    facts = {fact.name: fact.value for fact in read_documents(Source(name, text)).facts if fact.stated}
    assert {field: facts.get(field) for field in expected} == expected


def test_the_cell_that_imports_the_builder_names_the_run_and_tools_of_data_configure_none_of_it():
    text = (
        "```python\nfrom unsloth.dataprep import SyntheticDataKit\n"
        "g = SyntheticDataKit.from_pretrained(model_name='a/b-3b', max_seq_length=2048)\n```\n"
        "```python\nfrom unsloth import FastLanguageModel\n"
        "m, t = FastLanguageModel.from_pretrained(model_name='a/b-3b', max_seq_length=1024, load_in_4bit=True)\n```\n"
        "```python\nfrom trl import SFTConfig, SFTTrainer\na = SFTConfig(per_device_train_batch_size=2, optim='adamw_8bit',"
        " gradient_accumulation_steps=4, learning_rate=1e-4, max_steps=5, logging_steps=1, seed=1)\n```\n"
    )
    reading = read_documents(Source("notes.md", text))
    assert reading.framework == "unsloth"
    assert {fact.name: fact.value for fact in reading.facts}["seq_len"] == 1024


def test_a_key_means_what_the_nearest_table_says():
    # `bf16` is autocast in transformers, whose arguments LLaMA-Factory takes; Megatron's, which it takes too, hold
    # the parameters in it. Without pure_bf16 the trainable weights are raised to fp32 (model/adapter.py).
    text = (
        "model_name_or_path: org/thing-8b\nstage: sft\nfinetuning_type: full\ntemplate: qwen\ncutoff_len: 2048\n"
        "per_device_train_batch_size: 1\nbf16: true\n"
    )
    _, facts = read(text)
    assert (facts["autocast"], facts.get("param_dtype")) == ("bf16", None)
    _, pure = read(text.replace("bf16: true", "pure_bf16: true"))
    assert (pure["autocast"], pure["param_dtype"]) == ("none", "bf16")


def test_of_sections_taken_over_the_nearest_one_counts() -> None:
    text = """
base: &base {x: 1}
other: &other
  lr: 3
  seq_len: 7
near: &near
  <<: *other
  lr: 2
mine:
  <<: [*near, *other]
  own: 1
"""
    entries = parse_yaml(text)[0]
    assert [entry.value for entry in entries if entry.key == "mine.lr"] == [2]
    assert [entry.value for entry in entries if entry.key == "mine.seq_len"] == [7]


def test_sections_taken_over_do_not_multiply() -> None:
    text = "a: &a\n  x: 1\n" + "".join(
        f"b{n}: &b{n}\n  <<: [*a{''.join(f', *b{m}' for m in range(n))}]\n  k{n}: 1\n" for n in range(18)
    )
    assert len(parse_yaml(text)[0]) < 300
