"""The report that ``oomdoc.watch()`` leaves at a failure, as text; standard library only, as the hook itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CAPTURE_SCHEMA: Final = "oomdoc.capture/1"


def report_text(report: Mapping[str, Any]) -> str:
    """A report as text that :func:`oomdoc.diagnose` reads: settings, versions, sizes, then the traceback."""
    lines = [f"$ {' '.join(map(str, report.get('command') or []))}"]
    lines += [f"{name}=={version}" for name, version in (report.get("versions") or {}).items()]
    lines += [f"export {name}={value}" for name, value in (report.get("environment") or {}).items()]
    device = (report.get("allocator") or {}).get("device")
    if device:
        lines.append(f"{report.get('world', 1)} x {device}")
    lines += [f"{name}: {value}" for name, value in (report.get("settings") or {}).items()]
    lines.append(str(report.get("traceback") or ""))
    return "\n".join(lines)
