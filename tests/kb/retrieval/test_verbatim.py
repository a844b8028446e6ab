"""A case that a text tells word for word, and texts that are merely alike."""

from __future__ import annotations

from oomkb.records.case import Case
from oomkb.retrieval.verbatim import retold, said

LOG = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 3 has a total capacity of 79.15 GiB of "
    "which 1.10 GiB is free.\naccelerate launch train_rl.py --num_generations 16 --max_completion_length 8192"
)
CASE = Case(
    id="logits/mine",
    title={"en": "t", "zh": "t"},
    summary={"en": "s", "zh": "s"},
    why={"en": "w", "zh": "w"},
    symptoms=(LOG, "grpo runs out of memory with long completions"),
)


def test_the_same_log_is_known_again_whatever_stands_around_it() -> None:
    assert retold(CASE, said(f"[rank3]: it happened again last night\n{LOG.replace('79.15', '79.10')}\nany ideas?"))


def test_a_log_of_another_run_is_not() -> None:
    other = LOG.replace("2.32", "512.00").replace("GPU 3", "GPU 0").replace("79.15", "23.64").replace("train_rl", "sft")
    assert not retold(CASE, said(other))


def test_a_short_question_is_asked_of_many_failures() -> None:
    assert not retold(CASE, said("grpo runs out of memory with long completions"))


def test_half_of_a_log_is_not_enough() -> None:
    assert not retold(CASE, said(LOG.splitlines()[1]))
