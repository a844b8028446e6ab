"""The record's strict form, its light form, and what older and newer formats do."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from oomdoc.report.case_page import case_page
from oomkb.errors import RecordError
from oomkb.records.files import MAX_BYTES, parse
from oomkb.records.schema import Record, json_schema, to_case

RECORD = {
    "schema": 2,
    "title": {"en": "A", "zh": "甲"},
    "summary": {"en": "B", "zh": "乙"},
    "date": "2025-01-31",
    "languages": ["en"],
    "frameworks": ["vllm"],
    "symptoms": ["KV cache does not fit on my card"],
    "cause": {"witness": [{"by": "inference"}]},
    "why": {"en": "C", "zh": "丙", "witness": [{"by": "inference"}]},
    "fixes": [],
    "references": [{"role": "report", "url": "https://github.com/a/b/issues/1"}],
}


def test_a_minimal_record_becomes_a_case() -> None:
    case = to_case(Record.model_validate(RECORD), case_id="kv-cache/a-b")
    assert (case.cause, case.slug) == ("kv-cache", "a-b")
    assert case.url == "https://github.com/a/b/issues/1"
    assert case.jobs()[0] is None
    assert case.date == "2025-01-31"


def test_jobs_are_read_from_the_case() -> None:
    case = to_case(
        Record.model_validate(RECORD | {"before": {"micro_batch": 4}, "after": {"micro_batch": 1}}), case_id="x/y"
    )
    before, after = case.jobs()
    assert before is not None
    assert after is not None
    assert (before.micro_batch, after.micro_batch) == (4, 1)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"titel": {}}, "titel"),
        ({"title": {"en": "A"}}, "title.zh"),
        ({"date": "yesterday"}, "date"),
        ({"hardware": {"count": 0}}, "hardware.count"),
        ({"outcome": {"before": {"peak_gib": -1}}}, "outcome.before.peak_gib"),
        ({"symptoms": []}, "symptoms"),
        ({"references": []}, "references"),
        (
            {"fixes": [{"text": {"en": "x", "zh": "某"}, "witness": [{"by": "hearsay"}], "safety": "same-numbers"}]},
            "fixes.0.witness.0.by",
        ),
        ({"schema": 3}, "schema"),
    ],
)
def test_a_wrong_record_is_refused_with_its_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Record.model_validate(RECORD | change)
    assert field in {".".join(map(str, e["loc"])) for e in caught.value.errors()}


def test_the_json_schema_agrees_with_the_models(root: Path) -> None:
    schema = json_schema()
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    assert schema["$id"] == "urn:oomdoc:case:2"
    for path in sorted((root / "cases").glob("*/*.yaml"))[::7]:
        document = json.loads(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), default=str))
        assert list(validator.iter_errors(document)) == [], path.name
    assert list(validator.iter_errors(RECORD | {"titel": 1}))


@pytest.mark.parametrize("version", [0, 1, "true", '"2"', 99])
def test_a_version_that_cannot_be_read_is_refused(version: object) -> None:
    with pytest.raises(RecordError) as caught:
        parse(f"schema: {version}", where="x")
    assert caught.value.where == "x: schema"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "twice"),
        ("a: [1\n", "broken YAML"),
        ("- 1\n", "mapping"),
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("a: !!python/object/apply:os.system [x]\n", "broken YAML"),
    ],
)
def test_yaml_is_read_strictly(text: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        parse(text, where="x.yaml")


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    from oomkb.records.files import read_text

    path = tmp_path / "x.yaml"
    path.write_text("a" * (MAX_BYTES + 1))
    with pytest.raises(RecordError, match="longer than"):
        read_text(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="UTF-8"):
        read_text(path)


def test_a_page_that_could_not_be_opened_is_said_beside_its_claim() -> None:
    page = {"role": "report", "url": "https://github.com/a/b/issues/1", "checked": "2026-11-28", "visible": "none"}
    said = {"by": "maintainer-said", "ref": page["url"]}
    case = to_case(
        Record.model_validate(RECORD | {"references": [page], "cause": {"witness": [said]}}), case_id="leak/a"
    )
    assert case.standing_of(case.cause_witness).unseen == "2026-11-28"
    assert "could not be opened on 2026-11-28" in case_page(case)
    assert "2026-11-28 无法打开" in case_page(case, "zh")
    with pytest.raises(ValidationError, match="visible needs checked"):
        Record.model_validate(RECORD | {"references": [{key: page[key] for key in page if key != "checked"}]})
