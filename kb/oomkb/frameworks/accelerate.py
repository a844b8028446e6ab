"""accelerate: the launcher and wrapper of distributed runs."""

from __future__ import annotations

from oomkb.frameworks.model import Default, Framework

_PLUGIN = "accelerate utils/dataclasses.py 1.14.0"

FRAMEWORK = Framework(
    name="accelerate",
    title="accelerate",
    kind="launcher",
    package="accelerate",
    aliases=("accelerate launch", "hf accelerate"),
    base="transformers",
    defaults=(
        Default(
            "reshard_after_forward",
            True,
            "full sharding reshards after the forward pass",
            _PLUGIN,
            when=lambda j: j.sharding in ("fsdp", "fsdp2"),
        ),
    ),
)
