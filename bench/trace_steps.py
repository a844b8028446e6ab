"""Steps under a meter, phase by phase: what the traces of single mechanisms have in common."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter, scalars
from oomkb.units import GIB

__all__ = ["counted", "measured", "stepped", "traced"]


def counted(meter: Meter, networks: Iterable[Any]) -> dict[str, int]:
    """Count what lies on the device before the first step."""
    for network in networks:
        for tensor in (*network.parameters(), *network.buffers()):
            meter.add(tensor)
    return {"static_gib": meter.live}


def stepped(
    meter: Meter, row: dict[str, int], model: Any, job: dict[str, Any], loss: Callable[[], Any], *, steps: int = 2
) -> dict[str, float]:
    """Take ``steps`` steps of ``loss()``; the row with the peaks of the last one, in GiB.

    ``loss()`` may give a second value, which lives until the optimizer's step is over.
    """
    optimizer = running.make_optimizer([p for p in model.parameters() if p.requires_grad], job)
    for _ in range(steps):
        meter.reset()
        value, *kept = found if isinstance(found := loss(), tuple) else (found,)
        del found
        row["peak_forward"] = meter.peak
        meter.reset()
        value.backward()
        del value
        row["peak_backward"] = meter.peak
        meter.reset()
        optimizer.step()
        row["peak_step"] = meter.peak
        optimizer.zero_grad(set_to_none=True)
        del kept
    row["allocated_gib"] = max(row["peak_forward"], row["peak_backward"], row["peak_step"])
    return {name: round(size / GIB, 4) for name, size in row.items()}


def measured(model: Any, job: dict[str, Any], loss: Callable[[], Any], *, also: Iterable[Any] = ()) -> dict[str, float]:
    """Two steps of ``loss()`` under fake tensors; the peaks of the second, in GiB.

    :param also: other networks that lie on the device.
    """
    networks = (model, *also)
    with FakeTensorMode(allow_non_fake_inputs=True), scalars():
        for network in networks:
            building.materialise(network, "cpu")
        with Meter() as meter:
            return stepped(meter, counted(meter, networks), model, job, loss)


def traced(trace: Callable[[dict[str, Any]], dict[str, float]]) -> int:
    """The rows of the file named on the command line, each printed with what its job's trace measured."""
    for line in Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        print(json.dumps({**row, "measured": trace(row["job"])}), flush=True)
    return 0
