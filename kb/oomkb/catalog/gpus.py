"""GPUs and accelerators: what their drivers really report, how fast they are, what they cannot do.

The data lie in ``data/gpus/*.json``, one entry per card, each value group with its source. Names are read as
people write them (``"Tesla V100 32G"``, ``"8×A800 80G"``, ``"昇腾910B"``); see :mod:`oomkb.catalog.gpu_text`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from oomkb.catalog import gpu_data, gpu_text, instances
from oomkb.catalog.gpu_text import GpuMention
from oomkb.memory.device import Device
from oomkb.units import GIB, KIB

__all__ = ["GpuMention", "all_devices", "find", "find_all", "sized", "variants"]


def all_devices() -> tuple[Device, ...]:
    """Every card of the catalogue, in the order of the data files."""
    return tuple(entry.device for entry in gpu_data.entries())


@lru_cache(maxsize=2048)
def find(text: str, capacity_bytes: int | None = None) -> Device | None:
    """The card that ``text`` names, or ``None``.

    A size or form factor in the text selects the variant (``"V100 32G"``, ``"A100-PCIE-40GB"``); so does
    ``capacity_bytes``, the total that a log reports, where the text alone leaves it open.
    A bare name of several variants (``"A100"``) gives the one listed first: the commonest.
    """
    mentions = gpu_text.scan(text[:400], strict=False, capacity_bytes=capacity_bytes)
    return max(mentions, key=lambda m: m.certainty).device if mentions else None


@lru_cache(maxsize=1024)
def sized(gpu: str | None, capacity_gib: float | None, host_gib: float | None = None) -> Device | None:
    """The card that is named, with a stated capacity in place of the catalogue's; ``None`` where neither is stated.

    :param host_gib: memory of the machine, which is the card's too where it is unified.
    """
    if capacity_gib is None:
        device = find(gpu) if gpu else None
        return sized(gpu, host_gib) if device is not None and device.unified and host_gib else device
    if capacity_gib < _MIN_CAPACITY_GIB:
        capacity_gib *= KIB  # "16MB of RAM": no card has so little
    capacity_bytes = round(capacity_gib * GIB)
    device = find(gpu, capacity_bytes) if gpu else None
    if device is None:
        return Device(name=gpu or "GPU", vendor="other", generation="unknown", capacity_bytes=capacity_bytes)
    if device.unified and device.nominal_bytes == capacity_bytes:  # the size on the box, of which a part is the GPU's
        return device
    if device.lets_swap(capacity_bytes):
        return device
    if device.capacity_bytes >= _LARGE_CARD_BYTES and capacity_bytes > _MAX_VARIANT_RATIO * device.capacity_bytes:
        return device  # what several of them hold together
    # People round up ("80 GB"): the driver's figure is kept unless the stated one is clearly another variant. A
    # fraction ("79.15 GiB") is no rounded size: a program printed it.
    if (
        capacity_gib == int(capacity_gib)
        and abs(capacity_bytes - device.capacity_bytes) <= 0.12 * device.capacity_bytes
    ):
        return replace(device, capacity_bytes=min(capacity_bytes, device.capacity_bytes))
    return replace(device, capacity_bytes=capacity_bytes)


_MIN_CAPACITY_GIB: Final = 0.25
"""Below it a stated size has its unit mistaken."""
_LARGE_CARD_BYTES: Final = 70 * GIB
_MAX_VARIANT_RATIO: Final = 1.3
"""How many times the memory of a large card its largest variant has; smaller cards are rebuilt with twice theirs."""


def find_all(text: str) -> list[GpuMention]:
    """Every mention of a card in prose or a log, in order, without chance hits such as ``L4`` in ``level4``.

    The name of a rented machine (``p4d.24xlarge``) is a mention of the card that it holds.
    """
    found = gpu_text.scan(text, strict=True)
    rented = [
        GpuMention(device, start, end, text[start:end], candidates=(device,), machine=machine)
        for start, end, machine in instances.find_all(text)
        if (device := find(machine.card)) is not None
    ]
    if not rented:
        return found
    alone = [m for m in found if all(m.end <= r.start or r.end <= m.start for r in rented)]
    return sorted((*alone, *rented), key=lambda mention: mention.start)


def variants(text: str) -> tuple[Device, ...]:
    """All cards that a name may stand for: ``"A100"`` gives the 40 and 80 GB cards, PCIe and SXM."""
    mentions = gpu_text.scan(text[:400], strict=False)
    return max(mentions, key=lambda m: m.certainty).candidates if mentions else ()
