"""What people say of a job, by kind of saying: spaced names, lengths, counts, memories, denials, tables, engines."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text

SAID = {
    "stages": [
        ("deep speed stage 3 on 4 A100s, OOM", {"zero_stage": 3, "gpu_count": 4}),
        ("采用 deepspeed zero3. 还是爆显存", {"zero_stage": 3}),
        ("I run stage 3 and offload both optimizer states and parameters", {"zero_stage": 3}),
        ('"zero_optimization": {"stage": 2, "overlap_comm": true}', {"zero_stage": 2}),
        ("accelerate launch --config_file conf/deepspeed_zero3.yaml --num_processes 8 sft.py", {"zero_stage": 3}),
        ('  File "deepspeed/runtime/zero/stage3.py", line 9, in step\n    self.optimizer.step()', {"zero_stage": 3}),
    ],
    "lengths": [
        ("context of 16k tokens, lora OOM", {"seq_len": 16384}),
        ("上下文 32k 训练 OOM", {"seq_len": 32768}),
        ("max_seq_length from 2048 to 4096 causes OOM", {"seq_len": 4096}),
        ("sequence length (20000) is long", {"seq_len": 20000}),
        ("Sequence Lenght = 20480, batch size 1 per device", {"seq_len": 20480, "micro_batch": 1}),
        ("max sentence length is also 128", {"seq_len": 128}),
        ("fine-tuning OOMs at 12,000 tokens", {"seq_len": 12000}),
        ("it decodes at 3000 tokens per second", {"seq_len": None}),
    ],
    "keys": [
        ("I set per_device_train_batch_size to 2 and gradient_accumulation_steps to 16", {"micro_batch": 2, "grad_accum": 16}),
        ("per_device_train_batch_size 设成 1，还是 OOM", {"micro_batch": 1}),
        ("per_device_train_batch_size 从 8 降到 2 也不行", {"micro_batch": 2}),
        ("gpu_memory_utilization is set to 0.85, max_model_len 8192 in vllm", {"gpu_memory_utilization": 0.85}),
        ("gradient_checkpointing was set to true, OOM", {"grad_ckpt": True}),
        ("train_micro_batch_size_per_gpu is 4", {"micro_batch": 4}),
        ("micro_batch_size_per_gpu = 4", {"micro_batch": 4}),
        ("batch_size_per_gpu of 3", {"micro_batch": 3}),
        ("ppo_micro_batch_size_per_gpu=1 still OOM", {"micro_batch": 1}),
        ("Batch size per device is 128 on the TPU", {"micro_batch": 128}),
        ("bs 2 × accum 8 × 4 gpus", {"micro_batch": 2, "grad_accum": 8, "gpu_count": 4}),
        ("llm = LLM(model=model_path, dtype='half')", {"model": None}),
        ("stage: dpo\npref_loss: orpo\nmodel_name_or_path: x/y-7b", {"objective": "orpo"}),
    ],
    "counts": [
        ("八卡 A100 训练 OOM", {"gpu_count": 8}),
        ("双卡 4090 微调 7B 爆显存", {"gpu_count": 2, "params_b": 7}),
        ("ds_z3_config单卡训练 OOM", {"gpu_count": 1}),
        ("两机十六卡训练 OOM", {"gpu_count": 16}),
        ("三十二张 A100 训练 OOM", {"gpu_count": 32}),
        ("a pair of RTX 3090s OOMs", {"gpu_count": 2}),
        ("trained on 4 nodes × 8 GPUs, OOM", {"gpu_count": 32}),
        ("two nodes with 8 GPUs each, OOM", {"gpu_count": 16}),
        ("trained on 4 GPUs fine; on 1 GPU it OOMs", {"gpu_count": 1}),
        ("mpirun --allow-run-as-root -np 4 python train.py", {"gpu_count": 4}),
        ("- GPUs: 4\n- Precision: bf16", {"gpu_count": 4, "dtype": "bf16"}),
        ("GPUs: 3090", {"gpu_count": None}),
        ("colab T4 finetuning OOM", {"gpu": "T4", "gpu_count": 1}),
        ("Kaggle 2xT4 OOM", {"gpu": "T4", "gpu_count": 2}),
        ("JAX on TPU v3-8: RESOURCE_EXHAUSTED", {"gpu_count": 8}),
        ("JAX on TPU v4-8: RESOURCE_EXHAUSTED", {"gpu_count": 4}),
    ],
    "memories": [
        ("64GB RAM and an RTX 3090 24GB VRAM, killed", {"capacity_gib": 24}),
        ("内存 256GB，显存 80GB，加载模型被 killed", {"capacity_gib": 80}),
        ("needs 60GB VRAM but I have 24GB", {"capacity_gib": 24}),
        ("I have 64 GB of RAM", {"capacity_gib": None}),
        ("my cuda memory is 40GB", {"capacity_gib": 40}),
        ("A40 GPUs (46 Gbs memory each)", {"capacity_gib": 46}),
        ("4*A10G graphics cards, 24 Gb each", {"gpu_count": 4}),
        ("a GPU node with 80G*8 VRAM", {"capacity_gib": 80, "gpu_count": 8}),
        ("数据 60k，显存64G*8卡", {"capacity_gib": 64, "gpu_count": 8}),
    ],
    "denials": [
        ("gradient checkpointing is disabled, OOM", {"grad_ckpt": False}),
        ("没有开梯度检查点", {"grad_ckpt": False}),
        ("不开 gradient checkpointing 就 OOM", {"grad_ckpt": False}),
        ("gradient checkpointing on, bf16", {"grad_ckpt": True}),
        ("flash attention is not supported on my card", {"attention": None}),
        ("flash attention 没装，训练 OOM", {"attention": None}),
    ],
    "sizes": [
        ("70亿参数的模型训练 OOM", {"params_b": 7}),
        ("a 130M parameter GPT", {"params_b": 0.13}),
        ("gemma_2_9b_it goes OOM", {"params_b": 9}),
        ("qwen3-1_7B goes OOM", {"params_b": 1.7}),
    ],
    "tables": [
        (
            "| GPU | 8x H100 80GB |\n|---|---|\n| Model | Llama-3.1-70B |\n| micro batch size | 2 |\n| ZeRO stage | 3 |",
            {"gpu_count": 8, "capacity_gib": 80, "params_b": 70, "micro_batch": 2, "zero_stage": 3},
        ),
        ("> per_device_train_batch_size: 1\n> cutoff_len: 4096\n", {"micro_batch": 1, "seq_len": 4096}),
    ],
    "engines": [
        (
            "trtllm-serve some/model --max_seq_len 32768 --tp_size 4\nout of memory",
            {"max_model_len": 32768, "tp": 4, "objective": "inference"},
        ),
        (
            "./llama-server -m models/llama-3-8b-instruct.Q4_K_M.gguf -ngl 99 -c 32768\ncudaMalloc failed: out of memory",
            {"max_model_len": 32768, "params_b": 8, "objective": "inference"},
        ),
        ("llama_context: n_ctx         = 131072\n", {"max_model_len": 131072}),
        (
            "print_info: model type       = 3B\nprint_info: model params     = 3.84 B\nload_tensors: offloaded 33/33 layers",
            {"params_b": 3.84, "objective": "inference"},
        ),
        ("mlx_lm.server crashes on an M2 Max", {"objective": "inference"}),
        ("does mlx_lm.lora take a Gemma-2-9b-it-4bit on an M1 Pro with 32GB", {"objective": "sft"}),
        ("llm_load_print_meta: n_ctx_train      = 8192\nollama gemma 7b OOM", {"objective": "inference"}),
        ("reward model training OOM", {"objective": "rm"}),
        ("DAPO OOM", {"objective": "grpo"}),
    ],
    "dumps": [
        (
            "  micro_batch_size ................................ 4\n  tensor_model_parallel_size ...................... 2\n"
            "  world_size ...................................... 64\nOOM",
            {"micro_batch": 4, "tp": 2, "gpu_count": 64},
        ),
        (
            "Namespace(model_name_or_path='org/some-13b', per_device_train_batch_size=2, max_seq_length=4096, bf16=True, gradient_checkpointing=False)",
            {"model": "org/some-13b", "micro_batch": 2, "seq_len": 4096, "dtype": "bf16", "grad_ckpt": False},
        ),
        ("Some tool 2024.8. Num GPUs = 1. Max memory: 14.748 GB.", {"gpu_count": 1, "capacity_gib": 14.748}),
        ("trainable params: 41,943,040 || all params: 8,072,204,288 || trainable%: 0.5196", {"method": "lora"}),
        ("BitsAndBytesConfig(load_in_4bit=True)\npeft LoraConfig(r=16)\ntraining OOM", {"method": "qlora"}),
        ("I'm fine tuning a 70b model in 4-bit with PEFT", {"method": "qlora", "params_b": 70}),
    ],
    "splits": [
        ("Megatron, TP 8 with sequence parallel and PP 4, OOM", {"tp": 8, "pp": 4, "sp": True}),
        ("Megatron TP=8，开启序列并行，爆显存", {"tp": 8, "sp": True}),
        ("Megatron with TP 8, without sequence parallel, OOM", {"tp": 8, "sp": None}),
        ("ulysses sequence parallel size 4, OOM", {"sp": 4}),
        ("ZeRO-3 with offload_optimizer and offload_param, OOM", {"zero_stage": 3, "offload": ("optimizer", "param")}),
    ],
    "shares": [
        ("GPU memory usage is 22.5/24 GB", {"capacity_gib": 24}),
        ("显存占用 78G/80G", {"capacity_gib": 80}),
        ("only 300MB free out of 24GB", {"capacity_gib": 24}),
        ("RAM: 30 GB used of 64 GB of RAM", {"capacity_gib": None}),
        ("an M3 Max with 36GB of unified memory", {"capacity_gib": 36}),
        ("is an M3 Max with 96GB enough", {"gpu": "M3 Max 96GB"}),
        ("my macbook has 64 GB, can it run that", {"gpu": "macbook 64GB"}),
        ("my A100 has 80 GB", {"gpu": "A100", "capacity_gib": 80}),
        ("the 4090 has 12 GB free", {"gpu": "4090", "capacity_gib": None}),
        ("vllm serve org/thing-7b --tensor-parallel-size 2 --max-model-len 65536 --max-num-seqs 64 on 2x H100, error: "
         "the maximum number of tokens that can be stored in the cache is smaller than what one request needs here",
         {"gpu": "H100", "gpu_count": 2}),
        ("each GPU has 24 GiB", {"capacity_gib": 24}),
    ],
    "words": [
        ("bs 1, ga 16, seq 2048", {"micro_batch": 1, "grad_accum": 16, "seq_len": 2048}),
        ("LoRA，bs=1，length=4096 都会 OOM", {"micro_batch": 1, "seq_len": 4096}),
        ("SimPO OOM", {"objective": "simpo"}),
        ("继续预训练爆显存", {"objective": "pretrain"}),
        ("training in full precision OOMs", {"dtype": "fp32"}),
        ("bf16 with fp32 master weights", {"dtype": "bf16"}),
    ],
    "brackets": [
        ("ran fine with batch size=8 on a small set (4k rows). With batch_size=4 on the large set it is OOM", {"micro_batch": 4}),
        ("the README (8 A100) says 10 hours; deepspeed --num_gpus=2 train.py goes OOM", {"gpu_count": 8}),
    ],
    "cards": [
        ("I have 24 gigs on my 4090. It still crashes.", {"gpu": "4090", "capacity_gib": 24}),
        ("设备：A100/40G × 4", {"gpu_count": 4, "capacity_gib": 40}),
        ("out of memory on 4 nodes(8xH200)", {"gpu_count": 32}),
        ("OOM on A100 80Gx4.", {"gpu_count": 4}),
        ("an idle 80 GB H100 OOMs", {"gpu_count": 1, "capacity_gib": 80}),
        ("GPU with 24 Gigabytes of memory", {"capacity_gib": 24}),
        ("(1080Ti，11GB内存) 提示内存不够", {"capacity_gib": 11}),
        ("4090，64G内存，加载被杀", {"capacity_gib": None}),
        ("dual RTX 5090, 128 GB DDR5", {"gpu_count": 2, "capacity_gib": None}),
        ("h800 gpu only has 80GB", {"capacity_gib": 80}),
        ("DEVICE_BATCH_SIZE=64 RTX 3090", {"gpu_count": 1}),
        ("a V100 is out of memory: 15 MB free on (GPU 7;", {"gpu_count": None}),
    ],
    "names": [
        ("run SUS-Chat-34B, killed", {"model": "SUS-Chat-34B", "params_b": 34}),
        ("微调 somecoder2-15B-alpha 爆显存", {"model": "somecoder2-15B-alpha", "params_b": 15}),
        ("model some-org/Other-Thing-3b-beta OOMs", {"model": "some-org/Other-Thing-3b-beta", "params_b": 3}),
        ("since the update of llama-server my RAM is full", {"model": None}),
        ("mixtral 8x7B with the llava recipe", {"model": "mixtral 8x7B"}),
    ],
    "aims": [
        ("I fine tune llama-7b and it OOMs", {"objective": "sft"}),
        ("rebuilt llama.cpp from scratch, OOM", {"objective": "inference"}),
        ("training a 1B from scratch OOMs", {"objective": "pretrain"}),
        ("OOM\ntorch 2.0.1, peft 0.5.0", {"objective": None}),
        ("train on full parameters(15B)", {"method": "full"}),
        ("zero.Init puts it all on one card", {"zero_stage": 3}),
    ],
    "totals": [
        ("3 groups with 8 A100 (total of 24 A100-40G cards)", {"gpu_count": 24, "capacity_gib": 40}),
        ("手头有100张左右的A100", {"gpu_count": 100}),
        ("run inference on two 4090s, OOM", {"gpu_count": 2}),
        ("the step took 3090s", {"gpu": None}),
        ("OOM on TPUv3-8", {"gpu_count": 8}),
        ("使用的显存96gb", {"capacity_gib": 96}),
        ("使用显存 60G", {"capacity_gib": None}),
    ],
    "told values": [
        ("i specify the batchsize into 1", {"micro_batch": 1}),
        ("I'm at 0.32 gpu_memory_utilization on a 7b model", {"gpu_memory_utilization": 0.32}),
        ("GPU memory utilization is set to 0.9", {"gpu_memory_utilization": 0.9}),
        ("I manage to train it with batch size = 2, but it dies with batch size = 16", {"micro_batch": 16}),
        ("tried to run context 20k with one node", {"seq_len": 20000}),
        ("| Item | Value |\n|---|---|\n| **Hardware** | 8 × Ascend **910B1** |", {"gpu_count": 8}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("text", "facts"), [pair for pairs in SAID.values() for pair in pairs])
def test_facts(text, facts):
    evidence = read_text(text)
    assert {name: evidence.value(name) for name in facts} == facts


def test_a_model_under_home_is_no_user():
    assert read_text("--model_name_or_path /home/Qwen1.5-14B-Chat/").value("model") == "Qwen1.5-14B-Chat"
    assert "jdoe" not in str(read_text("--model_name_or_path /home/jdoe/Qwen1.5-14B-Chat/").value("model"))
