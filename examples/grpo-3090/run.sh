# 4 x RTX 3090 24 GB
CUDA_VISIBLE_DEVICES=0,1,2,3 \
NPROC_PER_NODE=1 \
swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2-7B-Instruct \
    --train_type lora \
    --lora_rank 8 \
    --lora_alpha 32 \
    --torch_dtype bfloat16 \
    --dataset data/grpo.jsonl \
    --max_completion_length 1024 \
    --num_generations 4 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    --learning_rate 1e-6 \
    --use_vllm true \
    --vllm_gpu_memory_utilization 0.8 \
    --deepspeed zero2 \
    --output_dir output
