"""The causes a case can be filed under, with one line on each; and the other words a record may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CAUSES", "FRAMEWORKS", "PHASES", "ROLES", "SAFETY", "STATUSES", "definition"]

CAUSES: Final[Mapping[str, tuple[str, str]]] = {
    "activations": (
        "What layers save for the backward pass fills the GPU: long sequences, a large micro-batch, no checkpointing.",
        "各层为反向传播保存的激活占满显存：序列长、单卡 batch 大、未开启梯度检查点。",
    ),
    "attention-scores": (
        "Attention materialises sequence × sequence matrices because no flash or memory-efficient kernel is used.",
        "注意力显式生成“序列×序列”矩阵，没有走 flash 或省显存的实现。",
    ),
    "checkpoint-save": (
        "The failure comes while weights are gathered, merged or written.",
        "在汇集、合并或写出权重（保存检查点）时失败。",
    ),
    "cuda-graph": (
        "Captured CUDA graphs, compiled kernels or workspaces take memory that no budget counted.",
        "CUDA graph 捕获、编译或工作区占用了预算之外的显存。",
    ),
    "eval": (
        "Evaluation keeps logits of the whole set, or runs a larger batch than training does.",
        "评估阶段累积整个验证集的 logits，或使用了比训练更大的 batch。",
    ),
    "extra-models": (
        "A reference, reward, critic, teacher or draft model lives beside the one that is trained or served.",
        "参考、奖励、评论家、教师或草稿模型与主模型同时驻留显存。",
    ),
    "fragmentation": (
        "Enough memory is reserved, but in pieces that are too small for the request.",
        "已保留的显存足够，但碎片太小，放不下所请求的整块。",
    ),
    "hardware-limit": (
        "No setting makes this job fit this hardware.",
        "无论如何设置，这台硬件都放不下这个任务。",
    ),
    "host-ram": (
        "The machine's memory, not the GPU's, runs out: the kernel or the container kills the process.",
        "耗尽的是主机内存而非显存：进程被内核或容器杀掉。",
    ),
    "inactive-setting": (
        "A setting that would save memory was given, but is not in effect.",
        "设置了省显存的选项，但实际上没有生效。",
    ),
    "kv-cache": (
        "Keys and values of the requests being served do not fit beside the weights.",
        "推理服务的 KV 缓存放不进权重之外剩余的显存。",
    ),
    "leak": (
        "Memory grows with every step until it ends.",
        "显存或内存随步数不断增长，直到耗尽。",
    ),
    "logits": (
        "Tensors as wide as the vocabulary (logits, their fp32 copy, log-probabilities) fill the GPU.",
        "词表宽度的张量（logits、其 fp32 副本、对数概率）占满显存。",
    ),
    "long-sample": (
        "One very long sample or an uneven batch goes over the limit in the middle of a run.",
        "训练中途某个超长样本或不均匀的 batch 超出显存。",
    ),
    "model-states": (
        "Weights, gradients and optimizer states do not fit as they are sharded.",
        "按目前的切分方式，权重、梯度和优化器状态放不下。",
    ),
    "not-oom": (
        "It reads like a memory failure, but neither GPU nor host memory ran out.",
        "看起来像显存不足，其实显存和内存都没有耗尽。",
    ),
    "optimizer-init": (
        "Optimizer states are created at the first step or at start-up and do not fit.",
        "第一步或初始化时创建优化器状态，放不下。",
    ),
    "other-process": (
        "Another process, or one that did not die, holds the GPU's memory.",
        "别的进程（或没有退出的旧进程）占着显存。",
    ),
    "rollout-engine": (
        "The generation engine of an RL job holds memory that the training on the same GPU needs.",
        "强化学习的推理引擎与训练同卡，占着训练需要的显存。",
    ),
    "shared-memory": (
        "The shared memory of the container (/dev/shm) is too small.",
        "容器的共享内存（/dev/shm）太小。",
    ),
    "version-regression": (
        "A given version of a library takes more than the one before it.",
        "某个库的特定版本比之前的版本更耗显存（已知退化）。",
    ),
    "vision-tokens": (
        "Images or video become so many tokens, or the vision tower so large, that the rest does not fit.",
        "图像或视频展开成过多 token，或视觉塔过大，导致放不下。",
    ),
    "weights-load": (
        "The weights do not fit while they are being loaded: a whole copy on each rank, quantization not applied.",
        "加载权重时就放不下：每个进程一份完整副本、量化未生效等。",
    ),
    "zero3-gather": (
        "Parameters gathered for a layer, prefetched ahead, or the buckets for it, are what does not fit.",
        "ZeRO-3/FSDP 汇集、预取的参数或通信桶放不下。",
    ),
}
"""Cause -> (definition in English, in Chinese); the folder names under ``cases/``."""

PHASES: Final = (
    "build",
    "compile",
    "data",
    "engine-init",
    "eval",
    "backward",
    "forward",
    "generate",
    "load",
    "loss",
    "merge",
    "optimizer-init",
    "optimizer-step",
    "resume",
    "save",
    "train",
    "unknown",
)

STATUSES: Final = (
    "confirmed-by-reporter",
    "confirmed-by-maintainer",
    "arithmetic",
    "suggested",
    "unknown",
)
"""How sure a fix is: tried and reported, stated by those who keep the code, computed, proposed, not known."""

SAFETY: Final = ("same-numbers", "changed-numerics", "changed-training", "not-applicable")

ROLES: Final = ("report", "fix", "evidence", "docs", "advisory", "discussion")

FRAMEWORKS: Final = frozenset(
    """
    accelerate alpaca-lora apex aphrodite areal autoawq autogptq axolotl baichuan bitsandbytes candle chatglm
    colossalai comfyui cosmos ctranslate2 cuda dalle datasets deepseek deepspeed deepspeed-chat diffusers
    docker dspy exllamav2 exo fairseq fastchat flash-attention flax fsdp2-native gpt-neox gpt4all gritlm
    guidance huggingface-hub internlm internvl ipex-llm jax jetson k-transformers keras kohya-ss ktransformers
    kubernetes langchain levanter lightllm lightning linux litgpt llama llama-cpp llama-recipes llamafactory
    llava llmcompressor lm-evaluation-harness lmdeploy lmflow lmms-eval localai maxtext megatron-deepspeed
    megatron-lm mergekit minicpm minigpt4 mistral-finetune mistral-rs mlc-llm mlx mosaicml ms-swift nanogpt
    nanotron nccl nemo nemo-rl neuronx ollama open-clip open-instruct open-r1 openrlhf optimum optimum-habana
    outlines paddlepaddle peft petals prime-rl pytorch quanto qwen qwen-vl ray ray-serve rocm roll sagemaker
    sentence-transformers setfit sglang skypilot skyrl slime slurm speculators stable-diffusion-webui stanford-alpaca
    tensorflow tensorrt tensorrt-llm text-generation-webui tgi torch-npu torchao torchtitan torchtune
    transformer-engine transformers triton triton-inference-server trl trlx unsloth unsloth-zoo verl vime vllm
    vllm-ascend wandb wsl xformers xinference xla xtuner yi
    """.split()  # noqa: SIM905 (a table of one word each reads worse)
)
"""Names of frameworks and libraries in lower case, as records write them."""


def definition(cause: str, language: str = "en") -> str:
    """One line on a cause.

    :raises KeyError: for what is no cause.
    """
    return CAUSES[cause][1 if language == "zh" else 0]
