"""Machines that a job asks a cloud for: how many GPUs of which kind an instance type or an accelerator has.

AWS: EC2's lists of accelerated computing instances (docs.aws.amazon.com/ec2, P3 to P5en, G4dn to G6e), under whose
names SageMaker has them too (``ml.p4d.24xlarge``). SkyPilot: ``accelerators: A100-80GB:8``.
"""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["accelerators", "instance"]

_FAMILIES: Final = {
    "p3": "V100-16GB",
    "p3dn": "V100-32GB",
    "p4d": "A100-40GB",
    "p4de": "A100-80GB",
    "p5": "H100",
    "p5e": "H200",
    "p5en": "H200",
    "g4dn": "T4",
    "g5": "A10G",
    "g6": "L4",
    "g6e": "L40S",
}
_COUNTS: Final = {
    "p3.8xlarge": 4,
    "p3.16xlarge": 8,
    "p3dn.24xlarge": 8,
    "p4d.24xlarge": 8,
    "p4de.24xlarge": 8,
    "p5.48xlarge": 8,
    "p5e.48xlarge": 8,
    "p5en.48xlarge": 8,
    "g4dn.12xlarge": 4,
    "g4dn.metal": 8,
    **dict.fromkeys(("g5.12xlarge", "g6.12xlarge", "g6e.12xlarge", "g5.24xlarge", "g6.24xlarge", "g6e.24xlarge"), 4),
    **dict.fromkeys(("g5.48xlarge", "g6.48xlarge", "g6e.48xlarge"), 8),
}
_TYPE: Final = re.compile(r"(?:ml\.)?(?P<family>[gp][0-9][a-z]{0,2})\.(?P<size>(?:[0-9]{1,2})?xlarge|metal)\Z")
_ASKED: Final = re.compile(r"(?P<gpu>[A-Za-z][\w-]{1,30})(?::(?P<count>[0-9]{1,2}))?\Z")


def instance(value: Any) -> tuple[str, int] | None:
    """GPU and count of an instance type."""
    found = _TYPE.match(value.strip()) if isinstance(value, str) and len(value) < 40 else None
    if found is None or found["family"] not in _FAMILIES:
        return None
    return _FAMILIES[found["family"]], _COUNTS.get(f"{found['family']}.{found['size']}", 1)


def accelerators(value: Any) -> tuple[str, int] | None:
    """GPU and count of ``A100-80GB:8``; ``None`` for several to choose from."""
    found = _ASKED.match(value.strip()) if isinstance(value, str) and len(value) < 60 else None
    return (found["gpu"], int(found["count"] or 1)) if found is not None else None
