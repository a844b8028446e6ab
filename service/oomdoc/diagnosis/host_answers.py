"""What an answer says of host memory: what is offloaded, what loading takes, what a card has no room for."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.comparing import Plain
from oomdoc.diagnosis.forms import HOST_USABLE, LITTLE_HOST_BYTES, host_is_short, most_of, needed_of, pinned_most
from oomdoc.evidence import Message, say
from oomkb.frameworks import has
from oomkb.memory.estimate import Estimate
from oomkb.memory.host import LIBRARIES_BYTES
from oomkb.memory.job import Job
from oomkb.units import GIB


def host_memory(about: Plain) -> Iterator[Message]:
    """Host memory of one machine: of what is offloaded, and of loading where that is asked."""
    job, estimate, have = about.job, about.estimate, (about.job.host_gib or 0.0) * GIB
    if (job.offload or estimate.served) and estimate.host_bytes >= GIB:
        if not host_is_short(job, estimate):
            key = "answer.host-of" if have else "answer.host"
            yield say(key, host_bytes=estimate.host_bytes, have_bytes=have)
            if (most := pinned_most(estimate)) is not None:
                yield say("answer.host-most", most_bytes=most)
    elif about.wanted == "host" and not (estimate.served and _spills(job)):
        phases = [phase.terms_bytes for phase in estimate.host_phases.values()]
        files = [terms.get("mapped files", 0.0) for terms in phases]
        mapped = most_of(estimate, "weights") * (job.world or 1) or max(files, default=0.0)
        own = max((sum(t.values()) - f for t, f in zip(phases, files, strict=True)), default=LIBRARIES_BYTES)
        key = "answer.host-load" if own > LITTLE_HOST_BYTES else "answer.host-load-little"
        yield say(key, own_bytes=own, mapped_bytes=mapped)


def beyond_card_and_host(job: Job, estimate: Estimate) -> float | None:
    """What cards and host hold together, in bytes, where an engine that keeps in host memory what the cards have no
    room for needs more than that; else ``None``.
    """
    if not job.host_gib or not estimate.capacity_bytes or not _spills(job):
        return None
    cards = job.world or 1
    together: float = estimate.capacity_bytes * cards + HOST_USABLE * job.host_gib * GIB
    return together if needed_of(estimate) * cards > together else None


def _spills(job: Job) -> bool:
    return has(job.framework, "spills", serving=True)
