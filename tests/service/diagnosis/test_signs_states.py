"""Signs of states, of small cards and of what is beside the trained model; and texts that must not have them."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.rules import RULES
from oomdoc.intake import read_text

BY_CAUSE = {rule.CAUSE: rule for rule in RULES}


def weights(cause: str, text: str) -> dict[str, float]:
    reasons = BY_CAUSE[cause].weigh(view_of(read_text(text))[0])
    return {reason.message.key.removeprefix(f"cause.{cause}."): reason.log_odds for reason in reasons}


OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate {ask} (GPU 0; {card} total capacity; {held} already allocated)"
)

HAS = [
    ("hardware-limit", "small-card", OOM.format(ask="24.00 MiB", card="3.94 GiB", held="3.10 GiB")),
    ("hardware-limit", "how-much", "CUDA out of memory with the demo. How much VRAM is needed for it?"),
    ("hardware-limit", "how-much", "跑这个项目爆显存了，请问训练得用多少显存？"),
    ("hardware-limit", "larger-one", "It runs out of memory on my laptop. Do I need a better GPU?"),
    ("hardware-limit", "larger-one", "一运行就爆显存，除了换更好的显卡还有别的办法吗"),
    ("hardware-limit", "old-card", "out of memory on a GTX 960"),
    ("hardware-limit", "old-card", "MX150 显卡，一跑就 out of memory"),
    ("hardware-limit", "small-told", "I have a card with 6 GB of VRAM and get out of memory"),
    ("logits", "upcast", "DPO training dies where the logits are upcast to fp32"),
    ("logits", "without", "sglang OOM; with return_logprob=False it works under the same load"),
    ("logits", "without", "去掉 logprobs 就正常，开了就爆显存"),
    ("logits", "larger-fits", "Fine-tuning pythia-2.8b works, but with gemma-2b I always get OOM"),
    ("logits", "larger-fits", "微调 llama2-7b 没问题，换成 qwen 1.8b 就爆显存"),
    ("logits", "engine", "OOM when running lm_eval with the vllm backend on hellaswag"),
    ("extra-models", "third-step", "RLHF with PPO: stages 1 and 2 run without problems, stage 3 goes out of memory"),
    ("extra-models", "third-step", "deepspeed chat 做 PPO，第三阶段一跑就爆显存"),
    ("extra-models", "sft-fits", "SFT 可以正常训练，做 DPO 的时候就显存不足"),
    ("hardware-limit", "larger-one", "Will it run on 10GB of VRAM? It is out of memory"),
    ("hardware-limit", "larger-one", "还是爆显存，是不是只能换卡"),
    ("zero3-gather", "said", "DeepSpeed chat, the hybrid engine with inference_tp_size 1 goes OOM"),
    ("zero3-gather", "third-stage", "Training an 8B: zero2 runs fine, zero3 goes OOM"),
    ("zero3-gather", "third-stage", "微调 7B，用 zero3 反而爆显存"),
    ("zero3-gather", "said", "FSDP training of a 7B: OOM since I deleted fsdp_transformer_layer_cls_to_wrap"),
    ("optimizer-init", "said", "Training of a 3B with SGD works, with Adam it goes OOM"),
    ("optimizer-init", "said", "微调 3B 模型，只能跑第一步 就爆显存"),
    ("optimizer-init", "said", "前向反向都过了，优化器更新的时候爆显存"),
    ("optimizer-init", "one-copy", f"Training a 13B model with ZeRO-2 on 8 GPUs. {OOM.format(ask='6.05 GiB', card='79.15 GiB', held='60.50 GiB')}"),
    ("model-states", "copy", f"Training with ZeRO-2 on 4 GPUs. {OOM.format(ask='6.75 GiB', card='79.15 GiB', held='60.50 GiB')}"),
    ("extra-models", "beside", "TTS and the chat model run on one GPU, out of memory"),
    ("extra-models", "beside", "embedding 模型和 LLM 同时加载，爆显存"),
    ("model-states", "states-said", "Unfreezing the encoder as well makes training go OOM"),
    ("model-states", "full", "Full transformer fine-tuning of flux goes OOM"),
    ("hardware-limit", "how-much", "CUDA out of memory. Could you tell me the GPU you used?"),
    ("hardware-limit", "larger-one", "8G 显存够用吗？一推理就溢出"),
    ("hardware-limit", "small-told", "RTX 3050 (4GB), out of memory"),
]  # fmt: skip

HAS_NOT = [
    ("hardware-limit", "small-card", OOM.format(ask="24.00 MiB", card="23.69 GiB", held="22.10 GiB")),
    ("hardware-limit", "how-much", "LoRA SFT of Qwen2.5-7B, out of memory. How much VRAM is needed for it?"),
    ("hardware-limit", "larger-one", "It runs out of memory. A larger batch is better for the loss."),
    ("hardware-limit", "old-card", "out of memory on a RTX 4090 after 960 steps"),
    ("hardware-limit", "small-told", "I have a card with 16 GB of VRAM, the model needs 8 GB of VRAM, and get out of memory"),
    ("logits", "trace", 'LoRA r=8 lora_target="q_proj,v_proj" modules_to_save="embed_tokens,lm_head", OOM'),
    ("logits", "said", "Training a detector: OOM in F.binary_cross_entropy_with_logits"),
    ("logits", "larger-fits", "Fine-tuning gemma-2b works, but with pythia-12b I always get OOM"),
    ("logits", "prompts-scored", "step 400 loss 2.1 ppl=8.2 then CUDA out of memory"),
    ("optimizer-init", "one-copy", f"Training a 13B model with ZeRO-2 on 8 GPUs. {OOM.format(ask='5.00 GiB', card='79.15 GiB', held='60.50 GiB')}"),
    ("rollout-engine", "colocated-said", "DeepSpeed chat, the hybrid engine with inference_tp_size 1 goes OOM"),
    ("extra-models", "sft-fits", "SFT and DPO both go OOM"),
    ("extra-models", "beside", "reranker 处理长文本时显存不足，同时显存一直在涨"),
    ("model-states", "copy", f"Training with ZeRO-2 on 4 GPUs. {OOM.format(ask='5.00 GiB', card='79.15 GiB', held='60.50 GiB')}"),
    ("extra-models", "beside", "Whisper large-v3 fine-tuning on two GPUs, out of memory"),
    ("model-states", "states-said", "Freezing does not change anything, still OOM"),
    ("extra-models", "named", "train_reward_model.py with a 6.7B on one card: out of memory"),
    ("zero3-gather", "third-stage", "Training an 8B: zero2 goes OOM, zero3 runs fine"),
    ("rollout-engine", "not-released", "GPU memory is not released after ctrl-C of my training script"),
    ("rollout-engine", "trace", "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    ("optimizer-init", "said", "LoRA of a 7B with Optimizer State Offload, OOM after an hour"),
    ("hardware-limit", "small-card", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 3.95 GiB total capacity; 1.20 GiB already allocated; 12.00 MiB free)"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "sign", "text"), HAS)
def test_a_sign_is_read(cause: str, sign: str, text: str) -> None:
    assert sign in weights(cause, text)


@pytest.mark.parametrize(("cause", "sign", "text"), HAS_NOT)
def test_a_sign_is_not_read(cause: str, sign: str, text: str) -> None:
    assert sign not in weights(cause, text)


# A training whose states may have run out, and what the same training does not say when they are not the matter.
UNSIZED = [
    ("Training YOLO on two GTX 3090 runs out of memory", "Training a 7B on two GTX 3090 runs out of memory"),
    ("训练分割网络爆显存", "训练 13b 模型爆显存"),
]

REFUTES = [
    "The context is 128k tokens.",
    "Training itself works fine, only the inference after it does not.",
    "训练没问题，推理的时候才爆",
    "只有一张卡占满，其他卡占用都很低",
    "It is a small one of 6M parameters.",
    "If I lower the batch size it runs.",
    "max_prompt_len 512 works, 4096 does not.",
    "把 batch 调小就可以跑",
]


@pytest.mark.parametrize(("unsized", "sized"), UNSIZED)
def test_states_of_an_unknown_model_count_only_where_it_is_large(unsized: str, sized: str) -> None:
    assert sum(weights("model-states", unsized).values()) < sum(weights("model-states", sized).values())


@pytest.mark.parametrize("more", REFUTES)
def test_what_is_no_matter_of_states(more: str) -> None:
    text = "Full fine-tuning of a 7B with deepspeed, out of memory."
    assert sum(weights("model-states", f"{text} {more}").values()) < sum(weights("model-states", text).values())


def test_one_large_tensor_on_a_small_card_says_less_of_the_card() -> None:
    small = weights("hardware-limit", OOM.format(ask="24.00 MiB", card="3.94 GiB", held="3.10 GiB"))
    large = weights("hardware-limit", OOM.format(ask="1.90 GiB", card="3.94 GiB", held="2.90 GiB"))
    assert large["small-card"] < small["small-card"]
