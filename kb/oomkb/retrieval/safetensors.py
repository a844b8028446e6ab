"""Reading a ``.safetensors`` file without its library: an eight-byte length, a JSON header, then the tensors' bytes.

The format is documented by its project (github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomkb.errors import InputError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["read_tensors"]

_HEADER_LIMIT_BYTES: Final = 100_000_000
_DTYPES: Final = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}


def read_tensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Name -> tensor, mapped from the file and read only when touched.

    :raises InputError: for a file that is cut short, or of a type that is not listed above.
    """
    import numpy as np

    data = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    if not 2 <= size <= min(_HEADER_LIMIT_BYTES, len(data) - 8):
        raise InputError("not a safetensors file", where=str(path))
    header = json.loads(data[8 : 8 + size].tobytes())
    header.pop("__metadata__", None)
    body = data[8 + size :]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if entry["dtype"] not in _DTYPES or end > len(body):
            raise InputError(f"tensor {name} cannot be read", where=str(path))
        tensors[name] = body[begin:end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors
