"""Lessons in a real browser: the first pass, and every lesson from end to end."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest
from browser import API, find_violations, hear

from components.results.sheet import show
from qalign_study.lessons.facts import Share, value_of
from qalign_study.lessons.files import load_lessons
from qalign_study.lessons.messages import check_prediction, fill_facts
from qalign_study.sheet.evaluated import FOLDER

pytestmark = pytest.mark.asyncio(loop_scope="session")

LESSONS = load_lessons()
FIRST = next(iter(LESSONS.values()))
APART = """() => {
  const node = document.querySelector('.learn-highlight');
  if (!node) return false; // what is to be lit may be drawn in the next frame
  const lit = node.getBoundingClientRect();
  const panel = document.querySelector('.learn-panel').getBoundingClientRect();
  const seen = lit.bottom > 20 && lit.top < innerHeight - 20;
  const beside = lit.right <= panel.left + 1;
  return seen && (beside || lit.bottom > panel.bottom + 20);
}"""


SEEN_IT = "JSON.parse(localStorage.getItem('qalign-lessons') ?? '{}').seen"


async def titled(page, title: str) -> None:
    await page.wait_for_function(
        "(title) => document.querySelector('.learn-panel h2')?.textContent === title", arg=title
    )


async def visit_again(page, address: str):
    """The same visitor, later."""
    other = await page.context.new_page()
    unwanted = await page.evaluate("matchMedia('(prefers-reduced-motion: reduce)').matches")
    await other.emulate_media(reduced_motion="reduce" if unwanted else "no-preference")
    await other.goto(address)
    await other.wait_for_selector(".qp", state="attached")
    return other


async def tab_to(page, selector: str) -> None:
    """Press Tab until something has the focus."""
    for _ in range(40):
        if await page.evaluate("(s) => document.activeElement.matches(s)", selector):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"no way to {selector} by the Tab key")


async def predict(page, stop, right: bool) -> None:
    """Make a right or a wrong prediction with the keyboard alone, and read what is said of it."""
    ask, value = stop.ask, check_prediction(stop, "")["value"]
    if ask.kind == "choice":
        guess = next(option for option in ask.options if (option == value) == right)
        place = list(ask.options).index(guess)
        await tab_to(page, ".learn-panel input[type=radio]")
        await page.keyboard.press("Space")
        for _ in range(place):
            await page.keyboard.press("ArrowDown")
    elif ask.kind == "number":
        number = value_of(ask.fact, ask.then) + 0.0
        number *= 100 if isinstance(value_of(ask.fact, ask.then), Share) else 1
        guess = f"{number if right else number + 2 * ask.within + 1:.6f}"
        await tab_to(page, "#learn-number")
        await page.keyboard.type(guess)
    else:
        await tab_to(page, "#learn-spot")
        await page.keyboard.press("End" if not right else "Home")
        steps = await page.evaluate(
            "(v) => { const s = document.querySelector('#learn-spot');"
            " return Math.round((v - s.min) / s.step) }",
            float(value_of(ask.fact, ask.then)),
        )
        for _ in range(steps if right else 0):
            await page.keyboard.press("ArrowRight")
        guess = await page.input_value("#learn-spot")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(f".learn-status[data-right={'true' if right else 'false'}]")
    assert await page.inner_text(".learn-status") == check_prediction(stop, guess)["explanation"]


async def walk(page, lesson) -> None:
    """A lesson by the keyboard alone, every other prediction wrong."""
    right = True
    for stop in lesson.stops:
        await titled(page, stop.title)
        assert await page.inner_text(".learn-words p") == fill_facts(stop.text, stop.at, stop.at)
        await page.wait_for_selector(".learn-highlight")
        if stop.ask:
            before = await page.inner_text(".learn-status")
            assert before == ""
            await predict(page, stop, right)
            right = not right
        await page.wait_for_function(APART)
        last = "Finish" if stop is lesson.stops[-1] else "Next"
        assert await page.inner_text(".learn-next") == last
        await tab_to(page, ".learn-next")
        await page.keyboard.press("Enter")
    await titled(page, "That was it")


async def begin(page, lesson, at: int = 0) -> None:
    """Take a lesson from the list, by the keyboard; whoever took it to its end begins again."""
    if await page.locator(".learn-first").count():  # its end hides the names of the pages
        await page.locator(".learn-panel").get_by_role("button", name="Close", exact=True).click()
    await page.press("#tab-learn-button", "Enter")
    row = page.locator(".learn-list li", has_text=lesson.title)
    await row.get_by_role("button").focus()
    await page.keyboard.press("Enter")
    await titled(page, lesson.stops[at].title)


async def pass_by(page, stops) -> None:
    """Go on behind these stops; what they ask is not predicted."""
    for stop in stops:
        await titled(page, stop.title)
        if stop.ask:
            await page.click(".learn-quiet >> text=Show me")
        await page.click(".learn-next")  # once the server has judged it


@pytest.mark.more
@pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)
async def test_every_lesson_goes_from_end_to_end_by_the_keyboard(revisit, toy_app, lesson):
    # first, so that no wait in the page includes the seconds that results take to be summed up
    places = [at for stop in lesson.stops for at in (stop.at, stop.ask and stop.ask.then)]
    for name in {at.set for at in places if at and at.page == "results"}:
        await asyncio.to_thread(show, FOLDER / f"{name}.zip")
    page = await revisit(toy_app)
    await begin(page, lesson)
    await walk(page, lesson)
    await check_kept(page, lesson)


async def check_kept(page, lesson) -> None:
    """At its end a lesson offers the answers to save, and counts as done."""
    if any(stop.ask for stop in lesson.stops):
        async with page.expect_download() as saved:
            await page.click("text=Save my answers")
        sheet = Path(await (await saved.value).path()).read_text(encoding="utf-8")
        for stop in lesson.stops:
            if stop.ask:
                words = fill_facts(stop.ask.question, stop.ask.then, stop.ask.then)
                assert words[:20] in re.sub("</?nobr>", "", sheet)
        assert "You: " in sheet
        assert "(right)" in sheet
        assert "(not right)" in sheet
    held = await page.evaluate("JSON.parse(localStorage.getItem('qalign-lessons'))")
    assert held["lessons"][lesson.name]["done"]


UNIT_IS_BESIDE = """(([input, unit]) => {
  const range = document.createRange();
  range.selectNode(unit);
  return range.getBoundingClientRect().top < input.getBoundingClientRect().bottom;
})(document.querySelector(".learn-number input").parentNode.childNodes)"""


@pytest.mark.more
async def test_a_lesson_fits_a_phone_and_stays_off_what_it_speaks_of(revisit, toy_app):
    page = await revisit(toy_app)
    await begin(page, LESSONS["one-step"])
    await page.set_viewport_size({"width": 768, "height": 1024})
    assert await page.evaluate(UNIT_IS_BESIDE)
    await page.set_viewport_size({"width": 390, "height": 844})
    await walk(page, LESSONS["one-step"])
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.more
async def test_a_link_to_a_lesson_that_there_is_not_opens_the_page_and_says_so(
    visit, visitors, toy_app
):
    bodies: list[str] = []
    visitors.on("request", heard := lambda request: bodies.append(request.post_data or ""))
    try:
        page = await visit(f"{toy_app}?lesson=UNKNOWN", first=True)
        await page.wait_for_selector("#learn-host", state="attached")
        frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        await page.evaluate(frames)
    finally:
        visitors.remove_listener("request", heard)
    assert not any("UNKNOWN" in body and "fn_name" in body for body in bodies)
    assert await page.locator(".learn-panel").count() == 0
    assert await page.inner_text(".learn-fault") == "There is no lesson called “UNKNOWN”."


async def test_the_first_visit_begins_with_the_first_pass_until_it_is_refused_or_ended(
    visit, toy_app
):
    page = await visit(toy_app, first=True, moving=True)
    await titled(page, FIRST.stops[0].title)
    await page.wait_for_selector(".learn-highlight")
    assert await page.evaluate(f"[{API}.position.t, {API}.position.playing]") == [0, False]
    await page.set_viewport_size({"width": 768, "height": 1024})  # a tablet
    assert await page.evaluate("document.querySelector('.learn-next').offsetHeight") == 44
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.evaluate("document.activeElement.blur()")  # arrows turn it wherever the focus is not
    await page.keyboard.press("ArrowRight")
    await titled(page, FIRST.stops[1].title)
    await page.keyboard.press("ArrowLeft")
    await titled(page, FIRST.stops[0].title)
    await page.click(".learn-panel >> text=Skip")
    await page.wait_for_selector(".learn-panel", state="detached")
    assert not await page.evaluate(f"{API}.position.playing")  # leaving it starts no playback
    await page.emulate_media(reduced_motion="reduce")
    later = await visit_again(page, toy_app)
    await titled(later, FIRST.stops[0].title)
    assert not await later.evaluate(SEEN_IT)
    await later.click(".learn-panel >> text=Never again")
    await later.wait_for_selector(".learn-panel", state="detached")
    assert not await later.evaluate(f"{API}.position.playing")  # since motion is unwanted
    assert await later.evaluate(SEEN_IT)  # and whoever has is not asked: tests/test_controls.py
    await later.evaluate("localStorage.clear()")
    await later.emulate_media(reduced_motion="no-preference")
    other = await visit_again(later, toy_app)
    await walk(other, FIRST)
    await tab_to(other, ".learn-foot .learn-quiet:not([hidden])")
    await other.keyboard.press("Enter")
    await other.wait_for_selector(".learn-panel", state="detached")
    await other.wait_for_function(f"{API}.position.playing || {API}.position.t > 0")
    assert await other.evaluate(SEEN_IT)


@pytest.mark.more  # of one with a step: tests/test_linked_settings.py
@pytest.mark.parametrize("query", ["tab=compare", "lab-beta=2"])
async def test_a_link_to_something_is_not_interrupted(visit, toy_app, query):
    page = await visit(f"{toy_app}?{query}", first=True)
    await page.wait_for_function("document.querySelector('#learn-host')")
    assert await page.query_selector(".learn-panel") is None


@pytest.mark.more
async def test_a_prediction_is_made_before_anything_is_shown_and_the_panel_is_accessible(
    revisit, toy_app
):
    page = await revisit(toy_app)
    await begin(page, LESSONS["one-step"])
    await page.wait_for_selector(".learn-highlight")
    for dark in (False, True):
        await page.evaluate("(dark) => document.body.classList.toggle('dark', dark)", dark)
        assert await find_violations(page, ".learn-panel") == []
    ways = ("#learn-number", ".learn-panel fieldset")
    for stop, way in zip(LESSONS["one-step"].stops, ways, strict=False):
        await titled(page, stop.title)
        await page.wait_for_selector(way)
        await page.click(".learn-next")
        await page.wait_for_function(
            "document.querySelector('.learn-status').textContent.includes('Predict')"
        )
        assert await page.inner_text(".learn-next") == "Check"
        await page.click("text=Show me")
        await page.wait_for_function("document.querySelector('.learn-next').textContent === 'Next'")
        assert await page.get_attribute(".learn-status", "data-right") == ""
        await page.click(".learn-next")


@pytest.mark.more
async def test_a_call_that_fails_says_so_in_one_sentence_and_leaves_the_page_usable(
    visit, visitors, toy_app
):
    refused = {"check", "run", "recorded", "diagnose", "link_of"}

    async def refuse(route):
        name = route.request.post_data_json["fn_name"]
        await (route.abort() if name in refused else route.continue_())

    await visitors.route("**/component_server/**", refuse)
    page = await visit(f"{toy_app}?lesson=trust&stop=5", first=True)
    silent = "because the server did not answer; go to another stop and back to try again."
    fault = page.locator(".learn-panel .learn-fault[role=alert]")
    await fault.wait_for()
    assert await fault.text_content() == f"The recorded run did not load {silent}"
    await page.click(".learn-quiet >> text=Show me")
    await page.wait_for_selector(".learn-fault >> text=Your prediction was not checked because")
    refused.discard("check")
    await page.click(".learn-quiet >> text=Show me")  # the run is still refused
    await page.wait_for_selector(".learn-next:enabled >> text=Next")
    assert await fault.text_content() == f"The recorded run did not load {silent}"
    explanation = check_prediction(LESSONS["trust"].stops[4], "")["explanation"]
    assert await page.text_content(".learn-status") == explanation
    refused.discard("run")
    await page.click(".learn-next")
    await page.wait_for_function(f"() => {API}.trace.chains.length > 1")
    await fault.wait_for(state="detached")
    await page.click(".learn-back")
    await titled(page, LESSONS["trust"].stops[4].title)

    # the outcome of an answer that was given before the lesson was opened
    refused.add("check")
    await page.click(".learn-quiet >> text=Leave")
    await begin(page, LESSONS["trust"], at=4)
    await fault.wait_for()
    assert await fault.text_content() == f"The outcome of your prediction did not load {silent}"
    await page.click(".learn-quiet >> text=Leave")

    # and the calls of other parts of the page
    await page.evaluate(f"{API}.openTab('diagnostics')")
    await page.wait_for_selector(".qp-view >> text=The server did not answer; try again.")
    await page.evaluate("document.querySelector('[data-name=climb]').click()")
    await page.wait_for_selector(".qp-note >> text=The server did not answer; try again.")
    await visitors.unroute("**/component_server/**", refuse)
    assert {error for error in page.errors if "Failed to load resource" not in error} == set()
    page.errors.clear()  # the browser's own line about each request that was refused


@pytest.mark.more
async def test_progress_is_listed_and_a_lesson_goes_on_where_it_was_left(revisit, toy_app):
    page, lesson = await revisit(toy_app), LESSONS["worse"]
    await begin(page, lesson)
    judged = asyncio.Event()

    async def hold(route) -> None:
        await judged.wait()
        await route.continue_()

    await page.route("**/component_server/**", hold)
    await page.click("text=Show me")
    assert await page.locator(".learn-next").is_disabled()  # until the server has judged it
    judged.set()
    await page.click(".learn-next")
    await titled(page, lesson.stops[1].title)
    await page.unroute("**/component_server/**", hold)
    await page.keyboard.press("Escape")
    later = await visit_again(page, f"{toy_app}?tab=learn")
    row = later.locator(".learn-list li", has_text=lesson.title)
    assert "at 2 of" in await row.inner_text()
    await row.get_by_role("button").click()
    await titled(later, lesson.stops[1].title)
    await later.close()


@pytest.mark.more
async def test_touch_is_enough_for_the_first_pass_and_to_go_on_to_the_run_that_it_names(
    browser, toy_app
):
    context = await browser.new_context(has_touch=True, viewport={"width": 390, "height": 844})
    page = await context.new_page()
    hear(page, [])
    await page.goto(toy_app)
    for stop in FIRST.stops:
        await titled(page, stop.title)
        await page.tap(".learn-next")
    await titled(page, "That was it")
    await page.get_by_role("button", name="Right where no sample is", exact=True).tap()
    await page.wait_for_function("location.search.includes('run=beyond')")
    assert await page.locator(".learn-panel").count() == 0
    assert page.errors == []
    await context.close()


@pytest.mark.more
async def test_what_is_said_of_a_set_waits_for_the_figure_of_that_set(
    revisit, toy_app, monkeypatch
):
    lesson = LESSONS["worth"]
    k = next(k for k, stop in enumerate(lesson.stops) if stop.at.set == "long")
    finish = threading.Event()

    def slow(path: Path) -> tuple[str, str]:
        if path.stem == "long":
            finish.wait(60)
        return show(path)

    monkeypatch.setattr("components.results.page.show", slow)
    page = await revisit(toy_app)
    await begin(page, lesson)
    await pass_by(page, lesson.stops[:k])
    await titled(page, lesson.stops[k].title)
    figure = page.locator("#results-error > *").first
    assert not await figure.is_visible()  # nor is that of a set before
    await page.fill("#learn-number", "1e99")  # no share is that large, and the browser says so
    await page.click(".learn-next")
    await page.get_by_text("Predict first").wait_for()
    await page.fill("#learn-number", "0")
    await page.click(".learn-next")
    await page.get_by_text("The figure is being drawn…").wait_for()
    assert await page.get_attribute(".learn-status", "data-right") == ""
    assert await page.locator(".learn-next").is_disabled()
    finish.set()
    await page.wait_for_selector(".learn-status[data-right=false]")
    assert "of long" in await page.text_content("#results-facts")
    await figure.wait_for(state="visible")


WITHIN = """([selector, within]) => {
  const box = document.querySelector(selector)?.getBoundingClientRect();
  const around = document.querySelector(within).getBoundingClientRect();
  return box?.height && box.top >= Math.max(0, around.top) - 1
    && box.bottom <= Math.min(innerHeight, around.bottom) + 1;
}"""


@pytest.mark.more
async def test_what_the_lesson_on_trust_says_is_in_sight_and_the_trace_is_the_chains_it_asks_about(
    revisit, toy_app
):
    lesson = LESSONS["trust"]
    halves, four = (
        next(k for k, stop in enumerate(lesson.stops) if stop.ask and asks(stop.ask))
        for asks in (lambda ask: ask.fact == "mixed", lambda ask: ask.then.run == "stuck")
    )
    page = await revisit(toy_app)
    await page.set_viewport_size({"width": 1280, "height": 800})
    await begin(page, lesson)
    await pass_by(page, lesson.stops[:halves])
    await titled(page, lesson.stops[halves].title)
    await predict(page, lesson.stops[halves], True)
    # the verdict comes from the server after its place has been lit
    await page.wait_for_function(WITHIN, arg=[".qp-trust", "body"])
    await page.wait_for_function(WITHIN, arg=[".learn-status", ".learn-panel"])
    await page.click(".learn-next")
    await pass_by(page, lesson.stops[halves + 1 : four])
    await titled(page, lesson.stops[four].title)
    await predict(page, lesson.stops[four], False)
    await page.wait_for_function(WITHIN, arg=[".learn-status", ".learn-panel"])
    assert await page.evaluate(f"{API}.position.chain") == 1


async def test_the_guide_for_instructors_comes_with_its_page_and_its_links_work(revisit, toy_app):
    page = await revisit(toy_app)
    assert "This guide for instructors" not in await (await page.request.get(toy_app)).text()
    await page.click("#tab-learn-button")
    await page.click("[aria-controls=learn-guide]")
    await page.locator("#learn-guide").get_by_text("This guide for instructors").wait_for()
    assert await page.locator("#learn-guide a[href^='?lesson=']").count() > 10
    links = page.locator(".tabitem a:visible")
    looks = "(all) => all.map((a) => [a.textContent, getComputedStyle(a).textDecorationLine])"
    seen = await links.evaluate_all(looks)
    assert ["Teach a class", "underline"] in seen
    assert [each for each in seen if each[1] != "underline"] == []
