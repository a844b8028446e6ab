"""What one turn means: a change, a question, an undo, a comparison, or none of oomdoc's business.

No language model: bounded patterns over a short turn, in English and Chinese. Pasted logs and configs go through
intake instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from oomdoc.chat.numbers import NUMBER, read_number
from oomdoc.chat.phrases import FIELD_NAMES, PHRASES, Phrase
from oomdoc.evidence import Source
from oomdoc.intake.configs import read_documents, to_job
from oomdoc.intake.configs.registry import all_names
from oomkb.catalog import models
from oomkb.catalog.gpus import find_all
from oomkb.frameworks import canonical
from oomkb.memory.job import Job

__all__ = ["Turn", "understand"]

Kind = Literal["change", "ask", "compare", "undo", "off-topic"]

LONGEST_TURN: Final = 600
"""Characters of a turn that are read as a phrase; longer ones are pasted material."""

_SIZE_IN_NAME: Final = re.compile(r"(?i)(?<![\d.])\d{1,4}(?:\.\d{1,2})?b(?![a-z])")
_KEY: Final = re.compile(
    r"(?<![\w-])(?P<key>[A-Za-z]\w{1,30}(?:[_-]\w{1,30}){1,8})\s{0,2}(?:[=:]|\bto\b|\bis\b|改成|改为|设为|设成|调到|降到|加到|到|为)?\s{0,2}"
    r"(?P<value>[\w.+-]{1,40})"
)
# What a framework's key implies beside what it says; a turn about one key changes that alone.
_INFERRED: Final = frozenset({"framework", "objective", "params_b", "world"})
_TO_NUMBER: Final = re.compile(rf"(?i)(?:\bto\b|到|成)\s?(?P<n>{NUMBER})")
_SHORTEST_LENGTH: Final = 128
_SCRIPT_SEAM: Final = re.compile(r"(?<=[A-Za-z0-9])(?=[\u4e00-\u9fff])|(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])")
_ASK: Final = re.compile(
    r"(?i)\bwhy\s(?:not|isn'?t|don'?t|can'?t|no|do\swe|does|is)\b|\bjust\s(?:asking|curious|wondering)\b|\bdon'?t\schange\b"
    r"|\bwithout\schanging\b|\bhypothetical|\bout\sof\scuriosity\b|\bnot\sasking\sto\schange\b"
    r"|\bwould\b.{1,60}\b(?:help|save|matter|make\sa\sdifference|be\senough|suffice)\b|\bdoes\b.{1,60}\b(?:help|matter|take|use|cost)\b"
    r"|\bshould\si\b|\bhow\smuch\s(?:would|does|do|will|could)\b.{1,60}\bsave\b|\bworth\sit\b|\bdo\si\s(?:even\s)?need\b"
    r"|是不是|为什么|为啥|为何|怎么不|只是问|只问|问问|问一下|好奇|先别改|先不改|不要改|别改|别动|不用改|有用吗|有没有用|有帮助吗|值得吗|值不值|能省多少|省多少|差多少|占多少|占地方|会不会更"
)
_COMPARE: Final = re.compile(
    r"(?i)\bwhich\b.{0,60}\b(?:fast|slow|quick|cheap|best|better)\w{0,3}\b|\b(?:fastest|quickest|slowest|fewer\stokens)\b"
    r"|\bhow\s(?:much\s)?(?:slow|fast)(?:er)?\b|\bthroughput\b|\btok(?:en)?s?\s?(?:/|per\s)s|(?:哪个|哪种|哪一个|谁|哪边).{0,12}(?:快|慢|好|省)|最快|更快|快多少|慢多少|吞吐|速度"
)
_BACK: Final = re.compile(r"(?i)\bgo\sback\b|\bback\b|\brestore\b|回到|改回|恢复")
_UNDO: Final = re.compile(
    r"(?i)\bundo\b|\brevert\b|\broll\s?back\b|\bstart\s(?:over|again)\b|重来|重新开始|\bscratch\sthat\b|\bnever\s?mind\b|\bforget\s(?:that|it|the\slast)\b"
    r"|\bback\sto\s(?:the\s)?(?:original|start|first|initial|previous|before|beginning|what\s(?:i|we)\shad)\b"
    r"|撤销|撤回|撤消|回退|还原|恢复(?:到|成)?(?:原|之前|最初|刚才|一开始)|回到(?:一开始|最初|原来|开始|之前|上一|刚才|最早)|改回(?:去|来|原)|算了"
)
_ORIGINAL: Final = re.compile(
    r"(?i)\b(?:original|start|first|initial|beginning|everything)\b|一开始|最初|原来|最早|全部|所有|重来|重新开始"
)
_STEPS: Final = re.compile(
    rf"(?i)(?:last|previous|past)\s(?P<n>{NUMBER})|(?P<both>\bboth\b)|(?:上面|前面|最近|刚才)?(?:这)?(?P<z>{NUMBER})\s?(?:步|次|个改动|处)"
)
_COUNT_BEFORE: Final = re.compile(rf"(?i)(?P<n>{NUMBER})\s?(?:x|×|\*|张|块|卡|个)?\s?\Z")
_PLURAL: Final = re.compile(r"(?<=\d)s\Z")
_LEADING_COUNT: Final = re.compile(r"\A\d{1,4}\s?(?:x|X|×|\*|张|块|片|卡|个)?\s?(?=[A-Za-z0-9])")
_NOTHING: Final = re.compile(r"(?!)")
_HALF: Final = re.compile(r"(?i)\bhal(?:f|ve|ving)\b|减半|一半|砍半")
_DOUBLE: Final = re.compile(r"(?i)\bdoubl(?:e|ing)\b|\btwice\b|翻倍|加倍|翻一倍")
_INVENT: Final = re.compile(
    r"(?i)\bmake\s(?:it|one|that|something|a\snumber)\sup\b|\bjust\s(?:say|tell\sme|write|claim)\b.{0,40}\b(?:needs|fits|uses|takes|is)\b|\bpretend\b|\bignore\s(?:all|your|the|previous)\b"
    r"|\bsystem\s?:|编一个|编个|随便(?:写|说|给)|假装|忽略.{0,12}(?:规则|指令|设定)|直接(?:说|写)(?:放得下|够|不会)"
)
_FRAMEWORK: Final = re.compile(
    r"(?i)(?<![\w/.-])(?:ms-swift|swift|llama-?factory|openrlhf|verl|trl|axolotl|torchtune|torchtitan|megatron(?:-lm)?|nemo|unsloth|xtuner|"
    r"vllm|sglang|lmdeploy|deepspeed|accelerate)(?![\w/.-])"
)
_DOMAIN: Final = re.compile(
    r"(?i)memor|\boom\b|gpu|vram|cuda|batch|train|token|layer|model|lora|zero|fsdp|quant|offload|checkpoint|logit|optimi|gradient|weight|cache|attention|"
    r"infer|serv|vllm|fit|gib|\bgb\b|seq|length|parallel|speed|fast|slow|why|explain|plan|patch|yaml|config|cheap|option|show|precision|bf16|fp16|reference|critic|rollout|"
    r"显存|内存|显卡|卡|训练|微调|推理|模型|批|长度|量化|参数|优化器|梯度|激活|权重|并行|放得下|够|爆|为什么|方案|补丁|怎么|多少|快|慢|参考"
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn understood. ``changes`` are job fields (``None`` clears); for ``ask`` they are the ones asked about."""

    kind: Kind
    changes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    undo_steps: int = 1
    undo_all: bool = False
    undo_fields: tuple[str, ...] = ()
    invented: bool = False
    """Whether the turn asks for a number that is not computed."""


def understand(text: str, job: Job) -> Turn:
    """Read one short turn against the session's job."""
    # Word boundaries do not exist between Latin and Chinese characters, so a blank is put there.
    turn = _SCRIPT_SEAM.sub(" ", text.strip()[:LONGEST_TURN])
    invented = bool(_INVENT.search(turn))
    if invented:
        return Turn("ask", invented=True)
    changes = _changes(turn, job)
    if _COMPARE.search(turn):
        return Turn("compare", changes)
    if _UNDO.search(turn) or (_BACK.search(turn) and not changes):
        return _undo(turn, changes)
    if _ASK.search(turn):
        return Turn("ask", changes)
    if changes:
        return Turn("change", changes)
    return Turn("ask" if _DOMAIN.search(turn) else "off-topic")


def _undo(turn: str, changes: dict[str, Any]) -> Turn:
    match = _STEPS.search(turn)
    steps = 1
    if match:
        steps = 2 if match["both"] else int(read_number(match["n"] or match["z"]))
    fields = tuple(name for name, pattern in FIELD_NAMES if pattern.search(turn))
    everything = bool(_ORIGINAL.search(turn))
    if not everything:
        # "revert the offload" names what to take back; it does not turn it on.
        changes = {n: v for n, v in changes.items() if n.partition(".")[0] not in fields and n != "world"}
    return Turn("undo", changes, undo_steps=max(1, steps), undo_all=everything, undo_fields=fields)


def _changes(turn: str, job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {}
    taken: list[tuple[int, int]] = []
    for phrase in PHRASES:
        if phrase.field in found:
            continue
        match = _free_match(phrase, turn, taken)
        if match is None:
            continue
        value = _value(phrase, match)
        if value is None:
            continue
        taken.append(match.span())
        found[phrase.field] = value
        found.update({name: v for name, v in phrase.also if name not in found})
    _relative(turn, job, found)
    _hardware(turn, found)
    _framework(turn, job, found)
    _model(turn, job, found)
    _keys(turn, job, found)
    _bare_length(turn, found)
    return _settle(found, job)


def _free_match(phrase: Phrase, turn: str, taken: list[tuple[int, int]]) -> re.Match[str] | None:
    """A match whose words no earlier phrase has used: "8bit adam" is an optimizer, not a quantization."""
    for match in phrase.pattern.finditer(turn):
        if not any(start < match.end() and match.start() < end for start, end in taken):
            return match
    return None


def _value(phrase: Phrase, match: re.Match[str]) -> Any:
    if phrase.value is not None:
        return phrase.value
    try:
        groups = match.groupdict()
        said = groups["n"] or groups.get("n2") or ""
        number = read_number(said.replace("%", "").strip())
        return phrase.convert(number) if number > 0 else None
    except (ValueError, OverflowError):
        return None


def _relative(turn: str, job: Job, found: dict[str, Any]) -> None:
    factor = 0.5 if _HALF.search(turn) else 2.0 if _DOUBLE.search(turn) else None
    if factor is None:
        return
    for name, pattern in FIELD_NAMES:
        current = job.get(name)
        if name not in found and isinstance(current, int) and not isinstance(current, bool) and pattern.search(turn):
            found[name] = max(1, int(current * factor))
            return


def _hardware(turn: str, found: dict[str, Any]) -> None:
    """A GPU by name, and the number in front of it: "two 3090s", "2×4090", "换成 H20"."""
    for mention in find_all(turn)[:1]:
        name = mention.text.strip()
        found["gpu"] = _PLURAL.sub("", (_LEADING_COUNT if mention.count else _NOTHING).sub("", name))
        if mention.count and "gpus" not in found:
            found["gpus"] = mention.count
        before = _COUNT_BEFORE.search(turn[max(0, mention.start - 16) : mention.start])
        if before and "gpus" not in found:
            found["gpus"] = int(read_number(before["n"]))


def _framework(turn: str, job: Job, found: dict[str, Any]) -> None:
    """The framework by name, as long as none is known: "用 swift 训", "with axolotl"."""
    if job.framework is not None:
        return
    for match in _FRAMEWORK.finditer(turn):
        found["framework"] = canonical(match[0])
        return


def _model(turn: str, job: Job, found: dict[str, Any]) -> None:
    """Another model by name, or another size of the same one: "换成 Qwen2.5-14B", "what if it was 14B"."""
    for mention in models.find_all(turn):
        if mention.entry is not None and mention.named:
            found["model"] = mention.text.strip()
        elif mention.params_b and not mention.named:
            found.update(_resized(job, mention.params_b))
        else:
            continue
        return


def _resized(job: Job, params_b: float) -> dict[str, Any]:
    """The same family at another size, where the catalogue has it; else the size alone."""
    if isinstance(job.model, str):
        name = _SIZE_IN_NAME.sub(f"{params_b:g}B", job.model, count=1)
        if name != job.model and models.find(name) is not None:
            return {"model": name, "params_b": None}
    return {"model": None, "params_b": params_b}


def _keys(turn: str, job: Job, found: dict[str, Any]) -> None:
    """Keys of the job's own framework: "set max_completion_length to 512"."""
    lines = [f"{m['key']}: {m['value']}" for m in _KEY.finditer(turn) if m["key"] in all_names()]
    if not lines:
        return
    reading = read_documents(Source("turn", "\n".join(lines)), framework=job.framework)
    fields = to_job({f.name: f for f in reading.facts}, job.framework, job.versions).document()
    for name, value in fields.items():
        if name not in found and name not in _INFERRED and not isinstance(value, Mapping):
            found[name] = value


def _bare_length(turn: str, found: dict[str, Any]) -> None:
    """A number of that size that belongs to nothing else is a length: "cut it to 1024"."""
    match = _TO_NUMBER.search(turn)
    if not found and match and read_number(match["n"]) >= _SHORTEST_LENGTH:
        found["seq_len"] = int(read_number(match["n"]))


def _settle(found: dict[str, Any], job: Job) -> dict[str, Any]:
    """Turn what was said into consistent job fields."""
    utilization = found.pop("gpu_memory_utilization", None)
    if utilization is not None:
        rl = job.rollout is not None or job.objective in ("grpo", "ppo")
        found["rollout.gpu_memory_utilization" if rl else "serving.gpu_memory_utilization"] = utilization
    if "seq_len" in found and job.objective == "inference":
        found["serving.max_model_len"] = found["seq_len"]
    if found.get("method") == "qlora" and found.get("quant") == "none":
        found.pop("quant")
    if found.get("method") in ("lora", "full") and job.method == "qlora" and "quant" not in found:
        found["quant"] = "none"
    if "lora.r" in found and "method" not in found and job.method not in ("lora", "qlora"):
        found["method"] = "lora"
    if "gpus" in found or "nodes" in found:
        _settle_gpus(found, job)
    return found


def _settle_gpus(found: dict[str, Any], job: Job) -> None:
    """``4 nodes, 32 cards`` means eight in each; degrees that no longer divide the world are dropped."""
    nodes = found.get("nodes") or job.nodes or 1
    gpus = found.get("gpus") or job.gpus or 1
    if found.get("nodes", 1) > 1 and gpus > 8 and gpus % nodes == 0:
        gpus = gpus // nodes
    elif "nodes" not in found and gpus > 16 and gpus % 8 == 0:
        nodes, gpus = gpus // 8, 8
    elif "nodes" not in found and job.nodes and job.nodes > 1 and found.get("gpus", 0) == job.nodes * (job.gpus or 8):
        gpus = job.gpus or 8
    elif "nodes" not in found and "gpus" in found and job.nodes and job.nodes > 1 and gpus <= 8:
        nodes = job.nodes
    found["gpus"] = gpus
    if nodes > 1 or job.nodes:
        found["nodes"] = nodes
    found["world"] = nodes * gpus
    if job.dp is not None:
        found["dp"] = None
