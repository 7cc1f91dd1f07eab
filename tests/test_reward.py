"""Two rewards on the page: what is chosen, run, linked and shown is one weighted sum."""

from __future__ import annotations

import pytest
from browser import API
from toys import ToyRM

from components.common.reward import mixed, model_list, reward_values, unmixed
from components.session.offer import Offer
from qalign_core.chain.cost import draw_cost, meter_of, reading_of
from qalign_core.errors import InvalidSetting
from qalign_core.record.format import parse_trace
from qalign_core.registry import load_reward_model
from qalign_core.rewards.functions import CompositeReward
from qalign_core.types import Response

OFFER = Offer(names=())
SUM = "0.7*embedded + 0.3*embedded-weak"


def test_two_rewards_and_a_share_are_one_sum_and_back():
    assert mixed("embedded", "embedded-weak", 0.3) == SUM
    assert unmixed(SUM, OFFER) == ("embedded", "embedded-weak", 0.3)
    assert mixed("embedded", "", 0.3) == mixed("embedded", None, "x") == "embedded"
    assert unmixed("embedded", OFFER)[:2] == ("embedded", "")


@pytest.mark.parametrize("share", ["x", None, -0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InvalidSetting, match="Share of the second must be between 0 and 1"):
        mixed("embedded", "embedded-weak", share)


@pytest.mark.parametrize(
    "rm", ["2*embedded + 0.5*embedded-weak", "judge:embedded", "-1*embedded + 2*embedded-weak"]
)
def test_a_sum_of_another_shape_stands_in_the_list_as_it_is(rm):
    show = reward_values(rm, OFFER)
    assert show["rm"].value == rm
    assert (rm, rm) in show["rm"].choices
    assert mixed(show["rm"].value, show["second"].value, show["share"]) == rm


def test_a_sum_may_be_mixed_with_a_third():
    assert mixed(SUM, "embedded", 0.5) == "0.35*embedded + 0.15*embedded-weak + 0.5*embedded"


def test_where_any_id_of_the_hub_is_offered_it_can_be_typed_and_a_word_to_reward_always():
    assert model_list(Offer(own=True), "lm", "embedded").allow_custom_value
    assert not model_list(OFFER, "lm", "embedded").allow_custom_value
    rewards = model_list(OFFER, "rm", "embedded")
    assert rewards.allow_custom_value
    assert "contains:rain" in rewards.info


class Sized(ToyRM):
    """A reward model of a size, that reads so many tokens of anything."""

    def __init__(self, n_parameters, n_tokens):
        self.n_parameters, self._n_tokens = n_parameters, n_tokens

    def n_read(self, known, total):
        return self._n_tokens


def test_a_sum_costs_what_its_parts_cost():
    parts = (Sized(1_000_000, 60), Sized(9_000_000, 40), Sized(0, 0))
    both = CompositeReward([(parts[0], 0.5), (parts[1], 0.25), (parts[2], 1.0)])

    def price(rm):
        return meter_of(Sized(1, 0), rm).price(draw_cost(0, 0, 0, reading_of(rm)))

    assert price(both) == sum(map(price, parts)) > 0


async def test_the_sum_of_the_embedded_models_is_the_sum_of_their_rewards():
    response = Response((), "5 + 3 = 8. The answer is 8.", True)
    prompt = "Tom has 5 eggs. He finds 3 more. How many eggs does Tom have now?"
    names = ("embedded", "embedded-weak", SUM)
    one, two, both = [await load_reward_model(name).score(prompt, response) for name in names]
    assert both == pytest.approx(0.7 * one + 0.3 * two, abs=1e-6)


async def choose(page, scope, label, option):
    await page.locator(scope).get_by_label(label, exact=True).click()
    await page.get_by_role("option", name=option).click()


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_two_rewards_are_chosen_run_named_and_linked(visit, toy_app):
    page = await visit(f"{toy_app}?steps=8")
    await page.wait_for_function("document.querySelector('.qp-note').textContent.length > 0")
    await page.click("#watch-settings")
    drawer = page.locator("#watch-drawer")
    share = drawer.get_by_label("number input for Share of the second")
    assert await share.count() == 0
    await choose(page, "#watch-drawer", "And a second reward model", "0.9M weak reward model")
    await share.fill("0.4")
    await share.press("Enter")
    await drawer.get_by_role("button", name="Close").click()
    await page.click("#watch-run")
    await page.wait_for_function(f"{API}.trace.end && {API}.position.source === 'live'")
    header = parse_trace(await page.evaluate(f"{API}.text")).header
    assert header.run.rm == "0.6*embedded + 0.4*embedded-weak"
    named = "0.6 × 0.9M reward model + 0.4 × 0.9M weak reward model"
    assert named in await page.inner_text("#watch-player")
    await page.wait_for_function("location.search.includes('rm=')")
    link = await page.evaluate("location.href")
    other = await visit(link)
    await other.wait_for_function("document.querySelector('.qp-note').textContent.length > 0")
    assert "in place" in await other.inner_text(".qp-note")
    await other.click("#watch-settings")
    drawer = other.locator("#watch-drawer")
    second = drawer.get_by_label("And a second reward model", exact=True)
    assert "weak" in await second.input_value()
    assert await drawer.get_by_label("number input for Share of the second").input_value() == "0.4"
    await drawer.get_by_role("button", name="Close").click()
    await other.click("#watch-run")
    await other.wait_for_function(f"{API}.trace.end && {API}.position.source === 'live'")
    again = parse_trace(await other.evaluate(f"{API}.text"))
    assert again.header.run.rm == header.run.rm


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_compare_takes_two_rewards_and_any_sum_of_a_link(visit, toy_app):
    rm = "2*embedded + 0.5*embedded-weak"
    query = "tab=compare&steps=8&rm=2*embedded+%2B+0.5*embedded-weak"
    page = await visit(f"{toy_app}?{query}", width=360, height=740)
    await page.wait_for_function(
        "document.querySelector('#compare .q-status').textContent.includes('in place')"
    )
    await page.get_by_role("button", name="Change the problem or the settings").click()
    assert await page.locator("#compare-rm input").input_value() == rm
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await page.evaluate(wider) <= 0
    await page.click("#compare-run")
    done = "document.querySelector('#compare .q-status').dataset.state === 'finished'"
    await page.wait_for_function(done)
    assert rm in await page.evaluate("new URLSearchParams(location.search).get('rm')")
