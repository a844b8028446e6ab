"""The events of a training run: the most that is alive is the estimate's figure, and replays behave as allocators do."""

import json
import pickle
from pathlib import Path

import pytest

from oomkb.errors import JobError
from oomkb.memory.allocator.events import ALLOC, FREE
from oomkb.memory.allocator.run import replayed_job
from oomkb.memory.allocator.snapshot import snapshot, write_snapshot
from oomkb.memory.allocator.training import lengths, training_events
from oomkb.memory.job import Job
from oomkb.memory.setting import resolve_setting
from oomkb.pricing import extra_model_shapes, price
from oomkb.units import GIB, MIB

SMALL = {"model": "Qwen/Qwen2.5-0.5B", "micro_batch": 2, "seq_len": 512, "framework": "transformers", "packing": True}
SHARDED = {"world": 8, "dp": 8, "param_dtype": "fp32", "fsdp": {"param_dtype": "bf16", "reduce_dtype": "fp32"}}
RUNS = {
    "full": {},
    "full, checkpointed": {"grad_ckpt": True, "param_dtype": "fp32", "autocast": "bf16"},
    "full, eager": {"attention": "eager", "packing": False, "micro_batch": 1},
    "lora": {"method": "lora", "lora": {"r": 16}, "grad_ckpt": True},
    "qlora": {"method": "qlora", "quant": "nf4", "lora": {"r": 16}, "autocast": "bf16"},
    "accumulated": {"grad_accum": 4},
    "fused loss": {"fused_ce": True, "grad_ckpt": True},
    "sgd": {"optimizer": "sgd"},
    "dpo": {"objective": "dpo", "method": "lora", "lora": {"r": 16}},
    "fsdp2": {"sharding": "fsdp2", **SHARDED, "reshard_after_forward": True},
    "fsdp2, kept": {"sharding": "fsdp2", **SHARDED, "reshard_after_forward": False, "grad_ckpt": True},
    "moe": {"model": "Qwen/Qwen1.5-MoE-A2.7B", "method": "lora", "lora": {"r": 8}, "grad_ckpt": True},
}


def events_of(document):
    priced = price(Job.from_document(document))
    recorder = training_events(priced.job, priced.shape, priced.device, shapes=extra_model_shapes(priced.job))
    return priced, recorder.events


def most_alive(events):
    sizes, alive, most = {}, 0, 0
    for event in events:
        if event.what == ALLOC and event.name != "cuBLAS workspace":
            sizes[event.number] = event.size
            alive += event.size
            most = max(most, alive)
        elif event.what == FREE:
            alive -= sizes.pop(event.number, 0)
    return most


@pytest.mark.parametrize("name", sorted(RUNS))
def test_the_most_that_is_alive_is_the_estimate(name):
    priced, events = events_of({**SMALL, **RUNS[name]})
    assert most_alive(events) == pytest.approx(priced.estimate.allocated_bytes, rel=0.004 if name == "dpo" else 0.001)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_what_is_freed_was_allocated_once(name):
    _, events = events_of({**SMALL, **RUNS[name]})
    alive = set()
    for event in events:
        if event.what == ALLOC:
            assert event.size > 0
            assert event.number not in alive
            alive.add(event.number)
        elif event.what == FREE:
            alive.remove(event.number)


def test_traced_steps_are_met():
    """Some of the traced steps of ``data/traces.jsonl``: against the trace itself."""
    path = Path(__file__).parent / "data" / "traces.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows[::25]:
        _, events = events_of(row["job"])
        assert most_alive(events) == pytest.approx(row["measured"]["allocated_gib"] * GIB, rel=0.005), row["id"]


def run_of(document, **more):
    priced = price(Job.from_document({**SMALL, **document}))
    return replayed_job(priced.job, priced.shape, priced.device, shapes=extra_model_shapes(priced.job), **more)


def test_reserved_lies_above_allocated_and_expandable_segments_bring_it_down():
    plain = run_of({})
    joined = run_of({"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}})
    assert plain.held is None
    assert plain.shown.reserved > plain.shown.allocated > plain.shown.requested
    assert joined.shown.allocated == pytest.approx(plain.shown.allocated, rel=0.02)  # blocks that are split to the end
    assert joined.shown.reserved < plain.shown.reserved


def test_a_card_that_is_too_small_is_named_with_the_tensor_and_the_step():
    run = run_of({"capacity_gib": 6.0})
    assert run.held is not None
    assert run.held.refused is not None
    assert run.held.reserved <= run.capacity < 6 * GIB
    assert run.free.reserved > run.held.reserved
    assert run.held.refused.where.startswith("step")
    assert run.joined is not None


def test_lengths_change_only_where_batches_are_padded():
    packed = resolve_setting(*job_and_shape({}))
    assert lengths(packed, 5) == [512] * 5
    padded = resolve_setting(*job_and_shape({"packing": False}))
    drawn = lengths(padded, 40)
    assert drawn == lengths(padded, 40)
    assert max(drawn) == drawn[3] == 512
    assert min(drawn) >= 512 // 16
    assert len(set(drawn)) > 20


def job_and_shape(document):
    priced = price(Job.from_document({**SMALL, **document}))
    return priced.job, priced.shape


@pytest.mark.parametrize("document", [{"objective": "inference"}, {"env": {"PYTORCH_CUDA_ALLOC_CONF": "x:1"}}])
def test_what_is_not_replayed_is_refused(document):
    with pytest.raises(JobError):
        run_of(document)


def test_a_snapshot_is_read_by_pytorchs_own_viewer(tmp_path):
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    run = run_of({"capacity_gib": 30.0}, steps=1)
    path = tmp_path / "run.pickle"
    write_snapshot(run.shown.allocator, path)
    found = pickle.loads(path.read_bytes())
    allocator = run.shown.allocator
    assert sum(segment["total_size"] for segment in found["segments"]) == allocator.reserved
    assert sum(segment["allocated_size"] for segment in found["segments"]) == allocator.allocated
    for segment in found["segments"]:
        assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
    assert "GiB" in viewer.segsum(found)
    assert "cudaMalloc" in viewer.trace(found)
    assert viewer.trace_plot(found).startswith("\n<!DOCTYPE html>")
    assert "layer 0" in viewer.memory(found, lambda text: text) or "weights" in viewer.memory(found, lambda text: text)


def test_a_snapshots_history_gives_the_same_allocator_again():
    run = run_of({"capacity_gib": 30.0}, steps=1)
    history = snapshot(run.shown.allocator)["device_traces"][0]
    reserved = allocated = 0
    sizes = {}
    for entry in history:
        if entry["action"] == "segment_alloc":
            reserved += entry["size"]
        elif entry["action"] == "segment_free":
            reserved -= entry["size"]
        elif entry["action"] == "alloc":
            sizes[entry["addr"]] = entry["size"]
            allocated += entry["size"]
        elif entry["action"] == "free_completed":
            allocated -= sizes.pop(entry["addr"])
    assert reserved == run.shown.allocator.reserved
    assert allocated == run.shown.allocator.requested
    assert reserved % (2 * MIB) == 0
