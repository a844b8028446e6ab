"""A setting as it stands in a text: its key, its value, and where both are, to the character."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Literal

from oomdoc.intake.configs.forms.words import Word
from oomdoc.intake.configs.values import as_scalar
from oomkb.dataclass import dataclass

Style = Literal["pair", "flag", "flag=", "bare", "override", "kwarg", "assign", "attribute", "env", "item", "call"]
Form = Literal["yaml", "json", "toml", "shell", "python", "env", "ini"]
SpanPair = tuple[int, int]


class FormError(ValueError):
    """Text that is not in the form it was tried as, or is nested or large beyond reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One setting. Offsets are characters from the start of the whole text.

    ``value`` is a Python value (text where it is no number, flag or list); ``value_span`` is where it is written,
    which may be elsewhere (a variable's assignment). A bare flag has an empty ``value_span`` after its key.
    """

    key: str
    value: Any
    key_span: SpanPair
    value_span: SpanPair
    style: Style
    scope: str = ""
    """The call, command or block the setting is in: ``SFTConfig``, ``torchrun``."""
    quote: str = ""
    items: tuple[Entry, ...] = ()
    """The words or lines of a list, where the setting is written as one."""
    shared: bool = False
    """Whether the value stands in a variable's definition rather than at the setting itself."""
    off: bool = False
    """Whether something keeps the setting from being in effect (see ``off_reason``)."""
    off_reason: str = ""
    resolved: bool = True
    """False where the value is an expression nobody can know from the text."""

    def written_at(self, other: Entry | Word) -> Entry:
        """This setting with a value that stands elsewhere: in a variable, or under another key."""
        value = other.value if isinstance(other, Entry) else as_scalar(other.text)
        return replace(self, value=value, value_span=other.value_span, quote=other.quote, shared=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A piece of the text in one form, with the settings found in it."""

    form: Form
    start: int
    end: int
    entries: tuple[Entry, ...]
    programs: tuple[str, ...] = ()
    """Shell: what the commands run (``torchrun``, ``swift sft``). Python: imports and calls."""
    env: tuple[Entry, ...] = ()
    """Environment variables set here."""
    whole_file: bool = False
    array: str = ""
    """Shell: the array or the variable that the words stand in; with ``+`` where they are added to it."""
    uses: frozenset[str] = frozenset()
    """Shell: the arrays and variables of words that the command takes in whole (``"${ARGS[@]}"``, ``$OPTIONS``)."""
    own: tuple[Entry, ...] = ()
    """Python: the settings that the program keeps in one place (see ``forms/own.py``)."""
    notes: tuple[tuple[str, int], ...] = field(default=())
    """Things noticed while parsing: (name, offset)."""
