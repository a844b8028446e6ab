"""Exit codes and signals that launchers report: -9, 137 (killed), -7, 135 (bus error), SIGTERM (a consequence)."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.intake.logs.base import Parser, Reading, Window
from oomdoc.intake.logs.rules import rule, rules_parser

_BARE: Final = re.compile(r"\s{0,8}(?:Killed|已杀死|已终止)\.?\s{0,4}")
"""What a shell prints for a process that got SIGKILL: after other output, not as a word on its own."""

_RULES: Final[Parser] = rules_parser(
    "exit_codes",
    (
        "exitcode",
        "exit code",
        "return code",
        "exits with return",
        "sigkill",
        "sigbus",
        "exited with code",
        "returned non-zero exit status",
        "killed by signal",
        "exit status",
        "退出码",
        "signal: 9",
        "died with",
        "killed",
        "abruptly died",
        "exited unexpectedly",
    ),
    (
        rule(
            "exit-137",
            r"(?:exitcode|exit[ _]code|return(?: code)?|exited with code|exit status"
            r"|退出码|died with)\W{0,6}(?:=|is|was|为)?\W{0,4}(?P<code__i>-9|137)\b",
            "host",
        ),
        rule(
            "exit-137",
            r"died with <Signals\.SIGKILL: 9>|Signal 9 \(SIGKILL\)|killed by signal: Killed"
            r"|signal: 9\b|killed by SIGKILL(?! by OOM killer due)",
            "host",
        ),
        rule(
            "exit-137",
            rf"\A{_BARE.pattern}\Z|\bline \d{{1,6}}: {{1,4}}\d{{1,9}} (?:Killed|已杀死)"
            r"|\A\[\d{1,4}\][ +-]{1,6}(?:\d{1,9} )?[Kk]illed\s|\bOOMKilled\b|(?:it/s|s/it)\]\s{0,4}Killed\b",
            "host",
        ),
        rule(
            "worker-vanished",
            r"One of the subprocesses has abruptly died"
            r"|DataLoader worker \(pid(?:\(s\))? [\d, ]{1,200}\) exited unexpectedly",
            "host",
        ),
        rule(
            "exit-135",
            r"(?:exitcode|exit[ _]code|return(?: code)?|exited with code|exit status"
            r"|退出码)\W{0,6}(?:=|is|was)?\W{0,4}(?P<code__i>-7|135)\b|Signal 7 \(SIGBUS\)"
            r"|SIGBUS",
            "shared-memory",
        ),
        rule("exit-other", r"(?:exitcode|exit code|return code|exit status)\W{0,8}(?P<code__i>-?\d{1,3})\b", None),
    ),
    priority=80,
)


def _parse(window: Window) -> Reading | None:
    if _BARE.fullmatch(window.text) and not any(line.text.strip() for line in window.lines[: window.index][-20:]):
        return None
    return _RULES.parse(window)


PARSER: Final = Parser(_RULES.name, (*_RULES.triggers, "已杀死", "已终止"), _parse, _RULES.priority)
