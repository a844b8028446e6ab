"""Each rule with a record that must trigger it, and the same record without the fault, which must not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from oomkb.records.lint import MAX_LINES, lint, lint_text

GOOD: dict[str, Any] = {
    "schema": 2,
    "title": {
        "en": "A quantized base still leaves four samples of activations",
        "zh": "量化后的底座仍要放四条样本的激活",
    },
    "summary": {"en": "QLoRA on a small card overflows at the default batch", "zh": "小卡上用默认批量做 QLoRA 溢出"},
    "date": "2024-05-06",
    "languages": ["en"],
    "frameworks": ["transformers"],
    "hardware": {"gpu": "RTX 3090", "count": 1, "capacity_gib": 24},
    "phase": "train",
    "method": "qlora",
    "objective": "sft",
    "symptoms": ["OutOfMemoryError: Tried to allocate 86.00 MiB. GPU 0 has 23.69 GiB, bnb.nf4 and vicuna on a 3090"],
    "signatures": [
        {
            "text": "Tried to allocate 86.00 MiB",
            "means": {"en": "one MLP tensor", "zh": "一个 MLP 张量"},
            "source": "a.py, torch 2.1",
        },
    ],
    "before": {"model": "lmsys/vicuna-7b-v1.5", "micro_batch": 4},
    "after": {"model": "lmsys/vicuna-7b-v1.5", "micro_batch": 1},
    "outcome": {
        "before": {"peak_gib": 22.5},
        "witness": [{"by": "user-said", "ref": "https://github.com/a/b/issues/12"}],
    },
    "cause": {"witness": [{"by": "maintainer-said", "ref": "https://github.com/a/b/issues/12"}]},
    "also": ["logits"],
    "why": {
        "en": "The script trains four samples at once",
        "zh": "脚本一次训练四条样本",
        "witness": [{"by": "arithmetic", "sum": "4 * 2048 * 32000 * 4 / 2**30 = 0.977"}],
    },
    "fixes": [
        {
            "text": {"en": "micro_batch_size = 1", "zh": "把 micro_batch_size 设为 1"},
            "safety": "same-numbers",
            "changes": {"micro_batch": 1},
            "witness": [{"by": "reporter-tried", "result": "worked", "ref": "https://github.com/a/b/issues/12"}],
        }
    ],
    "affected": [
        {
            "package": "deepspeed",
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0.16.0"}, {"fixed": "0.16.8"}]}],
            "witness": [{"by": "merged-code", "pull": "a/b#12", "ref": "https://github.com/a/b/issues/12"}],
        }
    ],
    "references": [{"role": "report", "url": "https://github.com/a/b/issues/12"}],
}

Change = Callable[[dict[str, Any]], Any]


def written(folder: Path, record: dict[str, Any], cause: str = "activations", slug: str = "a-case") -> Path:
    path = folder / cause / f"{slug}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        yaml.safe_dump(record, allow_unicode=True, sort_keys=False, width=100, default_flow_style=None),
        encoding="utf-8",
    )
    return path


def test_a_good_record_has_no_problem(tmp_path: Path) -> None:
    assert lint([written(tmp_path, GOOD)]) == []


FAULTS: list[tuple[Change, str, str]] = [
    (lambda r: r.update(colour="red"), "colour", "no field of a case"),
    (lambda r: r["fixes"][0].update(cost=1), "fixes[0].cost", "no field of a case"),
    (lambda r: r["title"].pop("zh"), "title.zh", "Field required"),
    (lambda r: r["why"].update(zh="no Chinese here"), "why.zh", "holds no Chinese"),
    (lambda r: r["summary"].update(en="全是中文"), "summary.en", "holds Chinese"),
    (lambda r: r["title"].update(en="FILL IN: later"), "title.en", "FILL IN"),
    (lambda r: r.update(also=["logitz"]), "also[0]", "no cause"),
    (lambda r: r.update(also=["activations"]), "also[0]", "already named"),
    (lambda r: r.update(frameworks=["transfomers"]), "frameworks[0]", "not known"),
    (lambda r: r.update(phase="lunch"), "phase", "not known"),
    (lambda r: r.update(method="LoRA"), "method", "spelling of 'lora'"),
    (lambda r: r.update(objective="world-peace"), "objective", "not known"),
    (lambda r: r.update(date="2017-12-31"), "date", "cannot be"),
    (lambda r: r.update(date="2999-01-01"), "date", "cannot be"),
    (lambda r: r.pop("cause"), "cause", "Field required"),
    (lambda r: r["cause"].update(witness=[]), "cause.witness", "at least 1 item"),
    (lambda r: r["why"].pop("witness"), "why.witness", "Field required"),
    (lambda r: r["fixes"][0].pop("witness"), "fixes[0].witness", "Field required"),
    (lambda r: r["fixes"][0].update(status="confirmed-by-reporter"), "fixes[0].status", "no field of a case"),
    (lambda r: r["fixes"][0]["witness"][0].pop("result"), "fixes[0].witness[0]", "reporter-tried needs result"),
    (lambda r: r["fixes"][0]["witness"][0].update(sum="1 = 1"), "fixes[0].witness[0]", "has no sum"),
    (lambda r: r["affected"][0]["witness"][0].pop("pull"), "affected[0].witness[0]", "needs pull or commit"),
    (lambda r: r["affected"][0]["witness"][0].update(release="soon"), "affected[0].witness[0].release", "no version"),
    (
        lambda r: r["cause"]["witness"][0].update(ref="https://github.com/a/b/issues/13"),
        "cause.witness[0].ref",
        "none of the references",
    ),
    (lambda r: r["why"]["witness"][0].update(sum="4 * 2048 = 9000"), "why.witness[0].sum", "gives 8192"),
    (lambda r: r["outcome"].pop("witness"), "outcome.witness", "missing"),
    (
        lambda r: r["fixes"][0].update(saves_gib=3, witness=[{"by": "inference"}]),
        "fixes[0].saves_gib",
        "witnessed by nobody",
    ),
    (lambda r: r["affected"][0].pop("ranges"), "affected[0]", "names no version"),
    (lambda r: r["affected"][0].update(witness=[{"by": "inference"}]), "affected[0].ranges", "witnessed by nobody"),
    (lambda r: r["affected"][0].update(seen=["sixteen"]), "affected[0].seen", "no version"),
    (
        lambda r: r["affected"][0]["ranges"][0].update(events=[{"introduced": "0.16.0"}, {"last_affected": "0.16.0"}]),
        "affected[0].ranges[0]",
        "is one version",
    ),
    (lambda r: r["references"][0].update(url="http://github.com/a/b/issues/1"), "references[0].url", "no https link"),
    (lambda r: r["references"][0].update(url="https://github.com/a/b/issues/"), "references[0].url", "names no thread"),
    (lambda r: r["references"][0].update(url="https://github.com/a/b/pull/0"), "references[0].url", "names no thread"),
    (lambda r: r["references"][0].update(url="https://example.com/x"), "references[0].url", "placeholder"),
    (lambda r: r["references"].append(dict(r["references"][0])), "references[1].url", "given twice"),
    (lambda r: r["symptoms"].append("help: " + r["title"]["en"]), "symptoms[1]", "repeats title"),
    (lambda r: r["symptoms"].append("为什么" + r["title"]["zh"]), "symptoms[1]", "repeats title"),
    (lambda r: r["symptoms"].append("does it help that " + r["summary"]["en"]), "symptoms[1]", "repeats summary"),
    (lambda r: r["signatures"][0].pop("source"), "signatures[0].source", "what prints the line"),
    (
        lambda r: r["signatures"][0].update(text="Tried to allocate 99 GiB"),
        "signatures[0].text",
        "none of the symptoms",
    ),
    (lambda r: r["before"].update(micro_batch=0), "before.micro_batch", "not a whole number"),
    (lambda r: r["before"].update(batchsize=1), "before.batchsize", "no field of a job"),
    (lambda r: r.pop("before"), "before", "missing"),
    (lambda r: r.update(after=dict(r["before"])), "after", "same as before"),
    (lambda r: r["fixes"][0].update(changes={"lora.rank": 1}), "fixes[0].changes.lora.rank", "unknown field"),
    (lambda r: r["affected"][0].update(package="Deep Speed"), "affected[0].package", "no package name"),
    (
        lambda r: r["affected"][0]["ranges"][0].update(events=[{"introduced": "0.16.8"}, {"fixed": "0.16.0"}]),
        "affected[0].ranges[0]",
        "before it begins",
    ),
    (
        lambda r: r["affected"][0]["ranges"][0].update(events=[{"introduced": "sixteen"}]),
        "affected[0].ranges[0]",
        "no version",
    ),
    (
        lambda r: r["affected"][0]["ranges"][0].update(events=[{"fixed": "0.16.8"}]),
        "affected[0].ranges[0].events[0]",
        "out of order",
    ),
    (
        lambda r: r["affected"][0]["ranges"][0].update(events=[{"introduced": "0.16.0", "fixed": "0.16.8"}]),
        "affected[0].ranges[0].events[0]",
        "exactly one",
    ),
]


@pytest.mark.parametrize(("change", "field", "message"), FAULTS)
def test_each_rule_finds_its_fault(change: Change, field: str, message: str, tmp_path: Path) -> None:
    record = copy.deepcopy(GOOD)
    change(record)
    found = lint([written(tmp_path, record)])
    assert any(p.field == field and message in p.message for p in found), found
    assert all(p.file and str(p) for p in found)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    record = copy.deepcopy(GOOD) | {"phase": "lunch", "also": ["x"], "date": "2017-01-01"}
    assert {p.field for p in lint([written(tmp_path, record)])} == {"phase", "also[0]", "date"}


def test_the_place_of_a_file_is_checked(tmp_path: Path) -> None:
    assert "no cause" in lint([written(tmp_path, GOOD, cause="oom")])[0].message
    assert "no slug" in lint([written(tmp_path, GOOD, slug="A_Case")])[0].message
    written(tmp_path, GOOD).rename(tmp_path / "activations" / "a-case.yml")
    stray = lint([tmp_path / "activations", tmp_path])
    assert any(".yml" in p.message for p in stray)


def test_a_missing_path_and_broken_yaml_are_problems(tmp_path: Path) -> None:
    broken = tmp_path / "logits" / "x.yaml"
    broken.parent.mkdir()
    broken.write_text("title: [\n")
    found = lint([tmp_path / "nowhere", broken])
    assert [p.message.split(":")[0] for p in found] == ["broken YAML", "does not exist"]
    assert found[0].file.endswith("x.yaml:2")


def test_a_record_that_is_too_long(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    path.write_text(path.read_text() + "# more\n" * MAX_LINES)
    assert any(f"longer than {MAX_LINES}" in p.message for p in lint([path]))


def test_duplicates_are_found_across_files(tmp_path: Path) -> None:
    other = copy.deepcopy(GOOD)
    other["symptoms"] = ["torch.cuda.OutOfMemoryError while the first batch of the second epoch is read on an A100"]
    other["signatures"] = []
    written(tmp_path, GOOD)
    written(tmp_path, other, slug="same-thread")
    assert ["same page" in p.message for p in lint([tmp_path])] == [True]
    other["references"] = [{**other["references"][0], "role": "discussion"}]
    other["references"].append({"role": "report", "url": "https://github.com/a/b/issues/13"})
    other["cause"]["witness"].append({"by": "inference"})
    written(tmp_path, other, slug="same-thread")
    assert lint([tmp_path]) == []
    other["symptoms"] = [GOOD["symptoms"][0] + " !"]
    written(tmp_path, other, slug="same-thread")
    assert any("is all but that of" in p.message for p in lint([tmp_path]))


def test_a_version_regression_names_versions() -> None:
    record = {k: v for k, v in GOOD.items() if k != "affected"}
    text = yaml.safe_dump(record, allow_unicode=True)
    assert lint_text(text, case_id="activations/x") == []
    assert lint_text(text, case_id="version-regression/x") == []  # a maintainer says that it is one
    text = yaml.safe_dump(record | {"cause": {"witness": [{"by": "inference"}]}}, allow_unicode=True)
    assert [p.field for p in lint_text(text, case_id="version-regression/x")] == ["affected"]


@pytest.mark.parametrize(
    ("by", "after", "cause_tried", "message"),
    [
        ("inference", {}, False, "rests on inference alone"),
        ("reporter-tried", {}, False, "rests on inference alone"),
        ("maintainer-said", {"fits": True}, False, "was tried by nobody"),
        ("maintainer-said", {}, True, "is a trial of no fix"),
        ("maintainer-said", {}, False, ""),
    ],
)
def test_a_case_is_borne_out(by: str, after: dict[str, Any], cause_tried: bool, message: str) -> None:
    page = "https://github.com/a/b/issues/12"
    in_vain = {"result": "in-vain"} if by == "reporter-tried" else {}
    said = [{"by": by} if by == "inference" else {"by": by, "ref": page, **in_vain}]
    record = copy.deepcopy(GOOD)
    record["outcome"]["after"] = after
    for claim in (record["cause"], record["why"], record["fixes"][0], record["affected"][0], record["outcome"]):
        claim["witness"] = copy.deepcopy(said)
    if cause_tried:
        record["cause"]["witness"] = [{"by": "reporter-tried", "result": "worked", "ref": page}]
    found = [p.message for p in lint_text(yaml.safe_dump(record), case_id="activations/a-case")]
    ours = ("rests on", "was tried", "is a trial")
    assert [m for m in found if m.startswith(ours)] == ([message] if message else [])


def test_literal_error_lines_may_be_shared_with_an_explanation(tmp_path: Path) -> None:
    record = copy.deepcopy(GOOD)
    record["why"]["en"] = "86.00 MiB is one MLP tensor"
    assert lint([written(tmp_path, record)]) == []


@pytest.mark.parametrize(
    ("text", "changes", "tried"),
    [
        ("micro_batch_size = 1", {"micro_batch": 1}, True),
        ("shorter prompts: 512 tokens run", {"generations": 4}, False),
        ("pictures of 512 x 512", {"max_pixels": 262144}, True),
        ("max_pixels=960*28*28", {"max_pixels": 752640}, True),
        ("buckets of 1e10", {"buckets": {"allgather_bucket_size": 1e10}}, True),
        ("a lower share", {"serving.gpu_memory_utilization": 0.6}, False),
        ("gradient checkpointing", {"grad_ckpt": True}, True),
    ],
)
@pytest.mark.parametrize("by", ["reporter-tried", "inference"])
def test_a_fix_sets_only_what_its_text_names(text: str, changes: dict[str, Any], tried: bool, by: str) -> None:
    record = copy.deepcopy(GOOD)
    record["fixes"][0] |= {"text": {"en": text, "zh": "某"}, "changes": changes}
    if by == "inference":
        record["fixes"][0]["witness"] = [{"by": by}]
    found = [p for p in lint_text(yaml.safe_dump(record), case_id="activations/x") if "not in the fix's" in p.message]
    assert bool(found) is not tried


@pytest.mark.parametrize(
    ("witness", "role", "known"),
    [
        ({"by": "maintainer-said", "ref": "https://github.com/a/b/issues/12"}, "evidence", True),
        ({"by": "maintainer-said", "ref": "https://github.com/c/d/issues/7"}, "evidence", False),
        ({"by": "maintainer-said", "ref": "https://github.com/c/d/issues/7"}, "fix", False),
        ({"by": "maintainer-said", "ref": "https://github.com/a/b/pull/13"}, "fix", True),
        ({"by": "inference"}, "evidence", True),
    ],
)
def test_another_failure_does_not_witness_the_cause(witness: dict[str, str], role: str, known: bool) -> None:
    record = copy.deepcopy(GOOD)
    record["references"].append({"role": role, "url": witness.get("ref", "https://github.com/c/d/issues/7")})
    record["references"] = list({r["url"]: r for r in reversed(record["references"])}.values())
    record["cause"] = {"witness": [witness]}
    found = [p for p in lint_text(yaml.safe_dump(record), case_id="activations/x") if "another failure" in p.message]
    assert bool(found) is not known
