"""Each rule fires on its own sign, stays silent without it, and is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oomdoc.diagnosis import rules
from oomdoc.diagnosis.rules import CAUSES, RULES, page
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence, Failure, Frame, Signal, Span
from oomdoc.report.words import catalogue, render
from oomkb.errors import InputError
from oomkb.memory.job import Job
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


def test_on_chip_shared_memory_is_not_dev_shm() -> None:
    assert support("shared-memory", view(SAID["not-oom"])) <= 0.0
