"""Watch with the embedded models: the visitor's browser draws; the server does where it cannot."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from browser import API, PATIENCE, ROOT, serve
from test_exhibit import RICHEST
from test_save import saved

import app
from components.learn.alone import NEEDS, SERVED, without_server
from components.learn.exhibit import build_exhibit
from components.session.drawing import BrowserReply, draw_run
from components.session.runs import Runs
from components.site import write_site
from components.watch.gallery import page_parts
from qalign_core.errors import InvalidSetting
from qalign_core.record.format import parse_trace
from qalign_core.record.store import load_trace
from qalign_core.run import Run
from qalign_study.export.browser import unsupported_reason
from qalign_study.export.player import page
from qalign_study.lessons.facts import Share, value_of
from qalign_study.lessons.files import load_lessons
from qalign_study.lessons.messages import check_prediction

pytestmark = pytest.mark.asyncio(loop_scope="session")

STATUS = "document.querySelector('#watch .q-status')"
RECORDED = load_trace(ROOT / "assets/runs/watch.jsonl")
FEW = RECORDED.header.run.with_changes(steps=12, pool=2)
LINK = f"?{FEW.query()}"
LINKED = "document.querySelector('#watch-seed :is(input, textarea)')?.value === '701'"


@pytest.fixture(scope="module")
def embedded_app() -> Iterator[str]:
    """The app with the models that come with it."""
    runs = Runs()
    runs.warm_up().join()
    with serve(app.build_app(runs), **app.launch_options(runs)) as address:
        yield address


def page_that_draws() -> str:
    """The page of the recorded run that draws new ones too, as it is exported."""
    return page((ROOT / "assets/runs/watch.jsonl").read_text(encoding="utf-8"), live=True)


async def run(page) -> None:
    await page.click("#watch-run")
    await page.wait_for_function(f"{API}.position.source === 'live' && {API}.trace.end")


async def on_the_server(run: Run) -> str:
    """The trace of a run as the server's pages get it."""
    runs = Runs()
    async for view in runs.stream("visitor", lambda feed: draw_run(feed, runs, run)):
        text = view.text
    return text


async def lines_of_page(page):
    return parse_trace(await page.evaluate(f"{API}.text"))


@pytest.mark.recorded  # WebAssembly computes the same bits on any machine
async def test_the_browser_draws_the_run_of_the_link_until_stop_and_saves_a_page_that_draws(
    visit, embedded_app, tmp_path
):
    page = await visit(embedded_app + LINK)
    fetched = []
    page.on("request", lambda request: fetched.append(request.url))
    await page.wait_for_function(LINKED)
    await page.get_by_role("button", name="Save…").click()
    path = await saved(page, "Page that draws, as HTML", tmp_path)
    assert path.read_text(encoding="utf-8") == page_that_draws()
    await page.keyboard.press("Escape")
    await run(page)
    await page.wait_for_function(f"{STATUS}.textContent.includes('All texts are drawn')")
    # the player may be at an earlier step, so nothing is finished
    assert "Finished" not in await page.inner_text("#watch .q-status")
    assert any(url.endswith("/engine.js") for url in fetched)
    trace = await lines_of_page(page)
    assert [s.proposal.response.tokens for s in trace.steps] == [
        s.proposal.response.tokens for s in RECORDED.steps[:13]
    ]
    assert trace.header.lm_revision == RECORDED.header.lm_revision
    assert len(trace.pool) == 2
    # a longer one is stopped, and a new problem waits
    await page.click("#watch-settings")
    steps = page.locator("#watch-drawer").get_by_label("number input for Steps")
    await steps.fill("1024")
    await steps.press("Enter")
    await page.keyboard.press("Escape")
    await page.click("#watch-run")
    await page.wait_for_function(
        f"{API}.position.source === 'live' && {API}.trace.header.steps === 1024"
        f" && {API}.position.last > 3"
    )
    await page.click("#watch-stop")
    await page.wait_for_function(f"{STATUS}.dataset.state === 'stopped'")
    n = await page.evaluate(f"{API}.position.last")
    await page.click("#watch-new")
    await page.wait_for_function(f"{API}.position.source === 'next'")
    assert n < 1024
    assert await page.evaluate(f"{STATUS}.dataset.state") == "idle"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        pytest.param(
            "void delete window.Worker", "it has no workers", id="missing", marks=pytest.mark.more
        ),
        pytest.param(  # at its first message, not before: the page has begun to draw
            "void (window.Worker = class { postMessage() { setTimeout(() => this.onerror("
            "{ preventDefault() {}, message: '' })) } terminate() {} })",
            "the worker did not start",
            id="blocked",
        ),
    ],
)
async def test_the_server_draws_the_same_run_where_the_browser_cannot(
    visit, embedded_app, broken, why
):
    page = await visit(embedded_app + LINK)
    await page.wait_for_function(LINKED)
    await page.evaluate(broken)
    await run(page)
    await page.wait_for_function(f"{STATUS}.textContent.includes('drawn on the server: {why}')")
    assert "Finished" not in await page.inner_text("#watch .q-status")
    trace = await lines_of_page(page)
    assert trace.header.run.seed == 701
    here = parse_trace(await on_the_server(FEW))  # the same bits on one machine
    assert trace.steps == here.steps
    assert trace.pool == here.pool


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"rm": "embedded-weak", "extractor": None}, ""),
        ({"rm": "mood"}, "a browser has the embedded models only"),
        ({"lm": "smollm2-135m"}, "a browser has the embedded models only"),
        ({"extractor": "choice"}, "a browser does not read answers of the kind 'choice'"),
        ({"sharpness": 2.0}, "a browser does not know the setting sharpness"),
        ({"move": "suffix+entropy"}, "a browser does not know the setting move"),
        ({"top_k": 5}, "a browser does not know the setting top_k"),
    ],
)
async def test_what_a_browser_cannot_draw_has_a_reason(change, why):
    assert unsupported_reason(Run(prompt="2 + 2?").with_changes(**change)) == why


@pytest.mark.parametrize("answer", ["", "1", "[]", '{"why": 3}', '{"why": "", "seed": -1}', None])
async def test_a_word_that_is_none_leaves_the_run_to_the_server(answer):
    assert BrowserReply.read(answer).why


@pytest.mark.more
async def test_a_page_that_draws_does_so_from_a_disk_without_a_network(browser, tmp_path):
    path = tmp_path / "live.html"
    path.write_text(page_that_draws(), encoding="utf-8")
    context = await browser.new_context(offline=True)
    try:
        opened, errors = await context.new_page(), []
        opened.set_default_timeout(PATIENCE)
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.on("console", lambda message: errors.append(message.text))
        await opened.goto(path.as_uri())
        await opened.click("#live summary")
        for name, value in (("steps", "12"), ("pool", "2")):
            await opened.fill(f"#live [name={name}]", value)
        await opened.click("#live .ql-go")
        await opened.wait_for_selector("#live form[data-state=finished]")
        trace = parse_trace(await opened.evaluate("document.querySelector('.qp').qalign.text"))
        assert [s.proposal.response.tokens for s in trace.steps] == [
            s.proposal.response.tokens for s in RECORDED.steps[:13]
        ]
        await opened.click("#live >> text=New problem")
        await opened.wait_for_selector(".qp >> text=This problem has not been run yet")
        assert errors == []
    finally:
        await context.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> list[Path]:
    """The site of plain files."""
    return write_site(tmp_path_factory.mktemp("site"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def opened(browser, site) -> AsyncIterator[Any]:
    """A page of the site without a network, for all tests; no page may write on its console."""
    context = await browser.new_context(offline=True)
    page, errors = await context.new_page(), []
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    yield page
    await context.close()
    assert errors == []


@pytest.mark.more
async def test_the_site_of_plain_files_opens_without_a_network(opened, site):
    links = set(re.findall(r'href="([^"]+)"', "".join(p.read_text("utf-8") for p in site[:4])))
    assert {"watch.html", "learn.html", "glossary.html", "index.html"} < links
    assert links == {p.name for p in site}
    await opened.goto(site[0].as_uri())
    await opened.click("text=Glossary")
    await opened.wait_for_selector("dt >> text=beta")
    await opened.go_back()
    await opened.click("text=Watch")
    await opened.wait_for_selector("#live .ql-go")
    await opened.wait_for_selector(".qp >> text=Recorded run")
    await opened.go_back()
    await opened.click("text=Lessons")
    await opened.click("text=Skip")  # the first pass opens by itself
    assert await opened.locator(".learn-list li h3").all_text_contents() == [
        lesson.title for lesson in load_lessons().values()
    ]
    await opened.click("[aria-label$='The first pass']")
    await opened.click(".learn-live")
    await opened.wait_for_selector("#live .ql-go")  # Watch, which draws
    needs = [s for each in load_lessons().values() for s in without_server(each).stops
             if s.text.endswith(NEEDS)]  # fmt: skip
    assert len(needs) == 2


@pytest.mark.more
@pytest.mark.parametrize("lesson", RICHEST)
async def test_each_kind_of_stop_is_taken_without_a_server(opened, site, lesson):
    if not await opened.is_visible(".learn-list"):
        await opened.goto(next(path for path in site if path.name == "learn.html").as_uri())
        await opened.click("text=Skip")
    await take(opened, without_server(load_lessons()[lesson]))


OUTCOME = """sent => staticServer(JSON.parse(document.getElementById("lessons").textContent))
  .check(sent)"""


async def take(page, lesson) -> None:
    """Go through a lesson by "Show me"; the page judges each prediction as the server does."""
    await page.click(f"[aria-label$='{lesson.title}']")
    for k, stop in enumerate(lesson.stops):
        await page.wait_for_selector(f".learn-panel h2:has-text('{stop.title}')")
        assert not {stop.at.tab, stop.ask and stop.ask.then.tab} & {*SERVED}
        needs = stop.text.endswith(NEEDS)
        assert await page.locator(f".learn-words >> text={NEEDS}").count() == needs
        for prediction in predictions(stop):
            sent = {"lesson": lesson.name, "stop": k, "prediction": prediction}
            assert await page.evaluate(OUTCOME, sent) == check_prediction(stop, prediction), sent
        if stop.ask:
            await page.click("text=Show me")
            await page.wait_for_selector(
                f".learn-status >> text={check_prediction(stop, '')['explanation']}"
            )
        place = stop.ask.then if stop.ask else stop.at
        if place.page == "watch":
            await page.wait_for_selector(".learn-highlight")
            assert not await page.is_visible("#exhibit")
        else:
            exhibit = build_exhibit(stop, answered=True)
            name, value = exhibit["rows"][-1]
            await page.wait_for_selector(f"#exhibit .room-rows dt >> text={name}")
            assert str(value) in await page.inner_text("#exhibit")
            assert not await page.is_visible(".qp")
        await page.click(".learn-next")
    await page.click(".learn-foot >> text=Close")


def predictions(stop) -> list[str]:
    """Return answers to a stop's question: each choice, or numbers about as far off as may be."""
    if stop.ask is None:
        return []
    if stop.ask.kind == "choice":
        return ["", *stop.ask.options]
    number = value_of(stop.ask.fact, stop.ask.then)
    near = 100 * number if isinstance(number, Share) else number
    within = stop.ask.within
    return ["", *(f"{near + off}" for off in (0, 0.99 * within, -1.01 * within - 1e-6))]


async def test_a_page_that_cannot_draw_is_refused_in_a_sentence():
    text = (ROOT / "assets/runs/cheerful.jsonl").read_text(encoding="utf-8")
    with pytest.raises(InvalidSetting, match="a browser has the embedded models only"):
        page(text, live=True)
    with pytest.raises(InvalidSetting, match="embedded models only"):
        page_parts({"header": text.split("\n")[0], "run": "", "live": True})


async def test_a_page_that_only_plays_may_start_no_worker():
    text = (ROOT / "assets/runs/watch.jsonl").read_text(encoding="utf-8")
    assert "worker-src" not in page(text).split("<title>")[0]
    assert len(page(text)) < 340_000


async def test_a_browser_says_why_and_which_seed():
    assert BrowserReply.read('{"why": "", "seed": 3}') == BrowserReply("", 3)
    assert BrowserReply.read('{"why": ""}') == BrowserReply("", None)
