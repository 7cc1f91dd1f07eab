"""How soon the Theory lab shows what a control was set to.

Run: python -m benchmarks.lab     (needs Chromium; --repeats 5)

Each control is set on the page in Chromium, several times to new values, and timed there from the
event to the frame after all the figures of its section are drawn again. Besides that time, which
other work on the machine lengthens, the processor time of server and page is given. The lab is
alone on its page: what else the app does meanwhile would be counted too. Promise: 200 ms from a
slider's release.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser import chromium, serve

from components.common.theme import head, theme
from components.lab.page import build_lab_page

# section, its figures, and its controls: (name, selector, values)
SHARED = ("beta", "#lab-beta", (0.4, 0.55, 0.7, 0.85, 1.3, 1.6, 1.9, 2.2))
SECTIONS: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, str, tuple[object, ...]], ...]], ...]
SECTIONS = (
    ("Convergence", ("strip", "distance"), (
        ("t", "#lab-t", (3, 5, 9, 14, 22, 35, 50, 70)),
        SHARED,
        ("another reward", "#lab-reward", ("Likes short answers", "Likes long answers",
                                           "No pattern at all", "One hidden gem (aba)")),
        ("another model", "#lab-lm", ("Sure of itself", "Long-winded", "Every token alike")),
        ("chains", "#lab-shown", ("256 chains", "16 chains", "1 chain")),
    )),
    ("Detailed balance", ("flow",), (SHARED,)),
    ("Break it", ("wrong", "wrong-distance"), (
        SHARED,
        ("mistake", "#lab-mistake", ("Rejected steps dropped", "Length limit not shared",
                                     "Only improvements accepted", "Everything accepted")),
    )),
    ("Beta", ("target", "sweep"), (
        SHARED,
        ("guess", "#lab-guess", (10, 20, 30, 40, 60, 70)),
        ("another reward", "#lab-reward", ("Likes short answers", "Likes long answers",
                                           "No pattern at all", "One hidden gem (aba)")),
    )),
    ("Best-of-n", ("densities", "betas"), (
        ("weight", "#lab-share", (30, 50, 60, 70, 80)),
        ("mean", "#lab-mean2", (0.5, 1.5, 2, 2.5, 3)),
        ("sd", "#lab-sd1", (0.5, 1, 1.5, 2, 2.5)),
        ("n", "#lab-n", ("64", "128", "256", "512")),
        ("first fit", "#lab-source", (1,)),
        ("another fit", "#lab-source", (2, 3, 4)),
    )),
    ("A wrong reward", ("accuracy", "proxy", "hack-target"), (
        ("hack's share", "#lab-hack-mass", (2, 4, 6, 8, 10)),
        ("hack's reward", "#lab-hack-reward", (2, 4, 5, 6, 7)),
        ("beta", "#lab-hack-beta", (0.3, 0.5, 2, 3, 4)),
    )),
    ("When is a chain worth it?", ("worth", "worth-map"), (
        ("decisions", "#lab-decisions", (4, 8, 10, 16, 20)),
        ("chance", "#lab-chance", (50, 55, 65, 70, 75)),
        ("near misses", "#lab-near-miss", (70, 80, 90, 98, 100)),
        ("compute", "#lab-budget", ("64", "128", "512", "256")),
    )),
    ("Which move?", ("moves", "moves-map"), (
        ("copies", "#lab-copies", (20, 40, 60, 80, 95)),
        ("share", "#lab-share-blocks", (20, 30, 70, 80, 90)),
    )),
)  # fmt: skip
STILL = {"#lab-guess": ("target",)}  # figures that a control leaves as they are
WATCH = """(plots) => {
  const graph = (name) => document.querySelector(`#lab-${name}.js-plotly-plot`);
  const before = plots.map((name) => graph(name)?.data), waiting = new Set(plots);
  let start = 0;
  const begin = () => { start ||= performance.now(); };
  for (const event of ['input', 'change', 'mousedown', 'click'])
    document.addEventListener(event, begin, { capture: true, once: true });
  window.drawn = new Promise((done, failed) => {
    setTimeout(() => failed(new Error(`not drawn in a minute: ${[...waiting]}`)), 60000);
    const listened = new Set();
    const listen = () => plots.forEach((name, k) => {
      const plot = graph(name);
      if (!plot?.on || listened.has(plot)) return;
      listened.add(plot);
      plot.on('plotly_afterplot', () => {
        if (plot.data === before[k] || !waiting.delete(name) || waiting.size) return;
        observer.disconnect();
        requestAnimationFrame(() => done(performance.now() - start));
      });
    });
    // a section's graphs are made when it is opened
    const observer = new MutationObserver(listen);
    observer.observe(document.querySelector('.lab'), { childList: true, subtree: true });
    listen();
  });
}"""
SLIDE = """([selector, value]) => {
  const slider = document.querySelector(`${selector} input[type=range]`);
  slider.value = value;
  slider.dispatchEvent(new Event('input', { bubbles: true }));
  slider.dispatchEvent(new Event('change', { bubbles: true }));
  slider.dispatchEvent(new Event('pointerup', { bubbles: true }));
}"""


async def page_seconds(browser: Any) -> float:
    """Processor time of the browser's busiest page process so far."""
    session = await browser.new_browser_cdp_session()
    processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    await session.detach()
    return max(float(p["cpuTime"]) for p in processes if p["type"] == "renderer")


async def opened(page: Any, selector: str) -> bool:
    """Open the list of a dropdown; False if the control is none."""
    if await page.locator(f"{selector} :is(input[type=range], input[type=radio])").count():
        return False
    await page.locator(f"{selector} input").click()
    await page.get_by_role("option").first.wait_for()
    return True


async def press(page: Any, selector: str, value: object, listed: bool) -> None:
    """Set a control: a slider, a radio button, or an option of an open list by name or place."""
    if listed:
        options = page.get_by_role("option")
        named = options.nth(value) if isinstance(value, int) else options.get_by_text(str(value))
        await named.dispatch_event("mousedown")
    elif await page.locator(f"{selector} input[type=range]").count():
        await page.evaluate(SLIDE, [selector, value])
    else:
        await page.locator(selector).get_by_text(str(value), exact=True).dispatch_event("click")


async def measure(
    browser: Any, page: Any, plots: Sequence[str], selector: str, values: Sequence[object]
) -> tuple[list[float], list[float]]:
    """Milliseconds until drawn, and of processor time, for each value."""
    times, spent = [], []
    for value in values:
        listed = await opened(page, selector)
        before = time.process_time() + await page_seconds(browser)
        await page.evaluate(WATCH, list(plots))
        await press(page, selector, value, listed)
        times.append(await page.evaluate("window.drawn"))
        spent.append(1000 * (time.process_time() + await page_seconds(browser) - before))
    return times, spent


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lab")
    parser.add_argument("--repeats", type=int, default=5, help="values a control, at most")
    parser.add_argument("--section", help="only this one")
    options = parser.parse_args()
    threadpool_limits(1, user_api="blas")  # as app.py
    async with chromium() as browser:
        with gr.Blocks(analytics_enabled=False) as demo:
            build_lab_page(demo, gr.HTML())
        with serve(demo, ssr_mode=False, theme=theme(), head=head()) as address:
            page = await browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(60_000)
            start = time.perf_counter()
            await page.goto(address)
            await page.wait_for_selector("#lab-target .main-svg")
            print(
                f"lab opened in {time.perf_counter() - start:.1f} s, load {os.getloadavg()[0]:.1f}"
            )
            print("median and worst ms until drawn; processor ms of server and page, median")
            for section, plots, controls in SECTIONS:
                if options.section not in (None, section):
                    continue
                await page.evaluate(WATCH, list(plots))
                await page.locator("#lab-opened").get_by_text(section, exact=True).click()
                if section != "Beta":
                    print(
                        f"{section[:17]:18}{'opening':16}{await page.evaluate('window.drawn'):6.0f}"
                    )
                for name, selector, values in controls:
                    moved = [plot for plot in plots if plot not in STILL.get(selector, ())]
                    times, spent = await measure(
                        browser, page, moved, selector, values[: options.repeats]
                    )
                    print(
                        f"{section[:17]:18}{name:16}{statistics.median(times):6.0f}{max(times):6.0f}"
                        f"{statistics.median(spent):8.0f}"
                    )


if __name__ == "__main__":
    asyncio.run(main())
