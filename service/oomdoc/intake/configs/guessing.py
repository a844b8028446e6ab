"""What can be taken from a configuration whose framework is unknown: keys that mean the same wherever they stand.

A key counts where it is in no other role's section (an evaluation's, a reward model's, a data set's) and wherever it
does count it says the same. What is taken so is a guess, never written back, and no framework's defaults go with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from oomdoc.intake.configs import codecs
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import Codec, Reading, norm, words
from oomdoc.intake.configs.values import flag
from oomdoc.intake.prose.model_names import looks_like_model
from oomkb.units import billions

__all__ = ["CONFIDENCE", "guessed", "of_other_role", "smells_of_memory"]

CONFIDENCE: Final = 0.55
"""Of what is taken from an unknown framework's configuration: stated, yet below all else that states it."""
_OTHER_ROLES: Final = words(
    """
    ref reference reference_policy ref_model critic reward rewards reward_model rm judge teacher draft draft_model
    rollout generation generating_args gconfig generation_config sampling sampling_params infer inference actor_infer
    engine engine_kwargs vllm vllm_cfg vllm_kwargs sglang sglang_cfg
    eval evaluation evaluator eval_loader val valid validation test icl_tasks valid_dataset eval_dataset
    data_loader train_loader dataset datasets train_dataset tokenizer processor sample samples
    logger logging wandb env envs environment env_vars encoder decoder vae text_encoder vision_tower
    """
)
_SEPARATE: Final = re.compile(r"[.\[\]]+")
_SMELL: Final = re.compile(
    r"lora|quant|(?<![a-z])(?:n|num_)?bits?(?![a-z])|freeze|offload|shard|parallel|batch|(?:max|seq|context|cutoff)\w{0,12}_?len"
    r"|recompute|grad(?:ient)?_?(?:ckpt|checkpoint)|activation_?checkpoint|(?:load|use)_in_\d"
)
_QUIET: Final = re.compile(
    r"(?:val|test|eval)\w{0,12}batch|dataset|sampler|shuffle|dataloader|num_batches|batch_?norm|drop_last|(?:save|load|resume|output)_?\w{0,20}(?:shard|ckpt|checkpoint)"
)
_STRATEGY: Final = {"full": "fsdp", "full_shard": "fsdp", "shard_grad_op": "shard-grad-op", "hybrid_shard": "hsdp"}
"""PyTorch's ``ShardingStrategy`` (``torch/distributed/fsdp/api.py``)."""


def _activations(value: object) -> list[str] | None:
    return ["activations"] if flag(value) else None


_KEYS: Final[tuple[tuple[str, frozenset[str], Codec], ...]] = (
    ("model", words("model_name_or_path pretrained_model_name_or_path base_model"), codecs.MODEL),
    (
        "micro_batch",
        words("per_device_train_batch_size train_micro_batch_size_per_gpu micro_batch_size micro_batch_size_per_gpu"),
        codecs.INT,
    ),
    ("eval_micro_batch", words("per_device_eval_batch_size"), codecs.INT),
    ("grad_accum", words("gradient_accumulation_steps grad_accumulation_steps gradient_accumulation"), codecs.INT),
    ("seq_len", words("max_seq_length max_seq_len seq_length seq_len sequence_length sequence_len"), codecs.INT),
    (
        "grad_ckpt",
        words("gradient_checkpointing activation_checkpointing grad_checkpoint enable_gradient_checkpointing"),
        codecs.FLAG,
    ),
    ("lora.r", words("lora_r lora_rank"), codecs.INT),
    ("tp", words("tensor_model_parallel_size"), codecs.INT),
    ("pp", words("pipeline_model_parallel_size"), codecs.INT),
    ("completion_len", words("max_completion_length max_response_length"), codecs.INT),
    ("prompt_len", words("max_prompt_length"), codecs.INT),
    ("generations", words("num_generations"), codecs.INT),
    ("attention", words("attn_implementation"), codecs.ATTENTION),
    ("sharding", words("sharding_strategy fsdp_sharding_strategy"), codecs.word(_STRATEGY)),
    ("offload", words("offload_activations activation_offloading"), Codec(_activations, lambda value, _old: value)),
)
_FIELD: Final[Mapping[str, tuple[str, Codec]]] = {name: (field, codec) for field, ns, codec in _KEYS for name in ns}
_MODEL_KEYS: Final = words("model model_name model_path model_id name_or_path name path pretrained")


def of_other_role(key: str) -> bool:
    """Whether a (normalised) key stands in a section of something other than the model that is trained."""
    return not _OTHER_ROLES.isdisjoint(_SEPARATE.split(key)[:-1])


def smells_of_memory(key: str) -> bool:
    """Whether a key that was not understood may well decide how much memory is needed."""
    name = norm(key).lower()
    return _SMELL.search(name) is not None and _QUIET.search(name) is None


def guessed(entries: Iterable[Entry]) -> Iterator[Reading]:
    """(field, value, entry) of every field that is said without doubt."""
    said: dict[str, list[Reading]] = {}
    for entry in entries:
        key = norm(entry.key)
        if entry.off or not entry.resolved or entry.style not in ("pair", "flag", "flag=", "bare", "override"):
            continue
        if of_other_role(key):
            continue
        for reading in _of(key, entry):
            said.setdefault(reading[0], []).append(reading)
    for readings in said.values():
        if all(value == readings[0][1] for _, value, _ in readings):
            yield readings[0]


def _of(key: str, entry: Entry) -> Iterator[Reading]:
    last = _SEPARATE.split(key)[-1]
    if last in _FIELD:
        field, codec = _FIELD[last]
        if (value := codec.read(entry.value)) is not None:
            yield field, value, entry
    elif last in _MODEL_KEYS and isinstance(entry.value, str) and "/" in entry.value:
        value = codecs.MODEL.read(entry.value)
        if value is not None and value.count("/") == 1 and looks_like_model(value) and billions(value) is not None:
            yield "model", value, entry
