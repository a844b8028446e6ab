"""Every record reads its example, writes into it, and refuses what it has no key for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from oomdoc.evidence import Source
from oomdoc.intake.configs import patch, read_documents, to_job
from oomdoc.intake.configs.named_codecs import CODECS
from oomkb.frameworks import FRAMEWORKS, supports
from oomkb.frameworks.declared import records

_spec = importlib.util.spec_from_file_location("record_examples", Path(__file__).parent / "record_examples.py")
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
EXAMPLES = _module.EXAMPLES
IDS = [example[0] for example in EXAMPLES]


def test_every_record_uses_codecs_and_fields_that_exist():
    from oomkb.memory.job import Job

    for record in records():
        rows = [(row.field, row.codec) for row in (*record.keys, *record.words)]
        rows += [(rule.field, "") for rule in record.rules if rule.field]
        for field, codec in rows:
            Job().get(field)
            assert not codec or codec in CODECS, f"{record.name}: {codec}"
        assert any(framework.name == record.name for framework in FRAMEWORKS)


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_it_is_recognised_and_read(example):
    name, filename, text, wanted, *_ = example
    reading = read_documents(Source(filename, text))
    assert reading.framework == name
    assert reading.recognised.probability >= 0.5
    job = to_job({f.name: f for f in reading.facts}, reading.framework)
    assert {field: job.get(field) for field in wanted} == wanted


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_changes_go_where_its_keys_stand(example):
    _, filename, text, _, changes, expected, _ = example
    done = patch(text, filename=filename, changes=changes)
    assert (dict(done.unplaced), done.error) == ({}, None)
    lines = done.text.splitlines()
    assert [line for line in expected if line not in lines] == []
    assert len(lines) <= len(text.splitlines()) + len(changes)


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_what_it_has_no_place_for_is_refused_and_nothing_changes(example):
    *_, text, _, _, _, refused = example
    done = patch(text, filename=example[1], changes=refused)
    assert done.text == text
    assert done.diff == ""
    assert dict(done.unplaced) == dict.fromkeys(refused, "no-key")
    assert done.error


def test_a_record_can_set_what_it_has_keys_for():
    assert supports("litgpt", "lora.r")
    assert not supports("litgpt", "serving.max_num_seqs")
    assert supports("llava", "grad_ckpt")
