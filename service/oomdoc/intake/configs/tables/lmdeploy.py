"""LMDeploy: ``lmdeploy serve api_server`` flags and ``TurbomindEngineConfig(...)``."""

from __future__ import annotations

from oomdoc.intake.configs.codecs import DTYPE, FRACTION, INT, word
from oomdoc.intake.configs.table import Key, Table, words
from oomdoc.intake.configs.tables.serving import model_argument

__all__ = ["TABLE"]

TABLE = Table(
    name="lmdeploy",
    dashes=True,
    keys=(
        Key("serving.gpu_memory_utilization", ("cache-max-entry-count",), FRACTION),
        Key("serving.max_model_len", ("session-len",), INT),
        Key("serving.max_num_seqs", ("max-batch-size",), INT),
        Key("serving.max_num_batched_tokens", ("max-prefill-token-num",), INT),
        Key("serving.kv_dtype", ("quant-policy",), word({"0": "auto", "4": "int4", "8": "int8"})),
        Key("tp", ("tp",), INT),
        Key("param_dtype", ("dtype",), DTYPE),
        Key("quant", ("model-format",), word({"awq": "awq-int4", "gptq": "gptq-int4", "fp8": "fp8", "hf": "none"})),
    ),
    groups=(model_argument(("model_path", "model-path"), ("api_server", "gradio", "chat")),),
    neutral=words(
        """
        server_name server_port max_concurrent_requests backend model_name log_level
        enable_prefix_caching cache_block_seq_len rope_scaling_factor num_tokens_per_iter api_keys
        """
    ),
    commands=(r"\blmdeploy\b", r"\b(?:Turbomind|Pytorch)EngineConfig\b"),
    marks=words("cache_max_entry_count session_len quant_policy"),
    hints=words("tp max_batch_size model_format"),
)
