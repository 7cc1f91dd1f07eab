"""Pictures of every page in every state, at four widths, light and dark.

Run: python -m benchmarks.screenshots --out shots     (needs Chromium; --only watch, --readme)

The app runs with the embedded models on a port of its own. Each picture is what a window shows
(1280x800, 1440x900, 1920x1080, 390x844), named STATE-WIDTH-light.png or -dark.png, and once the
whole page, STATE-WIDTH-full.png. `--readme` makes those of the documents in assets/screenshots.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser import chromium, serve

import app
from components.lab.page import ANCHORS
from components.results.page import results_files
from qalign_core import collect
from qalign_core.assets import ASSETS
from qalign_core.record.runner import record
from qalign_core.rewards.functions import FunctionReward
from qalign_core.run import Run
from qalign_core.types import Response
from qalign_study.sets.generated import generate_writing_task

SIZES = ((1280, 800), (1440, 900), (1920, 1080), (390, 844))
WHOLE = (1280, 390)
"""The widths at which the whole page is taken too, in light."""
PHONE = {"width": 390, "height": 844}
README = ASSETS / "screenshots"
PLAYER = "document.querySelector('#watch-player .qp').qalign"
SETTLED = """() => Promise.all(document.getAnimations().map((a) => a.finished.catch(() => 0)))
    .then(() => document.fonts.ready).then(() => new Promise((done) =>
        requestAnimationFrame(() => requestAnimationFrame(() => done(true)))))"""
TOP = """() => { scrollTo(0, 0);
    document.querySelector('.learn-highlight')?.scrollIntoView({ block: 'nearest' }) }"""
DRAWING_TIME = 600
"""Milliseconds that figures may take to follow the window's size; nothing says when they have."""

BLOCKS = ["run", "--move", "suffix+block(:)", "--task", "inventory", "--problem", "0"]
BLOCKS += ["--beta", "0.8", "--steps", "8"]

Prepare = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class State:
    """A page in a state.

    Attributes:
        name: of its pictures.
        query: of the address.
        ready: a selector of what must be there.
        prepare: brings the page into the state.
    """

    name: str
    query: str
    ready: str
    prepare: Prepare | None = None


def clicks(*selectors: str) -> Prepare:
    """Click one after another."""

    async def prepare(page: Any) -> None:
        for selector in selectors:
            await page.click(selector)

    return prepare


def runs(page_name: str, until: str, *, step: int = 0, stops: bool = False) -> Prepare:
    """Run, wait until something is there, go to a step as soon as it is, and perhaps stop."""

    async def prepare(page: Any) -> None:
        notice = page.locator(f"#{page_name}").get_by_text("settings are in place")
        await notice.first.wait_for(state="attached")
        await page.click(f"#{page_name}-run")
        await page.wait_for_selector(until, state="attached")
        if step:  # where motion is unwanted nothing goes there by itself
            there = f"{PLAYER}.position.source === 'live' && {PLAYER}.position.last >= {step}"
            await page.wait_for_function(there)
            await page.evaluate(f"{PLAYER}.seek({step})")
        if stops:
            await page.click(f"#{page_name}-stop")
            await page.wait_for_selector(f"#{page_name} .q-status[data-state=stopped]")

    return prepare


def passes(stops: int) -> Prepare:
    """Go on to a stop of the first pass; a question is answered by being shown."""

    async def prepare(page: Any) -> None:
        for _ in range(stops):
            unsaid = page.get_by_role("button", name="Show me")
            if await unsaid.is_visible():
                await unsaid.click()
            await page.click(".learn-next")

    return prepare


def teaches(members: int) -> Prepare:
    """Opens a room with this many members and lets the class run until all chains are long."""

    async def prepare(page: Any) -> None:
        await page.goto(f"{page.url.split('?')[0]}room")
        await page.select_option("#room-lesson", "one-step")
        await page.click("text=Open the room")
        await page.wait_for_selector(".room-qr")
        for _ in range(members):
            context = await page.context.browser.new_context(viewport=PHONE)
            member = await context.new_page()
            await member.goto(page.url)
            await member.wait_for_selector("h1:has-text('You are number')")
        await page.keyboard.press("n")
        await page.wait_for_selector("nav >> text=The class")
        await page.keyboard.press("Space")
        n_points = "document.querySelector('.room-chains')?.getAttribute('d').split('L').length"
        await page.wait_for_function(f"() => {n_points} > {members * 30}", timeout=120_000)

    return prepare


def opens(text: str) -> Prepare:
    """Open a trace as a visitor would."""

    async def prepare(page: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "long.jsonl"
            path.write_text(text, encoding="utf-8")
            async with page.expect_file_chooser() as choosing:
                await page.locator("#watch-player").get_by_text("Open a trace").click()
            await (await choosing.value).set_files(path)
            await page.get_by_text("Opened file").first.wait_for()
        await page.keyboard.press("End")

    return prepare


def block_trace() -> str:
    """The run that docs/moves.md shows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "blocks.jsonl"
        command = [sys.executable, "-m", "qalign_study", *BLOCKS, "--out", str(path), "--quiet"]
        subprocess.run(command, check=True)
        return path.read_text(encoding="utf-8")


class Scribe:
    """A language model that writes 400 words, whatever it is asked."""

    id = "scribe"
    max_new_tokens = 401
    WORDS = ("the", "river", "runs", "past", "a", "garden", "where", "an", "old", "lamp", "burns")

    def encode(self, prompt: str) -> tuple[int, ...]:
        """As many ids as words."""
        return tuple(range(len(prompt.split())))

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int
    ) -> Response:
        """Go on with words that follow from the seed."""
        n = len(self.WORDS)
        tokens = [*prefix]
        while len(tokens) < 400:
            tokens.append((seed + 7 * len(tokens) * len(tokens)) % n)
        pieces = tuple(
            f" {self.WORDS[k]}" + ("." if place % 17 == 16 else "")
            for place, k in enumerate(tokens)
        )
        return Response((*tokens, n), "".join(pieces).strip(), True, (*pieces, ""))


def long_trace() -> str:
    """A finished run whose texts have 400 tokens."""
    likes_lamps = FunctionReward(lambda prompt, text: text.count("lamp") / 4, id="lamps")
    run = Run("Tell me of the river, at length.", extractor=None, steps=16, seed=3, pool=8)
    return "".join(each.line for each in collect(record(Scribe(), likes_lamps, run)))


def states() -> list[State]:
    """Every page and state."""
    import random

    beads, cards = ".qp-bead", "#compare-panel .qc-card >> nth=3"
    writing = generate_writing_task(random.Random(5)).prompt
    opened = Run(prompt=writing, extractor=None, steps=32, seed=2).query()
    finished = "#watch .q-status[data-state=finished]"
    done = "#compare-panel .qc[data-state=done] .qc-card >> nth=3"
    return [
        *(State(f"first-pass-{k + 1}", "", ".learn-panel", passes(k)) for k in (0, 4, 7, 8)),
        State("watch", "tab=watch&step=24", beads),
        State("watch-live", "steps=1024&seed=5", beads, runs("watch", beads, step=12)),
        State("watch-stopped", "steps=1024&seed=6", beads,
              runs("watch", beads, step=12, stops=True)),
        State("watch-chains", "steps=48&chains=3&seed=4", beads,
              runs("watch", finished, step=32)),
        State("watch-long", "tab=watch", beads, opens(long_trace())),
        State("watch-open-ended", opened, beads, runs("watch", finished, step=24)),
        State("watch-settings", "tab=watch", beads, clicks("#watch-settings")),
        State("watch-gallery", "tab=watch", beads, clicks("#watch-gallery")),
        State("watch-save", "tab=watch&step=24", beads, clicks("text=Save…")),
        State("presenter", "tab=watch&step=24&present=1", beads),
        State("room", "tab=learn", ".learn-list li", teaches(8)),
        State("learn", "tab=learn", ".learn-list li"),
        State("learn-lesson", "lesson=four-ways", ".learn-panel", passes(1)),
        State("compare", "tab=compare", cards),
        State("compare-costs", "tab=compare", cards, clicks(".qc-more")),
        State("compare-live", "tab=compare&steps=1024&seed=3", cards,
              runs("compare", "#compare-panel .qc[data-state=live] .qc-card >> nth=3")),
        State("compare-open-ended", f"tab=compare&{opened}", "#compare-panel .qc",
              runs("compare", done)),
        *(State(f"results-{path.stem}", f"tab=results&set={path.stem}", "#results-beta svg.chart")
          for path in results_files()),
        *(State(f"lab-{anchor}", "tab=lab&lab-t=16", "#lab-distance .main-svg", _section(k))
          for k, anchor in enumerate(ANCHORS)),
    ]  # fmt: skip


def _section(k: int) -> Prepare:
    async def prepare(page: Any) -> None:
        await page.locator("#lab-opened input").nth(k).click(force=True)
        anchor = ANCHORS[k]
        await page.wait_for_selector(f"#lab-section-{anchor} .main-svg >> nth=0", state="attached")

    return prepare


async def look(page: Any, width: int, height: int, dark: bool) -> None:
    """Give the page a window and a theme, and wait until it has followed."""
    await page.set_viewport_size({"width": width, "height": height})
    await page.evaluate(
        "dark => (document.querySelector('#room') ? document.documentElement : document.body)"
        ".classList.toggle('dark', dark)",
        dark,
    )
    await page.evaluate(TOP)
    await page.wait_for_timeout(DRAWING_TIME)
    await page.evaluate(SETTLED)


async def take(page: Any, path: Path, *, whole: bool = False) -> None:
    """Write a picture, and say so."""
    await page.screenshot(path=path, full_page=whole)
    print(path, flush=True)


@asynccontextmanager
async def opened(browser: Any, address: str, state: State) -> Any:
    """A new visitor's page in a state."""
    width, height = SIZES[0]
    context = await browser.new_context(
        viewport={"width": width, "height": height}, reduced_motion="reduce"
    )
    page = await context.new_page()
    try:
        await page.goto(f"{address}?{state.query}")
        await page.wait_for_selector(state.ready, state="attached")
        if state.prepare is not None:
            await state.prepare(page)
        yield page
    finally:
        await context.close()


async def everything(browser: Any, address: str, out: Path, only: str) -> list[str]:
    """Take every state that is asked for; returns what could not be reached."""
    from playwright.async_api import Error

    missed = []
    for state in states():
        if only not in state.name:
            continue
        try:
            async with opened(browser, address, state) as page:
                for dark in (False, True):
                    for width, height in SIZES:
                        await look(page, width, height, dark)
                        name = f"{state.name}-{width}"
                        await take(page, out / f"{name}-{'dark' if dark else 'light'}.png")
                        if width in WHOLE and not dark:
                            await take(page, out / f"{name}-full.png", whole=True)
        except Error as error:
            missed.append(f"{state.name}: {str(error).splitlines()[0]}")
    return missed


async def readme(browser: Any, address: str, only: str) -> None:
    """The pictures of README and docs."""
    by_name = {state.name: state for state in states()}
    for name, state, width, height, dark in (
        ("watch-dark", "watch", 1280, 800, True),
        ("watch-phone", "watch", 390, 844, False),
        ("compare-light", "compare", 1280, 800, False),
        ("results-light", "results-in_distribution", 1280, 800, False),
        ("gallery-light", "watch-gallery", 1280, 800, False),
        ("lesson-light", "learn-lesson", 1280, 800, False),
        ("room-light", "room", 1280, 800, False),
        ("presenter-dark", "presenter", 1280, 720, True),
        ("save-light", "watch-save", 1280, 800, False),
        ("results-inventory", "results-inventory", 1280, 816, False),
        ("lab-light", "lab-convergence", 1280, 800, False),
        ("lab-worth-light", "lab-worth", 1280, 800, False),
    ):
        if only not in state:
            continue
        async with opened(browser, address, by_name[state]) as page:
            await look(page, width, height, dark)
            await take(page, README / f"{name}.png")
    if only in "watch":
        async with opened(browser, address, by_name["watch"]) as page:
            await animate(page, README / "watch.gif", 0, 7)
    if only in "moves":
        moves = State("moves", "tab=watch", ".qp-bead", opens(block_trace()))
        async with opened(browser, address, moves) as page:
            await animate(page, README / "moves.gif", 5, 8)


async def animate(page: Any, path: Path, first: int, last: int) -> None:
    """Write these steps of what Watch shows as a GIF, three seconds each, and say so."""
    await page.locator("#watch-player").get_by_text("Save…").click()
    await page.get_by_label("First step").fill(str(first))
    await page.get_by_label("Last step").fill(str(last))
    await page.get_by_label("Seconds per step").select_option("3")
    async with page.expect_download() as saving:
        await page.get_by_role("button", name="Animation as GIF").click()
    await (await saving.value).save_as(path)
    print(path, flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screenshots")
    parser.add_argument("--out", type=Path, help="folder of the pictures")
    parser.add_argument("--only", default="", help="the states whose names contain this")
    parser.add_argument("--readme", action="store_true", help="those of README and docs")
    options = parser.parse_args()
    if not options.out and not options.readme:
        parser.error("say where to: --out FOLDER, --readme, or both")
    missed = []
    with serve(app.build_app(), **app.launch_options()) as address:
        async with chromium() as browser:
            if options.readme:
                await readme(browser, address, options.only)
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                missed = await everything(browser, address, options.out, options.only)
    if missed:
        sys.exit("not reached:\n" + "\n".join(missed))


if __name__ == "__main__":
    asyncio.run(main())
