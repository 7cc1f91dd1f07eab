"""A room in a real browser: an instructor at a projector's size, two members on phones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from browser import PATIENCE, find_violations, hear
from test_exhibit import RICHEST
from toys import ANSWER, PROMPT

from components.learn.exhibit import build_exhibit
from components.room import streams
from components.room.limits import Bucket
from qalign_study.lessons.files import load_lessons
from qalign_study.lessons.messages import check_prediction, fill_facts

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.browser]

LESSON = load_lessons()["one-step"]
SURE = "[window.sure, window.asked] = [true, []]; window.confirm = (s) => asked.push(s) && sure"
"""Before its scripts: what would ask the instructor is noted, and answered at once."""
NO_WORKER = "; delete window.Worker"
"""Then the server's toys draw."""
HOSTILE = "<img src=x onerror=alert(1)>${7*7}"


@dataclass
class Class:
    """An open room: its link, the instructor's page, two phones, and what went wrong on any."""

    link: str
    lead: Any
    phones: list[Any]
    errors: list[str]


async def opened(
    browser: Any, errors: list[str], address: str, script: str = "", **options: Any
) -> Any:
    """A page of somebody who shares nothing with anybody; `script` runs before its own."""
    context = await browser.new_context(reduced_motion="reduce", **options)
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    await page.add_init_script(SURE + script)
    hear(page, errors)
    await page.goto(address)
    return page


@pytest.fixture(scope="module", autouse=True)
def frequent_polls() -> Iterator[None]:
    """Have streams look for news every 50 ms; at the usual 250 ms most presses are waited for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "LOOK", 0.05)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def room(browser: Any, toy_app: str) -> AsyncIterator[Class]:
    """A room with a lesson that was opened by hand, and two phones in it."""
    errors: list[str] = []
    size = {"width": 1280, "height": 720}
    lead = await opened(browser, errors, f"{toy_app}room", viewport=size)
    await lead.select_option("#room-lesson", LESSON.name)
    options = await lead.locator("#room-problems option").all_inner_texts()
    assert all(len(text) > 60 for text in options if text.endswith("…"))
    await lead.select_option("#room-problems", "-1")
    await lead.fill("#room-prompt", f"{PROMPT} {HOSTILE}")
    await lead.fill("#room-answer", ANSWER)
    were = await lead.evaluate("history.length")
    await lead.click("text=Open the room")
    await lead.dblclick("text=Use it anyway")  # a nervous instructor opens one room
    await lead.wait_for_selector(".room-qr")
    assert await lead.evaluate("history.length") == were + 1
    phone = {"width": 390, "height": 844}
    phones = [
        await opened(
            browser,
            errors,
            lead.url,
            NO_WORKER,
            viewport=phone,
            is_mobile=True,
            color_scheme=scheme,
        )
        for scheme in ("light", "dark")
    ]
    for k, page in enumerate(phones):
        await text_is(page, "h1", f"You are number {k + 1}")
    yield Class(lead.url, lead, phones, errors)
    for page in (lead, *phones):
        await page.context.close()


async def text_is(page: Any, selector: str, text: str) -> None:
    await page.wait_for_function(
        "([s, t]) => document.querySelector(s)?.innerText === t", arg=[selector, text]
    )


async def scene(room: Class, name: str) -> None:
    await room.lead.click(f"nav >> text={name}")
    await room.lead.wait_for_selector(f"[aria-current]:has-text('{name}')")


async def test_who_has_the_link_or_types_the_code_is_in_with_no_account_and_no_name(room, browser):
    await room.lead.wait_for_selector(".room-join >> text=2 places taken of 1000")
    code = await room.lead.inner_text(".room-join .room-code")
    page = await opened(browser, room.errors, room.link.split("#")[0])
    await page.fill("#room-code", code.lower())
    await page.keyboard.press("Enter")
    await text_is(page, "h1", "You are number 3")
    await room.lead.wait_for_selector("text=3 of 3 here")
    await page.context.close()
    await room.lead.wait_for_selector("text=2 of 3 here")


async def test_a_code_that_is_none_gets_a_sentence(room, browser):
    errors: list[str] = []
    page = await opened(browser, errors, f"{room.link.split('#')[0]}#ABCDEFGH")
    await page.wait_for_selector("text=There is no room with this code")
    assert len(errors) == 1  # the browser's own line about a status of 404
    await page.fill("#room-code", "bcde fghj")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/room#BCDEFGHJ")
    await page.context.close()


async def test_predictions_arrive_as_a_histogram_and_the_answers_are_opened(room):
    lead, (one, two) = room.lead, room.phones
    stop = LESSON.stops[0]
    await text_is(one, ".room-stop h2", stop.title)
    await lead.keyboard.press("2")
    await one.focus("#learn-number")  # by the keyboard alone
    await one.keyboard.type("90")
    await one.keyboard.press("Enter")
    await lead.wait_for_selector("text=1 of 2 have answered")
    await two.fill("#learn-number", "2.2")
    await two.click("text=Send")
    await lead.wait_for_selector("text=2 of 2 have answered")
    await lead.wait_for_selector(".room-predictions .room-tick:text-is('100%')")
    assert await lead.locator(".room-predictions .room-column").count() == 2
    assert await find_violations(lead) == []
    for page in (one, two):
        await page.wait_for_selector("text=You can change it until the answers are shown")
        assert await find_violations(page) == []
    await lead.keyboard.press("a")
    value = check_prediction(stop, "")["value"]
    await lead.wait_for_selector(f".room-goal-name:text-is('{value}')")
    assert await lead.locator(".room-goal-name ~ .room-count").count() == 2  # over the line
    right = sum(check_prediction(stop, each)["right"] for each in ("90", "2.2"))
    await lead.wait_for_selector(f".room-count:text-is('{right} of 2 right')")
    for page, answer in ((one, "90"), (two, "2.2")):
        await page.wait_for_selector(".room-status[data-right]:not([data-right=''])")
        assert (
            await page.inner_text(".room-status") == check_prediction(stop, answer)["explanation"]
        )
        assert await page.is_disabled("#learn-number")


async def test_everybody_is_taken_to_a_stop(room):
    lead, phones = room.lead, room.phones
    await lead.keyboard.press("PageDown")  # a clicker's button: the answers are open
    stop = LESSON.stops[1]
    for page in phones:
        await text_is(page, ".room-stop h2", stop.title)
        assert await page.inner_text(".room-stop > p:nth-of-type(2)") == fill_facts(
            stop.text, stop.at, stop.at
        )
    await phones[0].click("text=The old text")
    await phones[0].click("text=Send")
    await lead.wait_for_selector(".room-bars dd:has-text('1')")
    assert await find_violations(lead) == []
    await lead.keyboard.press("?")
    listed = await lead.inner_text("dialog.room-keys[open]")
    assert all(key in listed for key in ("Page ↓", "Page ↑", "Space", "next stop", "The class"))
    assert await find_violations(lead) == []
    await lead.click("dialog.room-keys >> text=previous stop")
    assert not await lead.is_visible("dialog.room-keys")
    await text_is(phones[0], ".room-stop h2", LESSON.stops[0].title)
    await text_is(lead, ".room-stops", f"stop 1 of {len(LESSON.stops)}")
    await lead.keyboard.press("ArrowRight")
    await text_is(phones[0], ".room-stop h2", stop.title)
    await text_is(lead, ".room-stops", f"stop 2 of {len(LESSON.stops)}")
    await lead.keyboard.press("3")
    await lead.keyboard.press("PageDown")  # back from the chains to the question
    await text_is(lead, ".room-tab[aria-current]", "Question")
    await lead.keyboard.press("PageUp")
    await text_is(phones[0], ".room-stop h2", LESSON.stops[0].title)


async def test_one_step_then_all_chains_run_on_one_trace_until_they_are_paused(room):
    lead, phones = room.lead, room.phones
    await lead.keyboard.press("n")
    for page in phones:
        await page.wait_for_selector("text=Your first draft: reward")
        assert await page.locator(".room-away:visible").count() == 0
    await lead.keyboard.press("n")
    for page in phones:
        await page.wait_for_selector("text=step 1 of 60 · the class is paused")
        await page.wait_for_selector(".room-verdict:text-matches('^(Accepted|Rejected): ')")
        assert await find_violations(page) == []
    await lead.keyboard.press("Space")
    path = "document.querySelector('.room-chains')?.getAttribute('d').split('L').length"
    await lead.wait_for_function(f"() => {path} > 4")
    assert await lead.locator(".room-single").count() == 1
    await lead.wait_for_selector(".room-votes .room-bar")
    await lead.wait_for_selector(".room-side.room-alone")
    for name in ("mean reward: model alone", "class, later half", "target", "R-hat"):
        assert await lead.locator(f".room-numbers dt:text-is('{name}')").count() == 1
    await lead.keyboard.press("Space")
    await lead.wait_for_selector(".room-controls >> text=Run")
    for page in phones:
        await page.wait_for_selector("text=the class is paused")
    await lead.click("[aria-label='Next chain']")
    await text_is(lead, ".room-votes .room-row h3", "Chain 2 alone")
    assert await find_violations(lead) == []
    await lead.keyboard.press("a")
    await lead.wait_for_selector(f"text=The right answer is {ANSWER}")


async def test_each_line_has_its_number_and_a_press_on_it_shows_its_text(room):
    lead, phones = room.lead, room.phones
    names = await lead.locator("svg.room-class .room-name").all_text_contents()
    assert sorted(names) == ["1", "2"]
    for number, phone in enumerate(phones, start=1):
        name = lead.locator(f"svg.room-class .room-name:text-is('{number}')")
        await name.click()
        await lead.wait_for_selector(f".room-name.room-is:text-is('{number}')")
        text = await phone.inner_text(".room-chain .room-text")
        await lead.wait_for_function(
            "(text) => document.querySelector('.room-class .room-text').textContent.includes(text)",
            arg=text,
        )
    assert await find_violations(lead) == []


BLOCKED = """; window.Worker = class {
  postMessage() { setTimeout(() => this.onerror({ preventDefault() {}, message: '' })); }
  terminate() {}
}"""


@pytest.mark.parametrize(
    ("script", "where"),
    [
        pytest.param("", "Drawn in your browser.", id="draws"),
        pytest.param(  # for the phones above, which have no workers, the server draws too
            BLOCKED,
            "Drawn on the server: the worker did not start.",
            id="blocked",
            marks=pytest.mark.more,
        ),
    ],
)
async def test_a_members_browser_draws_its_chain_and_the_server_where_it_cannot(
    browser, toy_app, script, where
):
    errors: list[str] = []
    lead = await opened(browser, errors, f"{toy_app}room", viewport={"width": 1280, "height": 720})
    await lead.click("text=Open the room")
    await lead.wait_for_selector(".room-qr")
    phone = await opened(browser, errors, lead.url, script, viewport={"width": 390, "height": 844})
    sent: list[str] = []
    phone.on("request", lambda request: sent.append(request.url))
    await phone.wait_for_selector(f".room-where:text-is('{where}')")
    for t in (0, 1, 2):
        await lead.keyboard.press("n")
        await phone.wait_for_selector(f"text=step {t} of 60 · the class is paused")
        await lead.wait_for_selector(f".room-numbers dt:text-is('states') + dd:text-is('{t + 1}')")
    assert any(url.endswith("/room/states") for url in sent) == (not script)
    text = await phone.inner_text(".room-chain .room-text")
    await phone.reload()  # it draws the same chain again, and sends no state twice
    await text_is(phone, ".room-chain .room-text", text)
    await lead.keyboard.press("n")
    await phone.wait_for_selector("text=step 3 of 60 · the class is paused")
    await lead.wait_for_selector(".room-numbers dt:text-is('states') + dd:text-is('4')")
    assert await find_violations(phone) == []
    assert errors == []
    await lead.keyboard.press("5")
    await lead.click("text=Close this room for good")
    for page in (lead, phone):
        await page.context.close()


@pytest.mark.more
async def test_a_class_with_another_model_is_drawn_on_the_server_at_a_pace_that_is_stated_before(
    browser, toy_app
):
    errors: list[str] = []
    lead = await opened(browser, errors, f"{toy_app}room", viewport={"width": 1280, "height": 720})
    assert await lead.is_visible("text=Each phone draws its own chain, about two steps per second.")
    await lead.fill("#room-prompt", "Discuss Wittgenstein's Tractatus; be epigrammatic.")
    await lead.click("text=Open the room")
    await lead.wait_for_selector("text=was not made for a text like this")
    assert await find_violations(lead) == []
    await lead.click("text=/^Use SmolLM2 135M Instruct, with the reward “Mood/")
    assert await lead.input_value("#room-lm") == "smollm2-135m"
    assert await lead.input_value("#room-rm") == "mood"
    assert await lead.input_value("#room-beta") == "0.3"
    await lead.select_option("#room-lm", "embedded")
    await lead.select_option("#room-rm", "plain")
    await lead.fill("#room-beta", "0.4")
    await lead.click("text=Open the room")
    await lead.click("text=/^Use SmolLM2 135M Instruct$/")  # the reward that was chosen stays
    assert await lead.input_value("#room-rm") == "plain"
    assert await lead.input_value("#room-beta") == "0.4"
    await lead.wait_for_selector("text=/With 30 members, a step of the class takes up to \\d+ s/")
    await lead.check("#room-named")
    await lead.click("text=Open the room")
    await lead.wait_for_selector(".room-qr")
    phone = await opened(browser, errors, lead.url, viewport={"width": 390, "height": 844})
    where = "Drawn on the server: a browser has the embedded models only."
    await phone.wait_for_selector(f".room-where:text-is('{where}')")
    for name in ("Wolfeschlegelstein" * 3, "Ada Lovelace"):  # the second corrects the first
        await phone.fill("#room-name", name)
        await phone.click("text=Save")
        await phone.wait_for_selector(f"text=Your name: {name}")
        await phone.wait_for_selector("#room-name", state="hidden")
        assert await phone.evaluate("document.documentElement.scrollWidth <= 390")
        await phone.click("text=Change it")
        assert await phone.input_value("#room-name") == name
    assert await find_violations(phone) == []
    await lead.keyboard.press("n")
    await phone.wait_for_selector("text=step 0 of 60 · the class is paused")
    await lead.keyboard.press("5")
    await lead.wait_for_selector("#room-lm:visible")
    assert await lead.input_value("#room-lm") == "smollm2-135m"
    await lead.fill("#room-beta", "0.7")
    await lead.click("text=Start again with these")  # no second warning
    await lead.wait_for_selector(".room-numbers dd:text-is('0.7')")
    await lead.keyboard.press("5")
    await lead.click("text=Close this room for good")
    await phone.wait_for_selector("text=has closed this room")
    assert errors == []
    for page in (lead, phone):
        await page.context.close()


async def test_a_text_is_a_text_on_every_screen(room):
    assert HOSTILE in await room.phones[0].inner_text(".room-problem")
    assert await room.phones[0].locator("img").count() == 0


async def test_who_reloads_has_the_same_place_and_chain(room):
    page = room.phones[0]
    before = await page.inner_text(".room-chain .room-text")
    await page.reload()
    await text_is(page, "h1", "You are number 1")
    await text_is(page, ".room-chain .room-text", before)
    await room.lead.reload()
    await room.lead.wait_for_selector("text=2 of 3 here")
    await scene(room, "Question")
    await room.lead.reload()
    await room.lead.wait_for_selector(f".room-question h2:text-is('{LESSON.stops[0].title}')")


@pytest.mark.more
async def test_a_second_tab_takes_over_and_gives_back_when_it_closes(room, browser):
    page = room.phones[0]
    tab = await page.context.new_page()
    tab.set_default_timeout(PATIENCE)
    hear(tab, room.errors)
    await tab.goto(room.link)
    await text_is(tab, "h1", "You are number 1")
    await page.wait_for_selector("text=This tab continues when that one closes")
    assert await find_violations(page) == []
    assert not await page.is_visible(".room-stop")
    await tab.close()
    await page.wait_for_selector(".room-stop h2")
    assert not await page.is_visible("text=Your place is open in another tab")


async def test_an_answer_given_without_a_connection_is_kept_and_sent_when_it_is_back(room):
    lead, (page, silent) = room.lead, room.phones
    await scene(room, "Question")
    await lead.keyboard.press("ArrowRight")
    for phone in room.phones:
        await text_is(phone, ".room-stop h2", LESSON.stops[1].title)
        await phone.context.set_offline(True)
        await phone.wait_for_selector(".room-line >> text=The connection is down")
        assert await find_violations(phone) == []
    await page.click("text=The new text")
    await page.click(".room-stop .room-send")
    await page.wait_for_selector(".room-status >> text=Waiting to be sent")
    counts = await lead.locator(".room-question .room-bars dd").all_inner_texts()
    assert counts == ["1", "0"]  # the old answer, until the new one can be sent
    for phone in room.phones:
        await phone.context.set_offline(False)
        await phone.wait_for_selector(".room-line", state="hidden")
    await page.wait_for_selector(".room-status >> text=You said: The new text")
    await lead.wait_for_selector(".room-question .room-bars dd:nth-of-type(2):has-text('1')")
    assert await silent.inner_text(".room-status") == ""
    room.errors[:] = [error for error in room.errors if "ERR_INTERNET_DISCONNECTED" not in error]
    await lead.keyboard.press("ArrowLeft")
    await text_is(page, ".room-stop h2", LESSON.stops[0].title)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_axe_finds_nothing_in_any_scene(room, dark):
    await room.lead.emulate_media(color_scheme="dark" if dark else "light")
    for name in ("Join", "Question", "The class", "Settings"):
        await scene(room, name)
        assert await find_violations(room.lead) == []


@pytest.mark.more
async def test_nothing_is_wider_than_its_screen(room):
    for name in ("Join", "Question", "The class", "Settings"):
        await scene(room, name)
        for page in (room.lead, *room.phones):
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{name}: {wide} px too wide"


async def test_a_class_is_saved_as_a_table_and_as_a_page_and_opened_again(room, browser, tmp_path):
    lead = room.lead
    await scene(room, "Settings")
    saved = {}
    for kind, text in (("csv", "Save as a table"), ("html", "Save as a page")):
        async with lead.expect_download() as download:
            await lead.click(f"text={text}")
        saved[kind] = tmp_path / (await download.value).suggested_filename
        await (await download.value).save_as(saved[kind])
        assert saved[kind].suffix == f".{kind}"
    assert saved["csv"].read_text(encoding="utf-8").startswith("kind,who,name,lesson,at,question,")
    errors: list[str] = []
    page = await opened(browser, errors, saved["html"].as_uri())
    assert await page.locator("svg.room-class .room-chains").count() == 1
    assert await page.locator("svg.room-predictions .room-column").count() == 2
    assert HOSTILE in await page.inner_text(".room-page")
    assert await page.is_visible("h2:text-matches('^The model alone, [0-9]+ samples$')")
    assert "target" in await page.inner_text(".room-key")
    assert await page.locator("img").count() == 0
    assert await find_violations(page) == []
    await page.goto(room.link.split("#")[0])
    for file, code in ((saved["csv"], ""), (saved["html"], "room")):
        async with page.expect_file_chooser() as chooser:
            await page.click("text=Open a class that was saved")
        await (await chooser.value).set_files(file)
        await page.wait_for_selector(".room-qr" if code else "text=This is not a saved class")
    assert page.url != room.link  # that one is still open
    await page.wait_for_selector(".room-join >> text=3 places taken of 1000")
    await page.keyboard.press("3")
    # a line of equal rewards has no height, and is called hidden
    await page.wait_for_selector(".room-chains", state="attached")
    assert [error for error in errors if "422" not in error] == []
    await page.keyboard.press("5")
    await page.click("text=Close this room for good")
    await page.context.close()


async def test_start_again_and_close_are_said_to_everybody(room):
    lead, phones = room.lead, room.phones
    await scene(room, "Settings")
    await lead.fill("#room-beta", "0.5")
    await lead.click("text=Start again with these")
    await lead.wait_for_selector(".room-numbers dd:text-is('0.5')")
    await phones[0].wait_for_selector("text=Your chain begins when the instructor")
    await scene(room, "Settings")
    await lead.evaluate("window.sure = false")
    await lead.click("text=Close this room for good")
    assert "Close this room for everybody?" in await lead.evaluate("window.asked.at(-1)")
    assert await lead.locator("nav").is_visible()  # asked, and refused
    await lead.evaluate("[window.sure, window.asked] = [true, []]")
    await lead.click("text=Close this room for good")
    for page in (lead, *phones):
        await page.wait_for_selector("text=The instructor has closed this room")
        assert len(await page.evaluate("window.asked")) == (page is lead)
        assert await find_violations(page) == []
    assert room.errors == []


PRINTED_OVER = """() => {
  const scene = [...document.querySelectorAll('.room-scene')].find((each) => each.clientHeight);
  const chart = scene.querySelector('svg.room-class').getBoundingClientRect();
  const over = [...scene.querySelectorAll('p, dl, h2, h3')].filter((node) => {
    const box = node.getBoundingClientRect();
    return box.height && box.left < chart.right - 1 && box.right > chart.left + 1
      && box.top < chart.bottom - 1 && box.bottom > chart.top + 1;
  }).map((node) => node.textContent);
  return { over, scrolls: scene.scrollHeight - scene.clientHeight, high: chart.height >= 190,
    wide: document.documentElement.scrollWidth - innerWidth };
}"""
HIDDEN = """() => {
  const controls = document.querySelector('.room-controls');
  const bar = controls.getBoundingClientRect();
  const box = (node) => node.getBoundingClientRect();
  const ticks = [...document.querySelectorAll('.room-class .room-tick')].map(box);
  const foot = ticks.filter(({ bottom }) => bottom > Math.max(...ticks.map((t) => t.top)));
  return ['.room-numbers', '.room-verdict']
    .filter((one) => box(document.querySelector(one)).bottom > bar.top)
    .concat(foot.filter(({ right }, k) => k + 1 < foot.length && right + 4 > foot[k + 1].left))
    .concat(document.documentElement.scrollWidth > innerWidth ? 'too wide' : [])
    .concat([...controls.querySelectorAll('button')]
      .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent));
}"""
"""What a phone does not show: under the bar, run together at the foot, outside, or cut."""
BEYOND = """() => {
  const scene = [...document.querySelectorAll('.room-scene')].find((each) => each.clientHeight);
  return [scene.scrollHeight - scene.clientHeight,
    document.documentElement.scrollWidth - innerWidth];
}"""
SMALL = """(least) => [...document.querySelectorAll('.room-lead *')].flatMap((node) => {
  const own = [...node.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
  if (!own.length || !node.checkVisibility()) return [];
  const svg = node.ownerSVGElement;
  const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width
    : node.currentCSSZoom;
  const size = parseFloat(getComputedStyle(node).fontSize) * scale;
  return size < least - .2 ? [`${size.toFixed(1)} px: ${node.textContent.slice(0, 40)}`] : [];
})"""
"""The texts of the projector, axes and labels included, that are too small for the last row."""


def least_of(page: Any) -> float:
    """The height of the smallest text, in pixels: 26 in a window of 1280 by 720."""
    size = page.viewport_size
    return 26 * min(size["width"] / 1280, size["height"] / 720)


SCENES = {
    "1": ".room-join >> text=places taken of 1000",
    "4": ".room-first >> text=Number 6: −15.50",
}
FINE = '{"over":[],"scrolls":0,"high":true,"wide":0}'
LONG = " ".join(f"Then neighbor {k} brings {k} cookies and takes {k + 1}." for k in range(13))
GAME = {"chains": -3.5, "passed": 1, "first": [[k, -9.5 - k, -4.0] for k in range(1, 7)]}
VOTES = [["123456", 0.4], ["62", 0.3], ["70", 0.2], ["18", 0.1]]
CLASS = {"members": 3, "here": 3, "most": 1000, "door": True, "predictions": [], "expected": 3,
         "minutes": 9, "drafts": 3, "done": 0, "single": 1, "pool": 200, "game": None,
         "right": None, "text": None}  # fmt: skip
FIGURES = {
    "base": [-3.0, -2.0, -1.0] * 9, "weights": [1 / 27] * 27, "worth": 20.0, "states": 183,
    "mean": {"base": -2.0, "target": -1.5, "class": -1.2}, "rhat": 1.528, "agreement": "1.528",
    "votes": dict.fromkeys(("base", "target", "class", "single"), VOTES),
    "leaders": [["123456", 2]], "trust": {"level": "no", "next": "", "sentence": (
        "No: the rewards of the chains differ (split R-hat 1.53, limit 1.01), even if their votes "
        "agree; do not trust the pooled vote yet.")},
}  # fmt: skip


# the smaller one has the least width and height for its texts
@pytest.mark.more
@pytest.mark.parametrize("size", [pytest.param((1280, 720), marks=pytest.mark.more), (1024, 768)])
async def test_nothing_prints_over_the_chart_in_any_state(browser, toy_app, size):
    stage = {"code": "ABCDEFGH", "prompt": PROMPT, "beta": 0.5, "steps": 60, "round": 0, "goal": -1,
             "opened": False, "trouble": "", "reference": None, "stop": None,
             "run": {"lm": "embedded", "rm": "embedded"}}  # fmt: skip
    walk = [(k, -2.0 + (k * t) % 3) for t in range(40) for k in (1, 2, 3)]
    states = {
        "empty": {"room": stage, "class": CLASS, "from": 0, "walk": []},
        "long and empty": {"room": stage | {"prompt": LONG}, "class": CLASS, "from": 0, "walk": []},
        "drawn": {"room": stage | {"goal": 60, "stop": {"k": 0, "of": 7}},  # the bar has most
                  "class": CLASS, "from": 0, "walk": walk, "figures": FIGURES},
        "long, with the game and a trouble": {
            "room": stage | {"prompt": LONG, "trouble": "The models are out today; wait a moment."},
            "class": CLASS | {"game": GAME}, "from": 0, "walk": walk, "figures": FIGURES},
    }  # fmt: skip
    assert len(LONG) > 600
    events: list[object] = []

    async def follow(route: Any) -> None:
        body = f"data: {json.dumps(events[-1])}\n\n"
        await route.fulfill(content_type="text/event-stream", body=body)

    async def seat(route: Any) -> None:
        await route.fulfill(json={"code": "ABCDEFGH", "token": "t", "lead": True, "rows": ["1"]})

    context = await browser.new_context(viewport=dict(zip(("width", "height"), size, strict=True)))
    page = await context.new_page()
    await page.route("**/room/follow?*", follow)
    await page.route("**/room/join", seat)
    await page.route("**/room/qr", seat)
    for name, state in states.items():
        events.append(state)
        await page.goto(f"{toy_app}room?{len(events)}#ABCDEFGH")
        await page.wait_for_selector(".room-join >> text=places taken of 1000")
        await page.keyboard.press("3")
        await page.wait_for_function(
            "(text) => document.querySelector('.room-class .room-problem')?.textContent === text",
            arg=state["room"]["prompt"],
        )
        n = len(state.get("figures", {"base": ()})["base"])  # not all samples are drawn
        assert await page.is_visible(f".room-votes h3:text-is('Model alone, {n} of 200')")
        await page.wait_for_selector(".room-class svg")
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            await page.wait_for_function(
                f"() => JSON.stringify(({PRINTED_OVER})()) === {json.dumps(FINE)}"
            )
        for scheme in ("dark", "light"):
            await page.emulate_media(color_scheme=scheme)
            await page.wait_for_function(  # a line above the scene leaves it less room
                "() => document.querySelector('.room-line').textContent.includes('is down')"
                f"  && JSON.stringify(({PRINTED_OVER})()) === {json.dumps(FINE)}"
            )
        if name == "drawn":
            await page.set_viewport_size({"width": 390, "height": 844})
            await page.wait_for_function(f"() => !({HIDDEN})().length")
            leading = ".room-votes > p >> text=Most states say 123456 in 2 of 3 chains"
            await page.wait_for_selector(leading)
            await page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
        for key in ("1", "3", "5", *"4" * (name == "long, with the game and a trouble")):
            await page.keyboard.press(key)
            assert await page.evaluate(SMALL, least_of(page)) == [], key
        await page.keyboard.press("3")
    await page.evaluate(
        "document.querySelector('.room-numbers').style.transform = 'translateY(-80px)'"
    )
    assert (await page.evaluate(PRINTED_OVER))["over"] != []  # or nothing would be tested
    for key, place in SCENES.items():
        await page.keyboard.press(key)
        await page.wait_for_selector(place)
        assert await page.evaluate(BEYOND) == [0, 0], place
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        assert await find_violations(page) == []
    await page.add_style_tag(content=".room-first { height: 200vh; }")
    assert await page.evaluate(BEYOND) != [0, 0]  # or nothing would be tested
    await context.close()


MISSING = """([selector, parts]) => {
  const text = document.querySelector(selector).textContent.replaceAll(/\\s+/g, ' ');
  return parts.filter((part) => !text.includes(part.replaceAll(/\\s+/g, ' ')));
}"""


async def seen_of(stop: Any, **how: Any) -> list[str]:
    """What is to be read of an exhibit."""
    exhibit = await asyncio.to_thread(build_exhibit, stop, **how)  # one asks the model
    texts = [part for name, *parts in exhibit["texts"] for part in (name, *parts)]
    texts += (exhibit["tokens"] or {"pieces": ()})["pieces"]
    rows = [str(part) for row in exhibit["rows"] for part in row]
    return [*texts, *rows, *(name for name, _ in exhibit["bars"])]


@pytest.mark.more
@pytest.mark.parametrize("name", RICHEST)
async def test_every_kind_of_stop_is_seen_and_answered_by_a_member(
    browser, toy_app, monkeypatch, name
):
    lesson = load_lessons()[name]
    errors: list[str] = []
    monkeypatch.setattr(Bucket, "take", lambda *_: None)  # one address opens a room per lesson
    # first, so that no wait in the page includes the seconds that results take to be summed up
    parts = [await seen_of(stop) for stop in lesson.stops]
    wide = {"width": 1280, "height": 720}
    lead = await opened(browser, errors, f"{toy_app}room", viewport=wide)
    await lead.select_option("#room-lesson", lesson.name)
    await lead.click("text=Open the room")
    await lead.wait_for_selector(".room-qr")
    phone = await opened(browser, errors, lead.url, viewport={"width": 390, "height": 844})
    await lead.keyboard.press("2")
    for k, stop in enumerate(lesson.stops, start=1):
        await text_is(lead, ".room-stops", f"stop {k} of {len(lesson.stops)}")
        await text_is(phone, ".room-stop h2", stop.title)
        await check_exhibit(lead, phone, parts[k - 1])
        if stop.at.tab == "tokens":
            await pressed_token(lead, phone)
        other = [*parts[k - 2], "nothing of this"]
        assert await phone.evaluate(MISSING, [".room-stop .room-exhibit", other]) != []
        if stop.ask:
            await answered(phone, stop.ask)
            await lead.wait_for_selector("text=1 of 1 have answered")
            await lead.keyboard.press("PageDown")
            await phone.wait_for_selector(".room-status[data-right]:not([data-right=''])")
            await lead.wait_for_selector("text=The answers are shown")
            await check_exhibit(lead, phone, await seen_of(stop, answered=True))
        await lead.keyboard.press("PageDown")
    await scene(Class(lead.url, lead, [phone], errors), "Settings")
    await lead.click("text=Close this room for good")
    await phone.wait_for_selector("text=has closed this room")
    assert errors == []
    for page in (lead, phone):
        await page.context.close()


async def pressed_token(lead: Any, phone: Any) -> None:
    """A token that is pressed says how likely it was, on the phone and on the projector."""
    for page in (lead, phone):
        shades = "[...document.querySelectorAll('.qp-shade')].map((t) => t.style.cssText)"
        assert len(set(await page.evaluate(shades))) > 5  # darker and lighter ones
        await page.locator(".qp-shade").nth(7).click()
        await page.wait_for_selector(".qp-opinion >> text=/token 8 of .* Likeliest here: “ more”/")
        assert await find_violations(page) == []


OVERLAPS = """[...document.querySelectorAll(".learn-line text")].some((text, k, all) => k &&
  text.getBoundingClientRect().left < all[0].getBoundingClientRect().right)"""
"""Whether the first label of a line lies under another one."""


async def answered(phone: Any, ask: Any) -> None:
    """Make the first prediction that there is, and send it."""
    if ask.kind == "choice":
        await phone.locator(".learn-option").first.click()
    elif ask.kind == "number":
        await phone.fill("#learn-number", "1")
    else:
        assert not await phone.evaluate(OVERLAPS)
        await phone.focus("#learn-spot")
        await phone.keyboard.press("ArrowRight")
        guess = await phone.get_attribute("#learn-spot", "aria-valuetext")
        caption = guess.replace("reward", "your guess:")
        assert await phone.text_content(".learn-line .learn-middle") == caption
        assert not await phone.evaluate(OVERLAPS)
    await phone.click(".room-stop .room-send")


PROJECTORS = [{"width": 1024, "height": 768}, {"width": 1280, "height": 720},
              {"width": 1920, "height": 1080}]  # fmt: skip


async def check_exhibit(lead: Any, phone: Any, parts: list[str]) -> None:
    """All of an exhibit is on the phone and on the projector, in the window at both sizes."""
    for page, selector in (
        (phone, ".room-stop .room-exhibit"),
        (lead, ".room-question .room-exhibit"),
    ):
        await page.wait_for_function(
            f"(given) => !({MISSING})(given).length", arg=[selector, parts]
        )
    assert await phone.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    # a look begins with the size that the one before it ended with
    for size in sorted(PROJECTORS, key=lambda size: size != lead.viewport_size):
        await lead.set_viewport_size(size)
        await lead.wait_for_function(
            "() => { const node = document.querySelector('.room-question');"
            " return node.scrollHeight <= node.clientHeight"
            " && node.scrollWidth <= node.clientWidth }"
        )
        small = f"(least) => !({SMALL})(least).length"  # once the page has taken the new size
        await lead.wait_for_function(small, arg=least_of(lead))
