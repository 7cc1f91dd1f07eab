"""Before a run: a text that the model was not made for is told, a new problem is on the stage."""

from __future__ import annotations

import pytest

from components.common.prompt_warning import sentence
from components.session.offer import Offer

FOREIGN = "What is the capital of France, and why?"
OWN = "Anna has 3 apples. She buys 4 more apples. How many apples does she have now?"


def test_the_first_models_for_any_text_are_named_for_the_press():
    offer = Offer()
    assert offer.for_any_text("lm") == "smollm2-135m"
    assert offer.for_any_text("rm") == "skywork-v2-qwen3-0.6b"
    assert Offer(names=()).for_any_text("lm") is None


def test_a_models_title_stays_a_text():
    assert "“&lt;b&gt;”" in sentence("<b>")


pages = pytest.mark.asyncio(loop_scope="session")


async def write(page, text):
    """Write another problem in the drawer."""
    await page.locator("#watch-settings").click()
    await page.locator("#watch-prompt textarea").fill(text)
    await page.locator("#watch-drawer").get_by_role("button", name="Close").click()


@pytest.mark.more
@pages
async def test_a_late_event_of_a_form_does_not_refuse_the_run_of_its_problem(visit, toy_app):
    page = await visit(toy_app)
    last = """(problems) => {
      const player = document.querySelector('#watch-player .qp').qalign, text = player.text;
      player.await(problems[0]);
      player.expect(null);
      player.await(problems[1]);
      player.stream(text);
      return player.position.last;
    }"""
    assert await page.evaluate(last, ["6 + 3?", "6 + 3?"]) == 256
    assert await page.evaluate(last, ["6 + 3?", "another?"]) == -1  # that run is not this problem's


@pytest.mark.more
@pages
async def test_a_new_problem_stands_on_the_stage_until_it_is_run_and_a_foreign_text_is_told_before(
    visit, toy_app
):
    page = await visit(toy_app)
    old = await page.locator(".qp-prompt").inner_text()
    await page.locator("#watch-new").click()
    await page.locator(".qp[data-waiting]").wait_for()
    new = await page.locator(".qp-prompt").inner_text()
    assert new != old
    assert new == await page.locator("#watch-prompt textarea").input_value()
    assert "has not been run yet" in await page.locator(".qp-invite").inner_text()
    assert await page.inner_text(".qp-top") == "New problem"  # nothing of the run before it
    for part in (".qp-text", ".qp-phases", ".qp-walk", ".qp-transport"):
        assert not await page.locator(part).is_visible(), part
    await page.locator(".qp-invite").get_by_role("button", name="Run it live").click()
    await page.wait_for_function(
        "document.querySelector('#watch-player .qp').qalign.position.last >= 2"
    )
    assert await page.locator(".qp[data-waiting]").count() == 0
    assert await page.locator(".qp-prompt").inner_text() == new
    await page.locator("#watch-stop").click()
    await page.locator(".qp-top").get_by_text("stopped").wait_for()
    # a text that the model was not made for, one of its own kind, and another model for the first
    warning = page.locator("#watch .q-foreign p")
    assert not await warning.is_visible()
    await write(page, FOREIGN)
    await warning.get_by_text("was not made for a text like this").wait_for()
    known = await page.locator("#watch-reference :is(input, textarea)").input_value()
    assert known == ""  # nobody gave a key to this text
    await write(page, OWN)
    await warning.wait_for(state="hidden")
    await write(page, FOREIGN)
    await warning.get_by_text("was not made for a text like this").wait_for()
    await page.locator("#watch .q-foreign").get_by_role("button").click()
    await warning.wait_for(state="hidden")
    chosen = page.locator("#watch-pick").get_by_label("Language model", exact=True)
    assert (await chosen.input_value()).startswith("SmolLM2 135M")
