"""How fast the player draws: a step, a frame of scrubbing, and steps from the server.

Run: python -m benchmarks.player     (needs Chromium; --steps 1024)

Promises: a step renders in 8 ms or less, scrubbing 1,024 steps stays at 45 frames/s or better, a
recorded 400-step chain reaches the browser at 200 steps/s or more through the app, and the tree of
1,024 steps of 200 tokens is drawn in a second and moved at 45 frames/s, however large it is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import gradio as gr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser import chromium, serve, standalone
from traces import deep_trace, toy_trace

import app
from components.session.runs import TICK, Feed, Runs
from components.watch.player import chain_player

STEP_MS = """() => {
  const times = [];
  for (let k = 0; k < 300; k++) {
    const t = (k * 37) % api.position.last, start = performance.now();
    api.seek(t);
    api.render(start);
    document.body.offsetHeight;  // style and layout are part of it
    times.push(performance.now() - start);
  }
  times.sort((a, b) => a - b);
  return [times[150], times[284]];
}"""
SCRUB_FPS = """() => new Promise((done) => {
  const frames = [], last = api.position.last;
  let t = 0;
  const next = (now) => {
    frames.push(now);
    api.seek(t);
    t = (t + 13) % last;
    if (frames.length < 180) requestAnimationFrame(next);
    else {
      const gaps = frames.slice(1).map((x, k) => x - frames[k]).sort((a, b) => a - b);
      const rate = 1000 * gaps.length / (frames.at(-1) - frames[0]);
      done([rate, gaps[Math.floor(gaps.length * 0.95)]]);
    }
  };
  requestAnimationFrame(next);
})"""

TREE_MS = """() => new Promise((done) => {
  const start = performance.now();
  api.openTab('tree');
  const drawn = () => {
    const canvas = document.querySelector('.qp-river canvas');
    const pen = canvas?.width && canvas.getContext('2d');
    const all = pen && pen.getImageData(0, 0, canvas.width, canvas.height).data;
    if (all && all.some((part) => part)) done(performance.now() - start);
    else requestAnimationFrame(drawn);
  };
  drawn();
})"""
MOVE_FPS = """(larger) => new Promise((done) => {
  const river = document.querySelector('.qp-river'), frames = [];
  for (let k = 0; k < larger; k++) document.querySelector("[title='Larger']").click();
  const next = (now) => {
    frames.push(now);
    const k = frames.length / 180;
    river.scrollTop = (river.scrollHeight - river.clientHeight) * k;
    river.scrollLeft = (river.scrollWidth - river.clientWidth) * Math.sin(6 * k) ** 2;
    if (frames.length < 180) requestAnimationFrame(next);
    else done(1000 * (frames.length - 1) / (frames.at(-1) - frames[0]));
  };
  requestAnimationFrame(next);
})"""


async def tree(browser: object, steps: int, length: int = 200) -> None:
    """Time the tree of a long run from its tab's press to its drawing, and how it moves."""
    page = await browser.new_page(viewport={"width": 1280, "height": 900})  # type: ignore[attr-defined]
    await page.set_content(standalone(deep_trace(steps, length), options="autoplay: false"))
    took = await page.evaluate(TREE_MS)
    rates = [await page.evaluate(MOVE_FPS, larger) for larger in (1, 4, 8)]
    rates_text = ", ".join(f"{rate:.0f}" for rate in rates)
    print(f"tree, {steps} x {length} tokens  drawn in {took:.0f} ms  (<= 1000 ms)")
    print(f"moving it, larger and larger  {rates_text} frames/s  (>= 45/s)")
    await page.close()


async def drawing(browser: object, steps: int) -> None:
    """Time single renders and scrubbing on a page with the player alone."""
    page = await browser.new_page(viewport={"width": 1280, "height": 900})  # type: ignore[attr-defined]
    await page.set_content(standalone(toy_trace(steps), options="autoplay: false"))
    median, p95 = await page.evaluate(STEP_MS)
    fps, gap = await page.evaluate(SCRUB_FPS)
    print(f"step render, {steps} steps    median {median:.1f} ms, 95 % {p95:.1f} ms   (<= 8 ms)")
    print(f"scrubbing, {steps} steps      {fps:.0f} frames/s, 95 % gap {gap:.0f} ms  (>= 45/s)")
    await page.close()


async def transport(browser: object, steps: int) -> None:
    """Time a recorded run from the press of a button to its last step in the browser."""
    lines = toy_trace(steps).splitlines(keepends=True)
    runs = Runs()

    async def replay(feed: Feed) -> None:
        for line in lines:
            feed.write(line)
            await feed.step()

    async def stream() -> AsyncIterator[str]:
        async for now in runs.stream("benchmark", replay):
            yield now.text

    def diagnose(_: object) -> dict[str, str]:
        return {"error": ""}

    with gr.Blocks() as demo:
        start = gr.Button("Start", elem_id="start")
        player = chain_player(toy_trace(2), "A toy run", [diagnose])
        start.click(stream, None, player, show_progress="hidden")
    with serve(demo, **app.launch_options()) as address:
        page = await browser.new_page()  # type: ignore[attr-defined]
        await page.goto(address)
        await page.wait_for_selector(".qp")
        began = time.perf_counter()
        await page.click("#start")
        await page.wait_for_function(
            f"document.querySelector('.qp').qalign.position.last === {steps}", polling=20
        )
        elapsed = time.perf_counter() - began
    print(
        f"transport, {steps} steps       {steps / elapsed:.0f} steps/s "
        f"(one update each {TICK * 1000:.0f} ms at the least; >= 200/s)"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1024)
    options = parser.parse_args()
    async with chromium() as browser:
        await drawing(browser, options.steps)
        await tree(browser, options.steps)
        await transport(browser, 400)


if __name__ == "__main__":
    asyncio.run(main())
