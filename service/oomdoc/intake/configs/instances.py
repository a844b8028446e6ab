"""Machines that a job asks a cloud for: how many GPUs of which kind an instance type or an accelerator has.

AWS: EC2's lists of accelerated computing instances (docs.aws.amazon.com/ec2, P3 to P5en, G4dn to G6e), under whose
names SageMaker has them too (``ml.p4d.24xlarge``). SkyPilot: ``accelerators: A100-80GB:8``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from oomdoc.intake.configs.wordlist import meanings

__all__ = ["accelerators", "instance"]

_FAMILIES: Final = meanings("machine")
_COUNTS: Final = {name: int(count) for name, count in meanings("cards").items()}
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
