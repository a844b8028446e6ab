"""Everything that setting up installs has its exact version in constraints.txt."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN_PINS = {"torch": ("cuda-", "nvidia-", "triton")}
"""What PyTorch's build for CUDA brings and pins itself; its build for the processor has none of it."""


def needed(root: Path) -> set[str]:
    """Names of all that oomdoc with its extras and the development group asks for, as far as it is installed."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    stated = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    todo = [Requirement(text) for text in (*stated, *(line for lines in extras.values() for line in lines))]
    found: set[str] = set()
    while todo:
        asked = todo.pop()
        name = canonicalize_name(asked.name)
        if name in found or name == "oomdoc":
            continue
        try:
            further = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        if name in OWN_PINS:
            further = [text for text in further if not text.startswith(OWN_PINS[name])]
        for text in further:
            requirement = Requirement(text)
            wanted = ("", *asked.extras)
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
                todo.append(requirement)
    return found


def test_every_installed_requirement_is_pinned_to_its_version(root: Path) -> None:
    lines = (root / "constraints.txt").read_text("utf-8").splitlines()
    pins = {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lines if line and not line.startswith("#"))
    }
    names = needed(root)
    assert len(names) > 50
    assert sorted(names - pins.keys()) == []
    other = {n: (metadata.version(n), pins[n]) for n in names if metadata.version(n).partition("+")[0] != pins[n]}
    assert other == {}
