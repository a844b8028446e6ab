"""Library versions, however people list them: pip list, pip freeze, conda, "PyTorch version: 2.6.0", prose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary

__all__ = ["read_versions"]

_NAMES: Final = {
    "torch": "torch",
    "pytorch": "torch",
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
    r"|\d{1,3}(?=\s{0,2}(?:$|[,;，。)）])))"
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
_WORKS: Final = re.compile(
    r"\b(?:works?|worked|fine|ok|runs?|ran|no (?:issue|problem)s?|better|instead|previously|before)\b"
    r"|\b(?:as expected|did not)\b|正常|没问题|可以|之前|旧版",
    re.IGNORECASE | re.ASCII,
)


_SIEVE: Final = Sieve(((one,), one) for one in (_PAIR, _TAGGED))


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
            doubt = bool(_WORKS.search(_clause(text, found.start(), found.end())))
            if name not in out or (name in doubtful and not doubt):
                out[name] = (version, line)
                (doubtful.add if doubt else doubtful.discard)(name)
        for found in _TAGGED.finditer(text) if _TAGGED in tried else ():
            name = _NAMES.get(found["name"].lower(), "vllm")
            out.setdefault(name, (found["version"], line))
    return out


_CLAUSE_ENDS: Final = re.compile(r"[.。;；!！](?=\s|$)|[，,]| while | whereas | but | results?\b")


def _clause(text: str, start: int, end: int) -> str:
    """The clause around a mention."""
    before = [m.end() for m in _CLAUSE_ENDS.finditer(text, max(0, start - 120), start)]
    after = _CLAUSE_ENDS.search(text, end, min(len(text), end + 80))
    return text[(before[-1] if before else max(0, start - 120)) : (after.start() if after else end + 80)]
