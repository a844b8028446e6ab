"""Configurations of frameworks that nobody wrote a reader for, and what stands around settings in files that are known."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from oomdoc.cli.main import app
from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.intake.configs import patch, read_documents, to_job
from oomkb.frameworks import complete

STRANGE = """\
# we were unable to train at 32k: CUDA out of memory while saving the checkpoint
task: instruct
backbone:
  name_or_path: Qwen/Qwen2.5-7B
  bits: 4
tuning:
  kind: lora
  lora_rank: 16
  freeze_embeddings: true
train:
  micro_batch_size: 2
  gradient_accumulation_steps: 8
  gradient_checkpointing: true
  sequence_len: 4096
  shard_strategy: everything
judge:
  model_name_or_path: org/judge-70b
  micro_batch_size: 64
eval:
  max_seq_length: 32768
paths:
  out: results
seed: 7
"""


def job_of(text, name="run.sh", others=()):
    reading = read_documents(Source(name, text), others)
    return to_job({f.name: f for f in reading.facts}, reading.framework, reading.versions)


def test_an_unknown_framework_is_named_and_nothing_is_made_up():
    evidence = read([Source("strange.yaml", STRANGE)])
    assert evidence.framework == "unknown"
    found = evidence.recognised
    assert found.name == "unknown"
    assert found.probability < 0.5
    assert found.unknown_keys > 0.5
    assert {"backbone.bits", "tuning.freeze_embeddings", "train.shard_strategy"} <= {s.key for s in found.unread}
    job = to_job(evidence.facts, evidence.framework)
    assert (job.micro_batch, job.seq_len, job.grad_accum, job.grad_ckpt) == (2, 4096, 8, True)
    assert job.framework == "unknown"
    assert all("Trainer" not in a.why and "transformers" not in a.why for a in complete(job).assumed.values())
    assert all(fact.confidence < 0.6 for fact in evidence.facts.values() if fact.origin == "config")


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({"micro_batch": 1}, "train:\n  micro_batch_size: 2", "train:\n  micro_batch_size: 1"),
        ({"seq_len": 1024}, "  sequence_len: 4096", "  sequence_len: 1024"),
        ({"lora.r": 8}, "  lora_rank: 16", "  lora_rank: 8"),
        ({"grad_ckpt": False}, "  gradient_checkpointing: true", "  gradient_checkpointing: false"),
    ],
)
def test_of_an_unknown_framework_a_number_or_switch_is_written_where_one_place_says_it(changes, old, new):
    assert STRANGE.count(old) == 1
    done = patch(STRANGE, filename="strange.yaml", changes=changes)
    assert done.text == STRANGE.replace(old, new)
    assert done.framework == "unknown"


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (STRANGE, {"quant": "nf4"}),
        (STRANGE, {"optimizer": "adamw_8bit"}),
        (STRANGE, {"tp": 2}),
        (STRANGE, {"attention": "flash2"}),
        (STRANGE.replace("tuning:\n", "tuning:\n  micro_batch_size: 2\n"), {"micro_batch": 1}),
        (STRANGE.replace("seed: 7", "global_batch_size: 32"), {"micro_batch": 3}),
        (STRANGE.replace("seed: 7", "batch_size_tokens: 8192"), {"micro_batch": 1}),
        (STRANGE.replace("seed: 7", "max_position_embeddings: 4096"), {"seq_len": 8192}),
        (STRANGE.replace("micro_batch_size: 2", "micro_batch_size: ${batch}"), {"micro_batch": 1}),
    ],
)
def test_of_an_unknown_framework_nothing_else_is_written(text, changes):
    done = patch(text, filename="strange.yaml", changes=changes)
    assert done.text == text
    assert done.error
    assert dict(done.unplaced) == dict.fromkeys(changes, "unknown-framework")


def test_every_door_names_it(tmp_path):
    path = tmp_path / "strange.yaml"
    path.write_text(STRANGE)
    for command in (
        ["plan", str(path), "--gpu", "A100", "--format", "json"],
        ["estimate", str(path), "--set", "gpu=A100", "--format", "json"],
        ["check", str(path), "--gpu", "A100", "--format", "json"],
        ["diagnose", "--config", str(path), "--format", "json", "--no-plans"],
    ):
        document = json.loads(CliRunner().invoke(app, command).stdout)
        told = document["files"][0]["framework"] if command[0] == "check" else document["framework"]
        assert told["name"] == "unknown", command
        assert 0 <= told["probability"] < 0.5
        assert told["unknown_keys"] > 0.5
    refused = CliRunner().invoke(app, ["fix", str(path), "--set", "quant=nf4"])
    assert refused.exit_code == 2 or refused.exception is not None
    assert "quant: not changed" in refused.output
    written = CliRunner().invoke(app, ["fix", str(path), "--set", "micro_batch=1"])
    assert written.exit_code == 0
    assert "not known" in written.stderr


def test_in_a_known_framework_a_key_goes_only_where_it_is_known_to_be_taken():
    nested = "data:\n  train_file: a\ntraining_args:\n  output_dir: out\n  per_device_train_batch_size: 4\n  learning_rate: 1e-5\n  num_train_epochs: 1\n  bf16: true\n  gradient_accumulation_steps: 2\n"
    done = patch(nested, filename="t.yaml", framework="transformers", changes={"grad_ckpt": True})
    assert "  gradient_checkpointing: true\n" in done.text
    script = "python train.py --model_name_or_path a/b-7b --per_device_train_batch_size 4 --bf16 True --output_dir o --learning_rate 1e-5\n"
    for changes in ({"lora.r": 8}, {"seq_len": 512}, {"max_pixels": 1000}, {"quant": "nf4"}):
        assert patch(script, filename="t.sh", changes=changes).text == script
    code = 'from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained("a/b-7b")\n'
    assert patch(code, filename="t.py", changes={"micro_batch": 1}).text == code


def test_what_is_not_read_back_is_not_written():
    text = "MB=4\ntorchrun run.py --micro-batch-size $MB --tensor-model-parallel-size $MB --seq-length 2048 pretrain_gpt.py\n"
    done = patch(text, filename="m.sh", framework="megatron", changes={"micro_batch": 1})
    assert done.text == text
    assert dict(done.unplaced) == {"micro_batch": "not-read-back"}


def test_comments_and_labels_of_a_configuration_tell_of_no_failure():
    evidence = read([Source("strange.yaml", STRANGE)])
    assert not evidence.failures
    assert not evidence.signals
    assert not evidence.prose
    fenced = "How much do I need?\n\n```yaml\n# CUDA out of memory with 8192\nmodel_name_or_path: a/b-7b\nstage: sft\nfinetuning_type: lora\ncutoff_len: 4096\n```\n"
    assert not read([Source("input", fenced)]).failures


def test_output_in_a_file_that_is_named_like_a_script_is_still_output():
    text = 'python train.py\nTraceback (most recent call last):\n  File "train.py", line 1, in <module>\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n'
    assert read([Source("run.sh", text)]).failures


def test_labels_of_a_case_are_no_flags():
    text = 'case "$1" in\n  --model)\n    MODEL=$2 ;;\n  -d | --deepspeed )\n    DS=$2 ;;\nesac\npython train.py --model_name_or_path org/a-7b --per_device_train_batch_size 2 --bf16 True --output_dir o\n'
    reading = read_documents(Source("run.sh", text))
    assert reading.inactive == ()
    keys = {s.key for d in reading.documents for s in d.settings}
    assert not keys & {"model", "deepspeed", "d"}


def test_a_script_as_it_is_written():
    job = job_of(
        "#SBATCH --nodes=4\n#SBATCH --gres=gpu:a100:8\nNPROC=${NPROC:-8}\nMB=${BS:-4}\n"
        "ARGS=(\n  --per_device_train_batch_size $MB\n  --gradient_accumulation_steps $((128 / (MB * NPROC)))\n)\n"
        "srun torchrun --nproc-per-node=$NPROC train.py --model_name_or_path org/a-7b --bf16 True --output_dir o"
        " --learning_rate 1e-5 ${ARGS[@]}\n"
    )
    assert (job.micro_batch, job.grad_accum, job.nodes, job.gpus, job.model) == (4, 4, 4, 8, "org/a-7b")


def test_each_role_owns_its_settings():
    job = job_of(
        "trl vllm-serve --model org/a-7b --tensor_parallel_size 2 --max_model_len 4096 &\n"
        "accelerate launch --num_processes 4 grpo.py --model_name_or_path org/a-7b --per_device_train_batch_size 2"
        " --num_generations 8 --use_vllm true --beta 0.04 --max_completion_length 512\n"
    )
    assert (job.tp, job.rollout.tensor_parallel, job.serving, job.world) == (None, 2, None, 4)
    assert [m.role for m in job.extra_models] == ["reference"]


@pytest.mark.parametrize(("beta", "roles"), [("0.0", []), ("0.01", ["reference"])])
def test_a_reference_is_loaded_where_the_divergence_counts(beta, roles):
    text = f"model_name_or_path: org/a-7b\nnum_generations: 8\nmax_completion_length: 512\nbeta: {beta}\nper_device_train_batch_size: 2\n"
    assert [m.role for m in job_of(text, "grpo.yaml").extra_models] == roles


@pytest.mark.parametrize(
    ("lines", "size"),
    [
        ("do_eval: false", None),
        ("eval_strategy: 'no'", None),
        ("eval_strategy: steps", 8),
        ("do_eval: true\neval_strategy: 'no'", 8),
        ("logging_steps: 1", 8),
    ],
)
def test_an_evaluation_that_is_switched_off_is_not_priced(lines, size):
    text = f"model_name_or_path: org/a-7b\nper_device_train_batch_size: 2\nper_device_eval_batch_size: 8\ngradient_accumulation_steps: 1\nbf16: true\n{lines}\n"
    assert job_of(text, "args.yaml").eval_micro_batch == size


def test_companions_beside_the_file_are_followed_and_others_are_not(tmp_path):
    folder = tmp_path / "run"
    (folder / "conf").mkdir(parents=True)
    (tmp_path / "outside.json").write_text('{"zero_optimization": {"stage": 1}}')
    (folder / "env.sh").write_text("export GPUS=4\nBS=3\n")
    (folder / "conf" / "ds.json").write_text(
        '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'
    )
    script = folder / "run.sh"
    text = "source env.sh\ntorchrun --nproc_per_node $GPUS train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size $BS --bf16 True --output_dir o --learning_rate 1e-5 --deepspeed {}\n"
    script.write_text(text.format("conf/ds.json"))
    for command, path in (("plan", ("job",)), ("estimate", ())):
        out = json.loads(
            CliRunner().invoke(app, [command, str(script), "--format", "json", "--set", "gpu=A100"]).stdout
        )
        assert not [w for w in out["warnings"] if "ds.json" in w or "env.sh" in w]
        if path:
            job = out["job"]
            assert (job["micro_batch"], job["gpus"], job["sharding"], job["offload"]) == (3, 4, "zero3", ["optimizer"])
    script.write_text(text.format("../outside.json"))
    out = json.loads(CliRunner().invoke(app, ["plan", str(script), "--format", "json", "--set", "gpu=A100"]).stdout)
    assert any("outside.json" in w for w in out["warnings"])
    assert out["job"].get("sharding") is None


def test_a_value_that_points_to_another_key_is_read_and_written_there():
    text = "variables:\n  length: 4096\nmodel_name_or_path: org/a-7b\nstage: sft\nfinetuning_type: lora\ncutoff_len: ${variables.length}\n"
    assert job_of(text, "a.yaml").seq_len == 4096
    done = patch(text, filename="a.yaml", changes={"seq_len": 2048})
    assert done.text == text.replace("4096", "2048")


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "sky.yaml",
            "resources:\n  accelerators: A100-80GB:8\nnum_nodes: 2\nenvs:\n  MODEL: org/thing-8b\nrun: |\n  vllm serve $MODEL --max-model-len 4096 --max-num-seqs 8\n",
            {"gpu": "A100-80GB", "gpus": 8, "nodes": 2, "model": "org/thing-8b", "serving.max_model_len": 4096},
        ),
        (
            "compose.yml",
            "services:\n  s:\n    image: ghcr.io/huggingface/text-generation-inference:3.0\n    command: --model-id org/thing-8b --num-shard 2 --max-total-tokens 8192\n"
            "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              count: 2\n",
            {"gpus": 2, "tp": 2, "serving.max_model_len": 8192},
        ),
        (
            "kserve.yaml",
            "kind: LLMInferenceService\nspec:\n  model:\n    name: org/thing-70b\n  template:\n    containers:\n      - name: main\n        env:\n"
            "          - name: VLLM_ADDITIONAL_ARGS\n            value: >-\n              --tensor-parallel-size=8\n              --max-model-len=16384\n"
            '        resources:\n          limits:\n            nvidia.com/gpu: "8"\n',
            {"gpus": 8, "tp": 8, "model": "org/thing-70b", "serving.max_model_len": 16384},
        ),
        (
            "request.json",
            '{"model": "qwen2.5:14b", "stream": false, "options": {"num_ctx": 16384, "num_gpu": 40}}',
            {"model": "qwen2.5-14b", "serving.max_model_len": 16384},
        ),
    ],
)
def test_machines_and_engines_that_a_job_asks_for(name, text, wanted):
    found = {fact.name: fact.value for fact in read_documents(Source(name, text)).facts}
    assert {field: found.get(field) for field in wanted} == wanted


def test_the_machines_of_a_job_are_not_written_over_by_a_number():
    text = "resources:\n  accelerators: A100-80GB:8\nrun: |\n  vllm serve org/thing-8b --max-model-len 4096 --max-num-seqs 8\n"
    done = patch(text, filename="sky.yaml", changes={"gpus": 4})
    assert (done.text, dict(done.unplaced)) == (text.replace(":8", ":4"), {})


def test_what_a_script_is_given_as_an_argument_is_not_written_over():
    text = "#!/bin/bash\nSEQ=$1\ntorchrun pretrain_gpt.py --num-layers 2 --micro-batch-size ${2} --seq-length $SEQ --tensor-model-parallel-size 2\n"
    for change in ({"seq_len": 512}, {"micro_batch": 1}):
        done = patch(text, filename="run.sh", changes=change)
        assert (done.text, set(done.unplaced.values())) == (text, {"from-argument"})
    assert "--tensor-model-parallel-size 4" in patch(text, filename="run.sh", changes={"tp": 4}).text


def test_an_unknown_framework_is_not_patched_to_what_is_off_either():
    text = "data: x\nmodel:\n  type: gpt2\n  seq_len: 2048\n  recompute_layers: all\ntrainer:\n  mp: p=f32\n  axis: 1\noptimizer:\n  lr: 1.0\n"
    done = patch(text, filename="run.yaml", changes={"grad_ckpt": False})
    assert done.text == text
    assert done.unplaced


def test_machines_of_a_batch_job_are_written_where_they_are_asked_for():
    text = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --mem=0\nsrun something.sh configs/x.yaml\n"
    assert "#SBATCH --nodes=2" in patch(text, filename="job.sh", changes={"nodes": 2}).text


def fields_of(text, name="run.yaml"):
    reading = read_documents(Source(name, text))
    return reading.framework, {f.name: f.value for f in reading.facts if f.confidence >= 0.5}


def test_an_unknown_serving_configuration_is_read_as_one():
    framework, said = fields_of(
        "app:\n  name: parser\n  port: 80\nengine:\n  kind: local\n  model_path: /share/Thing-30B-A3B\n"
        "  max_model_len: 40000\n  max_num_seqs: 8\n  gpu_memory_utilization: 0.8\n  tensor_parallel_size: 4\n"
    )
    assert framework == "unknown"
    assert said["serving.max_model_len"] == 40000
    assert said["serving.gpu_memory_utilization"] == 0.8
    assert (said["tp"], said["model"]) == (4, "Thing-30B-A3B")


def test_in_a_run_that_trains_an_engine_s_settings_are_not_the_run_s():
    framework, said = fields_of(
        "lr: 1e-5\nepochs: 3\ngenerator:\n  inference_engine:\n    tensor_parallel_size: 4\nmax_model_len: 9000\nper_device_train_batch_size: 2\nmax_seq_length: 512\nrun_name: x\n"
    )
    assert framework == "unknown"
    assert "tp" not in said
    assert "serving.max_model_len" not in said
    assert (said["micro_batch"], said["seq_len"]) == (2, 512)


def test_a_section_that_its_own_switch_turns_off_says_nothing():
    text = (
        "learning:\n  lr: 1e-5\n  micro_batch_size: 1\n  grad_accumulation_steps: 4\nbnb_cfgs:\n  use_bnb: {}\n  load_in_4bit: true\n"
        "adapters:\n  use_lora: {}\n  lora_rank: 16\n"
    )
    on, off = fields_of(text.format("true", "true"))[1], fields_of(text.format("false", "false"))[1]
    assert (on["quant"], on["lora.r"]) == ("nf4", 16)
    assert not {"quant", "lora.r"} & off.keys()
    assert (off["micro_batch"], off["grad_accum"]) == (1, 4)


def test_of_several_commands_only_what_they_say_alike_is_taken():
    run = "torchrun --nproc_per_node 8 tools/bench.py --kind {} --micro_batch_size {} --seq_length 2048 --zero_stage {} --warmup 20\n"
    said = fields_of(run.format("a", 8, 2) + run.format("b", 4, 1), "run.sh")[1]
    assert (said["seq_len"], said["gpus"]) == (2048, 8)
    assert not {"micro_batch", "sharding"} & said.keys()


def test_a_list_of_data_configures_no_run():
    text = "datasets:\n  - name: a\n    split: train\n    sampling: 0.3\n    path: org/words-7b\n  - name: b\n    split: test\nseed: 66\nkind: default\nstop: first\n"
    assert fields_of(text)[0] is None


def test_an_engine_named_as_a_value_is_not_what_is_run():
    said = read_documents(Source("run.sh", "thing serve --model_path /models/x --backend vllm --num_gpus 1\n"))
    assert said.framework != "vllm"
    assert read_documents(Source("run.sh", "uv run --with vllm vllm serve x/y-7b --tp 2\n")).framework == "vllm"


def test_python_that_only_sets_values_is_a_configuration():
    text = (
        'NAME = "a"\nLENGTH = 2048\ndata = dict(\n    seq_len=LENGTH,\n    folder=None,\n)\nstep = dict(lr=1e-4, every=int(50 / 2))\n'
        "model = dict(num_layers=32, hidden_size=4096, num_attention_heads=32, use_flash_attn=True)\n"
    )
    framework, said = fields_of(text, "7b.py")
    assert framework == "unknown"
    assert (said["seq_len"], said["attention"]) == (2048, "flash2")
    assert fields_of("import torch\n" + text + "run(model)\n", "7b.py")[0] != "unknown"


def test_a_path_through_an_unknown_variable_says_what_its_last_part_says():
    text = "HERE=$(dirname $0)\ndeepspeed train.py --deepspeed $HERE/{} --model_name_or_path org/a-7b --bf16 True --output_dir o --learning_rate 1e-5\n"
    assert fields_of(text.format("conf/zero2.json"), "run.sh")[1]["sharding"] == "zero2"
    assert "sharding" not in fields_of(text.format("$ZERO"), "run.sh")[1]


def test_tokens_of_a_microbatch_are_rows_of_the_context():
    text = "[job]\ndump_folder = 'o'\n[metrics]\nlog_freq = 10\n[training]\nnum_tokens_per_microbatch_per_dp_rank = 16384\nmax_context_length = 4096\nsteps = 10\n[parallelism]\ntensor_parallel_degree = 2\n"
    assert job_of(text, "t.toml").micro_batch == 4
    done = patch(text, filename="t.toml", changes={"micro_batch": 2})
    assert done.text == text.replace("16384", "8192")


def test_a_preference_run_has_its_own_script_s_defaults():
    said = job_of(
        "deepspeed examples/dpo_train.py --model_name_or_path org/a-7b --use_lora 1 --lora_r 8 --output_dir o\n"
    )
    job = complete(said)
    assert (job.objective, job.micro_batch, job.grad_accum, job.seq_len) == ("dpo", 4, 4, 1024)


def test_a_run_of_which_nothing_is_understood_is_still_named_unknown():
    text = "runner: x\nlr: 1e-4\nepochs: 3\nwindow: 512\nbatch: 16\nfreeze_tower: true\nout: o\n"
    reading = read_documents(Source("run.yaml", text))
    assert reading.framework == "unknown"
    assert "freeze_tower" in {s.key for s in reading.recognised.unread}
    assert fields_of(text.replace("lr: 1e-4\nepochs: 3\n", ""))[0] is None


def test_a_sentence_about_a_program_is_no_command():
    from oomdoc.intake import read_text

    said = "axolotl on two nodes of our cluster, it ran for hours and then fell over:\n\nCUDA out of memory"
    assert read_text(said).documents == ()
    assert read_text("axolotl train config.yml --micro_batch_size 2\n\nCUDA out of memory").documents != ()


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "run.sh",
            "python open_instruct/grpo_fast.py \\\n  --model_name_or_path org/thing-4b \\\n  --max_prompt_token_length 300 \\\n  --response_length 700 \\\n  --pack_length 1024 \\\n"
            "  --num_samples_per_prompt_rollout 6 \\\n  --num_unique_prompts_rollout 4 \\\n  --deepspeed_stage 3 \\\n  --num_learners_per_node 2 \\\n  --vllm_gpu_memory_utilization 0.4 \\\n  --gradient_checkpointing\n",
            {
                "objective": "grpo",
                "completion_len": 700,
                "prompt_len": 300,
                "micro_tokens": 1024,
                "generations": 6,
                "sharding": "zero3",
                "rollout.engine": "vllm",
                "grad_ckpt": True,
            },
        ),
        (
            "overlay.yaml",
            "defaults: base_megatron.yaml\npolicy:\n  model_name: org/thing-30b\n  train_global_batch_size: 64\n  max_total_sequence_length: 4096\n"
            "  megatron_cfg:\n    tensor_model_parallel_size: 4\n    pipeline_model_parallel_size: 2\nppo:\n  num_prompts_per_step: 16\n  num_generations_per_prompt: 2\ncluster:\n  gpus_per_node: 8\n",
            {"tp": 4, "pp": 2, "sharding": "distributed-optimizer", "objective": "ppo", "generations": 2},
        ),
        (
            "agent.yaml",
            "rollout_batch_size: 32\nsequence_length: 4096\npretrain: org/thing-4b\nanswer: 600\nactor_train:\n  training_args:\n    per_device_train_batch_size: 1\n  strategy_args:\n    strategy_name: megatron_train\n"
            "  device_mapping: list(range(0,4))\nactor_infer:\n  generating_args:\n    max_new_tokens: ${answer}\n  strategy_args:\n    strategy_name: vllm\ntrain_env_manager:\n  group_size: 5\n",
            {"completion_len": 600, "generations": 5, "rollout.engine": "vllm"},
        ),
        (
            "a.yaml",
            "base_model: org/thing-8b\nsequence_len: 1024\nmicro_batch_size: 1\ndatasets:\n  - path: x\n    type: alpaca\nexpert_parallel_size: 4\nfsdp_version: 2\nfsdp_config:\n  activation_checkpointing: true\n  reshard_after_forward: false\n",
            {"ep": 4, "grad_ckpt": True, "reshard_after_forward": False},
        ),
        (
            "dpo/config_full.yaml",
            "model_name_or_path: org/thing-8b\ndataset_mixture:\n  datasets:\n  - id: x\nbeta: 0.1\nmax_length: 512\nper_device_train_batch_size: 1\nhub_model_id: thing-8b-dpo\noutput_dir: data/thing-8b-dpo\n",
            {"objective": "dpo"},
        ),
        (
            "sft/config_dpo.yaml",
            "model_name_or_path: org/thing-8b\ndataset_mixture:\n  datasets:\n  - id: x\nmax_length: 512\nper_device_train_batch_size: 1\n",
            {"objective": None},
        ),
    ],
    ids=["open-instruct", "nemo-rl", "roll", "axolotl", "run-named", "named-twice"],
)
def test_what_further_frameworks_state(name, text, wanted):
    reading = read_documents(Source(name, text))
    job = to_job({f.name: f for f in reading.facts}, reading.framework)
    assert {field: job.get(field) for field in wanted} == wanted


@pytest.mark.parametrize(
    ("head", "card"),
    [
        ("# on one RTX 4090, dies after a while", "RTX 4090"),
        ("# wants 2xB200 or 8xH100", None),
        ("", None),
    ],
)
def test_the_card_in_the_comment_at_the_head_of_a_configuration(head, card):
    text = f"{head}\nbase_model: org/thing-7b\nsequence_len: 512\nmicro_batch_size: 1\ndatasets:\n  - path: x\n    type: alpaca\n# faster on an H100\nadapter: lora\n"
    evidence = read([Source("run.yaml", text)])
    found = evidence.facts.get("gpu")
    assert (found.value if found is not None and found.stated else None) == card
    assert evidence.failures == ()


def test_a_model_behind_a_hub_s_address_is_named_without_it():
    text = "model_name_or_path: hf://org/thing-7b\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 2\noutput_dir: x\nlearning_rate: 1e-5\n"
    facts = {f.name: f.value for f in read_documents(Source("run.yaml", text)).facts}
    assert facts["model"] == "org/thing-7b"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "usage.md",
            "- `--hf-checkpoint`：加载权重；\n\n```bash\npython train.py --actor-num-gpus-per-node 8 --max-tokens-per-gpu 4096 --n-samples-per-prompt 4\n```\n",
        ),
        (
            "run.py",
            "from transformers import AutoModelForCausalLM\n\ndef build(base_model_path):\n    return AutoModelForCausalLM.from_pretrained(pretrained_model_name_or_path=base_model_path)\n",
        ),
    ],
)
def test_an_option_s_explanation_and_a_variable_are_no_model(name, text):
    assert "model" not in {f.name for f in read_documents(Source(name, text)).facts}


def test_code_that_never_runs_states_nothing():
    text = 'from unsloth import FastLanguageModel\nmodel, tok = FastLanguageModel.from_pretrained(model_name="org/thing-7b", max_seq_length=512)\nif False:\n    model, tok = FastLanguageModel.from_pretrained(model_name="my_adapter", max_seq_length=4096)\n'
    facts = {f.name: f.value for f in read_documents(Source("run.py", text)).facts}
    assert (facts["model"], facts["seq_len"]) == ("org/thing-7b", 512)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "run.sh",
            "python train.py \\\n  --hf-checkpoint org/thing-4b \\\n  --actor-num-gpus-per-node 4 \\\n  --rollout-num-gpus-per-engine 2 \\\n  --n-samples-per-prompt 4 \\\n  --colocate \\\n  ${EXTRA_ARGS[@]} \\\n  --max-tokens-per-gpu 2048\n",
            {"rollout.colocated": True},
        ),
        (
            "p.yaml",
            "max_seq_len: 512\nmodel:\n  name: hf_causal_lm\n  pretrained_model_name_or_path: org/thing-1b\ntrain_loader:\n  name: text\ndevice_train_microbatch_size: 1\nglobal_train_batch_size: 8\nfsdp_config:\n  sharding_strategy: FULL_SHARD\n",
            {"objective": "pretrain"},
        ),
        (
            "a.yaml",
            "base_model: org/thing-1b\nsequence_len: 512\nmicro_batch_size: 1\npretraining_dataset:\n  - path: x\n    type: pretrain\nval_set_size: 0\n",
            {"objective": "pretrain"},
        ),
    ],
    ids=["array-behind-a-switch", "llm-foundry", "axolotl"],
)
def test_what_a_switch_before_an_array_and_a_corpus_state(name, text, wanted):
    reading = read_documents(Source(name, text))
    job = to_job({f.name: f for f in reading.facts}, reading.framework)
    assert {field: job.get(field) for field in wanted} == wanted


def test_a_script_with_common_names_of_variables_is_no_frameworks():
    text = (
        "import torch\nfrom model import Net\n\nbatch_size = 12\nblock_size = 1024\ncompile = True\ndtype = 'bfloat16'\nepochs = 3\n"
        "bias = False\nprofile = False\nnet = Net(bias=bias, window=block_size)\noptimizer = net.make_optimizer(lr=1e-4, betas=(0.9, 0.95))\n"
        "for step in range(20):\n    x = torch.randint(50304, (batch_size, block_size))\n    loss = net(x)\n    loss.backward()\n"
    )
    found = read_documents(Source("bench.py", text))
    assert found.framework in (None, "transformers")


def test_an_engine_beside_a_run_of_an_unknown_framework_is_the_rollouts():
    job = job_of(
        "mine.algorithm.advantage_estimator=grpo \\\n  ".join(["python -m mine.train \\\n  ", ""])
        + "mine.generator.engine.backend=vllm \\\n  mine.generator.engine.tensor_parallel_size=4 \\\n"
        "  mine.generator.engine.gpu_memory_utilization=0.7 \\\n  mine.generator.n_samples_per_prompt=5 \\\n"
        "  mine.policy.lr=1e-6 mine.policy.micro_train_batch_size_per_gpu=1 mine.epochs=2 mine.color=red\n"
    )
    assert (job.framework, job.objective, job.micro_batch, job.tp, job.generations) == ("unknown", "grpo", 1, None, 5)
    assert (job.rollout.engine, job.rollout.tensor_parallel, job.rollout.gpu_memory_utilization) == ("vllm", 4, 0.7)


def test_machines_of_one_run_on_a_cluster():
    text = "kind: LeaderWorkerSet\nspec:\n  replicas: 3\n  leaderWorkerTemplate:\n    size: 2\n    leaderTemplate:\n      spec:\n        containers:\n          - image: vllm/vllm-openai\n            args: [--model, org/m-405b, --tensor-parallel-size, '8']\n            resources:\n              limits:\n                nvidia.com/gpu: '8'\n"
    job = job_of(text, "lws.yaml")
    assert (job.nodes, job.gpus, job.tp) == (2, 8, 8)


def notebook(*cells):
    made = [{"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": []} for cell in cells]
    return json.dumps({"cells": made, "nbformat": 4, "metadata": {}})


def test_a_server_of_data_in_a_notebook_is_not_what_it_trains():
    serve = "!vllm serve org/teacher-70b --max-model-len 8192 --tensor-parallel-size 8"
    train = "from trl import SFTConfig, SFTTrainer\nargs = SFTConfig(per_device_train_batch_size=2, max_length=1024)\nSFTTrainer(model='org/student-3b', args=args)"
    job = job_of(notebook(serve, train), "n.ipynb")
    assert (job.model, job.seq_len, job.tp, job.rollout) == ("org/student-3b", 1024, None, None)


FOLDED = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - image: vllm/vllm-openai:v0.9
      command:
        - sh
        - -c
        - "bash start.sh leader --ray_cluster_size=2;
          python3 -m vllm.entrypoints.openai.api_server --model org/m-70b --tensor-parallel-size 8"
"""
BLOCKS = """\
roles:
  - name: prefill
    command: ["sh", "-c"]
    args:
      - |
        vllm serve org/m-8b \\
          --max-model-len 4096 \\
          --tensor-parallel-size 1
"""


def test_a_command_in_a_quoted_value_of_several_lines_is_changed_within_its_quotes():
    assert job_of(FOLDED, "pod.yaml").tp == 8
    done = patch(FOLDED, filename="pod.yaml", changes={"serving.max_model_len": 2048})
    assert done.text == FOLDED.replace("--tensor-parallel-size 8", "--tensor-parallel-size 8 --max-model-len 2048")


def test_a_block_in_a_list_of_arguments_is_a_command():
    text = "spec:\n  image: vllm/vllm-openai\n" + BLOCKS
    assert job_of(text, "d.yaml").get("serving.max_model_len") == 4096
    twice = text + BLOCKS.replace("roles:\n", "").replace("prefill", "decode")
    assert patch(twice, filename="d.yaml", changes={"tp": 2}).text == twice
