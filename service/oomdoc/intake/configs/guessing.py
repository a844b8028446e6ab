"""What can be taken from a configuration whose framework is unknown: keys that mean the same wherever they stand.

The keys are rows of ``guesses.toml``. One counts where it is in no other role's section (an evaluation's, a reward
model's, a data set's) and wherever it does count it says the same. What is taken so is a guess, and no framework's
defaults go with it. Written back are numbers and switches alone, where one place and no other says the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomdoc.intake.configs import codecs
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.key_words import meaning_of
from oomdoc.intake.configs.named_codecs import CODECS
from oomdoc.intake.configs.table import DROP, Codec, Reading, norm, words
from oomdoc.intake.configs.values import flag, number
from oomdoc.intake.configs.wordlist import word_set
from oomdoc.intake.prose.models import looks_like_model
from oomdoc.stated import DOTTED_FIELDS
from oomkb.catalog.models import find
from oomkb.errors import CatalogError
from oomkb.frameworks import ENGINES
from oomkb.kept import compiled
from oomkb.memory.job import Job
from oomkb.tables import read_table
from oomkb.units import billions

CONFIDENCE: Final = 0.55
"""Of what is taken from an unknown framework's configuration: stated, yet below all else that states it."""
_ENGINES: Final = words("rollout generation infer inference engine engine_args engine_kwargs") | frozenset(
    engine + part for engine in ENGINES for part in ("", "_cfg", "_kwargs")
)
_OTHER_ROLES: Final = _ENGINES | word_set("other_roles")
_SEPARATE: Final = compiled(r"[.\[\]]+")
_MEMORY_WORDS: Final = compiled(
    r"lora|quant|(?<![a-z])(?:n|num_)?bits?(?![a-z])|freeze|offload|shard|parallel|batch|(?:max|seq|context|cutoff)\w{0,12}_?len"
    r"|recompute|grad(?:ient)?_?(?:ckpt|checkpoint)|activation_?checkpoint|(?:load|use)_in_\d"
)
_QUIET: Final = compiled(
    r"(?:val|test|eval)\w{0,12}batch|dataset|sampler|shuffle|dataloader|num_batches|batch_?norm|drop_last|(?:save|load|resume|output)_?\w{0,20}(?:shard|ckpt|checkpoint)"
)
_TRAINS: Final = word_set("trains")
_GENERATES: Final = compiled("|".join(["rollout", "generat", "infer", *map(re.escape, sorted(ENGINES))]))
"""In a run that trains: its engine's settings may stand beside its own."""
_STATES: Final = frozenset({"pair", "flag", "flag=", "bare", "override", "assign", "kwarg"})
_OF_ENGINE: Final = frozenset({"tensor_parallel_size", "tp_size"})
_OF_COMPLETIONS: Final = frozenset({"completion_len", "generations"})
"""Fields that the section of what generates may state as well."""
_OF_SAMPLES: Final = compiled(r"(?:\A|[._])(?:data|datasets?|train_dataset|train_loader)(?:\[[0-9]*\])?\.")
"""Sections of the samples that are trained on, which may say how long these are."""
_ANOTHER_DATA: Final = compiled(r"eval|valid|test|reward|critic|judge|teacher")
_MODEL_KEYS: Final = word_set("model_keys")
_CERTAIN: Final = word_set("certain_model_keys")
_FAMILY: Final = compiled(r"[A-Za-z]{2}")
_HUB_ID: Final = compiled(r"[A-Za-z0-9][\w-]{1,95}/[\w.\-]{2,95}(?<!\.json)(?<!\.yaml)(?<!\.gguf)\Z")
_FOLDERS: Final = words(
    "data dataset datasets model models ckpt ckpts checkpoint checkpoints config configs output outputs result results"
    " run runs weights pretrained cache hf home mnt src scripts experiments exp saves"
)
"""First parts of paths that are no owner's name."""


def _codec(spelt: str, where: str) -> Codec:
    """``int``; or ``true=flash2 1=flash2``, the words of a field."""
    if "=" not in spelt:
        if spelt not in CODECS:
            raise CatalogError(f"no codec {spelt}", where=where)
        return CODECS[spelt]
    said = dict(pair.split("=") for pair in spelt.split())
    return codecs.word(
        {**({"1": said["true"], "yes": said["true"], "on": said["true"]} if "true" in said else {}), **said}
    )


_BESIDE: Final = ("training", "serving", "otherwise")
"""Sections of keys that count beside those of ``always``."""
_NAMED: Final = ("always", "engine", *_BESIDE)
"""Sections whose rows name keys; those of ``words`` name fields."""


@cache
def _table() -> Mapping[str, Mapping[str, tuple[str, Codec]]]:
    """Of each section of ``guesses.toml``: the field and codec of each name.

    :raises CatalogError: for a field that no job has, an unknown codec, or a name that stands there twice.
    """
    sections = (*_NAMED, "words")
    fields = {*Job.__dataclass_fields__, *DOTTED_FIELDS}
    out: dict[str, dict[str, tuple[str, Codec]]] = {section: {} for section in sections}
    for section, rows in read_table(Path(__file__).with_name("guesses.toml"), *sections).items():
        for names, said in rows.items():
            field, _, spelt = said.partition(" ")
            if field not in fields:
                raise CatalogError(f"no job has a field {field}", where=f"guesses.toml: {section}")
            for name in names.split():
                if name in out[section] or (section in _BESIDE and name in out["always"]):
                    raise CatalogError(f"{name} stands there twice", where=f"guesses.toml: {section}")
                out[section][name] = field, _codec(spelt, f"guesses.toml: {names}")
    return out


def of_other_role(key: str, allowed: frozenset[str] = frozenset()) -> bool:
    """Whether a (normalised) key stands in a section of something other than the model that is trained."""
    return not (_OTHER_ROLES - allowed).isdisjoint(_SEPARATE.split(key)[:-1])


_ANOTHER: Final = compiled(r"reward|critic|judge|teacher|eval|valid|token(?:izer|ization)|dataset")
_ENGINE_PART: Final = compiled(f"{_GENERATES.pattern}|engine|serv")


def _of_another(key: str, *, trains: bool) -> bool:
    """As :func:`of_other_role`, by parts of the sections' names too; an engine's section is what serves itself."""
    sections = ".".join(_SEPARATE.split(key)[:-1])
    named = _ANOTHER.search(sections) or (trains and _ENGINE_PART.search(sections))
    return bool(named) or of_other_role(key, frozenset() if trains else _ENGINES)


def _of_engine(key: str) -> bool:
    """Whether a key stands in the section of the engine that generates, and of nothing else."""
    sections = ".".join(_SEPARATE.split(key)[:-1])
    return _ENGINE_PART.search(sections) is not None and _ANOTHER.search(sections) is None


def concerns_memory(key: str) -> bool:
    """Whether a key that was not understood may well decide how much memory is needed."""
    name = norm(key).lower()
    return _MEMORY_WORDS.search(name) is not None and _QUIET.search(name) is None


def trains(keys: Iterable[str], at_least: int = 1) -> bool:
    """Whether so many of the (normalised) keys are those of a run that trains."""
    return len({last for key in keys if (last := _SEPARATE.split(key)[-1]) in _TRAINS}) >= at_least


def guessed(entries: Iterable[Entry], *, trained: bool = False) -> Iterator[Reading]:
    """(field, value, entry) of every field that is said without doubt.

    :param trained: whether it is known that they are those of a run that trains.
    """
    for readings in _by_field([e for e in entries if e.resolved], trained=trained).values():
        if readings and all(value == readings[0][1] for _, value, _ in readings):
            yield readings[0]


def guessed_place(
    entries: Iterable[Entry], field: str, value: Any, *, trained: bool = False
) -> tuple[Entry, Any] | None:
    """The one setting that says a field, and what to write there; ``None`` where several do, or words are not known."""
    entries = list(entries)
    places = {entry.value_span: (entry, said) for _, said, entry in _by_field(entries, trained=trained).get(field, ())}
    if len(places) != 1:
        return None
    entry, was = next(iter(places.values()))
    like = [e for e in entries if not e.off and e.key_span != entry.key_span and norm(e.key) == norm(entry.key)]
    codec = _codec_of(norm(entry.key), field)
    if like or not entry.resolved or codec not in _WRITTEN or codec.read(value) != value:
        return None
    if codec.read(entry.value) != was:
        return None  # it was worked out from what stands there
    if codec is codecs.GRAD_CKPT and (flag(entry.value) is None or not isinstance(value, bool)):
        return None  # the words that it takes are its own
    others = (e for e in entries if not e.off and e.value_span != entry.value_span)
    if any(_at_odds(norm(e.key), e.value, field, entry.value, value) for e in others):
        return None
    # A switch without a value takes none: off, it is absent.
    return entry, DROP if entry.style == "bare" and value is False else codec.write(value, entry.value)


_WRITTEN: Final = (codecs.INT, codecs.NUMBER, codecs.FRACTION, codecs.FLAG, codecs.GRAD_CKPT)


_BY_TOKENS: Final = compiled(
    r"(?:batch|per_(?:gpu|device))\w{0,12}_tokens?\Z|tokens?_(?:\w{1,8}_)?per_(?:gpu|device|batch)\Z"
)
_ALL_SAMPLES: Final = compiled(r"(?:\A|global_|total_|train_)batch_size\Z")
_CARDS: Final = {"gpus": compiled("gpu|engine|device"), "nodes": compiled("node")}
_LONGEST: Final = compiled(r"max_position_embeddings?\Z")


def _at_odds(key: str, other: Any, field: str, was: Any, value: Any) -> bool:
    """Whether another setting keeps a new value from being in effect, or from being taken: a batch that is filled by
    tokens, a batch of all steps that the new one does not divide, a model that takes no longer text, another role's
    cards.
    """
    name, count = _SEPARATE.split(key)[-1], number(other)
    if not count or isinstance(value, bool):
        return False
    if field == "micro_batch":
        divided = _ALL_SAMPLES.search(name) is not None and count % (number(was) or count) == 0 and count != was
        return _BY_TOKENS.search(name) is not None or (divided and count % value != 0)
    if field in _CARDS:
        return count == number(was) and _CARDS[field].search(name) is not None
    return field == "seq_len" and _LONGEST.search(name) is not None and value > count


def _codec_of(key: str, field: str) -> Codec:
    """How the value of a key that says a field is written; of a batch beside accumulated steps, as a number."""
    parts = _SEPARATE.split(key)
    rows = [rows.get(name) for rows in _table().values() for name in (".".join(parts[-2:]), parts[-1])]
    return next((row[1] for row in rows if row is not None and row[0] == field), codecs.INT)


def _by_field(entries: Sequence[Entry], *, trained: bool) -> dict[str, list[Reading]]:
    """What every key that means the same everywhere says, by field."""
    stated = [(norm(e.key), e) for e in entries if not e.off and e.style in _STATES]
    off = _switched_off(stated)
    stated = [(key, e) for key, e in stated if not (off and key.startswith(off))]
    keys = [key for key, _ in stated]
    training = trained or trains(keys) or any(_means(key, _ONLY_TRAINING) for key in keys[:_MAX_BY_WORDS])
    own = [(key, e) for key, e in stated if not _of_another(key, trains=training)]
    table = _table()
    rows = {**table["always"], **table["training" if training else "serving"]}
    if training and any(_GENERATES.search(key) and not _ANOTHER.search(key) for key in keys):
        rows = {name: row for name, row in rows.items() if name not in _OF_ENGINE}
    said = _said(own, rows)
    lengths = [reading for reading in said.pop("seq_len", ()) if not _of_a_shape(reading[2], own)]
    said |= {"seq_len": lengths} if lengths else {}
    if training:
        engine = [(key, e) for key, e in stated if _of_engine(key)]
        generates = {name: row for name, row in table["always"].items() if row[0] in _OF_COMPLETIONS}
        samples = [(key, e) for key, e in stated if _OF_SAMPLES.search(key) and not _ANOTHER_DATA.search(key)]
        of_data = {n: row for part in ("always", "otherwise") for n, row in table[part].items() if row[0] == "seq_len"}
        further = [
            _said(engine, {**generates, **table["engine"]}),
            _said([(key, e) for key, e in own if not (trained and _of_a_shape(e, own))], table["otherwise"]),
            _said(samples, of_data),
        ]
        for field, readings in (pair for said_ in further for pair in said_.items()):
            said.setdefault(field, readings)
    said = _by_words(own, training=training) | {field: readings for field, readings in said.items() if readings}
    said.setdefault("model", list(_models(own)))
    said["method"] = [r for r in said.get("method", ()) if r[1] == "qlora"] or said.get("method", [])
    without = next((e for key, e in stated if _ADAPTERS.search(key) and flag(e.value) is False), None)
    if without is not None and all(value != "qlora" for _, value, _ in said["method"]):
        said = {field: readings for field, readings in said.items() if not field.startswith("lora.")}
        said["method"] = [("method", "full", without)] if training else []
    return said


_MIN_PROBABILITY: Final = 0.8
"""From which a key counts that is known by its words alone."""
_MAX_BY_WORDS: Final = 500
"""Keys of a piece whose words are looked at: about 0.1 ms each."""
_WHEN_SERVING: Final = {"seq_len": "serving.max_model_len", "gpu_memory_utilization": "serving.gpu_memory_utilization"}
_OF_SERVERS: Final = frozenset(
    {
        *_WHEN_SERVING.values(),
        *words("tp pp param_dtype nodes serving.max_num_seqs serving.max_num_batched_tokens"),
    }
)
_WHEN_TRAINING: Final = {"gpu_memory_utilization": "rollout.gpu_memory_utilization"}
_ONLY_TRAINING: Final = words("micro_batch grad_accum lora.r grad_ckpt global_batch generations")


def _means(key: str, fields: frozenset[str]) -> bool:
    """Whether a key says one of these fields, by its words."""
    field, probability = meaning_of(key)
    return field in fields and probability >= _MIN_PROBABILITY


def _by_words(entries: Sequence[tuple[str, Entry]], *, training: bool) -> dict[str, list[Reading]]:
    """What the keys say that no row names, by the words that they are made of."""
    rows = _table()
    fields = {name: row for name, row in rows["words"].items() if training or name in _OF_SERVERS}
    said: dict[str, list[Reading]] = {}
    for key, entry in entries[:_MAX_BY_WORDS]:
        last = _SEPARATE.split(key)[-1]
        field, probability = meaning_of(key)
        field = (_WHEN_TRAINING if training else _WHEN_SERVING).get(field, field)
        if any(last in rows[section] for section in _NAMED) or probability < _MIN_PROBABILITY or field not in fields:
            continue
        if field == "generations" and last in _OF_A_PHASE and not any(_IN_GROUPS.search(name) for name, _ in entries):
            continue
        if (value := fields[field][1].read(entry.value)) is not None:
            said.setdefault(field, []).append((field, value, entry))
    return said


_OF_A_PHASE: Final = frozenset({"num_rollouts", "n_rollouts"})
"""How many samples a step collects in all (trlX, MOSS-RLHF); of each prompt, where samples are compared in groups."""
_IN_GROUPS: Final = compiled(r"(?i)grpo|rloo|group")


def _of_a_shape(entry: Entry, entries: Sequence[tuple[str, Entry]]) -> bool:
    """Whether a length stands among a model's dimensions, in a section of its own: the most that it takes."""
    section = norm(entry.key).rpartition(".")[0]
    beside = {key.rpartition(".")[2] for key, _ in entries if section and key.rpartition(".")[0] == section}
    return len(beside & _DIMENSIONS) >= _MIN_DIMENSIONS


_MIN_DIMENSIONS: Final = 2
_DIMENSIONS: Final = word_set("dimensions")
_ADAPTERS: Final = compiled(r"(?i)(?:\A|\.)(?:use_(?:lora|peft)|(?:lora|peft)_enabled?|enable_(?:lora|peft))\Z")
_OF_ADAPTERS: Final = compiled(r"(?i)(?:\A|_)(?:lora|peft|adapter)(?:\Z|_)")
"""Sections in which a rank is that of adapters."""
_SWITCH: Final = compiled(r"(?:use|enabled?|is_enabled)(?:_(?P<what>\w{1,40}))?\Z")


def _switched_off(entries: Sequence[tuple[str, Entry]]) -> tuple[str, ...]:
    """Sections that their own switch turns off (``bnb.enabled: false``, ``lora_cfgs.use_lora: false``)."""
    out = []
    for key, entry in entries:
        section, _, last = key.rpartition(".")
        found = _SWITCH.match(last) if section and flag(entry.value) is False else None
        if found is not None and (found["what"] or section).lower() in section.rpartition(".")[2].lower():
            out.append(f"{section}.")
    return tuple(out)


def _said(entries: Sequence[tuple[str, Entry]], rows: Mapping[str, tuple[str, Codec]]) -> dict[str, list[Reading]]:
    """What the keys of some rows say, by field; a key may be told from others by the section before it."""
    said: dict[str, list[Reading]] = {}
    adapters = {key.rpartition(".")[0] for key, _ in entries if key.rpartition(".")[2] == "lora_alpha"}
    for key, entry in entries:
        *_, section, last = "", *_SEPARATE.split(key)
        section = "lora" if _OF_ADAPTERS.search(section) or key.rpartition(".")[0] in adapters else section
        for field, codec in filter(None, map(rows.get, (f"{section}.{last}", last))):
            if (value := codec.read(entry.value)) is not None:
                said.setdefault(field, []).append((field, [value] if field == "offload" else value, entry))
                break
    return said


def _models(entries: Sequence[tuple[str, Entry]]) -> Iterator[Reading]:
    """Values that are a model's name by their form, under keys that name one or something else."""
    for key, entry in entries:
        last = _SEPARATE.split(key)[-1]
        value = codecs.MODEL.read(entry.value) if last in _MODEL_KEYS else None
        if value is None:
            continue
        name = value.rsplit("/", 1)[-1]
        owned = value.count("/") == 1 and looks_like_model(value)
        alone = last in _CERTAIN and _FAMILY.match(name) is not None and looks_like_model(f"x/{name}")
        hub = last in _CERTAIN and _HUB_ID.match(value) is not None and value.partition("/")[0].lower() not in _FOLDERS
        if hub or ((owned or alone) and (billions(name) is not None or (owned and find(value) is not None))):
            yield "model", value, entry
