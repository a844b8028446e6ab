"""Everything that a person would not want to be read by others, masked so that it can be put back.

A placeholder says what it stands for and which one it is (``<path-user-1>``); equal things get equal placeholders, so
that "the same host" still shows. Masking is idempotent: what is masked is not masked again. Line and column of lines
are kept (no line is added or removed). Sizes and version numbers are never taken for addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

__all__ = ["Masked", "mask"]

_KEY_NAME: Final = r"(?:api[_-]?key|apikey|access[_-]?key(?:[_-]?id)?|secret(?:[_-]?(?:access[_-]?)?key)?|access[_-]?token|auth[_-]?token|refresh[_-]?token|token|passwd|password|passphrase|pwd|credential|client[_-]?secret|private[_-]?key|wandb[_-]?key)"
_RULES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("private-key", re.compile(r"(?P<v>(?<=-----BEGIN )(?:[A-Z]{1,12} ){0,3}PRIVATE KEY-----[A-Za-z0-9+/=\s]{1,8000}(?=-----END|\Z))")),
    (
        "token",
        re.compile(
            r"(?<![A-Za-z0-9_])(?P<v>hf_[A-Za-z0-9]{16,64}|sk-(?:ant-|proj-|or-)?[A-Za-z0-9_\-]{16,200}|gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_\-]{16,64}"
            r"|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[A-Za-z0-9_\-]{30,45}|xox[abprs]-[A-Za-z0-9\-]{10,200}|xapp-[A-Za-z0-9\-]{10,200}|npm_[A-Za-z0-9]{30,60}|pypi-[A-Za-z0-9_\-]{30,250}|nvapi-[A-Za-z0-9_\-]{20,100}"
            r"|ms-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|eyJ[A-Za-z0-9_\-]{8,2000}\.[A-Za-z0-9_\-]{8,4000}\.[A-Za-z0-9_\-]{4,1000}|dckr_pat_[A-Za-z0-9_\-]{20,60}|LTAI[A-Za-z0-9]{12,30})"
        ),
    ),
    (
        "webhook",
        re.compile(
            r"https?://(?P<v>hooks\.slack\.com/[\w/\-]{5,200}|(?:discord|discordapp)\.com/api/webhooks/[\w/\-]{5,200}|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/[\w/\-]{5,200}|oapi\.dingtalk\.com/robot/send\?[\w=&\-]{5,300}|qyapi\.weixin\.qq\.com/cgi-bin/webhook/[\w?=&/\-]{5,300}|\w{1,60}\.webhook\.office\.com/[\w@/\-]{5,300})"
        ),
    ),
    ("authorization", re.compile(r"(?:Authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:Bearer|Basic|Token)\s{1,3}|\bBearer\s{1,3})(?P<v>[A-Za-z0-9._~+/\-]{8,4000}=?=?)", re.IGNORECASE)),
    (
        "secret",
        re.compile(
            rf"(?:(?<![A-Za-z])|_){_KEY_NAME}[\"'\]]{{0,2}}(?:\s{{0,3}}[=:]\s{{0,3}}|\s{{1,2}}(?=[A-Za-z0-9+/_\-]{{20}}))[\"']?(?P<v>(?!(?:None|null|true|false|xxx|your|\$|<|\*|os\.|\[|\{{|auto|max|num|pad|eos|bos|unk)\b)(?=[^\s\"',;<>]{{0,60}}[A-Za-z])[^\s\"',;<>$(){{}}]{{6,200}})",
            re.IGNORECASE,
        ),
    ),
    ("url-login", re.compile(r"[a-z][a-z0-9+.\-]{1,20}://(?P<v>[^\s/:@<>]{1,80}:[^\s/@<>]{1,120})@", re.IGNORECASE)),
    ("email", re.compile(r"(?<![A-Za-z0-9._%+\-<])(?P<v>[A-Za-z0-9_%+][A-Za-z0-9._%+\-]{0,63}@(?:[A-Za-z0-9\-]{1,63}\.){1,6}[A-Za-z]{2,24})(?![A-Za-z0-9@])")),
    ("host", re.compile(r"(?<![A-Za-z0-9._\-<])[A-Za-z_][\w\-]{0,31}@(?P<v>[A-Za-z0-9][A-Za-z0-9.\-]{1,80})(?=[:\s\]~])")),
    (
        "host",
        re.compile(
            r"(?:\b(?:hostname|master_addr|MASTER_ADDR|nodename|node_ip|head_node|rdzv[_-]endpoint|host)[\"']?[=: ]{1,3}[\"']?)(?P<v>(?!localhost|127\.|0\.0|<|\$|name|memory|RAM|ram|is\b|has\b|with\b|cpu|for\b|out\b|mem|machine|oom|or\b|and\b|to\b)[A-Za-z][A-Za-z0-9\-]{1,60}(?:[.\-][A-Za-z0-9\-]{1,60}){1,6})"
        ),
    ),
    ("host", re.compile(r"(?<![A-Za-z0-9<])(?P<v>ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[a-z0-9.\-]{1,60})?)")),
    (
        "ip",
        re.compile(
            r"(?<![\w.=<~^\-])(?<!version )(?<!Version )(?<!== )(?P<v>(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3})(?![\w]|\.\d|[+\-]\w)"
        ),
    ),
    ("ip", re.compile(r"(?:\b(?:ip|addr|address|host|master_addr|MASTER_ADDR|server|endpoint)[=: ]{1,3}[\"']?)(?P<v>(?:\d{1,3}\.){3}\d{1,3})(?![\w]|\.\d)", re.IGNORECASE)),
    ("ip", re.compile(r"(?<![0-9A-Fa-f:.<])(?P<v>(?:[0-9A-Fa-f]{1,4}:){5,7}[0-9A-Fa-f]{1,4})(?![0-9A-Fa-f:])")),
    ("path-user", re.compile(r"(?<![A-Za-z0-9])(?:/home/|/Users/|/mnt/[a-z]/Users/|[A-Za-z]:\\{1,2}Users\\{1,2}|/root/users/|/data/home/|/export/home/|/nfs/home/|/gpfs/home/|/share/home/)(?P<v>(?!<|shared?\b|user\b|ubuntu\b|root\b|Public\b)[^\s/\\:\"'<>|,;()]{1,60})")),
    ("user", re.compile(r"(?<![A-Za-z0-9._\-<])(?P<v>(?!root@|ubuntu@|user@|git@|admin@)[A-Za-z_][\w\-]{0,31})@(?=<host-\d)")),
)  # fmt: skip
_HARMLESS: Final = frozenset({"127.0.0.1", "0.0.0.0", "255.255.255.255", "git", "ghcr.io", "github.com", "localhost"})
_PLACEHOLDER: Final = re.compile(r"<(?:token|webhook|authorization|secret|url-login|email|host|ip|path-user|user|private-key)-\d{1,6}>")
_LIKELY: Final = re.compile(r"[@]|://|\d\.\d{1,3}\.\d|/home/|/Users|\\Users|/users/|home/|key|KEY|Key|oken|OKEN|assw|ASSW|pwd|PWD|ecret|ECRET|earer|hf_|sk-|AKIA|ASIA|AIza|gh[pousr]_|xox|pypi-|npm_|nvapi-|LTAI|eyJ|host|addr|ADDR|ip-\d|redential|assphrase|glpat|dckr|ms-\w{8}|:[0-9A-Fa-f]{1,4}:|node|endpoint|github_pat|xapp-")


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
    given = {value: placeholder for placeholder, value in known.items()}
    counts: dict[str, int] = {}
    used = set(_PLACEHOLDER.findall(text)) | known.keys()
    parts = text.split("\n") if "PRIVATE KEY" not in text else [text]
    for at, part in enumerate(parts):
        if not _LIKELY.search(part):
            continue
        for kind, pattern in _RULES:
            part = pattern.sub(lambda found, kind=kind: _swap(found, kind, known, given, used, counts), part)  # type: ignore[misc]
        parts[at] = part
    return Masked("\n".join(parts), MappingProxyType(known))


def _swap(
    found: re.Match[str], kind: str, known: dict[str, str], given: dict[str, str], used: set[str], counts: dict[str, int]
) -> str:
    value = found["v"]
    if value in _HARMLESS or _PLACEHOLDER.search(value):
        return found[0]
    placeholder = given.get(value)
    if placeholder is None:
        number = counts.get(kind, 0) + 1
        while (placeholder := f"<{kind}-{number}>") in used:
            number += 1
        counts[kind] = number
        known[placeholder] = value
        given[value] = placeholder
        used.add(placeholder)
    start, end = found.start("v") - found.start(), found.end("v") - found.start()
    return found[0][:start] + placeholder + found[0][end:]
