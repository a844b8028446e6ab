"""Tables of numbers that come with the package."""

from __future__ import annotations

import zipfile
import zlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from oomkb.errors import OomdocError

if TYPE_CHECKING:
    import numpy as np


def arrays_of(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of ``data/<name>.npz`` by their names; nothing in it is unpickled, and every part has its checksum.

    :raises OomdocError: for a damaged file.
    """
    try:
        return _read(name)
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise OomdocError(
            "a table of the package is damaged", where=f"{name}.npz", hint="install oomdoc again"
        ) from error


def _read(name: str) -> dict[str, np.ndarray[Any, Any]]:
    import numpy as np

    with (files("oomkb.retrieval") / "data" / f"{name}.npz").open("rb") as file:
        found = np.load(file, allow_pickle=False)
        return {array: found[array] for array in found.files}
