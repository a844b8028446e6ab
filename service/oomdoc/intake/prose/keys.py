"""Settings that are mentioned outside a document that could be parsed: ``per_device_train_batch_size=1`` in a sentence,
a command that was cut, an argv list in a log. The tables of :mod:`oomdoc.intake.configs` are more specific and win.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from oomdoc.evidence import Fact, Span
from oomdoc.intake.configs.wordlist import words
from oomdoc.intake.lines import Line
from oomdoc.intake.prose.key_names import FLAGS, KEYS, TEXT_KEYS
from oomdoc.intake.prose.model_names import PLAIN_NAME, billions, tidy_model
from oomdoc.intake.prose.numbers import to_tokens
from oomdoc.intake.prose.stance import worked
from oomdoc.intake.sieve import Expression, Vocabulary, candidates

__all__ = ["Mention", "mentions", "read_keys", "read_positional"]

_KEY: Final = re.compile(
    r"(?<![\w.])(?P<dash>-{0,2}\+{0,2})(?P<key>[A-Za-z][\w.\-]{0,80})(?P<sep>[\"'`]?\]?\s{0,"
    r"3}[=:：]{1,2}\s{0,3}|[\"'`], {0,2}|\s{1,12})?(?P<quote>[\"'“`]{0,2})(?=(?P<value>[^\s\""
    r"';，。；`)}\]]{1,200})?)",
    re.ASCII,
)
_WORD: Final = re.compile(r"[a-z0-9_]+", re.ASCII)
_KNOWN: Final = frozenset(key.lstrip("_") for key in KEYS)
_TRUE: Final = frozenset({"true", "yes", "on", "1", "full", "selective", "unsloth"})
_FALSE: Final = frozenset({"false", "no", "off", "0", "none", "null", "disable", "disabled", "no_offload"})
_VARIABLE: Final = re.compile(
    r"(?:\w{1,30}\.)?(?:base_|pretrained_)?(?:model|ckpt|checkpoint)(?:_(?:path|name|id|dir|name_or_path|repo))?"
)
"""What programs call a model that is named elsewhere: ``LLM(model=model_path)``."""
_LINKED: Final = re.compile(
    r"(?:(?:is|was|are|were) )?(?:(?:all |both |already |only )?(?:set|reduced|lowered|decreased|increased|raised"
    r"|changed|dropped) )?(?:from [\w.]{1,8} )?(?:to|at|as|of|is|was|down to|up to)\s{1,2}"
    r"[\"'`]?(?P<value>\d[\w.]{0,11}|true|false)\b"
    r"|(?:都|也|已经?)?(?:从 ?[\w.]{1,8} ?)?(?:设置?[为成到]?|改[为成到]|调[整]?[为到成低小]{1,2}|降[到低至为]{1,2}"
    r"|减[到少小至]{1,2}|开到|为|是|=){1,2} ?[\"'`]?(?P<zh>\d[\w.]{0,11}|true|false)(?![\w])",
    re.IGNORECASE | re.ASCII,
)
"""A value that words stand before: ``max_seq_length from 2048 to 4096``, ``batch_size 设成 1``."""
_STAGE: Final = re.compile(
    r"(?:zero|stage|\bz|_z|ds)[-_ ]{0,2}(?:stage[-_ ]{0,2})?([0-3])(?!\d)", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A key with its value, as written."""

    key: str
    value: str
    span: Span
    flag: bool
    """Whether it was written as ``--key``."""
    commented: bool
    doubtful: bool = False
    """Whether the sentence speaks of a run that was fine, or of a wish."""


def mentions(lines: list[Line], *, prose: bool = False) -> Iterator[Mention]:
    """Every ``key value`` pair whose key is one of the known ones; commented lines are marked."""
    for line in lines:
        text = line.text
        if _KNOWN.isdisjoint([word.lstrip("_") for word in _WORD.findall(line.low.replace("-", "_"))]):
            continue
        commented = text.lstrip().startswith(("#", "//"))
        for found in _KEY.finditer(text):
            full = found["key"].rstrip(".").replace("-", "_").lower()
            key = full if full in KEYS else full.rsplit(".", 1)[-1]
            if key not in KEYS:
                continue
            flag = found["dash"] in ("--", "-")
            value = (found["value"] or "").strip("\\*").rstrip(",.")
            if "," in value and KEYS[key][1] != "devices":
                value = value.split(",")[0]
            if text[found.end() + len(value) : found.end() + len(value) + 1] == "(" or "(" in value:
                continue
            bare = found["sep"] is None or not found["sep"].strip(" \t")
            linked = _LINKED.match(text, found.end(), found.end() + 60) if bare and "_" in key else None
            if linked is not None:
                value = (linked["value"] or linked["zh"]).rstrip(".")
            elif bare and not flag and ("_" not in key or found["sep"] is None):
                continue
            if value.startswith("-") and not re.match(r"-\d", value):
                value = ""
            doubtful = prose and worked(text, found.start(), found.end() + len(value))
            yield Mention(key, value, line.span(found.start() + 1), flag, commented, doubtful)


def read_keys(lines: list[Line], *, confidence: float, prose: bool = False) -> Iterator[Fact]:
    """Facts from mentioned keys; a key that is commented out says nothing."""
    found = [m for m in mentions(lines, prose=prose) if not m.commented]
    for mention in found:
        yield from _facts(mention, confidence - (0.25 if mention.doubtful else 0.0))
    yield from _lengths(found, confidence)


def _facts(mention: Mention, sure: float) -> Iterator[Fact]:
    name, kind, weight = KEYS[mention.key]
    value = _value(kind, mention)
    if value is None:
        return
    origin: Any = "command" if mention.flag else "config"
    if name == "method" and isinstance(value, tuple):
        name, value = value
    if name == "model" and PLAIN_NAME.fullmatch(str(value).rsplit("/", 1)[-1]):
        sure = 0.4 + weight
    yield Fact(name, value, mention.span, origin, max(0.3, sure - weight))
    if name == "model" and (size := billions(str(value))) is not None:
        yield Fact("params_b", size, mention.span, origin, max(0.3, sure - weight))


def _value(kind: str, mention: Mention) -> Any:
    """The value as its kind reads it; ``None`` where it cannot be one."""
    raw = mention.value
    low = raw.lower().rstrip(".")
    if kind == "int":
        value = to_tokens(low.rstrip("b")) if re.match(r"[\d_]{1,12}[kK]?\Z", low) else None
        return value if value is not None and value > 0 else None
    if kind == "float":
        return float(low) if re.fullmatch(r"\d{1,3}(?:\.\d{1,6})?", low) else None
    if kind == "bool":
        if low in _FALSE:
            return False
        return True if low in _TRUE or (raw == "" and mention.flag) else None
    if kind == "stage":
        stage = _STAGE.search(raw) if not low.isdigit() else re.fullmatch(r"([0-3])", low)
        return int(stage[1]) if stage else None
    if kind == "model":
        return (
            tidy_model(raw)
            if len(low) > 1
            and low not in _TRUE | _FALSE
            and "$" not in raw
            and not low.endswith((".py", ".sh"))
            and not _VARIABLE.fullmatch(low)
            and low not in _PLAIN_WORDS
            else None
        )
    if kind == "devices":
        return len(raw.split(",")) if re.fullmatch(r"\d{1,3}(?:,\d{1,3}){0,63},?", raw) else None
    table = TEXT_KEYS.get(kind)
    return table.get(low.replace("-", "_")) if table is not None else FLAGS.get(kind, {}).get(low)


def _lengths(found: list[Mention], sure: float) -> Iterator[Fact]:
    """The longest sequence of RL jobs, whose prompt and completion are set apart."""
    numbers: dict[str, tuple[int, Span]] = {}
    for mention in found:
        name = KEYS[mention.key][0]
        value = _value("int", mention) if name in ("_prompt_len", "_completion_len", "seq_len", "_rl") else None
        if value is not None:
            numbers.setdefault(name, (value, mention.span))
    rl = any(KEYS[m.key][1] == "objective" and m.value.lower() in ("grpo", "ppo") for m in found)
    prompt = numbers.get("_prompt_len") or (numbers.get("seq_len") if rl else None)
    completion = numbers.get("_completion_len")
    if prompt and completion:
        yield Fact("seq_len", prompt[0] + completion[0], prompt[1], "command", min(1.0, sure + 0.05))


_PLAIN_WORDS: Final = words(
    "a an and are but can even for how i if in is it its just my no not of on only or the then this to was we what when"
    " which why with yes you"
)
"""What follows "model:" in a sentence."""
_POSITIONAL: Final = Expression(
    r"(?:from_pretrained\(|(?<![\w.])LLM\(|(?<!\w)pipeline\((?:[\"'][a-z\-]{4,40}[\"'], ?)?"
    r"|SentenceTransformer\()\s{0,8}(?:model ?= ?|pretrained_model_name_or_path ?= ?)?[\"']("
    r"?P<quoted>[\w./\-]{3,200})[\"']"
    r"|(?:llama-(?:server|cli|bench|run)|koboldcpp(?:\.py)?|\./(?:main|server))\b[^\n]{0,300}?"
    r" (?:-c|--ctx-size|--contextsize)[ =]"
    r"(?P<context>\d{2,8})(?!\d)"
    r"|(?:vllm serve|lmdeploy serve api_server|lmdeploy chat(?: turbomind)?"
    r"|ollama run|swift infer|trtllm-serve) (?P<bare>(?!-)[\w./\-:]{3,200})"
)


def read_positional(lines: list[Line], words: Vocabulary, *, confidence: float) -> Iterator[Fact]:
    """The model that stands without a key: ``from_pretrained("x")``, ``vllm serve x``."""
    for line in candidates(_POSITIONAL, lines, words):
        for found in _POSITIONAL.finditer(line.text):
            if found["context"]:
                yield Fact("max_model_len", int(found["context"]), line.span(found.start() + 1), "command", confidence)
                continue
            name = tidy_model(found["quoted"] or found["bare"])
            if (
                name.lower() in ("text-generation", "tokenizer")
                or "tokenizer" in line.text[: found.start()].lower()[-24:]
            ):
                continue
            yield Fact("model", name, line.span(found.start() + 1), "command", confidence)
            if (size := billions(name)) is not None:
                yield Fact("params_b", size, line.span(found.start() + 1), "command", confidence - 0.05)
