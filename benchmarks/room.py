"""A class in one room over HTTP: first steps, rates, predictions on the screen, memory.

    python -m benchmarks.room [--members 100] [--minutes 20] [--seconds 120]
    python -m benchmarks.room --members 1000 --draw --minutes 10

Every member follows a stream of its own, as a phone does, and the instructor theirs. Everybody
predicts at one moment; then the instructor presses Run, and whenever all chains are done, begins
again, for so many minutes. Wanted with 100 members on two cores: the first step within 3 s for 95 %
of them, a step a second for each at least, predictions on the instructor's screen within 2 s, and
flat memory.

With `--draw` the members' browsers draw: programs send recorded states at the pace of the class, in
batches as often as the server says. Everybody predicts again while they send. Wanted with 1,000:
predictions within 2 s, Run on all screens within 1 s, every state counted once, and flat memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.users import ROOT, Server
from qalign_core.record.store import load_trace
from qalign_study.sets.problem_sets import load_problems

LESSON = "one-step"
LOOK = 0.02
"""Seconds between two looks whether something has arrived."""


@dataclass
class Screen:
    """What somebody in the room has seen: when each step of the own chain came (s)."""

    token: str
    at: list[float] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def goal(self) -> int:
        """The step up to which chains may go; −1 while they rest."""
        return int(self.state["room"]["goal"])

    @property
    def rate(self) -> float:
        """Steps a second, from the first draft on."""
        return (len(self.at) - 1) / (self.at[-1] - self.at[0]) if len(self.at) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """A connection that stays open, with as little of HTTP as a room needs.

    A complete client takes a millisecond of processor per request: more than the server.
    """

    host: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def to(cls, address: str) -> Line:
        host = urlsplit(address).netloc
        return cls(host, *await asyncio.open_connection(*host.split(":")))

    async def send(self, method: str, path: str, token: str, body: bytes = b"") -> str:
        """Send a request: the head of its answer."""
        head = [f"{method} {path} HTTP/1.1", f"Host: {self.host}", f"Authorization: Bearer {token}"]
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}", "\r\n"]
        self.writer.write("\r\n".join(head).encode() + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        if not answer.startswith("http/1.1 200"):
            raise RuntimeError(f"{path}: {answer}")
        return answer

    async def post(self, path: str, token: str, payload: object) -> Any:
        """The answer to a JSON value."""
        answer = await self.send("POST", path, token, json.dumps(payload).encode())
        length = int(answer.partition("content-length:")[2].split()[0])
        return json.loads(await self.reader.readexactly(length))

    async def follow(self, path: str, token: str) -> AsyncIterator[Any]:
        """The events of a stream: each comes in a chunk of its own."""
        await self.send("GET", path, token)
        while size := int(await self.reader.readline(), 16):
            chunk = (await self.reader.readexactly(size + 2))[:-2]
            if chunk.startswith(b"data:"):
                yield json.loads(chunk[5:])


class Room:
    """An open room of a server, as its instructor and its members see it."""

    def __init__(self, address: str, *, draws: bool = False) -> None:
        self._address, self._draws = address, draws
        self._free: list[Line] = []
        self.code = ""
        self.lead = Screen("")
        self.members: list[Screen] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self, what: str, token: str = "", **fields: Any) -> dict[str, Any]:
        while True:
            line = self._free.pop() if self._free else await Line.to(self._address)
            fields["code"] = self.code
            try:
                reply: dict[str, Any] = await line.post(f"/room/{what}", token, fields)
            except (ConnectionError, asyncio.IncompleteReadError):
                line.writer.close()  # the server closes idle connections; a browser asks again too
                continue
            self._free.append(line)
            return reply

    async def open(self, n_members: int, **settings: Any) -> None:
        opened = await self.ask("open", lesson=LESSON, **settings)
        self.code, self.lead = opened["code"], Screen(opened["token"])
        self._tasks.append(asyncio.create_task(self._follow(self.lead)))
        for _ in range(n_members):
            self.members.append(Screen((await self.ask("join"))["token"]))
            self._tasks.append(asyncio.create_task(self._follow(self.members[-1])))
        await self.until(lambda: self.lead.state.get("class", {}).get("here") == n_members)

    @property
    def screens(self) -> list[Screen]:
        return [self.lead, *self.members]

    async def do(self, what: str, **fields: Any) -> None:
        await self.ask("lead", self.lead.token, do=what, **fields)

    async def until(self, done: Any, timeout: float = 300.0) -> float:
        """Wait for something, and say how long it took (s)."""
        begun = time.perf_counter()
        async with asyncio.timeout(timeout):
            while not done():
                await asyncio.sleep(LOOK)
                for task in self._tasks:
                    if task.done():
                        task.result()
        return time.perf_counter() - begun

    async def _follow(self, screen: Screen) -> None:
        where = f"/room/follow?code={self.code}&draws={int(self._draws)}"
        line = await Line.to(self._address)
        async for message in line.follow(where, screen.token):
            screen.state |= message
            if "mine" in message and message["mine"]["t"] >= 0:
                screen.at += [time.perf_counter()] * (message["mine"]["t"] + 1 - len(screen.at))

    async def close(self) -> None:
        await self.do("end")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def a_class(n_members: int, *, draws: bool = False) -> AsyncIterator[tuple[Server, Room]]:
    """A server and a room on it whose members are all in, with 200 samples of the model alone."""
    with contextlib.closing(Server()) as server:
        async with httpx.AsyncClient() as client:
            await server.ready(client)
        room = Room(server.address, draws=draws)
        prompt = load_problems("in_distribution")[0].prompt
        await room.open(n_members, prompt=prompt, beta=1)
        state = room.lead.state
        await room.until(lambda: len(state.get("figures", {}).get("base", ())) >= 200)  # warm
        yield server, room
        await room.close()


async def predict(room: Room) -> float:
    """All members predict at one moment: seconds until the instructor's screen has them all."""
    n, new = len(room.members), random.randrange(1, 100)  # of a percentage
    begun = time.perf_counter()
    requests = (room.ask("predict", m.token, stop=0, prediction=f"{new}") for m in room.members)
    await asyncio.gather(*requests)
    counted = lambda: dict(room.lead.state["class"]["predictions"]) == {f"{new}": n}  # noqa: E731
    await room.until(counted)
    return time.perf_counter() - begun


async def run(room: Room, seconds: float) -> tuple[list[float], list[float], list[float]]:
    """One run: seconds to each first draft and to each first step, and each rate."""
    for member in room.members:
        member.at = []
    steps = room.lead.state["room"]["steps"]
    begun = time.perf_counter()
    await room.do("run")
    with contextlib.suppress(TimeoutError):
        done = lambda: all(len(member.at) == steps + 1 for member in room.members)  # noqa: E731
        await room.until(done, seconds)
    drafts, firsts = (
        sorted(m.at[t] - begun if len(m.at) > t else math.inf for m in room.members) for t in (0, 1)
    )
    return drafts, firsts, [member.rate for member in room.members]


def recorded() -> list[list[Any] | None]:
    """The states of a recorded chain twice over, as a browser sends them."""
    steps = load_trace(ROOT / "assets" / "runs" / "watch.jsonl").chains[0]
    return 2 * [
        [s.state.response.text, s.state.reward, -9.0] if s.accepted else None for s in steps
    ]


async def draw(room: Room, member: Screen, states: Sequence[Any], late: list[float]) -> None:
    """One run of a member's browser: states at the pace of the class, sent in batches."""
    stage, begun, sent = room.lead.state["room"], time.perf_counter(), 0
    await asyncio.sleep(random.uniform(0.5, 1.5) * stage["every"])
    while sent <= stage["steps"]:
        now = time.perf_counter()
        n_states = min(stage["steps"] + 1, 1 + int((now - begun) / stage["pace"]))
        batch = {"round": stage["round"], "t": sent, "states": states[sent:n_states]}
        sent = (await room.ask("states", member.token, **batch))["t"] + 1
        late.append(time.perf_counter() - now)
        await asyncio.sleep(stage["every"])


async def measure_chains(n_members: int, minutes: float) -> None:
    """A class whose browsers draw: predictions, answers to batches, states and memory."""
    states = recorded()
    async with a_class(n_members, draws=True) as (server, room):
        print("| minute | Run on all screens | predictions on the screen | batch answered: median "
              "| 95 % | states counted | of | processors | memory |")  # fmt: skip
        print(f"|{'---|' * 9}", flush=True)
        wanted = n_members * (room.lead.state["room"]["steps"] + 1)
        counted = lambda: room.lead.state["figures"].get("states") == wanted  # noqa: E731
        begun = time.perf_counter()
        while time.perf_counter() - begun < 60 * minutes:
            cpu, now, late = server.cpu, time.perf_counter(), list[float]()
            await room.do("run")
            spread = await room.until(lambda: all(screen.goal > 0 for screen in room.screens))
            drawing = [draw(room, member, states, late) for member in room.members]
            running = asyncio.gather(*drawing)
            await asyncio.sleep(10)  # they send now
            delay = await predict(room)
            await running
            with contextlib.suppress(TimeoutError):
                await room.until(counted, 30)
            cells = [f"{(now - begun) / 60:.1f}", f"{spread:.2f} s", f"{delay:.2f} s"]
            cells += [f"{statistics.median(late):.2f} s", f"{at_95(sorted(late)):.2f} s"]
            cells += [f"{room.lead.state['figures']['states']:,}", f"{wanted:,}"]
            took = time.perf_counter() - now
            cells += [f"{(server.cpu - cpu) / took:.2f}", f"{server.memory:.0f} MiB"]
            print("|", " | ".join(cells), "|", flush=True)
            await room.do("again")
            await room.until(lambda: all(screen.goal < 0 for screen in room.screens))


def at_95(values: list[float]) -> float:
    return values[int(0.95 * (len(values) - 1) + 0.5)]


async def measure(n_members: int, minutes: float, seconds: float) -> None:
    async with a_class(n_members) as (server, room):
        delays = [await predict(room)]
        print(f"{n_members} members; predictions on the screen after {delays[0]:.2f} s")
        print("| minute | first draft: median | 95 % | first step: median | 95 % "
              "| steps a second, each: mean | least | steps a CPU second | processors "
              "| memory |")  # fmt: skip
        print(f"|{'---|' * 10}", flush=True)
        begun = time.perf_counter()
        while True:
            cpu, now = server.cpu, time.perf_counter()
            drafts, firsts, rates = await run(room, seconds)
            took = time.perf_counter() - now
            cells = [f"{(now - begun) / 60:.1f}"]
            for each in (drafts, firsts):
                cells += [f"{statistics.median(each):.2f} s", f"{at_95(each):.2f} s"]
            cells += [f"{statistics.mean(rates):.2f}", f"{min(rates):.2f}"]
            used, steps = server.cpu - cpu, sum(len(member.at) for member in room.members)
            cells += [f"{steps / used:.0f}", f"{used / took:.2f}", f"{server.memory:.0f} MiB"]
            print("|", " | ".join(cells), "|", flush=True)
            if time.perf_counter() - begun > 60 * minutes:
                break
            await room.do("again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=120.0, help="of one run at most")
    parser.add_argument("--draw", action="store_true", help="the members' browsers draw")
    options = parser.parse_args()
    if options.draw:
        asyncio.run(measure_chains(options.members, options.minutes))
    else:
        asyncio.run(measure(options.members, options.minutes, options.seconds))


if __name__ == "__main__":
    main()
