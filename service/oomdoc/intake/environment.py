"""Library versions, however people list them: pip list, pip freeze, conda, "PyTorch version: 2.6.0", prose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oomdoc.evidence import Statement
from oomdoc.intake.configs.wordlist import words as names_in
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import clause
from oomdoc.intake.sieve import Sieve, Vocabulary, candidates
from oomkb.frameworks import find
from oomkb.records.versions import version_of

if TYPE_CHECKING:
    from packaging.version import Version

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


_NAMES: Final = sorted((*_KNOWN, *_ALIASES), key=lambda name: (-len(name), name))
_RE: Final = patterns(__file__, words="|".join(re.escape(name).replace(r"\-", "[-_ ]") for name in _NAMES))
_BARE_MAJOR: Final = frozenset({"transformers", "trl", "vllm"})
_TAGS: Final = {"vllm-openai": "vllm"}


_SIEVE: Final = Sieve((one.literals, one) for one in (_RE["pair"], _RE["moved"], _RE["tagged"], _RE["banner"]))


def read_versions(lines: Iterable[Line], words: Vocabulary) -> dict[str, tuple[str, Line]]:
    """Library -> (version, line). The first mention counts, unless a later one says that it is the failing one."""
    out: dict[str, tuple[str, Line]] = {}
    doubtful: set[str] = set()
    for _, line, _ in _SIEVE.over(lines, words):
        text = line.text if len(line.text) < 2000 else line.text[:2000]
        for found in _RE["pair"].finditer(text):
            name = _package(found["name"])
            version = found["version"]
            if "." not in version and name not in _BARE_MAJOR:
                continue
            if name in ("swift", "ray", "nemo") and found["name"].islower() is False:
                continue
            if _wished(text, found.start(), found.end()):
                continue
            came_from = _RE["left"].search(text[max(0, found.start() - 10) : found.start()])
            doubt = bool(came_from or _RE["works"].search(clause(text, found.start(), found.end())))
            if name not in out or (name in doubtful and not doubt):
                out[name] = (version, line)
                (doubtful.add if doubt else doubtful.discard)(name)
        for found in _RE["moved"].finditer(text):
            old, new = version_of(found["old"]), version_of(found["version"])
            if old is not None and new is not None and new > old:
                out[_package(found["name"])] = (found["version"], line)
        for found in _RE["tagged"].finditer(text):
            name = _package(_TAGS.get(found["name"], found["name"]))
            out.setdefault(name, (found["version"], line))
        for found in _RE["banner"].finditer(text):
            out["vllm"] = (found["version"], line)
    return out


def worked_with(lines: Iterable[Line], words: Vocabulary, failing: Mapping[str, str]) -> tuple[str, str] | None:
    """The library (empty where none is named) and the release with which the same thing works, where a newer one fails.

    What somebody went back to; else, of a library of which several releases are named, the last before the newest.

    :param failing: library -> release of the run that fails.
    """
    for line in candidates(_RE["went_back"], lines, words):
        found = _RE["went_back"].search(line.text[:2000])
        if found is not None:
            name = found["name"] or found["after"] or found["beside"] or ""
            return _package(name) if name else "", str(found["version"])
    named: dict[str, dict[Version, str]] = {}
    pairs = list(failing.items())
    for _, line, _ in _SIEVE.over(lines, words):
        text = line.text[:2000]
        pairs += [(_package(f["name"]), str(f["version"])) for f in _RE["pair"].finditer(text)]
        pairs += [(_package(f["name"]), str(f[end])) for f in _RE["moved"].finditer(text) for end in ("old", "version")]
    for name, release in pairs:
        plain = "." in release or name in _BARE_MAJOR
        if plain and name not in _OF_MACHINE and (parsed := version_of(release)) is not None:
            named.setdefault(name, {}).setdefault(parsed, release)
    several = [(sorted(of)[-2], name) for name, of in named.items() if len(of) > 1]
    if not several:
        return None
    older, library = max(several)
    return library, named[library][older]


_OF_MACHINE: Final = frozenset({"python", "cuda", "nccl"})


def framework_version(lines: Iterable[Line], words: Vocabulary) -> str | None:
    """A version that is stated without a name, ``after upgrading to v0.9.1``: that of what the text is about."""
    for line in candidates(_RE["unnamed"], lines, words):
        for found in _RE["unnamed"].finditer(line.text[:2000]):
            ahead = line.text[max(0, found.start() - 24) : found.start()]
            word = (found["word"] or "").lower()
            if (
                _package(word) not in _KNOWN
                and _RE["other"].search(ahead) is None
                and _RE["other"].search(word) is None
            ):
                return str(found["version"])
    return None


def _wished(text: str, start: int, end: int) -> bool:
    """Whether a version is what somebody should have, or what would help, rather than what was there."""
    around = clause(text, start, end)
    before = around[: max(0, around.find(text[start:end]))]
    if _RE["helps"].search(around[len(before) :]):
        return True
    return _RE["wished"].search(before) is not None and _RE["came"].search(before) is None


def releases(
    noted: Sequence[Line],
    varied: Sequence[Line],
    words: Vocabulary,
    framework: str | None,
    statements: Sequence[Statement],
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Releases by library, what the text says before what comments of configurations say (``noted``); and the one with
    which it worked, where that is said.
    """
    found = read_versions(noted, Vocabulary(line.low for line in noted))
    out = {name: version for name, (version, _) in (found | read_versions(varied, words)).items()}
    known = find(framework)
    if known is not None and known.package not in out and (version := framework_version(varied, words)) is not None:
        out[known.package] = version
    worked = any(statement.name == "worked-before-upgrade" for statement in statements)
    return out, worked_with(varied, words, out) if worked else None
