"""Fusion: each view finds its case, signatures win, the answer explains itself and is always the same."""

import pytest

from oomkb.retrieval.search import search

STATED = {"framework": "deepspeed", "phase": "backward", "versions": {"deepspeed": "0.16.3"}}


def ids(text, cases, **options):
    return [match.id for match in search(text, cases=cases, **options)]


def reasons(match):
    return dict(match.why)


def test_an_identifier_finds_the_case_that_names_it(model, cases):
    assert ids("it died in _create_fp32_partitions", cases)[0] == "optimizer-init/partitions"


def test_a_signature_wins_over_everything_else(model, cases):
    text = "evaluation evaluation_loop larger batch ... ValueError: No available memory\nfor the cache blocks."
    best = search(text, cases=cases)[0]
    assert best.id == "kv-cache/blocks"
    assert reasons(best)["search.signature"] == {"text": "No available memory for the cache blocks"}


def test_a_signature_that_every_case_has_decides_nothing(model, cases):
    from dataclasses import replace

    from oomkb.records.case import Signature
    from oomkb.retrieval.documents import matched

    everywhere = [replace(c, signatures=(Signature(text="CUDA out of memory"),)) for c in cases]
    assert {round(decides, 6) for decides, _ in matched("CUDA out of memory", everywhere).values()} == {0.0}


def test_an_affected_version_brings_its_case_up(model, cases):
    best = search("the actor fails", cases=cases, context=STATED)[0]
    assert best.id == "version-regression/zero3"
    assert reasons(best)["search.version"] == {"value": "deepspeed 0.16.3"}
    fixed = STATED | {"versions": {"deepspeed": "0.16.9"}}
    after = {m.id: m.score for m in search("the actor fails", cases=cases, context=fixed, top=6)}
    assert after["version-regression/zero3"] < best.score


def test_chinese_finds_what_is_written_in_english(model, cases):
    assert ids("评估的时候爆显存", cases)[0] == "eval/batch"
    assert ids("词表太大", cases)[0] == "logits/vocabulary"


def test_a_diagnosed_cause_is_taken_into_account(model, cases):
    told = {"causes": {"checkpoint-save": 0.9}}
    before = {m.id: m.score for m in search("it fails", cases=cases, top=6)}
    after = {m.id: m.score for m in search("it fails", cases=cases, top=6, context=told)}
    assert after["checkpoint-save/gather"] > before["checkpoint-save/gather"]
    assert after["eval/batch"] <= before["eval/batch"]


def test_answers_are_the_same_every_time_and_sorted(model, cases):
    first = search("out of memory in cross_entropy with deepspeed", cases=cases, top=6)
    assert first == search("out of memory in cross_entropy with deepspeed", cases=cases, top=6)
    scores = [match.score for match in first]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_a_match_says_where_it_comes_from(model, cases):
    best = search("evaluation_loop", cases=cases)[0]
    assert (best.cause, best.titles["en"]) == ("eval", "Evaluation uses a larger batch")
    assert best.url == "https://example.org/eval/batch"
    assert "evaluation_loop" in reasons(best)["search.words"]["words"]


@pytest.mark.parametrize("text", ["", "   \n", "\x00\x01\x02", "?" * 50_000, "显" * 30_000, "a" * 100_000])
def test_nothing_breaks_it(model, cases, text):
    assert len(search(text, cases=cases)) in (0, 5)


def test_no_cases_no_matches(model):
    assert search("out of memory", cases=()) == []
    assert search("out of memory", cases=(), top=0) == []


def test_shared_words_are_shown_as_people_write_them(model, cases):
    best = search("saving the checkpoint gathers everything", cases=cases)[0]
    assert best.id == "checkpoint-save/gather"
    assert {"saving", "gathers"} <= set(reasons(best)["search.words"]["words"].split(", "))
