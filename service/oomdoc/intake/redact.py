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
from typing import Final

__all__ = ["Masked", "mask", "masked_text"]

_KEY_NAME: Final = (
    r"(?:api[_-]?key|apikey|access[_-]?key(?:[_-]?id)?|secret(?:[_-]?(?:access[_-]?)?key)?"
    r"|access[_-]?token|auth[_-]?token|refresh[_-]?token|token|passwd"
    r"|password|passphrase|pwd|credential|client[_-]?secret|private[_-]?key"
    r"|wandb[_-]?key)"
)
_RULES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "private-key",
        re.compile(
            r"(?P<v>(?<=-----BEGIN )(?:[A-Z]{1,12} ){0,3}PRIVATE KEY-----[A-Za-z0-9+/=\s]{1,8000}(?="
            r"-----END|\Z))"
        ),
    ),
    (
        "token",
        re.compile(
            r"(?<![A-Za-z0-9_])(?P<v>hf_[A-Za-z0-9]{16,64}|sk-(?:ant-|proj-"
            r"|or-)?[A-Za-z0-9_\-]{16,200}|gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,"
            r"255}|glpat-[A-Za-z0-9_\-]{16,64}"
            r"|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[A-Za-z0-9_\-]{30,45}"
            r"|xox[abprs]-[A-Za-z0-9\-]{10,200}|xapp-[A-Za-z0-9\-]{10,200}"
            r"|npm_[A-Za-z0-9]{30,60}|pypi-[A-Za-z0-9_\-]{30,250}|nvapi-[A-Za-z0-9_\-]{20,100}"
            r"|ms-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
            r"|eyJ[A-Za-z0-9_\-]{8,2000}\.[A-Za-z0-9_\-]{8,4000}\.[A-Za-z0-9_\-]{4,1000}"
            r"|dckr_pat_[A-Za-z0-9_\-]{20,60}|LTAI[A-Za-z0-9]{12,30})"
        ),
    ),
    (
        "webhook",
        re.compile(
            r"https?://(?P<v>hooks\.slack\.com/[\w/\-]{5,200}|(?:discord|discordapp)\.com/api/webhoo"
            r"ks/[\w/\-]{5,200}|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/[\w/\-]{5,200}"
            r"|oapi\.dingtalk\.com/robot/send\?[\w=&\-]{5,300}|qyapi\.weixin\.qq\.com/cgi-bin/webhoo"
            r"k/[\w?=&/\-]{5,300}|\w{1,60}\.webhook\.office\.com/[\w@/\-]{5,300})"
        ),
    ),
    (
        "authorization",
        re.compile(
            r"(?:Authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:Bearer|Basic"
            r"|Token)\s{1,3}|\bBearer\s{1,3})(?P<v>[A-Za-z0-9._~+/\-]{8,4000}=?=?)",
            re.IGNORECASE,
        ),
    ),
    (
        "secret",
        re.compile(
            rf"(?:(?<![A-Za-z])|_){_KEY_NAME}[\"'\]]{{0,2}}(?:\s{{0,3}}[=:]\s{{0,3}}"
            rf"|\s{{1,2}}(?=[A-Za-z0-9+/_\-]{{20}}))[\"']?(?P<v>(?!(?:None"
            rf"|null|true|false|xxx|your|\$|<|\*|os\.|\[|\{{|auto|max|num|pad"
            rf"|eos|bos|unk)\b)(?=[^\s\"',;<>]{{0,60}}[A-Za-z])[^\s\"',;<>$(){{}}]{{6,200}})",
            re.IGNORECASE,
        ),
    ),
    ("url-login", re.compile(r"[a-z][a-z0-9+.\-]{1,20}://(?P<v>[^\s/:@<>]{1,80}:[^\s/@<>]{1,120})@", re.IGNORECASE)),
    (
        "email",
        re.compile(
            r"(?<![A-Za-z0-9._%+\-<])(?P<v>[A-Za-z0-9_%+][A-Za-z0-9._%+\-]{0,63}@(?:[A-Za-z0-9\-]{1,"
            r"63}\.){1,6}[A-Za-z]{2,24})(?![A-Za-z0-9@])"
        ),
    ),
    (
        "host",
        re.compile(
            r"(?<![A-Za-z0-9._\-<])[A-Za-z_][\w\-]{0,31}@(?P<v>[A-Za-z0-9][A-Za-z0-9.\-]{1,80})(?=[:"
            r"\s\]~])"
        ),
    ),
    (
        "host",
        re.compile(
            r"(?:\b(?:hostname|master_addr|MASTER_ADDR|nodename|node_ip|head_node"
            r"|rdzv[_-]endpoint|host)[\"']?[=: ]{1,3}[\"']?)(?P<v>(?!localhost"
            r"|127\.|0\.0|<|\$|name|memory|RAM|ram|is\b|has\b|with\b|cpu|for\b"
            r"|out\b|mem|machine|oom|or\b|and\b|to\b)[A-Za-z][A-Za-z0-9\-]{1,60}(?:[.\-][A-Za-z0-9\-"
            r"]{1,60}){1,6})"
        ),
    ),
    ("host", re.compile(r"(?<![A-Za-z0-9<])(?P<v>ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[a-z0-9.\-]{1,60})?)")),
    (
        "ip",
        re.compile(
            r"(?<![\w.=<~^\-])(?<!version )(?<!Version )(?<!cuda )(?<!CUDA )(?<!driver )(?<!ersion: )(?<!== )"
            r"(?P<v>(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3})(?![\w]"
            r"|\.\d|[+\-]\w)"
        ),
    ),
    (
        "ip",
        re.compile(
            r"(?:\b(?:ip|addr|address|host|master_addr|MASTER_ADDR|server"
            r"|endpoint)[=: ]{1,3}[\"']?)(?P<v>(?:\d{1,3}\.){3}\d{1,3})(?![\w]"
            r"|\.\d)",
            re.IGNORECASE,
        ),
    ),
    ("ip", re.compile(r"(?<![0-9A-Fa-f:.<])(?P<v>(?:[0-9A-Fa-f]{1,4}:){5,7}[0-9A-Fa-f]{1,4})(?![0-9A-Fa-f:])")),
    (
        "path-user",
        re.compile(
            r"(?<![A-Za-z0-9])(?:/home/|/Users/|/mnt/[a-z]/Users/|[A-Za-z]:\\{1,2}Users\\{1,2}"
            r"|/root/users/|/data/home/|/export/home/|/nfs/home/|/gpfs/home/"
            r"|/share/home/)(?P<v>(?!<|shared?\b|user\b|ubuntu\b|root\b|Public\b|[\w.\-]{1,40}?-\d{1,3}(?:\.\d)?[bB](?![A-Za-z]))[^\s/\\:\"'<>"
            r"|,;()]{1,60})"
        ),
    ),
    (
        "user",
        re.compile(
            r"(?<![A-Za-z0-9._\-<])(?P<v>(?!root@|ubuntu@|user@|git@|admin@)[A-Za-z_][\w\-]{0,31})@("
            r"?=<host-\d)"
        ),
    ),
)
# What must stand in a line (in lower case) for a rule to be tried: most lines hold none of it.
_NEEDS: Final[tuple[tuple[str, ...], ...]] = (
    ("private key",),
    (
        "hf_",
        "sk-",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat",
        "glpat-",
        "akia",
        "asia",
        "aiza",
        "xox",
        "xapp-",
        "npm_",
        "pypi-",
        "nvapi-",
        "ms-",
        "eyj",
        "dckr_pat",
        "ltai",
    ),
    ("hooks.slack", "webhook", "open-apis/bot", "robot/send"),
    ("authorization", "bearer"),
    ("key", "token=", "token:", 'token"', "token'", "token ", "secret", "passw", "passphrase", "pwd", "credential"),
    ("://",),
    ("@",),
    ("@",),
    ("host", "addr", "nodename", "node_ip", "head_node", "rdzv"),
    ("ip-",),
    (".",),
    ("ip", "addr", "host", "server", "endpoint"),
    (":",),
    ("home/", "users"),
    ("@<host-",),
)
_WORDS: Final = tuple(
    (need.split()[0], need) for need in sorted({n for needs in _NEEDS for n in needs if len(n) > 1 or n == "@"})
)
_NEWLINE: Final = re.compile("\n")
_HARMLESS: Final = frozenset({"127.0.0.1", "0.0.0.0", "255.255.255.255", "git", "ghcr.io", "github.com", "localhost"})
_PLACEHOLDER: Final = re.compile(
    r"<(?:token|webhook|authorization|secret|url-login|email|host"
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


def _rules_for(unique: str) -> list[_Rule]:
    """The rules that can apply to a text of these words, each with those of its needs that the text can meet."""
    met = [tuple(need for need in needs if not need.strip() or need.split()[0] in unique) for needs in _NEEDS]
    return [(*rule, needs) for rule, needs in zip(_RULES, met, strict=True) if needs or rule[0] == "user"]


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
            value = found["v"]
            if value in _HARMLESS or _PLACEHOLDER.search(value):
                return found[0]
            start, end = found.start("v") - found.start(), found.end("v") - found.start()
            return f"{found[0][:start]}{self._placeholder(kind, value)}{found[0][end:]}"

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
