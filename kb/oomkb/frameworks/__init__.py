"""What each framework does when a key is absent, and which settings it has.

:data:`FRAMEWORKS` is sorted by name; a test compares it with the files in this folder and in ``records``.
"""

from __future__ import annotations

from typing import Final

from oomkb.frameworks import (
    accelerate,
    axolotl,
    deepspeed,
    fsdp,
    llama_factory,
    lmdeploy,
    megatron,
    ms_swift,
    nemo,
    openrlhf,
    sglang,
    tgi,
    torchtune,
    transformers,
    trl,
    unsloth,
    verl,
    vllm,
    xtuner,
)
from oomkb.frameworks.completion import complete
from oomkb.frameworks.declared import framework_of, records
from oomkb.frameworks.lookup import canonical, find, lineage, supports
from oomkb.frameworks.model import Default, Framework, Setting, in_range

__all__ = [
    "ENGINES",
    "FRAMEWORKS",
    "Default",
    "Framework",
    "Setting",
    "canonical",
    "complete",
    "find",
    "in_range",
    "lineage",
    "supports",
]

_CODED: Final = (
    accelerate.FRAMEWORK,
    axolotl.FRAMEWORK,
    deepspeed.FRAMEWORK,
    fsdp.FRAMEWORK,
    llama_factory.FRAMEWORK,
    lmdeploy.FRAMEWORK,
    megatron.FRAMEWORK,
    ms_swift.FRAMEWORK,
    nemo.FRAMEWORK,
    openrlhf.FRAMEWORK,
    sglang.FRAMEWORK,
    tgi.FRAMEWORK,
    torchtune.FRAMEWORK,
    transformers.FRAMEWORK,
    trl.FRAMEWORK,
    unsloth.FRAMEWORK,
    verl.FRAMEWORK,
    vllm.FRAMEWORK,
    xtuner.FRAMEWORK,
)
FRAMEWORKS: tuple[Framework, ...] = tuple(sorted((*_CODED, *map(framework_of, records())), key=lambda f: f.name))
"""Those with code of their own and those that are one file of ``records``."""

ENGINES: Final = frozenset(
    {*(f.name for f in FRAMEWORKS if f.kind == "serving"), "tensorrt-llm", "vllm-ascend", "ollama", "llama.cpp"}
)
"""What serves models and trains none, among them engines whose settings nobody has written down here."""
