"""Tables of numbers that come with the package."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["arrays_of"]


def arrays_of(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of ``data/<name>.npz`` by their names; nothing in it is unpickled."""
    import numpy as np

    with (files("oomkb.retrieval") / "data" / f"{name}.npz").open("rb") as file:
        found = np.load(file, allow_pickle=False)
        return {array: found[array] for array in found.files}
