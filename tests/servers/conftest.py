"""A real vLLM on the CPU, as LM and as RM, with small models that are made here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tiny_models import save

VLLM = Path(__file__).resolve().parents[2] / "build" / "servers-venv" / "bin" / "vllm"
START = 600  # seconds that a start may take on a busy machine
LOG_PROBS = "--logprobs-mode", "processed_logprobs"


class Vllm:
    """A `vllm serve` of a folder, on a port of its own, the same after a restart."""

    def __init__(self, folder: Path, log: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.folder, self._log, self._options = folder, log, options
        self.start()

    def start(self) -> None:
        """Start it; `wait` says when it serves."""
        command = [
            *(str(VLLM), "serve", str(self.folder), "--host", "127.0.0.1"),
            *("--port", str(self.port), "--dtype", "float32", "--max-model-len", "192"),
            *("--enforce-eager", "--generation-config", "vllm", *self._options),
            # more than 64 requests of 192: where a prompt is read in pieces, vLLM 0.32 rewinds its
            # generator, which a CPU's cannot, and the engine ends
            *("--max-num-batched-tokens", "16384"),
        ]
        settings = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",
        }
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **settings},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Return when it serves."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self._log.read_text("utf-8")[-4000:]
            try:
                if httpx.get(f"{self.address}/health", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.5)  # between two attempts to connect, not for something to happen
        raise AssertionError(f"no vLLM after {START} s: {self._log.read_text('utf-8')[-4000:]}")

    def kill(self) -> None:
        """End it and its engine at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vllm, Vllm]]:
    """A language model and a reward model, both serving."""
    folder = tmp_path_factory.mktemp("vllm")
    lm_folder = save(folder / "lm", "llama")
    rm_folder = save(folder / "rm", "llama", n_outputs=1)
    started = [Vllm(lm_folder, folder / "lm.log", *LOG_PROBS)]
    try:
        started[0].wait()  # one after the other: each asks how much memory is free
        started.append(Vllm(rm_folder, folder / "rm.log", "--runner", "pooling"))
        started[1].wait()
        yield started[0], started[1]
    finally:
        for server in started:
            server.kill()


@pytest.fixture
def other(servers: tuple[Vllm, Vllm], tmp_path: Path) -> Iterator[Vllm]:
    """A second server of the language model."""
    server = Vllm(servers[0].folder, tmp_path / "other.log", *LOG_PROBS)
    try:
        server.wait()
        yield server
    finally:
        server.kill()
