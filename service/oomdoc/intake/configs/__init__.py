"""One two-way table per framework: what reads a key also writes it.

:func:`read_documents` turns any text into facts with their places, :func:`to_job` facts into a job document, and
:func:`patch` writes job fields back into a person's own file.
"""

from __future__ import annotations

from typing import Final

from oomdoc.intake.configs.declared import declared_tables
from oomdoc.intake.configs.jobs import to_job
from oomdoc.intake.configs.patching import Patched, patch, patch_batch_row
from oomdoc.intake.configs.reading import ConfigReading, read_documents
from oomdoc.intake.configs.table import Table
from oomdoc.intake.configs.tables import (
    accelerate,
    axolotl,
    deepspeed,
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

__all__ = ["TABLES", "ConfigReading", "Patched", "patch", "patch_batch_row", "read_documents", "to_job"]

_CODED: Final = (
    accelerate.TABLE,
    axolotl.TABLE,
    deepspeed.TABLE,
    llama_factory.TABLE,
    lmdeploy.TABLE,
    megatron.TABLE,
    ms_swift.TABLE,
    nemo.TABLE,
    openrlhf.TABLE,
    sglang.TABLE,
    tgi.TABLE,
    torchtune.TABLE,
    transformers.TABLE,
    trl.TABLE,
    unsloth.TABLE,
    verl.TABLE,
    vllm.TABLE,
    xtuner.TABLE,
)
TABLES: tuple[Table, ...] = tuple(sorted((*_CODED, *declared_tables(_CODED)), key=lambda table: table.name))
