"""What kind of line a line is: prose, log, command, config or code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from oomdoc.evidence import Document, Source
from oomdoc.intake.configs.segments import form_of
from oomdoc.intake.lines import Line

__all__ = ["Kind", "is_comment", "is_config_file", "kinds_of", "without_comments"]

Kind = Literal["prose", "log", "command", "config", "code", "blank"]

_LOG: Final = re.compile(
    r"\s{0,12}(?:File \"|Traceback \(most|[\w.]{1,80}(?:Error|Exception"
    r"|Warning)\b(?=[:(]|$)|\[(?:INFO|WARNING|ERROR|W\d|E\d)|(?:INFO"
    r"|WARNING|ERROR|WARN|DEBUG)[ :]|\d{1,3}%\||\||\+-|={5,}|-{5,}"
    r"|I\d{4} |W\d{4} |E\d{4} |\^{3,}|~{3,}"
    r"|(?:load_tensors|print_info|llama_\w{1,40}|llm_load_\w{1,30}|ggml_\w{1,60}|common_init_\w{1,20}|graph_reserve): )"
)
_LOG_ANYWHERE: Final = re.compile(
    r"\d{1,3}%\||\bNCCL (?:INFO|WARN)\b|\[rank\d|\bpid=\d|\.(?:py"
    r"|cc|cpp|cu|h):\d{1,6}\b|it/s\]|s/it\]|\bloss[=:] ?\d|0x[0-9a-f]{6}"
)
_COMMAND: Final = re.compile(
    r"\s{0,8}(?:[$>!%] ?\S|export |set -x|sudo |docker |pip3? |conda "
    r"|CUDA_VISIBLE_DEVICES=|[A-Z_]{3,40}=\S{1,200}(?: \\)?\s{0,3}$"
    r"|(?:nohup |bash |sh |srun |torchrun |deepspeed (?=-|\$|\S{0,100}(?:\.py|/))|accelerate (?=launch"
    r"|config|env|test)|python3? |llamafactory-cli |uv run "
    r"|(?:swift|megatron) (?=sft|pt|rlhf|infer|deploy|export|eval|app|web|sample|merge|rollout)"
    r"|vllm (?=serve|bench|chat|complete|run)|lmdeploy (?=serve|chat|lite|convert|check)"
    r"|(?:xtuner|axolotl) (?=train|chat|convert|preprocess|inference|merge|list|copy|mmbench|eval|log)"
    r"|ollama (?=run|serve|pull|push|create|show|ps|list|stop|cp|rm)|ray job |mpirun "
    r"|\./)(?!\d|[<>=~]=|version)\S)"
)
_FLAG: Final = re.compile(r"(?:^|\s)--?[A-Za-z][\w.\-]{1,60}")
_CONFIG: Final = re.compile(
    r"\s{0,20}[\"']?[A-Za-z_][\w.\-]{1,60}[\"']?\s{0,3}[:=]\s{0,3}(?:[\[{\"'(]"
    r"|[\w./${}\-+]{0,120}[,;]?\s{0,4}(?:#.{0,80})?$)"
)
_CODE: Final = re.compile(
    r"\s{0,24}(?:def \w|class \w{1,60}[:(]|import [\w.]{1,60}(?: as \w{1,30})?\s{0,3}$|from [\w.]{1,60} import "
    r"|return \w{1,60}[.(\[]|return self|(?:for|if|elif|while|with) .{1,160}:\s{0,3}$|(?:else|try|finally):\s{0,3}$|@\w"
    r"|[A-Za-z_][\w.]{0,60} ?= ?[\w.]{1,60}\(|[})\]]{1,4},?\s{0,3}$|#\s?[A-Za-z_]{1,40} ?=)"
)
_SEEN: Final = 800
"""Characters of a line that tell its kind."""
_CHINESE_SENTENCE: Final = re.compile(r"[一-鿿].{0,40}[，。？]")
_SAID: Final = re.compile(r"[A-Z一-鿿].{20,}[.?。？]\s*\Z")
_CHINESE: Final = re.compile(r"[一-鿿]{2,}")
_SENTENCE: Final = re.compile(r"[A-Za-z]{2,} [a-z]{2,} [A-Za-z]{2,}|[一-鿿]{2,}")


_OUTPUT: Final = re.compile(
    r"^(?![ \t]*(?:#|//|;|\"|'))[^\n]{0,300}?"
    r"(?:Traceback \(most recent call last\)|OutOfMemoryError|out of memory\.? Tried"
    r"|\b(?:SIGKILL|SIGTERM)\b[^\n]{0,40}(?:received|exit)|CUDA error:|oom-kill)",
    re.M,
)
_COMMENT: Final = ("#", "//", ";")
_CONFIGS: Final = frozenset({"yaml", "json", "toml", "shell", "python", "dockerfile"})


def is_config_file(source: Source) -> bool:
    """Whether a source is a configuration, a launch script or code by its name, with no program's output in it.

    What it says in comments, keys and labels is no evidence of what happened.
    """
    return form_of(source.name) in _CONFIGS and _OUTPUT.search(source.text) is None


def is_comment(line: Line) -> bool:
    """Whether a line of a configuration is a comment."""
    return line.text.lstrip().startswith(_COMMENT)


def without_comments(lines: Sequence[Line], documents: Sequence[Document]) -> list[Line]:
    """The lines but for the comments inside configurations and commands: they tell of nothing that happened."""
    within: set[tuple[str, int]] = set()
    for document in documents:
        end = document.first_line + document.text.count("\n")
        within |= {(document.source, number) for number in range(document.first_line, end + 1)}
    return [line for line in lines if not (is_comment(line) and (line.source, line.number) in within)]


def kinds_of(lines: Sequence[Line]) -> list[Kind]:
    """One kind per line; continuation lines of a command belong to it."""
    out: list[Kind] = []
    continued = False
    for line in lines:
        kind = "command" if continued and line.text.strip() else _kind(line)
        continued = line.text.rstrip().endswith("\\") and kind in ("command", "prose", "config")
        if continued and kind != "command" and _FLAG.search(line.text):
            kind = "command"
        out.append(kind)
    return out


def _told_of(text: str) -> bool:
    """A sentence that begins with a program's name: "megatron 开了 recompute 反向反而 OOM"."""
    return _CHINESE.search(text) is not None and _FLAG.search(text) is None and "#" not in text


def _kind(line: Line) -> Kind:
    text = line.text[:_SEEN]
    if not text.strip():
        return "blank"
    if line.logged or _LOG.match(text):
        return "log"
    if (_COMMAND.match(text) and not _told_of(text)) or (text.count("-") >= 3 and len(_FLAG.findall(text[:600])) >= 3):
        return "command"
    if (":" in text or "=" in text) and _CONFIG.match(text) and not _CHINESE_SENTENCE.search(text):
        return "config"
    if _CODE.match(text):
        return "code"
    if _LOG_ANYWHERE.search(text) or len(line.text) > 3000:
        return "log" if not (_SENTENCE.search(text) and len(text) < 300 and _SAID.match(text)) else "prose"
    return "prose"
