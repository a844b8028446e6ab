"""The request bodies, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, WithJsonSchema

from oomdoc.stated import job_schema
from oomkb.errors import JobError

Lang = Literal["auto", "en", "zh"]
LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 0 has a total capacity of 15.77 GiB"
_JOB = {"model": "Qwen/Qwen2.5-7B", "method": "lora", "micro_batch": 1, "seq_len": 4096, "gpu": "RTX 4090"}
DIAGNOSIS: dict[str, Any] = {
    "schema": "oomdoc.diagnosis/1",
    "id": "0123456789abcdef01234567",
    "verdict": "device-oom",
    "summary": "The logits of the loss took the last memory.",
    "causes": [{"cause": "logits", "probability": 0.8, "why": [], "evidence": []}],
}
JobDocument = Annotated[
    dict[str, Any], WithJsonSchema({k: v for k, v in job_schema().items() if k not in ("$schema", "examples")})
]
"""Typed in the schema; checked by the job itself, whose errors name the nearest valid field or word."""
Text = Annotated[str, StringConstraints(min_length=1)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


B = TypeVar("B", bound=_Body)


class DiagnoseBody(_Body):
    """What was pasted."""

    text: Text = Field(description="A log, a config, a command or a question, in any mix.", examples=[LOG])
    configs: dict[str, str] = Field(default_factory=dict, description="Further files by name.")
    set: dict[str, Any] = Field(default_factory=dict, description="Job fields stated outright.", examples=[{"gpus": 8}])
    lang: Lang = "auto"
    plans: bool = Field(default=True, description="Whether to search for plans that fit.")
    keep: bool = Field(default=True, description="Whether to keep it (masked) in the store.")
    language_model: bool = Field(
        default=True, description="Whether the language model that is set up, if any, may read it too."
    )


class EstimateBody(_Body):
    """A job document."""

    job: JobDocument = Field(examples=[_JOB])
    lang: Lang = "auto"


class PlanBody(_Body):
    """A job document, or the text of a config or launch script."""

    job: JobDocument = Field(default_factory=dict, examples=[_JOB])
    text: str = Field(default="", description="A config or launch script.")
    filename: str = Field(default="", description="Its name.")
    lang: Lang = "auto"


class SearchBody(_Body):
    """A question."""

    text: Text = Field(examples=["OOM when saving a ZeRO-3 checkpoint"])
    top: int = Field(default=5, ge=1, le=100)
    lang: Lang = "auto"


class ChatBody(_Body):
    """One turn of a conversation."""

    text: Text = Field(examples=["What if I use 4 GPUs?"])
    session: str | None = Field(
        default=None, max_length=64, pattern=r"^[A-Za-z0-9_-]{8,64}$", description="To go on with one."
    )
    lang: Lang = "auto"
    language_model: bool = Field(
        default=True, description="Whether a language model may converse, where one is set up."
    )


class CaseBody(_Body):
    """A case record."""

    id: str = Field(pattern=r"^[a-z0-9-]{2,40}/[a-z0-9-]{2,120}$", examples=["logits/my-case"])
    yaml: str = Field(
        min_length=1,
        max_length=64_000,
        description="The record, as `oomdoc case lint` reads it.",
        examples=["schema: 1\ntitle: {en: A title, zh: 标题}\n"],
    )


class FeedbackBody(_Body):
    """What a person says of a diagnosis."""

    diagnosis: str = Field(max_length=32, pattern=r"^[0-9a-f]{8,32}$", examples=["0123456789abcdef01234567"])
    helpful: Literal["yes", "no", "partly"] = Field(examples=["yes"])
    cause: str | None = Field(default=None, max_length=64, description="What it really was.")
    comment: str | None = Field(default=None, max_length=4_000)


def read_body(kind: type[B], raw: bytes) -> B:
    """A JSON body of one of these kinds.

    :raises JobError: naming the first wrong field.
    """
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise JobError(first["msg"], where=".".join(["body", *map(str, first["loc"])])) from error
