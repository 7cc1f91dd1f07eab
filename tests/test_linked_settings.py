"""A link's settings are in place before a visitor can change or run them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from browser import API

from qalign_core.record.format import parse_trace

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.more]

JOIN = "**/gradio_api/queue/join*"
PARTS = {
    "watch": ("?steps=12&pool=2&seed=7", "#watch-bar, #watch-pick, #watch-drawer"),
    "compare": ("?tab=compare&steps=12&seed=7", "#compare-bar, #compare-pick, #compare-settings"),
    "lab": ("?tab=lab&lab-beta=2", ".lab"),
}
CLOSED = """(parts) => [...document.querySelectorAll(parts)].length > 0
  && [...document.querySelectorAll(parts)].every((part) => {
    const fields = [...part.querySelectorAll("button, input, textarea")];
    fields.forEach((field) => field.focus());
    return fields.length > 0 && !part.contains(document.activeElement)
      && fields.every((field) => {
        const { left, top, width, height } = field.getBoundingClientRect();
        const hit = document.elementFromPoint(left + width / 2, top + height / 2);
        return !part.contains(hit);
      });
  })"""
"""No field can be focused by the keyboard or reached by the pointer."""
WHOLE = """(parts) => parts.split(", ").every((part) => {
    const there = [...document.querySelectorAll(part)];
    return there.length > 0 && there.every((each) => each.querySelector("button, input, textarea"));
  })"""
"""Every part is on the page, with fields in it."""
OPEN = "(parts) => [...document.querySelectorAll(parts)].every((part) => !part.inert)"


@pytest_asyncio.fixture(loop_scope="session")
async def held(visitors: Any) -> AsyncIterator[Callable[[str], None]]:
    """Hold every event of the pages back until the test says how to end it."""
    verdict: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def hold(route: Any) -> None:
        await (route.continue_() if await verdict == "continue" else route.abort())

    await visitors.route(JOIN, hold)
    yield verdict.set_result
    await visitors.unroute(JOIN, hold)


@pytest.mark.parametrize("name", PARTS)
async def test_until_a_links_settings_are_in_place_its_page_takes_no_input(
    visit, toy_app, held, name
):
    query, parts = PARTS[name]
    page = await visit(f"{toy_app}{query}")
    await page.wait_for_function(WHOLE, arg=parts)
    assert await page.evaluate(CLOSED, parts)
    held("continue")
    await page.wait_for_function(OPEN, arg=parts)


async def test_a_run_asked_for_before_that_has_the_links_settings_and_later_input_wins(
    visit, toy_app, held
):
    page = await visit(f"{toy_app}?steps=12&pool=2&seed=7")
    await page.wait_for_selector("#watch-run")
    # as a lesson's button presses it
    await page.evaluate("document.querySelector('#watch-run').click()")
    held("continue")
    await page.wait_for_function(f"{API}.trace.end && {API}.position.source === 'live'")
    header = parse_trace(await page.evaluate(f"{API}.text")).header
    assert (header.run.seed, header.run.steps) == (7, 12)
    await page.click("#watch-settings")
    await page.locator("#watch-drawer").get_by_label("Seed").fill("12")
    await page.locator("#watch-drawer").get_by_label("Seed").press("Tab")
    await page.click("#watch-run")
    await page.wait_for_function(f"{API}.trace.end && {API}.trace.header.seed === 12")


async def test_a_server_that_does_not_answer_leaves_a_page_that_can_be_used(visit, toy_app, held):
    query, parts = PARTS["watch"]
    page = await visit(f"{toy_app}{query}")
    await page.wait_for_selector(parts, state="attached")
    held("abort")
    await page.wait_for_function(OPEN, arg=parts)
    page.errors.clear()  # the browser's own notices of the request


async def test_an_address_without_settings_holds_nothing_and_leads_to_its_step_on_a_first_visit(
    visit, toy_app, held
):
    page = await visit(f"{toy_app}?step=3", first=True)
    await page.wait_for_function(f"{API}.position.t === 3")
    await page.wait_for_selector("#learn-host", state="attached")
    assert await page.query_selector(".learn-panel") is None  # a link is not interrupted
    for _, parts in PARTS.values():
        assert await page.evaluate(OPEN, parts)
    held("continue")
