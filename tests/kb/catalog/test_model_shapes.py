"""The memory model counts every model of the catalogue as it was published."""

from __future__ import annotations

import pytest

from oomkb.catalog.models import all_models
from oomkb.memory.shape import ModelShape


@pytest.mark.parametrize("entry", all_models(), ids=lambda e: e.name)
def test_the_shape_counts_what_was_published(entry):
    shape = ModelShape.from_config(dict(entry.config))
    assert shape.params == pytest.approx(entry.params, rel=1e-3)
    assert not shape.warnings
