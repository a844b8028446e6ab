"""`oomdoc check`: the number of GPUs, where it is and is not stated."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.checking import Checked, check_text
from oomdoc.diagnosis.forms import needed_of
from oomdoc.planner import planned_job
from oomkb.pricing import price

CONFIG = (
    "model_name_or_path: Qwen/Qwen2.5-14B-Instruct\nstage: sft\nfinetuning_type: full\ndeepspeed: ds_z3.json\n"
    "cutoff_len: 8192\npacking: true\nper_device_train_batch_size: 2\nbf16: true\nflash_attn: fa2\ntemplate: qwen\n"
)


def checked(**changes: Any) -> Checked:
    return check_text(CONFIG, "sft.yaml", {"gpu": "A100-80GB", "sharding": "zero3", **changes})


def test_a_sharded_run_of_an_unstated_number_of_gpus_is_no_error() -> None:
    # 14.8 billion parameters x 16 bytes are 220 GiB: more than two cards, and logits of 2 x 8,192 x 152,064 beside them
    (finding,) = [f for f in checked().findings if f.rule in ("does-not-fit", "fits", "gpus-unknown")]
    assert (finding.rule, finding.level) == ("gpus-unknown", "warning")
    assert checked().fits is None


@pytest.mark.parametrize(("gpus", "fits"), [(2, False), (8, True)])
def test_a_stated_number_decides(gpus: int, fits: bool) -> None:
    assert checked(gpus=gpus).fits is fits


def test_what_is_said_beside_the_card_is_what_the_run_needs() -> None:
    job, _, careful = planned_job(CONFIG, "sft.yaml", {"gpu": "A100-80GB", "sharding": "zero3", "gpus": 8}, ())
    finding = next(f for f in checked(gpus=8).findings if f.rule == "fits")
    assert finding.message.values["peak_bytes"] == pytest.approx(needed_of(price(job, careful=careful).estimate))
