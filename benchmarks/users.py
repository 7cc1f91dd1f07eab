"""Many users at once through the app's own queue, as the page asks: rates, first steps, memory.

    python -m benchmarks.users [--users 1 10 30 50] [--seconds 30]
    python -m benchmarks.users --users 50 --minutes 10      # is memory flat?

Every user opens the page, then all start a run of a problem of their own on the embedded models at
the same moment; who ends one starts the next. Wanted with 50 users on two cores: the first step
within 3 s for 95 %, at least a tenth of the mean rate for everyone, flat memory, and a full queue
refused in plain words.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from qalign_study.sets.problem_sets import load_problems

ROOT = Path(__file__).resolve().parent.parent
STEPS = 128
PROBLEMS = load_problems("in_distribution")
STEP = '{"type":"step"'


@dataclass
class User:
    """One user's measurements: seconds from the first click to the first step, and steps."""

    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    clicked: float = 0.0
    first: float = float("inf")
    steps: int = 0

    def see(self, text: str) -> None:
        n = text.count(STEP)
        if n and not self.steps:
            self.first = time.perf_counter() - self.clicked
        self.steps += n


@dataclass(frozen=True, slots=True)
class Page:
    """The page as a browser loads it, and the client that visits it.

    Attributes:
        client: of all visitors.
        address: of the server's endpoints.
        load: the events of loading the page.
        button: the event of the button that runs a chain.
        settings: the current settings by widget.
    """

    client: httpx.AsyncClient
    address: str
    load: list[int]
    button: int
    settings: dict[str, Any]

    async def call(self, event: int, user: User, data: list[Any]) -> bool:
        """Run one event of a user's page to its end; return True if it ended well."""
        body = {"data": data, "fn_index": event, "session_hash": user.session}
        (await self.client.post(f"{self.address}/queue/join", json=body)).raise_for_status()
        stream = f"{self.address}/queue/data?session_hash={user.session}"
        async for message in _messages(self.client, stream):
            if message["msg"] == "process_generating" and message["success"]:
                user.see(_added(message["output"]["data"][0]))
            elif message["msg"] == "process_completed":
                return bool(message["success"])
        return False

    async def open(self, user: User) -> None:
        """Open the page, as a browser does."""
        for event in self.load:
            await self.call(event, user, [])

    async def run(self, user: User, **form: Any) -> bool:
        """Run a chain as the page does; return True if it ended well."""
        changes = {f"watch-{name}": value for name, value in form.items()}
        return await self.call(self.button, user, list((self.settings | changes).values()))


class Server:
    """The app in a process of its own; what it logs goes to `log`, or to standard error."""

    def __init__(self, log: IO[bytes] | None = None, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/gradio_api"
        environment |= {"GRADIO_SERVER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def memory(self) -> float:
        """Resident memory (MiB)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    @property
    def cpu(self) -> float:
        """CPU time so far (s)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def ready(self, client: httpx.AsyncClient) -> Page:
        """The page, once it is served."""
        while True:
            with contextlib.suppress(httpx.TransportError):
                config = (
                    await client.get(f"{self.address.removesuffix('/gradio_api')}/config")
                ).json()
                break
            await asyncio.sleep(0.5)
        named = {c["id"]: c["props"] for c in config["components"]}
        button = next(id for id, props in named.items() if props.get("elem_id") == "watch-run")
        events = config["dependencies"]
        run = next(d for d in events if [button, "click"] in d["targets"])
        bare = [d for d in events if d["backend_fn"] and not d["inputs"]]
        load = [d["id"] for d in bare if any(name == "load" for _, name in d["targets"])]
        widgets = [named[id] for id in run["inputs"]]
        settings = {w.get("elem_id") or str(k): w.get("value") for k, w in enumerate(widgets)}
        return Page(client, self.address, load, run["id"], settings)


def _added(value: Any) -> str:
    """The text that a message adds to the player: whole at first, then what differs."""
    if isinstance(value, str):
        return value
    return "".join(op[2] for op in value if isinstance(op, list) and isinstance(op[2], str))


async def _messages(client: httpx.AsyncClient, address: str) -> AsyncIterator[dict[str, Any]]:
    async with client.stream("GET", address) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


async def crowd(server: Server, n_users: int, seconds: float) -> tuple[list[User], float]:
    """So many users for so long, who start a run when one ends; and the server's CPU time (s)."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=None, limits=limits) as client:
        page = await server.ready(client)
        users = [User() for _ in range(n_users)]
        for user in users:
            await page.open(user)
        warm = {"prompt": PROBLEMS[0].prompt, "steps": 8, "seed": 0}
        await page.run(User(), **warm)
        cpu = server.cpu

        async def play(k: int) -> None:
            users[k].clicked = time.perf_counter()
            for seed in range(1, 10**6):
                problem = PROBLEMS[(k + seed) % len(PROBLEMS)]
                form = {"prompt": problem.prompt, "steps": STEPS, "seed": seed}
                await page.run(users[k], **form)

        tasks = [asyncio.create_task(play(k)) for k in range(n_users)]
        done, _ = await asyncio.wait(tasks, timeout=seconds)
        for task in done:
            await task  # a user that could not go on is an error of the benchmark
        cpu = server.cpu - cpu
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return users, cpu


async def compare(counts: list[int], seconds: float) -> None:
    """A row for each number of users, on one server."""
    print(
        "| users | steps/s | steps a CPU second | a user: mean | least "
        "| first step: median | 95 % | worst | memory |"
    )
    print(f"|{'---|' * 9}")
    with contextlib.closing(Server()) as server:
        for n_users in counts:
            users, cpu = await crowd(server, n_users, seconds)
            rates = [user.steps / seconds for user in users]
            first = sorted(user.first for user in users)
            cells = [f"{n_users}", f"{sum(rates):.1f}", f"{sum(rates) * seconds / cpu:.1f}"]
            cells += [f"{statistics.mean(rates):.2f}", f"{min(rates):.2f}"]
            cells += [f"{statistics.median(first):.2f} s"]
            cells += [f"{first[int(0.95 * (n_users - 1) + 0.5)]:.2f} s", f"{first[-1]:.2f} s"]
            print("|", " | ".join([*cells, f"{server.memory:.0f} MiB"]), "|", flush=True)


async def watch_memory(n_users: int, minutes: float) -> None:
    """Memory, every half minute, while users run."""
    with contextlib.closing(Server()) as server:
        playing = asyncio.create_task(crowd(server, n_users, minutes * 60))
        start = time.perf_counter()
        while not (await asyncio.wait({playing}, timeout=30))[0]:
            print(f"{time.perf_counter() - start:4.0f} s  {server.memory:.0f} MiB", flush=True)
        users, _ = await playing
        print(f"{n_users} users: {sum(user.steps for user in users)} steps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", nargs="+", type=int, default=[1, 10, 30, 50])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--minutes", type=float, help="watch memory so long, with the most users")
    options = parser.parse_args()
    if options.minutes:
        asyncio.run(watch_memory(max(options.users), options.minutes))
    else:
        asyncio.run(compare(options.users, options.seconds))


if __name__ == "__main__":
    main()
