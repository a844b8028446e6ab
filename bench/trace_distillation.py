"""A distillation step with the loss of TRL's GKD trainer, student and teacher on one device, without a GPU.

usage: python bench/trace_distillation.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``GKDTrainer.compute_loss`` of TRL 1.16 on a stand-in, with the job's ``gkd_beta`` (0.5). Where
it selects by a mask, everything is selected.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oomdoc.tracing import building, running
from trace_preference import everything_selected, wrapped
from trace_steps import measured


def _loss(model: Any, teacher: Any, job: dict[str, Any]) -> Any:
    from trl.experimental.gkd import GKDTrainer

    trainer = SimpleNamespace(
        teacher_model=teacher,
        beta=float(job.get("gkd_beta", 0.5)),
        generalized_jsd_loss=partial(GKDTrainer.generalized_jsd_loss, temperature=0.9),
    )
    ids = running.token_ids(job["micro_batch"], job["seq_len"], "cpu")
    inputs = {"input_ids": ids, "attention_mask": None, "labels": ids.clone()}
    return GKDTrainer.compute_loss(trainer, model, inputs)


def main() -> int:
    for line in Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        job = row["job"]
        model = building.prepare(job)
        teacher = building.build_model({**job, "model": job["extra_models"][0]["model"]}).eval().requires_grad_(False)
        with everything_selected():
            networks = wrapped(model, job), wrapped(teacher, job)
            found = measured(networks[0], job, partial(_loss, *networks, job), also=(teacher,))
        print(json.dumps({**row, "measured": found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
