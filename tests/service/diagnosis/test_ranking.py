"""From reasons to probabilities."""

from __future__ import annotations

import math

import pytest

from oomdoc.diagnosis import ranking, usual
from oomdoc.diagnosis.cases import Vote
from oomdoc.diagnosis.ranking import PRIORS, probabilities, rank, scores, weigh
from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules import CAUSES
from oomdoc.diagnosis.view import WEAK, View
from oomdoc.evidence import Evidence, Failure, Signal, Span
from oomdoc.messages import say
from oomkb.memory.job import Job

RULE = say("cause.logits.said", quote="x")
CASE = say("cause.case", case="logits/x", score=0.9)


def reasons(**found: list[tuple[float, object]]) -> dict[str, list[Reason]]:
    return {c: [Reason(w, m) for w, m in found.get(c.replace("-", "_"), [])] for c in CAUSES}  # type: ignore[arg-type]


def test_priors_cover_the_causes() -> None:
    assert sorted(PRIORS) == sorted(CAUSES)


def test_probabilities_sum_to_one() -> None:
    chances = probabilities(scores(reasons(logits=[(4.0, RULE)])))
    assert sum(chances.values()) == pytest.approx(1.0)
    assert max(chances, key=lambda c: chances[c]) == "logits"


def test_further_reasons_count_less() -> None:
    one = scores(reasons(leak=[(2.0, RULE)]))["leak"]
    two = scores(reasons(leak=[(2.0, RULE), (2.0, RULE)]))["leak"]
    none = scores(reasons())["leak"]
    assert two - one < one - none


def test_rules_and_cases_are_two_witnesses() -> None:
    same = scores(reasons(leak=[(1.0, RULE), (1.0, RULE)]))["leak"]
    both = scores(reasons(leak=[(1.0, RULE), (1.0, CASE)]))["leak"]
    assert both > same


def test_what_speaks_against_counts_in_full() -> None:
    base = scores(reasons(eval=[(2.0, RULE)]))["eval"]
    assert scores(reasons(eval=[(2.0, RULE), (-1.5, RULE)]))["eval"] == pytest.approx(base - 1.5)


def test_a_lower_temperature_is_surer() -> None:
    scored = {"a": 1.0, "b": 0.0}
    assert probabilities(scored, 0.5)["a"] > probabilities(scored, 1.0)["a"]
    certain, doubt = 1 / (1 + math.exp(-1)), ranking._DOUBT
    assert probabilities(scored, 1.0)["a"] == pytest.approx((1 - doubt) * certain + doubt / 2)
    assert sum(probabilities(scored).values()) == pytest.approx(1.0)


def test_nothing_is_certain() -> None:
    seen = View(evidence=Evidence(prose="exits with return code = -9, DefaultCPUAllocator, oom-killer"), job=Job())
    best = rank(seen)[0]
    assert best.cause == "host-ram"
    assert 0.8 < best.probability < 0.99


def test_a_server_trains_nothing() -> None:
    seen = View(evidence=Evidence(prose="optimizer.step fails"), job=Job(objective="inference"))
    against = [r for r in weigh(seen)["optimizer-init"] if r.log_odds < 0]
    assert against


def test_host_failure_rules_out_the_card() -> None:
    failure = Failure(kind="host", signal=Signal("exit-9", Span("log", 1)))
    seen = View(evidence=Evidence(failures=(failure,)), job=Job())
    assert rank(seen)[0].cause == "host-ram"


def test_cases_vote() -> None:
    plain = View(evidence=Evidence(prose="it failed"), job=Job())
    voted = View(evidence=Evidence(prose="it failed"), job=Job(), votes=(Vote("eval", "eval/x", 0.9),))
    assert scores(weigh(voted))["eval"] > scores(weigh(plain))["eval"]


def test_wording_counts_more_where_nothing_was_read() -> None:
    failure = Failure(kind="device", signal=Signal("torch-cuda-oom", Span("log", 1)))
    alone = View(evidence=Evidence(prose="it failed"), job=Job(), sounds={"eval": 2.0})
    beside = View(evidence=Evidence(prose="it failed", failures=(failure,)), job=Job(), sounds={"eval": 2.0})
    by_sound = [sum(r.log_odds for c, r in ranking._sounds(v) if c == "eval") for v in (alone, beside)]
    assert by_sound[0] > by_sound[1] > 0


def test_what_is_usual_weighs_less_than_any_sign() -> None:
    largest = max(share for shares in usual.KINDS.values() for share in shares.values())
    assert largest * WEAK / 2 < WEAK
    assert {cause for shares in usual.KINDS.values() for cause in shares} <= set(CAUSES)


def test_a_job_without_a_sign_is_ranked_by_what_is_usual_for_it() -> None:
    failure = Failure(kind="device", signal=Signal("torch-cuda-oom", Span("log.txt", 1)))
    evidence = Evidence(failures=(failure,))

    def order(job: Job) -> list[str]:
        scored = scores(weigh(View(evidence=evidence, job=job)))
        return sorted(scored, key=lambda cause: -scored[cause])

    assert order(Job(objective="inference")).index("kv-cache") < order(Job(method="full")).index("kv-cache")
    assert order(Job(method="lora")).index("activations") < 3
    rollouts = order(Job(objective="grpo", method="full"))
    assert rollouts.index("rollout-engine") < order(Job(objective="sft", method="full")).index("rollout-engine")
    adapters = order(Job(objective="grpo", method="lora"))
    assert adapters.index("rollout-engine") == rollouts.index("rollout-engine"), (
        "adapters have an engine beside them too"
    )
    pairs, single = (order(Job(objective=name, method="lora")) for name in ("dpo", "sft"))
    assert pairs.index("extra-models") < single.index("extra-models")
    quantized, plain = (order(Job(objective="sft", method=name)) for name in ("qlora", "lora"))
    assert quantized.index("weights-load") < plain.index("weights-load")
    assert order(Job()).index("attention-scores") < order(Job(method="full")).index("attention-scores")


def test_another_memory_than_the_cards_needs_a_sign_where_the_card_refused() -> None:
    failure = Failure(kind="device", signal=Signal("torch-cuda-oom", Span("log.txt", 1)))

    def score(prose: str, *failures: Failure) -> float:
        return scores(weigh(View(evidence=Evidence(prose=prose, failures=failures), job=Job())))["host-ram"]

    assert score("training stops", failure) < score("training stops") - 1.0
    told = "the converter fills all host memory"
    assert score(told, failure) == pytest.approx(score(told))
