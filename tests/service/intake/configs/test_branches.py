"""What arms of ``if`` and ``case`` set does not count: nobody knows whether they are run."""

from __future__ import annotations

import pytest

from oomdoc.evidence import Source
from oomdoc.intake.configs import read_documents

COMMAND = "torchrun --nproc_per_node 2 train.py --model_name_or_path org/a-7b --per_device_train_batch_size $B --bf16 True --output_dir o\n"


def batch(script: str) -> object:
    facts = {f.name: f.value for f in read_documents(Source("run.sh", "#!/bin/bash\n" + script + COMMAND)).facts}
    return facts.get("micro_batch")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("SIZE=$1\nif [ $SIZE = 7b ]; then\n  B=4\nelse\n  B=1\nfi\n", None),
        ("case $1 in\n  7b)\n    B=4 ;;\n  *)\n    B=1 ;;\nesac\n", None),
        ("B=8\nif [ $# -gt 0 ]; then\n  B=$1\nfi\n", 8),
        ("B=8\nif [ $1 = small ]; then\n  B=1\nfi\n", 8),
        ("N=4\nif [ $N -gt 2 ] && [ -f x ]; then\n  B=1\nfi\n", None),
        ("B=2\nif nothing ends this\nB=5\n", 5),
    ],
)
def test_an_arm_does_not_count(script: str, expected: object) -> None:
    assert batch(script) == expected


def test_flags_in_an_arm_that_may_not_run_are_no_settings():
    text = (
        '#!/bin/bash\nAC=$1\nif [ $AC = full ]; then\n  options=" --recompute-granularity full --bf16 "\nelse\n'
        '  options=" "\nfi\ntorchrun pretrain_gpt.py --num-layers 2 --micro-batch-size 2 --seq-length 128 $options\n'
    )
    facts = {f.name: f.value for f in read_documents(Source("run.sh", text)).facts}
    assert "grad_ckpt" not in facts
    assert "param_dtype" not in facts
    assert facts["micro_batch"] == 2
