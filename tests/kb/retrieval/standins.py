"""Small invented cases and an encoder that needs no model: vectors of hashed words."""

import hashlib
import zlib

import numpy as np

from oomkb.records.case import Affected, Case, Hardware, Range, Reference, Signature


class HashedWords:
    """Each word is a direction; equal texts are equal vectors."""

    key = "hashed-words@1"
    dimension = 64

    def __init__(self):
        self.texts = []

    def encode(self, texts):
        self.texts += texts
        rows = np.full((len(texts), self.dimension), 1e-3, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split():
                row[zlib.crc32(word.encode()) % self.dimension] += 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    encode_quickly = encode


def case(case_id, title, symptom, *, zh="", signatures=(), frameworks=("pytorch",), affected=(), **fields):
    body = repr((case_id, title, symptom, zh, signatures, frameworks, affected, fields))
    return Case(
        id=case_id,
        title={"en": title, "zh": zh or title},
        summary={"en": title, "zh": zh or title},
        why={"en": "because", "zh": "因为"},
        symptoms=(symptom,),
        signatures=tuple(Signature(text=text) for text in signatures),
        frameworks=frameworks,
        affected=tuple(affected),
        references=(Reference("report", f"https://example.org/{case_id}"),),
        path=f"/cases/{case_id}.yaml",
        digest=hashlib.sha256(body.encode()).hexdigest(),
        **fields,
    )


def some_cases():
    ranged = Affected("deepspeed", (Range("0.16.0", fixed="0.16.8"),))
    return (
        case(
            "checkpoint-save/gather",
            "Saving under ZeRO-3 gathers all weights",
            "crash at save_checkpoint",
            zh="保存时爆显存",
        ),
        case("eval/batch", "Evaluation uses a larger batch", "evaluation_loop runs out of memory", phase="eval"),
        case(
            "kv-cache/blocks",
            "No room for cache blocks",
            "vLLM says No available memory for the cache blocks",
            frameworks=("vllm",),
            signatures=("No available memory for the cache blocks",),
            objective="inference",
        ),
        case(
            "logits/vocabulary",
            "A large vocabulary fills the GPU",
            "cross_entropy runs out",
            hardware=Hardware(gpu="V100"),
        ),
        case(
            "optimizer-init/partitions",
            "fp32 partitions do not fit",
            "OOM in _create_fp32_partitions",
            frameworks=("deepspeed",),
        ),
        case(
            "version-regression/zero3",
            "DeepSpeed keeps too much with ZeRO-3 and checkpointing",
            "actor backward runs out with ZeRO-3",
            frameworks=("deepspeed", "openrlhf"),
            affected=(ranged,),
            phase="backward",
        ),
    )
