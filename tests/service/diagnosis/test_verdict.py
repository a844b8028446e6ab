"""Seen or only predicted: the verdict, the summary and what is asked and warned of then."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import diagnose
from oomdoc.diagnosis.regressions import Advisory, one_per_package, range_of
from oomdoc.diagnosis.result import Diagnosis
from oomdoc.intake import read_text
from oomdoc.intake.outcomes import rows
from oomdoc.report.report import Report
from oomdoc.report.words import has, render, word

_TOO_BIG = "model: Qwen/Qwen2.5-72B-Instruct\nper_device_train_batch_size: 4\nmax_seq_length: 8192\n"
_FULL = "finetuning_type: full\ngpu: A100-80GB\n"


def told(text: str) -> Diagnosis:
    return diagnose(read_text(text), plans=False)


def words(found: Diagnosis, language: str = "en") -> str:
    return " ".join(render(message, language) for message in found.summary)


def test_config_that_cannot_fit_is_no_failure_with_an_outlook() -> None:
    found = told(_TOO_BIG + _FULL)
    assert (found.verdict, found.causes) == ("no-failure", ())
    assert found.outlook is not None
    assert found.outlook.answer == "does-not-fit"
    assert words(found).startswith("No: ")
    assert words(found, "zh").startswith("不行：")
    assert "log" not in [q.fact for q in found.questions]


def test_what_would_fit_is_planned_for_a_config_that_does_not() -> None:
    assert diagnose(read_text(_TOO_BIG + _FULL)).plans


def test_config_that_fits() -> None:
    found = told("model_name_or_path: Qwen/Qwen2.5-0.5B\nper_device_train_batch_size: 1\ncutoff_len: 512\n" + _FULL)
    assert found.verdict == "no-failure"
    assert found.outlook is not None
    assert found.outlook.answer == "fits"
    assert (found.outlook.probability or 0) > 0.9
    assert words(found).startswith("Yes: ")


def test_outlook_is_unknown_without_a_card() -> None:
    found = told("Will Qwen/Qwen2.5-7B fit?")
    assert found.outlook is not None
    assert (found.outlook.answer, found.outlook.probability) == ("unknown", None)


@pytest.mark.parametrize(
    ("text", "verdict"), [("step 10 loss 2.1\nstep 20 loss 2.0", "no-failure"), ("", "no-failure")]
)
def test_nothing_failed(text: str, verdict: str) -> None:
    found = told(text)
    assert (found.verdict, found.causes, found.outlook) == (verdict, (), None)


_OFFLOADED = (
    "full fine-tune of Qwen/Qwen2.5-72B with ZeRO-3, optimizer and param offload to cpu, 8x H100 80GB, 256 GB of RAM"
)


@pytest.mark.parametrize(
    "end", ["the kernel log says: Out of memory: Killed process 881 (python)", "it was OOM-killed, exit code 137"]
)
def test_of_host_memory_the_summary_says_what_the_machine_needs(end: str) -> None:
    """What a card is predicted to hold says nothing of it."""
    found = told(f"{_OFFLOADED}. After a minute {end}")
    assert (found.verdict, found.causes[0].cause) == ("host-oom", "host-ram")
    assert [m.key for m in found.summary[:2]] == ["summary.cause", "summary.host"]
    assert "of host memory are needed per machine, and 256.00 GiB are there" in words(found)
    assert not any(m.key in ("summary.near", "summary.over", "summary.under") for m in found.summary)


def test_beside_the_limit_stands_what_the_run_needs() -> None:
    """What the allocator may keep besides would fill the card, and goes back when it is wanted."""
    failed = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
    run = "model: Qwen/Qwen2.5-72B\nfinetuning_type: full\nper_device_train_batch_size: 1\ncutoff_len: 4096\n"
    found = told(f"{run}gradient_checkpointing: true\ndeepspeed: ds_z3_offload_config.json\n8x A100-80GB\n{failed}")
    shown = [m for m in found.summary if m.key in ("summary.near", "summary.over", "summary.under")]
    assert found.estimate is not None
    assert [m.values["peak_bytes"] for m in shown] == [found.estimate.needed_bytes]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_another_failure_is_named(language: str) -> None:
    found = told("OSError: [Errno 28] No space left on device: '/out/checkpoint-4000'")
    assert found.verdict == "not-oom"
    assert found.causes[0].cause == "not-oom"
    assert sum(c.probability for c in found.causes) == pytest.approx(1, abs=1e-6)
    document = Report(found, language).document()
    assert document["other_failure"]["kind"] == "disk-full"
    assert document["other_failure"]["next"]
    title = word("failure.disk-full.title", language)
    assert title in Report(found, language).text()
    assert title in Report(found, language).markdown()


def test_the_line_that_a_program_printed_is_shown_and_a_persons_is_not() -> None:
    line = "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Use --dtype=half."
    shown = told(f"not enough memory?\n{line}")
    assert shown.verdict == "not-oom"
    assert any(m.values.get("quote") == line for m in shown.summary)
    assert not any(m.key == "summary.printed" for m in told("Training hangs after the first step.").summary)


@pytest.mark.parametrize(
    ("guess", "line", "kind"),
    [
        ("job gets killed every night, presumably memory", "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-04-03T07:12:33 DUE TO TIME LIMIT ***", "time-limit"),
        ("is the cluster out of memory?", "Warning: The following resource request cannot be scheduled right now: {'GPU': 1.0} * 8", "unschedulable"),
        ("pod never starts, too little memory I think", "0/6 nodes are available: 6 Insufficient nvidia.com/gpu.", "unschedulable"),
    ],
)  # fmt: skip
def test_what_is_printed_beats_what_is_guessed(guess: str, line: str, kind: str) -> None:
    found = told(f"{guess}\n{line}")
    assert (found.verdict, found.other_failure and found.other_failure.kind) == ("not-oom", kind)


def test_outlook_in_every_form() -> None:
    found = told(_TOO_BIG + _FULL)
    report = Report(found)
    assert report.document()["outlook"]["answer"] == "does-not-fit"
    assert report.text().startswith("No: ")
    assert report.markdown().startswith("## No: ")


def test_trouble_that_nothing_names_is_unclear() -> None:
    assert told("It crashes somehow.").verdict == "unclear"


def test_every_other_failure_has_words() -> None:
    for row in rows():
        if row.kind == "other" and row.order != "unnamed":
            assert all(has(f"failure.{row.id}.{part}") for part in ("title", "why", "next"))


def test_failure_that_is_seen_is_not_called_predicted() -> None:
    found = told("CUDA out of memory\n" + _TOO_BIG + _FULL)
    assert found.verdict == "device-oom"
    assert "shows no failure" not in words(found)


@pytest.mark.parametrize(
    "text", ["启用 qlora 之后就 oom", "the worker died with SIGKILL", "训练到一半就挂了，显存不够"]
)
def test_prose_alone_is_a_failure(text: str) -> None:
    assert told(text).verdict != "no-failure"


def test_commands_that_are_sentences_are_read() -> None:
    found = told("vllm dies while capturing cuda graphs although the kv cache was fine")
    assert "cuda-graph" in [c.cause for c in found.causes[:2]]


def test_settings_of_a_config_are_not_asked_for() -> None:
    found = told("CUDA out of memory\n" + _TOO_BIG + _FULL)
    assert not {"sharding", "method", "grad_ckpt"} & {q.fact for q in found.questions}


def _advisory(introduced: str | None, fixed: str | None, last: str | None = None, good: str | None = None) -> Advisory:
    return Advisory("deepspeed", "", "case", {}, introduced, fixed, last, "zero3", good)


@pytest.mark.parametrize("introduced", [None, "0", "0.16.0"])
@pytest.mark.parametrize("fixed", [None, "0.16.8"])
@pytest.mark.parametrize("last", [None, "0.16.7"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_ranges_in_words(introduced: str | None, fixed: str | None, last: str | None, language: str) -> None:
    text = render(range_of(_advisory(introduced, fixed, last)), language)
    assert "{" not in text
    assert "?" not in text
    assert "None" not in text
    assert "from 0 " not in text
    for version in (introduced if introduced != "0" else None, fixed):
        assert version is None or version in text


def test_one_advisory_per_package_and_the_precise_one() -> None:
    found = one_per_package([_advisory("0", "0.15.3"), _advisory("0.16.0", "0.16.8", good="0.15.4")])
    assert [(a.introduced, a.fixed) for a in found] == [("0.16.0", "0.16.8")]
