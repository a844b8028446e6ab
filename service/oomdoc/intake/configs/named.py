"""A model that no key of the table gives: named by a variable, another key or the file's name.

What is found so is a hint, never a stated fact: it lets a job be priced until somebody says better.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from oomdoc.evidence import Fact, Source, Span
from oomdoc.intake.prose.models import MODEL_NAME, looks_like_model, tidy_model
from oomkb.kept import compiled
from oomkb.units import billions

if TYPE_CHECKING:
    from oomdoc.intake.configs.analysis import Doc
    from oomdoc.intake.configs.lines import Lines

HINT: Final = 0.42
_KEY: Final = compiled(r"model|checkpoint|ckpt|pretrained|llm|policy|base", re.I)
_OTHER_ROLE: Final = compiled(
    r"hub|data|reward|critic|teacher|draft|embed|token|save|output|log|class|type|kwargs", re.I
)
_OUTPUTS: Final = ("results/", "outputs/", "output/", "out/", "logs/", "./results/", "./output")
_SEARCHED: Final = 100_000


def hinted_model(docs: Sequence[Doc], source: Source, lines: Lines) -> Iterator[Fact]:
    """Facts ``model`` or ``params_b`` below the threshold of what is stated; the nearest place first."""
    for value, at in _from_keys(docs):
        name = _as_model(value)
        if name is not None:
            yield Fact("model", name, lines.span(at), "config", HINT)
            return
    found = next(_from_classes(source.text), None)
    if found is not None:
        field, stated, at = found
        yield Fact(field, stated, lines.span(at), "code", _BY_CLASS)
        return
    yield from _from_file_name(source.name)


_SIZE: Final = r"(?P<size>\d{1,4}(?:[xX_pP]\d{1,4}){0,1}[bBmM](?:_[aA]\d{1,3}[bB])?)"
_CLASS: Final = compiled(
    rf"\b(?P<family>[A-Z][A-Za-z]{{1,20}}?)(?P<version>\d{{0,2}})(?P<kind>VL)?Config{_SIZE}(?![A-Za-z0-9])"
)
"""NeMo's configurations of models: ``Llama3Config8B``, ``Qwen3Config30B_A3B``, ``MixtralConfig8x7B``."""
_RECIPE: Final = compiled(
    rf"\b(?:llm|vlm|recipes)\.(?P<family>[a-z]{{2,20}}?)(?P<version>\d{{0,2}})(?P<kind>vl)?_{_SIZE}(?![A-Za-z0-9])"
)
"""NeMo's recipes: ``llm.llama31_70b.pretrain_recipe``, ``recipes.qwen3_30b_a3b``, ``llm.mixtral_8x7b_16k``."""
_BY_CLASS: Final = 0.9


def _from_classes(text: str) -> Iterator[tuple[str, str | float, int]]:
    """What a class or a recipe stands for: the catalogue's name of the model, else its billions of parameters."""
    from oomkb.catalog import models

    for pattern in (_CLASS, _RECIPE):
        for found in pattern.finditer(text, 0, _SEARCHED):
            family, version = found["family"], ".".join(found["version"])
            size = (
                re.sub(r"(?<=\d)[pP](?=\d)", ".", found["size"])
                .replace("_A", "-A")
                .replace("_a", "-a")
                .replace("_", ".")
            )
            kind = f"-{found['kind']}" if found["kind"] else ""
            spelt = (f"{family}{version}{kind}-{size}", f"{family}-{version}{kind}-{size}")
            entry = next((e for name in spelt if (e := models.find(name)) is not None), None)
            if entry is not None:
                yield "model", entry.name, found.start()
            elif (billion := billions(size)) is not None:
                yield "params_b", billion, found.start()


_OBJECTIVES: Final = {"rloo": "grpo", "cpo": "simpo", "gkd": "distill"} | {
    name: name for name in ("sft", "dpo", "orpo", "kto", "grpo", "simpo")
}
_OF_SCRIPTS: Final = _OBJECTIVES | {"ppo": "ppo", "reward": "rm", "rm": "rm", "pretrain": "pretrain"}
_TUNES: Final = frozenset(("finetune", "finetuning"))
_OTHER_WORK: Final = frozenset("eval evaluate merge data prepare infer generate serve test convert export".split())  # noqa: SIM905
_SCRIPT: Final = compiled(r"[\w./-]{1,200}\.py\b")
_RUN_NAMES: Final = ("output_dir", "hub_model_id", "run_name", "wandb_run_name", "exp_name")
_BY_NAME: Final = 0.6
_BY_SCRIPT: Final = 0.82


def scripted_objective(main: Doc, lines: Lines) -> Iterator[Fact]:
    """What is trained, by the name of the script that is run: ``train_reward.py``, ``run_pretrain.py``."""
    for script in _SCRIPT.findall(main.programs):
        said = set(re.split(r"[^a-z]+", script.rsplit("/", 1)[-1].lower()))
        found = {_OF_SCRIPTS[word] for word in said & _OF_SCRIPTS.keys()} or ({"sft"} if said & _TUNES else set())
        if len(found) == 1 and said.isdisjoint(_OTHER_WORK):
            yield Fact("objective", found.pop(), lines.span(main.start), "command", _BY_SCRIPT)
            return


def named_objective(docs: Sequence[Doc], source: Source, lines: Lines) -> Iterator[Fact]:
    """What is trained, where the script decides and only the names of the run and of the file's folder tell."""
    found = {_OBJECTIVES[word]: place for word, place in _of_names(docs, source, lines) if word in _OBJECTIVES}
    if len(found) == 1:
        yield from (Fact("objective", name, place, "config", _BY_NAME) for name, place in found.items())


def named_method(docs: Sequence[Doc], source: Source, lines: Lines) -> Iterator[Fact]:
    """``qlora``, where adapters are trained and only the names of the run and of the file say on what."""
    place = next((place for word, place in _of_names(docs, source, lines) if word == "qlora"), None)
    yield from [Fact("method", "qlora", place, "config", _BY_NAME)] if place is not None else []


def _of_names(docs: Sequence[Doc], source: Source, lines: Lines) -> Iterator[tuple[str, Span]]:
    """The words of which the names of the file and of the run are made, and where they stand."""
    named = [
        (str(entry.value), lines.span(entry.key_span[0]))
        for doc in docs
        for entry in doc.entries
        if entry.key.rpartition(".")[2] in _RUN_NAMES and isinstance(entry.value, str)
    ]
    for text, place in ((source.name[-200:], Span(source.name, 1, 1, source.name)), *named):
        yield from ((word, place) for word in re.split(r"[^a-z]+", text.lower()[-300:]))


def _from_keys(docs: Sequence[Doc]) -> Iterator[tuple[str, int]]:
    for doc in docs:
        for entry in (*doc.entries[:1000], *doc.env[:300]):
            last = entry.key.rsplit(".", 1)[-1]
            named = _KEY.search(entry.key) is not None and _OTHER_ROLE.search(last) is None
            if named and isinstance(entry.value, str) and 2 < len(entry.value) <= 300:
                yield entry.value, entry.key_span[0]


def _as_model(value: str) -> str | None:
    """The name, where the value names a model the catalogue knows or one of a known family with its size."""
    from oomkb.catalog import models

    name = tidy_model(value)
    if value.startswith(_OUTPUTS):
        return None
    if not name or " " in name or name.startswith(("$", "<", "{")):
        return None
    if not any(looks_like_model(found["name"]) for found in MODEL_NAME.finditer(name.replace("/", " "))):
        return None
    return name if billions(name) is not None or models.find(name) is not None else None


def _from_file_name(name: str) -> Iterator[Fact]:
    """``run_llama3_8B.sh`` names a model, ``run_6.7b_lora.sh`` a size."""
    from oomkb.catalog import models

    base = re.sub(r"\.\w{1,5}\Z", "", name.rsplit("/", 1)[-1])
    place = Span(name, 1, 1, base)
    for found in MODEL_NAME.finditer(base.replace("_", "-")):
        words = found["name"].split("-")
        for end in range(len(words), 0, -1):
            joined = "-".join(words[:end])
            if looks_like_model(joined) and (entry := models.find(joined)) is not None:
                yield Fact("model", entry.name, place, "config", HINT)
                return
    size = billions(base)
    if size is not None:
        yield Fact("params_b", size, place, "config", HINT)
