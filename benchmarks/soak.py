"""Sessions left open or closed in mid run, programs, and who means no good: memory, refusals, rest.

    python -m benchmarks.soak [--minutes 10]

Fifty sessions run chains on the embedded models, one after the other; twenty of them are closed in
mid run, again and again, and come back; ten programs call /run_chain beside them. Twenty uploads
send a byte a second, and five pages of foreign origins ask for runs and rooms. Wanted: memory flat
within 2% from minute 2 on, the processor idle within 3 s of the last stop, nobody refused who
behaves, and every foreign page refused.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.users import PROBLEMS, Page, Server, User, call, run

SESSIONS, CLOSED, PROGRAMS = 50, 20, 10
UPLOADS, FOREIGN = 20, 5
STEPS = 256
UPLOADED = ("/gradio_api/queue/join", "/room/join", "/gradio_api/component_server", "/anything")
LEFT_AFTER = (1.0, 20.0)
"""Seconds after which a session that is closed in mid run is closed."""


async def stays(client: httpx.AsyncClient, server: Server, page: Page, k: int, n: Counter) -> None:
    """A session that runs one chain after the other."""
    user = User()
    await opened(client, server, page, user)
    for seed in going_on(k, n):
        await chain(client, server, page, user, seed)
        n["runs"] += 1


async def leaves(client: httpx.AsyncClient, server: Server, page: Page, k: int, n: Counter) -> None:
    """A session that is closed in mid run, and a new one, and so on."""
    rng = random.Random(k)
    for seed in going_on(k, n):
        user = User()
        await opened(client, server, page, user)
        running = asyncio.create_task(chain(client, server, page, user, seed))
        try:
            while not (user.steps or running.done()):
                await asyncio.sleep(0.1)
            await asyncio.wait({running}, timeout=rng.uniform(*LEFT_AFTER))
        finally:
            n["left in mid run"] += running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def calls(client: httpx.AsyncClient, server: Server, k: int, n: Counter) -> None:
    """A program that calls /run_chain; every other time it does not wait for the end."""
    for seed in going_on(k, n):
        prompt = PROBLEMS[seed % len(PROBLEMS)].prompt
        address = f"{server.address}/call/v2/run_chain"
        asked = {"prompt": prompt, "steps": STEPS, "seed": seed}
        answer = await client.post(address, json=asked)
        answer.raise_for_status()
        with contextlib.suppress(TimeoutError):
            patience = 5.0 if seed % 2 else None
            said = await asyncio.wait_for(
                heard(client, f"{server.address}/call/run_chain/{answer.json()['event_id']}"),
                patience,
            )
            n["refused"] += said == "error"
        n["calls"] += 1


async def uploads(server: Server, k: int, n: Counter) -> None:
    """An upload that says it is large and sends a byte a second, again and again."""
    place = urlsplit(server.address)
    for _ in going_on(k, n):
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            writer.write(
                f"POST {UPLOADED[k % len(UPLOADED)]} HTTP/1.1\r\nHost: {place.netloc}\r\n"
                "Content-Type: application/json\r\nContent-Length: 4000000\r\n\r\n".encode()
            )
            answer = asyncio.create_task(reader.read())
            while not answer.done():
                writer.write(b" ")
                await asyncio.wait({answer}, timeout=1.0)
            try:
                ended = answer.result()[9:12].decode()
            except ConnectionResetError:  # the answer was on its way when the connection ended
                ended = "a reset"
            n[f"uploads ended by {ended}"] += 1
        finally:
            answer.cancel()
            writer.close()


async def foreign(client: httpx.AsyncClient, server: Server, k: int, n: Counter) -> None:
    """A page of another origin, or at a host name that leads here, that asks for what it can."""
    home = server.address.removesuffix("/gradio_api")
    heads = {"Origin": "https://example.org"} if k % 2 else {"Host": "evil.localhost"}
    call = {"prompt": PROBLEMS[0].prompt}
    for _ in going_on(k, n):
        for path in ("/room/open", "/gradio_api/call/v2/run_chain"):
            answer = await client.post(f"{home}{path}", json=call, headers=heads)
            n["foreign pages let in"] += answer.status_code not in (403, 421)
        n["foreign pages refused"] += 1
        await asyncio.sleep(0.5)


def going_on(first: int, n: Counter) -> Iterator[int]:
    """Numbers from `first`, until the soak is to end."""
    return itertools.takewhile(lambda _: not n["ending"], itertools.count(first))


async def heard(client: httpx.AsyncClient, address: str) -> str:
    """How a call ended: "complete" or "error"."""
    event = ""
    async with client.stream("GET", address) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("event:"):
                event = line.removeprefix("event:").strip()
    return event


async def opened(client: httpx.AsyncClient, server: Server, page: Page, user: User) -> None:
    """Open the page, as a browser does."""
    for event in page.load:
        await call(client, server, event, user, [])


async def chain(
    client: httpx.AsyncClient, server: Server, page: Page, user: User, seed: int
) -> None:
    """One run of a session."""
    prompt = PROBLEMS[seed % len(PROBLEMS)].prompt
    await run(client, server, page, user, prompt=prompt, reference="", steps=STEPS, seed=seed)


async def soak(minutes: float) -> None:
    """Memory every half minute, then how soon the processor rests."""
    n: Counter[str] = Counter()
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2.0)  # the server waits 5 s
    with contextlib.closing(Server()) as server:
        async with httpx.AsyncClient(timeout=None, limits=limits) as client:
            page = await server.ready(client)
            start = time.perf_counter()
            tasks: list[asyncio.Task[Any]] = []
            for k in range(SESSIONS):
                visit = leaves if k < CLOSED else stays
                tasks.append(asyncio.create_task(visit(client, server, page, 1000 * k, n)))
            tasks += [
                asyncio.create_task(calls(client, server, 1000 * (SESSIONS + k), n))
                for k in range(PROGRAMS)
            ]
            tasks += [asyncio.create_task(uploads(server, k, n)) for k in range(UPLOADS)]
            tasks += [asyncio.create_task(foreign(client, server, k, n)) for k in range(FOREIGN)]
            while (seconds := time.perf_counter() - start) < 60 * minutes:
                print(f"{seconds:4.0f} s  {server.memory:.0f} MiB  {dict(n)}", flush=True)
                done, _ = await asyncio.wait(tasks, timeout=min(30.0, 60 * minutes - seconds))
                for task in done:
                    await task  # somebody was refused, or something failed: an error of the soak
            n["ending"] = 1  # what has been asked for is heard before its session is closed
            await asyncio.wait(tasks, timeout=5.0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        print(json.dumps({"memory, MiB": round(server.memory), **n}))
        for second in range(0, 12, 3):
            before = server.cpu
            await asyncio.sleep(3.0)
            spent = server.cpu - before
            print(f"CPU from {second} to {second + 3} s after the last stop: {spent:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    asyncio.run(soak(parser.parse_args().minutes))


if __name__ == "__main__":
    main()
