"""What the job was for: training of some kind, or serving. Trainers, scripts, engines and words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.prose.stance import negated
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary, candidates

__all__ = ["read_objective"]

_I: Final = re.IGNORECASE | re.ASCII
_EVIDENCE: Final[tuple[tuple[str, float, Expression], ...]] = tuple(
    (objective, sure, Expression(text, _I))
    for objective, sure, text in (
        ("grpo", 0.7, r"EasyR1"),
        ("grpo", 0.82, r"GRPOTrainer|GRPOConfig|(?<![a-z])(?:grpo|dapo|gspo)(?![a-z])|adv_estimator=grpo"),
        ("rloo", 0.84, r"RLOOTrainer|(?<![a-z])rloo(?![a-z])"),
        ("reinforce++", 0.86, r"reinforce(?:\+\+|_plus_plus)"),
        ("dpo", 0.8, r"DPOTrainer|DPOConfig|train_dpo|(?<![a-z])dpo(?![a-z])"),
        ("kto", 0.8, r"KTOTrainer|train_kto|(?<![a-z])kto(?![a-z])"),
        ("simpo", 0.8, r"(?<![a-z])simpo(?![a-z])|CPOTrainer"),
        ("orpo", 0.8, r"ORPOTrainer|(?<![a-z])orpo(?![a-z])"),
        (
            "rm",
            0.74,
            r"RewardTrainer|train_rm\b|reward[- ]model(?:l?ing)? train|\b(?:train"
            r"|fine-?tun)\w{0,3} [^。\n]{0,30}?reward model\b"
            r"|reward_model_fine"
            r"|训练[^。\n]{0,10}奖励模型|reward ?(?:模型)?训练|奖励模型训练",
        ),
        (
            "ppo",
            0.78,
            r"PPOTrainer|train_ppo|(?<![a-z_])ppo(?![a-z]|_)|ppo_epochs|step3_rlhf|rl_training\.py"
            r"|actor_model_name_or_path|(?:actor|critic)_zero_stage|enable_hybrid_engine",
        ),
        ("ppo", 0.56, r"(?<![a-z/_-])rlhf(?![a-z/_-])"),
        ("distill", 0.74, r"(?<![a-z])gkd(?![a-z])|distillation|GKDTrainer|知识蒸馏"),
        ("sft", 0.7, r"SFTTrainer|SFTConfig|train_sft|run_sft|(?<![a-z])sft(?![a-z])|clm_sft"),
        (
            "pretrain",
            0.68,
            r"pretrain_\w{2,12}\.py|run_language_modeling|base_train|continued? pre-?train|(?<![a-z])cpt(?![a-z])"
            r"|增量预训练|(?:继续|二次|持续)预训练|从头训练|torchtitan|\[titan\]|(?:train"
            r"|built)\w{0,5} [^.\n]{0,24}from scratch|(?<![\w-])pre-?train(?:ing)?(?![\w-])|run_pt\b"
            r"|do_pretrain|continued?-train(?:ing)?\b|\b(?:continual|further) training of\b",
        ),
        # What a library prints of its vocabulary, and a model that was tuned before, are no aims of this run.
        (
            "sft",
            0.62,
            r"(?<!embeddings are )(?<!embeddings to be )(?<!\ba )(?<!\bthe )fine[- ]?tun(?:e|es|ing|ed)(?![\w])"
            r"|(?:\ba|\bthe) fine-?tun(?:e|ing)\b|微调(?!(?:后|好|过)的?模型)|finetun\w{1,3}\b|_finetune"
            r"|instruction[- ]tun|sft_",
        ),
        (
            "pretrain",
            0.6,
            r"(?:train|training)(?: of)? (?:a |an |my |our )?(?:\d[\w.]{0,6} )?(?:dummy )?(?:GPT-?2"
            r"|BERT|nanoGPT|TinyLlama)|(?:GPT-?2|BERT)[- ]like model|nano(?:GPT"
            r"|chat)|autoresearch",
        ),
        (
            "inference",
            0.6,
            r"vllm serve|vllm\.entrypoints|lmdeploy (?:serve|chat)|api_server"
            r"|swift deploy|swift infer|from lmdeploy|sglang\.launch_server"
            r"|trtllm-serve|gptManager\w{0,12}|tritonserver|text-generation-launcher"
            r"|ollama run|llama-server|text_generation_launcher|deploy_main"
            r"|llm_deploy|lm[-_]eval(?![a-z])|xinference launch|fastchat\.serve|model_worker|AsyncLLMEngine|cli_demo"
            r"|web_demo|openai_api"
            r"|mlx_lm\.(?:server|generate|chat)|trtllm-build|lm ?studio|koboldcpp|text-generation-webui|exllama",
        ),
        (
            "inference",
            0.57,
            r"(?<![\w-])inference(?! engine)(?![\w-])|推理(?!缓存|引擎)|部署|\bdeploy(?:ing"
            r"|ed|ment)?\b|\bserving\b|llama\.cpp|ollama|comfyui|gradio|web ?ui"
            r"|pi?peline\(|xinference|\bserver\.py\b|stable ?diffusion|VLMEval|benchmark_(?:serving"
            r"|throughput)|prompt_logprobs",
        ),
        (
            "inference",
            0.54,
            r"\bvllms?\b|vllm_[a-z]|gpu_worker\.py|\bsglang\b|lmdeploy|tensorrt"
            r"|\bTGI\b|EngineCore|LLM\(|MPS backend|llama_model_load|ggml|load_tensors:|llama_(?:context|kv_cache)"
            r"|\.generate\(|model\.chat|demo\b|(?<![a-z])prefill(?![a-z])|\.gguf\b|(?<![a-z])[or]?mlx(?![a-z])",
        ),
        (
            "inference",
            0.53,
            r"example_(?:chat|text)_completion|generation\.py|--quantization (?:awq|gptq|fp8|squeezellm)"
            r"|next[- ]token logits"
            r"|\b(?:run|ran|running|try) (?:the )?(?:example\w{0,20}\.py|[\w./]{2,40}-(?:chat|instruct|it)\b)"
            r"|运行[^。\n]{0,20}(?:demo|chat)",
        ),
        ("inference", 0.59, r"\b(?:run|running|do|doing|perform(?:ing)?|multi-?gpu|batch) inference\b"),
        ("inference", 0.515, r"from_pretrained\("),
    )
)
_SIEVE: Final = Sieve(((row[2],), row) for row in _EVIDENCE)
_TRAINS: Final = Expression(
    r"(?<![a-z])(?<!n_ctx_)(?:train(?!ed)|trainer|training|optimizer|backward"
    r"|lora|gradient|微调|训练|epoch|finetun|rollout|deepspeed|fsdp)",
    _I,
)
_ADAPTS: Final = Expression(r"(?<![a-z])q?lora(?![a-z])|peft(?![ =:]{1,3}v?\d)", _I)
_STEPS: Final = Expression(r"per_device_train_batch_size|gradient_accumulation_steps", _I)
"""What only a trainer is told; most that is trained without a word on the aim is tuned."""


def read_objective(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """Facts ``objective``, of every line that tells; serving engines count for little where training is spoken of."""
    trains = any(_TRAINS.search(line.raw) for line in candidates(_TRAINS, lines, words))
    found: dict[str, float] = {}
    for line, rows in _SIEVE.over(lines, words):
        for objective, sure, pattern in rows:
            weight = sure - 0.08 if objective == "inference" and trains else sure
            if weight <= found.get(objective, 0.0):
                continue
            hit = pattern.search(line.raw)
            if hit is not None and not negated(line.raw, hit.start()):
                found[objective] = weight
                yield Fact("objective", objective, line.span(hit.start() + 1), "prose", weight)
    if not found.keys() - {"inference"}:
        adapted = next((line for line in candidates(_ADAPTS, lines, words) if _ADAPTS.search(line.raw)), None)
        if adapted is not None:
            yield Fact("objective", "sft", adapted.span(), "prose", 0.53)
        elif not found and (told := next((x for x in candidates(_STEPS, lines, words) if _STEPS.search(x.raw)), None)):
            yield Fact("objective", "sft", told.span(), "prose", 0.51)
