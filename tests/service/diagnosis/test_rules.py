"""Each rule fires on its own sign, stays silent without it, and is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oomdoc.diagnosis import rules
from oomdoc.diagnosis.rules import CAUSES, RULES, page
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence, Fact, Failure, Frame, Signal, Span
from oomdoc.report.words import catalogue, render
from oomkb.errors import InputError
from oomkb.memory.job import Job
from oomkb.pricing import price
from oomkb.retrieval.documents import causes
from oomkb.units import GIB

BY_CAUSE = {rule.CAUSE: rule for rule in RULES}
HERE = Span("log.txt", 3, 1, "CUDA out of memory")
SIGNAL = Signal("torch-cuda-oom", HERE)

# One sentence as somebody would write it, for each cause.
SAID = {
    "activations": "gradient checkpointing is off and it dies as soon as the batch is larger",
    "attention-scores": "attn_implementation='eager', long context",
    "checkpoint-save": "everything is fine until it saves the model, then OOM when saving",
    "cuda-graph": "it dies while capturing CUDA graphs, with --enforce-eager it starts",
    "eval": "training is stable, but during evaluation memory explodes",
    "extra-models": "policy plus a reference model and a reward model",
    "fragmentation": "lots of it is reserved but unallocated, looks like fragmentation",
    "hardware-limit": "what is the minimum hardware for this?",
    "host-ram": "no CUDA error, exits with return code = -9",
    "inactive-setting": "load_in_8bit is set, but it is silently ignored",
    "kv-cache": "ValueError: No available memory for the cache blocks.",
    "leak": "GPU memory grows a little with every step until it fails",
    "logits": "the peak is in cross_entropy, the vocabulary has 152k words",
    "long-sample": "runs for hours, then a sudden spike on one very long sample",
    "model-states": "even with batch size 1 the optimizer states do not fit",
    "not-oom": "triton OutOfResources: out of resource: shared memory, Required: 81920, Hardware limit: 65536",
    "optimizer-init": "it passes forward and backward and fails in the first optimizer.step()",
    "other-process": "shared server, another user runs something on that card",
    "rollout-engine": "vllm does not release its memory after rollout, the engine is colocated",
    "shared-memory": "DataLoader worker is killed by signal: Bus error",
    "version-regression": "with transformers 4.44 it works fine, after the upgrade to 4.46 it does not",
    "vision-tokens": "max_pixels is not set and the images are large",
    "weights-load": "dies at Loading checkpoint shards",
    "zero3-gather": "raising reduce_bucket_size to 2e9 makes it fail",
}


def view(text: str = "", *, failure: Failure | None = None, job: Job | None = None, **more: object) -> View:
    failures = () if failure is None else (failure,)
    return View(evidence=Evidence(prose=text, failures=failures), job=job or Job(), **more)  # type: ignore[arg-type]


def support(cause: str, seen: View) -> float:
    return sum(reason.log_odds for reason in BY_CAUSE[cause].weigh(seen))


def device(**sizes: float) -> Failure:
    return Failure(kind="device", signal=SIGNAL, **{f"{k}_bytes": round(v * GIB) for k, v in sizes.items()})


def test_registry_is_the_folder() -> None:
    folder = Path(rules.__file__).parent
    files = sorted(p.stem for p in folder.glob("*.py") if not p.name.startswith("_"))
    assert [rule.__name__.rpartition(".")[2] for rule in RULES] == files


def test_causes_are_unique() -> None:
    assert len(set(CAUSES)) == len(RULES) == 24


@pytest.mark.parametrize("cause", CAUSES)
def test_page_has_its_headings(cause: str) -> None:
    text = page(cause)
    heads = [line for line in text.splitlines() if re.fullmatch(r"[A-Z][a-z]+", line)]
    assert heads == ["Sign", "Mechanism", "Confirm", "Fix", "Cost"]
    chinese = page(cause, "zh")
    assert all(f"\n{head}\n" in chinese for head in ("现象", "机理", "确认", "解决", "代价"))


def test_unknown_page_is_refused() -> None:
    with pytest.raises(InputError, match="is not a cause"):
        page("no-such-cause")


@pytest.mark.parametrize("cause", CAUSES)
def test_fires_on_its_sign(cause: str) -> None:
    assert support(cause, view(SAID[cause])) >= 0.7


@pytest.mark.parametrize("cause", CAUSES)
def test_silent_on_nothing(cause: str) -> None:
    assert support(cause, view("it failed on Tuesday, please help")) <= 0.0


@pytest.mark.parametrize("cause", CAUSES)
def test_every_clue_has_words_in_both_languages(cause: str) -> None:
    rule = BY_CAUSE[cause]
    for language in ("en", "zh"):
        for key in [clue.key for clue in rule._CLUES] + ["title", "action"]:
            assert f"cause.{cause}.{key}" in catalogue(language)


@pytest.mark.parametrize("cause", CAUSES)
def test_reasons_render(cause: str) -> None:
    for reason in BY_CAUSE[cause].weigh(view(SAID[cause])):
        for language in ("en", "zh"):
            assert "{" not in render(reason.message, language)


def test_patterns_are_linear() -> None:
    for rule in RULES:
        for clue in rule._CLUES:
            for pattern in (clue.says, clue.frames, clue.unless):
                re.compile(pattern)
                assert not re.search(r"[*+]\)[*+]|\.\*", pattern), (rule.CAUSE, clue.key)


def test_innermost_frame_counts() -> None:
    frames = (
        Frame("trainer.py", "train", HERE, 10, "self.training_step()"),
        Frame("loss_utils.py", "fixed_cross_entropy", Span("log.txt", 9, 1, "x"), 36, "nn.functional.cross_entropy"),
    )
    seen = view(failure=Failure(kind="device", signal=SIGNAL, frames=frames))
    reasons = [r for r in BY_CAUSE["logits"].weigh(seen) if r.message.key == "cause.logits.trace"]
    assert reasons[0].spans[0].line == 9


def test_memory_outside_the_process_is_somebody_elses() -> None:
    seen = view(failure=device(requested=0.012, capacity=23.65, allocated=13.07, free=0.007, reserved=13.13))
    assert support("other-process", seen) >= 4.0
    assert support("fragmentation", seen) < 0


def test_container_names_its_own_process_as_another() -> None:
    own = device(
        requested=35.6, capacity=79.33, allocated=11.97, reserved_unallocated=40.69, free=26.16, other_process=53.16
    )
    seen = view(failure=own)
    assert support("other-process", seen) <= 0.0
    assert support("fragmentation", seen) >= 4.0


def test_refused_with_room_is_not_the_card() -> None:
    seen = view(failure=device(requested=0.084, capacity=24.0, allocated=9.07, reserved=9.08, free=13.7))
    assert support("host-ram", seen) >= 2.5
    assert support("not-oom", seen) > 0


def test_one_rank_shards_nothing() -> None:
    job = Job(objective="sft", method="full", sharding="zero2", gpus=1)
    assert support("model-states", view(job=job)) >= 2.5


@pytest.mark.parametrize("cause", ["model-states", "weights-load"])
@pytest.mark.parametrize("text", ["OOM after 400 steps of training", "训练几十步后报 OOM"])
def test_what_the_first_step_held_is_not_what_a_later_one_lacks(cause: str, text: str) -> None:
    job = Job(objective="dpo", method="full")
    assert support(cause, view(text, job=job)) < 0 <= support(cause, view("OOM", job=job))
    assert support("long-sample", view(text, job=job)) > 0


def test_on_chip_shared_memory_is_not_dev_shm() -> None:
    assert support("shared-memory", view(SAID["not-oom"])) <= 0.0


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("host-ram", "the task was killed while it processed data, the machine has 250G memory in all"),
        ("host-ram", "tokenizer.train_from_iterator on a small machine: OOM"),
        ("attention-scores", "Operator: layers_3/attention/bqhd,bkhd->bhqk/dot_general Shape: f32[32,4096,4096]"),
        ("attention-scores", "Running with UnfusedDotProductAttention backend"),
        ("kv-cache", "llama_kv_cache_init: failed to allocate buffer for kv cache"),
        ("leak", "running_loss = running_loss + loss, memory is gone after an epoch"),
        ("other-process", "vLLM won't let go of memory even after its shutdown"),
        ("optimizer-init", "first run goes smoothly, when I resume from a checkpoint it is out of memory"),
        ("version-regression", "New OOM bug introduced in 0.38?"),
        ("extra-models", "the teacher and student policies share these GPUs"),
        ("long-sample", "训到400+samples就OOM了"),
        ("inactive-setting", "the model gets replicated on all the GPUs, instead of being sharded"),
        ("logits", "OOM when setting return_logprob=True"),
        ("checkpoint-save", "when model get state dict, gpu is OOM"),
        ("version-regression", "OOM on the V1 engine, works on V0"),
        ("leak", "memory grew 164 MiB per microbatch"),
        ("rollout-engine", "actor_rollout_ref.rollout.gpu_memory_utilization of 0.7 fails"),
        ("activations", "build.py with max_input_len of 3500 instead of 2048"),
        ("activations", "the advice to use gradient checkpointing throws an AttributeError"),
        ("kv-cache", "Setting maximum total tokens (input + output) to 512"),
        ("activations", "my adapter trains only with a small batch"),
        ("activations", "batch 改成 2 就不行"),
        ("attention-scores", "UserWarning: 1Torch was not compiled with flash attention."),
        ("attention-scores", "the xformers wheel is not available for this Python"),
        ("host-ram", "the converter consumes all host memory and eats 300 GB of RAM"),
        ("host-ram", "the pod was OOMKilled while it read the shards"),
        ("host-ram", "numpy: Unable to allocate 42.0 GiB for an array with shape"),
        ("leak", "VRAM slowly creeps up, the usage keeps on increasing with each request"),
        ("long-sample", "clips are 1-240 seconds audio, it fails at a random point"),
        ("version-regression", "the previous release did not need this much"),
        ("inactive-setting", "LoRA is on, yet the memory stays the same"),
        ("inactive-setting", "it does not split over the two cards"),
        ("checkpoint-save", "OOM while consolidating the shards, the last checkpoint is missing"),
        ("optimizer-init", "deepspeed.initialize() never returns, out of memory while it is creating the optimizer"),
        ("extra-models", "we keep two models in one process"),
        ("zero3-gather", "reshard_after_forward is false for the expert layers"),
        ("fragmentation", "calling torch.cuda.empty_cache() every step helped"),
        ("cuda-graph", "torch.compile leads to OOM on the second prompt"),
        ("eval", "running lm_eval with batch size auto"),
        ("host-ram", "量化到一半 显示 killed"),
        ("version-regression", "only reverting that commit helps"),
        ("inactive-setting", "my dtype isn't getting passed to the trainer"),
        ("inactive-setting", "I changed the device to cuda:2 but it still uses cuda:0"),
        ("optimizer-init", "I load the saved states and continue training, then it is out of memory"),
        ("attention-scores", "长度 30k，我没用flash attention"),
        ("leak", "the first clip is fine, it fails with the second video"),
        ("long-sample", "训练到 5000 多个样本的时候爆显存"),
        ("long-sample", "it trains fine at first"),
        ("not-oom", "torch.ones(1).cuda() is out of memory while nvidia-smi shows 0 MiB"),
        ("inactive-setting", "量化之后显存占用和原来一样"),
    ],
)
def test_fires_on_signs_of_other_threads(cause: str, text: str) -> None:
    assert support(cause, view(text)) >= 1.4


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("weights-load", "Downloading model to: /models/CogVideo"),
        ("weights-load", "offload is off, I would not expect an oom"),
        ("host-ram", "train_ppo_ray OOM"),
        ("kv-cache", "Available KV cache memory: 2.97 GiB"),
        ("leak", "Try increasing `gpu_memory_utilization` when initializing the engine."),
        ("not-oom", "显存比文档说的大很多"),
        ("leak", "consumed memory increased from 8 to 20 GB in forward"),
        ("version-regression", "I reduced mem-fraction-static from 0.9 to 0.3 and it works"),
        ("fragmentation", "5.17 GiB is allocated by PyTorch, and 259.56 MiB is reserved by PyTorch but unallocated."),
    ],
)
def test_is_not_taken_in_by_words_that_only_look_alike(cause: str, text: str) -> None:
    assert support(cause, view(text)) < 2.0


def test_metal_buffers_that_no_tensor_owns_are_a_leak() -> None:
    data = {"other_bytes": round(14.76 * GIB), "capacity_bytes": round(20.4 * GIB)}
    failure = Failure(kind="device", signal=Signal("mps-oom", HERE, data), capacity_bytes=data["capacity_bytes"])
    assert support("leak", view(failure=failure)) >= 1.4


def test_a_program_of_three_times_the_chip_is_beyond_settings() -> None:
    data = {"needed_bytes": round(21.9 * GIB), "capacity_bytes": round(7.48 * GIB)}
    failure = Failure(kind="device", signal=Signal("xla-hbm-exhausted", HERE, data))
    assert support("hardware-limit", view(failure=failure)) >= 1.4


def test_a_phase_that_was_only_told_says_less() -> None:
    def told(confidence: float) -> float:
        facts = {"phase": Fact("phase", "save", HERE, "log", confidence)}
        return sum(
            r.log_odds
            for r in BY_CAUSE["checkpoint-save"].weigh(View(evidence=Evidence(facts=facts), job=Job()))
            if r.message.key == "cause.checkpoint-save.phase"
        )

    assert told(0.95) > 1.5 * told(0.7) > 0


def test_a_server_and_a_job_of_which_nothing_is_said_hold_no_states_of_training() -> None:
    def states(objective: str | None = None, method: str | None = None) -> float:
        priced = price(Job(model="meta-llama/Llama-3.1-8B", gpu="A100 40GB", objective=objective, method=method))
        return support(
            "model-states",
            View(evidence=Evidence(), job=priced.job, estimate=priced.estimate, shape=priced.shape),
        )

    assert states("sft", "full") > 1.0
    assert states("inference") == states() == 0.0


def test_the_word_for_memory_is_the_cards_where_a_card_is_told_with_it() -> None:
    told = Failure(kind="host", signal=Signal("told-host-oom", HERE))
    machine = support("host-ram", view("转换时提示内存不够，机器 64G", failure=told))
    card = support("host-ram", view("跑 demo 提示内存不够(2080Ti 11GB内存)", failure=told))
    assert machine >= 4.0
    assert card < 1.0


def test_the_only_process_of_a_message_without_its_own_is_itself() -> None:
    def held(**own: float) -> float:
        return support("other-process", view(failure=device(capacity=24, free=1.5, other_process=21.5, **own)))

    assert held() == 0.0
    assert held(process=0.5) >= 2.5


def test_a_reward_model_that_is_trained_is_no_further_model() -> None:
    text = "reward model training runs out of memory"
    assert support("extra-models", view(text, job=Job(objective="rm"))) == 0.0
    assert support("extra-models", view(text, job=Job(objective="ppo"))) > 0.0


def test_growth_in_a_training_may_be_a_longer_batch_and_in_a_server_is_not() -> None:
    text = "显存占用随着时间不断增长"
    assert support("long-sample", view(text, job=Job(objective="sft", method="lora"))) >= 1.4
    assert support("long-sample", view(text, job=Job(objective="inference"))) == 0.0


def test_a_driver_that_counts_nothing_says_nothing_of_others() -> None:
    counted = device(capacity=24, free=0.5, allocated=22, reserved_unallocated=0.5, process=0)
    assert support("other-process", view(failure=counted)) == 0.0


def test_how_people_describe_a_cause_holds_a_sign_of_it() -> None:
    """Sentences of which none was written for a rule: questions by which the search knows the causes."""
    read = {cause: [support(cause, view(q)) > 0 for q in talk.questions] for cause, talk in causes().items()}
    told = [seen for each in read.values() for seen in each]
    assert sum(told) >= 0.75 * len(told)
    assert {cause for cause, each in read.items() if sum(each) < 0.5 * len(each)} == set()
