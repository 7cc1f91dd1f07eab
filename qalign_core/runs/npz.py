"""Arrays in a zip archive, whoever made it: their sizes are checked before anything is reserved.

`numpy.load` reserves what a header promises, 745 GiB if it says so, before it looks at the rest.
"""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from qalign_core.errors import InvalidTrace
from qalign_core.reading import first_line

Array = NDArray[Any]

MAX_BYTES = 512 * 2**20
"""What an archive may unpack to; the largest that is shipped has 4 MB."""
_PIECE = (
    4096  # of a member: unpacked whole, 1 MB can become some GB whatever its size is said to be
)
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_arrays(source: Path | bytes, place: str) -> dict[str, Array]:
    """Every array of an `.npz` file by its name, read only; no member is unpickled.

    Raises:
        InvalidTrace: it is none, an array is not what its header says, or all are too large; the
            message names `place`.
    """
    file: Path | BinaryIO = source if isinstance(source, Path) else io.BytesIO(source)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            n_bytes = sum(member.file_size for member in members)
            if n_bytes > MAX_BYTES:
                raise ValueError(f"it unpacks to {n_bytes:,} bytes, {MAX_BYTES:,} at most")
            return {
                member.filename.removesuffix(".npy"): _array(_content(archive, member))
                for member in members
            }
    except Exception as error:  # zipfile, its unpackers and numpy have a dozen kinds
        raise InvalidTrace(f"cannot read results from {place}: {first_line(error)}") from error


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with archive.open(member) as file:
        return b"".join(iter(lambda: file.read(_PIECE), b""))


def _array(content: bytes) -> Array:
    file = io.BytesIO(content)
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"an array of version {version}")
    shape, by_column, dtype = _HEADERS[version](file)
    n_bytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or n_bytes != len(content) - file.tell():
        raise ValueError(f"an array of {shape} {dtype} in {len(content):,} bytes")
    array = np.frombuffer(content, dtype, offset=file.tell()) if n_bytes else np.empty(0, dtype)
    return array.reshape(shape, order="F" if by_column else "C")
