"""What was in effect when a run failed: its phase, its settings, its card; and what people say that was not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import oomdoc
from oomdoc.diagnosis.planning.planner import plan
from oomdoc.diagnosis.result import Diagnosis
from oomdoc.intake import read_text
from oomkb.catalog import gpus
from oomkb.memory.job import Job
from oomkb.pricing import shape_of

ACTOR = """GRPO with verl 0.4 on 8xA100-80G, Qwen2.5-14B-Instruct, FSDP, OOM in update_actor after the second rollout.

actor_rollout_ref.rollout.gpu_memory_utilization=0.6
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8
data.max_prompt_length=1024
data.max_response_length=4096
actor_rollout_ref.rollout.n=8
actor_rollout_ref.model.enable_gradient_checkpointing=True

  File "verl/workers/fsdp_workers.py", line 560, in update_actor
    metrics = self.actor.update_policy(data=data)
  File "verl/workers/actor/dp_actor.py", line 430, in update_policy
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 11.59 GiB. GPU 0 has a total capacity of 79.15 GiB of \
which 6.21 GiB is free. Process 2211 has 72.93 GiB memory in use. Of the allocated memory 66.03 GiB is allocated by \
PyTorch, and 4.7 GiB is reserved by PyTorch but unallocated.
"""


def _diagnosed(text: str) -> Diagnosis:
    return oomdoc.diagnose(text).diagnosis


def test_an_engine_that_sleeps_when_the_actor_fails_is_not_its_cause() -> None:
    """By the estimate the engine holds 47 GiB while it generates and 0.4 in backward: logits are the third of that."""
    found = _diagnosed(ACTOR)
    first = found.causes[0]
    assert first.cause == "logits"
    names = {one.feature.name for cause in found.causes for one in cause.contributions}
    assert "engine:asleep-when-it-failed" in names
    assert any(message.key == "cause.phase-share" for message in first.why)


def test_a_plan_is_of_the_phase_that_failed() -> None:
    """The rollout went well before, so its peak bounds no plan: half the micro-batch is enough, and saves there."""
    change = next(c for c in _diagnosed(ACTOR).plans[0].changes if "micro_batch" in c.fields)
    assert (change.old, change.new) == (8, 4)
    assert change.saves_bytes > 10 << 30


def test_a_patch_of_pasted_settings_stands_at_their_line(tmp_path: Path) -> None:
    patch = _diagnosed(ACTOR).plans[0].patch
    (tmp_path / "input").write_text(ACTOR, "utf-8")
    subprocess.run(["git", "apply", "-"], input=patch, text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "input").read_text("utf-8") == ACTOR.replace("per_gpu=8", "per_gpu=4")


def test_settings_a_line_are_one_configuration() -> None:
    evidence = read_text(ACTOR)
    assert len(evidence.documents) == 1
    assert evidence.value("prompt_len") == 1024


def test_a_setting_that_cannot_be_passed_is_not_in_effect() -> None:
    text = (
        "I start it with\n\npython -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-2-70b-hf\n\n"
        "and get an OOM. My node has 8 A100-40Gs; I write no program, so I can't pass `tensor_parallel_size=8`."
    )
    found = _diagnosed(text)
    assert found.causes[0].cause == "weights-load"
    assert found.plans[0].changes[0].key == "--tensor-parallel-size"


def test_states_of_an_unknown_stage_are_sharded() -> None:
    text = (
        "llama-7b full fine-tuning with deepspeed on 4x A100 80GB, max_seq_length=2048 and "
        "per_device_train_batch_size=2, it is CUDA OOM all the time."
    )
    job = _diagnosed(text).job
    assert job.sharding == "zero3"
    assert "sharding" in job.assumed


def test_the_smaller_card_of_a_name_failed_where_the_larger_would_not() -> None:
    found = _diagnosed("LoRA of Llama-2-13b on an A100, batch 1, 2048 tokens: CUDA out of memory")
    assert found.job.capacity_gib == pytest.approx(39.4, abs=0.2)
    assert found.inferred[0].why.key == "inferred.smaller-card"


def test_an_engine_that_fails_while_it_loads_little_asks_what_holds_the_card() -> None:
    text = (
        "vllm serve Qwen/Qwen2.5-7B-Instruct on one H100 80GB is out of memory at once:\n"
        '  File "vllm/model_executor/layers/linear.py", line 81, in create_weights\n'
        "    weight = Parameter(torch.empty(output_size_per_partition,\n"
        "torch.OutOfMemoryError: CUDA out of memory."
    )
    changes = [change for plan in _diagnosed(text).plans for change in plan.changes]
    assert changes
    assert {change.remedy for change in changes} == {"kill-processes"}


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("Any chance to run a 34b model without 8bit quantization on 3x4090?", "quant", (None, "none")),
        ("How much memory to serve Qwen2.5-7B-Instruct-GPTQ-Int8 with vllm, context 3072?", "quant", ("gptq-int8",)),
        ("koboldcpp --model MLewd-ReMM-L2-Chat-20B.q4_K_S.gguf, how much VRAM?", "gpu", (None,)),
        ("How much host RAM do I need to LoRA a 10B on one 3090?", "method", ("lora",)),
    ],
)
def test_words_of_a_question(text: str, field: str, value: tuple[object, ...]) -> None:
    assert _diagnosed(text).job.get(field) in value


def test_what_an_engine_takes_at_most_is_no_number_of_requests() -> None:
    text = (
        "48GB card, loading internlm-chat-20b: {'max_num_seqs': 256, 'gpu_memory_utilization': 0.9, "
        "'max_model_len': 4096, 'tensor_parallel_size': 1}, dtype=torch.bfloat16. Does it fit with vllm?"
    )
    estimate = _diagnosed(text).estimate
    assert estimate is not None
    assert (estimate.needed_bytes or 0) < 60 << 30


def test_memory_of_all_cards_that_nobody_counts_is_no_card_s() -> None:
    evidence = read_text("The demo goes OOM although I have 96Gb of GPU memory altogether.")
    assert evidence.value("capacity_gib") is None


@pytest.mark.parametrize(
    "text",
    [
        "Training is OOMed in no time (CPU memory, not GPU memory).",
        "Loading the 7B in 4bit I always get an out-of-RAM error.",
        "Cannot allocate RAM when loading 4-bit llama-7b",
    ],
)
def test_the_machine_s_memory_is_told_from_the_card_s(text: str) -> None:
    assert _diagnosed(text).verdict == "host-oom"


def test_a_chat_that_gets_longer_fills_its_cache() -> None:
    found = _diagnosed("多轮对话的 demo，显存从 15G 一路涨到 24G，最后 torch.cuda.OutOfMemoryError: CUDA out of memory")
    assert found.causes[0].cause == "kv-cache"
    assert any(change.instruction and "history" in change.instruction.key for change in found.plans[0].changes)


def test_what_somebody_works_out_is_nothing_measured() -> None:
    evidence = read_text("1000 examples of max_length 512 already take 1000 * 512 * 30522 / 1024^3 > 14 Gb.")
    assert not list(evidence.find("worked-at"))


def test_a_longer_context_in_a_model_s_name() -> None:
    assert shape_of(Job(model="chatglm3-6b-128k")).dims.max_positions == 131_072
    assert shape_of(Job(model="Yi-34B-200K")).dims.max_positions == 200_000


def test_cards_in_the_plural_with_their_size() -> None:
    assert [(m.device.name, m.count) for m in gpus.find_all("my node has 8 A100-40Gs")] == [("A100-SXM4-40GB", 8)]


OFFLOADED = (
    "verl GRPO of Qwen2.5-32B on one node of 8x H100, 512 GB of RAM, {said}. The node's OOM killer ended step 3."
)


@pytest.mark.parametrize(
    ("said", "offload"),
    [
        ("param_offload=True and optimizer_offload=True for the actor", {"param", "optimizer"}),
        ("I set param_offload and optimizer_offload to True", {"param", "optimizer"}),
        ("optimizer_offload=True, param_offload=False", {"optimizer"}),
        ("ref.fsdp_config.param_offload=True", set()),
    ],
)
def test_what_sentences_say_is_offloaded(said: str, offload: set[str]) -> None:
    assert set(read_text(OFFLOADED.format(said=said)).value("offload") or ()) == offload


def test_an_engine_s_split_is_not_the_actor_s() -> None:
    evidence = read_text("verl GRPO of Qwen2.5-32B on 8x H100, rollout TP=4. CUDA out of memory")
    assert evidence.value("rollout.tensor_parallel") == 4
    assert evidence.value("tp") is None
    assert evidence.value("gpu_count") == 8


def test_a_message_that_somebody_shortened() -> None:
    failure = read_text("OOM at step 0: tried to allocate 7.83 GiB.").failures[0]
    assert failure.requested_bytes == round(7.83 * 2**30)


def test_what_somebody_leaves_as_it_is_does_not_hang() -> None:
    assert not read_text("内存能加到 2T，这样够了吧？别的我就不动了").failures
    assert read_text("跑到第三步就不动了，没报错").failures


LOADED_IN_8_BITS = """Colab T4. Does max_seq_length 512 help?

```python
model = AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen3-14B",
    quantization_config=BitsAndBytesConfig(load_in_8bit=True),
    device_map="auto",
    torch_dtype=torch.float16,
)
```

ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized \
model.
"""


def test_four_bits_where_eight_do_not_fit() -> None:
    found = _diagnosed(LOADED_IN_8_BITS)
    assert found.causes[0].cause == "weights-load"
    assert found.plans[0].job.quant == "nf4"


def test_four_bits_of_a_base_that_adapters_train_on() -> None:
    job = Job.from_document(
        {"model": "Qwen/Qwen3-14B", "method": "lora", "quant": "int8", "gpu": "T4", "micro_batch": 1, "seq_len": 512}
        | {"framework": "axolotl", "grad_ckpt": True, "attention": "sdpa", "optimizer": "adamw_8bit"}
    )
    assert any(made.job.quant == "nf4-double" for made in plan(job).plans)
