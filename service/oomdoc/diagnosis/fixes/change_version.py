"""Another version of a library: up to the release that fixes a memory regression, or back to the last good one.

Which versions are affected is read from the case records (ranges in the manner of OSV); the context carries the match.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job
from oomkb.records.versions import is_near

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    for found in context.facts.get("regressions", ()):
        package, used = found["package"], found.get("used")
        if used is None:
            yield Variant(
                instruction=say("fixes.change-version.check", package=package, line=f"pip show {package}"), effort=0.2
            )
        if found.get("fixed"):
            line = f'pip install "{package}>={found["fixed"]}"'
            yield Variant(
                instruction=say("fixes.change-version.up", package=package, version=found["fixed"], line=line),
                effort=0.6,
            )
        if found.get("last_good") and (not found.get("fixed") or is_near(used, found["last_good"])):
            line = f'pip install "{package}=={found["last_good"]}"'
            yield Variant(
                instruction=say("fixes.change-version.down", package=package, version=found["last_good"], line=line),
                effort=0.7,
            )


REMEDY = Remedy(
    name="change-version",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"version-regression"}),
    advice=True,
)
