"""The embedded models in the browser beside the server: speed, weight, and whether both draw alike.

    python -m benchmarks.browser [--seconds 10]     # needs Chromium
    python -m benchmarks.browser --steps 2000       # fresh steps drawn by both; needs node

Promises: one visitor's browser makes at least as many steps per second as the server gives one of
ten visitors; the first step comes within 1.5 s of the press on a cold page; a processor of a
quarter of the speed makes two steps per second (its pages and workers are stopped for three
quarters of the time); and 2,000 fresh steps over all problem sets have the same tokens, cuts,
verdicts and answers (a difference passes only within 2e-4 of a border, and is printed).
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser import ROOT, chromium, serve

import app
from components.common.new_problem import KINDS, new_problem
from components.session.runs import Runs
from qalign_core.record.runner import record
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Run
from qalign_core.types import Step
from qalign_study.export.scripts import bundle

RECORDED = ROOT / "assets" / "runs" / "watch.jsonl"
VISITORS = 10
STEPS_A_RUN = 40
SAMPLES_A_RUN = 4
TURN = 0.01
"""Seconds for which a slowed page runs."""
PHONE = 4
"""How many times slower the processor of a phone is."""
SETTINGS = [(1.0, 1.0), (0.3, 1.0), (0.15, 0.7), (2.0, 1.3)]
"""Beta and temperature of fresh runs, in turns."""

# an engine of its own: what is fetched is fetched again
RATE = """async ({ run, seconds, plain }) => {
  const engine = new BrowserEngine({
    script: () => "engine.js",
    file: async (name) => {
      const found = await fetch(plain && name.endsWith(".wasm") ? "nothing" : name);
      return found.arrayBuffer();
    },
  });
  const start = performance.now();
  let first = 0, steps = 0;
  await new Promise((resolve, reject) => engine.draw(run, {
    line: (line) => {
      if (!line.includes('"type":"step"')) return;
      first ||= performance.now();
      steps += 1;
      if (performance.now() - first > 1e3 * seconds) { engine.stop(); resolve(); }
    },
    ended: resolve,
    failed: (sentence) => reject(new Error(sentence)),
  }));
  return { first: first - start, rate: 1e3 * (steps - 1) / (performance.now() - first), steps };
}"""


API = "document.querySelector('#watch-player .qp').qalign"
READY = "document.querySelector('#watch-steps input')?.value === '400'"
N_STEPS = f"({API}.position.source === 'live' ? {API}.trace.chains[0]?.steps.length ?? 0 : 0)"
PRESS = f"""seconds => new Promise((resolve) => {{
  const start = performance.now();
  let first = 0;
  const look = () => {{
    const now = performance.now();
    if (!first && {N_STEPS} > 1) first = now;
    if (!first || now - first < 1e3 * seconds) return requestAnimationFrame(look);
    const rate = 1e3 * ({N_STEPS} - 2) / (now - first);
    resolve({{ first: first - start, rate }});
  }};
  document.querySelector("#watch-run").click();
  look();
}})"""


def stats() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat from the state on, of each process that this program started."""
    processes: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            processes[int(path.parent.name)] = path.read_text().rsplit(")", 1)[1].split()

    def is_child(pid: int) -> bool:
        parent = int(processes[pid][1]) if pid in processes else 0
        return parent == os.getpid() or (parent > 1 and is_child(parent))

    return {pid: fields for pid, fields in processes.items() if is_child(pid)}


def browser_cpu() -> float:
    """CPU seconds of the processes that this program started."""
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in stats().values())
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def slowed(times: int) -> Iterator[None]:
    """Stop the browser's pages and their workers for all but one `times`-th of the time.

    Chromium's own emulation of a slow processor slows a page's main thread and no worker.
    """
    pages = [
        pid for pid in stats() if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    over = threading.Event()

    def slow() -> None:
        while not over.is_set():
            for sign, seconds in ((signal.SIGSTOP, TURN * (times - 1)), (signal.SIGCONT, TURN)):
                for pid in pages:
                    os.kill(pid, sign)
                time.sleep(seconds)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def models() -> tuple[Any, Any]:
    return load_language_model("embedded"), load_reward_model("embedded")


async def server(seconds: float, visitors: int) -> tuple[float, float]:
    """Steps per second that one visitor gets, and steps of all per CPU second."""
    lm, rm = models()
    run = Run.read(json.loads(RECORDED.read_text().split("\n", 1)[0]))
    counts = [0] * visitors

    async def visit(k: int) -> None:
        wanted = run.with_changes(seed=k, steps=10**6, pool=0)
        async with aclosing(record(lm, rm, wanted)) as lines:  # type: ignore[type-var]
            async for item in lines:
                counts[k] += isinstance(item.draw, Step)

    tasks = [asyncio.create_task(visit(k)) for k in range(visitors)]
    await asyncio.sleep(1)  # past the prompt
    began, at, cpu = sum(counts), time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    n_steps, wall = sum(counts) - began, time.monotonic() - at
    spent = time.process_time() - cpu
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return n_steps / wall / visitors, n_steps / spent


async def browser(seconds: float) -> None:
    header = json.loads(RECORDED.read_text().split("\n", 1)[0])
    for name in ("type", "version", "created", "notes", "prompt_tokens", "prompt_scored"):
        del header[name]
    run = {**header, "steps": 10**6, "pool": 0}
    script = bundle(ROOT / "assets" / "web" / "engine" / "browser.js")
    with serve(app.build_app(), **app.launch_options()) as address:
        async with chromium() as running:
            for name, plain in (("WebAssembly", False), ("plain JavaScript", True)):
                page = await (await running.new_context()).new_page()
                await page.goto(address)
                await page.wait_for_selector(".qp")
                await page.add_script_tag(content=script)
                cpu = browser_cpu()
                rates = await page.evaluate(RATE, {"run": run, "seconds": seconds, "plain": plain})
                spent = browser_cpu() - cpu
                print(
                    f"browser, {name}: {rates['rate']:.1f} steps/s, {rates['steps'] / spent:.1f} "
                    f"per CPU second, first draft after {rates['first']:.0f} ms",
                    flush=True,
                )
                await page.context.close()


async def press(seconds: float, slower: int) -> None:
    """From the press of "Run it live" on a page just opened to the first step that it shows."""
    run = Run.read(json.loads(RECORDED.read_text().split("\n", 1)[0]))
    link = f"?{run.with_changes(steps=400, pool=0).query()}"
    runs = Runs()
    runs.warm_up().join()
    with serve(app.build_app(runs), **app.launch_options(runs)) as address:
        async with chromium() as running:
            context = await running.new_context()
            for weights in ("from the server", "from the cache", "from the cache"):
                page = await context.new_page()
                await page.goto(address + link)
                await page.wait_for_function(READY)
                with slowed(slower):
                    rates = await page.evaluate(PRESS, seconds)
                print(
                    f"page, processor {slower} times slower, weights {weights}: first step "
                    f"{rates['first']:.0f} ms after the press, {rates['rate']:.1f} steps/s shown",
                    flush=True,
                )
                await page.close()


def weigh() -> None:
    """Measure the files that are sent once: bytes before and after compression."""
    assets = ROOT / "assets"
    parts = {
        "worker": bundle(assets / "web" / "engine" / "worker.js").encode(),
        "net.wasm": (assets / "web" / "engine" / "net.wasm").read_bytes(),
        "tokenizer": (assets / "models" / "lm" / "tokenizer.json").read_bytes(),
        "language model": (assets / "models" / "lm" / "model.safetensors").read_bytes(),
        "reward model": (assets / "models" / "rm" / "model.safetensors").read_bytes(),
    }
    for name, content in parts.items():
        print(f"weight, {name}: {len(content):,} bytes, {len(gzip.compress(content)):,} gzipped")
    total = sum(len(gzip.compress(content)) for content in parts.values())
    print(f"weight, all: {total / 1e6:.2f} MB gzipped")


async def fresh(steps: int, seed: int) -> bool:
    """Draw runs of new problems in Python, then in the engine; say what differs."""
    lm, rm = models()
    rewards = {"embedded": rm, "embedded-weak": load_reward_model("embedded-weak")}
    rng, runs = random.Random(seed), []
    for k in range(-(-steps // STEPS_A_RUN)):
        prompt, _ = new_problem(list(KINDS.values())[k % len(KINDS)], rng)
        beta, temperature = SETTINGS[k % len(SETTINGS)]
        settings = {"prompt": prompt, "beta": beta, "temperature": temperature}
        run = Run.read(settings).with_changes(
            rm="embedded-weak" if k % 4 == 3 else "embedded",
            steps=STEPS_A_RUN - 1,
            pool=SAMPLES_A_RUN,
            seed=rng.randrange(2**31),
        )
        runs.append(run)

    async def lines(run: Run) -> str:
        recording = record(lm.with_sampling(run.sampling), rewards[run.rm], run)
        return "".join([item.line async for item in recording])

    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{k}.jsonl" for k in range(len(runs))]
        texts = await asyncio.gather(*map(lines, runs))
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        command = ["node", str(ROOT / "tests" / "js" / "replay_files.js"), *map(str, paths)]
        counts = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    print(
        f"fresh: {counts['steps']} steps and {counts['samples']} samples of {len(paths)} problems, "
        f"{counts['tokens']} tokens; rewards differ by {counts['reward']:.1e} at most"
    )
    for name in ("excused", "failures"):
        print(f"fresh, {name}: {len(counts[name])}", *counts[name], sep="\n  ")
    return not counts["failures"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--steps", type=int, default=0, help="fresh steps that both draw")
    parser.add_argument("--seed", type=int, default=1, help="of the fresh problems")
    options = parser.parse_args()
    if options.steps:
        sys.exit(not asyncio.run(fresh(options.steps, options.seed)))
    weigh()
    for visitors in (1, VISITORS):
        rate, per_cpu = asyncio.run(server(options.seconds, visitors))
        print(f"server, {visitors} at once: {rate:.1f} steps/s for each, {per_cpu:.1f} of all per "
              "CPU second", flush=True)  # fmt: skip
    asyncio.run(browser(options.seconds))
    for slower in (1, PHONE):
        asyncio.run(press(options.seconds, slower))


if __name__ == "__main__":
    main()
