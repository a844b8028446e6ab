"""What a report shows, as named numbers in 0..1: the only thing that the ranker sees.

Each module reads one kind of thing off the :class:`~oomdoc.diagnosis.view.View` and yields
:class:`~oomdoc.diagnosis.result.Feature` values. A feature is an observation, not a rule: which causes it speaks for is
learned (``bench/fit_ranker.py``) and written down in ``weights.tsv``.
"""

from __future__ import annotations

from typing import Final

from oomdoc.diagnosis.features import circumstances, prediction, sizes, statements, versions
from oomdoc.diagnosis.result import Feature
from oomdoc.diagnosis.view import View

GROUPS: Final = {
    "circumstances": circumstances.features,
    "statements": statements.features,
    "sizes": sizes.features,
    "prediction": prediction.features,
    "comparisons": statements.of_cases,
    "versions": versions.features,
    "language-model": statements.of_language_model,
}
"""Name of the group -> what yields it. ``bench/fit_ranker.py --ablate`` leaves out one after the other."""


def features_of(view: View) -> tuple[Feature, ...]:
    """Every feature of the report, the largest value of each name."""
    found: dict[str, Feature] = {}
    for group in GROUPS.values():
        for feature in group(view):
            known = found.get(feature.name)
            if known is None or feature.value > known.value:
                found[feature.name] = feature
    return tuple(found.values())
