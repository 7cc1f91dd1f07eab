"""Hundreds of chains from one client: `python -m benchmarks.served [--chains 64 256 512]`.

The servers are a stand-in, in a process of its own: it answers after a second (the reward model
after a quarter) and computes nothing, so what is measured is the client: how near the chains come
to the rate that these answers allow, and the processor time that a step costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from qalign_core.assets import ASSETS
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Run
from qalign_study.sets.folder import run_set
from qalign_study.sets.problem_sets import Problem

LM = ASSETS / "models" / "lm"
EOS = 2
DRAW, SCORE = 1.0, 0.25
"""Seconds that an answer takes."""
NEW = 100
"""Ids of a response."""


def answer(path: str, body: dict[str, Any], tokenizer: Tokenizer) -> tuple[float, dict[str, Any]]:
    """Seconds to wait, and what vLLM would say: random ids, random scores."""
    if path == "/v1/models":
        return 0.0, {"data": [{"id": "stand-in", "root": str(LM), "max_model_len": 512}]}
    if path == "/tokenize":
        return 0.0, {"tokens": tokenizer.encode(body["prompt"], add_special_tokens=False).ids}
    if path == "/classify":
        score = random.random() * (1 if body["use_activation"] else 5)
        usage = {"prompt_tokens": len(body["input"][0])}
        return SCORE, {"data": [{"probs": [score], "num_classes": 1}], "usage": usage}
    n = min(NEW, body["max_tokens"])
    new = [random.randrange(20, 200) for _ in range(n - 1)] + [EOS]
    choice = {"text": "", "token_ids": new, "prompt_token_ids": body["prompt"]}
    usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": n}
    return DRAW, {"choices": [{**choice, "finish_reason": "stop"}], "usage": usage}


async def serve() -> None:
    """Answer on a port of the system, which is printed."""
    tokenizer = Tokenizer.from_file(str(LM / "tokenizer.json"))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().lower().split("\r\n")
                path = lines[0].split()[1]
                sizes = [line.split(":")[1] for line in lines if line.startswith("content-length")]
                body = json.loads(await reader.readexactly(int(sizes[0]))) if sizes else {}
                seconds, reply = answer(path, body, tokenizer)
                await asyncio.sleep(seconds)
                content = json.dumps(reply).encode()
                kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                writer.write(kind + b"content-length: %d\r\n\r\n" % len(content) + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**22, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def measure(address: str, chains: int, steps: int) -> None:
    """Run the chains and print a line."""
    lm = load_language_model(address, rows=chains, max_new_tokens=128)
    rm = load_reward_model(address, rows=chains)
    problems = [Problem(id=str(k), prompt=f"How many are {k} + {k}?") for k in range(chains)]
    with tempfile.TemporaryDirectory() as folder:
        run = run_set(lm, rm, Run(steps=steps, seed=1, pool=0), problems, folder, at_once=chains)
        started, used = time.perf_counter(), time.process_time()
        asyncio.run(run)
        seconds, used = time.perf_counter() - started, time.process_time() - used
    n = chains * (steps + 1)
    limit = chains / (DRAW + SCORE)
    print(
        f"{chains:5} chains: {n / seconds:5.0f} steps/s of at most {limit:4.0f}; "
        f"{used / n * 1e3:.1f} ms of processor time a step"
    )


def main() -> None:
    """Start the stand-in, then measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    command = [sys.executable, "-m", "benchmarks.served", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as server:
        try:
            assert server.stdout is not None
            address = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            for chains in options.chains:
                measure(address, chains, options.steps)
        finally:
            server.kill()


_ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    main()
