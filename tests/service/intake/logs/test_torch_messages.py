"""PyTorch's message in the wordings of every version, wrapped, cut off and interleaved."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text
from oomdoc.intake.logs.torch_cuda import clauses

OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.45 GiB (GPU 1; 23.68 GiB total capacity; 18.98 GiB already allocated; "
    "1.31 GiB free; 22.03 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb"
)
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 3 has a total {capacity} of 31.74 GiB of which 1.41 GiB is free. "
    "{others}Including non-PyTorch memory, this process has 30.26 GiB memory in use. Of the allocated memory 23.51 GiB is allocated by PyTorch, "
    "{pools}and 5.51 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting X"
)


def values(text, *names):
    facts = read_text(text).facts
    return [round(facts[name].value, 2) if name in facts else None for name in names]


def test_wording_of_1_x():
    assert values(OLD, "tried_gib", "capacity_gib", "allocated_gib", "free_gib", "reserved_gib") == [
        1.45,
        23.68,
        18.98,
        1.31,
        22.03,
    ]


@pytest.mark.parametrize("capacity", ["capacty", "capacity"])
@pytest.mark.parametrize("pools", ["", "with 128.00 MiB allocated in private pools (e.g., CUDA Graphs), "])
def test_wordings_since_2_1(capacity, pools):
    text = NEW.format(capacity=capacity, others="", pools=pools)
    assert values(
        text, "tried_gib", "capacity_gib", "free_gib", "process_gib", "allocated_gib", "reserved_unallocated_gib"
    ) == [4.64, 31.74, 1.41, 30.26, 23.51, 5.51]


def test_other_processes_are_added_up():
    text = NEW.format(
        capacity="capacity",
        pools="",
        others="Process 11 has 2.00 GiB memory in use. Process 12 has 512.00 MiB memory in use. ",
    )
    assert values(text, "other_process_gib", "process_gib") == [2.5, 30.26]


def test_own_process_without_its_clause_is_the_one_that_can_hold_the_memory():
    text = (
        "CUDA out of memory. Tried to allocate 1.74 GiB. GPU 1 has a total capacity of 23.57 GiB of which 605.88 MiB is free. Process 133288 has "
        "22.97 GiB memory in use. Process 9 has 1.00 GiB memory in use. Of the allocated memory 20.21 GiB is allocated by PyTorch, and 185.98 MiB is reserved by PyTorch but unallocated."
    )
    assert values(text, "process_gib", "other_process_gib") == [22.97, 1.0]


def test_counters_below_zero_are_no_sizes():
    text = NEW.format(capacity="capacity", pools="", others="Process 11 has 17179869184.00 GiB memory in use. ")
    assert values(text, "other_process_gib") == [None]


@pytest.mark.parametrize("width", [40, 61, 77, 100])
def test_hard_wrapped_lines(width):
    text = NEW.format(capacity="capacity", others="", pools="")
    wrapped = "\n".join(text[i : i + width] for i in range(0, len(text), width))
    assert values(wrapped, "tried_gib", "capacity_gib", "process_gib", "reserved_unallocated_gib") == [
        4.64,
        31.74,
        30.26,
        5.51,
    ]


def test_wrapped_behind_a_worker_prefix():
    text = "(Runner pid=104449) " + NEW.format(capacity="capacity", others="", pools="").replace(
        "by PyTorch, and", "by P\nyTorch, and"
    )
    assert values(text, "allocated_gib", "reserved_unallocated_gib") == [23.51, 5.51]


def test_cut_off():
    assert values(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 34.83 GiB. GPU 0 has a total capacity of 44.55 GiB of which 22.25 GiB i",
        "tried_gib",
        "capacity_gib",
        "free_gib",
    ) == [34.83, 44.55, 22.25]
    assert values("CUDA out of memory. Tried to allocate 25.10 GiB (GPU 0; ...", "tried_gib", "capacity_gib") == [
        25.1,
        None,
    ]


def test_index_missing():
    assert values(
        "CUDA out of memory. Tried to allocate 20.39 GiB. GPU  has a total capacity of 22.19 GiB of which 11.72 GiB is free.",
        "capacity_gib",
        "free_gib",
    ) == [22.19, 11.72]


def test_shortened_by_hand():
    assert values(
        "torch.OutOfMemoryError: Tried to allocate 12.60 GiB. GPU had 12.44 GiB free of 79.19",
        "tried_gib",
        "free_gib",
        "capacity_gib",
    ) == [12.6, 12.44, 79.19]


def test_the_only_process_that_holds_what_is_used_is_this_one():
    text = (
        "CUDA out of memory. Tried to allocate 2.10 GiB. GPU 0 has a total capacity of 23.60 GiB of which 1.50 GiB is "
        "free. Process 4711 has {} memory in use."
    )
    assert values(text.format("22.09 GiB"), "process_gib", "other_process_gib") == [22.09, None]
    assert values(text.format("9.00 GiB"), "process_gib", "other_process_gib") == [None, 9.0]


def test_translated_console():
    text = "CUDA 内存不足。尝试分配 108.00 MiB 的内存。GPU 0 的总内存容量为 23.68 GiB，其中空闲内存为 34.88 MiB。进程 1170126 正在使用 2.25 GiB 的内存。"
    assert values(text, "capacity_gib", "other_process_gib") == [23.68, 2.25]


@pytest.mark.parametrize(("backend", "signal"), [("HIP", "hip-oom"), ("XPU", "xpu-oom")])
def test_siblings(backend, signal):
    evidence = read_text(
        f"RuntimeError: {backend} out of memory. Tried to allocate 192.00 GiB. GPU 0 has a total capacity of 15.98 GiB of which 11.56 GiB is free."
    )
    assert evidence.root.signal.name == signal
    assert evidence.root.capacity_bytes == round(15.98 * (1 << 30))


def test_npu():
    text = "RuntimeError: NPU out of memory. Tried to allocate 3.47 GiB (NPU 0; 60.97 GiB total capacity; 58.92 GiB already allocated; 58.92 GiB current active; 1.66 GiB free; 58.95 GiB reserved in total by PyTorch)"
    assert values(text, "capacity_gib", "free_gib", "reserved_gib") == [60.97, 1.66, 58.95]


def test_ranks_interleaved_stay_apart():
    text = "\n".join(
        [
            "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of",
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of",
            "[rank0]: 40.00 GiB of which 1.00 GiB is free.",
            "[rank1]: 80.00 GiB of which 3.00 GiB is free.",
        ]
    )
    failures = read_text(text).failures
    assert [(f.signal.rank, f.requested_bytes >> 30, f.capacity_bytes >> 30, f.free_bytes >> 30) for f in failures] == [
        (0, 1, 40, 1),
        (1, 2, 80, 3),
    ]


def test_mention_in_words_does_not_hide_the_numbers():
    evidence = read_text("I always get CUDA out of memory, please help.\n\n" + OLD)
    assert evidence.root.requested_bytes == round(1.45 * (1 << 30))


@pytest.mark.parametrize(
    "text", ["", "everything is fine", "tried to allocate a GPU on the cluster", "the memory of CUDA is fast"]
)
def test_nothing_failed(text):
    assert read_text(text).root is None


@pytest.mark.parametrize(
    ("cached", "field"), [("0.5 GiB", "reserved_unallocated_bytes"), ("6.1 GiB", "reserved_bytes")]
)
def test_what_early_versions_call_cached(cached: str, field: str) -> None:
    text = f"Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity; 6.00 GiB already allocated; {cached} cached)"
    sizes = clauses(text.replace(" ", ""))
    assert {"reserved_unallocated_bytes", "reserved_bytes"} & sizes.keys() == {field}
