"""``oomdoc estimate --allocator``: the caching allocator replayed over a job's first steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomkb.dataclass import dataclass

if TYPE_CHECKING:
    from oomkb.pricing import Priced

__all__ = ["AllocatorAnswer", "replayed"]


@dataclass(frozen=True, slots=True)
class AllocatorAnswer:
    """What is printed below an estimate, and what was written."""

    document: dict[str, Any]
    text: str


def replayed(priced: Priced, job: Path | None, language: str) -> AllocatorAnswer:
    """Replay a priced job; writes ``NAME.snapshot.pickle`` and ``NAME.snapshot.png`` into the current directory.

    :raises JobError: for a job that is not played, and for allocator settings that PyTorch refuses.
    """
    from oomdoc.report.allocator import allocator_document, allocator_text, draw_timeline
    from oomdoc.report.words import word
    from oomkb.memory.allocator.run import replayed_job
    from oomkb.memory.allocator.snapshot import write_snapshot
    from oomkb.pricing import extra_model_shapes

    run = replayed_job(priced.job, priced.shape, priced.device, shapes=extra_model_shapes(priced.job))
    name = job.stem if job is not None and job.name != "-" else "oomdoc"
    pickle, picture = Path(f"{name}.snapshot.pickle"), Path(f"{name}.snapshot.png")
    write_snapshot(run.shown.allocator, pickle)
    drawn = draw_timeline(run, picture)
    document = allocator_document(run)
    document["files"] = [str(pickle), *([str(picture)] if drawn else [])]
    written = word("allocator.picture", language, path=picture) if drawn else word("allocator.no-picture", language)
    below = [word("allocator.written", language, path=pickle), written]
    return AllocatorAnswer(document, allocator_text(document, language) + "".join(f"  {line}\n" for line in below))
