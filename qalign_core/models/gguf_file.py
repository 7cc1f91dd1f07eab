"""GGUF files, the format of llama.cpp: checked here, read by transformers.

file = GGUFFile(Path("model.gguf"))
file.architecture, file.n_parameters, file.eos
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from qalign_core.context import VISITOR
from qalign_core.errors import ModelLoadError
from qalign_core.validation import first_line

_PARSING = threading.RLock()  # one thread at a time replaces what the package gguf offers
_UNQUANTIZED = {"F64", "F32", "F16", "BF16"}


def is_gguf(path: Path) -> bool:
    """Return whether a path is a GGUF file, by its name."""
    return path.suffix == ".gguf" and os.path.isfile(path)


def is_local(path: Path) -> bool:
    """Return whether a model's name is a folder or a GGUF file of this machine.

    A relative name from a visitor is not, whatever is on the disk.
    """
    may_be = path.is_absolute() or not VISITOR.get()
    return may_be and (os.path.isdir(path) or is_gguf(path))


def locate(path: Path) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that name a folder or a GGUF file."""
    if is_gguf(path):
        return {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    return {"pretrained_model_name_or_path": path}


class GGUFFile:
    """The properties of a GGUF file that decide how it is loaded.

    Attributes:
        architecture: the name that llama.cpp uses.
        n_parameters: of the model.
        is_quantized: True if any weights have 8 bits or fewer.
        eos: ids that end a response: the end of the text and the end of a turn.

    Raises:
        ModelLoadError: in one sentence: a package is missing, or the file is incomplete or has no
            tokenizer.
    """

    def __init__(self, path: Path) -> None:
        try:
            import accelerate  # noqa: F401  # transformers requires it for these files
            import gguf
        except ImportError as error:
            raise ModelLoadError(
                f"{path} is a GGUF file, which needs the package {error.name}; install "
                "'qalign-explorer[gguf]'"
            ) from error
        try:
            reader = self._reader = _reader_class(gguf)(path)
            fields = {
                name: field.contents()
                for name, field in reader.fields.items()
                if name == "general.architecture" or name.endswith("_token_id")
            }
            types = {tensor.tensor_type.name for tensor in reader.tensors}
            self.n_parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
            self.architecture = str(fields["general.architecture"])
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise ModelLoadError(
                f"{path} is not a complete GGUF file ({first_line(error)}); download it again"
            ) from error
        if "tokenizer.ggml.tokens" not in reader.fields:
            raise ModelLoadError(
                f"{path} has no tokenizer; choose a GGUF file of a language model that has one"
            )
        self.is_quantized = not types <= _UNQUANTIZED
        ends = (fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot"))
        self.eos = tuple(dict.fromkeys(int(id) for id in ends if id is not None))

    @contextmanager
    def parsed_once(self) -> Iterator[None]:
        """Let transformers 5.23 use this file's reader, and the table of names once per model.

        It would parse the file four times, and build the table for each of some 400 modules.
        """
        package: Any = import_module("gguf")
        with _PARSING:
            before = package.GGUFReader, package.get_tensor_name_map
            package.GGUFReader = lambda *_, **__: self._reader
            package.get_tensor_name_map = cache(package.get_tensor_name_map)
            try:
                yield
            finally:
                package.GGUFReader, package.get_tensor_name_map = before


def _reader_class(gguf: Any) -> Any:
    """A reader whose file is a plain array: slices of a memmap take three times as long."""

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    return Reader
