"""Models and their sizes in sentences, commands and paths.

The catalogue's reader (:func:`oomkb.catalog.models.find_all`) finds the names, of families that it holds and of others
that state their size. Here is weighed what each is to the run: the model, or its tokenizer, a data set, a judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.numbers import DIGITS
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import doubt
from oomdoc.intake.sieve import Expression, Vocabulary, candidates
from oomdoc.intake.weight_formats import stored_beside
from oomkb.kept import compiled
from oomkb.units import billions, of_experts

if TYPE_CHECKING:
    from oomkb.catalog.model_scan import ModelMention

MODEL_NAME: Final = Expression(r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z][A-Za-z0-9_.\-]{2,120})", re.ASCII)
"""What could be a model's name; :func:`looks_like_model` tells whether it is."""
PLAIN_NAME: Final = compiled(
    r"(?:base_?|my_?|final_?|merged_?|me[rg]{2}ed-)?(?:model|models|ckpt|checkpoints?|weights|output|llm|best|last"
    r"|model[-_](?:path|name)|path)|initiali[sz]ing|loading|config|python3?|zero[-_]?offload|<.{0,60}>|\$.{0,60}|nvfp4|fp8|auto|hf|huggingface|local-[\w-]{1,24}|lora_?model"
    r"|(?:reward|actor|critic|ref|sft|rm)_?model",
    re.IGNORECASE,
)
"""What a folder is called that could hold any model."""


@lru_cache(maxsize=2048)
def looks_like_model(name: str) -> bool:
    """Whether a word names a model of a family that the catalogue knows, not a tool, a class or a file."""
    from oomkb.catalog import models

    return not _RE["file"].search(name.rstrip(".:;,-_")) and any(m.named for m in models.find_all(name[:200]))


def tidy_model(value: str) -> str:
    """A model setting as a name: hub ids stay, local paths give their last telling part."""
    text = value.replace("___", ".").strip("\"'`,;()[]{}<> ").replace("\\", "/").rstrip("/")
    if re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,95}/[\w.\-]{1,95}", text) and not text.startswith(
        ("data/", "models/", "model/", "checkpoints/", "output/")
    ):
        return text
    parts = [p for p in text.split("/") if p]
    hub = [p for p in parts if p.startswith("models--")]
    if hub:
        return "/".join(hub[0].split("--")[1:])
    named = [p for p in parts if looks_like_model(p)]
    return named[-1] if named else (parts[-1] if parts else text)


_RE: Final = patterns(__file__)


_BESIDE_A_SIZE: Final = 0.55
"""How sure a format that stands beside a size is of how that model's weights are stored."""
_LINKED: Final = 0.55
"""How sure the address of a model's page or file is of the model that is run."""


def read_called(lines: Sequence[Line], words: Vocabulary, *, confidence: float) -> Iterator[Fact]:
    """The model that stands without a key: ``from_pretrained("x")``, ``vllm serve x``."""
    for line in candidates(_RE["called"], lines, words):
        for found in _RE["called"].finditer(line.text):
            span = line.span(found.start() + 1)
            if found["context"]:
                yield Fact("max_model_len", int(found["context"]), span, "command", confidence)
                continue
            name = tidy_model(found["quoted"] or found["bare"])
            if name.lower() == "tokenizer" or "tokenizer" in line.text[: found.start()].lower()[-24:]:
                continue
            yield Fact("model", name, span, "command", confidence if _RE["telling"].search(name) else 0.4)
            if (size := billions(name)) is not None:
                yield Fact("params_b", size, span, "command", confidence - 0.05)


def read_models(lines: Sequence[Line], words: Vocabulary, *, prose: bool) -> Iterator[Fact]:
    """Facts ``model`` and ``params_b``; what stands in settings, where its key is not known, is only a hint."""
    from oomkb.catalog import gpus, models

    base = 0.8 if prose else 0.55
    for line in lines:
        for found in models.find_all(line.text) if prose or not DIGITS.isdisjoint(line.text) else ():
            yield from _mentioned(line, found, base)
    for line in candidates(_RE["said"], lines, words) if prose else ():
        for hit in _RE["said"].finditer(line.text):
            yield from _unknown(line, hit)
    for line in candidates(_RE["counted"], lines, words):
        for hit in _RE["counted"].finditer(line.text):
            value = _billions_of(line.text, hit)
            sure = base - 0.1 + (0.15 if "param" in hit[0].lower() or "参" in hit[0] else 0.0)
            sure -= doubt(line.text, hit.start(), hit.end())
            card = gpus.find(hit[0][:6].strip("的 -")) is not None
            aside = _role(line.text, hit.start(), hit.end()) or _is_active(line.text, hit.start())
            if value > 0 and not card and not aside:
                yield Fact("params_b", value, line.span(hit.start() + 1), "prose", max(sure, 0.5))
                if prose and (stored := stored_beside(line.text, *hit.span())) is not None:
                    yield Fact("quant", stored, line.span(hit.start() + 1), "prose", _BESIDE_A_SIZE)


_SHARED_OF_EXPERTS: Final = 0.81
"""Parameters of a mixture over the product in its name: experts share the attention (Mixtral 8x7B has 46.7 billion,
8x22B 140.6)."""


def _billions_of(text: str, hit: re.Match[str]) -> float:
    """The parameters that a size states; 0 for a mixture of which the name is known."""
    if hit["experts"]:
        from oomkb.catalog import models

        named = " ".join([*text[max(0, hit.start() - _MAX_NAME) : hit.start()].split()[-1:], hit[0]])
        known = models.find(named) is not None
        return 0.0 if known else round(_SHARED_OF_EXPERTS * int(hit["experts"]) * float(hit["each"]), 1)
    plain, millions, tenths = hit.groups()[2:5]
    return float(plain or 0) or float(millions or 0) / 1000 or float(tenths or 0) / 10


_MAX_NAME: Final = 24


def size_of_name(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """The parameters of a model that is named, where no size is stated: those in its name, else the catalogue's."""
    model, known = facts.get("model"), facts.get("params_b")
    if model is None or not model.stated or not isinstance(model.value, str) or (known is not None and known.stated):
        return {}
    size = billions(model.value)
    if size is None and model.confidence >= _FULL_NAME and any(map(str.isdigit, model.value)):
        from oomkb.catalog import models

        entry = models.find(model.value)
        size = round(entry.params / 1e9, 2) if entry is not None and entry.params else None
    if size is None or of_experts(model.value):
        return {}
    return {"params_b": replace(model, name="params_b", value=size, confidence=_OF_NAME)}


_FULL_NAME: Final = 0.7
"""How sure a model's name is from which it is more than that of a family."""
_OF_NAME: Final = 0.55


def _unknown(line: Line, hit: re.Match[str]) -> Iterator[Fact]:
    from oomkb.catalog import gpus

    kind = "hub" if hit["hub"] else "bold"
    name, (start, end) = hit[kind].rstrip("."), hit.span(kind)
    if _role(line.text, start, end) or (
        kind == "bold" and (_RE["no_model"].fullmatch(name) or gpus.find(name) is not None)
    ):
        return
    if doubt(line.text, start, end) < 0.5:
        yield Fact("model", name, line.span(start + 1), "prose", 0.6 if kind == "hub" else 0.5)


def _role(text: str, start: int, end: int) -> bool:
    """Whether a name is that of something beside the model."""
    return bool(_RE["other_role"].search(text[max(0, start - 40) : start]) or _RE["role_behind"].match(text, end))


def _is_active(text: str, start: int) -> bool:
    """Whether a size is what of a mixture of experts is active for one token: no size of the model."""
    return _RE["active_before"].search(text[max(0, start - 32) : start]) is not None


def _mentioned(line: Line, found: ModelMention, base: float) -> Iterator[Fact]:
    from oomkb.catalog import gpus

    mention, start, end, known = found.text, found.start, found.end, found.entry is not None
    text, span = line.text, line.span(start + 1)
    if (hub := _RE["hub"].match(mention)) is not None and known:
        yield Fact("model", hub["name"], span, "prose", _LINKED)
        return
    if _role(text, start, end) or _RE["link"].search(text[max(0, start - 300) : start + 3]) or mention.startswith("//"):
        return
    minus = doubt(text, start, end)
    if not found.named:
        size = billions(mention) if not _is_active(text, start) else None
        if size is not None and not _RE["share"].match(text[end - 1 : end + 4]) and base > 0.7:
            come = 0.03 if _RE["changed"].search(text[max(0, start - 12) : start]) else 0.0
            yield Fact("params_b", size, span, "prose", 0.58 + come - min(minus, 0.08))
            if (stored := stored_beside(text, start, end)) is not None:
                yield Fact("quant", stored, span, "prose", _BESIDE_A_SIZE)
        return
    writer = _RE["written_by"].match(text)
    if writer is not None and end < writer.end():
        return
    path = mention.startswith(("/", ".", "~")) or mention.count("/") > 1
    name = tidy_model(mention) if path else mention.strip(" .:-_,")
    if not known and gpus.find(name) is not None:
        return  # "Ascend-910B" is a card
    spelt = _RE["spelt"].search(_RE["sizes"].sub("", name))
    if not spelt or _RE["folder"].match(mention) or PLAIN_NAME.fullmatch(name):
        return
    size = billions(name)
    sure = base if known else min(base, 0.64)
    if path or (start and text[start - 1] in "/\\_-@#"):
        sure = min(sure, 0.6 if size is not None and base > 0.7 else 0.45)
    if size is None and not of_experts(name):
        sure = max(min(sure, 0.5), sure - 0.1)  # a family alone: anything more specific wins
    sure = sure + (0.02 if "/" in name else 0.0) - minus
    if minus < 0.5 and sure >= 0.3:
        sure = max(sure, 0.5) if sure + minus >= 0.5 else sure
    yield Fact("model", name, span, "prose", max(sure, 0.1))
    if size is not None:
        yield Fact("params_b", size, span, "prose", max(sure - 0.05, 0.1))
