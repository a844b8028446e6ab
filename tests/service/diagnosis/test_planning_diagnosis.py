"""Plans for failures that were read: the cause goes first, the arithmetic follows what really happened."""

from __future__ import annotations

from typing import Any

from oomdoc.diagnosis.engine import diagnose
from oomdoc.diagnosis.planning.calibrate import calibrate
from oomdoc.diagnosis.planning.for_diagnosis import plan_for, planning_for
from oomdoc.diagnosis.planning.planner import plan
from oomdoc.diagnosis.planning.prices import Planning, Prices
from oomdoc.diagnosis.result import CauseFinding, Diagnosis
from oomdoc.diagnosis.run_words import assumed_of
from oomdoc.evidence import Evidence, Failure, Signal, Source, Span
from oomdoc.intake import read, read_text
from oomdoc.report.words import render
from oomkb.memory.job import Assumption, Job
from oomkb.pricing import price
from oomkb.units import GIB

JOB: dict[str, Any] = {
    "framework": "transformers",
    "model": "Qwen/Qwen2.5-7B",
    "objective": "sft",
    "method": "lora",
    "micro_batch": 1,
    "grad_accum": 8,
    "seq_len": 1024,
    "autocast": "bf16",
    "param_dtype": "bf16",
    "grad_ckpt": True,
    "gpu": "A100-80GB",
    "gpus": 1,
    "world": 1,
}


def failure(**sizes_gib: float) -> Failure:
    sizes = {f"{name}_bytes": round(size * GIB) for name, size in sizes_gib.items()}
    return Failure(kind="device", signal=Signal("torch-cuda-oom", Span("log", 1)), **sizes)  # type: ignore[arg-type]


def planned(cause: str, evidence: Evidence | None = None, matched: tuple[str, ...] = (), **changes: Any) -> Planning:
    causes = (CauseFinding(cause, 0.8),)
    return planning_for(evidence or Evidence(), Job.from_document({**JOB, **changes}), causes, matched=matched)


def lines(planning: Planning, number: int = 0) -> str:
    return "\n".join(render(c.instruction, "en") for c in planning.plans[number].changes if c.instruction)


def test_a_leak_is_looked_for_not_computed_away() -> None:
    found = planned("leak", Evidence(failures=(failure(requested=1, process=78, capacity=79.2),)))
    assert [p.name for p in found.plans] == ["cause"]
    assert "item()" in lines(found)


def test_shared_memory_and_look_alikes_get_no_smaller_batch() -> None:
    for cause in ("shared-memory", "not-oom"):
        found = planned(cause, gpu="RTX 3060 12GB")
        assert [p.name for p in found.plans] == ["cause"], cause
        assert all(not c.fields for c in found.plans[0].changes)


def test_other_processes_are_ended_and_counted() -> None:
    evidence = Evidence(failures=(failure(requested=2, capacity=23.6, process=16.0, other_process=6.0, free=1.2),))
    found = planned("other-process", evidence, gpu="RTX 4090", micro_batch=4)
    assert found.plans[0].name == "cause"
    assert "nvidia-smi" in lines(found)


def test_a_known_regression_is_named_with_both_ways_out() -> None:
    job = {"framework": "openrlhf", "sharding": "zero3", "gpus": 8, "world": 8, "versions": {"deepspeed": "0.16.4"}}
    found = planned("version-regression", Evidence(versions={"deepspeed": "0.16.4"}), **job)
    said = lines(found)
    assert "0.16.8" in said
    assert "0.15.0" in said


def test_without_a_version_it_says_what_to_check() -> None:
    case = ("version-regression/deepspeed-016-zero3-gradient-checkpointing",)
    found = planned("version-regression", matched=case, framework="openrlhf", sharding="zero3", gpus=8, world=8)
    assert "pip show deepspeed" in lines(found)


def test_a_job_that_cannot_be_priced_still_gets_steps() -> None:
    found = planning_for(Evidence(), Job(), (CauseFinding("shared-memory", 0.9),))
    assert "--shm-size" in lines(found)
    assert found.plans[0].estimate.phases == {}


def test_without_a_price_settings_are_named_without_figures() -> None:
    job = Job.from_document({"framework": "llama-factory", "micro_batch": 8, "objective": "sft"})
    found = planning_for(Evidence(), job, (CauseFinding("logits", 0.9),))
    assert "per_device_train_batch_size: 8 → 1" in lines(found)
    assert "enable_liger_kernel" in lines(found)
    assert all(not c.fields for c in found.plans[0].changes)


def test_calibration_raises_what_reality_showed_to_be_more() -> None:
    document = Job.from_document({**JOB, "gpu": "RTX 4090"})
    estimate = price(document).estimate
    used = 1.2 * estimate.process_bytes / GIB
    evidence = Evidence(failures=(failure(requested=1.0, process=used, capacity=23.6, free=0.1),))
    found = calibrate(evidence, estimate, 0.9)
    assert found.scale * estimate.process_bytes >= (used + 1.0) * GIB * 0.999
    planning = planning_for(evidence, document, (CauseFinding("activations", 0.8),))
    assert any(n.key == "fixes.note.calibrated" for n in planning.plans[0].notes)
    for one in planning.plans:
        if one.name in ("keep-numerics", "keep-layout", "keep-hardware"):
            assert one.estimate.process_bytes <= 23.7 * GIB


def test_a_failure_that_should_not_have_been_gets_a_plan_and_a_word_about_it() -> None:
    evidence = Evidence(failures=(failure(),))
    found = planned("activations", evidence, gpu="A100-40GB", micro_batch=4, seq_len=2048)
    assert found.plans
    assert any(n.key == "fixes.note.calibrated-unknown" for n in found.plans[0].notes)


def test_a_diagnosis_is_completed() -> None:
    job = Job.from_document({**JOB, "gpu": "RTX 3090", "micro_batch": 8})
    diagnosis = Diagnosis(
        verdict="device-oom", summary=(), evidence=Evidence(), job=job, causes=(CauseFinding("logits", 0.9),)
    )
    done = plan_for(diagnosis)
    assert done.plans
    assert done.singles
    assert done.causes == diagnosis.causes


def said(planning: Planning) -> str:
    return "\n".join(render(note, "en") for plan in planning.plans for note in plan.notes)


def test_evaluation_says_how_many_batches_of_logits_have_room() -> None:
    found = planned("eval", seq_len=2048, micro_batch=4, method="full", optimizer="adafactor")
    # 8 rows x 2,048 tokens x 152,064 words x 4 bytes
    assert "leaves 9.28 GiB of logits" in said(found)
    assert found.plans[0].changes[0].saves_bytes > 0


def test_over_long_samples_are_cut_to_what_fits() -> None:
    found = planned("long-sample", seq_len=65536, grad_ckpt=False, gpu="RTX 4090")
    text = lines(found)
    assert "samples of up to" in said(found)
    longest = int(said(found).split("samples of up to ")[1].split(" ")[0].replace(",", ""))
    assert str(longest) in text
    assert price(Job.from_document({**JOB, "seq_len": longest, "grad_ckpt": False, "gpu": "RTX 4090"})).estimate.fits
    assert "2048" not in text or longest == 2048


def test_saving_in_parts_says_what_is_gathered() -> None:
    found = planned("checkpoint-save", sharding="zero3", gpus=8, world=8, method="full")
    assert "The gathered model is 14.19 GiB at once, a rank's own part 1.77 GiB" in said(found)


def test_memory_of_others_is_what_ending_them_saves() -> None:
    evidence = Evidence(failures=(failure(requested=1, process=40, capacity=79.2, other_process=30),))
    found = planned("other-process", evidence)
    assert found.plans[0].changes[0].saves_bytes == 30 * GIB


def test_what_reality_took_is_room_that_no_plan_has() -> None:
    larger = {"gpu": "A100-40GB", "micro_batch": 4, "seq_len": 2048}
    prices = Prices(Job.from_document({**JOB, **larger}))
    assert prices.base.probability > 0.9
    assert prices.capacity_bytes is not None
    tight = prices.recalibrated(prices.capacity_bytes, 1.04 * prices.capacity_bytes / prices.needed_bytes)
    assert tight.base.probability < 0.5
    evidence = Evidence(failures=(failure(),))
    found = planned("activations", evidence, **larger)
    assert all(p.estimate.process_bytes <= 1.05 * prices.capacity_bytes for p in found.plans)
    assert not all(fix.fits for fix in found.singles)


def test_images_without_a_limit_get_one_first() -> None:
    job = {"framework": "trl", "model": "Qwen/Qwen2.5-VL-3B-Instruct", "images": 1, "seq_len": 2048}
    found = planned("vision-tokens", Evidence(failures=(failure(),)), **job)
    assert "max_pixels=401408" in lines(found)
    limited = planned("vision-tokens", Evidence(failures=(failure(),)), **job, max_pixels=401408)
    assert not limited.plans  # an estimate far from what happened, and nothing to advise


def test_no_setting_is_priced_where_the_estimate_is_far_from_a_failure_without_figures() -> None:
    server = {
        "framework": None,
        "objective": "inference",
        "method": None,
        "model": "Qwen/Qwen3-0.6B",
        "gpu": "A100-80GB",
    }
    assert not planned("logits", Evidence(failures=(failure(),)), **server).plans


def test_a_server_is_spoken_of_in_its_own_keys() -> None:
    server = {
        "framework": "vllm",
        "objective": "inference",
        "method": None,
        "micro_batch": None,
        "model": "Qwen/Qwen2.5-14B",
    }
    found = plan(
        Job.from_document({**{k: v for k, v in {**JOB, **server}.items() if v is not None}, "gpu": "RTX 4090"})
    )
    keys = {f.change.key for f in found.singles} | {c.key for p in found.plans for c in p.changes}
    assert "--tensor-parallel-size" in keys
    assert not keys & {"world", "serving.cuda_graphs"}


def test_an_estimate_far_from_what_happened_decides_nothing() -> None:
    found = planned("activations", Evidence(failures=(failure(),)), gpu="B200", grad_ckpt=False)
    assert [p.name for p in found.plans] == ["cause"]
    assert "fixes.note.too-far" in [n.key for n in found.plans[0].notes]
    assert "gradient_checkpointing" in lines(found)
    assert not found.singles


def test_a_failure_told_in_words_is_one() -> None:
    found = planned("activations", gpu="A100-40GB", micro_batch=4, seq_len=2048)
    assert found.plans
    assert all(p.fits_probability >= 0.9 for p in found.plans)


def test_host_memory_is_no_matter_of_the_gpu() -> None:
    found = planned("host-ram", micro_batch=16, seq_len=8192, grad_ckpt=False)
    assert not any(p.priced for p in found.plans)
    assert not found.singles


def test_a_plan_saves_at_least_what_was_missing() -> None:
    text = (
        "LoRA r=32 of google/gemma-3-12b-it with transformers, batch size 4, max_seq_length 2375, gradient checkpointing, "
        "8x A100 80GB, ddp\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB. GPU 3 has a total "
        "capacity of 79.11 GiB of which 5.42 GiB is free. Including non-PyTorch memory, this process has 73.68 GiB memory in "
        "use. Of the allocated memory 70.90 GiB is allocated by PyTorch, and 1.21 GiB is reserved by PyTorch but unallocated."
    )
    found = diagnose(read_text(text))
    missing = (9.28 - 5.42 - 1.21) * GIB
    assert found.plans
    for made in found.plans:
        if not any(change.instruction for change in made.changes):
            assert found.estimate is not None
            assert found.estimate.allocated_bytes - made.estimate.allocated_bytes > missing


NCCL = """[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=112,
OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.
"""


def test_a_time_out_is_not_debugged_as_an_illegal_access() -> None:
    assert "CUDA_LAUNCH_BLOCKING" not in str(diagnose(read_text(NCCL, "train.log")).plans)


def test_the_highest_rank_says_how_many_processes_there_are() -> None:
    refused = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    found = diagnose(read_text(f"Qwen2.5-7B\n[rank13]: {refused}", "train.log"), plans=False)
    assert (found.job.world, "world" in found.job.assumed) == (16, True)
    stated = diagnose(read_text(f"Qwen2.5-7B, world_size=64\n[rank13]: {refused}", "train.log"), plans=False)
    assert "world" not in stated.job.assumed


def test_gradient_checkpointing_that_is_assumed_off_is_said_to_be_off() -> None:
    off = Job.from_document({**JOB, "grad_ckpt": None}).assuming({"grad_ckpt": Assumption(False, "default")})
    assert [render(m, "en") for m in assumed_of(off)] == ["gradient checkpointing off"]


def test_a_server_without_a_stated_length_is_offered_a_shorter_one() -> None:
    text = """$ llama-server -m Qwen2.5-32B-Instruct-Q4_K_M.gguf -ngl 99
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory
NVIDIA GeForce RTX 4090, 24564 MiB"""
    found = diagnose(read_text(text, "server.log"))
    assert "--ctx-size" in str(found.plans) or "-c " in str(found.plans)


def test_pretraining_is_not_asked_whether_it_trains_adapters() -> None:
    text = "Megatron pretrain_gpt.py, 8 H100\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."
    job = {"objective": "pretrain", "model": "Qwen/Qwen2.5-7B", "gpu": "H100-80GB", "gpus": 8}
    found = diagnose(read([Source("log", text)], job), plans=False)
    assert "method" not in {q.fact for q in found.questions}


GRPO = """accelerate launch --num_processes 4 grpo_train.py   # trl 0.17.0, 4x A100 80GB
args = GRPOConfig(per_device_train_batch_size=8, num_generations=8, max_prompt_length=1024, max_completion_length=4096,
    bf16=True, use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=0.4)
trainer = GRPOTrainer(model="Qwen/Qwen2.5-7B-Instruct", args=args, train_dataset=ds)
  3%|▎         | 61/2000 [42:10<22:30:11, 41.7s/it]
[rank2]:   File "/x/trl/trainer/grpo_trainer.py", line 1210, in _get_per_token_logps
[rank2]:     logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=logits_to_keep + 1).logits
[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.57 GiB. GPU 2 has a total capacity of 79.15 GiB
of which 9.31 GiB is free. Of the allocated memory 64.21 GiB is allocated by PyTorch
"""


def test_beside_an_engine_too_the_figures_say_what_was_not_stated() -> None:
    """Replicated and without checkpointing it would hold 528 GiB where the log shows 83."""
    found = diagnose(read_text(GRPO, "train.log"), plans=False)
    assert {"grad_ckpt", "sharding"} <= {i.field for i in found.inferred}
    assert found.estimate is not None
    assert found.estimate.process_bytes < 130 * GIB
    assert found.tensors[0].shape == (8 * 4097, 152_064)


def test_where_nothing_fits_the_answer_says_so_and_what_would_do() -> None:
    text = """8x Ascend 910B 64G, MindSpeed-LLM, Qwen2.5-32B, tp8 pp1, micro-batch-size 1, seq-length 8192, no recompute
RuntimeError: NPU out of memory. Tried to allocate 1.16 GiB (NPU 3; 60.96 GiB total capacity; 58.71 GiB already allocated)
"""
    found = diagnose(read_text(text, "train.log"))
    assert found.nothing_fits is not None
    assert "16 × Ascend 910B" in render(found.nothing_fits, "en")
    assert found.job.param_dtype == "bf16"


def test_scores_that_run_out_are_answered_by_the_fused_kernel_in_every_plan() -> None:
    changes = {"attention": "eager", "micro_batch": 4, "seq_len": 8192, "gpu": "RTX 4090", "grad_ckpt": False}
    found = planned(
        "attention-scores", Evidence(failures=(failure(requested=16, allocated=20, capacity=23.6),)), **changes
    )
    assert found.plans
    assert all("attention" in {n for c in plan.changes for n in c.fields} for plan in found.plans)
