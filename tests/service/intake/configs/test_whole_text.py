"""A patch is given back only where the whole text then says what was asked, nothing else, and the framework takes it."""

from __future__ import annotations

import pytest

from oomdoc.intake.configs import patch
from oomdoc.intake.configs.reading import without_words

AXOLOTL = "base_model: org/thing-7b\nadapter: qlora\nload_in_4bit: true\nsequence_len: 2048\nlora_r: 8\nlora_target_linear: true\n"
TUNE = "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\nbatch_size: 2\noptimizer:\n  _component_: torch.optim.AdamW\n  fused: True\nenable_activation_checkpointing: False\nenable_activation_offloading: False\n"
SLURM = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nexport GPUS_PER_NODE=8\nsrun torchrun --nproc_per_node=$GPUS_PER_NODE train.py --per_device_train_batch_size 4 --bf16 True --output_dir out\n"
POD = "spec:\n  containers:\n  - name: a\n    image: vllm/vllm-openai:v0.9\n    args: [--model, org/thing-7b, --max-model-len, '8192']\n    resources:\n      limits:\n        nvidia.com/gpu: 1\n"
TGI = 'spec:\n  containers:\n  - name: tgi\n    image: ghcr.io/huggingface/text-generation-inference:3.0\n    env:\n    - name: MODEL_ID\n      value: org/thing-7b\n    - name: MAX_TOTAL_TOKENS\n      value: "16384"\n    - name: MAX_INPUT_TOKENS\n      value: "8192"\n'
VERL = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=32 trainer.n_gpus_per_node=8\n"
BRIDGE = "from megatron.bridge.training.pretrain import pretrain\n\ncfg.train.micro_batch_size = 4\ncfg.model.recompute_granularity = 'selective'\npretrain(cfg)\n"


@pytest.mark.parametrize(
    ("filename", "text", "changes", "unplaced"),
    [
        ("t.yaml", TUNE, {"offload": ["activations"]}, {"offload": "needs enable_activation_checkpointing=true"}),
        ("b.yaml", f"{TUNE}optimizer_in_bwd: True\ngradient_accumulation_steps: 1\n", {"grad_accum": 4}, {"grad_accum": "needs optimizer_in_bwd=false"}),
        ("d.yaml", POD, {"tp": 2}, {"tp": "needs gpus=2"}),
        ("ds.json", '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}', {"micro_batch": 1}, {"micro_batch": "auto"}),
        ("ds.json", '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', {"grad_accum": 4}, {"grad_accum": "needs train_batch_size=*"}),
        ("s.sh", "vllm serve org/thing-7b-AWQ --max-model-len 4096\n", {"quant": "fp8"}, {"quant": "stored"}),
        ("s.sh", "lmdeploy serve api_server org/thing-7b --session-len 4096\n", {"quant": "awq-int4"}, {"quant": "stored"}),
        ("c.sh", "text-generation-launcher --model-id org/thing-7b --max-input-tokens 4096 --max-total-tokens 8192\n", {"serving.max_model_len": 4096}, {"serving.max_model_len": "needs max_total_tokens > max_input_tokens"}),
        ("p.sh", "accelerate launch train_dreambooth_flux.py --train_batch_size=2 --optimizer=prodigy\n", {"optimizer": "adamw_8bit"}, {"optimizer": "needs optimizer=null"}),
        ("u.sh", "torchrun --nproc_per_node=$1 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=4 data.max_length=2048\n", {"gpus": 4}, {"gpus": "from-argument"}),
        ("t.yaml", TGI, {"serving.max_model_len": 8192}, {"serving.max_model_len": "needs max_total_tokens > max_input_tokens"}),
        ("w.sh", "".join(f"llamafactory-cli train --stage sft --model_name_or_path org/thing-7b --template qwen --cutoff_len {n} --output_dir {n}\n" for n in (2048, 4096)), {"seq_len": 1024}, {"seq_len": "no-key"}),
        ("g.sh", "torchrun pretrain_gpt.py --micro-batch-size 4 --cross-entropy-loss-fusion --num-layers 8\n", {"fused_ce": True}, {"fused_ce": "no-key"}),
    ],
)  # fmt: skip
def test_what_a_framework_refuses_is_not_written(filename, text, changes, unplaced):
    done = patch(text, filename=filename, changes=changes)
    assert (dict(done.unplaced), done.text) == (unplaced, text)


@pytest.mark.parametrize(
    ("filename", "text", "changes", "gone", "there"),
    [
        ("a.yml", AXOLOTL, {"quant": "none"}, ["qlora", "load_in_4bit: true"], ["adapter: lora", "load_in_4bit: false"]),
        ("t.yaml", TUNE, {"optimizer": "adamw_8bit"}, ["fused"], ["AdamW8bit"]),
        ("j.sbatch", SLURM, {"gpus": 4}, ["=8"], ["gpus-per-node=4", "GPUS_PER_NODE=4"]),
        ("v.sh", VERL, {"log_prob_batch": 8}, ["=32"], ["rollout.log_prob_micro_batch_size_per_gpu=8", "ref.log_prob_micro_batch_size_per_gpu=8"]),
        ("f.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: false\nnum_machines: 1\nnum_processes: 8\n", {"nodes": 2}, [], ["num_machines: 2", "num_processes: 16"]),
        ("k.sh", "accelerate launch sdxl_train_network.py --network_module=networks.lora --train_batch_size=4\n", {"grad_ckpt": True}, ["checkpointing=", "checkpointing true"], ["--gradient_checkpointing"]),
        ("q.sh", "accelerate launch --mixed_precision=fp16 train_text_to_image_lora.py --train_batch_size=8 --rank=64\n", {"grad_ckpt": True}, ["fp16 --grad"], ["rank=64 --gradient_checkpointing"]),
        ("l.yaml", "model: {name: hf_causal_lm, pretrained_model_name_or_path: org/thing-7b}\ndevice_train_microbatch_size: auto\nglobal_train_batch_size: 8\nmax_seq_len: 1024\n", {"micro_batch": 1}, ["auto"], ["device_train_microbatch_size: 1"]),
        ("m.sh", "torchrun pretrain_gpt.py --micro-batch-size 4 --use-distributed-optimizer --num-layers 8\n", {"offload": ["optimizer"]}, [], ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]),
        ("b.py", BRIDGE, {"micro_batch": 1}, ["= 4"], ["cfg.train.micro_batch_size = 1"]),
        ("o.py", "from vllm import LLM\nllm = LLM(model='org/thing-7b', max_model_len=4096)\n", {"serving.max_num_seqs": 16}, [], ["max_num_seqs=16"]),
    ],
)  # fmt: skip
def test_what_belongs_together_is_written_together(filename, text, changes, gone, there):
    done = patch(text, filename=filename, changes=changes)
    assert not done.unplaced
    assert all(piece in done.text for piece in there)
    assert not any(piece in done.text for piece in gone)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("vllm serve org/m --enforce-eager on two A100 80GB, fits?", "vllm serve org/m --enforce-eager"),
        ("vllm serve org/m --tensor-parallel-size 2，两张卡够吗", "vllm serve org/m --tensor-parallel-size 2"),
        ("vllm serve org/m --max-model-len 4096 2>&1 | tee log", "vllm serve org/m --max-model-len 4096 2>&1 | tee log"),
        ("cd x && vllm serve org/m --max-model-len 4096 && echo done with it", "cd x && vllm serve org/m --max-model-len 4096 && echo done with it"),
        ("python train.py --bf16 True --output_dir 数据", "python train.py --bf16 True --output_dir 数据"),
    ],
)  # fmt: skip
def test_a_command_ends_where_a_sentence_goes_on(text, command):
    assert without_words(text) == command
