"""Library versions, however people list them: pip list, pip freeze, conda, "PyTorch version: 2.6.0", prose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary, candidates

__all__ = ["framework_version", "read_versions"]

_NAMES: Final = {
    "torch": "torch",
    "pytorch": "torch",
    "pytroch": "torch",
    "transformer": "transformers",
    "transfomers": "transformers",
    "tranformers": "transformers",
    "deep speed": "deepspeed",
    "deep-speed": "deepspeed",
    "flash attn": "flash-attn",
    "flash attention": "flash-attn",
    "bitsandbyte": "bitsandbytes",
    "megatron core": "megatron-core",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "peft": "peft",
    "trl": "trl",
    "deepspeed": "deepspeed",
    "bitsandbytes": "bitsandbytes",
    "vllm": "vllm",
    "sglang": "sglang",
    "lmdeploy": "lmdeploy",
    "flash-attn": "flash-attn",
    "flash_attn": "flash-attn",
    "flashattention": "flash-attn",
    "flash-attention": "flash-attn",
    "xformers": "xformers",
    "triton": "triton",
    "unsloth": "unsloth",
    "unsloth-zoo": "unsloth-zoo",
    "unsloth_zoo": "unsloth-zoo",
    "axolotl": "axolotl",
    "llamafactory": "llamafactory",
    "llama-factory": "llamafactory",
    "llama factory": "llamafactory",
    "ms-swift": "ms-swift",
    "ms_swift": "ms-swift",
    "swift": "ms-swift",
    "openrlhf": "openrlhf",
    "verl": "verl",
    "liger-kernel": "liger-kernel",
    "liger_kernel": "liger-kernel",
    "torchtune": "torchtune",
    "torchao": "torchao",
    "megatron-core": "megatron-core",
    "megatron-lm": "megatron-core",
    "nemo": "nemo-toolkit",
    "xtuner": "xtuner",
    "nemo-toolkit": "nemo-toolkit",
    "nemo_toolkit": "nemo-toolkit",
    "colossalai": "colossalai",
    "colossal-ai": "colossalai",
    "tensorflow": "tensorflow",
    "tf": "tensorflow",
    "jax": "jax",
    "jaxlib": "jaxlib",
    "keras": "keras",
    "ray": "ray",
    "ollama": "ollama",
    "llama.cpp": "llama.cpp",
    "tgi": "tgi",
    "text-generation-inference": "tgi",
    "tensorrt-llm": "tensorrt-llm",
    "tensorrt_llm": "tensorrt-llm",
    "vllm-ascend": "vllm-ascend",
    "vllm_ascend": "vllm-ascend",
    "torch-npu": "torch-npu",
    "torch_npu": "torch-npu",
    "nccl": "nccl",
    "libnccl2": "nccl",
    "sentence-transformers": "sentence-transformers",
    "sentence_transformers": "sentence-transformers",
    "datasets": "datasets",
    "tokenizers": "tokenizers",
    "diffusers": "diffusers",
    "auto-gptq": "auto-gptq",
    "auto_gptq": "auto-gptq",
    "autoawq": "autoawq",
    "transformer-engine": "transformer-engine",
    "transformer_engine": "transformer-engine",
    "pytorch-lightning": "pytorch-lightning",
    "lightning": "lightning",
    "numpy": "numpy",
    "litgpt": "litgpt",
    "tensorflow-gpu": "tensorflow",
    "mlx": "mlx",
    "mlx-lm": "mlx-lm",
    "flashinfer": "flashinfer",
    "flashinfer-python": "flashinfer",
    "sentencepiece": "sentencepiece",
    "python": "python",
    "cuda": "cuda",
}
"""Spelling in lower case -> name on the package index, in lower case."""

_NUMBER: Final = (
    r"v?(?P<version>\d{1,4}\.\d{1,4}(?:\.\d{1,12})?(?:\.?(?:dev|post|rc|a|b)\d{0,12}){0,2}(?:[+-][\w.]{1,40})?"
    r"|\d{1,3}(?=\s{0,2}(?:$|[,;，。)）]|\.(?:\s|$))))"
)
_WORDS: Final = "|".join(re.escape(name) for name in sorted(_NAMES, key=len, reverse=True))
_PAIR: Final = Expression(
    rf"(?<![\w./-])(?P<name>{_WORDS})[`\"'*]{{0,3}}(?:[ -]?(?:version"
    rf"|v\.|版本))?(?: \((?:GPU|CPU|TPU|/|\?){{1,6}}\))?(?:\s{{0,3}}(?:==?=?"
    rf"|:|：|>=|~=)\s{{0,3}}|\s{{1,40}}|-|@)[*`\"']{{0,3}}{_NUMBER}",
    re.IGNORECASE | re.ASCII,
)
_BARE_MAJOR: Final = frozenset({"transformers", "trl", "vllm"})
_TAGGED: Final = Expression(
    r"/(?P<name>vllm-ascend|vllm-openai|vllm|sglang|text-generation-inference"
    r"|lmdeploy|ollama):v?(?P<version>\d{1,3}\.\d{1,3}[\w.]{0,30})"
)
_BANNER: Final = Expression(r"LLM engine \(v(?P<version>\d{1,3}\.\d{1,3}[\w.+]{0,40})\)")
"""vLLM's own word for what runs."""
_UNNAMED: Final = Expression(
    r"(?:upgrad(?:e|ed|ing)|updat(?:e|ed|ing)|\bnow (?:I am |I'm |we are )?on|since|升级到?|更新到?|升到)"
    r"(?: (?P<word>[A-Za-z][\w-]{1,20}))??(?: to)?(?: the)?(?: (?:latest|new|version|release)){0,2} ?[`(]?v?"
    r"(?P<version>\d{1,4}\.\d{1,4}\.\d{1,4}(?:\.\d{1,3}|\.?(?:dev|post|rc)\d{0,6})?)(?![\w%]|\.\d)",
    re.IGNORECASE,
)
_OTHER: Final = re.compile(r"cuda|driver|python|torch|kernel|ubuntu|rocm|cann|docker|gcc|nccl|jetpack", re.IGNORECASE)
"""What else has versions."""
_WORKS: Final = re.compile(
    r"\b(?:works?|worked|fine|ok|runs?|ran|no (?:issue|problem)s?|better|instead|previously|before)\b"
    r"|\b(?:as expected|did not)\b|正常|没问题|可以|之前|旧版",
    re.IGNORECASE | re.ASCII,
)


_SIEVE: Final = Sieve(((one,), one) for one in (_PAIR, _TAGGED, _BANNER))


def read_versions(lines: Iterable[Line], words: Vocabulary) -> dict[str, tuple[str, Line]]:
    """Library -> (version, line). The first mention counts, unless a later one says that it is the failing one."""
    out: dict[str, tuple[str, Line]] = {}
    doubtful: set[str] = set()
    for line, tried in _SIEVE.over(lines, words):
        text = line.text if len(line.text) < 2000 else line.text[:2000]
        for found in _PAIR.finditer(text) if _PAIR in tried else ():
            name = _NAMES[found["name"].lower()]
            version = found["version"]
            if "." not in version and name not in _BARE_MAJOR:
                continue
            if name in ("swift", "ray", "nemo") and found["name"].islower() is False:
                continue
            if _wished(text, found.start(), found.end()):
                continue
            doubt = bool(_WORKS.search(_clause(text, found.start(), found.end()))) or _left(text, found)
            if name not in out or (name in doubtful and not doubt):
                out[name] = (version, line)
                (doubtful.add if doubt else doubtful.discard)(name)
        for found in _TAGGED.finditer(text) if _TAGGED in tried else ():
            name = _NAMES.get(found["name"].lower(), "vllm")
            out.setdefault(name, (found["version"], line))
        for found in _BANNER.finditer(text) if _BANNER in tried else ():
            out["vllm"] = (found["version"], line)
    return out


def framework_version(lines: Iterable[Line], words: Vocabulary) -> str | None:
    """A version that is told without a name, ``after upgrading to v0.9.1``: that of what the text is about."""
    for line in candidates(_UNNAMED, lines, words):
        for found in _UNNAMED.finditer(line.text[:2000]):
            ahead = line.text[max(0, found.start() - 24) : found.start()]
            word = (found["word"] or "").lower()
            if word not in _NAMES and _OTHER.search(ahead) is None and _OTHER.search(word) is None:
                return str(found["version"])
    return None


_WISHED: Final = re.compile(
    r"(?:\b(?:please|try|trying|should|recommend\w{0,5}|suggest\w{0,5}|needs?|needed|requir\w{1,4}|release notes"
    r"|(?:fixed|solved|resolved|available|landed|merged|released|works) (?:in|by|with|since|from)|upcoming)\b"
    r"|建议|推荐|需要|请|试试|修复)",
    re.IGNORECASE | re.ASCII,
)
_HELPS: Final = re.compile(
    r"\b(?:solves?|solved|fix(?:es|ed)|helps?|helped)\b|就好了|解决|就没事", re.IGNORECASE | re.ASCII
)
_CAME: Final = re.compile(
    r"\b(?:after|since|when|once|I(?:'m| am|'ve| have)?|we) [^.\n]{0,30}\Z|之后|以后", re.IGNORECASE | re.ASCII
)
_LEFT: Final = re.compile(r"\bfrom [`\"'*]{0,3}\Z|从 ?\Z", re.IGNORECASE | re.ASCII)


def _wished(text: str, start: int, end: int) -> bool:
    """Whether a version is what somebody should have, or what would help, rather than what was there."""
    clause = _clause(text, start, end)
    before = clause[: max(0, clause.find(text[start:end]))]
    if _HELPS.search(clause[len(before) :]):
        return True
    return _WISHED.search(before) is not None and _CAME.search(before) is None


def _left(text: str, found: re.Match[str]) -> bool:
    """Whether it is the version that one came from: ``from torch 2.3 to torch 2.4``."""
    return _LEFT.search(text[max(0, found.start() - 10) : found.start()]) is not None


_CLAUSE_ENDS: Final = re.compile(r"[.。;；!！](?=\s|$)|[，,]| while | whereas | but | results?\b")


def _clause(text: str, start: int, end: int) -> str:
    """The clause around a mention."""
    before = [m.end() for m in _CLAUSE_ENDS.finditer(text, max(0, start - 120), start)]
    after = _CLAUSE_ENDS.search(text, end, min(len(text), end + 80))
    return text[(before[-1] if before else max(0, start - 120)) : (after.start() if after else end + 80)]
