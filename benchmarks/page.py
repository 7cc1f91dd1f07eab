"""How soon the page paints and how much it weighs beyond Gradio's own.

Run: python -m benchmarks.page     (needs Chromium)

Promises: first contentful paint within 1 s of the server's answer, at most 300 kB added to what an
empty Gradio app sends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import gradio as gr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser import chromium, serve

import app

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
ANSWER = "performance.getEntriesByType('navigation')[0].responseStart"
BYTES = """() => performance.getEntriesByType('navigation')[0].transferSize
  + performance.getEntriesByType('resource').reduce((sum, x) => sum + x.transferSize, 0)"""


async def measure(browser: object, address: str, ready: str) -> tuple[float, float, int]:
    """First paint after the answer (ms), time until `ready` shows (ms), bytes transferred."""
    context = await browser.new_context()  # type: ignore[attr-defined]
    page = await context.new_page()
    await page.goto(address)
    await page.wait_for_selector(ready)
    shown = await page.evaluate("performance.now()")
    await page.wait_for_function(f"{PAINT} > 0")
    await page.wait_for_load_state("networkidle")
    answered = await page.evaluate(ANSWER)
    paint, size = await page.evaluate(PAINT), await page.evaluate(BYTES)
    await context.close()
    return paint - answered, shown - answered, size


async def main() -> None:
    with gr.Blocks() as empty:
        gr.HTML("<p id='here'>empty</p>")
    async with chromium() as browser:
        with serve(empty, ssr_mode=False) as address:
            await measure(browser, address, "#here")  # the first visit warms the server up
            _, _, own = await measure(browser, address, "#here")
        with serve(app.build_app(), **app.launch_options()) as address:
            await measure(browser, address, ".qp")
            paint, shown, size = await measure(browser, address, ".qp")
    print(f"first contentful paint   {paint:.0f} ms after the server's answer  (<= 1000 ms)")
    print(f"the recorded run plays   {shown:.0f} ms after it")
    print(f"bytes                    {size / 1e3:.0f} kB, an empty Gradio app {own / 1e3:.0f} kB")
    print(f"added                    {(size - own) / 1e3:.0f} kB  (<= 300 kB)")


if __name__ == "__main__":
    asyncio.run(main())
