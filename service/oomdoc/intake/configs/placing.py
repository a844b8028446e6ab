"""One key, one value, one document: the edit in the document's own form."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from typing import Any, Final

from oomdoc.intake.configs.analysis import Doc, known_as
from oomdoc.intake.configs.declared import table
from oomdoc.intake.configs.document import FILE_FORMS
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.forms.python import LOGGED
from oomdoc.intake.configs.table import DROP, OTHER_LOADS, Raw, norm
from oomdoc.intake.configs.wordlist import listed
from oomdoc.intake.configs.writers import json, python, shell, yaml
from oomdoc.intake.configs.writers.lines import line_end, newline_at, with_line, without_member
from oomdoc.intake.configs.writers.spelling import json_text
from oomkb.frameworks import LAUNCHERS, PLAIN, has

_NEAR: Final = tuple(tuple(line.split()) for line in listed("set")["near"].splitlines())
"""Fields that stand together: beside those of its line, a new one is written."""
_CALLS: Final[tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]] = (
    (re.compile(r"^bnb_|load_in"), ("BitsAndBytesConfig", "from_pretrained", "ModelConfig")),
    (re.compile(r"attn_impl|dtype|quantization_config|device_map"), ("from_pretrained", "ModelConfig")),
    (re.compile(r"^(?:lora_|target_modules|r$|use_dora)"), ("LoraConfig", "get_peft_model", "ModelConfig")),
    (re.compile(r"pixels"), ()),
    (re.compile(r"use_gradient_checkpointing"), ("get_peft_model", "from_pretrained")),
    (
        re.compile(r"gpu_memory_utilization|max_model_len|max_num|enforce_eager|kv_cache|tensor_parallel|mem_fraction"),
        ("LLM", "AsyncEngineArgs", "EngineArgs", "Engine", "from_pretrained"),
    ),
)
_DEFAULT_CALLS: Final = (
    *"SFTConfig DPOConfig GRPOConfig KTOConfig ORPOConfig CPOConfig RewardConfig PPOConfig".split(),  # noqa: SIM905
    *("TrainingArguments", "Seq2SeqTrainingArguments"),
)
"""Calls that take a trainer's arguments; what loads a model, or serves it, takes none of them."""
_PLAIN_CALLS: Final = frozenset(("TrainingArguments", "Seq2SeqTrainingArguments"))
"""Those of transformers itself, which take none of the keys that a framework built on it has beside."""


def _anchor(doc: Doc, key: str) -> Entry | None:
    """A setting beside which a new key belongs."""
    field = _field_of(doc, key)
    readings = {name: entry for name, _, entry in doc.readings()}
    for family in _NEAR:
        if field in family:
            for name in family:
                entry = readings.get(name)
                if entry is not None and not entry.key.startswith("@") and entry.style != "call":
                    return _as_written(doc, entry)
    return None


def _as_written(doc: Doc, entry: Entry) -> Entry | None:
    """The document's own entry of a reading (keys are shortened for the table)."""
    return next((e for e in doc.entries if e.key_span == entry.key_span), None)


def _field_of(doc: Doc, key: str) -> str:
    if doc.table is None:
        return ""
    wanted = norm(key)
    for row in doc.table.all_keys():
        if any(norm(n) == wanted for n in row.names):
            return row.field
    for group in doc.table.all_groups():
        if any(norm(n) == wanted for n in group.names) and group.fields:
            return group.fields[0]
    return ""


def apply_write(text: str, doc: Doc, key: str, value: Any) -> str | None:
    """The text with a key set to a value, added or (``DROP``) taken out; ``None`` where there is no place for it."""
    found = doc.view().get(norm(key))
    if found is not None and not found.off:
        done = _remove(text, doc, found) if value is DROP else _replace(text, doc, found, value)
    elif value is DROP:
        return text
    else:
        done = _insert(text, doc, key, value)
    return _imported(done, value.needs) if done is not None and isinstance(value, Raw) and value.needs else done


def _imported(text: str, line: str) -> str:
    """The script with an import line, where the name is not imported yet."""
    name = line.rsplit(" ", 1)[-1]
    if re.search(rf"^[ \t]*(?:from|import)\b[^\n]*\b{re.escape(name)}\b", text, re.M) or re.search(
        rf"^[ \t]+{re.escape(name)},?[ \t]*$", text, re.M
    ):
        return text
    used = text.find(f"{name}(")
    imports = list(
        re.finditer(r"^(?:from|import) [^\n]*[^\n(\\,]\r?\n", text[: used if used >= 0 else len(text)], re.M)
    )
    at = imports[-1].end() if imports else 0
    return text[:at] + line + newline_at(text, at - 1 if at else 0) + text[at:]


def _form_of(doc: Doc, entry: Entry) -> str:
    """The writer for an entry: a YAML document may hold commands, a script dictionaries."""
    if entry.style in ("flag", "flag=", "bare", "override"):
        return "shell"
    if entry.style == "pair" and doc.form == "python":
        return "dict"
    return doc.form


def _replace(text: str, doc: Doc, entry: Entry, value: Any) -> str | None:
    form = _form_of(doc, entry)
    written = _as_written(doc, entry) or entry
    logged = entry.scope == LOGGED and not entry.shared
    if doc.form == "python" and (not entry.resolved or logged or _in_several_classes(text, doc, entry)):
        return None  # what the program hands in there is its own
    if doc.form == "python" and form == "shell":
        return python.replace_word(text, entry, value)
    bare = doc.table is not None and doc.table.record.bare_flags
    if form == "shell" and entry.style == "bare" and value is False and bare:
        return _remove(text, doc, entry)
    if form == "shell" or (entry.key.startswith("@") and doc.form == "shell"):
        return shell.replace(text, entry, value, doc.entries)
    if form in ("json", "toml"):
        return json.replace(text, entry, value)
    if form in ("python", "dict"):
        if isinstance(value, str) and "," in value and "," not in str(entry.value):
            # Code takes a list where a command takes commas; in a class, one list would be every instance's.
            return None if entry.style == "assign" else python.replace(text, entry, value.split(","))
        return python.replace(text, entry, value)
    if form in ("yaml", "env", "ini"):
        return yaml.replace(text, written, value)
    return None


def _in_several_classes(text: str, doc: Doc, entry: Entry) -> bool:
    """Whether a field of a class stands in another class too: whose is meant, nobody says."""
    alike = (e for e in doc.entries if e.style == entry.style == "assign" and e.key == entry.key)
    lines = [text[text.rfind("\n", 0, e.key_span[0]) + 1 : e.key_span[0]] for e in alike]
    return len(lines) > 1 and all(line and line.isspace() for line in lines)


def _remove(text: str, doc: Doc, entry: Entry) -> str | None:
    form = _form_of(doc, entry)
    written = _as_written(doc, entry) or entry
    if form == "shell" and doc.form == "python":
        return python.replace_word(text, entry, False) if entry.value is True else None
    if form == "shell":
        return _remove_item(text, entry) if doc.form == "yaml" else shell.remove(text, entry)
    if form == "json":
        return without_member(text, entry.key_span[0], entry.value_span[1])
    if form == "python":
        return python.remove(text, entry)
    if form in ("yaml", "toml"):
        return yaml.remove(text, written)
    return None


def _remove_item(text: str, entry: Entry) -> str:
    """A flag of a YAML list of arguments: its lines, or its strings within brackets."""
    low = text.rfind("\n", 0, entry.key_span[0]) + 1
    if text[low : entry.key_span[0]].strip("- \t\"'") == "":
        return text[:low] + text[line_end(text, max(entry.key_span[1], entry.value_span[1])) :]
    start, end = entry.key_span[0], max(entry.key_span[1], entry.value_span[1])
    while start > low and text[start - 1] in "-\"'":
        start -= 1
    end += text[end : end + 1] in ("'", '"')
    if text[start : start + 1] not in ("'", '"'):
        return shell.remove(text, entry)
    return without_member(text, start, end)


def _insert(text: str, doc: Doc, key: str, value: Any) -> str | None:
    anchor = _anchor(doc, key)
    flags = [e for e in doc.entries if e.style in ("flag", "flag=", "bare", "override")]
    if doc.form == "shell" or (
        doc.form == "yaml" and flags and len(flags) == len([e for e in doc.entries if e.key[:1] != "@"])
    ):
        return None if _stands_elsewhere(text, doc, key) else _insert_flag(text, doc, key, value, anchor)
    if doc.form in FILE_FORMS:
        prefixed = _prefixed(doc, key)
        placed = _beside_its_like(doc, prefixed) if prefixed is not None else None
        if placed is None:
            return None
        key = _spelled_alike(doc, placed)
    if doc.form == "yaml":
        return yaml.insert(text, doc.entries, key, value, anchor)
    if doc.form == "json":
        return json.insert(text, doc.entries, key, value, anchor, doc.start, doc.end)
    if doc.form == "toml":
        return _insert_toml(text, doc, key, value, anchor)
    if doc.form == "python":
        return _insert_keyword(text, doc, key, value, anchor)
    return None


def _stands_elsewhere(text: str, doc: Doc, key: str) -> bool:
    """Whether the script gives the flag in a place that is not read (``ARGS+=(--deepspeed $DS)`` in a branch,
    ``${LEN:+--max-model-len $LEN}``): written a second time, one of the two would be without effect.
    """
    if doc.form != "shell" or not key.replace("-", "").replace("_", "").isalnum():
        return False
    if any(entry.style in ("flag", "flag=") and norm(entry.key) == norm(key) for entry in doc.entries):
        return True
    spelt = re.sub("[-_]", "[-_]", key)
    return re.search(rf"^(?![ \t]*#).*?(?<![\w-])--{spelt}(?![\w-])", text, re.MULTILINE) is not None


def _beside_its_like(doc: Doc, key: str) -> str | None:
    """A plain key under the section in which all of the table's plain keys stand; ``None`` where they stand in several.

    A key at the top of a file whose arguments are in a section would reach nothing.
    """
    if doc.table is None or "." in key or ":" in key:
        return key
    names = doc.table.names
    homes: Counter[str] = Counter()
    plain = sections = 0
    for entry, shown in zip(doc.entries, known_as(doc.entries, doc.table, whole=False), strict=True):
        if norm(shown.key) in names and entry.style == "pair":
            sections += "." in shown.key
            plain += "." not in shown.key
            homes.update([entry.key.rpartition(".")[0]] if "." not in shown.key else [])
    if (sections > plain and norm(key) not in doc.table.own_names) or (sections and not homes):
        return None
    if not homes or homes[""] > homes.total() // 2:
        return key
    return f"{next(iter(homes))}.{key}" if len(homes) == 1 and "" not in homes else None


def _spelled_alike(doc: Doc, key: str) -> str:
    """A key with dashes or underscores, as the document has them."""
    keys = [e.key for e in doc.entries if e.style in ("flag", "flag=", "bare", "pair")]
    dashed, scored = sum("-" in k for k in keys), sum("_" in k for k in keys)
    dashes = dashed > scored if dashed != scored else bool(doc.table and doc.table.record.dashes)
    return key.replace("_", "-") if dashes else key.replace("-", "_")


_ROLES: Final = ("actor", "rollout", "ref", "model")


def _prefixed(doc: Doc, key: str) -> str | None:
    """The key with the leading path the document uses for its like; ``None`` where it has no such section."""
    if doc.table is None:
        return key
    head = key.split(".", maxsplit=1)[0]
    for prefix in doc.table.record.prefixes:
        if any(norm(e.key).startswith(f"{prefix}{head}.") for e in doc.entries) or (
            head in _ROLES and any(norm(e.key).startswith(prefix) for e in doc.entries)
        ):
            return prefix + key
    of_section = head not in _ROLES or head == key or any(norm(e.key).startswith(f"{head}.") for e in doc.entries)
    return key if of_section else None


def _insert_flag(text: str, doc: Doc, key: str, value: Any, anchor: Entry | None) -> str | None:
    prefixed = _prefixed(doc, key)
    if prefixed is None:
        return None
    key, table = prefixed, doc.table
    flags = [e for e in doc.entries if e.style in ("flag", "flag=", "bare")]
    if "." not in key:
        key = _spelled_alike(doc, key)
    spelled = any(isinstance(e.value, bool) and e.style != "bare" for e in flags)
    bare = table is not None and table.record.bare_flags and not spelled
    if doc.form == "yaml":
        return shell.insert_item(text, doc.entries, key, value, anchor, bare=bare)
    return shell.insert(text, _same_command(text, doc, anchor), key, value, anchor, bare=bare)


def _command_starts(text: str) -> list[int]:
    """Where commands begin: with each line, but for those that a backslash ties to the line before."""
    starts, at, tied = [], 0, False
    for line in text.split("\n"):
        if not tied:
            starts.append(at)
        tied = line.rstrip("\r").endswith("\\")
        at += len(line) + 1
    return starts


def _of_one_command(text: str, doc: Doc, anchor: Entry | None) -> list[Entry]:
    """The settings of the anchor's command, else of that in which the table knows most."""
    if doc.table is None or doc.array:
        return doc.entries
    starts = _command_starts(text)
    commands = [bisect_right(starts, entry.key_span[0]) for entry in doc.entries]
    if anchor is not None:
        own = bisect_right(starts, anchor.key_span[0])
    else:
        known = Counter(n for n, e in zip(commands, doc.entries, strict=True) if doc.table.knows(norm(e.key)))
        own = max(known, key=known.__getitem__, default=0)
    return [e for n, e in zip(commands, doc.entries, strict=True) if n == own] or doc.entries


def _same_command(text: str, doc: Doc, anchor: Entry | None) -> list[Entry]:
    """The settings of the command that a new flag joins: not those of its launcher."""
    entries = _of_one_command(text, doc, anchor)
    launchers = (*LAUNCHERS, "torchrun", "docker", "srun", "mpirun", "ray")
    scope = anchor.scope if anchor is not None else None
    if doc.table is not None and doc.table.name in LAUNCHERS:
        scope = doc.table.name  # behind the script, they would be the script's
    elif scope in launchers:
        scope = None  # before the script, it would be the launcher's
    own = (
        [e for e in entries if e.scope == scope]
        if scope is not None
        else [e for e in entries if e.scope not in launchers]
    )
    return own or entries


def _insert_toml(text: str, doc: Doc, key: str, value: Any, anchor: Entry | None) -> str | None:

    parent, _, name = key.rpartition(".")
    peers = [e for e in doc.entries if e.key.rpartition(".")[0] == parent]
    if not peers and doc.entries:
        peers = [anchor] if anchor is not None else [doc.entries[-1]]
    if not peers:
        return None
    near = anchor if anchor in peers and anchor is not None else peers[-1]
    return with_line(text, near.value_span[1], f"{name} = {json_text(value)}", near.key_span[0])


def _insert_keyword(text: str, doc: Doc, key: str, value: Any, anchor: Entry | None) -> str | None:
    scope, _, name = norm(key).rpartition(":")
    if not scope and doc.table is not None and has(doc.table.name, "file.assignments"):
        return None  # its calls take the names that stand there: a new one would reach nothing
    calls = [e for e in doc.entries if e.style == "call" and not OTHER_LOADS.search(e.scope)]
    usual = next((c for p, c in _CALLS if p.search(name)), _DEFAULT_CALLS)
    wanted = (scope,) if scope else usual
    for stem in wanted:
        if stem in _PLAIN_CALLS and not _is_plain_argument(name):
            continue
        for call in calls:
            if call.scope.rsplit(".", 1)[-1] == stem:
                if "**" in text[slice(*call.value_span)]:
                    return None  # what is handed in there may say it already
                if stem == "from_pretrained" and not any(
                    e.key in _BY_NAME and e.scope == call.scope for e in doc.entries
                ):
                    return None
                inside = [
                    e
                    for e in doc.entries
                    if e.style == "kwarg"
                    and e.scope == call.scope
                    and call.value_span[0] <= e.key_span[0] < call.value_span[1]
                ]
                if name == "quantization_config" and python.is_moved(text, *call.value_span):
                    return None  # which lines to take away is for the person to say
                return python.insert_argument(text, call, inside, name, value, anchor)
    return None


_BY_NAME: Final = frozenset(("@0", "model_name", "pretrained_model_name_or_path"))
"""How transformers and unsloth are given the model that they load; a class of one's own is called alike."""


def _is_plain_argument(name: str) -> bool:
    plain = table(PLAIN)
    return plain is not None and plain.may_add(name)
