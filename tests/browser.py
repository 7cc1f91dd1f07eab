"""A real Chromium for the tests, and the page that it looks at."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import axe_playwright_python
import pytest

from qalign_core.assets import ASSETS
from qalign_study.export.dictionary import style
from qalign_study.export.scripts import WEB, bundle

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = (
    shutil.which("chromium-headless-shell") or shutil.which("chromium") or "/usr/bin/chromium"
)
"""The one without windows, where it is: the same pages for less of the processor."""
ARGUMENTS = [
    "--no-sandbox",
    "--process-per-site",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = int(os.environ.get("QALIGN_PATIENCE_MS", "60000"))
"""Milliseconds that a condition may take: the tests wait for what happens, not for the clock."""


AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
VIOLATIONS = """async ([part, only]) => {
    const options = { resultTypes: ["violations"], preload: false, selectors: false };
    const report = await axe.run(part, { ...options, ...(only && { runOnly: only }) });
    return report.violations.flatMap(({ id, nodes }) =>
      nodes.map((n) => [id, n.html.slice(0, 150)]));
}"""


async def find_violations(
    page: Any, part: str = "html", only: list[str] | None = None
) -> list[Any]:
    """Return the rules that a part of the page breaks, each with its place, by axe."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text(encoding="utf-8"))
    return list(await page.evaluate(VIOLATIONS, [part, only]))


def require_browser() -> None:
    """Skip without a Chromium, unless QALIGN_REQUIRE_BROWSER=1 makes its absence a failure."""
    if Path(CHROMIUM).exists():
        return
    if os.environ.get("QALIGN_REQUIRE_BROWSER") == "1":
        pytest.fail(f"QALIGN_REQUIRE_BROWSER=1, but there is no Chromium at {CHROMIUM}")
    pytest.skip(f"no Chromium at {CHROMIUM} (Debian: apt-get install chromium)")


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """A running browser, whose first context keeps scripts on the disk as they were compiled.

    A page of the app then takes 1.8 s of processor in place of 2.5; contexts made later have no
    disk. Its pages share one process, which a page that stays open keeps running: 1.0 s in place
    of 1.3.
    """
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        with TemporaryDirectory(ignore_cleanup_errors=True) as kept:
            launch = playwright.chromium.launch_persistent_context
            context = await launch(kept, executable_path=CHROMIUM, args=ARGUMENTS)
            context.on("page", ask_less_often)
            stays = await context.new_page()
            await stays.route("**", lambda route: route.fulfill(body=""))
            await stays.goto("http://127.0.0.1/")  # the site of every app, whatever its port
            try:
                yield context.browser
            finally:
                await context.close()


def ask_less_often(page: Any) -> None:
    """Ask a condition that a page is waited for 20 times a second, not at each of its frames."""
    page.wait_for_function = partial(page.wait_for_function, polling=50)


LEAVING = ("AbortError: signal is aborted without reason", "Unexpected error Connection errored")
"""Gradio 6.31 ends its stream of events when a page is left, and reports that end as an error."""


def hear(page: Any, errors: list[str]) -> None:
    """Collect in `page.errors` what the page's scripts throw, and the errors on its console.

    Once a page was left, Gradio's reports of the end of its stream are removed.
    """

    def forget(_: Any) -> None:
        errors[:] = [error for error in errors if not error.startswith(LEAVING)]

    page.errors = errors
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("domcontentloaded", forget)  # of the next page


API = "document.querySelector('#watch-player .qp').qalign"
"""The player of Watch, in the app's page."""
SET = """(settings) => {
  for (const [name, value] of Object.entries(settings)) {
    const box = document.querySelector(`#watch-${name} :is(input[type=number], textarea)`);
    box.value = value;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }
}"""
"""Fill in settings of the next run, as typing does."""
LEAD = """(text) => new Promise((done) => {
  const { filled } = QAlignShell;
  QAlignShell.filled = (names, values, notice) => {
    QAlignShell.filled = filled;
    values[names.indexOf("seed")] = "";
    const seed = document.querySelector("#watch-seed :is(input, textarea)");
    seed.value = "";
    seed.dispatchEvent(new Event("input", { bubbles: true }));
    filled(names, values, notice);
    done();
  };
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  const lesson = document.querySelector(".learn-panel");
  lesson?.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  QAlignShell.turn("watch");
  QAlignShell.drawer(false);
  QAlignShell.status(document.querySelector("#watch .q-status"), {
    value: JSON.stringify({ state: "idle", text: "Ready." }) });
  const player = document.querySelector("#watch-player .qp").qalign;
  player.openTab("");
  QAlignShell.recorded({ name: "watch", title: "Recorded run", summary: "", text });
  document.activeElement.blur();
  scrollTo(0, 0);
})"""


async def lead_to_watch(page: Any) -> None:
    """Lead the app's page to Watch as a visitor finds it: its run, its settings and no seed.

    It follows an entry of the gallery; a page that a link's settings began is not led so.
    """
    if await page.get_attribute("#watch-stop", "aria-disabled") == "false":
        await page.evaluate("document.querySelector('#watch-stop').click()")
        await page.wait_for_selector("#watch .q-status[data-state=stopped]")
    await page.evaluate(LEAD, (ASSETS / "runs" / "watch.jsonl").read_text(encoding="utf-8"))
    await page.wait_for_selector(".qp[data-t='1'][data-phase='5']")


@contextmanager
def serve(demo: Any, **options: Any) -> Iterator[str]:
    """A Gradio app on a free port; yields its address."""
    _, address, _ = demo.launch(prevent_thread_lock=True, quiet=True, server_port=None, **options)
    try:
        yield address
    finally:
        threading.Thread(target=demo.close, kwargs={"verbose": False}, daemon=True).start()


def standalone(trace: str | None, *, dark: bool = False, options: str = "") -> str:
    """A page with the player alone: what an exported run is."""
    parts = [WEB / name / name for name in ("player", "inside")]
    css = "".join(part.with_suffix(".css").read_text(encoding="utf-8") for part in parts)
    js = bundle(*(part.with_suffix(".js") for part in parts), WEB / "player" / "charts.js")
    text = json.dumps(trace).replace("<", "\\u003c")
    return f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Player</title>
<style>body {{ margin: 0; padding: 8px; font-family: Arial; }} {style()} {css}</style>
<body class="{"dark" if dark else ""}"><main id="here"></main><script>{js}</script>
<script>const text = {text};
window.api = QAlign.mount(document.getElementById("here"),
  {{ text, name: "Recorded run", {options} }});</script></body></html>"""
