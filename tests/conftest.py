"""What browser tests share: one server and one browser a session, a fresh visitor a test.

Browser tests are async and run in the session's event loop (Playwright's synchronous interface
would leave a loop running that other async tests stumble over):

    pytestmark = pytest.mark.asyncio(loop_scope="session")
    async def test_something(visit, toy_app): page = await visit(toy_app)
"""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from typing import Any

import forks
import pytest
import pytest_asyncio
from browser import PATIENCE, chromium, hear, lead_to_watch, require_browser, serve, standalone
from hypothesis import settings

from components.gradio_patches import without_stub_files
from qalign_study.serve.log import LimitedLog, limit_log

Visit = Callable[..., Awaitable[Any]]

settings.register_profile("tests", deadline=None)  # none has the clock for itself
settings.load_profile("tests")

KEPT = "qalign-lessons"
SEEN = f"""try {{ localStorage.setItem('{KEPT}', '{{"seen":true,"lessons":{{}}}}') }} catch {{}}"""
"""Before its scripts: a page of a visitor who need not be shown the first pass."""
FIRST = f"""try {{
  if (!sessionStorage.begun) localStorage.removeItem('{KEPT}');
  sessionStorage.begun = true;
}} catch {{}}"""
"""Before its scripts: a page of somebody who was never here; after a reload they were."""

SECONDS = {
    "lab_page": 89, "watch": 72, "learn_page": 72, "page_mistakes": 54, "room_page": 47,
    "player": 44, "readme": 36, "axe": 33, "queue": 33, "own_moves": 31, "contract": 31,
    "compare_page": 30, "presenter": 30, "server_folders": 29, "here": 28, "app": 28,
    "gallery": 27, "served": 24, "homework": 23, "report": 23, "export": 23, "notebook": 23,
    "architecture": 22, "inventory": 21, "demo": 20, "door": 20, "inside": 20, "serve": 19,
    "exhibit": 18, "linked_settings": 18, "save": 18, "controls": 17, "log": 15, "recorded": 15,
    "moves": 14, "answers": 14, "reward": 13, "int8": 13, "subsets": 12, "one_hash": 12,
    "hub": 12, "sharper": 11, "gpu": 11, "bad_input": 11, "firefox": 11, "bench_moves": 10,
    "engine": 10, "results_page": 10, "glossary": 10, "lab": 10, "chain": 8, "registry": 7,
    "rules": 7, "doors": 7, "commands": 7, "reading": 6, "folder": 6, "upgrades": 5,
    "new_setting": 1,
}  # fmt: skip
"""Seconds of the longest files, and of those that their marks misjudge."""

FIRST_OF_ALL = (
    ("transformers.generation.utils", "app"),
    ("pandas", "scipy.stats", "sympy", "sklearn.linear_model", "rouge_score.rouge_scorer", "app"),
    ("app",),
    ("playwright.async_api", "openai", "plotly.graph_objects", "app"),
)
"""What each of four processes imports first: in a fresh environment that compiles it."""


def name_of(item: pytest.Item) -> str:
    return item.path.stem.removeprefix("test_")


def pytest_configure(config: pytest.Config) -> None:
    """Have each library compiled by one process: in one order all would compile each at once."""
    gc.disable()  # what is imported stays
    os.environ.pop("GRADIO_SERVER_PORT", None)  # apps of tests choose their own
    if hasattr(config, "workerinput"):
        number = int(config.workerinput["workerid"].removeprefix("gw"))
        for name in FIRST_OF_ALL[number % len(FIRST_OF_ALL)]:
            import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Have Gradio, which a file may import before the app does, write no stub files."""
    with without_stub_files():
        return (yield)


def pytest_collection_finish() -> None:
    """Collect no garbage among what is imported and collected: it takes 7 % of the processor."""
    gc.freeze()
    forks.listen()  # before there are threads
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cost: Counter[str] = Counter()
    for item in items:
        if "chromium_there" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        # seconds of processor, roughly
        cost[name_of(item)] += 1.5 if item.get_closest_marker("browser") else 0.02
    order = {**cost, **SECONDS}
    # the longest files first, so that the processes end together; each file in its own order
    items.sort(key=lambda item: (-order[name_of(item)], item.path))


@pytest.fixture(scope="session", autouse=True)
def certificates_once() -> Iterator[None]:
    """Have httpx read the certificates once: each of its clients does, in 23 ms of processor.

    Tests make some thousand requests, each with a client of its own, and none is encrypted.
    """
    from httpx import create_ssl_context

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", cache(create_ssl_context))
        yield


@pytest.fixture(scope="session")
def chromium_there() -> None:
    """What every test asks for, itself or by `browser` or `visit`, that starts a Chromium."""
    require_browser()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium_there: None) -> AsyncIterator[Any]:
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def visitors(browser: Any) -> AsyncIterator[Any]:
    """What all pages are opened in, so that Gradio's scripts are fetched and compiled once."""
    context = browser.contexts[0]
    yield context
    # visitors who share it are strangers as long as the app keeps nothing in a browser but `KEPT`
    state = await context.storage_state()
    assert state["cookies"] == []
    assert {e["name"] for origin in state["origins"] for e in origin["localStorage"]} <= {KEPT}


@asynccontextmanager
async def visiting(visitors: Any) -> AsyncIterator[Visit]:
    """What `visit` and `stay` are; all pages that are opened meanwhile are closed at the end."""
    before, errors = set(visitors.pages), []

    async def open_page(
        address: str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        moving: bool = False,
        first: bool = False,
        ready: str = ".qp",
    ) -> Any:
        page = await visitors.new_page()
        await page.add_init_script(FIRST if first else SEEN)
        await page.set_viewport_size({"width": width, "height": height})
        await page.emulate_media(
            color_scheme="dark" if dark else "light",
            reduced_motion="no-preference" if moving else "reduce",
        )
        page.set_default_timeout(PATIENCE)
        page.hosts = set()
        hear(page, errors)
        page.on("request", lambda request: page.hosts.add(request.url.split("/")[2:3][0]))
        if address.startswith("<"):
            await page.set_content(address)
        else:
            await page.goto(address)
        await page.wait_for_selector(ready, state="attached")  # its page may not be the open one
        return page

    yield open_page
    seen = list(errors)  # closing a page breaks its requests off
    # those too that the test opened beside it: each holds two of the six connections that all pages
    # of one browser may have to the app
    for page in set(visitors.pages) - before:
        await page.close()
    assert seen == []


SAYS = """[...document.querySelectorAll(".q-status, .qp-note, [role=alert], .toast-body")]
  .map((part) => `${part.className}: ${part.innerText}`)"""
"""The lines of a page that say what it does."""


@pytest_asyncio.fixture(loop_scope="session")
async def visit(request: pytest.FixtureRequest, visitors: Any) -> AsyncIterator[Visit]:
    """Open a page as a new visitor: `await visit(address, width=360, dark=True, moving=True)`.

    The visitor asks for no motion, which takes no processor's time while a test waits, unless the
    test is about what is `moving`, and has seen the first pass, unless it is their `first` visit;
    what that keeps is there for pages that the test opens in `page.context`. A page is open once
    it has what is `ready`, by default the player.
    An address that begins with "<" is the page itself. `page.errors` collects what the page's
    scripts throw and the errors on its console, `page.hosts` the hosts that it asked. No page may
    end with an error. What the pages of a test that fails say is printed.
    """
    failed, others = request.session.testsfailed, set(visitors.pages)
    async with visiting(visitors) as open_page:
        yield open_page
        if request.session.testsfailed > failed:
            for page in set(visitors.pages) - others:
                print(page.url, *await page.evaluate(SAYS), sep="\n  ")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stay(visitors: Any) -> AsyncIterator[Visit]:
    """As `visit`, for a page that the tests of a file share.

    A fixture of theirs, as `revisit`, empties `page.errors` before each test and finds it empty
    behind it.
    """
    async with visiting(visitors) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def kept_pages() -> dict[tuple[str, int, int], Any]:
    """The pages of `revisit`, by address and size."""
    return {}


@pytest_asyncio.fixture(loop_scope="session")
async def revisit(
    request: pytest.FixtureRequest, stay: Visit, kept_pages: dict[tuple[str, int, int], Any]
) -> AsyncIterator[Visit]:
    """As `visit`, for a page that an earlier test of the file opened, and left in some state.

    Each test leads it to where it begins. After a test that failed, the next one has another page.
    """

    async def open_page(address: str, *, width: int = 1280, height: int = 900) -> Any:
        page = kept_pages.get((address, width, height))
        if page and page.failed < request.session.testsfailed:
            await page.close()
        if not page or page.is_closed():
            page = await stay(address, width=width, height=height)
            kept_pages[address, width, height] = page
            page.failed = request.session.testsfailed
        page.errors.clear()  # those of a test that failed
        await page.set_viewport_size({"width": width, "height": height})
        return page

    yield open_page
    assert [page.errors for page in kept_pages.values() if page.errors] == []


OPEN = """(text) => {
  api.open(text, "Recorded run");
  api.openTab("");
  api.setBurnIn(0);
  scrollTo(0, 0);
  return new Promise((drawn) => requestAnimationFrame(drawn));
}"""
"""Open a trace and wait for the frame that draws it; until then the page shows the one before."""


@pytest_asyncio.fixture(loop_scope="session")
async def opened(revisit: Visit) -> Visit:
    """A trace in a player alone, which stands still: `page = await opened(trace, width=390)`."""

    async def open_trace(trace: str, **size: int) -> Any:
        page = await revisit(standalone(None, options="autoplay: false"), **size)
        await page.evaluate(OPEN, trace)
        return page

    return open_trace


@pytest_asyncio.fixture(loop_scope="session")
async def watch(revisit: Visit, toy_app: str) -> Any:
    """Watch of the whole app, loaded once a file, as a visitor finds it."""
    page = await revisit(toy_app)
    await lead_to_watch(page)
    return page


@pytest.fixture(scope="session")
def toy_app() -> Iterator[str]:
    """The whole app with toy models (they load at once and draw real chains)."""
    from toys import ToyLM, toy_reward

    import app
    from components.session.runs import Runs
    from qalign_core.run import Limits

    runs = Runs(Limits(runs=4), load=lambda lm, rm, sampling: (ToyLM(delay=0.04), toy_reward(rm)))
    with serve(app.build_app(runs), **app.launch_options(runs)) as address:
        yield address


@pytest.fixture
def limited(capfd: Any, monkeypatch: Any) -> Iterator[Callable[[], str]]:
    """A fresh log of a server, and a function that returns what the process wrote since then."""
    monkeypatch.setattr("qalign_study.serve.log.INTERVAL", 3600.0)  # a busy machine takes its time
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    root.handlers = [each for each in before if not isinstance(each, LimitedLog)]
    limit_log()
    yield lambda: "".join(capfd.readouterr())
    root.handlers = before
    logging.captureWarnings(False)
