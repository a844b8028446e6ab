"""Models and their sizes in sentences, commands and paths.

The catalogue's reader (:func:`oomkb.catalog.models.find_all`) finds the names, of families that it holds and of others
that state their size. Here is weighed what each is to the run: the model, or its tokenizer, a data set, a judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.prose.model_names import PLAIN_NAME, tidy_model
from oomdoc.intake.prose.sizes import DIGITS
from oomdoc.intake.prose.stance import doubt
from oomdoc.intake.sieve import Expression, Vocabulary, candidates
from oomkb.units import billions, of_experts

__all__ = ["read_called", "read_models"]

_OTHER_ROLE: Final = Expression(
    r"(?:data[- _]?sets?|data|tokeni[sz]er|reward|critic|draft|teacher|judge|embedd\w{1,5}|template|parser"
    r"|rerank\w{1,3}|rm|ref|adapter"
    r"|reference|speculative|奖励|数据集?|词表|模板)[\w\-]{0,20}[\"'`]{0,2}(?: ?(?:model|模型|of|on|from|is|was|path))?"
    r"[ \t]{0,3}[:=：(（]{0,2}[ \t]{0,3}[\"'`(]{0,2}\Z",
    re.IGNORECASE | re.ASCII,
)
"""Before a name: it is something else than the model."""
_ROLE_BEHIND: Final = Expression(
    r"[\"'`]?[- _]{0,2}(?:tokeni[sz]er|template|dataset|data set|reward model|style|format|as (?:the )?(?:judge"
    r"|teacher)|作为奖励)",
    re.IGNORECASE | re.ASCII,
)
_COUNTED: Final = Expression(
    r"(?<![\w.\-])(\d{1,4}(?:\.\d{1,2})?)[- ]?(?:[bB]n?|billion)[- ]{0,2}(?:of )?(?:size|param\w{0,7}|models?|参数"
    r"|的?模型|的(?=[一-鿿])"
    r"|(?=(?:gpt|llama|opt|dense)\b))"
    r"|(?<![\w.\-])(\d{2,6}) ?M(?:illion)?[- ](?:total )?(?:param\w{0,7}|transformer|model|gpt|dense)\b"
    r"|(?<![\d.])(\d{1,4}(?:\.\d)?) ?亿(?:个?的?参数|模型|规模)",
    re.IGNORECASE | re.ASCII,
)
_SHARE: Final = Expression(r"[BM] {0,2}\(\d")
"""Bytes of a compiler's table, which their share follows."""
_CHANGED: Final = Expression(r"(?:换成|换到|改成|改为|\bto|→|->) ?(?:a |the )?\Z")
"""Before what one came to: "from 7B to 14B"."""
_LINK: Final = Expression(r"://\S{0,300}\Z")
_TOKENS: Final = Expression(r" ?(?:tokens?|数据|条|rows?|samples?)", re.IGNORECASE)
_FOLDER: Final = Expression(
    r"(?:\./)?(?:examples?|scripts?|configs?|recipes|research_projects|src|tests?|docker|projects?|tools)/",
    re.IGNORECASE,
)
_SIZES: Final = re.compile(r"\d{1,4}(?:\.\d{1,3})?[bBmM](?![a-z])")
_SPELT: Final = Expression(r"[A-Za-z]{2}|[一-鿿]{2}")
_TELLING: Final = Expression(r"\d|\w/\w|\w-\w")
"""What a name has that is more than a folder's."""
_SIZED: Final = Expression(r"\d[bB](?![A-Za-z0-9])")
_SIZE_LAST: Final = Expression(
    r"(?<![\w/.-])(?:[A-Z][A-Za-z]{2,15}(?:-| )?\d{1,2}(?:\.\d)? |[A-Za-z]{3,20}[\w.-]{0,20}[A-Za-z])"
    r"\d{1,3}(?:\.\d{1,2})?[bB](?![A-Za-z0-9])"
)
"""A family that nobody knows with its size: ``GPT-3 6.7B``, ``some-prover7B``."""
_CALLED: Final = Expression(
    r"(?:from_pretrained\(|(?<![\w.])LLM\(|(?<!\w)pipeline\((?:[\"'][a-z\-]{4,40}[\"'], ?)?|SentenceTransformer\("
    r"|= ?[A-Z]\w{2,30}\((?=[\"'][\w\-]{2,40}/[\w.\-]{2,80}[\"']))\s{0,8}"
    r"(?:model ?= ?|pretrained_model_name_or_path ?= ?)?[\"'](?P<quoted>[\w./\-]{3,200})[\"']"
    r"|(?:llama-(?:server|cli|bench|run)|koboldcpp(?:\.py)?|\./(?:main|server))\b[^\n]{0,300}?"
    r" (?:-c|--ctx-size|--contextsize)[ =](?P<context>\d{2,8})(?!\d)"
    r"|(?:vllm serve|lmdeploy serve api_server|lmdeploy chat(?: turbomind)?|ollama run|swift infer|trtllm-serve)"
    r" (?P<bare>(?!-)(?=\S{0,80}[A-Za-z])[\w./\-:]{3,200})"
)
_SAID: Final = Expression(
    r"(?:(?i:\b(?:fine-?tun\w{1,4}|training|train|load(?:ing)?|model(?: is)?|running|serving|deploy(?:ing)?|us(?:e|ing)"
    r"|demo of|inference (?:of|on|with|for)))(?: (?:of|the|an?|my|with))?|微调|加载|部署|训练|推理|模型)[ :：`]{0,3}"
    r"(?:(?P<hub>(?=[\w\-]{1,80}/[\w.]{1,30}-)[A-Za-z][\w\-]{1,40}/[A-Za-z][\w.\-]{2,80})(?![\w/])"
    r"|(?P<bold>(?=[A-Z\d]{0,20}[a-z])[A-Z][A-Za-z]{1,20}(?:[A-Z]|\d)[\w\-]{0,40}(?:\.\d[\w\-]{0,20})?)(?=[\s,，。`]"
    r"|\.(?:\s|$)|$))",
    re.ASCII,
)
"""Names of no known family, by what is done with them: ``fine-tuning owner/Some-Model``, ``the demo of SomeVLM2``."""
_NO_MODEL: Final = re.compile(
    r"(?:q?lora|dora|fsdp\d?|zero-?\d?|deepspeed|ddp|d?sft|dpo|ppo|grpo|kto|llms?|vlms?|moe|gpus?|tpus?|npus?"
    r"|cuda\w*|oom|rocm\d*|[bf]p?f?\d{1,2}"
    r"|int\d|nf4|python\d*|pytorch\d*|tensorflow\d*|tf\d|jax|mps|nccl|docker|wsl\d?|ubuntu\d*|adamw?\w*|flashatt\w*"
    r"|hf\w*|huggingface|vllm|sglang|ram|vram"
    r"|\w*(?:trainer|config|parallel|factory|tuner|dataset|attention|optimizer|bench|eval|chat|gym|rl|cpp)\w*)",
    re.IGNORECASE | re.ASCII,
)
"""What else is used, loaded and trained with."""


def read_called(lines: Sequence[Line], words: Vocabulary, *, confidence: float) -> Iterator[Fact]:
    """The model that stands without a key: ``from_pretrained("x")``, ``vllm serve x``."""
    for line in candidates(_CALLED, lines, words):
        for found in _CALLED.finditer(line.text):
            span = line.span(found.start() + 1)
            if found["context"]:
                yield Fact("max_model_len", int(found["context"]), span, "command", confidence)
                continue
            name = tidy_model(found["quoted"] or found["bare"])
            if name.lower() == "tokenizer" or "tokenizer" in line.text[: found.start()].lower()[-24:]:
                continue
            yield Fact("model", name, span, "command", confidence if _TELLING.search(name) else 0.4)
            if (size := billions(name)) is not None:
                yield Fact("params_b", size, span, "command", confidence - 0.05)


_TAG: Final = re.compile(r":\d{1,4}(?:\.\d{1,2})?b(?:-[\w.-]{1,40})?(?![\w:])", re.IGNORECASE)
"""Size and quantization behind a name as Ollama's library writes them: ``qwen2.5:32b-instruct-q4_K_M``."""


def read_models(lines: Sequence[Line], words: Vocabulary, *, prose: bool) -> Iterator[Fact]:
    """Facts ``model`` and ``params_b``; what stands in settings, where its key is not known, is only a hint."""
    from oomkb.catalog import gpus, models

    base = 0.8 if prose else 0.55
    for line in lines:
        mentions = models.find_all(line.text) if prose or not DIGITS.isdisjoint(line.text) else []
        for found in mentions:
            tag = _TAG.match(line.text, found.end) if found.named else None
            name, end = (found.text + tag[0], tag.end()) if tag else (found.text, found.end)
            known = found.entry is not None
            yield from _mentioned(line, name, found.start, end, base, named=found.named, known=known)
        for hit in _SIZE_LAST.finditer(line.text) if prose and _SIZED.search(line.text) else ():
            if not any(m.named and m.start < hit.end() and hit.start() < m.end for m in mentions):
                yield from _mentioned(line, hit[0], *hit.span(), base, named=True, known=False)
    for line in candidates(_SAID, lines, words) if prose else ():
        for hit in _SAID.finditer(line.text):
            yield from _unknown(line, hit)
    for line in candidates(_COUNTED, lines, words):
        for hit in _COUNTED.finditer(line.text):
            value = float(hit[1] or 0) or float(hit[2] or 0) / 1000 or float(hit[3] or 0) / 10
            sure = base - 0.1 + (0.15 if "param" in hit[0].lower() or "参" in hit[0] else 0.0)
            sure -= doubt(line.text, hit.start(), hit.end())
            card = gpus.find(hit[0][:6].strip("的 -")) is not None
            if value > 0 and not card and not _role(line.text, hit.start(), hit.end()):
                yield Fact("params_b", value, line.span(hit.start() + 1), "prose", max(sure, 0.5))


def _unknown(line: Line, hit: re.Match[str]) -> Iterator[Fact]:
    from oomkb.catalog import gpus

    kind = "hub" if hit["hub"] else "bold"
    name, (start, end) = hit[kind].rstrip("."), hit.span(kind)
    if _role(line.text, start, end) or (kind == "bold" and (_NO_MODEL.fullmatch(name) or gpus.find(name) is not None)):
        return
    if doubt(line.text, start, end) < 0.5:
        yield Fact("model", name, line.span(start + 1), "prose", 0.6 if kind == "hub" else 0.5)


def _role(text: str, start: int, end: int) -> bool:
    """Whether a name is that of something beside the model."""
    return bool(_OTHER_ROLE.search(text[max(0, start - 40) : start]) or _ROLE_BEHIND.match(text, end))


def _mentioned(
    line: Line, mention: str, start: int, end: int, base: float, *, named: bool, known: bool
) -> Iterator[Fact]:
    from oomkb.catalog import gpus

    text, span = line.text, line.span(start + 1)
    if _role(text, start, end) or _LINK.search(text[max(0, start - 300) : start + 3]) or mention.startswith("//"):
        return
    minus = doubt(text, start, end)
    if not named:
        size = billions(mention)
        if (
            size is not None
            and not _SHARE.match(text[end - 1 : end + 4])
            and not _TOKENS.match(text, end)
            and base > 0.7
        ):
            come = 0.03 if _CHANGED.search(text[max(0, start - 12) : start]) else 0.0
            yield Fact("params_b", size, span, "prose", 0.58 + come - min(minus, 0.08))
        return
    path = mention.startswith(("/", ".", "~")) or mention.count("/") > 1
    name = tidy_model(mention) if path else mention.strip(" .:-_,")
    if not known and gpus.find(name) is not None:
        return  # "Ascend-910B" is a card
    if not _SPELT.search(_SIZES.sub("", name)) or _FOLDER.match(mention) or PLAIN_NAME.fullmatch(name):
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
