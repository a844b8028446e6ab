"""Starting, checking and adding cases."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from oomdoc.casework import add, check_text, found, from_diagnosis, listed, scaffold, write_new
from oomkb.errors import RecordError
from oomkb.records.lint import lint_text

DIAGNOSIS = {
    "schema": "oomdoc.diagnosis/1",
    "summary": "The logits do not fit.",
    "causes": [
        {
            "cause": "logits",
            "probability": 0.8,
            "why": ["4.64 GiB is one fp32 copy"],
            "evidence": [{"source": "log", "line": 3, "text": "Tried to allocate 4.64 GiB"}],
        },
        {"cause": "activations", "probability": 0.3, "why": [], "evidence": []},
        {"cause": "leak", "probability": 0.01, "why": [], "evidence": []},
    ],
    "facts": {
        "gpu": {"value": "V100", "stated": True},
        "gpu_count": {"value": 8, "stated": True},
        "micro_batch": {"value": 1, "stated": True},
        "seq_len": {"value": -5, "stated": True},
        "method": {"value": "full", "stated": True},
        "attention": {"value": "flash2", "stated": False},
        "phase": {"value": "loss", "stated": True},
    },
    "plans": [{"changes": [{"key": "cutoff_len", "from": 4096, "to": 1024}], "safety": "changed-training"}],
}


def test_the_template_lacks_nothing_but_what_a_person_knows() -> None:
    problems = lint_text(scaffold("logits", "a-b"), case_id="logits/a-b")
    assert {p.message for p in problems} <= {"still says FILL IN", "names no thread"}
    assert len(problems) >= 8


@pytest.mark.parametrize(("cause", "slug"), [("oom", "a"), ("logits", "A_B"), ("logits", "../x"), ("logits", "")])
def test_wrong_names_are_refused(cause: str, slug: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is no"):
        scaffold(cause, slug)
    with pytest.raises(RecordError, match="is no"):
        write_new(tmp_path, cause, slug)
    assert not list(tmp_path.rglob("*.yaml"))


def test_a_diagnosis_prefills_what_it_knows(tmp_path: Path) -> None:
    source = tmp_path / "d.json"
    source.write_text(json.dumps(DIAGNOSIS))
    path = write_new(tmp_path, "logits", "from-life", source)
    record = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert record["symptoms"][0] == "Tried to allocate 4.64 GiB"
    assert record["hardware"] == {"gpu": "V100", "count": 8}
    assert record["before"] == {"method": "full", "micro_batch": 1, "world": 8, "gpu": "V100"}
    assert record["also"] == ["activations"]
    assert record["phase"] == "loss"
    assert "cutoff_len: 4096 -> 1024" in record["fixes"][0]["text"]["en"]
    messages = {p.message for p in lint_text(path.read_text(encoding="utf-8"), case_id="logits/from-life")}
    assert messages <= {
        "still says FILL IN",
        "holds no Chinese",
        "'FILL IN' is no https link",
        "rests on inference alone",
    }
    with pytest.raises(RecordError, match="exists already"):
        write_new(tmp_path, "logits", "from-life", source)


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"causes": []}'])
def test_what_is_no_diagnosis_is_refused(text: str, tmp_path: Path) -> None:
    source = tmp_path / "d.json"
    source.write_text(text)
    with pytest.raises(RecordError):
        write_new(tmp_path, "logits", "x", source)
    with pytest.raises(RecordError):
        from_diagnosis({"causes": None})


def test_a_sound_case_is_added_once(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in" / "logits" / "mine.yaml"
    source.parent.mkdir(parents=True)
    shutil.copy(root / "cases" / "logits" / "dpo-large-vocabulary.yaml", source)
    with pytest.raises(RecordError, match="no private case folder"):
        add(source)
    monkeypatch.setenv("OOMDOC_CASES", str(tmp_path / "private"))
    added = add(source)
    assert added.path == tmp_path / "private" / "logits" / "mine.yaml"
    assert found("logits/mine").private
    with pytest.raises(RecordError, match="is there already"):
        add(source)


def test_a_faulty_case_is_not_added(tmp_path: Path) -> None:
    source = tmp_path / "logits" / "faulty.yaml"
    source.parent.mkdir()
    source.write_text(scaffold("logits", "faulty"), encoding="utf-8")
    added = add(source, tmp_path / "private")
    assert added.path is None
    assert added.problems
    assert not (tmp_path / "private").exists()
    with pytest.raises(RecordError, match="no cause"):
        add(source.rename(tmp_path / "faulty.yaml"), tmp_path / "private")


def test_cases_are_listed_and_found() -> None:
    everything = listed()
    assert {c.cause for c in listed(cause="logits")} == {"logits"}
    assert 0 < len(listed(framework="vLLM")) < len(everything)
    assert found("dpo-large-vocabulary").id == "logits/dpo-large-vocabulary"
    with pytest.raises(RecordError, match="did you mean logits"):
        listed(cause="logit")
    with pytest.raises(RecordError, match="logits/dpo-large-vocabulary"):
        found("logits/dpo-large-vocabularies")


def test_text_that_is_handed_in_is_checked(root: Path) -> None:
    text = (root / "cases" / "logits" / "dpo-large-vocabulary.yaml").read_text(encoding="utf-8")
    assert check_text("logits/x", text) == ()
    assert check_text("nonsense/x", text)
    assert check_text("logits/x", "{")
