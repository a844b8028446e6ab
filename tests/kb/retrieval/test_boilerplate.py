"""Allocator messages without what every one of them says."""

import pytest

from oomkb.retrieval.text import telling

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of 23.64 GiB of which"
    " 41.81 MiB is free. {process}Of the allocated memory 20.87 GiB is allocated by PyTorch, and {cached} is reserved by"
    " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management"
    "  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 7.20 GiB already"
    " allocated; 13.56 MiB free; {cached} reserved in total by PyTorch) If reserved memory is >> allocated memory try"
    " setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
OWN = "Including non-PyTorch memory, this process has 23.59 GiB memory in use. "


def message(tried="2.32 GiB", cached="104.54 MiB", process=OWN):
    return MESSAGE.format(tried=tried, cached=cached, process=process)


def test_an_ordinary_message_keeps_its_failure_and_loses_the_rest():
    kept = telling("before\n" + message() + "\nafter")
    assert "Tried to allocate 2.32 GiB" in kept
    assert "before" in kept
    assert kept.endswith("after")
    for word in ("fragmentation", "expandable_segments", "unallocated", "this process has", "documentation"):
        assert word not in kept, word


def test_the_older_wording_too():
    kept = telling(OLD.format(cached="7.21 GiB"))
    assert "fragmentation" not in kept
    assert "PYTORCH_CUDA_ALLOC_CONF" not in kept
    assert "7.20 GiB already allocated" in kept
    assert "reserved in total" not in kept
    assert "reserved in total" in telling(OLD.format(cached="7.90 GiB"))


def test_a_large_cache_is_a_symptom():
    assert "9.80 GiB is reserved by PyTorch but unallocated" in telling(message(tried="1.20 GiB", cached="9.80 GiB"))


@pytest.mark.parametrize(("held", "stays"), [("71.20 GiB", True), ("22.90 GiB", False)])
def test_a_process_stays_where_it_is_somebody_elses(held, stays):
    assert (held in telling(message(process=f"Process 4821 has {held} memory in use. "))) is stays


@pytest.mark.parametrize(
    "text", ["", "why does it say reserved by pytorch but unallocated", "it says Process 7 has 70 GiB"]
)
def test_a_persons_own_words_stay(text):
    assert telling(text) == text
