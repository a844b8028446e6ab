"""Every task of :mod:`patch_tasks`, with the framework given and without."""

from __future__ import annotations

import collections
import importlib.util
from pathlib import Path

import pytest

from oomdoc.intake.configs import patch
from oomdoc.intake.configs.declared import TABLES


def loaded(name: str):
    """A module of data that lies beside."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_module = loaded("patch_tasks")
TASKS = (*_module.TASKS, *_module.MORE)


@pytest.mark.parametrize("task", TASKS, ids=[f"{t[0]}-{t[1]}" for t in TASKS])
@pytest.mark.parametrize("given", [True, False], ids=["given", "recognised"])
def test_the_wanted_lines_stand_and_no_other_line_changed(task, given):
    framework, filename, text, changes, expected, may_go = task
    done = patch(text, filename=filename, framework=framework if given else None, changes=changes)
    assert not done.unplaced
    assert done.error is None
    lines = {line.rstrip("\r\n") for line in done.text.splitlines(keepends=True)}
    assert [line for line in expected if line not in lines] == []
    old, new = (collections.Counter(t.splitlines(keepends=True)) for t in (text, done.text))
    assert sum((old - new).values()) <= may_go


def test_every_framework_has_a_task():
    examples = {example[0] for example in loaded("record_examples").EXAMPLES}
    assert {table.name for table in TABLES} == {task[0] for task in TASKS} | examples
