"""Where a text names a model: known families with what follows, sizes, and paths.

The catalogue knows what a name means; a model that it does not hold is still a model that the person named.
"""

from __future__ import annotations

import re
from typing import Final

from oomdoc.intake.sieve import Expression

__all__ = [
    "ANY_NAME",
    "FAMILY",
    "MODEL_NAME",
    "PLAIN_NAME",
    "SIZE_B",
    "billions",
    "looks_like_model",
    "of_experts",
    "tidy_model",
]

_FAMILIES: Final = (
    r"qwen|qwq|qvq|meta-?llama|code-?llama|tiny-?llama|open_?llama"
    r"|llama|vicuna|alpaca(?!-lora)|mistral|mixtral|ministral|magistral"
    r"|devstral|codestral|pixtral"
    r"|gemma|codegemma|paligemma|medgemma|phi(?=[-_ ]?\d)|yi(?=-)"
    r"|internlm|internvl|intern-s|baichuan|chatglm|codegeex|visualglm"
    r"|glm|cogvlm|cogvideo(?:x)?|cogview|cogagent"
    r"|deepseek|janus-pro|falcon|mpt(?=-\d)|opt(?=-\d)|(?-i:OPT\b)"
    r"|bloom(?:z)?(?=-|\b)|gpt-?2|gpt-?j|gpt-?neo(?:x)?|gpt-oss|gpt4all"
    r"|pythia|stable-?lm|starcoder|santacoder|minicpm"
    r"|granite|command-r|aya-|c4ai|olmo|tulu|nemotron|minitron|kimi"
    r"|moonlight|moonshot|hunyuan|ernie|minimax|step-?\d|seed-?oss"
    r"|ling-|ring-|llava|moellava|idefics|florence-2|smollm|smolvlm"
    r"|flan-t5|mt5|t5-|flan-ul2"
    r"|bert-(?:base|large)|(?-i:\bBERT\b)(?=[ ,.(]|$)|roberta|deberta|labse|xlm-r|electra|modernbert"
    r"|whisper|wan ?2\.\d|flux\.?1|sdxl|stable-?diffusion|openvla"
    r"|ovis|jamba|mamba|rwkv|zephyr|openchat|solar-|dbrx|grok-|arctic"
    r"|orca-|wizardlm|wizardcoder|skywork|telechat|xverse|aquila|ziya"
    r"|belle|moss(?=[-_])|bge-|gte-|e5-|bart-|pegasus|exaone|phixtral"
    r"|cerebras-gpt|redpajama|dolly|stablebeluga|nous-hermes|hermes-"
    r"|xgen|persimmon|fuyu|kosmos|molmo|phi4|ministral|lfm2|bagel"
    r"|omnigen|mimo|apertus|pi0|pi05|got-ocr|monkeyocr|olmocr|dots\.ocr"
    r"|vibevoice|cosyvoice|chattts|fish-speech|starchat|mt0(?=-)|sqlcoder|sus-chat|guanaco|airoboros|dolphin-"
    r"|openhermes"
    r"|phind-|deepcoder|jais-|polyglot|orion-|xuanyuan|seallm|sailor|zamba|eurollm|codet5|nllb-|blip-?2|instructblip"
    r"|mplug|kandinsky|hidream|ltx-|cogagent|stable-code|longcat|ernie|step-?\d|trinity-"
)
FAMILY: Final = re.compile(rf"(?:{_FAMILIES})", re.IGNORECASE | re.ASCII)
SIZE_B: Final = r"(?<![\w.])\d{1,4}(?:[._]\d{1,3})?[bB](?![A-Za-z0-9])"

MODEL_NAME: Final = Expression(
    rf"(?<![A-Za-z0-9_])(?P<name>(?:[A-Za-z0-9][\w.\-]{{0,40}}/)?(?:[A-Za-z0-9.]{{1,20}}[-_])"
    rf"{{0,3}}(?:{_FAMILIES})[A-Za-z0-9_.\-:]{{0,80}})"
    rf"(?P<more>(?: {{1,2}}(?:v?\d(?:\.\d)?|chat|code(?=\s)|coder|instruct"
    rf"|base|vl|omni|next|medium|mini|small|large)(?![\w./])){{0,3}} {{0,2}}(?<![\d.])(?:\d{{1,2}}x)?"
    rf"{SIZE_B.replace('(?<![' + chr(92) + 'w.])', '')})?",
    re.IGNORECASE | re.ASCII,
)
_SIZE_IN_NAME: Final = re.compile(
    r"(?<![\d.])((?<![A-Za-z])(?<![A-Za-z]_)\d_\d(?=[bB])|\d{1,4}(?:\.\d{1,3})?) ?[bB](?![A-Za-z0-9])"
    r"|(?<![\d.])(\d{2,3})[mM](?![A-Za-z0-9])"
)
_EXPERTS: Final = re.compile(r"\d{1,3}x\d{1,4}(?:\.\d)?[bB]", re.ASCII)
"""``8x7B``: experts share layers, so that neither number is the model's size."""
_NOT_MODELS: Final = re.compile(
    r"(?:llama_(?!\d)\w{1,60}|llama-(?:server|cli|bench|run|swap|quantize|gguf|perplexity)\b"
    r"|llama[-_ .]?(?:factory|cookbook|recipes"
    r"|index|cpp\b|cpp|_model|board|pro\b|decoder\w{0,20}|attention"
    r"|mlp|forcausallm|\w{0,20}layer)|llamafactory|llama_factory|vllm"
    r"|alpaca[-_](?:lora|data|en|zh|gpt4|clean)\w{0,20}"
    r"|deepseekai|deepspeed|bert-?for\w{0,12}|falconai|\w{0,30}(?:decoder"
    r"|attention|forcausallm|flashattention2)\w{0,20}|orca-|hermes-"
    r"|qwen\d?(?:_vl)?_?template|chatglm-finetuning|chatglm_finetuning"
    r"|deepseekcoder\.py|belle\b|arctic\b)",
    re.IGNORECASE | re.ASCII,
)
_TAIL: Final = re.compile(
    r"(?:\.(?:py|sh|ya?ml|json|jsonl|txt|md|log|git|pt|pth|parquet)"
    r"|[.:,;\-_]{1,4})\Z",
    re.IGNORECASE | re.ASCII,
)
_FILE: Final = re.compile(r"\.(?:py|sh|ya?ml|jsonl?|txt|md|log|parquet|csv|rs|cc|cu|html?)\Z", re.IGNORECASE | re.ASCII)
ANY_NAME: Final = Expression(
    r"(?<![\w./-])(?P<name>(?:[A-Za-z0-9][\w.\-]{0,40}/)?[A-Za-z][A-Za-z0-9]{1,20}(?:-[A-Za-z0-9.]{1,16}){0,3}"
    r"-\d{1,3}(?:\.\d{1,2})?B(?:-[A-Za-z0-9.]{1,20}){0,4})(?![\w/-])",
    re.IGNORECASE | re.ASCII,
)
"""Whatever ends in its billions of parameters: ``SUS-Chat-34B``, ``org/Some-Coder-7b-beta``."""

PLAIN_NAME: Final = re.compile(
    r"(?:base_?|my_?|final_?|merged_?)?(?:model|models|ckpt|checkpoints?"
    r"|weights|output|llm|best|last)|<.{0,60}>|\$.{0,60}|nvfp4|fp8"
    r"|auto|hf|huggingface|local-[\w-]{1,24}|lora_?model|(?:reward|actor|critic|ref|sft|rm)_?model",
    re.IGNORECASE,
)
"""What a folder is called that could hold any model."""


def billions(name: str) -> float | None:
    """Parameters in billions that a name states: ``30B-A3B`` → 30, ``1_7B`` → 1.7, ``350m`` → 0.35."""
    found = _SIZE_IN_NAME.search(name)
    if found is None or _EXPERTS.search(name) is not None:
        return None
    if found[2]:
        return int(found[2]) / 1000
    value = float(found[1].replace("_", "."))
    return value if 0 < value <= 4000 else None


def of_experts(name: str) -> bool:
    """Whether a name states experts, ``8x7B``: as telling as a size."""
    return _EXPERTS.search(name) is not None


def looks_like_model(name: str) -> bool:
    """Whether a word with a family in it names a model, not a tool, a class or a file."""
    return bool(FAMILY.search(name)) and not _NOT_MODELS.search(name) and not _FILE.search(name.rstrip(".:;,-_"))


def tidy_model(value: str) -> str:
    """A model setting as a name: hub ids stay, local paths give their last telling part."""
    text = value.replace("___", ".").strip("\"'`,;()[]{}<> ").replace("\\", "/").rstrip("/")
    if re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,95}/[\w.\-]{1,95}", text) and not text.startswith(
        ("data/", "models/", "model/", "checkpoints/", "output/")
    ):
        return text
    parts = [p for p in text.split("/") if p]
    hub = [p for p in parts if p.startswith("models--")]
    if hub:
        return "/".join(hub[0].split("--")[1:])
    named = [p for p in parts if looks_like_model(p)]
    return named[-1] if named else (parts[-1] if parts else text)
