"""Growth of the public surface is a decision: names, commands, options and documents as snapshots.

Regenerate with `OOMDOC_SNAPSHOT=1 python -m pytest tests/contracts/test_surface.py` and look at the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import oomdoc

SNAPSHOTS = Path(__file__).parent / "snapshots"


def compare(name: str, value: Any) -> None:
    path = SNAPSHOTS / f"{name}.json"
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    if os.environ.get("OOMDOC_SNAPSHOT"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{name} has changed: regenerate the snapshot if that is meant"


def commands(group: Any, prefix: str = "") -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, command in sorted(group.commands.items()):
        full = f"{prefix}{name}"
        if hasattr(command, "commands"):
            found |= commands(command, f"{full} ")
        else:
            found[full] = sorted(o for p in command.params for o in (*p.opts, *p.secondary_opts))
    return found


def tree() -> Any:
    import typer

    from oomdoc.cli.main import app

    return typer.main.get_command(app)


def test_public_names() -> None:
    compare("names", sorted(oomdoc.__all__))
    assert all(hasattr(oomdoc, name) for name in oomdoc.__all__)


def test_commands_and_options() -> None:
    compare("commands", commands(tree()))


@pytest.mark.parametrize("kind", ["estimate", "diagnosis"])
def test_documents_keep_the_contracts_keys(kind: str) -> None:
    contract = {
        "estimate": "schema id peak_gib interval_gib peak_phase phases host_gib params trainable capacity_gib fits fits_probability assumed error",
        "diagnosis": "schema id verdict outlook other_failure summary causes facts failure estimate matches plans questions warnings error",
    }
    if kind == "estimate":
        document = oomdoc.estimate({"model": "Qwen/Qwen2.5-7B", "gpu": "H100", "seq_len": 512}).document()
        assert {"allocated", "reserved", "process"} == set(document["peak_gib"])
        assert {"allocated", "reserved", "process", "level"} == set(document["interval_gib"])
    else:
        text = "LoRA of Qwen2.5-7B on one 4090, batch 8, seq 8192. torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB."
        document = oomdoc.diagnose(text).document()
        assert {"cause", "probability", "why", "evidence"} <= set(document["causes"][0])
        assert {"changes", "peak_gib", "fits_probability", "relative_speed", "safety", "patch"} <= set(
            document["plans"][0]
        )
    assert set(contract[kind].split()) <= set(document)
    compare(f"{kind}-keys", sorted(document))


def test_the_case_schema() -> None:
    from oomkb.records.schema import json_schema

    compare("case-schema", json_schema())


def test_the_http_paths() -> None:
    pytest.importorskip("fastapi")
    from oomdoc.api.app import create_app
    from oomdoc.settings import Settings

    paths = create_app(Settings(database_url="sqlite://")).openapi()["paths"]
    compare("http-paths", {path: sorted(methods) for path, methods in paths.items()})


def test_every_command_is_in_the_readme(root: Path) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    groups = {name.split()[0] for name in commands(tree())}
    hidden = {"index", "model", "new", "settings", "data", "trace"}
    assert not [name for name in sorted(groups - hidden) if name not in readme]


def test_both_readmes_say_the_same(root: Path) -> None:
    english = (root / "README.md").read_text(encoding="utf-8")
    chinese = (root / "docs/README.zh.md").read_text(encoding="utf-8")
    assert english.count("\n## ") == chinese.count("\n## ")
    assert english.count("\n|") == chinese.count("\n|")
    numbers = [row.split("|")[2] for row in english.splitlines() if row.startswith("| ") and "%" in row.split("|")[2]]
    missing = [
        n
        for n in numbers
        for figure in n.split()
        if figure.strip("*;,.()").endswith("%") and figure.strip("*;,.()") not in chinese
    ]
    assert not missing
