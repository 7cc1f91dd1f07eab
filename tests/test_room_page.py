"""A room in a real browser: an instructor at a projector's size, two members on phones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
import pytest_asyncio
from browser import PATIENCE
from toys import ANSWER, PROMPT

from components.learn.lessons import lessons
from components.learn.page import filled, judged

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.browser]

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
LESSON = lessons()["one-step"]
SURE = "[window.sure, window.asked] = [true, []]; window.confirm = (s) => asked.push(s) && sure"
"""Before its scripts: what would ask the instructor is noted, and answered at once."""
HOSTILE = "<img src=x onerror=alert(1)>${7*7}"


@dataclass
class Class:
    """An open room: its link, the instructor's page, two phones, and what went wrong on any."""

    link: str
    lead: Any
    phones: list[Any]
    errors: list[str]


async def opened(browser: Any, errors: list[str], address: str, **options: Any) -> Any:
    """A page of somebody who shares nothing with anybody."""
    context = await browser.new_context(reduced_motion="reduce", **options)
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    await page.add_init_script(SURE)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    await page.goto(address)
    return page


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def room(browser: Any, toy_app: str) -> AsyncIterator[Class]:
    """A room with a lesson that was opened by hand, and two phones in it."""
    errors: list[str] = []
    size = {"width": 1280, "height": 720}
    lead = await opened(browser, errors, f"{toy_app}room", viewport=size)
    await lead.select_option("#room-lesson", LESSON.name)
    await lead.select_option("#room-problems", "-1")
    await lead.fill("#room-prompt", f"{PROMPT} {HOSTILE}")
    await lead.fill("#room-answer", ANSWER)
    await lead.click("text=Open the room")
    await lead.wait_for_selector(".room-qr")
    phone = {"width": 390, "height": 844}
    phones = [
        await opened(browser, errors, lead.url, viewport=phone, is_mobile=True, color_scheme=scheme)
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


async def axe_is_quiet(page: Any) -> None:
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []


async def scene(room: Class, name: str) -> None:
    await room.lead.click(f"nav >> text={name}")
    await room.lead.wait_for_selector(f"[aria-current]:has-text('{name}')")


async def test_who_has_the_link_or_types_the_code_is_in_with_no_account_and_no_name(room, browser):
    await room.lead.wait_for_selector(".room-join >> text=2 places taken of 100")
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
    await page.wait_for_selector("text=There is no room of this code")
    assert len(errors) == 1  # the browser's own line about a status of 404
    await page.context.close()


async def test_predictions_arrive_as_a_histogram_and_the_answers_are_opened(room):
    lead, (one, two) = room.lead, room.phones
    stop = LESSON.stops[0]
    await text_is(one, ".room-stop h2", stop.title)
    await lead.keyboard.press("2")
    await one.focus("#learn-number")  # by the keyboard alone
    await one.keyboard.type("50")
    await one.keyboard.press("Enter")
    await lead.wait_for_selector("text=1 of 2 have answered")
    await two.fill("#learn-number", "3")
    await two.click("text=Send")
    await lead.wait_for_selector("text=2 of 2 have answered")
    assert await lead.locator(".room-said .room-column").count() == 2
    await axe_is_quiet(lead)
    for page in (one, two):
        await page.wait_for_selector("text=You can change it until the answers are opened")
        await axe_is_quiet(page)
    await lead.keyboard.press("a")
    value = judged(stop, "")["value"]
    await lead.wait_for_selector(f".room-goal-name:text-is('{value}')")
    for page, said in ((one, "50"), (two, "3")):
        await page.wait_for_selector(".room-told[data-right]:not([data-right=''])")
        assert await page.inner_text(".room-told") == judged(stop, said)["says"]
        assert await page.is_disabled("#learn-number")


async def test_everybody_is_taken_to_a_stop(room):
    lead, phones = room.lead, room.phones
    await lead.keyboard.press("ArrowRight")
    stop = LESSON.stops[1]
    for page in phones:
        await text_is(page, ".room-stop h2", stop.title)
        assert await page.inner_text(".room-stop > p:nth-of-type(2)") == filled(
            stop.text, stop.at, stop.at
        )
    await phones[0].click("text=The old text")
    await phones[0].click("text=Send")
    await lead.wait_for_selector(".room-bars dd:has-text('1')")
    await axe_is_quiet(lead)
    await lead.keyboard.press("ArrowLeft")
    await text_is(phones[0], ".room-stop h2", LESSON.stops[0].title)


async def test_one_step_then_all_chains_run_on_one_trace_until_they_are_paused(room):
    lead, phones = room.lead, room.phones
    await lead.keyboard.press("n")
    for page in phones:
        await page.wait_for_selector("text=Your first draft: reward")
        assert await page.locator(".room-away:visible").count() == 0
    await lead.keyboard.press("n")
    for page in phones:
        await page.wait_for_selector("text=step 1 of 60 · the class rests")
        await page.wait_for_selector(".room-verdict:text-matches('^(Accepted|Rejected): ')")
        await axe_is_quiet(page)
    await lead.keyboard.press("Space")
    drawn = "document.querySelector('.room-chains')?.getAttribute('d').split('L').length"
    await lead.wait_for_function(f"() => {drawn} > 4")
    assert await lead.locator(".room-single").count() == 1
    await lead.wait_for_selector(".room-votes .room-bar")
    await lead.wait_for_selector(".room-side.room-alone")
    for name in ("mean reward: model alone", "class, later half", "target", "R-hat of the chains"):
        assert await lead.locator(f".room-numbers dt:text-is('{name}')").count() == 1
    await lead.keyboard.press("Space")
    await lead.wait_for_selector("text=Run")
    for page in phones:
        await page.wait_for_selector("text=the class rests")
    await lead.click("[aria-label='Next chain']")
    await text_is(lead, ".room-votes .room-row h3", "Chain 2 alone")
    await axe_is_quiet(lead)
    await lead.keyboard.press("a")
    await lead.wait_for_selector(f"text=The right answer is {ANSWER}")


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


async def test_an_answer_given_without_a_connection_is_kept_and_sent_when_it_is_back(room):
    lead, (page, silent) = room.lead, room.phones
    await scene(room, "Question")
    await lead.keyboard.press("ArrowRight")
    for phone in room.phones:
        await text_is(phone, ".room-stop h2", LESSON.stops[1].title)
        await phone.context.set_offline(True)
        await phone.wait_for_selector(".room-line >> text=The connection is down")
        await axe_is_quiet(phone)
    await page.click("text=The new text")
    await page.click(".room-stop .room-send")
    await page.wait_for_selector(".room-told >> text=Waiting to be sent")
    counts = await lead.locator(".room-question .room-bars dd").all_inner_texts()
    assert counts == ["1", "0"]  # the old answer, until the new one can be sent
    for phone in room.phones:
        await phone.context.set_offline(False)
        await phone.wait_for_selector(".room-line", state="hidden")
    await page.wait_for_selector(".room-told >> text=You said: The new text")
    await lead.wait_for_selector(".room-question .room-bars dd:nth-of-type(2):has-text('1')")
    assert await silent.inner_text(".room-told") == ""
    room.errors[:] = [error for error in room.errors if "ERR_INTERNET_DISCONNECTED" not in error]
    await lead.keyboard.press("ArrowLeft")
    await text_is(page, ".room-stop h2", LESSON.stops[0].title)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_axe_finds_nothing_in_any_scene(room, dark):
    await room.lead.emulate_media(color_scheme="dark" if dark else "light")
    for name in ("Join", "Question", "The class", "Settings"):
        await scene(room, name)
        await axe_is_quiet(room.lead)


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
    assert saved["csv"].read_text(encoding="utf-8").startswith("kind,who,at,answer,value,right")
    errors: list[str] = []
    page = await opened(browser, errors, saved["html"].as_uri())
    assert await page.locator("svg.room-class .room-chains").count() == 1
    assert await page.locator("svg.room-said .room-column").count() == 2
    assert HOSTILE in await page.inner_text(".room-page")
    assert await page.locator("img").count() == 0
    await axe_is_quiet(page)
    await page.goto(room.link.split("#")[0])
    for file, code in ((saved["csv"], ""), (saved["html"], "room")):
        async with page.expect_file_chooser() as chooser:
            await page.click("text=Open a class that was saved")
        await (await chooser.value).set_files(file)
        await page.wait_for_selector(".room-qr" if code else "text=This is no saved class")
    assert page.url != room.link  # that one is still open
    await page.wait_for_selector(".room-join >> text=3 places taken of 100")
    await page.keyboard.press("3")
    await page.wait_for_selector(".room-chains")
    assert [error for error in errors if "422" not in error] == []
    await page.keyboard.press("5")
    await page.click("text=Close this room for good")
    await page.context.close()


async def test_begin_anew_and_close_are_said_to_everybody(room):
    lead, phones = room.lead, room.phones
    await scene(room, "Settings")
    await lead.fill("#room-beta", "0.5")
    await lead.click("text=Begin anew with these")
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
        await axe_is_quiet(page)
    assert room.errors == []
