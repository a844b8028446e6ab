"""The reader: what of a reply stands in the text goes in, nothing else, and nothing over what a machine printed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from standin import StandIn, completion
from tokenizers import Tokenizer

import oomdoc
from oomdoc.diagnosis.engine import diagnose
from oomdoc.evidence import Evidence, Source
from oomdoc.intake import read_text
from oomdoc.intake.read import prepared
from oomdoc.language_model import LanguageModel
from oomdoc.language_model.reader import questions_of, reading_by, taken
from oomdoc.language_model.reader.asking import INSTRUCTION_TOKENS, PARTS, instructions
from oomdoc.language_model.reader.claims import causes, fact_keys, outcomes, value_of
from oomdoc.language_model.reader.passage import estimated_tokens
from oomkb.retrieval.model_files import find_model

REPORT = """I fine-tune a model of ours with seven billion weights on two rented cards and it dies in the loss.
A batch of one changes nothing, and yesterday's release of the trainer was fine.

torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 0 has a total capacity of 15.77 GiB of which
1.20 GiB is free. Process 77 has 14.50 GiB memory in use. Of the allocated memory 13.90 GiB is allocated by PyTorch, and
212.00 MiB is reserved by PyTorch but unallocated.
"""


def read_with(text: str, reply: dict[str, Any]) -> Evidence:
    sources, evidence = [Source("input", text)], read_text(text)
    passage, _ = questions_of(prepared(sources), evidence)
    return taken(evidence, passage, [reply])


def fact(key: str, value: str, quote: str) -> dict[str, Any]:
    return {"facts": [{"key": key, "value": value, "quote": quote}]}


def test_what_stands_in_the_text_is_taken() -> None:
    reply = {
        "what": "device-memory",
        "what_quote": "CUDA out of memory",
        "causes": [
            {"cause": "version-regression", "quote": "yesterday's release of\nthe trainer  was fine", "sure": "high"},
            {"cause": "logits", "quote": "it dies in the loss", "sure": "low"},
        ],
        "facts": [
            {"key": "phase", "value": "loss", "quote": "it dies in the loss"},
            {"key": "gpu_count", "value": "2", "quote": "on two rented cards"},
            {"key": "method", "value": "full", "quote": "I fine-tune a model of ours"},
        ],
        "statements": [{"id": "smaller-batch-does-not-help", "quote": "A batch of one changes nothing"}],
    }
    evidence = read_with(REPORT, reply)
    reading = evidence.language_model
    assert reading is not None
    assert [(c.cause, c.span.line, c.sure) for c in reading.causes] == [
        ("version-regression", 2, "high"),
        ("logits", 1, "low"),
    ]
    assert evidence.value("phase") == "loss"
    assert evidence.value("gpu_count") == 2
    assert any(s.name == "smaller-batch-does-not-help" for s in evidence.statements)
    assert not reading.withheld
    found = diagnose(evidence, plans=False)
    assert found.causes[0].cause == "version-regression"
    assert any(c.feature.name == "model-first-high:version-regression" for c in found.causes[0].contributions)


@pytest.mark.parametrize(
    ("reply", "withheld"),
    [
        ({"what": "device-memory", "what_quote": "out of memory on GPU 7"}, ("what", "quote")),
        ({"what": "alien-attack", "what_quote": "CUDA out of memory"}, ("what", "unknown")),
        ({"causes": [{"cause": "logits", "quote": "the logits take 12 GiB", "sure": "high"}]}, ("cause", "quote")),
        ({"causes": [{"cause": "bad-luck", "quote": "it dies in the loss"}]}, ("cause", "unknown")),
        ({"causes": [{"cause": "logits", "quote": "it"}]}, ("cause", "quote")),
        ({"causes": ["logits"]}, ("cause", "form")),
        ({"statements": [{"id": "not-released", "quote": "memory is never released"}]}, ("statement", "quote")),
        ({"statements": [{"id": "says-hello", "quote": "it dies in the loss"}]}, ("statement", "unknown")),
        (fact("seq_len", "4096", "max length 4096"), ("fact", "quote")),
        (fact("gpu_count", "8", "on two rented cards"), ("fact", "number")),
        (fact("tried_gib", "46.4", "Tried to allocate 4.64 GiB"), ("fact", "number")),
        (fact("seq_len", "15", "total capacity of 15.77 GiB"), ("fact", "number")),
        (fact("micro_batch", "0", "A batch of one"), ("fact", "number")),
        (fact("micro_batch", "1e999", "A batch of one"), ("fact", "number")),
        (fact("micro_batch", "nan", "A batch of one"), ("fact", "number")),
        (fact("gpu", "H100", "on two rented cards"), ("fact", "value")),
        (fact("method", "telepathy", "I fine-tune"), ("fact", "value")),
        (fact("fsdp", "true", "I fine-tune a model"), ("fact", "value")),
        (fact("password", "x", "I fine-tune a model"), ("fact", "unknown")),
        ({"facts": [{"key": ["gpu"], "value": {"a": 1}, "quote": None}]}, ("fact", "form")),
    ],
)
def test_what_does_not_is_withheld(reply: dict[str, Any], withheld: tuple[str, str]) -> None:
    plain, evidence = read_text(REPORT), read_with(REPORT, reply)
    assert evidence.language_model is not None
    assert [(w.claim, w.reason) for w in evidence.language_model.withheld] == [withheld]
    assert evidence.facts == plain.facts
    assert evidence.statements == plain.statements
    assert evidence.outcome == plain.outcome


@pytest.mark.parametrize(
    "reply", [{}, {"facts": 3, "causes": "x", "statements": {}}, {"answer": "yes"}, {"what": None}]
)
def test_odd_replies_change_nothing(reply: dict[str, Any]) -> None:
    plain, evidence = read_text(REPORT), read_with(REPORT, reply)
    assert (evidence.facts, evidence.outcome) == (plain.facts, plain.outcome)


@pytest.mark.parametrize(
    ("key", "claimed", "quote", "value"),
    [
        ("tried_gib", "0.207", "Tried to allocate 212.00 MiB", 0.20703),
        ("tried_gib", "212 MiB", "Tried to allocate 212.00 MiB", 0.20703),
        ("capacity_gib", "80", "an A100 80GB card", 80.0),
        ("capacity_gib", "80", "单卡 80G 显存", 80.0),
        ("seq_len", "8192", "max length 8k tokens", 8192),
        ("seq_len", "8000", "max length 8k tokens", 8000),
        ("seq_len", "16384", "cutoff_len: 16,384", 16384),
        ("gpu_count", "16", "2 nodes with 8 GPUs each", 16),
        ("gpu_count", "4", "CUDA_VISIBLE_DEVICES=0,1,2,3", 4),
        ("gpu_count", "1", "on a single 4090", 1),
        ("gpu_count", "2", "双卡 3090", 2),
        ("params_b", "7", "Llama-2-7b-hf", 7.0),
        ("params_b", "0.56", "bloom 560M", 0.56),
        ("gpu_memory_utilization", "0.9", "gpu_memory_utilization=0.9", 0.9),
        ("gpu_memory_utilization", "0.9", "90% of the GPU", 0.9),
        ("zero_stage", "3", "ds_z3_offload_config.json", 3),
        ("zero_stage", "3", "with 3 cards", None),
        ("offload", "optimizer, param", "offload_optimizer and offload_param", ["optimizer", "param"]),
        ("grad_ckpt", "true", "gradient_checkpointing: true", True),
        ("gpu", "rtx 4090", "one RTX 4090 at home", "RTX 4090"),
        ("free_gib", "0.5", "Tried to allocate 512 MiB", None),
        ("other_process_gib", "3.0", "1.00 GiB and 2.00 GiB in use", 3.0),
    ],
)
def test_values_are_parsed_from_the_quote(key: str, claimed: str, quote: str, value: Any) -> None:
    assert value_of(fact_keys()[key], claimed, quote) == value


def test_no_word_goes_over_what_a_machine_printed() -> None:
    reply = {
        "what": "healthy",
        "what_quote": "I fine-tune a model of ours",
        "causes": [],
        "facts": [{"key": "tried_gib", "value": "13.9", "quote": "13.90 GiB is allocated by PyTorch"}],
    }
    plain, evidence = read_text(REPORT), read_with(REPORT, reply)
    assert evidence.outcome == plain.outcome
    assert evidence.facts["tried_gib"] == plain.facts["tried_gib"]
    assert diagnose(evidence, plans=False).verdict == "device-oom"


def test_a_failure_that_only_the_model_sees() -> None:
    text = "By the second epoch nothing is left on it, with Qwen2.5-7B and LoRA. Batch 4."
    assert diagnose(read_text(text), plans=False).verdict in ("no-failure", "unclear")
    evidence = read_with(text, {"what": "device-memory", "what_quote": "nothing is left on it", "causes": []})
    assert diagnose(evidence, plans=False).verdict == "device-oom"


def test_without_a_reading_there_is_nothing_of_it() -> None:
    report = oomdoc.diagnose(REPORT, plans=False)
    document = report.document()
    assert "language_model" not in document
    features = [c["feature"] for cause in document["causes"] for c in cause["contributions"]]
    assert features
    assert not any(name.startswith("model-") for name in features)


def test_a_long_log_is_condensed_to_what_was_read() -> None:
    noise = "\n".join(f"[{n}] loss={n % 7}.{n} lr=1e-5 throughput {n * 3} tokens" for n in range(20_000))
    text = f"{noise[:400_000]}\n{REPORT}\n{noise[400_000:]}"
    sources, evidence = [Source("run.log", text)], read_text(text, "run.log")
    for style in ("full", "small"):
        passage, questions = questions_of(prepared(sources), evidence, style=style)  # type: ignore[arg-type]
        assert max(estimated_tokens(q.text) + len(q.instructions) / 3.7 + 1400 for q in questions) <= 8192
        assert "Tried to allocate 4.64 GiB" in passage.text
        assert "A batch of one changes nothing" in passage.text
        assert passage.find("[...]") is None


@pytest.mark.parametrize("style", ["full", "small"])
def test_the_instructions_keep_to_their_tokens(style: Any) -> None:
    tokenizer = Tokenizer.from_file(str(find_model().folder / "tokenizer.json"))
    tokenizer.no_truncation()
    for part in PARTS[style]:
        assert len(tokenizer.encode(instructions(part, "0" * 8)).ids) <= INSTRUCTION_TOKENS[style]


def test_where_nobody_can_know_there_is_room_to_say_so() -> None:
    """A reply without causes, outcome or phase is a whole one: nothing of it is withheld."""
    reply = {
        "what": "trouble",
        "what_quote": "Tried to allocate",
        "causes": [],
        "facts": [{"key": "phase", "value": "unknown", "quote": ""}],
        "statements": [],
    }
    reading = read_with(REPORT, reply).language_model
    assert reading is not None
    assert not reading.withheld
    assert not reading.causes
    phase = next(key for key in fact_keys().values() if key.name == "phase")
    said = phase.means
    assert all(f"{value}:" in said for value in phase.values if value not in ("backward", "optimizer-step"))


def test_a_quote_over_a_gap_is_none() -> None:
    text = "\n".join(["alpha begins"] + [f"filler line number {n} of nothing" for n in range(3000)] + ["omega ends"])
    passage, _ = questions_of([Source("a", text)], read_text(text))
    assert passage.find("alpha begins") is not None
    first, second = (at for at, line in enumerate(passage.lines) if line[1] == 0), None
    gap = next(first)
    before, after = passage.lines[gap - 1][2], passage.lines[gap + 1][2]
    assert second is None
    assert passage.find(f"{before} {after}") is None
    assert passage.find(f"{before} [...] {after}") is None


def test_the_questions_hold_every_list_and_no_secret() -> None:
    text = f"token=hf_abcdefghijklmnopqrstuvwxyz /home/wangwei/x\n{REPORT}"
    _, [question] = questions_of(prepared([Source("input", text)]), read_text(text))
    assert all(f"- {name}: " in question.instructions for name in causes().means)
    assert all(name in question.instructions for name in (*fact_keys(), *outcomes()))
    assert "wangwei" not in question.text
    assert "hf_abc" not in question.text
    assert set(question.schema["required"]) == {"what", "what_quote", "causes", "facts", "statements"}


def test_small_models_are_asked_one_question_a_call(endpoint: StandIn) -> None:
    said = {
        "what": {"what": "device-memory", "what_quote": "CUDA out of memory", "causes": []},
        "facts": fact("gpu_count", "2", "on two rented cards"),
        "statements": {"statements": []},
    }

    def say(request: dict[str, Any]) -> Any:
        asked = request["messages"][0]["content"].rpartition("The JSON object: ")[2]
        return completion(json.dumps(said[asked.split('"')[1]]))

    endpoint.say = say
    model = LanguageModel(endpoint.url, timeout_s=5.0, style="small")
    evidence = reading_by(model)([Source("input", REPORT)], read_text(REPORT))
    assert len(endpoint.requests) == 3
    assert evidence.value("gpu_count") == 2


def test_the_library_asks_only_where_it_may(endpoint: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMDOC_LLM_URL", endpoint.url)
    endpoint.say = lambda _request: completion(
        json.dumps({"what": "device-memory", "what_quote": "CUDA", "causes": []})
    )
    assert "language_model" not in oomdoc.diagnose(REPORT, plans=False, language_model=False).document()
    assert not endpoint.requests
    assert oomdoc.diagnose(REPORT, plans=False).document()["language_model"]["trouble"] is None
    assert len(endpoint.requests) == 1
    assert endpoint.requests[0]["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_model_that_fails_is_told_of(endpoint: StandIn, monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    plain = oomdoc.diagnose(REPORT, plans=False, language=language).document()
    monkeypatch.setenv("OOMDOC_LLM_URL", endpoint.url)
    endpoint.say = lambda _request: (401, {})
    document = oomdoc.diagnose(REPORT, plans=False, language=language).document()
    assert document.pop("language_model")["trouble"] == "refused"
    [warning] = [w for w in document.pop("warnings") if w not in plain["warnings"]]
    assert "key" in warning or "密钥" in warning
    plain.pop("warnings")
    assert document == plain
