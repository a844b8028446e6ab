"""Root and consequences; steps; growth; failures that are only told."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.25 GiB is free."


def test_the_root_is_the_allocation_not_what_follows():
    log = "\n".join(
        [
            "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 12 closing signal SIGTERM",
            f"[rank3]: {OOM}",
            "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)",
            "failed (exitcode: -9) local_rank: 1 (pid: 13) of binary: python",
        ]
    )
    evidence = read_text(log)
    assert evidence.root.signal.name == "torch-cuda-oom"
    assert evidence.root.signal.rank == 3
    assert [f.cascade for f in evidence.failures] == [True, False, True, True]


def test_exit_137_alone_is_a_host_failure():
    assert read_text("exits with return code = -9").root.kind == "host"


def test_killed_alone_is_nothing():
    assert read_text("Killed").root is None


def test_step_from_the_progress_bar():
    assert read_text(f" 13%|███   | 6/45 [01:21<08:46, 13.51s/it]\n{OOM}").root.step == 6


def test_growth_over_steps():
    lines = [f"iter: {i} memory_allocated: {0.25 * (i + 1)}  memory_reserved:  {0.3 * (i + 1)}" for i in range(5)]
    assert [s.data["points"] for s in read_text("\n".join(lines)).find("growth-over-steps")] == [5]


def test_no_growth_where_it_is_level():
    lines = [f"iter: {i} memory_allocated: 0.25  memory_reserved:  0.3" for i in range(5)]
    assert not list(read_text("\n".join(lines)).find("growth-over-steps"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("With batch 4 my training OOMs after a while.", "device"),
        ("微调的时候一直爆显存，怎么办？", "device"),
        ("爆的是内存不是显存，512GB 内存一直增长。", "host"),
        ("We ran out of system RAM while loading; GPU is empty.", "host"),
    ],
)
def test_failures_that_are_told(text, kind):
    assert read_text(text).root.kind == kind


@pytest.mark.parametrize("text", ["It works without OOM now.", "How large is the model?", "没有 OOM，一切正常"])
def test_failures_that_are_denied(text):
    assert read_text(text).root is None
