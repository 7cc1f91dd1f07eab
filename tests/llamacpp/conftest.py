"""A real llama.cpp server on the CPU, with small models that are made here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from llamacpp_options import EXACT, SLOTS
from tiny_models import save, tokenizer
from to_gguf import convert

SERVE = Path(__file__).with_name("serve.py")


class LlamaCpp:
    """A server of a GGUF file, on a port of its own."""

    def __init__(self, folder: Path, file: Path, log: Path, *options: str) -> None:
        self.folder, self._log = folder, log
        slots = f"n_parallel={SLOTS}", f"n_ctx={192 * SLOTS}"
        command = [sys.executable, str(SERVE), str(file), *slots, *EXACT, *options]
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()  # it serves when it says so
        assert self.address, log.read_text("utf-8")[-4000:]

    def stop(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()


def of_letters(folder: Path) -> Path:
    """A model that draws only whole characters: one number of its last state is always large."""
    save(folder, "llama")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    parts = torch.tensor([tokenizer().decode([id]) == "\ufffd" for id in range(len(tokenizer()))])
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0.0
        model.model.norm.weight[0] = 1.0
        model.lm_head.weight[:, 0] = torch.where(parts, -200.0, 0.0)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """ "letters", the same in 8 bits, and "bytes", whose characters come apart: folder, file."""
    at = tmp_path_factory.mktemp("llamacpp")
    letters, bytes_ = of_letters(at / "letters"), save(at / "bytes", "llama")
    return {
        "letters": (letters, convert(letters, at / "letters.gguf", merges=True)),
        "8 bits": (letters, convert(letters, at / "8-bits.gguf", "Q8_0", merges=True)),
        "bytes": (bytes_, convert(bytes_, at / "bytes.gguf", merges=True)),
    }


Start = Callable[..., LlamaCpp]


@pytest.fixture(scope="session")
def start(models: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a server of a model, with options; one of each, and all end with the session."""
    started: dict[tuple[str, ...], LlamaCpp] = {}
    logs = tmp_path_factory.mktemp("logs")

    def get(name: str, *options: str) -> LlamaCpp:
        key = name, *options
        if key not in started:
            started[key] = LlamaCpp(*models[name], logs / f"{len(started)}.log", *options)
        return started[key]

    yield get
    for server in started.values():
        server.stop()


@pytest.fixture(scope="session")
def server(start: Start) -> LlamaCpp:
    """The server of the model that draws whole characters."""
    return start("letters")
