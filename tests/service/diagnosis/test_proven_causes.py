"""Causes that printed figures prove, the bound of an engine's own figures, and sizes that work beside those that fail."""

from __future__ import annotations

from types import MappingProxyType

import pytest

import oomdoc
from oomdoc.diagnosis.engine import diagnose
from oomdoc.diagnosis.planning.prices import Prices
from oomdoc.diagnosis.planning.printed import EngineCache
from oomdoc.diagnosis.planning.space import Stacked, Surrogate
from oomdoc.intake.read import read_text
from oomkb.memory.job import Job

_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 79.15 GiB of"
    " which 112.00 MiB is free. Including non-PyTorch memory, this process has 79.03 GiB memory in use. Of the allocated"
    " memory 77.90 GiB is allocated by PyTorch, and 411.20 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(("sizes", "leak"), [((31, 41, 51, 61, 71), True), ((31, 60, 61, 61.5, 71), False)])
def test_what_grows_evenly_is_kept(sizes: tuple[float, ...], leak: bool) -> None:
    steps = "\n".join(f"step {100 * n} loss 2.0 mem allocated {s:.2f} GiB" for n, s in enumerate(sizes, 1))
    found = diagnose(read_text(f"{steps}\n{_OOM}"), plans=False)
    proven = any(m.key == "account.grown" for c in found.causes for m in c.why)
    assert proven is leak
    assert not leak or found.causes[0].cause == "leak"
    assert sum(c.probability for c in found.causes) <= 1.0001


@pytest.mark.parametrize(
    ("text", "works", "fails"),
    [
        ("With per_device_train_batch_size=2 it runs and nvidia-smi shows 71 GB. At 4 it dies with OOM.", 2, 4),
        ("Batch size 4 works (nvidia-smi says 13.9 GB) but with 8 I get CUDA out of memory.", 4, 8),
        ("It crashes at batch size 16, batch size 8 is fine.", 8, 16),
        ("Batch size 4 works.", 4, None),
    ],
)
def test_sizes_that_work_and_fail(text: str, works: int, fails: int | None) -> None:
    evidence = read_text(f"Fine-tuning a model. {text} torch.OutOfMemoryError: CUDA out of memory.")
    signal = next(evidence.find("worked-at"))
    assert signal.data["value"] == works
    if fails is not None:
        assert evidence.facts["micro_batch"].value == fails


def test_no_plan_promises_more_than_the_engine_found() -> None:
    job = Job.from_document(
        {
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "objective": "inference",
            "gpu": "RTX 4090",
            "serving": {"gpu_memory_utilization": 0.85, "max_model_len": 131072},
        }
    )
    gib = float(1 << 30)
    found = EngineCache(3.62 * gib, 16.0 * gib, 131072, job, 23.5 * gib)
    assert found.refuses(job)
    assert found.refuses(job.with_fields({"serving.max_model_len": 32768}))
    assert not found.refuses(job.with_fields({"serving.max_model_len": 29440}))
    more = {"serving.max_model_len": 45056, "serving.gpu_memory_utilization": 0.95}
    assert not found.refuses(job.with_fields(more))
    assert found.refuses(job.with_fields({**more, "serving.max_model_len": 65536}))
    assert not found.refuses(job.with_fields({"tp": 2}))


def test_many_moves_at_once_are_what_each_is_alone() -> None:
    prices = Prices(Job.from_document({"model": "Qwen2.5-7B", "method": "lora", "gpu": "RTX 4090", "micro_batch": 8}))
    surrogate = Surrogate(prices.base.estimate)
    changes = ({"micro_batch": 4}, {"micro_batch": 1}, {"grad_ckpt": True}, {"fused_ce": True}, {"seq_len": 512})
    prices_of = [prices.of(MappingProxyType(fields)) for fields in changes]
    effects = [surrogate.effect(price.estimate) for price in prices_of if price is not None]
    stacked = Stacked(surrogate, effects)
    alone = stacked.process_bytes([[place, -1] for place in range(len(changes))])
    for need, price in zip(alone, prices_of, strict=True):
        assert price is not None
        assert need == pytest.approx(price.estimate.process_bytes, rel=0.05)
    (joint,) = stacked.process_bytes([[0, 2]])
    assert joint <= min(alone[0], alone[2])


@pytest.mark.parametrize("share", [0.3, 0.5, 0.6])
@pytest.mark.parametrize("own", [40123, 77])
def test_the_engine_of_a_run_is_no_strangers_process(share: float, own: int) -> None:
    held = 79.25 * share + 0.7
    rest = 79.25 - held - 2.0
    text = (
        "openrlhf.cli.train_ppo_ray --pretrain meta-llama/Meta-Llama-3-8B-Instruct --colocate_all_models "
        f"--vllm_gpu_memory_utilization {share} --vllm_num_engines 2 --micro_train_batch_size 4\n"
        f"(PolicyModelActor pid={own}) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 0 has a "
        f"total capacity of 79.25 GiB of which 2.00 GiB is free. Process {own} has {rest:.2f} GiB memory in use. "
        f"Process 40999 has {held:.2f} GiB memory in use."
    )
    evidence = read_text(text)
    assert evidence.root is not None
    assert evidence.root.other_process_bytes == pytest.approx(held * 2**30, rel=0.001)
    assert diagnose(evidence).causes[0].cause == "rollout-engine"


def test_a_cache_that_is_being_allocated_means_that_the_weights_are_there() -> None:
    """The frames are those of vLLM 0.11 ``v1/worker/gpu_model_runner.py``."""
    text = """vllm serve meta-llama/Llama-3.3-70B-Instruct on an H100
  File "/opt/vllm/v1/worker/gpu_model_runner.py", line 4001, in initialize_kv_cache_tensors
    kv_cache_raw_tensors = self._allocate_kv_cache_tensors(kv_cache_config)
  File "/opt/vllm/v1/worker/gpu_model_runner.py", line 3950, in _allocate_kv_cache_tensors
    tensor = torch.zeros(kv_cache_tensor.size, dtype=torch.int8, device=self.device)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has a total capacity of 79.19 GiB of
which 0.9 GiB is free. Of the allocated memory 70.20 GiB is allocated by PyTorch
"""
    assert oomdoc.diagnose(text).document()["causes"][0]["cause"] == "kv-cache"


def test_no_fragmentation_where_all_free_room_is_too_little() -> None:
    text = """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True did not help, why?
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 23.51 GiB of
which 6.00 GiB is free. Including non-PyTorch memory, this process has 17.20 GiB memory in use. Of the allocated memory
16.10 GiB is allocated by PyTorch, and 600.00 MiB is reserved by PyTorch but unallocated.
"""
    assert oomdoc.diagnose(text).document()["causes"][0]["cause"] != "fragmentation"


def test_what_nvidia_smi_lists_is_named() -> None:
    text = """ValueError: Free memory on device (3.10/23.64 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB).
|    0   N/A  N/A            1893      G   /usr/lib/xorg/Xorg                       142MiB |
|    0   N/A  N/A           77001      C   /usr/bin/python3                       19000MiB |
"""
    report = oomdoc.diagnose(text).text()
    assert "python3 (PID 77001, 18.55 GiB)" in report
    assert "kill 77001" in report
    assert "Xorg" not in report


_HELD = "CUDA out of memory. Tried to allocate {wanted} GiB. GPU 0 has a total capacity of 79.10 GiB of which {free} GiB is free. "


def test_no_fragmentation_where_the_card_has_room() -> None:
    text = _HELD.format(wanted="0.80", free="31.20") + (
        "Of the allocated memory 30.10 GiB is allocated by PyTorch, and 9.20 GiB is reserved by PyTorch but unallocated."
    )
    found = diagnose(read_text(f"torch.OutOfMemoryError: {text}"), plans=False)
    assert next(c.probability for c in found.causes if c.cause == "fragmentation") == 0


@pytest.mark.parametrize(
    ("others", "kept"), [("12.41", True), ("33.00", True), ("0.60", False)], ids=["a-part", "much", "a-desktop"]
)
def test_another_process_that_takes_the_room_comes_first(others: str, kept: bool) -> None:
    own = f"{79.10 - 1.18 - float(others):.2f}"
    text = _HELD.format(wanted="1.50", free="1.18") + (
        f"Process 41822 has {others} GiB memory in use. Including non-PyTorch memory, this process has {own} GiB memory "
        f"in use. Of the allocated memory {float(own) - 3:.2f} GiB is allocated by PyTorch."
    )
    found = diagnose(read_text(f"LoRA of Llama-3.1-8B\ntorch.OutOfMemoryError: {text}"), plans=False)
    assert any(m.key == "account.others" for m in found.causes[0].why) is kept


@pytest.mark.parametrize(
    ("run", "proven"),
    [
        ("Full fine-tuning of meta-llama/Llama-3.1-8B in bf16 on one RTX 4090, paged_adamw_8bit, batch 1.", True),
        ("Full fine-tuning of Qwen2.5-7B on one RTX 4090 with Adafactor and batch size 1.", True),
        ("LoRA of meta-llama/Llama-3.1-8B in bf16 on one RTX 4090, batch 1.", False),
        ("Full fine-tuning of Qwen2.5-3B on one RTX 4090 with Adafactor and batch size 1.", False),
    ],
)
def test_weights_and_gradients_that_are_more_than_the_card(run: str, proven: bool) -> None:
    text = (
        f"{run}\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a "
        "total capacity of 23.99 GiB of which 0 bytes is free. Of the allocated memory 22.41 GiB is allocated by PyTorch."
    )
    found = diagnose(read_text(text), plans=False)
    assert any(m.key == "account.states-alone" for c in found.causes for m in c.why) is proven
    assert not proven or found.causes[0].cause == "model-states"


_SHARE = """python -m sglang.launch_server --model-path Qwen/Qwen2.5-14B-Instruct --mem-fraction-static 0.5
[2025-05-02 09:11:17] Load weight begin. avail mem=47.10 GB
[2025-05-02 09:11:28] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=19.40 GB, mem usage=27.70 GB.
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
"""
_FROZEN = (
    "LoRA of mistralai/Mistral-Nemo-Base-2407 in bf16 on an RTX 4090, batch 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to"
    " allocate 98.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 40.00 MiB is free. Of the allocated memory 23.02"
    " GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch but unallocated."
)
_SPREAD = """python -m sglang.launch_server --model-path Qwen/Qwen2.5-32B-Instruct --tp 2
2x RTX 4090 (24GB each)
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
"""


@pytest.mark.parametrize(
    ("text", "cause", "account"),
    [
        (_SHARE, "kv-cache", "share-below-weights"),
        (_FROZEN, "model-states", "frozen-alone"),
        (_SPREAD, "weights-load", "weights-alone"),
    ],
)
def test_the_sum_that_decides_comes_first(text: str, cause: str, account: str) -> None:
    first = diagnose(read_text(text), plans=False).causes[0]
    assert (first.cause, first.why[0].key) == (cause, f"account.{account}")


def test_states_that_are_being_made_were_not_there_before() -> None:
    text = (
        "one A100 80GB, batch size 1, seq 512\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\n'
        'args = TrainingArguments("out", per_device_train_batch_size=1, bf16=True, gradient_checkpointing=True)\n'
        '  File "/x/torch/optim/adamw.py", line 227, in step\n    has_complex = self._init_group(\n'
        '  File "/x/torch/optim/adamw.py", line 175, in _init_group\n    state["exp_avg_sq"] = torch.zeros_like(\n'
    )
    found = diagnose(read_text(text + _OOM), plans=False)
    assert [i.value for i in found.inferred if i.field == "param_dtype"] == ["fp32"]


@pytest.mark.parametrize(
    ("text", "account", "line"),
    [
        (
            "ComfyUI with flux1-dev on an RTX 3060 12GB: torch.OutOfMemoryError: Allocation on device",
            "alone",
            "--lowvram",
        ),
        (
            "python sdxl_train_network.py --pretrained_model_name_or_path=sdxl.safetensors --train_batch_size=2 "
            "--mixed_precision=fp16 --network_module=networks.lora\nRTX 3070 8GB\ntorch.OutOfMemoryError: CUDA out of memory.",
            "beside",
            "gradient_checkpointing",
        ),
    ],
)
def test_a_pipeline_is_weighed_by_its_parts(text: str, account: str, line: str) -> None:
    found = diagnose(read_text(text))
    assert found.causes[0].why[0].key == f"account.pipeline-{account}"
    assert any(line in str(c.instruction) for c in found.plans[0].changes)


def test_fsdp_that_gathers_the_whole_model_lacks_its_units() -> None:
    text = (
        "FSDP full fine-tune of Llama-2-13b, 4 x A100-SXM4-40GB\n\nTraceback (most recent call last):\n"
        '  File "/opt/torch/distributed/fsdp/_runtime_utils.py", line 336, in _unshard\n    handle.unshard()\n'
        '  File "/opt/torch/distributed/fsdp/flat_param.py", line 1233, in unshard\n'
        "    unsharded_flat_param = self._alloc_padded_unsharded_flat_param()\n"
        '  File "/opt/torch/distributed/fsdp/flat_param.py", line 1260, in _alloc_padded_unsharded_flat_param\n'
        "    _alloc_storage(unsharded_flat_param, flat_param._padded_unsharded_size)\n"
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB. GPU 2 has a total capacity of 39.39 GiB "
        "of which 0.10 GiB is free. Of the allocated memory 18.20 GiB is allocated by PyTorch."
    )
    whole = oomdoc.diagnose(text.replace("{}", "24.24")).document()
    assert whole["causes"][0]["cause"] == "zero3-gather"
    assert "auto_wrap_policy" in str(whole["plans"][0]["changes"])
    layer = oomdoc.diagnose(text.replace("{}", "0.59")).document()
    assert "auto_wrap_policy" not in str(layer["plans"])


@pytest.mark.parametrize(("to", "account"), [("the CPU", "host-offload"), ("NVMe", "host-load")])
def test_what_is_offloaded_beyond_the_machine_comes_before_what_is_loaded(to: str, account: str) -> None:
    text = (
        "Full fine-tune of Qwen2.5-32B with transformers on 8 x A100 80GB, the machine has 256 GB of RAM.\n"
        f"ZeRO-3, offloading parameters and optimizer to {to}.\n"
        "Loading checkpoint shards:  35%|███▌      | 6/17 [00:50<01:30,  8.2s/it]\nexits with return code = -9\n"
    )
    first = diagnose(read_text(text), plans=False).causes[0]
    assert (first.cause, first.why[0].key) == ("host-ram", f"account.{account}")


def test_a_small_request_beside_states_that_fill_the_card_proves_nothing() -> None:
    text = (
        "Full fine-tuning of Qwen2.5-14B, 8 x Ascend 910B (64GB), DeepSpeed ZeRO-2, bf16, batch size 1, cutoff_len 2048\n"
        "RuntimeError: NPU out of memory. Tried to allocate 1.16 GiB (NPU 0; 60.97 GiB total capacity; 58.20 GiB already"
        " allocated; 780.12 MiB free; 59.50 GiB reserved in total by PyTorch)"
    )
    first = diagnose(read_text(text), plans=False).causes[0]
    assert (first.cause, first.is_proven) == ("model-states", False)
