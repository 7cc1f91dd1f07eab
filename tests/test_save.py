"""What is saved from the page: pictures, animations and figures are whole, their texts inert."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import pytest_asyncio
from browser import API, ROOT
from PIL import Image, ImageSequence
from test_export import PLAYING
from traces import HOSTILE, block_trace, hostile_trace, toy_trace

from qalign_core.record.format import parse_trace

pytestmark = pytest.mark.asyncio(loop_scope="session")
TAGS = {
    *("svg", "title", "desc", "g", "rect", "text", "tspan", "path", "circle", "line"),
    "clipPath",
}
RECORDED = ROOT / "assets" / "runs" / "watch.jsonl"
PANELS = 5
"""Figures that stand in the player: votes, trace, histogram and acceptance."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def opened(stay, toy_app):
    return await stay(toy_app)


@pytest_asyncio.fixture(loop_scope="session")
async def page(opened):
    """One page for all tests: each turns to what it saves from, in its own colours."""
    opened.errors.clear()
    yield opened
    assert opened.errors == []


async def turn(page, name: str, *, dark: bool = False) -> None:
    """Turn to a page of the app; a dialog that was left open is closed."""
    await page.emulate_media(color_scheme="dark" if dark else "light")
    await page.evaluate("document.querySelector('.qs-dialog[open]')?.close()")
    await page.click(f"#tab-{name}-button")


async def open_menu(page, trace: str, step: int, *, dark: bool = False) -> None:
    """The menu of what can be saved of a step of a trace."""
    await turn(page, "watch", dark=dark)
    await page.evaluate(f"text => {API}.open(text, 'Mine')", trace)
    await page.evaluate(f"{API}.seek({step})")
    await page.get_by_role("button", name="Save…").click()
    await page.wait_for_selector(".qs-dialog[open]")


async def saved(page, button: str, folder: Path) -> Path:
    """The file that a button of the menu saves."""
    async with page.expect_download() as saving:
        await page.get_by_role("button", name=button, exact=True).click()
    path = folder / (await saving.value).suggested_filename
    await (await saving.value).save_as(path)
    return path


async def figures(page) -> list[str]:
    return await page.locator(".qs-figures li > span").all_inner_texts()


def drawing(path: Path) -> tuple[set[str], str]:
    """The elements of a drawing, and what it says; there is nothing in it but these."""
    elements = list(ElementTree.parse(path).iter())
    names = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in elements}
    attributes = {name for element in elements for name in element.attrib}
    assert {name for name in attributes if re.match(r"on|.*href|style|class", name)} == set()
    return names, " ".join(text for element in elements for text in element.itertext())


def colours(path: Path) -> int:
    """How many colours a picture has, a hundred at most."""
    with Image.open(path) as picture:
        return len(picture.convert("RGB").getcolors(2**24) or ())


async def test_a_run_is_saved_as_a_page_that_plays(page, visit, tmp_path):
    text = toy_trace(12).replace("The answer", "<!-- </script> The answer")
    await open_menu(page, text, 3)
    path = await saved(page, "Page as HTML", tmp_path)
    again = await visit(path.as_uri())
    await again.locator(PLAYING).wait_for()
    assert again.hosts == {""}
    lines = await again.evaluate(f"{API.replace('#watch-player ', '')}.text")
    assert parse_trace(lines) == parse_trace(text)
    assert json.loads(lines.splitlines()[0])["prompt"] == parse_trace(text).header.run.prompt


CROSSED = """() => {
  const boxes = [...document.querySelectorAll('.qs-dialog[open] .qs-row :is(h3, p, button, label)')]
    .filter((element) => element.checkVisibility())
    .map((element) => ({ text: element.textContent, ...element.getBoundingClientRect().toJSON() }));
  const meet = (a, b) => a.left < b.right && a.top < b.bottom;
  const narrow = boxes.filter(({ text, width, height }) => text.length > 40 && height > width);
  const covers = (a, i) => boxes.slice(i + 1).some((b) => meet(a, b) && meet(b, a));
  return [...narrow, ...boxes.filter(covers)].map(({ text }) => text);
}"""
"""The texts and buttons of the menu that cover another one, or have one word per line."""


@pytest.mark.more
async def test_a_page_that_draws_is_offered_only_for_a_run_that_a_browser_draws(page):
    live = page.get_by_role("button", name="Page that draws, as HTML")
    for name, reason in (("cheerful", "a browser has the embedded models only"), ("watch", "")):
        await open_menu(page, (ROOT / f"assets/runs/{name}.jsonl").read_text("utf-8"), 1)
        words = f"No page that draws: {reason}." if reason else "it can also draw new runs."
        await page.wait_for_selector(f".qs-dialog p:has-text('{words}')")
        assert await live.is_visible() == (not reason)
        for width in (1280, 390):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await page.evaluate(CROSSED) == []
        await page.set_viewport_size({"width": 1280, "height": 800})
        await page.keyboard.press("Escape")


@pytest.mark.more
async def test_a_saved_step_and_page_of_a_block_show_what_is_kept_again(page, visit, tmp_path):
    text = block_trace()
    steps = parse_trace(text).steps
    block = next(step for step in steps if step.kept_again and step.changed)
    suffix = next(step for step in steps[1:] if not (step.kept_again or step.refused))
    await open_menu(page, text, block.t)
    # the pictures of an animation are drawn by the same function
    _, words = drawing(await saved(page, "Step as SVG", tmp_path))
    assert "kept again" in words
    assert "p(rest|new)/p(rest|old)" in words
    path = await saved(page, "Page as HTML", tmp_path)
    again = await visit(path.as_uri())
    await again.evaluate(f"document.querySelector('.qp').qalign.seek({block.t})")
    await again.locator(".qp-again-row").wait_for()
    await open_menu(page, text, suffix.t)
    _, words = drawing(await saved(page, "Step as SVG", tmp_path))
    assert "kept again" not in words


@pytest.mark.more
@pytest.mark.parametrize("dark", [False, True])
async def test_a_step_and_every_figure_are_saved_as_drawings_and_as_pictures(page, tmp_path, dark):
    await open_menu(page, RECORDED.read_text("utf-8"), 13, dark=dark)
    step = await saved(page, "Step as SVG", tmp_path)
    assert step.name == "qalign-seed-701-step-13.svg"
    names, text = drawing(step)
    assert names <= TAGS
    for words in ("Ruth starts with 6 eggs.", "Step 13", "u = 0.847", "Rejected", "β = 3"):
        assert words in text
    picture = await saved(page, "Step as PNG", tmp_path)
    with Image.open(picture) as image:
        assert image.size == (2560, 1440)
        dark_ground = sum(image.convert("RGB").getpixel((4, 4))) < 200
    assert dark_ground == dark
    assert colours(picture) > 20
    titles = await figures(page)
    assert len(titles) == PANELS
    for title in titles[: PANELS if not dark else 1]:
        names, text = drawing(await saved(page, f"{title} as SVG", tmp_path))
        assert names <= TAGS
        assert title in text
        assert colours(await saved(page, f"{title} as PNG", tmp_path)) > 20


async def test_hostile_texts_are_texts_in_what_is_saved(page, tmp_path):
    await open_menu(page, hostile_trace(), 2)
    files = [await saved(page, "Step as SVG", tmp_path)]
    files += [await saved(page, f"{title} as SVG", tmp_path) for title in await figures(page)]
    all_text = ""
    for names, text in map(drawing, files):
        assert names <= TAGS
        all_text += text
    assert HOSTILE[0] in all_text
    assert HOSTILE[3] in all_text
    assert "\u202e" not in all_text
    assert await page.evaluate("window.hit") is None


@pytest.mark.more
async def test_a_gif_of_10_steps_is_small_and_each_of_its_pictures_another(page, tmp_path):
    await open_menu(page, RECORDED.read_text("utf-8"), 12)
    await page.get_by_label("First step").fill("1")
    await page.get_by_label("Last step").fill("10")
    await page.get_by_label("Seconds per step").select_option("2")
    path = await saved(page, "Animation as GIF", tmp_path)
    assert path.name == "qalign-seed-701-steps-1-to-10.gif"
    assert path.stat().st_size <= 1_500_000
    with Image.open(path) as gif:
        frames = [
            (each.info["duration"], each.convert("RGB").tobytes())
            for each in ImageSequence.Iterator(gif)
        ]
        assert gif.size == (960, 540)
    assert sum(ms for ms, _ in frames) == 10 * 2000
    assert len(frames) == len({pixels for _, pixels in frames}) == 3 * 10


@pytest.mark.more
async def test_an_animation_can_be_cancelled(page):
    await open_menu(page, toy_trace(64), 64)
    await page.get_by_label("First step").fill("5")
    await page.get_by_label("Last step").fill("2")
    await page.get_by_role("button", name="Animation as GIF").click()
    await page.get_by_text("Choose steps from 0 to 64, 200 of them at most.").wait_for()
    await page.get_by_label("First step").fill("0")
    await page.get_by_label("Last step").fill("64")
    await page.get_by_role("button", name="Animation as GIF").click()
    await page.keyboard.press("Enter")  # the focus is on Cancel
    await page.get_by_text("Cancelled: nothing was saved.").wait_for()
