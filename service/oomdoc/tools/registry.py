"""The functions by name, with the schemas of what they take and give, and a call that checks its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from oomdoc.stated import job_fields
from oomdoc.tools.functions import ALL, Progress
from oomkb.dataclass import dataclass
from oomkb.errors import InputError

_PROGRESS: Final = "progress"
_NAME_CHARS: Final = 80
_JOBS: Final = ("job", "base", "fields")
"""Arguments that hold job fields."""


@dataclass(frozen=True)
class Tool:
    """One function."""

    function: Callable[..., BaseModel]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.function.__name__

    @property
    def description(self) -> str:
        """What it does, for whoever chooses among them."""
        return inspect.getdoc(self.function) or ""

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """What it takes, as a model."""
        hints = get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {
            name: (hints[name], ... if p.default is inspect.Parameter.empty else p.default)
            for name, p in inspect.signature(self.function).parameters.items()
            if name != _PROGRESS
        }
        return create_model(f"{self.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of what it takes."""
        return self.arguments.model_json_schema()

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of what it gives."""
        form: type[BaseModel] = get_type_hints(self.function)["return"]
        return form.model_json_schema(by_alias=True)

    def call(self, arguments: Mapping[str, Any], progress: Progress | None = None) -> dict[str, Any]:
        """The answer as plain values.

        :raises InputError: for arguments that the function does not take; ``where`` names the first.
        :raises OomdocError: as the function.
        """
        try:
            taken = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))[:_NAME_CHARS] or self.name
            unknown = first["type"] == "extra_forbidden"
            said = f"{self.name} has no such argument" if unknown else first["msg"]
            hint = self._hint(where) if unknown else f"see the arguments of {self.name}"
            raise InputError(said, where=where, hint=hint) from error
        given = {name: getattr(taken, name) for name in type(taken).model_fields}
        if progress is not None:
            given[_PROGRESS] = progress
        return plain(self.function(**given))

    def _hint(self, unknown: str) -> str:
        """What was probably meant by an argument that is none."""
        names = list(self.arguments.model_fields)
        close = get_close_matches(unknown, names, n=1)
        if not close and unknown in job_fields():
            holder = next((name for name in _JOBS if name in names), "")
            if holder:
                return f'it is a field of a job: {{"{holder}": {{"{unknown}": ...}}}}'
        return f"perhaps {close[0]}" if close else f"one of {', '.join(names)}"


def plain(form: BaseModel) -> dict[str, Any]:
    """A form as JSON values; what was not set is left out."""
    return form.model_dump(mode="json", by_alias=True, exclude_unset=True)


TOOLS: Final[tuple[Tool, ...]] = tuple(Tool(function) for function in ALL)


def tool_named(name: str) -> Tool:
    """The tool of that name.

    :raises InputError: where there is none; the hint names them all.
    """
    for tool in TOOLS:
        if tool.name == name:
            return tool
    raise InputError("no such tool", where=name[:80], hint=f"one of {', '.join(t.name for t in TOOLS)}")
