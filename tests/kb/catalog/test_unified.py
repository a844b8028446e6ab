"""A machine whose memory is the card's."""

from __future__ import annotations

from oomkb.catalog import gpus
from oomkb.units import GIB


def test_the_memory_of_a_unified_machine_is_its_cards():
    device = gpus.sized("M4 Max", None, 64)
    assert device is not None
    assert device.capacity_bytes == 48 * GIB  # what the system lets the GPU have of 64


def test_the_memory_of_another_machine_is_not():
    device, alone = gpus.sized("L20", None, 512), gpus.sized("L20", None)
    assert device == alone
