"""Which framework a text comes from, and whether it is text at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from oomdoc.intake.lines import Line
from oomdoc.intake.prose.stance import negated
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary
from oomkb.errors import InputError

__all__ = ["check_text", "framework_of"]

_I: Final = re.IGNORECASE | re.ASCII
# (canonical name, what only it writes, what merely names it). The first kind weighs more.
_MARKS: Final[tuple[tuple[str, Expression, Expression], ...]] = tuple(
    (name, Expression(sure, _I), Expression(named, _I))
    for name, sure, named in (
        (
            "llama-factory",
            r"llamafactory(?:-cli|/)|llmtuner/|src/train_bash\.py|LLaMA-Factory/src",
            r"llama-?_? ?factory",
        ),
        (
            "ms-swift",
            r"\bswift (?:sft|rlhf|pt|infer|deploy|export|eval)\b|swift/(?:llm"
            r"|cli|trainers|plugin)/|megatron (?:sft|pt|rlhf)\b",
            r"ms-?swift|modelscope/swift|megatron-swift",
        ),
        ("openrlhf", r"openrlhf[./](?:cli|trainer|utils|models)|train_ppo_ray|train_ppo_llama", r"openrlhf"),
        (
            "verl",
            r"verl\.trainer|verl/(?:workers|trainer|utils|single_controller"
            r"|models)|actor_rollout_ref\.|(?<![\w.])ppo_(?:micro|mini)_batch_size|(?<![\w.])rollout\.(?:gpu_memory|tensor_model|name=|n=)",
            r"(?<![a-z])ve?rl(?=[ +,.:，。]|$)(?<=verl)|EasyR1",
        ),
        ("axolotl", r"axolotl\.cli|axolotl/(?:src|utils|core|monkeypatch)|axolotl train", r"axolotl"),
        ("torchtune", r"\btune run\b|torchtune/|recipes/\w{4,40}_finetune", r"torchtune"),
        ("unsloth", r"unsloth/(?:models|kernels)|FastLanguageModel|FastVisionModel|unsloth_zoo", r"unsloth"),
        ("xtuner", r"xtuner (?:train|chat)|xtuner/(?:tools|engine|model)", r"xtuner"),
        (
            "nemo",
            r"nemo/(?:collections|lightning)|nemo_rl/|nemo\.collections|NeMo-RL",
            r"\bnemo\b|NeMo-(?:Aligner|RL|Framework)",
        ),
        (
            "megatron",
            r"megatron/(?:core|training|model)|pretrain_gpt\.py|MegatronPolicyWorker"
            r"|MegatronTrainRayActor",
            r"megatron(?!-swift)",
        ),
        ("trl", r"trl/(?:trainer|scripts)|(?:SFT|DPO|GRPO|PPO|KTO|ORPO|Reward|RLOO)(?:Trainer|Config)\b", r"\btrl\b"),
        (
            "vllm",
            r"vllm/(?:worker|engine|v1|model_executor|entrypoints|distributed)"
            r"|vllm\.entrypoints|\bvllm serve\b|VllmWorker|EngineCore|RayWorkerWrapper"
            r"|maximum number of tokens that can be stored in KV cache|\bLLM\(",
            r"\bvllm\b",
        ),
        ("sglang", r"sglang[./](?:srt|launch_server|bench)|mem[-_]fraction[-_]static", r"\bsglang\b"),
        (
            "lmdeploy",
            r"lmdeploy (?:serve|chat|lite)|lmdeploy/(?:serve|pytorch|turbomind)"
            r"|from lmdeploy|turbomind",
            r"lmdeploy",
        ),
        ("tgi", r"text_generation_launcher|text-generation-(?:launcher|inference)|text_generation_server", r"\bTGI\b"),
        ("tensorrt-llm", r"tensorrt_llm|\[TensorRT-LLM\]|trtllm|gptManagerBenchmark", r"tensorrt-llm"),
        ("llama.cpp", r"llama_model_load|ggml_|ggml-cuda|llama_new_context|llama-(?:cli|server)", r"llama\.cpp"),
        ("ollama", r"ollama (?:run|serve)|llama runner process|ollama_llama_server", r"\bollama\b"),
        (
            "transformers",
            r"transformers/trainer\.py|TrainingArguments|run_(?:clm|language_modeling"
            r"|mlm)\.py|transformers/models/|AutoModelForCausalLM",
            r"transformers Trainer|hf trainer",
        ),
        (
            "deepspeed",
            r"deepspeed/(?:runtime|ops)|deepspeed\.initialize|DeepSpeedEngine",
            r"deepspeed-?chat|DeepSpeedExamples",
        ),
        ("tensorflow", r"tensorflow/|ResourceExhaustedError|/job:localhost/replica", r"tensorflow|\bTF ?2"),
        ("jax", r"jaxlib|XlaRuntimeError|xla/hlo|XLA_PYTHON_CLIENT", r"\bjax\b|\bflax\b"),
    )
)
_SIEVE: Final = Sieve(((sure, named), (name, sure, named)) for name, sure, named in _MARKS)
_BASES: Final = {"transformers": 0.4, "deepspeed": 0.4, "trl": 0.8, "vllm": 0.9}
"""Libraries that others are built on: their frames show in everybody's tracebacks."""


def framework_of(lines: Sequence[Line], words: Vocabulary) -> str | None:
    """The framework that the lines show, by the names of :mod:`oomkb.frameworks`; ``None`` where none does.

    :param words: the vocabulary of the lines, or of more than them.
    """
    score: Counter[str] = Counter()
    for line, marks in _SIEVE.over(lines[:20000], words):
        if "not installed" in line.raw:
            continue
        for name, sure, named in marks:
            weight = 3.0 if sure.search(line.raw) else 0.0
            if not weight and (hit := named.search(line.raw)) is not None and not negated(line.raw, hit.start()):
                weight = 1.0
            if weight:
                score[name] = max(score[name], weight * _BASES.get(name, 1.0)) + 0.01  # type: ignore[assignment]
    if not score:
        return None
    name, best = max(score.items(), key=lambda item: item[1])
    return name if best >= 0.9 else None


_ODD: Final = re.compile("[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\ufffd]")
"""What text does not hold: control characters beside those of terminals, and what could not be decoded."""


def check_text(text: str, name: str) -> None:
    """Refuse what is not text.

    :raises InputError: for binary content, naming the source.
    """
    head = text[:65536]
    odd = len(_ODD.findall(head))
    if head and (odd > 0.1 * len(head) or (head.count("\x00") > 8 and odd > 0.02 * len(head))):
        raise InputError(
            "this is not text",
            where=name,
            hint="give a log, a config or what you would paste; .gz and .zst are unpacked",
        )
