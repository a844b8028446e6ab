"""Configurations as people keep them, and what one of their lines should become.

Each row: framework, file name, text, job fields to set, the lines that must then be there, how many lines may go.
"""

from __future__ import annotations

from typing import Any, Final

Task = tuple[str, str, str, dict[str, Any], list[str], int]

TASKS: Final[tuple[Task, ...]] = (
    # transformers: scripts, commands, notebooks' cells
    (
        "transformers",
        "train.py",
        'from transformers import TrainingArguments, Trainer\n\nargs = TrainingArguments(\n\toutput_dir="out",\n\tper_device_train_batch_size=8,  # 24 GB\n\tgradient_accumulation_steps=2,\n\tbf16=True,\n)\n',
        {"micro_batch": 2, "grad_accum": 8, "grad_ckpt": True},
        [
            "\tper_device_train_batch_size=2,  # 24 GB",
            "\tgradient_accumulation_steps=8,",
            "\tgradient_checkpointing=True,",
        ],
        2,
    ),
    (
        "transformers",
        "one_line.py",
        "from transformers import TrainingArguments\nargs = TrainingArguments('out', per_device_train_batch_size=16, fp16=True)\n",
        {"micro_batch": 4},
        ["args = TrainingArguments('out', per_device_train_batch_size=4, fp16=True)"],
        1,
    ),
    (
        "transformers",
        "kwargs.py",
        'from transformers import TrainingArguments\ntraining_kwargs = dict(\n    per_device_train_batch_size = 4,\n    optim = "adamw_torch",\n)\nargs = TrainingArguments(**training_kwargs)\n',
        {"optimizer": "paged_adamw_8bit"},
        ['    optim = "paged_adamw_8bit",'],
        1,
    ),
    (
        "transformers",
        "run_clm.sh",
        "python run_clm.py --model_name_or_path gpt2-xl \\\r\n  --per_device_train_batch_size 8 \\\r\n  --block_size 2048 \\\r\n  --do_train\r\n",
        {"micro_batch": 1, "grad_ckpt": True},
        ["  --per_device_train_batch_size 1 \\"],
        1,
    ),
    (
        "transformers",
        "load.py",
        'import torch\nfrom transformers import AutoModelForCausalLM\n\nmodel = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", torch_dtype=torch.float32)\n',
        {"param_dtype": "bf16"},
        ['model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", torch_dtype=torch.bfloat16)'],
        1,
    ),
    (
        "transformers",
        "args.json",
        '{\n\t"output_dir": "out",\n\t"per_device_train_batch_size": 8,\n\t"gradient_checkpointing": false,\n\t"bf16": true\n}',
        {"micro_batch": 2, "grad_ckpt": True},
        ['\t"per_device_train_batch_size": 2,', '\t"gradient_checkpointing": true,'],
        2,
    ),
    # TRL
    (
        "trl",
        "dpo.py",
        'from trl import DPOConfig, DPOTrainer\nfrom peft import LoraConfig\n\npeft_config = LoraConfig(r=64, lora_alpha=16, target_modules="all-linear")\ntraining_args = DPOConfig(\n    output_dir="dpo",\n    per_device_train_batch_size=4,\n    max_length=2048,\n    max_prompt_length=1024,\n)\n',
        {"lora.r": 16, "seq_len": 1024},
        ['peft_config = LoraConfig(r=16, lora_alpha=16, target_modules="all-linear")', "    max_length=1024,"],
        2,
    ),
    (
        "trl",
        "grpo.py",
        'from trl import GRPOConfig\n\ntraining_args = GRPOConfig(\n    output_dir="grpo",\n    num_generations=16,\n    max_completion_length=2048,\n    use_vllm=True,\n    vllm_mode="colocate",\n    vllm_gpu_memory_utilization=0.5,\n)\n',
        {"generations": 8, "completion_len": 1024, "rollout.gpu_memory_utilization": 0.3},
        ["    num_generations=8,", "    max_completion_length=1024,", "    vllm_gpu_memory_utilization=0.3,"],
        3,
    ),
    (
        "trl",
        "sft.sh",
        "accelerate launch --config_file zero2.yaml trl/scripts/sft.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name a/b --per_device_train_batch_size 4 --max_length 4096 --use_peft\n",
        {"seq_len": 2048},
        [
            "accelerate launch --config_file zero2.yaml trl/scripts/sft.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name a/b --per_device_train_batch_size 4 --max_length 2048 --use_peft"
        ],
        1,
    ),
    (
        "trl",
        "config.yaml",
        "# TRL\nmodel_name_or_path: Qwen/Qwen2.5-1.5B\ntrl_version: 1\nper_device_train_batch_size: 8 # too much?\nmax_length: 4096\ngradient_checkpointing: false\nuse_peft: true\nlora_r: 32\n",
        {"micro_batch": 1, "grad_ckpt": True},
        ["per_device_train_batch_size: 1 # too much?", "gradient_checkpointing: true"],
        2,
    ),
    # LLaMA-Factory
    (
        "llama-factory",
        "qwen.yaml",
        "### model\nmodel_name_or_path: Qwen/Qwen2.5-14B-Instruct\ntrust_remote_code: true\n\n### method\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 64\nlora_target: all\n\n### dataset\ndataset: identity\ntemplate: qwen\ncutoff_len: 8192\n\n### train\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 8\nbf16: true",
        {"lora.r": 8, "seq_len": 4096},
        ["lora_rank: 8", "cutoff_len: 4096"],
        2,
    ),
    (
        "llama-factory",
        "bom.yaml",
        "\ufeffmodel_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\ncutoff_len: 4096\nper_device_train_batch_size: 4\ndeepspeed: ds_z2_config.json\n",
        {"micro_batch": 1},
        ["per_device_train_batch_size: 1"],
        1,
    ),
    (
        "llama-factory",
        "quoted.yaml",
        'model_name_or_path: "Qwen/Qwen2.5-7B"\nstage: "sft"\nfinetuning_type: "lora"\ncutoff_len: \'4096\'   # tokens\nper_device_train_batch_size: "4"\n',
        {"seq_len": 2048},
        ["cutoff_len: '2048'   # tokens"],
        1,
    ),
    (
        "llama-factory",
        "train.sh",
        "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train \\\n    --stage sft \\\n    --model_name_or_path baichuan-inc/Baichuan2-7B-Chat \\\n    --finetuning_type lora \\\n    --cutoff_len 2048 \\\n    --per_device_train_batch_size 8 \\\n    --fp16\n",
        {"micro_batch": 2, "quant": "nf4-double", "method": "qlora"},
        ["    --per_device_train_batch_size 2 \\"],
        1,
    ),
    (
        "llama-factory",
        "args.json",
        '{"stage": "sft", "finetuning_type": "lora", "model_name_or_path": "Qwen/Qwen2.5-7B", "cutoff_len": 4096, "per_device_train_batch_size": 4}\n',
        {"seq_len": 1024},
        [
            '{"stage": "sft", "finetuning_type": "lora", "model_name_or_path": "Qwen/Qwen2.5-7B", "cutoff_len": 1024, "per_device_train_batch_size": 4}'
        ],
        1,
    ),
    # ms-swift
    (
        "ms-swift",
        "sft.sh",
        "export CUDA_VISIBLE_DEVICES=0,1,2,3\nexport NPROC_PER_NODE=4\nswift sft \\\n  --model Qwen/Qwen2.5-VL-7B-Instruct \\\n  --train_type full \\\n  --max_length 16384 \\\n  --per_device_train_batch_size 2 \\\n  --deepspeed zero2\n",
        {"sharding": "zero3", "seq_len": 8192, "micro_batch": 1},
        ["  --deepspeed zero3", "  --max_length 8192 \\", "  --per_device_train_batch_size 1 \\"],
        3,
    ),
    (
        "ms-swift",
        "megatron.sh",
        "NPROC_PER_NODE=8 \\\nmegatron sft \\\n    --load Qwen3-30B-A3B-mcore \\\n    --micro_batch_size 4 \\\n    --tensor_model_parallel_size 2 \\\n    --expert_model_parallel_size 4 \\\n    --recompute_granularity full \\\n    --recompute_method uniform \\\n    --recompute_num_layers 1 \\\n    --max_length 8192\n",
        {"micro_batch": 1, "tp": 4},
        ["    --micro_batch_size 1 \\", "    --tensor_model_parallel_size 4 \\"],
        2,
    ),
    (
        "ms-swift",
        "megatron_off.sh",
        "megatron sft \\\n    --load a/b \\\n    --micro_batch_size 1 \\\n    --recompute_granularity full \\\n    --recompute_method uniform \\\n    --recompute_num_layers 1 \\\n    --max_length 8192\n",
        {"grad_ckpt": False},
        ["    --recompute_granularity none \\"],
        3,
    ),
    (
        "ms-swift",
        "grpo.sh",
        "CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.6 --num_generations 8 --per_device_train_batch_size 4\n",
        {"rollout.gpu_memory_utilization": 0.4, "micro_batch": 2},
        [
            "CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.4 --num_generations 8 --per_device_train_batch_size 2"
        ],
        1,
    ),
    # axolotl
    (
        "axolotl",
        "qlora.yml",
        "base_model: NousResearch/Llama-2-13b-hf\nload_in_8bit: false\nload_in_4bit: true\nadapter: qlora\nlora_r: 64\nlora_target_linear: true\nsequence_len: 4096\nsample_packing: true\nmicro_batch_size: 4\ngradient_accumulation_steps: 2\noptimizer: paged_adamw_32bit\nbf16: auto\ngradient_checkpointing:\nflash_attention: true\n",
        {"micro_batch": 1, "grad_ckpt": True, "lora.r": 16},
        ["micro_batch_size: 1", "gradient_checkpointing: true", "lora_r: 16"],
        3,
    ),
    (
        "axolotl",
        "anchors.yml",
        "defaults: &defaults\n  use_reentrant: true\nbase_model: mistralai/Mistral-7B-v0.1\nsequence_len: 8192\nsample_packing: true\nmicro_batch_size: 2\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  <<: *defaults\noptimizer: adamw_torch\n",
        {"seq_len": 4096, "optimizer": "adamw_8bit"},
        ["sequence_len: 4096", "optimizer: adamw_8bit"],
        2,
    ),
    (
        "axolotl",
        "fsdp.yml",
        "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nmicro_batch_size: 1\noptimizer: adamw_torch_fused\nfsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_offload_params: false\n  fsdp_state_dict_type: FULL_STATE_DICT\n",
        {"offload": ["param"]},
        ["  fsdp_offload_params: true"],
        1,
    ),
    # OpenRLHF
    (
        "openrlhf",
        "dpo.sh",
        "deepspeed --module openrlhf.cli.train_dpo \\\n   --pretrain OpenRLHF/Llama-3-8b-sft-mixture \\\n   --train_batch_size 256 \\\n   --micro_train_batch_size 4 \\\n   --max_len 8192 \\\n   --zero_stage 2 \\\n   --bf16 \\\n   --flash_attn\n",
        {"micro_batch": 1, "sharding": "zero3", "grad_ckpt": True, "offload": ["optimizer"]},
        [
            "   --micro_train_batch_size 1 \\",
            "   --zero_stage 3 \\",
            "   --gradient_checkpointing \\",
            "   --adam_offload \\",
        ],
        2,
    ),
    (
        "openrlhf",
        "ppo.sh",
        "python3 -m openrlhf.cli.train_ppo_ray \\\n  --vllm_num_engines 4 \\\n  --vllm_gpu_memory_utilization 0.7 \\\n  --micro_rollout_batch_size 32 \\\n  --micro_train_batch_size 16 \\\n  --generate_max_len 4096 \\\n  --prompt_max_len 1024 \\\n  --zero_stage 3 # stage\n",
        {"completion_len": 2048, "micro_batch": 4},
        ["  --generate_max_len 2048 \\", "  --micro_train_batch_size 4 \\", "  --zero_stage 3 # stage"],
        2,
    ),
    # verl
    (
        "verl",
        "grpo.sh",
        "set -x\npython3 -m verl.trainer.main_ppo \\\n    algorithm.adv_estimator=grpo \\\n    data.max_prompt_length=1024 \\\n    data.max_response_length=4096 \\\n    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\\n    actor_rollout_ref.model.enable_gradient_checkpointing=False \\\n    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \\\n    actor_rollout_ref.actor.fsdp_config.param_offload=False \\\n    actor_rollout_ref.actor.fsdp_config.optimizer_offload=False \\\n    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \\\n    actor_rollout_ref.rollout.gpu_memory_utilization=0.7 \\\n    trainer.n_gpus_per_node=8 $@\n",
        {
            "micro_batch": 1,
            "grad_ckpt": True,
            "offload": ["param", "optimizer"],
            "rollout.tensor_parallel": 2,
            "completion_len": 2048,
        },
        [
            "    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \\",
            "    actor_rollout_ref.model.enable_gradient_checkpointing=True \\",
            "    actor_rollout_ref.actor.fsdp_config.param_offload=True \\",
            "    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \\",
            "    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\",
            "    data.max_response_length=2048 \\",
        ],
        6,
    ),
    (
        "verl",
        "ppo_trainer.yaml",
        "data:\n  max_prompt_length: 512\n  max_response_length: 512\nactor_rollout_ref:\n  model:\n    path: deepseek-ai/deepseek-llm-7b-chat\n  actor:\n    strategy: fsdp\n    ppo_micro_batch_size_per_gpu: 16   # per GPU\n    fsdp_config:\n      param_offload: false\n      optimizer_offload: false\n  rollout:\n    name: vllm\n    gpu_memory_utilization: 0.5\n",
        {"micro_batch": 4, "rollout.gpu_memory_utilization": 0.3, "offload": ["optimizer"]},
        [
            "    ppo_micro_batch_size_per_gpu: 4   # per GPU",
            "    gpu_memory_utilization: 0.3",
            "      optimizer_offload: true",
        ],
        3,
    ),
    # torchtune
    (
        "torchtune",
        "8B_lora.yaml",
        "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']\n  lora_rank: 64  # higher increases accuracy and memory\ntokenizer:\n  max_seq_len: 8192\nbatch_size: 8\ngradient_accumulation_steps: 8\nenable_activation_checkpointing: False  # True reduces memory\nenable_activation_offloading: False  # True reduces memory\ndtype: bf16\n",
        {"lora.r": 8, "grad_ckpt": True, "seq_len": 2048},
        [
            "  lora_rank: 8  # higher increases accuracy and memory",
            "enable_activation_checkpointing: True  # True reduces memory",
            "  max_seq_len: 2048",
        ],
        3,
    ),
    (
        "torchtune",
        "run.sh",
        "tune run --nproc_per_node 2 full_finetune_distributed --config llama3_1/8B_full batch_size=4 enable_activation_checkpointing=False tokenizer.max_seq_len=4096\n",
        {"micro_batch": 1, "grad_ckpt": True},
        [
            "tune run --nproc_per_node 2 full_finetune_distributed --config llama3_1/8B_full batch_size=1 enable_activation_checkpointing=True tokenizer.max_seq_len=4096"
        ],
        1,
    ),
    (
        "torchtune",
        "ac_mode.yaml",
        "model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 2\nenable_activation_checkpointing: False\nac_mode: 'selective'\nac_option: 2\n",
        {"grad_ckpt": True},
        ["ac_mode: 'full'"],
        1,
    ),
    # Megatron
    (
        "megatron",
        "pretrain.sh",
        "GPT_MODEL_ARGS=(\n    --num-layers 32 \n    --hidden-size 4096 \n    --seq-length 8192 \n    --num-attention-heads 32\n)\n\nTRAINING_ARGS=(\n    --micro-batch-size 4 \n    --global-batch-size 1536 \n    --bf16\n)\n\nMODEL_PARALLEL_ARGS=(\n\t--tensor-model-parallel-size 2 \n\t--pipeline-model-parallel-size 1\n)\n\ntorchrun --nproc_per_node 8 pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]}\n",
        {"tp": 8, "micro_batch": 1},
        ["\t--tensor-model-parallel-size 8 ", "    --micro-batch-size 1 "],
        2,
    ),
    (
        "megatron",
        "variables.sh",
        'TP=2\nPP=1\nMBS=4\nSEQ=8192\nOPTS=" --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --micro-batch-size $MBS --seq-length $SEQ --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "\ntorchrun --nproc_per_node 8 pretrain_gpt.py $OPTS\n',
        {"tp": 4, "micro_batch": 1},
        ["TP=4", "MBS=1"],
        2,
    ),
    (
        "megatron",
        "distributed.sh",
        'OPTIONS="\n  --num-layers 40\n  --hidden-size 5120\n  --num-attention-heads 40\n  --seq-length 4096\n  --micro-batch-size 2\n  --bf16\n"\ntorchrun pretrain_gpt.py $OPTIONS\n',
        {"micro_batch": 1, "sharding": "distributed-optimizer"},
        ["  --micro-batch-size 1"],
        1,
    ),
    # NeMo
    (
        "nemo",
        "megatron_gpt.yaml",
        "trainer:\n  devices: 8\n  num_nodes: 1\n  precision: bf16\nmodel:\n  micro_batch_size: 4\n  global_batch_size: 128\n  tensor_model_parallel_size: 1\n  pipeline_model_parallel_size: 1\n  encoder_seq_length: 4096\n  activations_checkpoint_granularity: null # 'selective' or 'full'\n",
        {"tp": 2, "micro_batch": 1, "seq_len": 2048},
        ["  tensor_model_parallel_size: 2", "  micro_batch_size: 1", "  encoder_seq_length: 2048"],
        3,
    ),
    (
        "nemo",
        "automodel.yaml",
        "recipe: TrainFinetuneRecipeForNextTokenPrediction\nstep_scheduler:\n  global_batch_size: 64\n  local_batch_size: 8\nmodel:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n  pretrained_model_name_or_path: meta-llama/Llama-3.2-1B\n",
        {"micro_batch": 2},
        ["  local_batch_size: 2"],
        1,
    ),
    (
        "nemo",
        "run.sh",
        "python examples/nlp/language_modeling/tuning/megatron_gpt_finetuning.py \\\n   trainer.devices=8 \\\n   model.micro_batch_size=4 \\\n   model.tensor_model_parallel_size=2 \\\n   model.data.train_ds.max_seq_length=4096\n",
        {"micro_batch": 1, "tp": 4},
        ["   model.micro_batch_size=1 \\", "   model.tensor_model_parallel_size=4 \\"],
        2,
    ),
    # Unsloth
    (
        "unsloth",
        "unsloth.py",
        'from unsloth import FastLanguageModel\nfrom trl import SFTTrainer, SFTConfig\n\nmax_seq_length = 8192 # Choose any!\nmodel, tokenizer = FastLanguageModel.from_pretrained(\n    model_name = "unsloth/Qwen2.5-7B",\n    max_seq_length = max_seq_length,\n    load_in_4bit = False,\n)\nmodel = FastLanguageModel.get_peft_model(\n    model,\n    r = 128, # rank\n    use_gradient_checkpointing = False,\n)\ntrainer = SFTTrainer(\n    model = model,\n    args = SFTConfig(\n        per_device_train_batch_size = 8,\n        optim = "adamw_torch",\n    ),\n)\n',
        {"lora.r": 16, "grad_ckpt": "offload", "micro_batch": 2, "optimizer": "adamw_8bit", "seq_len": 4096},
        [
            "    r = 16, # rank",
            '    use_gradient_checkpointing = "unsloth",',
            "        per_device_train_batch_size = 2,",
            '        optim = "adamw_8bit",',
            "max_seq_length = 4096 # Choose any!",
        ],
        5,
    ),
    (
        "unsloth",
        "notebook.py",
        'from unsloth import FastLanguageModel\nmodel, tokenizer = FastLanguageModel.from_pretrained("unsloth/llama-3-8b", max_seq_length=4096, load_in_4bit=False)\n',
        {"quant": "nf4-double", "seq_len": 2048},
        [
            'model, tokenizer = FastLanguageModel.from_pretrained("unsloth/llama-3-8b", max_seq_length=2048, load_in_4bit=True)'
        ],
        1,
    ),
    # xtuner
    (
        "xtuner",
        "internlm_qlora.py",
        "from mmengine.config import read_base\nfrom torch.optim import AdamW\nfrom peft import LoraConfig\nfrom xtuner.model import SupervisedFinetune\n\npretrained_model_name_or_path = 'internlm/internlm2-7b'\nmax_length = 4096\npack_to_max_length = True\nbatch_size = 4  # per_device\naccumulative_counts = 4\noptim_type = AdamW\nmodel = dict(\n    type=SupervisedFinetune,\n    lora=dict(\n        type=LoraConfig,\n        r=64,\n        lora_alpha=16))\n",
        {"micro_batch": 1, "seq_len": 2048, "lora.r": 16},
        ["batch_size = 1  # per_device", "max_length = 2048", "        r=16,"],
        3,
    ),
    # DeepSpeed
    (
        "deepspeed",
        "ds.json",
        '{\n    "train_micro_batch_size_per_gpu": 8,\n    "gradient_accumulation_steps": 1,\n    "zero_optimization": {\n        "stage": 3,\n        "offload_optimizer": {\n            "device": "none"\n        },\n        "reduce_bucket_size": 5e8\n    },\n    "fp16": {\n        "enabled": true\n    }\n}\n',
        {"offload": ["optimizer"], "micro_batch": 1, "buckets.reduce_bucket_size": 50000000},
        ['            "device": "cpu"', '    "train_micro_batch_size_per_gpu": 1,'],
        3,
    ),
    (
        "deepspeed",
        "crlf.json",
        '{\r\n  "bf16": {"enabled": true},\r\n  "zero_optimization": {"stage": 2, "overlap_comm": true},\r\n  "train_micro_batch_size_per_gpu": 4\r\n}\r\n',
        {"sharding": "zero3"},
        ['  "zero_optimization": {"stage": 3, "overlap_comm": true},'],
        1,
    ),
    (
        "deepspeed",
        "heredoc.sh",
        'cat > ds_config.json <<EOT\n{\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {\n    "stage": 1\n  },\n  "bf16": { "enabled": true }\n}\nEOT\ndeepspeed --num_gpus 8 pretrain_gpt.py --deepspeed --deepspeed_config ds_config.json\n',
        {"sharding": "zero2", "micro_batch": 1},
        ['    "stage": 2', '  "train_micro_batch_size_per_gpu": 1,'],
        2,
    ),
    # Accelerate
    (
        "accelerate",
        "fsdp.yaml",
        "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_activation_checkpointing: false\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_offload_params: false\n  fsdp_sharding_strategy: SHARD_GRAD_OP\nmixed_precision: 'no'\nnum_processes: 8\n",
        {"sharding": "fsdp", "autocast": "bf16", "grad_ckpt": True},
        ["  fsdp_sharding_strategy: FULL_SHARD", "  fsdp_activation_checkpointing: true"],
        3,
    ),
    (
        "accelerate",
        "zero.yaml",
        "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  gradient_accumulation_steps: 1\n  offload_optimizer_device: none\n  offload_param_device: none\n  zero3_init_flag: false\n  zero_stage: 2\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 2\n",
        {"sharding": "zero3", "offload": ["optimizer", "param"]},
        ["  zero_stage: 3", "  offload_optimizer_device: cpu", "  offload_param_device: cpu"],
        3,
    ),
    # vLLM, SGLang, LMDeploy, TGI
    (
        "vllm",
        "docker.sh",
        "docker run --runtime nvidia --gpus all \\\n    -v ~/.cache/huggingface:/root/.cache/huggingface \\\n    -p 8000:8000 --ipc=host \\\n    vllm/vllm-openai:latest \\\n    --model Qwen/Qwen2.5-32B-Instruct \\\n    --tensor-parallel-size 2 \\\n    --max-model-len 32768\n",
        {"serving.max_model_len": 8192, "tp": 4, "serving.gpu_memory_utilization": 0.85},
        ["    --max-model-len 8192", "    --tensor-parallel-size 4 \\", "    --gpu-memory-utilization 0.85 \\"],
        3,
    ),
    (
        "vllm",
        "offline.py",
        'from vllm import LLM, SamplingParams\n\nllm = LLM(model="meta-llama/Llama-3.1-70B-Instruct", tensor_parallel_size=4, gpu_memory_utilization=0.95)\n',
        {"serving.gpu_memory_utilization": 0.9, "tp": 8},
        ['llm = LLM(model="meta-llama/Llama-3.1-70B-Instruct", tensor_parallel_size=8, gpu_memory_utilization=0.9)'],
        1,
    ),
    (
        "vllm",
        "config.yaml",
        "model: Qwen/Qwen2.5-72B-Instruct-AWQ\ntensor-parallel-size: 2\nmax-model-len: 32768  # tokens\ngpu-memory-utilization: 0.95\nmax-num-seqs: 256\n",
        {"serving.max_model_len": 16384, "serving.max_num_seqs": 64},
        ["max-model-len: 16384  # tokens", "max-num-seqs: 64"],
        2,
    ),
    (
        "vllm",
        "k8s.yaml",
        'apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: vllm\nspec:\n  template:\n    spec:\n      containers:\n      - name: vllm\n        image: vllm/vllm-openai:v0.9.1\n        command: ["/bin/sh", "-c"]\n        args: [\n          "vllm serve mistralai/Mistral-7B-Instruct-v0.3 --max-model-len 32768 --gpu-memory-utilization 0.95"\n        ]\n',
        {"serving.max_model_len": 8192},
        [
            '          "vllm serve mistralai/Mistral-7B-Instruct-v0.3 --max-model-len 8192 --gpu-memory-utilization 0.95"'
        ],
        1,
    ),
    (
        "vllm",
        "flow.yaml",
        'services:\n  vllm:\n    image: vllm/vllm-openai:v0.8.5\n    command: ["--model", "Qwen/Qwen2.5-7B-Instruct", "--max-model-len", "32768", "--gpu-memory-utilization=0.95"]\n',
        {"serving.max_model_len": 4096, "serving.gpu_memory_utilization": 0.8},
        [
            '    command: ["--model", "Qwen/Qwen2.5-7B-Instruct", "--max-model-len", "4096", "--gpu-memory-utilization=0.8"]'
        ],
        1,
    ),
    (
        "vllm",
        "folded.yaml",
        "services:\n  vllm:\n    image: vllm/vllm-openai:v0.8.5\n    command: >\n      --model Qwen/Qwen2.5-7B-Instruct\n      --max-model-len 32768\n      --gpu-memory-utilization 0.95\n",
        {"serving.max_model_len": 4096},
        ["      --max-model-len 4096"],
        1,
    ),
    (
        "sglang",
        "launch.sh",
        "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-70B-Instruct --tp 4 --mem-fraction-static 0.9 --context-length 65536 --port 30000\n",
        {"serving.gpu_memory_utilization": 0.8, "serving.max_model_len": 32768},
        [
            "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-70B-Instruct --tp 4 --mem-fraction-static 0.8 --context-length 32768 --port 30000"
        ],
        1,
    ),
    (
        "sglang",
        "serve.sh",
        "python -m sglang.launch_server \\\n  --model-path Qwen/Qwen2.5-32B-Instruct \\\n  --max-running-requests 512 \\\n  --chunked-prefill-size 8192 \\\n  --mem-fraction-static=0.92\n",
        {"serving.max_num_seqs": 128, "serving.max_num_batched_tokens": 2048, "serving.cuda_graphs": False},
        ["  --max-running-requests 128 \\", "  --chunked-prefill-size 2048 \\"],
        2,
    ),
    (
        "lmdeploy",
        "serve.sh",
        "lmdeploy serve api_server internlm/internlm2_5-20b-chat \\\n  --cache-max-entry-count 0.9 \\\n  --session-len 65536 \\\n  --tp 2 \\\n  --max-batch-size 256\n",
        {"serving.gpu_memory_utilization": 0.5, "serving.max_model_len": 16384, "serving.max_num_seqs": 64},
        ["  --cache-max-entry-count 0.5 \\", "  --session-len 16384 \\", "  --max-batch-size 64"],
        3,
    ),
    (
        "lmdeploy",
        "pipeline.py",
        "from lmdeploy import pipeline, TurbomindEngineConfig\n\nbackend_config = TurbomindEngineConfig(\n    tp=2,\n    session_len=32768,\n    cache_max_entry_count=0.8,\n)\npipe = pipeline('internlm/internlm2-chat-20b', backend_config=backend_config)\n",
        {"serving.max_model_len": 8192, "tp": 4},
        ["    session_len=8192,", "    tp=4,"],
        2,
    ),
    (
        "tgi",
        "run.sh",
        "docker run --gpus all --shm-size 1g -p 8080:80 \\\n  ghcr.io/huggingface/text-generation-inference:2.0 \\\n  --model-id meta-llama/Meta-Llama-3-8B-Instruct \\\n  --max-total-tokens 8192 \\\n  --max-input-length 4096 \\\n  --max-batch-prefill-tokens 16384 \\\n  --cuda-memory-fraction 0.95\n",
        {"serving.max_model_len": 4096, "serving.gpu_memory_utilization": 0.8},
        ["  --max-total-tokens 4096 \\", "  --cuda-memory-fraction 0.8"],
        2,
    ),
    (
        "tgi",
        "compose.yml",
        'services:\n  tgi:\n    image: ghcr.io/huggingface/text-generation-inference:3.0\n    environment:\n      MODEL_ID: mistralai/Mistral-7B-Instruct-v0.2\n      NUM_SHARD: "1"\n    command: --max-total-tokens 32768 --max-concurrent-requests 128\n',
        {"serving.max_model_len": 8192},
        ["    command: --max-total-tokens 8192 --max-concurrent-requests 128"],
        1,
    ),
    # TOML (torchtitan-like and others), FSDP scripts
    (
        "transformers",
        "train.toml",
        '# trainer\n[training_args]\nper_device_train_batch_size = 8  # try 4\ngradient_checkpointing = false\noutput_dir = "out"\n\n[other]\nkeep = "this"\n',
        {"micro_batch": 4, "grad_ckpt": True},
        ["per_device_train_batch_size = 4  # try 4", "gradient_checkpointing = true"],
        2,
    ),
    (
        "fsdp",
        "finetune.sh",
        "torchrun --nnodes 1 --nproc_per_node 4 recipes/finetuning.py --enable_fsdp --model_name meta-llama/Llama-2-7b-hf --batch_size_training 8 --micro_batch_size 4 --use_peft --peft_method lora --pure_bf16\n",
        {"gpus": 8},
        [
            "torchrun --nnodes 1 --nproc_per_node 8 recipes/finetuning.py --enable_fsdp --model_name meta-llama/Llama-2-7b-hf --batch_size_training 8 --micro_batch_size 4 --use_peft --peft_method lora --pure_bf16"
        ],
        1,
    ),
    # environment, launchers
    (
        "ms-swift",
        "env.sh",
        "#!/usr/bin/env bash\nset -e\nexport PYTORCH_CUDA_ALLOC_CONF='max_split_size_mb:128'\nnproc_per_node=2\nCUDA_VISIBLE_DEVICES=0,1 \\\nNPROC_PER_NODE=$nproc_per_node \\\nswift sft \\\n    --model a/b-7b \\\n    --max_length 4096\n",
        {"env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "seq_len": 2048},
        ["export PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True'", "    --max_length 2048"],
        2,
    ),
    (
        "transformers",
        "slurm.sh",
        '#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\nsrun torchrun --nnodes 2 --nproc_per_node 4 train.py \\\n  --model_name_or_path meta-llama/Llama-2-13b-hf \\\n  --per_device_train_batch_size 4 \\\n  --fsdp "full_shard auto_wrap" \\\n  --bf16 True \\\n  --gradient_checkpointing False\n',
        {"micro_batch": 1, "grad_ckpt": True},
        ["  --per_device_train_batch_size 1 \\", "  --gradient_checkpointing True"],
        2,
    ),
    (
        "trl",
        "env.py",
        'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\nfrom trl import SFTConfig\n\nconfig = SFTConfig(output_dir="x", max_seq_length=8192, packing=False)\n',
        {"env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "seq_len": 4096},
        ['config = SFTConfig(output_dir="x", max_seq_length=4096, packing=False)'],
        1,
    ),
    (
        "llama-factory",
        "vlm.yaml",
        "model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct\nimage_max_pixels: 1048576\nvideo_max_pixels: 65536\nstage: sft\nfinetuning_type: full\nfreeze_vision_tower: true\ncutoff_len: 8192\nper_device_train_batch_size: 1\ndeepspeed: examples/deepspeed/ds_z2_config.json\n",
        {"max_pixels": 262144, "sharding": "zero3"},
        ["image_max_pixels: 262144", "deepspeed: examples/deepspeed/ds_z3_config.json"],
        2,
    ),
    (
        "verl",
        "sft.sh",
        "torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=8 data.max_length=4096 model.partial_pretrain=Qwen/Qwen2.5-7B-Instruct model.enable_gradient_checkpointing=False\n",
        {"micro_batch": 2, "seq_len": 2048, "grad_ckpt": True},
        [
            "torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=2 data.max_length=2048 model.partial_pretrain=Qwen/Qwen2.5-7B-Instruct model.enable_gradient_checkpointing=True"
        ],
        1,
    ),
)

MORE: Final[tuple[Task, ...]] = (
    (
        "llama-factory",
        "no_deepspeed.yaml",
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\ncutoff_len: 4096\nper_device_train_batch_size: 1\nbf16: true\n",
        {"fused_ce": True, "optimizer": "adamw_8bit", "attention": "flash2"},
        ["enable_liger_kernel: true", "flash_attn: fa2"],
        0,
    ),
    (
        "llama-factory",
        "targets.yaml",
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: dpo\nfinetuning_type: lora\nlora_target: all  # everything\nlora_rank: 8\ncutoff_len: 4096\n",
        {"lora.targets": ["q_proj", "v_proj"]},
        ["lora_target: q_proj,v_proj  # everything"],
        1,
    ),
    (
        "llama-factory",
        "fp16.yaml",
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\nfp16: true  # V100\nper_device_train_batch_size: 1\n",
        {"autocast": "bf16"},
        ["bf16: true"],
        1,
    ),
    (
        "axolotl",
        "flow.yml",
        "base_model: {name}\nbase_model: Qwen/Qwen2.5-7B\nadapter: lora\nlora_r: 64\nlora_target_modules: [q_proj, k_proj, v_proj, o_proj]\nsequence_len: 4096\nmicro_batch_size: 4\n".replace(
            "base_model: {name}\n", ""
        ),
        {"lora.targets": ["q_proj", "v_proj"], "attention": "flash2"},
        ["flash_attention: true"],
        1,
    ),
    (
        "axolotl",
        "pack.yml",
        "base_model: Qwen/Qwen2.5-7B\nsequence_len: 4096\nsample_packing: false\nmicro_batch_size: 4\noptimizer: adamw_torch\ndeepspeed: deepspeed_configs/zero1.json\n",
        {"packing": True, "sharding": "zero3", "fused_ce": True},
        ["sample_packing: true", "deepspeed: deepspeed_configs/zero3.json"],
        2,
    ),
    (
        "ms-swift",
        "pixels.sh",
        "MAX_PIXELS=1003520 \\\nCUDA_VISIBLE_DEVICES=0 \\\nswift sft \\\n    --model Qwen/Qwen2.5-VL-7B-Instruct \\\n    --train_type lora \\\n    --target_modules all-linear \\\n    --attn_impl sdpa\n",
        {"max_pixels": 501760, "attention": "flash2"},
        ["MAX_PIXELS=501760 \\", "    --attn_impl flash_attn"],
        2,
    ),
    (
        "verl",
        "long.sh",
        "python3 -m verl.trainer.main_ppo \\\n    actor_rollout_ref.model.use_remove_padding=False \\\n    actor_rollout_ref.actor.ulysses_sequence_parallel_size=1 \\\n    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\\n    actor_rollout_ref.rollout.n=16 \\\n    actor_rollout_ref.rollout.free_cache_engine=False\n",
        {"sp": 2, "generations": 8, "rollout.sleep": True},
        [
            "    actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 \\",
            "    actor_rollout_ref.rollout.n=8 \\",
            "    actor_rollout_ref.rollout.free_cache_engine=True",
        ],
        3,
    ),
    (
        "trl",
        "peft.py",
        'from peft import LoraConfig\nfrom trl import SFTConfig\n\npeft_config = LoraConfig(\n    r=32,\n    target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],\n)\nargs = SFTConfig(output_dir="o", packing=False, use_liger_kernel=False, optim="adamw_torch", fp16=True)\n',
        {"lora.targets": ["q_proj", "v_proj"], "packing": True, "fused_ce": True, "optimizer": "paged_adamw_8bit"},
        [
            '    target_modules=["q_proj", "v_proj"],',
            'args = SFTConfig(output_dir="o", packing=True, use_liger_kernel=True, optim="paged_adamw_8bit", fp16=True)',
        ],
        2,
    ),
    (
        "transformers",
        "quant.py",
        'import torch\nfrom transformers import AutoModelForCausalLM, BitsAndBytesConfig\n\nbnb = BitsAndBytesConfig(load_in_8bit=True)\nmodel = AutoModelForCausalLM.from_pretrained("a/b-7b", quantization_config=bnb, device_map="auto")\n',
        {"attention": "sdpa"},
        [
            'model = AutoModelForCausalLM.from_pretrained("a/b-7b", quantization_config=bnb, attn_implementation="sdpa", device_map="auto")'
        ],
        1,
    ),
    (
        "transformers",
        "trainer.py",
        'from transformers import (\n    Trainer,\n    TrainingArguments,\n)\n\n\ndef main():\n    args = TrainingArguments(\n        output_dir="out",\n        per_device_train_batch_size=4,  # was 8\n        per_device_eval_batch_size=16,\n        deepspeed="ds_zero2.json",\n        fp16=True)\n    Trainer(args=args).train()\n',
        {"micro_batch": 1, "eval_micro_batch": 1, "grad_ckpt": True},
        [
            "        per_device_train_batch_size=1,  # was 8",
            "        per_device_eval_batch_size=1,",
            "        gradient_checkpointing=True,",
        ],
        2,
    ),
    (
        "vllm",
        "k8s_items.yaml",
        'apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: llm\n      image: vllm/vllm-openai:v0.8.5\n      args:\n        - --model=Qwen/Qwen2.5-32B-Instruct\n        - --tensor-parallel-size=2\n        - --gpu-memory-utilization=0.95\n        - --max-model-len=32768\n      env:\n        - name: PYTORCH_CUDA_ALLOC_CONF\n          value: "max_split_size_mb:64"\n',
        {
            "serving.gpu_memory_utilization": 0.85,
            "serving.max_model_len": 8192,
            "env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "serving.cuda_graphs": False,
        },
        [
            "        - --gpu-memory-utilization=0.85",
            "        - --max-model-len=8192",
            '          value: "expandable_segments:True"',
            "        - --enforce-eager",
        ],
        3,
    ),
    (
        "vllm",
        "api.sh",
        "CUDA_VISIBLE_DEVICES=0,1 nohup python -m vllm.entrypoints.openai.api_server --model /models/Qwen2-72B-Instruct-AWQ --quantization awq --kv-cache-dtype auto --max-num-seqs 512 > log 2>&1 &\n",
        {"serving.kv_dtype": "fp8", "serving.max_num_seqs": 64},
        [
            "CUDA_VISIBLE_DEVICES=0,1 nohup python -m vllm.entrypoints.openai.api_server --model /models/Qwen2-72B-Instruct-AWQ --quantization awq --kv-cache-dtype fp8 --max-num-seqs 64 > log 2>&1 &"
        ],
        1,
    ),
    (
        "vllm",
        "add.sh",
        "vllm serve Qwen/Qwen2.5-7B-Instruct --port 8000\n",
        {"serving.max_model_len": 8192},
        ["vllm serve Qwen/Qwen2.5-7B-Instruct --port 8000 --max-model-len 8192"],
        1,
    ),
    (
        "vllm",
        "crlf.bat",
        "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 32768 --gpu-memory-utilization 0.98\r\n",
        {"serving.gpu_memory_utilization": 0.9},
        ["vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 32768 --gpu-memory-utilization 0.9"],
        1,
    ),
    (
        "sglang",
        "compose.yaml",
        "services:\n  sglang:\n    image: lmsysorg/sglang:latest\n    command: >-\n      python3 -m sglang.launch_server\n      --model-path Qwen/Qwen2.5-32B-Instruct\n      --mem-fraction-static 0.9\n      --host 0.0.0.0\n",
        {"serving.gpu_memory_utilization": 0.75, "serving.max_model_len": 16384},
        ["      --mem-fraction-static 0.75"],
        2,
    ),
    (
        "sglang",
        "engine.py",
        'import sglang as sgl\n\nllm = sgl.Engine(\n    model_path="meta-llama/Llama-3.1-8B-Instruct",\n    mem_fraction_static=0.9,\n    context_length=32768,\n)\n',
        {"serving.gpu_memory_utilization": 0.8, "serving.max_model_len": 8192},
        ["    mem_fraction_static=0.8,", "    context_length=8192,"],
        2,
    ),
    (
        "deepspeed",
        "ds_none.json",
        '{\n  "train_micro_batch_size_per_gpu": "auto",\n  "gradient_accumulation_steps": "auto",\n  "zero_optimization": {\n    "stage": 3,\n    "offload_optimizer": { "device": "none" },\n    "offload_param": { "device": "none" },\n    "overlap_comm": true\n  }\n}\n',
        {"offload": ["optimizer", "param"]},
        ['    "offload_optimizer": { "device": "cpu" },', '    "offload_param": { "device": "cpu" },'],
        2,
    ),
    (
        "deepspeed",
        "ds_inline.py",
        'import deepspeed\nds_config = {\n    "train_micro_batch_size_per_gpu": 8,\n    "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8},\n    "bf16": {"enabled": True},\n}\nengine, *_ = deepspeed.initialize(model=None, config=ds_config)\n',
        {"micro_batch": 1, "sharding": "zero2"},
        [
            '    "train_micro_batch_size_per_gpu": 1,',
            '    "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8},',
        ],
        2,
    ),
    (
        "deepspeed",
        "dschat.sh",
        '#!/bin/bash\nZERO_STAGE=$2\nif [ "$ZERO_STAGE" == "" ]; then\n    ZERO_STAGE=3\nfi\ndeepspeed main.py \\\n   --per_device_train_batch_size 4 \\\n   --max_seq_len 512 \\\n   --zero_stage 2 \\\n   --deepspeed \\\n   --output_dir out &> out/training.log\n',
        {"micro_batch": 1, "sharding": "zero3"},
        ["   --per_device_train_batch_size 1 \\", "   --zero_stage 3 \\"],
        2,
    ),
    (
        "openrlhf",
        "sft_new.sh",
        "deepspeed --module openrlhf.cli.train_sft --max_len 4096 --pretrain a/b-7b --micro_train_batch_size 8 --zero_stage 2 --gradient_checkpointing --packing_samples --lora_rank 64\n",
        {"lora.r": 16, "micro_batch": 2},
        [
            "deepspeed --module openrlhf.cli.train_sft --max_len 4096 --pretrain a/b-7b --micro_train_batch_size 2 --zero_stage 2 --gradient_checkpointing --packing_samples --lora_rank 16"
        ],
        1,
    ),
    (
        "torchtune",
        "full.yaml",
        "# Config\nmodel:\n  _component_: torchtune.models.qwen2_5.qwen2_5_7b_instruct\ntokenizer:\n  _component_: torchtune.models.qwen2_5.qwen2_5_tokenizer\n  max_seq_len: null\nbatch_size: 2\noptimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n  lr: 5e-6\ncompile: False\nenable_activation_checkpointing: True  # True reduces memory\nenable_activation_offloading: False  # True reduces memory\n",
        {"optimizer": "adamw_8bit", "offload": ["activations"], "seq_len": 4096},
        [
            "  _component_: bitsandbytes.optim.AdamW8bit",
            "enable_activation_offloading: True  # True reduces memory",
            "  max_seq_len: 4096",
        ],
        4,
    ),
    (
        "megatron",
        "recompute.sh",
        "torchrun --nproc_per_node 8 pretrain_gpt.py \\\n  --tensor-model-parallel-size 2 \\\n  --micro-batch-size 2 \\\n  --recompute-activations \\\n  --seq-length 4096 \\\n  --num-layers 32 --hidden-size 4096 --num-attention-heads 32\n",
        {"grad_ckpt": True, "cp": 2},
        ["  --tensor-model-parallel-size 2 \\"],
        2,
    ),
    (
        "accelerate",
        "fsdp2.yaml",
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n  fsdp_cpu_ram_efficient_loading: true\n  fsdp_offload_params: false\nmixed_precision: bf16\nnum_processes: 2\n",
        {"reshard_after_forward": True, "gpus": 4},
        ["  fsdp_reshard_after_forward: true", "num_processes: 4"],
        2,
    ),
    (
        "accelerate",
        "launch.sh",
        "accelerate launch --num_processes 2 --mixed_precision bf16 --use_deepspeed --zero_stage 2 train.py --model_name_or_path a/b-7b --per_device_train_batch_size 2\n",
        {"sharding": "zero3", "gpus": 4},
        [
            "accelerate launch --num_processes 4 --mixed_precision bf16 --use_deepspeed --zero_stage 3 train.py --model_name_or_path a/b-7b --per_device_train_batch_size 2"
        ],
        1,
    ),
    (
        "xtuner",
        "full.py",
        "from xtuner.model import SupervisedFinetune\nfrom transformers import AutoModelForCausalLM\nmax_length = 2048\nbatch_size = 2\nmodel = dict(\n    type=SupervisedFinetune,\n    use_varlen_attn=False,\n    llm=dict(\n        type=AutoModelForCausalLM.from_pretrained,\n        pretrained_model_name_or_path='internlm/internlm2-7b',\n        quantization_config=dict(\n            load_in_4bit=True,\n            bnb_4bit_use_double_quant=False)))\nstrategy = dict(type='DeepSpeedStrategy')\n",
        {"quant": "nf4-double", "seq_len": 1024},
        ["            bnb_4bit_use_double_quant=True)))", "max_length = 1024"],
        2,
    ),
    (
        "unsloth",
        "grpo.py",
        'from unsloth import FastLanguageModel\nfrom trl import GRPOConfig\nmax_seq_length = 2048\nmodel, tokenizer = FastLanguageModel.from_pretrained(\n    model_name="meta-llama/Llama-3.1-8B-Instruct",\n    max_seq_length=max_seq_length,\n    load_in_4bit=True,\n    fast_inference=True,\n    gpu_memory_utilization=0.7,  # reduce if out of memory\n)\nargs = GRPOConfig(num_generations=8, max_completion_length=1024, per_device_train_batch_size=8)\n',
        {"rollout.gpu_memory_utilization": 0.5, "generations": 4},
        [
            "    gpu_memory_utilization=0.5,  # reduce if out of memory",
            "args = GRPOConfig(num_generations=4, max_completion_length=1024, per_device_train_batch_size=8)",
        ],
        2,
    ),
    (
        "lmdeploy",
        "turbomind.sh",
        "lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct --server-port 23333 --cache-max-entry-count 0.8 --quant-policy 0\n",
        {"serving.kv_dtype": "int8", "serving.gpu_memory_utilization": 0.4},
        [
            "lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct --server-port 23333 --cache-max-entry-count 0.4 --quant-policy 8"
        ],
        1,
    ),
    (
        "tgi",
        "env.yaml",
        "services:\n  tgi:\n    image: ghcr.io/huggingface/text-generation-inference:2.4\n    environment:\n      - MODEL_ID=Qwen/Qwen2.5-14B-Instruct\n      - MAX_TOTAL_TOKENS=32768\n      - CUDA_MEMORY_FRACTION=0.95\n",
        {"serving.max_model_len": 8192, "serving.gpu_memory_utilization": 0.8},
        ["      - MAX_TOTAL_TOKENS=8192", "      - CUDA_MEMORY_FRACTION=0.8"],
        2,
    ),
    (
        "verl",
        "easy_r1.sh",
        "python3 -m verl.trainer.main \\\n    config=examples/config.yaml \\\n    worker.actor.model.model_path=Qwen/Qwen2.5-VL-7B-Instruct \\\n    worker.actor.micro_batch_size_per_device_for_update=4 \\\n    worker.rollout.n=20\n",
        {"micro_batch": 1, "rollout.gpu_memory_utilization": 0.4},
        [
            "    worker.actor.micro_batch_size_per_device_for_update=1 \\",
            "    worker.rollout.gpu_memory_utilization=0.4 \\",
        ],
        1,
    ),
)
