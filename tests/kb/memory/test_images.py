"""Images: tokens by published rules, and steps of small copies of real models, traced with ``bench/trace_vision.py``."""

import json
from pathlib import Path

import pytest

from oomkb.catalog import models
from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.pricing import price
from oomkb.units import GIB

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "vision.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "pixels", "tokens"),
    [
        # arXiv 2409.12191, section 2.1: 224 x 224 become 66 tokens, two of which mark the image's ends.
        ("Qwen/Qwen2-VL-7B-Instruct", 224 * 224, 64),
        # Model cards of Qwen2.5-VL and Qwen3-VL: 256 to 1280 tokens are 256*28*28 to 1280*28*28, and 32*32 each.
        ("Qwen/Qwen2.5-VL-7B-Instruct", 1280 * 28 * 28, 1280),
        ("Qwen/Qwen3-VL-2B-Instruct", 1280 * 32 * 32, 1280),
        # arXiv 2310.03744: CLIP-L/14 at 336 pixels; LLaVA-NeXT's four tiles and the whole image (llava-vl.github.io).
        ("llava-hf/llava-1.5-7b-hf", 1_000_000, 576),
        ("llava-hf/llava-v1.6-mistral-7b-hf", 672 * 672, 2880),
        # arXiv 2404.16821, section 3.3: 256 tokens a tile of 448 x 448, up to twelve tiles and a thumbnail.
        ("OpenGVLab/InternVL2-2B", 448 * 448, 256),
        ("OpenGVLab/InternVL2-2B", 12 * 448 * 448, 13 * 256),
        # arXiv 2503.19786, section 2.1: 256 tokens whatever the size.
        ("google/gemma-3-4b-it", 896 * 896, 256),
    ],
)
def test_tokens_of_an_image(name, pixels, tokens):
    found = models.find(name)
    assert found is not None
    vision = ModelShape.from_config(found.config).vision
    assert vision is not None
    assert vision.tokens(pixels) == tokens


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_step_with_images(row):
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    forward = max(said.phases[p].total_bytes for p in ("forward", "loss") if p in said.phases) / GIB
    assert forward == pytest.approx(row["measured"]["peak_forward"], rel=0.07)
    assert said.phases["backward"].total_bytes / GIB == pytest.approx(row["measured"]["peak_backward"], rel=0.09)
    adapters = row["measured"]["trainable"] if row["job"].get("lora") else 0
    assert said.params == row["measured"]["params"] - adapters


JOB = {
    "model": "Qwen/Qwen2.5-VL-7B-Instruct",
    "method": "lora",
    "seq_len": 512,
    "micro_batch": 2,
    "images": 4,
    "max_pixels": 1280 * 28 * 28,
    "sharding": "none",
    "attention": "flash2",
}


def test_images_lengthen_the_sequence():
    text = price(Job.from_document({k: v for k, v in JOB.items() if k not in ("images", "max_pixels")})).estimate
    alike = price(Job.from_document({**JOB, "seq_len": 512 + 4 * 1280, "images": None, "max_pixels": None})).estimate
    seen = price(Job.from_document(JOB)).estimate
    assert seen.allocated_bytes > 1.5 * text.allocated_bytes
    assert seen.allocated_bytes >= alike.allocated_bytes


def test_where_the_limit_counts_images_they_add_nothing_to_it():
    long = {**JOB, "framework": "llama-factory", "seq_len": 8192}
    text = {k: v for k, v in long.items() if k not in ("images", "max_pixels")}
    logits = [price(Job.from_document(d)).estimate.phases["loss"].terms_bytes["logits and loss"] for d in (long, text)]
    assert logits[0] == logits[1]


def test_a_frozen_tower_is_not_trained():
    free = price(Job.from_document({**JOB, "method": "full", "framework": "trl"})).estimate
    frozen = price(Job.from_document({**JOB, "method": "full", "framework": "llama-factory"})).estimate
    vision = ModelShape.from_config(models.find(JOB["model"]).config).vision
    assert free.trainable - frozen.trainable == vision.params


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, []),
        ({"max_pixels": None}, []),
        ({"max_pixels": None, "images": None}, ["estimate.images-not-counted"]),
        ({"model": "Qwen/Qwen2.5-7B-Instruct", "max_pixels": None, "images": None}, []),
    ],
)
def test_a_model_that_sees_says_that_no_images_are_counted(fields, said):
    found = price(Job.from_document({**JOB, **fields})).estimate.warnings
    assert [w.key for w in found if "image" in w.key] == said
