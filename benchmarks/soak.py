"""A public server's bad ten minutes: memory, log, and whether a visitor loses a run.

    python -m benchmarks.soak [--minutes 10]

Fifty sessions run chains on the embedded models, one after the other; twenty of them are closed in
mid run, again and again, and come back; ten programs call /run_chain. At the same time 2,500 other
sessions open the page, of which a third read to the end, a third hang up, and a third never read.
Pairs of requests have empty or odd session names, and five sessions send wrong choices, some of
them of 300 kB. Twenty uploads send a byte per second, and five pages of foreign origins request
runs and rooms. Wanted: the queue runs at the end, no run is lost, less than 200 kB are logged,
memory is flat within 2% from minute 2 on, the processor is idle within 3 s of the last stop, and
every foreign page, odd name and wrong choice is refused.

The models' caches, 64 MiB each, fill while chains run: after 70 s of processor time. On a busy
machine that is later than minute 2, and memory is compared from then on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.users import PROBLEMS, Page, Server, User

SESSIONS, CLOSED, PROGRAMS = 50, 20, 10
UPLOADS, FOREIGN = 20, 5
STRANGERS, WRONG = 2500, 5
NAMES = ("", " ", "a b", "a<gradio-sep>b", "\u200b", "x" * 65, "a\n")
"""Names of sessions that the server refuses."""
STEADY, FULL = 120.0, 80.0
"""Seconds, and the server's CPU seconds, after which memory is to be flat: its caches are full."""
STEPS, LONG = 32, 1000
"""Steps of a run, and of the run of one session, which outlasts thousands of other sessions."""
UPLOADED = ("/gradio_api/queue/join", "/room/join", "/gradio_api/component_server", "/anything")
LEFT_AFTER = (1.0, 20.0)
"""Seconds after which a session that is closed in mid run is closed."""


async def stays(page: Page, k: int, n: Counter) -> None:
    """A session that runs one chain after the other."""
    user = User()
    await page.open(user)
    for seed in going_on(k, n):
        steps = LONG if k == 1000 * CLOSED else STEPS
        n["lost runs"] += not await chain(page, user, seed, steps)
        n["runs"] += 1


async def leaves(page: Page, k: int, n: Counter) -> None:
    """A session that is closed in mid run, and a new one, and so on."""
    rng = random.Random(k)
    for seed in going_on(k, n):
        user = User()
        await page.open(user)
        running = asyncio.create_task(chain(page, user, seed, LONG))
        try:
            while not (user.steps or running.done()):
                await asyncio.sleep(0.1)
            await asyncio.wait({running}, timeout=rng.uniform(*LEFT_AFTER))
        finally:
            n["left in mid run"] += running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def calls(page: Page, k: int, n: Counter) -> None:
    """A program that calls /run_chain; every other time it does not wait for the end."""
    for seed in going_on(k, n):
        prompt = PROBLEMS[seed % len(PROBLEMS)].prompt
        address = f"{page.address}/call/v2/run_chain"
        settings = {"prompt": prompt, "steps": STEPS, "seed": seed}
        answer = await page.client.post(address, json=settings)
        answer.raise_for_status()
        with contextlib.suppress(TimeoutError):
            patience = 5.0 if seed % 2 else None
            outcome = await asyncio.wait_for(
                heard(page.client, f"{page.address}/call/run_chain/{answer.json()['event_id']}"),
                patience,
            )
            n["lost calls"] += outcome != "complete"
        n["calls"] += 1


async def uploads(page: Page, k: int, n: Counter) -> None:
    """An upload that says it is large and sends a byte a second, again and again."""
    place = urlsplit(page.address)
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


async def foreign(page: Page, k: int, n: Counter) -> None:
    """A page of another origin, or at a host name that leads here, that asks for what it can."""
    home = page.address.removesuffix("/gradio_api")
    heads = {"Origin": "https://example.org"} if k % 2 else {"Host": "evil.localhost"}
    call = {"prompt": PROBLEMS[0].prompt}
    for _ in going_on(k, n):
        for path in ("/room/open", "/gradio_api/call/v2/run_chain"):
            answer = await page.client.post(f"{home}{path}", json=call, headers=heads)
            n["foreign pages let in"] += answer.status_code not in (403, 421)
        n["foreign pages refused"] += 1
        await asyncio.sleep(0.5)


async def strangers(page: Page, n: Counter, seconds: float) -> None:
    """Sessions that come once, evenly over most of the time: they read, hang up, or never read."""
    together: set[asyncio.Task[None]] = set()
    start = time.perf_counter()
    for k in range(STRANGERS):
        if n["ending"]:
            break
        visit = asyncio.create_task(stranger(page, k, n))
        together.add(visit)
        visit.add_done_callback(together.discard)
        await asyncio.sleep(start + 0.95 * seconds * k / STRANGERS - time.perf_counter())
    await asyncio.gather(*together)


async def stranger(page: Page, k: int, n: Counter) -> None:
    """One event of a new session."""
    user = User()
    if k % 3 == 0:
        n["lost strangers"] += not await page.call(page.load[-1], user, [])
    else:
        body = {"data": [], "fn_index": page.load[-1], "session_hash": user.session}
        answer = await page.client.post(f"{page.address}/queue/join", json=body)
        answer.raise_for_status()
    if k % 3 == 1:
        await hang_up(page, f"/gradio_api/queue/data?session_hash={user.session}")
    n["strangers"] += 1


async def hang_up(page: Page, path: str) -> None:
    """Request a stream and leave before it is answered."""
    place = urlsplit(page.address)
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    await writer.drain()
    writer.close()


async def odd_names(page: Page, k: int, n: Counter) -> None:
    """Two requests at the same moment whose session has no name, or an odd one."""
    for number in going_on(k, n):
        name = NAMES[number % len(NAMES)]
        body = {"data": [], "fn_index": page.load[-1], "session_hash": name}
        address = f"{page.address}/queue/join"
        answers = await asyncio.gather(*(page.client.post(address, json=body) for _ in range(2)))
        n["odd names let in"] += sum(answer.status_code != 422 for answer in answers)
        n["odd names refused"] += sum(answer.status_code == 422 for answer in answers)
        await asyncio.sleep(0.5)


async def wrong_choices(page: Page, k: int, n: Counter) -> None:
    """Runs with a choice that no list has; every tenth is long."""
    for number in going_on(k, n):
        wrong = "no such choice" * (1 if number % 10 else 21_000)
        is_accepted = await page.run(User(), extractor=wrong, steps=STEPS)
        n["wrong choices let in"] += is_accepted
        n["wrong choices refused"] += not is_accepted
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


async def chain(page: Page, user: User, seed: int, steps: int) -> bool:
    """Run a chain of a session; return True if it ended well."""
    prompt = PROBLEMS[seed % len(PROBLEMS)].prompt
    return await page.run(user, prompt=prompt, reference="", steps=steps, seed=seed)


async def soak(minutes: float) -> None:
    """Memory every half minute, then what was lost, and how soon the processor rests."""
    n: Counter[str] = Counter()
    steady: list[float] = []
    since = 0.0
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2.0)  # the server waits 5 s
    with tempfile.TemporaryFile() as log, contextlib.closing(Server(log)) as server:
        async with httpx.AsyncClient(timeout=None, limits=limits) as client:
            page = await server.ready(client)
            start = time.perf_counter()
            tasks: list[asyncio.Task[Any]] = []
            for k in range(SESSIONS):
                visit = leaves if k < CLOSED else stays
                tasks.append(asyncio.create_task(visit(page, 1000 * k, n)))
            tasks += [
                asyncio.create_task(calls(page, 1000 * (SESSIONS + k), n)) for k in range(PROGRAMS)
            ]
            tasks.append(asyncio.create_task(strangers(page, n, 60 * minutes)))
            tasks.append(asyncio.create_task(odd_names(page, 0, n)))
            tasks += [asyncio.create_task(wrong_choices(page, k, n)) for k in range(WRONG)]
            tasks += [asyncio.create_task(uploads(page, k, n)) for k in range(UPLOADS)]
            tasks += [asyncio.create_task(foreign(page, k, n)) for k in range(FOREIGN)]
            while (seconds := time.perf_counter() - start) < 60 * minutes:
                cpu, memory = server.cpu, server.memory
                print(f"{seconds:4.0f} s, CPU {cpu:.0f} s  {memory:.0f} MiB  {dict(n)}", flush=True)
                if seconds >= STEADY and cpu >= FULL:
                    since = since or seconds
                    steady.append(memory)
                done, _ = await asyncio.wait(tasks, timeout=min(30.0, 60 * minutes - seconds))
                for task in done:
                    await task  # somebody was refused, or something failed: an error of the soak
            n["ending"] = 1  # what has been asked for is heard before its session is closed
            await asyncio.wait(tasks, timeout=5.0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            n["the queue runs"] = await page.call(page.load[-1], User(), [])
        n["log, kB"] = round(os.fstat(log.fileno()).st_size / 1000)
        print(json.dumps({"memory, MiB": round(server.memory), **n}))
        if steady:
            growth = max(steady) / steady[0] - 1
            print(f"memory from minute {since / 60:.1f} on: {growth:+.1%} at most")
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
