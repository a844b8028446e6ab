"""Text Generation Inference: ``text-generation-launcher`` flags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomdoc.intake.configs.codecs import DTYPE, FRACTION, INT
from oomdoc.intake.configs.table import DROP, Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.serving import model_argument, quantization

__all__ = ["TABLE"]


def _read_graphs(view: View) -> Iterator[Reading]:
    entry = view.get("cuda_graphs")
    if entry is not None:
        yield "serving.cuda_graphs", str(entry.value) != "0", entry


def _write_graphs(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    """``0`` switches them off; the batch sizes of the default come back with the flag's absence."""
    return {"cuda-graphs": DROP if value else 0}


TABLE = Table(
    name="tgi",
    dashes=True,
    keys=(
        Key("serving.gpu_memory_utilization", ("cuda-memory-fraction",), FRACTION),
        Key("serving.max_model_len", ("max-total-tokens",), INT),
        Key("serving.max_num_seqs", ("max-concurrent-requests", "max-batch-size"), INT),
        Key("serving.max_num_batched_tokens", ("max-batch-prefill-tokens",), INT),
        Key("tp", ("num-shard",), INT),
        Key("param_dtype", ("dtype",), DTYPE),
    ),
    groups=(
        model_argument(("model-id", "model_id"), ("text-generation-launcher",)),
        quantization(("quantize",)),
        Group(("serving.cuda_graphs",), ("cuda-graphs",), _read_graphs, _write_graphs),
    ),
    neutral=words(
        """
        max_input_length max_input_tokens max_batch_total_tokens hostname port sharded
        trust_remote_code revision
        """
    ),
    commands=(r"\btext-generation-(?:launcher|inference)\b",),
    marks=words(
        """
        max_total_tokens max_batch_prefill_tokens num_shard max_input_tokens max_batch_total_tokens
        """
    ),
    hints=words("model_id quantize"),
)
