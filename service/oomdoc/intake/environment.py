"""Library versions, however people list them: pip list, pip freeze, conda, "PyTorch version: 2.6.0", prose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from oomdoc.intake.configs.wordlist import words as names_in
from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary, candidates

__all__ = ["framework_version", "read_versions"]

_KNOWN: Final = names_in(
    "torch transformers deepspeed flash-attn bitsandbytes megatron-core torchvision accelerate peft trl vllm"
    " sglang lmdeploy xformers triton unsloth unsloth-zoo axolotl llamafactory ms-swift openrlhf verl liger-kernel"
    " torchtune torchao nemo-toolkit xtuner colossalai tensorflow jax jaxlib keras ray ollama llama.cpp tgi"
    " tensorrt-llm vllm-ascend torch-npu nccl sentence-transformers datasets tokenizers diffusers auto-gptq"
    " autoawq transformer-engine pytorch-lightning lightning numpy litgpt mlx mlx-lm flashinfer sentencepiece"
    " python cuda"
)
_OTHER_NAMES: Final = (
    "pytorch=torch pytroch=torch transformer=transformers transfomers=transformers tranformers=transformers"
    " deep-speed=deepspeed flash-attention=flash-attn bitsandbyte=bitsandbytes flashattention=flash-attn"
    " llama-factory=llamafactory swift=ms-swift megatron-lm=megatron-core nemo=nemo-toolkit colossal-ai=colossalai"
    " tf=tensorflow text-generation-inference=tgi libnccl2=nccl tensorflow-gpu=tensorflow"
    " flashinfer-python=flashinfer"
)
"""Other names of packages; of all of them, "-" may be written as "_" or a blank."""
_ALIASES: Final = {name: package for name, _, package in (pair.partition("=") for pair in _OTHER_NAMES.split())}


def _package(name: str) -> str:
    plain = name.lower().replace("_", "-").replace(" ", "-")
    return _ALIASES.get(plain, plain)


_NUMBER: Final = (
    r"v?(?P<version>\d{1,4}\.\d{1,4}(?:\.\d{1,12})?(?:\.?(?:dev|post|rc|a|b)\d{0,12}){0,2}(?:[+-][\w.]{1,40})?"
    r"|\d{1,3}(?=\s{0,2}(?:$|[,;，。)）]|\.(?:\s|$))))"
)
_WORDS: Final = "|".join(
    re.escape(name).replace(r"\-", "[-_ ]") for name in sorted({*_KNOWN, *_ALIASES}, key=lambda n: (-len(n), n))
)
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
_TAGS: Final = {"vllm-openai": "vllm"}
_BANNER: Final = Expression(r"LLM engine \(v(?P<version>\d{1,3}\.\d{1,3}[\w.+]{0,40})\)")
"""vLLM's own word for what runs."""
_UNNAMED: Final = Expression(
    r"(?:upgrad(?:e|ed|ing)|updat(?:e|ed|ing)|\bnow (?:I am |I'm |we are )?on|since|升级到?|更新到?|升到)"
    r"(?: (?P<word>[A-Za-z][\w-]{1,20}))??(?: to)?(?: the)?(?: (?:latest|new|version|release)){0,2} ?[`(]?v?"
    r"(?P<version>\d{1,4}\.\d{1,4}\.\d{1,4}(?:\.\d{1,3}|\.?(?:dev|post|rc)\d{0,6})?)(?![\w%]|\.\d)",
    re.IGNORECASE,
)
_OTHER: Final = Expression(r"cuda|driver|python|torch|kernel|ubuntu|rocm|cann|docker|gcc|nccl|jetpack", re.IGNORECASE)
"""What else has versions."""
_WORKS: Final = Expression(
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
            name = _package(found["name"])
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
            name = _package(_TAGS.get(found["name"], found["name"]))
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
            if _package(word) not in _KNOWN and _OTHER.search(ahead) is None and _OTHER.search(word) is None:
                return str(found["version"])
    return None


_WISHED: Final = Expression(
    r"(?:\b(?:please|try|trying|should|recommend\w{0,5}|suggest\w{0,5}|needs?|needed|requir\w{1,4}|release notes"
    r"|(?:fixed|solved|resolved|available|landed|merged|released|works) (?:in|by|with|since|from)|upcoming)\b"
    r"|建议|推荐|需要|请|试试|修复)",
    re.IGNORECASE | re.ASCII,
)
_HELPS: Final = Expression(
    r"\b(?:solves?|solved|fix(?:es|ed)|helps?|helped)\b|就好了|解决|就没事", re.IGNORECASE | re.ASCII
)
_CAME: Final = Expression(
    r"\b(?:after|since|when|once|I(?:'m| am|'ve| have)?|we) [^.\n]{0,30}\Z|之后|以后", re.IGNORECASE | re.ASCII
)
_LEFT: Final = Expression(r"\bfrom [`\"'*]{0,3}\Z|从 ?\Z", re.IGNORECASE | re.ASCII)


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


_CLAUSE_ENDS: Final = Expression(r"[.。;；!！](?=\s|$)|[，,]| while | whereas | but | results?\b")


def _clause(text: str, start: int, end: int) -> str:
    """The clause around a mention."""
    first = max(0, start - 120)
    before = [first + m.end() for m in _CLAUSE_ENDS.finditer(text[first:start])]
    after = _CLAUSE_ENDS.search(text, end, min(len(text), end + 80))
    return text[(before[-1] if before else first) : (after.start() if after else end + 80)]
