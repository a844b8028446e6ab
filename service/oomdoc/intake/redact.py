"""Everything that a person would not want to be read by others, masked so that it can be put back.

A placeholder says what it stands for and which one it is (``<path-user-1>``); equal things get equal placeholders, so
that "the same host" still shows. Masking is idempotent: what is masked is not masked again. Line and column of lines
are kept (no line is added or removed). Sizes and version numbers are never taken for addresses.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from oomdoc.intake.secrets import SECRETS, Row

__all__ = ["Masked", "mask", "masked_text", "masked_tree"]

_PUBLIC: Final = (
    r"huggingface\.co|hf\.co|hf-mirror\.com|github\.com|github\.io|githubusercontent\.com|gitlab\.com|gitee\.com|pytorch\.org"
    r"|nvidia\.com|python\.org|pypi\.org|pythonhosted\.org|readthedocs\.(?:io|org)|arxiv\.org|modelscope\.cn|openai\.com"
    r"|anthropic\.com|deepspeed\.ai|vllm\.ai|ray\.io|lightning\.ai|tensorflow\.org|google\.com|googleapis\.com|microsoft\.com"
    r"|wandb\.ai|stackoverflow\.com|reddit\.com|kernel\.org|ubuntu\.com|debian\.org|docker\.com|docker\.io|nvcr\.io|ghcr\.io"
    r"|quay\.io|gcr\.io|conda\.io|anaconda\.(?:org|com)|apache\.org|kubernetes\.io|amd\.com|intel\.com|csdn\.net|zhihu\.com"
    r"|aliyun\.com|tsinghua\.edu\.cn|ustc\.edu\.cn|youtube\.com|medium\.com|discuss\.\w{2,20}\.\w{2,5}|example\.(?:com|org|net)"
)
"""Places that everybody knows: naming one tells nothing about who runs the job."""
_DOMAINS: Final = (".com", ".net", ".org", ".edu", ".gov", ".cn", ".io", ".ai")
_COMMON: Final = (
    r"model|data|dataset|checkpoint|ckpt|output|out|log|cache|hf|hub|huggingface|train|training|eval|test|tmp|temp|share"
    r"|shared|user|people|personal|home|scratch|project|proj|repo|repository|code|src|app|bin|lib|env|venv|conda|miniconda"
    r"|anaconda|result|run|exp|experiment|weight|pretrained|pretrain|llm|image|video|audio|text|file|download|storage"
    r"|public|common|team|job|task|config|script|save|saved|export|index|corpus|token|tokenizer|work|workspace|local"
    r"|llama|qwen|mistral|mixtral|deepseek|gemma|phi|baichuan|chatglm|glm|yi|internlm|bloom|falcon|gpt|bert|t5|opt|vicuna"
    r"|alpaca|imagenet|coco|laion|pile|redpajama|megatron|verl|trl|vllm|sglang|axolotl|unsloth|torchtune|openrlhf|swift"
    r"|nemo|xtuner|accelerate|transformers|pytorch|torch|deepspeed|ray|docker|opt|var|usr|etc|nvme|ssd|disk|vol|volume|mnt"
)
"""Names of folders that belong to nobody."""
_ADDRESSES: Final[tuple[Row, ...]] = (
    (
        "email",
        ("@",),
        re.compile(
            r"(?<![A-Za-z0-9._%+\-<])(?P<v>[A-Za-z0-9_%+][A-Za-z0-9._%+\-]{0,63}@(?:[A-Za-z0-9\-]{1,"
            r"63}\.){1,6}[A-Za-z]{2,24})(?![A-Za-z0-9@])"
        ),
    ),
    (
        "host",
        ("@",),
        re.compile(
            r"(?<![A-Za-z0-9._\-<])[A-Za-z_][\w\-]{0,31}@(?P<v>[A-Za-z0-9][A-Za-z0-9.\-]{1,80})(?=[:"
            r"\s\]~])"
        ),
    ),
    (
        "host",
        ("host", "addr", "nodename", "node_ip", "head_node", "rdzv"),
        re.compile(
            r"(?:\b(?:hostname|master_addr|MASTER_ADDR|nodename|node_ip|head_node"
            r"|rdzv[_-]endpoint|host)[\"']?[=: ]{1,3}[\"']?)(?P<v>(?!localhost"
            r"|127\.|0\.0|<|\$|name|memory|RAM|ram|is\b|has\b|with\b|cpu|for\b"
            r"|out\b|mem|machine|oom|or\b|and\b|to\b)[A-Za-z][A-Za-z0-9\-]{1,60}(?:[.\-][A-Za-z0-9\-"
            r"]{1,60}){1,6})"
        ),
    ),
    (
        "host",
        ("ip-",),
        re.compile(r"(?<![A-Za-z0-9<])(?P<v>ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[a-z0-9.\-]{1,60})?)"),
    ),
    (
        "ip",
        (".",),
        re.compile(
            r"(?<![\w.=<~^\-])(?<!version )(?<!Version )(?<!cuda )(?<!CUDA )(?<!driver )(?<!ersion: )(?<!== )"
            r"(?P<v>(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3})(?![\w]"
            r"|\.\d|[+\-]\w)"
        ),
    ),
    (
        "ip",
        ("ip", "addr", "host", "server", "endpoint"),
        re.compile(
            r"(?:\b(?:ip|addr|address|host|master_addr|MASTER_ADDR|server"
            r"|endpoint)[=: ]{1,3}[\"']?)(?P<v>(?:\d{1,3}\.){3}\d{1,3})(?![\w]"
            r"|\.\d)",
            re.IGNORECASE,
        ),
    ),
    ("ip", (":",), re.compile(r"(?<![0-9A-Fa-f:.<])(?P<v>(?:[0-9A-Fa-f]{1,4}:){5,7}[0-9A-Fa-f]{1,4})(?![0-9A-Fa-f:])")),
    (
        "path-user",
        ("home/", "users"),
        re.compile(
            r"(?<![A-Za-z0-9])(?:/home/|/Users/|/mnt/[a-z]/Users/|[A-Za-z]:\\{1,2}Users\\{1,2}"
            r"|/root/users/|/data/home/|/export/home/|/nfs/home/|/gpfs/home/"
            r"|/share/home/)(?P<v>(?!<|shared?\b|user\b|ubuntu\b|root\b|Public\b|[\w.\-]{1,40}?-\d{1,3}(?:\.\d)?[bB](?![A-Za-z]))[^\s/\\:\"'<>"
            r"|,;()]{1,60})"
        ),
    ),
    (
        "host",  # names of machines with their domain
        (*_DOMAINS, ".internal", ".local", ".lan", ".corp", ".intra", ".cloud", ".svc", ".private"),
        re.compile(
            r"(?<![\w.@/<\-])(?:[a-z][a-z0-9+.\-]{1,20}://)?(?P<v>(?!(?:[\w\-]+\.)*"
            rf"(?:{_PUBLIC})(?![\w.\-]))(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{{0,40}}[A-Za-z0-9])?\.){{1,6}}"
            r"(?:internal|local|lan|corp|intra|intranet|private|localdomain"
            r"|(?<=\.)[A-Za-z0-9\-]{1,40}\.(?:com|org|edu|gov|cn|net|io|ai|cloud|svc)))(?![\w\-]|\.\w|\()"
        ),
    ),
    (
        "ip",
        ("::",),
        re.compile(
            r"(?<![0-9A-Za-z:.<_])(?P<v>(?=[0-9A-Fa-f:]{0,39}\d)(?:[0-9A-Fa-f]{1,4}:){1,6}(?::[0-9A-Fa-f]{1,4}){1,6})"
            r"(?![0-9A-Za-z:_])"
        ),
    ),
    (
        "path-user",  # shares where people have folders of their own
        (
            "/data/",
            "/scratch/",
            "/nfs/",
            "/gpfs/",
            "/lustre/",
            "/fsx/",
            "/share/",
            "/shared/",
            "/mnt/",
        ),
        re.compile(
            r"(?<![A-Za-z0-9.])(?:/mnt/[a-z0-9]{1,12})?/(?:data\d?|scratch|nfs|gpfs|lustre|fsx|share|shared"
            r"|raid|ssd|nvme\d?)/(?:users?/|people/|personal/|home/|scratch/)?"
            rf"(?P<v>(?!<|(?:{_COMMON})s?(?:[/_\-.\d]|\b))(?![\w.\-]{{1,40}}?\d[bB](?![A-Za-z]))[a-z][a-z0-9_.\-]{{1,30}})(?=/)"
        ),
    ),
    (
        "user",
        ("@<host-",),
        re.compile(
            r"(?<![A-Za-z0-9._\-<])(?P<v>(?!root@|ubuntu@|user@|git@|admin@)[A-Za-z_][\w\-]{0,31})@("
            r"?=<host-\d)"
        ),
    ),
)
_RULES: Final[tuple[Row, ...]] = (*SECRETS, *_ADDRESSES)
_WORDS: Final = tuple(
    (need.split()[0], need) for need in sorted({n for _, needs, _ in _RULES for n in needs if len(n) > 1 or n == "@"})
)
_NEWLINE: Final = re.compile("\n")
_HARMLESS: Final = frozenset({"127.0.0.1", "0.0.0.0", "255.255.255.255", "git", "ghcr.io", "github.com", "localhost"})
_PLACEHOLDER: Final = re.compile(
    r"<(?:token|webhook|authorization|cookie|secret|url-login|email|host"
    r"|ip|path-user|user|private-key)-\d{1,6}>"
)
_DOTTED: Final = re.compile(r"\d\.\d{1,3}\.\d")
_COLONS: Final = re.compile(r"[0-9A-Fa-f]:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]")


_Rule = tuple[str, re.Pattern[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Masked:
    """Text with placeholders, and what each of them stands for."""

    text: str
    table: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def restore(self, text: str | None = None) -> str:
        """``text`` (by default the masked text itself) with every placeholder put back."""
        target = self.text if text is None else text
        if not self.table:
            return target
        return _PLACEHOLDER.sub(lambda found: self.table.get(found[0], found[0]), target)


def mask(text: str, table: Mapping[str, str] | None = None) -> Masked:
    """Mask secrets, addresses, names of people and hosts.

    :param table: placeholders already given out (of other files of the same input), continued here.
    """
    known = dict(table or {})
    used = set(_PLACEHOLDER.findall(text)) | known.keys()
    low = text.lower()
    unique = " ".join(set(low.split()))
    worth = _worth_a_look(text, low, unique)
    if not worth:
        return Masked(text, MappingProxyType(known))
    masker = _Masker(known, {value: placeholder for placeholder, value in known.items()}, used, _rules_for(unique))
    if "PRIVATE KEY" in text:
        return Masked(masker.line(text, low), MappingProxyType(known))
    parts, lows = text.split("\n"), low.split("\n")
    for at in sorted(worth):
        parts[at] = masker.line(parts[at], lows[at])
    return Masked("\n".join(parts), MappingProxyType(known))


def masked_text(text: str | None) -> str | None:
    """A short text masked for good; ``None`` stays ``None``."""
    return None if text is None else mask(text).text


def masked_tree(value: Any, name: str = "") -> Any:
    """Every text in a tree of plain values masked, each as what stands beside its name."""
    if isinstance(value, str):
        return mask(f"{name}={value}").text[len(name) + 1 :] if name else mask(value).text
    if isinstance(value, Mapping):
        return {key: masked_tree(inner, str(key)) for key, inner in value.items()}
    return [masked_tree(inner, name) for inner in value] if isinstance(value, list | tuple) else value


def _rules_for(unique: str) -> list[_Rule]:
    """The rules that can apply to a text of these words, each with those of its needs that the text can meet."""
    met = ((kind, tuple(n for n in needs if n.split()[0] in unique), pattern) for kind, needs, pattern in _RULES)
    return [(kind, pattern, needs) for kind, needs, pattern in met if needs or kind == "user"]


def _worth_a_look(text: str, low: str, unique: str) -> set[int]:
    """The lines (from 0) which any rule could match: that hold one of the words that rules need, or dots or colons."""
    found = {n for first, word in _WORDS if first in unique for n in _lines_with(word, low)}
    starts: list[int] = []
    for pattern in (_DOTTED, _COLONS):
        for hit in pattern.finditer(text):
            starts = starts or [0, *(end.end() for end in _NEWLINE.finditer(text))]
            found.add(bisect_right(starts, hit.start()) - 1)
    return found


def _lines_with(word: str, text: str) -> Iterator[int]:
    """The lines (from 0) that hold a word, each once."""
    line, at = 0, text.find(word)
    counted = 0
    while at >= 0:
        line, counted = line + text.count("\n", counted, at), at
        yield line
        end = text.find("\n", at)
        at = text.find(word, end) if end >= 0 else -1


@dataclass(slots=True)
class _Masker:
    """The placeholders given out so far."""

    known: dict[str, str]
    given: dict[str, str]
    used: set[str]
    rules: list[_Rule]
    counts: dict[str, int] = field(default_factory=dict)

    def line(self, text: str, low: str) -> str:
        """One line (and the same in lower case) with every rule applied that could match it."""
        for kind, pattern, needs in self.rules:
            for need in needs:
                if need in low:
                    break
            else:
                if kind != "user" or "@<host-" not in text:
                    continue
            if (needs == (".",) and not _DOTTED.search(text)) or (needs == (":",) and not _COLONS.search(text)):
                continue
            text = self._applied(kind, pattern, text)
        return text

    def _applied(self, kind: str, pattern: re.Pattern[str], text: str) -> str:
        def swap(found: re.Match[str]) -> str:
            name = found.lastgroup or "v"
            value = found[name]
            if not value.strip() or value in _HARMLESS or _PLACEHOLDER.search(value):
                return found[0]
            start, end = found.start(name) - found.start(), found.end(name) - found.start()
            # A key over several lines: each line for itself, so that lines keep their numbers.
            parts = (self._placeholder(kind, part) if part.strip() else part for part in value.split("\n"))
            return f"{found[0][:start]}{chr(10).join(parts)}{found[0][end:]}"

        return pattern.sub(swap, text)

    def _placeholder(self, kind: str, value: str) -> str:
        given = self.given.get(value)
        if given is not None:
            return given
        number = self.counts.get(kind, 0) + 1
        while f"<{kind}-{number}>" in self.used:
            number += 1
        placeholder = f"<{kind}-{number}>"
        self.counts[kind] = number
        self.known[placeholder] = value
        self.given[value] = placeholder
        self.used.add(placeholder)
        return placeholder
