"""What the functions take and give, as pydantic models: the contract's names, without the parts that agents skip."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from oomdoc.stated import job_schema

Language = Literal["en", "zh"]
Detail = Literal["short", "full"]
JobFields = Annotated[dict[str, Any], WithJsonSchema(job_schema())]
"""A job document, or part of one."""
JobFieldsShort = Annotated[
    dict[str, Any],
    WithJsonSchema({**job_schema(short=True), "description": "Job fields; what each means stands in estimate."}),
]


class _Form(BaseModel):
    """Parts of the full document are let through where they are asked for."""

    model_config = ConfigDict(extra="allow")


class Peak(_Form):
    """A peak on one GPU, in GiB, as three meters show it: each holds the one before it."""

    allocated: float = Field(description="GiB of tensors: torch.cuda.max_memory_allocated")
    reserved: float = Field(description="GiB held by the caching allocator")
    process: float = Field(description="GiB that nvidia-smi shows: reserved, context and buffers; fits is about it")


class Estimated(_Form):
    """What each GPU holds at its peak."""

    peak_gib: Peak
    interval_gib: dict[str, Any] = Field(default={}, description="[low, high] of the process's peak, and its level")
    peak_phase: str = Field(description="load, forward, loss, backward, optimizer-step, rollout, serving ...")
    terms_gib: dict[str, float] = Field(default={}, description="the largest terms of the peak phase, in GiB")
    states_gib: dict[str, float] = Field(default={}, description="GiB that training keeps at rest, and together")
    phases_gib: dict[str, float] = Field(default={}, description="each phase at its fullest, in GiB of tensors")
    host_gib: float = Field(default=0.0, description="GiB of host memory per machine that offloading takes")
    nvme_gib: float = Field(default=0.0, description="GiB on the drives of a machine, where offloading goes there")
    sequence_tokens: int = Field(default=0, description="tokens of one training sequence, those of images included")
    image_tokens: int = Field(default=0, description="of them those of all its images")
    model: dict[str, Any] = Field(default={}, description="the model's sizes, of which the terms are products")
    card: dict[str, Any] = Field(
        default={}, description="the GPU: formats it computes in, kernels it lacks, on-chip shared memory of a block"
    )
    capacity_gib: float | None = Field(default=None, description="GiB of one GPU")
    spare_gib: float | None = Field(
        default=None, description="capacity_gib less needed_gib, or less what a server takes; negative: too much"
    )
    needed_gib: float | None = Field(
        default=None,
        description="GiB it cannot run without: peak_gib.process without cached blocks and cache beyond one request",
    )
    fits: bool | None = Field(
        default=None,
        description="whether needed_gib is within capacity_gib (fits_probability >= 0.5); null: no GPU known",
    )
    fits_probability: float | None = Field(
        default=None, description="chance that the run stays within capacity_gib, with the estimate's error"
    )
    assumed: dict[str, Any] = Field(default={}, description="fields nobody stated: {value, why}")
    serving: dict[str, Any] | None = Field(default=None, description="what an engine's cache holds")
    warnings: list[str] = []


class Change(_Form):
    """One change of a plan, in the person's framework's key."""

    key: str = Field(description="the framework's own key")
    old: Any = Field(default=None, alias="from")
    to: Any = None
    saves_gib: float = 0.0
    instruction: str | None = Field(default=None, description="where the change is no value of a key")


class Plan(_Form):
    """Changes after which the job is predicted to fit."""

    changes: list[Change]
    fields: dict[str, Any] = Field(default={}, description="the same as job fields: for estimate, compare and fix")
    peak_gib: float | None = Field(default=None, description="GiB that the process may hold, cached blocks included")
    needed_gib: float | None = Field(default=None, description="GiB that it then cannot run without: this decides")
    host_gib: float | None = None
    fits_probability: float | None = None
    relative_speed: float | None = None
    safety: str = Field(description="same-numbers, changed-numerics or changed-training")
    patch: str | None = Field(default=None, description="unified diff of the file that was given")


class Planned(_Form):
    """Whether a job fits before it is run, and what each change buys."""

    job: dict[str, Any]
    fits: bool | None
    fits_probability: float | None = None
    sentences: list[str] = Field(default=[], description="the answer in words")
    estimate: Estimated
    largest: dict[str, int] = Field(default={}, description="the largest micro_batch and length that fit")
    plans: list[Plan] = []
    knobs: list[dict[str, Any]] = Field(default=[], description="single changes and what each saves")
    nothing_fits: str | None = None
    notes: list[str] = []


class Diagnosed(_Form):
    """Why a job ran out of memory, and what would fit."""

    verdict: str = Field(description="device-oom, host-oom, shared-memory, not-oom, no-failure or unclear")
    summary: str
    outlook: dict[str, Any] | None = None
    other_failure: dict[str, Any] | None = None
    causes: list[dict[str, Any]] = Field(default=[], description="most probable first: cause, probability, why")
    failure: dict[str, Any] | None = Field(default=None, description="the sizes that the log states, in GiB")
    facts: dict[str, Any] = Field(default={}, description="what the input states")
    framework: str | None = None
    job: dict[str, Any] = {}
    estimate: Estimated | None = None
    plans: list[Plan] = []
    questions: list[dict[str, Any]] = Field(default=[], description="facts whose value would change the answer")
    matches: list[dict[str, Any]] = []
    topics: list[dict[str, Any]] = Field(default=[], description="what is known of a concept that is asked about")
    conflicts: list[dict[str, Any]] = []
    inferred: dict[str, Any] = {}
    warnings: list[str] = []


class Row(_Form):
    """One job of a comparison."""

    name: str
    peak_gib: float | None = None
    needed_gib: float | None = None
    capacity_gib: float | None = None
    fits: bool | None = None
    fits_probability: float | None = None
    host_gib: float | None = None
    spare_gib: float | None = Field(
        default=None, description="capacity_gib less needed_gib, or less what a server takes; negative: too much"
    )
    change_gib: float | None = Field(default=None, description="peak_gib less that of the first job")
    peak_phase: str | None = None
    terms_gib: dict[str, float] = Field(default={}, description="the largest terms of the peak phase, in GiB")
    serving: dict[str, Any] | None = Field(default=None, description="what an engine's cache holds")
    relative_speed: float | None = Field(default=None, description="beside the first job")
    problem: str | None = Field(default=None, description="why the job has no price")


class Comparison(_Form):
    """Jobs side by side."""

    rows: list[Row]
    best: str | None = Field(default=None, description="the fastest that fits")


class Point(BaseModel):
    """What somebody measured of a run at one size."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    size: float = Field(ge=0, le=1e9, description="micro-batch, tokens, users, images ...")
    gib: float = Field(gt=0, le=1e6, description="memory that was measured, as it was written")


class Extrapolated(_Form):
    """A straight line through measured figures."""

    fixed_gib: float = Field(description="what does not depend on the size: weights, states")
    each_gib: float = Field(description="what one more of the size takes")
    largest_miss_gib: float = Field(default=0.0, description="how far the farthest point lies from the line")
    rows: list[dict[str, Any]] = Field(default=[], description="each size asked about: needed_gib, fits, spare_gib")
    largest: int | None = Field(default=None, description="the largest whole size within the room")


class Fixed(_Form):
    """A file with job fields written into it."""

    framework: str
    diff: str
    text: str = Field(default="", description="the whole file, where it was asked for")
    unplaced: dict[str, str] = Field(default={}, description="fields that have no key in this file, and why")


class Found(_Form):
    """Known cases that look like a text."""

    matches: list[dict[str, Any]]


class Explained(_Form):
    """The page of a cause or topic."""

    cause: str
    page: str


class Advisories(_Form):
    """Known memory regressions among installed versions."""

    scanned: int
    advisories: list[dict[str, Any]]
    seen: list[dict[str, Any]] = Field(default=[], description="seen in these versions, of which no range is known")
