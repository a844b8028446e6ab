"""Faults of the shipped catalogues, and what of them is unverified: ``python bench/lint_catalog.py [--names]``."""

from __future__ import annotations

import sys

from oomkb.catalog.lint import lint_catalog, unverified

if __name__ == "__main__":
    problems = lint_catalog()
    for problem in problems:
        print(problem)
    left = unverified()
    print(left)
    if "--names" in sys.argv:
        print("\n".join(("GPUs:", *left.devices, "models:", *left.models)))
    sys.exit(1 if problems else 0)
