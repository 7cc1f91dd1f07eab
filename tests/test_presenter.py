"""The presenter's view in a real browser: one stage that fills the window, keys, and notes."""

from __future__ import annotations

import asyncio
import json

import pytest
from browser import API, find_violations, lead_to_watch
from test_learn_page import begin
from traces import toy_trace

from qalign_core.assets import ASSETS
from qalign_study.lessons.files import load_lessons
from qalign_study.lessons.messages import check_prediction, fill_facts

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.more]

LESSONS = load_lessons()
LESSON = LESSONS["one-step"]
BETA = "?lesson=beta&stop=4&present=1"
FIGURES = 4
# what is read has 28 pixels or more, numbers at axes and the keys of figures 26
SEEN = """() => {
  const seen = [...document.querySelectorAll('body *')].filter((node) => {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    return own && node.checkVisibility({ visibilityProperty: true, opacityProperty: true })
      && !node.matches('.qp-hidden, .qp-eos, sup');
  });
  const small = (least, which) => seen.filter((node) => which(node)
    && parseFloat(getComputedStyle(node).fontSize) * node.currentCSSZoom < least - .01)
    .map((node) => `${node.className.baseVal ?? node.className}: ${node.textContent}`);
  const out = [...document.querySelectorAll(':is(.qp-host, .pr-words, .pr-line)')]
    .filter((node) => { const box = node.getBoundingClientRect();
      return box.width && (box.left < 0 || box.top < 0 || box.right > innerWidth + 1
        || box.bottom > innerHeight + 1) }).length;
  const cut = [...document.querySelectorAll('.qp-phases, .qp-votes, .pr-words')]
    .filter((node) => node.scrollHeight > node.clientHeight + 1).map((node) => node.className);
  return { n: seen.length, out, cut, scrolls: document.scrollingElement.scrollHeight > innerHeight
    && getComputedStyle(document.documentElement).overflowY !== 'hidden',
    small: [...small(26, () => true),
      ...small(28, (node) => !node.matches('.qp-tick, .qp-key, .qp-key *'))] };
}"""


async def present(visit, address: str, **how):
    page = await visit(address, width=1280, height=720, moving=True, **how)
    await page.wait_for_selector(".pr-line")
    return page


async def end_presentation(page) -> None:
    """Leave the presenter's view, if the page shows it."""
    if await page.locator(".pr-line").count():
        await page.keyboard.press("Escape")
        await page.wait_for_selector(".pr-line", state="detached")


async def present_lesson(page, lesson) -> None:
    """Present a lesson from its beginning, in a page that may present another one."""
    await end_presentation(page)
    await begin(page, lesson)
    await page.keyboard.press("p")
    await page.wait_for_selector(".pr-line")


async def at(page, t: int, phase: int = 5) -> None:
    await page.wait_for_function(
        "([t, phase]) => { const d = document.querySelector('.qp').dataset;"
        " return d.t == t && d.phase == phase }",
        arg=[t, phase],
    )


async def test_keys_work_wherever_the_focus_is_and_every_phase_is_read_from_the_last_row(
    visit, toy_app
):
    page = await present(visit, f"{toy_app}?present=1&step=3", dark=True)
    assert not await page.evaluate(f"{API}.position.playing")
    for place in ("document.body.focus()", "document.querySelector('.pr-help').focus()",
                  "document.querySelector('.qp-prompt').focus()"):  # fmt: skip
        await page.evaluate(f"document.activeElement.blur(), {place}")
        t = await page.evaluate(f"{API}.position.t")
        await page.keyboard.press("ArrowRight")
        await at(page, t + 1)
        await page.keyboard.press("ArrowUp")
        await at(page, t + 1, 4)
        await page.keyboard.press("Space")
        await page.wait_for_function(f"{API}.position.playing")
        await page.keyboard.press(" ")
        await page.wait_for_function(f"!{API}.position.playing")
    await page.keyboard.press("d")
    await page.mouse.move(300, 200)
    box = await page.locator(".pr-dot").bounding_box()
    assert box["x"] + box["width"] / 2 == pytest.approx(300, abs=1)
    assert box["width"] >= 36
    await page.keyboard.press("?")
    assert await page.locator(".pr-keys").is_visible()
    sizes = """() => [...document.querySelectorAll('.pr-keys, .pr-keys *')]
      .map((node) => parseFloat(getComputedStyle(node).fontSize))"""
    assert min(await page.evaluate(sizes)) >= 26
    assert await find_violations(page) == []
    await page.keyboard.press("Escape")
    assert not await page.locator(".pr-keys").is_visible()
    assert await find_violations(page) == []
    await page.evaluate("window.open = () => null")  # as a browser that blocks pop-ups
    await page.keyboard.press("s")
    assert "allow pop-ups" in await page.inner_text(".pr-line [role=status]")
    await page.keyboard.press("Escape")
    await page.wait_for_selector(".pr-line", state="detached")
    await page.wait_for_selector("#watch-run")  # Gradio's buttons take a frame to be seen again
    await page.wait_for_function("!location.search.includes('present')")
    await page.focus("#watch-player .qp")
    await page.keyboard.press("p")
    await page.wait_for_selector(".pr-line")

    # the stage fills 1280 by 720
    await page.emulate_media(color_scheme="light")
    await page.evaluate(f"{API}.seek(0)")
    for phase in range(6):
        await page.keyboard.press("PageDown")
        await at(page, 1, phase)
        seen = await page.evaluate(SEEN)
        assert seen.pop("n") > 15
        assert seen == {"out": 0, "cut": [], "scrolls": False, "small": []}
    accepted = {"index": 0, "log_alpha": 0.0, "accepted": True}
    lines = [json.loads(line) for line in toy_trace(8).splitlines()]
    lines = [
        x | accepted | {"answer": str(x["t"] % 5)} if x["type"] == "step" else x for x in lines
    ]
    five = "".join(f"{json.dumps(line)}\n" for line in lines)
    await page.evaluate(f"(text) => ({API}.open(text), {API}.seek(8))", five)
    await at(page, 8)
    rows = [await row.is_visible() for row in await page.locator(".qp-answers li").all()]
    assert rows == [True] * 4 + [False]  # all that have an answer of their own, but not the others
    assert (await page.evaluate(SEEN))["cut"] == []
    phases = set()
    for _ in range(FIGURES):
        phases.add(await page.get_attribute("html", "data-present"))
        seen_now = await page.evaluate(SEEN)
        assert seen_now["small"] == []
        figures = "figure.qp-panel:not(.qp-votes)"
        visible = [await f.is_visible() for f in await page.locator(figures).all()]
        assert visible.count(True) == 1
        await page.keyboard.press("f")
    assert len(phases) == FIGURES


VISIBLE_PANELS = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let k = 0; k < 3; k += 1) await frame();
  return [...document.querySelectorAll('.qp figure.qp-panel')]
    .filter((node) => node.checkVisibility({ visibilityProperty: true }))
    .map((node) => node.getBoundingClientRect()).sort((a, b) => a.top - b.top)
    .map(({ top, bottom }) => [top, bottom]);
}"""


async def test_a_stop_is_asked_on_the_stage_answered_and_told_in_the_second_window(visit, toy_app):
    page = await present(visit, f"{toy_app}?lesson={LESSON.name}&stop=2&present=1", first=True)
    stop, following = LESSON.stops[1:3]
    await page.wait_for_selector(f".pr-words .pr-ask:text-is('{stop.ask.question}')")
    async with page.expect_popup() as opened:
        await page.keyboard.press("s")
    notes = await opened.value
    for words in (fill_facts(stop.text, stop.at, stop.at), stop.notes, f"Next: {following.title}"):
        await notes.wait_for_selector(f"text={words}")
    assert not await page.locator(".learn-panel").is_visible()
    assert await find_violations(page) == []
    await notes.keyboard.press("PageDown")  # keys work there too
    await page.wait_for_selector(
        f".pr-words p:text-is('{check_prediction(stop, '')['explanation']}')"
    )
    await page.keyboard.press("PageDown")
    await notes.wait_for_selector(f"h1:has-text('{following.title}')")
    await page.wait_for_function("location.search.includes('stop=3')")
    for k, each in enumerate(LESSON.stops[2:-1], start=4):
        if each.ask:
            await page.keyboard.press("PageDown")
            selector = f".pr-words p:text-is('{check_prediction(each, '')['explanation']}')"
            await page.wait_for_selector(selector, state="attached")
        assert not await page.is_visible(".qp-view")
        await page.keyboard.press("PageDown")
        await page.wait_for_function(f"location.search.includes('stop={k}')")
    assert LESSON.stops[-1].at.tab == "tokens"
    await page.wait_for_selector(".qp-view .qp-shaded")  # the stop speaks of the player's tab
    assert (await page.evaluate(SEEN))["small"] == []
    kept = await page.evaluate("localStorage.getItem('qalign-lessons')")
    assert kept is None  # in front of a class nothing is kept
    await page.keyboard.press("Escape")
    await page.wait_for_selector(".learn-panel", state="visible")
    assert notes.is_closed()


async def test_a_lesson_is_awaited_and_its_figure_ends_where_the_answer_would_begin(
    revisit, visitors, toy_app
):
    answers = asyncio.Event()

    async def hold(route):
        await answers.wait()
        await route.continue_()

    await visitors.route("**/component_server/**", hold)  # a slow server
    page = await revisit(toy_app + BETA, width=1280, height=720)
    await page.wait_for_selector(".pr-words >> text=The lesson is loading…")
    position = f"JSON.stringify({API}.position)"
    before = await page.evaluate(position)
    for key in ("PageDown", "ArrowDown", "ArrowRight", "Space", "f"):
        await page.keyboard.press(key)
    assert await page.evaluate(position) == before
    assert not await page.is_visible(".qp-host")
    answers.set()
    curve = page.locator(".pr-exhibit [role=img] .room-curve").first
    await curve.wait_for()
    await visitors.unroute("**/component_server/**", hold)
    before = await curve.get_attribute("d")
    assert await page.locator(".pr-words .pr-ask").is_visible()
    await page.keyboard.press("PageDown")
    await page.wait_for_selector(".pr-exhibit[data-stop*='\"answered\":true']")
    assert (await curve.get_attribute("d")).count("L") > before.count("L") + 5


async def refusing(visitors, function: str):
    """Have the server answer no call of a function; returns the handler, for `unroute`."""

    async def refuse(route):
        wanted = route.request.post_data_json["fn_name"] == function
        await (route.abort() if wanted else route.continue_())

    await visitors.route("**/component_server/**", refuse)
    return refuse


def forget_refusals(page) -> None:
    """Drop the browser's own line about each request that was refused."""
    assert {error for error in page.errors if "Failed to load resource" not in error} == set()
    page.errors.clear()


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("&present=1", ".pr-words [role=alert]"),
        ("", ".learn-fault[role=alert]"),
    ],
)
async def test_a_lesson_that_does_not_load_says_what_happened_and_what_to_do(
    visit, visitors, toy_app, query, place
):
    refuse = await refusing(visitors, "lesson")
    page = await visit(
        f"{toy_app}?lesson=beta&stop=4{query}", width=1280, height=720, first=True, moving=True
    )
    alert = page.locator(place)
    await alert.wait_for()
    assert await alert.text_content() == (
        "The lesson “What β does” did not load because the server did not answer; reload the page "
        "to try again."
    )
    await visitors.unroute("**/component_server/**", refuse)
    await page.reload()
    await page.wait_for_selector(".pr-words h1" if query else ".learn-panel h2")
    await alert.wait_for(state="detached")
    forget_refusals(page)


async def test_a_figure_that_does_not_load_says_what_happened_and_what_to_do(
    revisit, visitors, toy_app
):
    page = await revisit(toy_app + BETA, width=1280, height=720)
    await page.wait_for_selector(".pr-exhibit [role=img]")
    refuse = await refusing(visitors, "exhibit")
    await page.keyboard.press("PageDown")
    alert = page.locator(".pr-exhibit [role=alert]")
    await alert.wait_for()
    assert await alert.text_content() == (
        "The figure did not load because the server did not answer; press Page ↑ and Page ↓ to "
        "try again."
    )
    await visitors.unroute("**/component_server/**", refuse)
    await page.keyboard.press("PageUp")
    await page.keyboard.press("PageDown")
    await page.wait_for_selector(".pr-exhibit [role=img]")
    await alert.wait_for(state="detached")
    forget_refusals(page)


async def test_an_axis_names_the_largest_number_that_a_question_asks_about(revisit, toy_app):
    page = await revisit(toy_app + BETA, width=1280, height=720)
    await present_lesson(page, LESSONS["best-of-n"])
    # no line ends within the name of a method, however narrow its column is
    await page.wait_for_selector(".pr-words .pr-ask >> text=Best-of-n takes")
    narrow = await page.add_style_tag(content=".pr-words * { max-width: 5ch }")
    assert await page.eval_on_selector_all(
        ".pr-ask nobr",
        """(names) => names.map((name) =>
        [name.textContent, name.getClientRects().length])""",
    ) == [["Best-of-n", 1]]
    await narrow.evaluate("(style) => style.remove()")
    await page.keyboard.press("PageDown")
    await page.wait_for_selector(".pr-exhibit[data-stop*='\"answered\":true']")
    await page.keyboard.press("PageDown")
    await page.wait_for_selector(".pr-exhibit [role=img] .room-tick:text-is('128')")
    await page.wait_for_selector(".pr-exhibit [role=img] .room-tick:text-is('8')")


# "stuck" has four chains, of which the figures speak too
@pytest.mark.parametrize(("run", "step"), [("watch", 256), ("stuck", 64)])
async def test_no_figure_covers_the_votes(revisit, toy_app, run, step):
    page = await revisit(toy_app + BETA, width=1280, height=720)
    await end_presentation(page)
    await lead_to_watch(page)
    text = (ASSETS / "runs" / f"{run}.jsonl").read_text(encoding="utf-8")
    await page.evaluate(f"(text) => ({API}.open(text), {API}.seek({step}))", text)
    await page.focus("#watch-player .qp")
    await page.keyboard.press("p")
    await at(page, step)
    for width, height in ((1280, 720), (1920, 1080)):
        await page.set_viewport_size({"width": width, "height": height})
        await page.wait_for_function("(width) => innerWidth === width", arg=width)
        for _ in range(FIGURES):
            await page.keyboard.press("f")
            votes, figure = await page.evaluate(VISIBLE_PANELS)
            assert votes[1] <= figure[0], await page.get_attribute("html", "data-present")
