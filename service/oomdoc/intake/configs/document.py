"""One piece of configuration with the table of its framework: what it says, under the keys that the table lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.guessing import guessed, of_other_role
from oomdoc.intake.configs.launch import batch_of_each
from oomdoc.intake.configs.programs import GENERATED, learns_from_samples, library_readings, settings_of
from oomdoc.intake.configs.table import Reading, Table, View, norm
from oomdoc.intake.configs.values import flag, number, whole
from oomdoc.intake.configs.wordlist import listed
from oomkb.dataclass import dataclass
from oomkb.frameworks import LAUNCHERS, PLAIN

_SIZES: Final = {size: tuple(names.split()) for size, names in listed("size").items()}
_WITHIN: Final = ("", "model.", "model.model_config.")
_NEEDED: Final = ("num_hidden_layers", "hidden_size", "num_attention_heads")


def _vocabulary(view: View) -> int:
    kind = str(view.value("tokenizer_type", "model.tokenizer.type", "model.tokenizer.library") or "").lower()
    return next((n for word, n in listed("vocabulary").items() if word in kind), 50_304)


def described_model(view: View) -> Reading | None:
    """The model that sizes describe: (``model_config``, configuration, the entry of the hidden size)."""

    def entry(*names: str) -> Entry | None:
        return next((view[key] for name in names for key in (w + name for w in _WITHIN) if key in view), None)

    def said(*names: str) -> bool | None:
        found = entry(*names)
        return flag(found.value) if found is not None else None

    if any(entry(*_SIZES[size]) is None for size in _NEEDED):
        return None
    config: dict[str, Any] = {"model_type": "llama"}
    for size, names in _SIZES.items():
        found = entry(*names)
        value = whole(found.value) if found is not None and found.resolved else None
        if value is not None and value > 0:
            config[size] = value
    width = entry(*_SIZES["hidden_size"])
    if not config.keys() >= set(_NEEDED) or width is None:
        return None
    activation = entry("activation", "activation_type", "hidden_act")
    kind = str(activation.value if activation is not None else "").lower()
    gated = bool(said("swiglu")) or "glu" in kind or kind == "silu"
    multiple = entry("mlp_multiple_of")
    if gated and multiple is not None and (step := whole(multiple.value)) and "intermediate_size" in config:
        third = -(-config["intermediate_size"] // 3)  # GPT-NeoX states the three matrices' width together
        config["intermediate_size"] = -(-third // step) * step
    config.setdefault("vocab_size", _vocabulary(view))
    config.setdefault("intermediate_size", config["hidden_size"] * 4)
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    tied = said("tie_word_embeddings", "weight_tying")
    untied = said("untie_embeddings_and_output_weights", "no_weight_tying")
    config["tie_word_embeddings"] = tied if tied is not None else not untied
    config |= view.table.described if view.table is not None else {}
    for name in ("hidden_dropout", "attention_dropout"):
        stated = entry(name)
        if stated is not None and (share := number(stated.value)) is not None:
            config[name] = share
    if not gated and "num_local_experts" not in config:
        parallel = bool(said("gpt_j_residual"))
        config |= {"model_type": "gpt_neox", "hidden_act": "gelu", "use_parallel_residual": parallel}
    elif "num_local_experts" in config:
        config["model_type"] = "mixtral"
        config.setdefault("num_experts_per_tok", 2)
    return "model_config", config, width


FILE_FORMS: Final = frozenset({"yaml", "json", "toml"})
"""Forms in which every key stands in a section; a command or a program has keys of others too."""
SURE: Final = 0.9
"""From which probability of its framework a piece is taken to have that framework's keys and no others."""
PROGRAM_CHARS: Final = 8_000
"""Characters of what a piece runs that are looked at."""
_MIN_KEY_CHARS: Final = 8
"""Characters of a key that means the same in whatever section it stands."""


_KEY_CLEAN: Final = re.compile(r"\[[0-9]*\]|^\+{1,2}|^~")


@dataclass(slots=True)
class Doc:
    """One piece of configuration, its framework's table, and what it says."""

    table: Table | None
    form: str
    start: int
    end: int
    entries: list[Entry]
    env: list[Entry] = field(default_factory=list)
    programs: str = ""
    whole_file: bool = False
    notes: list[tuple[str, int]] = field(default_factory=list)
    fenced: bool = False
    array: str = ""
    uses: frozenset[str] = frozenset()
    """Of a shell command: see :class:`~oomdoc.intake.configs.entry.Fragment`."""
    marks: tuple[bool, int] = (False, 0)
    """Whether a program, and how many keys, spoke for the table's framework alone."""
    probability: float = 1.0
    """How sure the table is the right one; below a half there is none (``unknown``)."""
    unknown_keys: float = 0.0
    """Share of the keys that the table (or the one that came nearest) does not know."""
    unknown: bool = False
    """Whether this configures a run of a framework that is not known."""
    own: list[Entry] = field(default_factory=list)
    """Of a program: see :class:`~oomdoc.intake.configs.entry.Fragment`."""
    program: bool = False
    """Whether it is a program of which nothing is known but its own settings."""

    @property
    def guessed(self) -> bool:
        """Whether keys count that mean the same everywhere: no table is known, or nothing speaks for it."""
        plain = self.table is not None and self.table.name == PLAIN and self.marks == (False, 0)
        return self.table is None or (plain and self.form == "shell")

    @property
    def settings(self) -> list[Entry]:
        """The settings that say what is run: all, or those that a program keeps in one place."""
        return self.own if self.program else self.entries

    def open_to_guesses(self) -> list[Entry]:
        """The settings that may mean what they mean everywhere: all, or those that a table that is not sure lacks."""
        if self.program:
            return settings_of(self.own, self.entries, self.programs)
        if self.guessed or self.table is None:
            return self.entries
        if self.probability >= SURE or self.form not in FILE_FORMS:
            return []
        table = self.table
        return [e for e in self.entries if not any(map(table.knows, (norm(e.key), norm(e.key).rpartition(".")[2])))]

    _viewed: tuple[Table | None, list[Entry], View] | None = None
    """The last view, and what it was made of."""
    _understood: tuple[View, list[Reading]] | None = None
    """Its readings."""

    def view(self) -> View:
        """The settings by key, under the names the table may know them by."""
        last = self._viewed
        if last is None or last[0] is not self.table or last[1] is not self.entries:
            last = self._viewed = self.table, self.entries, self._view()
        return last[2]

    def _view(self) -> View:
        # A key that counts by its last part yields to one that stands there whole.
        entries = [*self.entries, *self.own] if self.program else self.entries
        shown = sorted(
            zip(entries, known_as(entries, self.table), strict=True),
            key=lambda pair: not ("." in pair[0].key and "." not in pair[1].key),
        )
        ignored = self.table.record.ignores if self.table is not None else frozenset()
        kept = [s for _, s in shown if not ignored or ignored.isdisjoint((s.key, s.scope.split(".")[0]))]
        return View(kept, form=self.form, table=self.table, programs=self.programs)

    def readings(self) -> list[Reading]:
        """(field, value, entry) of everything the table understands; a key's own row before a base's."""
        if self.table is None and not self.unknown:
            return []
        view = self.view()
        if self._understood is None or self._understood[0] is not view:
            self._understood = view, self._readings(view)
        return self._understood[1]

    def _readings(self, view: View) -> list[Reading]:
        out: list[Reading] = []
        seen: set[str] = set()
        for level in self.table.levels() if self.table is not None else ():
            _read_level(level, view, out, seen)
        if entries := self.open_to_guesses():
            seen |= {"model"} if self.table is not None else set()  # of which there are hints
            seen |= GENERATED if self.program and not learns_from_samples(self.own, self.programs) else set()
            out += [reading for reading in guessed(entries, trained=self.program) if reading[0] not in seen]
            seen.update(name for name, _, _ in out)
        if self.table is None and self.form == "shell" and "micro_batch" not in seen:
            out += batch_of_each(self.entries, self.env, self.programs, seen)
        if self.program:
            out += [reading for reading in library_readings(self.entries) if reading[0] not in seen]
        if "model" not in seen:
            described = described_model(View(entries) if self.program else view)
            if described is not None:
                out.append(described)
        return out


def believed(doc: Doc) -> int:
    """Which document is believed first: a known framework's run, an unknown's, a launcher's file, scattered keys."""
    if doc.form == "ini":
        return 3
    if doc.unknown:
        return 1 if doc.whole_file else 2
    return 2 if doc.table is not None and doc.table.name in LAUNCHERS else 0


def _of_name(field_name: str, value: object) -> bool:
    """Whether a path through an unknown variable says a field by its last part: a model's name, ``zero2.json``."""
    named = isinstance(value, str) and "$" not in value.rsplit("/", 1)[-1] and "/" in value
    return field_name == "model" or (field_name in ("sharding", "offload") and named)


def _read_level(level: Table, view: View, out: list[Reading], seen: set[str]) -> None:
    """What a table's own rows say.

    Fields that are settled already are left out, and what another table makes of a key that a nearer one has read:
    ``bf16`` is autocast in transformers, and the parameters' dtype in Megatron, whose keys LLaMA-Factory takes too.
    """
    found: list[Reading] = []
    read = {id(entry) for _, _, entry in out}
    for key in level.keys_in(view):
        if any(name == key.field for name, _, _ in found):
            continue
        for name in key.names:
            entry = view.get(norm(name))
            if entry is None or not (entry.resolved or (key.field == "model" and view.form != "python")):
                continue
            value = key.codec.read(entry.value)
            if value is not None:
                found.append((key.field, value, entry))
                break
    for group in level.groups:
        for field_name, value, entry in group.read(view):
            taken = any(n == field_name for n, _, _ in found)
            named = view.form != "python" and _of_name(field_name, entry.value)
            if value is not None and not taken and (entry.resolved or named):
                found.append((field_name, value, entry))
    new = [r for r in found if r[0] not in seen and id(r[2]) not in read]
    out += new
    seen.update(r[0] for r in new)


def clean_key(key: str) -> str:
    """A key without positions in lists and the marks of Hydra's overrides."""
    return norm(_KEY_CLEAN.sub("", key) if "[" in key or key[:1] in ("+", "~") else key)


def known_as(entries: Iterable[Entry], owner: Table | None, *, whole: bool = True) -> Iterator[Entry]:
    """Entries under the keys the table lists: without leading path parts it lets one leave out.

    :param whole: whether these are all of a piece, whose sections may be told by what else stands in them.
    """
    if owner is None:
        yield from entries
        return
    names = owner.understood
    entries = list(entries)
    homes = _homes(entries, owner) if whole else frozenset()
    for entry in entries:
        key = clean_key(entry.key)
        if entry.style not in ("kwarg", "call"):
            path = key.partition(".")[2] if entry.style == "attribute" else ""
            if "." in path and path in owner.names:  # ``cfg.train.micro_batch_size = 4``, whatever holds it
                key = path
            key = _named_in(key, owner, names, pair=entry.style == "pair")
            home, _, last = key.rpartition(".")
            key = last if home in homes and key not in names and last in names else key
            key = _in_full(key, owner, names) if entry.style in ("flag", "flag=", "bare") else key
        yield entry if key == entry.key else replace(entry, key=key)


_MIN_OF_HOME: Final = 4


def _homes(entries: Iterable[Entry], owner: Table) -> frozenset[str]:
    """Sections that hold so many of the table's long keys that its short ones mean there what they mean at the top."""
    if owner.exact:
        return frozenset()
    paths = (clean_key(e.key).rpartition(".") for e in entries if e.style == "pair" and "." in e.key)
    count = Counter(
        home for home, _, last in paths if "_" in last and len(last) >= _MIN_KEY_CHARS and owner.knows(last)
    )
    return frozenset(home for home, n in count.items() if n >= _MIN_OF_HOME and not of_other_role(f"{home}."))


def _named_in(key: str, owner: Table, names: frozenset[str], *, pair: bool) -> str:
    """A key as the table lists it; a key of its own counts before one that is merely known."""
    if key in owner.names:
        return key
    for prefix in owner.record.prefixes:
        if key.startswith(prefix) and owner.knows(key[len(prefix) :]):
            return key[len(prefix) :]
    if key in names or "." not in key or owner.exact:
        return key
    last = key.rsplit(".", 1)[-1]
    if (
        last in names
        and not of_other_role(key)
        and (owner.record.by_last_part or ("_" in last and len(last) >= _MIN_KEY_CHARS and pair))
    ):
        return last
    return key


def _in_full(key: str, owner: Table, names: frozenset[str]) -> str:
    """An option that was cut short, as argparse takes it: the only known one that begins so.

    Behind a whole word only of an engine, whose options are all known: a script may have that one beside.
    """
    if key in names or len(key) < _MIN_KEY_CHARS or "_" not in key or "." in key:
        return key
    longer = {name for name in owner.in_full if name.startswith(key)}
    if owner.record.kind != "serving":
        longer = {name for name in longer if name[len(key)] != "_"}
    return longer.pop() if len(longer) == 1 else key


def keys_of(entries: Iterable[Entry]) -> Iterator[str]:
    """The keys in effect, nested ones both whole and by their last part."""
    for entry in entries:
        if entry.off or entry.style == "call":
            continue
        key = clean_key(entry.key)
        yield key
        if "." in key:
            yield key.rsplit(".", 1)[-1]
