"""A page that is left while events come ends without an error; one that stays reports it."""

from __future__ import annotations

import pytest
from browser import API, LEAVING

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.more]

DRAWS = f"{API}.position.source === 'live' && {API}.position.last > 1"


async def test_a_page_that_is_left_during_a_run_ends_without_an_error(visit, toy_app):
    page = await visit(f"{toy_app}?steps=64&pool=2&seed=5")
    await page.click("#watch-run")
    await page.wait_for_function(DRAWS)
    await page.evaluate("location.assign('?tab=learn')")
    await page.wait_for_url("**/?tab=learn")
    await page.wait_for_selector("#tab-learn-button[aria-selected=true]")
    assert page.errors == []


async def test_a_page_that_stays_without_its_connection_reports_the_error(visit, toy_app):
    page = await visit(f"{toy_app}?steps=64&pool=2&seed=5")
    await page.click("#watch-run")
    await page.wait_for_function(DRAWS)
    async with page.expect_console_message(lambda line: line.text.startswith(LEAVING[1])):
        await page.evaluate("dispatchEvent(new Event('beforeunload'))")
    assert page.errors
    assert all(error.startswith(LEAVING) for error in page.errors)
    page.errors.clear()
