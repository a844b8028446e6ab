"""Configuration inside YAML: argument lists, environment blocks and commands of compose files, Kubernetes and CI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from oomdoc.intake.configs.entry import Entry, Fragment
from oomdoc.intake.configs.forms.flags import entries_of_words, parse_shell
from oomdoc.intake.configs.forms.words import Variable, Word
from oomdoc.intake.configs.forms.yaml import Block
from oomdoc.intake.configs.values import as_scalar
from oomkb.kept import compiled

_COMMAND_KEYS: Final = frozenset(
    {"command", "args", "entrypoint", "run", "script", "cmd", "commands", "setup", "extraArgs"}
)
_IMAGES: Final = ("image", "repository")
_ENV_PATH: Final = compiled(r"\.(?:environment|envs?)\.")
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "ash", "dash"})
_DEFAULT: Final = compiled(r"\$\{[A-Za-z_]\w{0,60}:?-(?P<value>[^${}\"'\s]{1,200})\}")
_WHOLE_COMMAND: Final = compiled(r"\S\s{1,200}--[A-Za-z]")
_OPTION: Final = compiled(r"--[A-Za-z][\w.-]{2,80}(?:=|\Z)")
"""A list that begins with an option is one of arguments, whatever it is called."""
_ONE_COMMAND: Final = compiled(r"\s*[^\s#-][^\n]*(?<!\\)(?:\n\s*-{1,2}[A-Za-z][^\n]*(?<!\\))+\s*")
"""A text of lines each of which goes on with options, without a backslash: the program that takes it joins them."""
_ENV_KEYS: Final = frozenset({"environment", "env", "envs"})
_ARGUMENTS: Final = compiled(r"[A-Z]+_ADDITIONAL_ARGS\Z")
"""A variable whose text is added to an engine's command (KServe's ``VLLM_ADDITIONAL_ARGS``)."""
_SERVED: Final = {
    "spec.model.name": "model",
    "spec.parallelism.tensor": "tensor_parallel_size",
    "spec.parallelism.pipeline": "pipeline_parallel_size",
    "spec.parallelism.data": "data_parallel_size",
}
"""Of KServe's ``LLMInferenceService``: what its engine serves, and over how many cards."""
_PARAMETER: Final = compiled(
    r"^[ \t]*(?:PARAMETER[ \t]+(?P<key>\w{1,40})|(?P<from>FROM))[ \t]+(?P<value>\S{1,200})", re.M | re.I
)


def embedded(text: str, entries: list[Entry], blocks: list[Block]) -> list[Fragment]:
    """The commands and environment variables written inside a YAML document."""
    out: list[Fragment] = []
    env: list[Entry] = []
    image = next((str(e.value) for e in entries if e.key.rsplit(".", 1)[-1] in _IMAGES and e.value), "")
    known = _variables(text, entries)
    for entry in entries:
        last = entry.key.rsplit(".", 1)[-1]
        if isinstance(entry.value, list) and (last in _COMMAND_KEYS or _OPTION.match(str((entry.value or [""])[0]))):
            out += _argument_list(text, entry, image)
        elif last in _COMMAND_KEYS and isinstance(entry.value, str) and " " in entry.value:
            out += _command_text(text, *entry.value_span, image, known)
        elif last in _ENV_KEYS and entry.items:
            env += [e for item in entry.items if (e := _env_item(text, item)) is not None]
        elif entry.value is not None and last.isupper() and _ENV_PATH.search(f".{entry.key}"):
            env.append(_env(text, last, entry, entry.key_span))
    env += _name_value(text, entries)
    for block in blocks:
        if block.key.rsplit(".", 1)[-1].rstrip("[]") in _COMMAND_KEYS:
            folded = block.folded or _ONE_COMMAND.fullmatch(text, block.start, block.end) is not None
            out += _command_text(text, block.start, block.end, image, known, folded=folded)
    out += _additional(text, entries, blocks, image)
    if env:
        start = min(e.key_span[0] for e in env)
        stop = max(e.value_span[1] for e in env)
        out.append(Fragment(form="env", start=start, end=stop, entries=(), env=tuple(env), programs=(image,)))
    defaults = {f"{{{e.key.rpartition('.')[2]}}}": e for e in entries if e.key.startswith("defaults.")}
    return [replace(f, entries=tuple(_filled(text, f.entries, defaults))) for f in out if f.entries or f.env]


def _filled(text: str, entries: Iterable[Entry], defaults: Mapping[str, Entry]) -> Iterator[Entry]:
    """Values that a command leaves open (``--port {port}``), as the file's own ``defaults:`` have them."""
    for entry in entries:
        known = defaults.get(text[slice(*entry.value_span)])
        yield entry if known is None else entry.written_at(known)


def _argument_list(text: str, entry: Entry, image: str) -> list[Fragment]:
    words: list[Word] = []
    if entry.items:
        for item in entry.items:
            words.append(_word(text, *_inside(item)))
    else:
        words = _flow_words(text, *entry.value_span)
    lines = [w for w in words if _WHOLE_COMMAND.search(w.text)]
    if lines:  # ["sh", "-c", "vllm serve ... --max-model-len 4096"]
        return [f for w in lines for f in _command_text(text, *w.value_span, image)]
    if words and words[0].text.rsplit("/", 1)[-1] in _SHELLS:
        return []  # the line it runs stands elsewhere
    return [arguments(text, words, image)]


def arguments(text: str, words: list[Word], image: str) -> Fragment:
    """A command that is a list of words."""
    found, env, programs = entries_of_words(text, words)
    low, high = (words[0].start, words[-1].end) if words else (0, 0)
    return Fragment(form="yaml", start=low, end=high, entries=tuple(found), programs=(image, *programs), env=tuple(env))


def _word(text: str, low: int, high: int) -> Word:
    """A word; of ``${LENGTH:-4096}`` the value that holds where the variable is not set."""
    default = _DEFAULT.fullmatch(text, low, high)
    span = default.span("value") if default is not None else (low, high)
    return Word(text[slice(*span)], low, high, value_span=span, shared=default is not None)


def _flow_words(text: str, low: int, high: int) -> list[Word]:
    """The strings of a ``["--a", "b"]``."""
    import yaml

    words: list[Word] = []
    with suppress(yaml.YAMLError):
        for token in yaml.scan(text[low:high], yaml.SafeLoader):
            if isinstance(token, yaml.ScalarToken):
                quote = 1 if token.style else 0
                words.append(_word(text, low + token.start_mark.index + quote, low + token.end_mark.index - quote))
    return words


def _command_text(
    text: str,
    low: int,
    high: int,
    image: str,
    known: Mapping[str, Variable] | None = None,
    *,
    folded: bool = True,
) -> list[Fragment]:
    if text[low : low + 1] in "\"'" and text[high - 1 : high] == text[low]:
        low, high = low + 1, high - 1
    out = parse_shell(text, low, high, known=known, folded=folded).fragments
    return [
        Fragment(form="shell", start=f.start, end=f.end, entries=f.entries, programs=(*f.programs, image), env=f.env)
        for f in out
    ]


def _variables(text: str, entries: Iterable[Entry]) -> dict[str, Variable]:
    """What ``envs:`` of a SkyPilot job sets for its scripts, and ``env:`` of a dstack task."""
    out: dict[str, Variable] = {}
    for entry in entries:
        section, _, name = entry.key.partition(".")
        for item in entry.items if entry.key == "env" else ():
            if (found := _env_item(text, item)) is not None:
                word = Word(str(found.value), *found.value_span, quote=found.quote, value_span=found.value_span)
                out[found.key] = Variable(found.key, word, found.key_span, exported=True)
        if section == "envs" and isinstance(entry.value, str | int | float) and name.isidentifier():
            span = _inside(entry)
            word = Word(str(entry.value), *span, quote=entry.quote, value_span=span)
            out[name] = Variable(name, word, entry.key_span, exported=True)
    return out


def _additional(text: str, entries: list[Entry], blocks: list[Block], image: str) -> list[Fragment]:
    """Arguments that a variable adds to an engine's command."""
    names = [e for e in entries if e.key.endswith("env[].name") and _ARGUMENTS.match(str(e.value))]
    served = [replace(e, key=_SERVED[e.key], style="flag") for e in entries if e.key in _SERVED and e.value is not None]
    spans = [e.value_span for e in entries if e.value is not None and e.key.endswith("env[].value")]
    spans += [(block.start, block.end) for block in blocks if block.key.endswith("env[].value")]
    out: list[Fragment] = []
    for name in names:
        low, high = min((span for span in spans if span[0] > name.value_span[1]), default=(0, 0))
        engine = str(name.value).partition("_")[0].lower()
        made = _command_text(text, low, high, f"{image} {engine}")
        if made:
            made[0] = replace(made[0], entries=(*served, *made[0].entries))
        out += made
    return out


def modelfile(text: str, start: int, end: int) -> Fragment:
    """``FROM`` and ``PARAMETER`` lines of an Ollama Modelfile."""
    entries = tuple(
        Entry(
            key="from" if match["from"] else f"parameter.{match['key']}",
            value=as_scalar(match["value"]),
            key_span=match.span("from" if match["from"] else "key"),
            value_span=match.span("value"),
            style="pair",
        )
        for match in _PARAMETER.finditer(text, start, end)
        if not (match["from"] and "mmproj" in match["value"])  # a vision projector beside the model
    )
    return Fragment(form="yaml", start=start, end=end, entries=entries, programs=("modelfile",))


def _env_item(text: str, item: Entry) -> Entry | None:
    name, sign, _ = str(item.value).partition("=")
    if not sign or not name.replace("_", "").isalnum():
        return None
    low, high = _inside(item)
    return _variable(name, _word(text, low + len(name) + 1, high), (low, low + len(name)))


def _inside(entry: Entry) -> tuple[int, int]:
    """Where its value stands, without quotes."""
    low, high = entry.value_span
    return (low + 1, high - 1) if entry.quote else (low, high)


def _env(text: str, name: str, entry: Entry, key_span: tuple[int, int]) -> Entry:
    return _variable(name, _word(text, *_inside(entry)), key_span, entry.quote)


def _variable(name: str, word: Word, key_span: tuple[int, int], quote: str = "") -> Entry:
    return Entry(
        key=name,
        value=word.text,
        key_span=key_span,
        value_span=word.value_span,
        style="env",
        quote=quote,
        shared=word.shared,
    )


def _name_value(text: str, entries: Iterable[Entry]) -> list[Entry]:
    """Kubernetes' ``- name: X`` / ``value: Y``."""
    out: list[Entry] = []
    name: Entry | None = None
    for entry in entries:
        if entry.key.endswith("env[].name"):
            name = entry
        elif entry.key.endswith("env[].value") and name is not None:
            out.append(_env(text, str(name.value), entry, name.value_span))
            name = None
    return out
