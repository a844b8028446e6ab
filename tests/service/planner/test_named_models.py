"""Models as people and files name them: what is found of each, and what is no model.

Each row of the table: the file's name, its text, the catalogue's entry (``-``: none, ``*``: any), the billions of
parameters between two figures (``-``: none), and how the weights are stored (``*``: not asked).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oomdoc.planner import job_of_text
from oomkb.catalog import models
from oomkb.frameworks import complete
from oomkb.pricing import shape_of

RUN = "per_device_train_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: true\nlearning_rate: 1.0e-5\n"
TABLE = Path(__file__).parent / "data" / "model_mentions.tsv"
ROWS = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(("filename", "text", "entry", "billions", "quant"), ROWS)
def test_a_mention_gives_the_model_and_its_size(
    filename: str, text: str, entry: str, billions: str, quant: str
) -> None:
    job, _ = job_of_text(text.replace("\\n", "\n").replace("<run>", RUN), filename)
    found = models.find(job.model) if isinstance(job.model, str) else None
    done = complete(job)
    if entry != "*":
        assert (found.name if found else "-") == entry
    size = shape_of(done).params / 1e9 if found is not None else done.params_b
    if billions == "-":
        assert size is None
    else:
        low, high = map(float, billions.split())
        assert size is not None
        assert low <= size <= high
    assert quant in ("*", done.quant)
