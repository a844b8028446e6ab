"""Exact mode: the real step of a job under PyTorch's FakeTensorMode on the CPU, beside the analytic terms.

Importing this package loads no torch; :func:`compare` does, and raises where the extra ``trace`` is not installed.
"""

from __future__ import annotations

from oomdoc.tracing.comparing import Comparison, Row, Traceable, compare, traceable

__all__ = ["Comparison", "Row", "Traceable", "compare", "traceable"]
