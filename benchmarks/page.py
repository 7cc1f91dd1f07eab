"""How soon the page paints and how much it weighs beyond Gradio's own.

Run: python -m benchmarks.page     (needs Chromium)

Promises: first contentful paint within 1 s of the server's answer, at most 300 kB added to what an
empty Gradio app sends.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import gradio as gr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser import chromium, serve

import app

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
ANSWER = "performance.getEntriesByType('navigation')[0].responseStart"
# what Gradio's own package sends (its scripts, styles and bundled fonts), and everything else
BYTES = """() => {
  const size = (list) => list.reduce((sum, x) => sum + x.transferSize, 0);
  const all = performance.getEntriesByType('resource'), own = /\\/(assets|static|theme\\.css)/;
  const [page] = performance.getEntriesByType('navigation');
  return [page.transferSize + size(all.filter((x) => !own.test(x.name))),
    size(all.filter((x) => own.test(x.name)))];
}"""


async def measure(browser: object, address: str, ready: str) -> tuple[float, float, int, int]:
    """First paint after the answer and time until `ready` (ms); bytes of the app, of Gradio."""
    context = await browser.new_context()  # type: ignore[attr-defined]
    page = await context.new_page()
    await page.goto(address)
    await page.wait_for_selector(ready)
    ready_at = await page.evaluate("performance.now()")
    await page.wait_for_function(f"{PAINT} > 0")
    await page.evaluate("document.fonts.ready")
    await page.wait_for_timeout(2000)  # the queue's stream never closes: no "network idle" to await
    answered = await page.evaluate(ANSWER)
    paint, (size, gradio) = await page.evaluate(PAINT), await page.evaluate(BYTES)
    await context.close()
    return paint - answered, ready_at - answered, size, gradio


async def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    with gr.Blocks() as empty:
        gr.HTML("<p id='here'>empty</p>")
    async with chromium() as browser:
        with serve(empty, ssr_mode=False) as address:
            await measure(browser, address, "#here")  # the first visit warms the server up
            _, _, own, alone = await measure(browser, address, "#here")
        with serve(app.build_app(), **app.launch_options()) as address:
            await measure(browser, address, ".qp")
            paint, ready_at, size, gradio = await measure(browser, address, ".qp")
    print(f"first contentful paint   {paint:.0f} ms after the server's answer  (<= 1000 ms)")
    print(f"the recorded run plays   {ready_at:.0f} ms after it")
    print(
        f"page and data            {size / 1e3:.0f} kB, of an empty Gradio app {own / 1e3:.0f} kB"
    )
    print(f"added                    {(size - own) / 1e3:.0f} kB  (<= 300 kB)")
    print(f"Gradio's own files       {gradio / 1e3:.0f} kB, for an empty app {alone / 1e3:.0f} kB")


if __name__ == "__main__":
    asyncio.run(main())
