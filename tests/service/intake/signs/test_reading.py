"""What the reader of signs finds, where it says that it is, and what hostile input costs it."""

import time

import pytest

from oomdoc.evidence import Frame, Signal, Source, Span
from oomdoc.intake.lines import kinds_of, read_lines
from oomdoc.intake.signs import read_signs
from oomdoc.intake.signs.schema import Row
from oomdoc.intake.tracebacks import read_frames

TRACE = """\
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/transformers/trainer.py", line 3698, in training_step
    loss = self.compute_loss(model, inputs)
  File "/opt/venv/lib/python3.11/site-packages/transformers/loss/loss_utils.py", line 36, in ForCausalLMLoss
    logits = logits.float()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB.
"""


def signs_of(text: str, *signals: Signal, phase: str = "unknown") -> dict[str, Span]:
    lines = list(read_lines(Source("log.txt", text)))
    frames = [placed.frame for placed in read_frames(lines)]
    return {sign.name: sign.span for sign in read_signs(lines, kinds_of(lines), frames, signals, phase)}


def test_a_frame_is_a_sign_at_its_line() -> None:
    found = signs_of(TRACE)
    assert found["logits/loss-function"].line == 4
    assert found["activations/training-step"].line == 2
    assert "attention-scores/attention" not in found


def test_the_innermost_frame_is_the_place() -> None:
    frames = [Frame("a.py", "evaluate", Span("x", 1)), Frame("b.py", "evaluation_loop", Span("x", 2))]
    assert [sign.span.line for sign in read_signs([], [], frames, []) if sign.name == "eval/loop"] == [2]


def test_a_message_is_a_sign_wherever_it_is_quoted() -> None:
    found = signs_of("Hello,\n\nmy server says `No available memory for the cache blocks.` and stops.\n")
    assert found["kv-cache/refused"].line == 3


def test_a_script_is_no_traceback() -> None:
    script = "model = AutoModelForCausalLM.from_pretrained(path)\nCUDA out of memory\n"
    assert "weights-load/reads-model" not in signs_of(script)
    quoted = "it fails in modeling_utils.py from_pretrained with CUDA out of memory"
    assert "weights-load/reads-model" in signs_of(quoted)


def test_a_signal_is_a_sign_at_its_first_line() -> None:
    signals = (Signal("exit-137", Span("x", 7)), Signal("exit-137", Span("x", 9)))
    assert signs_of("", *signals)["host-ram/killed"].line == 7


def test_people_are_not_programs() -> None:
    prose = (
        "After some hours my job is killed when it saves the model, and I think that attention needs too much memory.\n"
        "The loss is fine. Evaluation works, generation does not."
    )
    assert signs_of(prose) == {}


@pytest.mark.parametrize(("phase", "seen"), [("save", True), ("load", False), ("unknown", False)])
def test_a_row_may_ask_for_a_phase(phase: str, seen: bool) -> None:
    table = [Row("checkpoint-save", "x", messages=("some words",), phases=("save",))]
    lines = list(read_lines(Source("x", "some words")))
    assert bool(read_signs(lines, kinds_of(lines), [], [], phase, table=table)) is seen


def test_each_sign_once_in_the_order_of_the_table() -> None:
    names = list(signs_of(TRACE * 3 + "Killed\nKilled\n"))
    assert names == sorted(names, key=lambda name: name.partition("/")[0])
    assert len(names) == len(set(names))


HOSTILE = {
    "one letter": "a" * 400_000,
    "one word": "loss " * 80_000,
    "spaces": "mem:" + " " * 300_000,
    "brackets": "einsum(" * 60_000,
    "percent": "op_name=" + "/attention" * 40_000,
    "many lines": "step 1 loss 2\n" * 60_000,
    "names": "cross_entropy_softmax_attention_offload_\n" * 20_000,
    "offload": ("offload" + "_a" * 30 + "\n") * 8_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_input_is_read_quickly(text: str) -> None:
    lines = list(read_lines(Source("x", text)))
    kinds = kinds_of(lines)
    start = time.perf_counter()
    read_signs(lines, kinds, [], [])
    assert time.perf_counter() - start < 60
