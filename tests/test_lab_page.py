"""The lab in a real browser: every control against the core, links, and what is drawn when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import gradio as gr
import numpy as np
import pytest
import pytest_asyncio
from browser import PATIENCE, SET, find_violations, hear, serve

from components.common.options import queued
from components.common.static_routes import routes
from components.common.theme import head
from components.lab import (
    balance,
    beta,
    break_it,
    style,
    which_move,
)
from components.lab.base_rewards import base_rewards
from components.lab.chain import SEED
from components.lab.page import SECTIONS, build_lab_page, parts_of, rows_of, world_of
from qalign_study.exact.convergence import (
    acceptance_rate,
    at_beta,
    distances,
    kl_divergence,
    noise_floor,
    shares,
    simulate,
    sweep,
)
from qalign_study.exact.decisions import Situation, explore
from qalign_study.exact.law import EXACT, Rule, total_variation
from qalign_study.exact.mistakes import MISTAKES
from qalign_study.exact.world import World, by_reward, preset
from qalign_study.exact.wrong_reward import Example, outcomes
from qalign_study.measure.mixture import (
    Mixture,
    best_of_n_as_alignment,
    fit_mixture,
    match,
)
from qalign_study.sheet.words import signed

WORLD = preset()
TWO = Mixture((0.6, 0.4), (-1.5, 1.0), (0.8, 1.0))


LEAD = """window.lead = (settings) => {
  window.arrived = false;
  QAlignLearn.arrived = () => { window.arrived = true; };
  const again = props.value === settings;
  props.value = settings;
  if (again) trigger("change");
};"""
"""The page follows a query as it does for a lesson, and says when it has drawn it."""


@pytest.fixture(scope="session")
def lab_app() -> Iterator[str]:
    with gr.Blocks(analytics_enabled=False) as demo:
        build_lab_page(demo, gr.HTML(js_on_load=LEAD))
    own = {"routes": routes()}
    with serve(queued(demo), ssr_mode=False, head=head(), app_kwargs=own) as address:
        yield address


CEILING = "at least one of n is right: the ceiling"


async def opened(visitors: Any, address: str) -> Any:
    """The lab, opened at Convergence; errors are collected in `page.errors`."""
    page = await visitors.new_page()
    await page.set_viewport_size({"width": 1280, "height": 900})
    await page.emulate_media(reduced_motion="reduce")
    page.set_default_timeout(3 * PATIENCE)  # the plots are a bundle of 5 MB
    hear(page, [])
    await page.goto(f"{address}?tab=lab&lab-opened=Convergence")
    await page.wait_for_selector("#lab-distance .main-svg")
    await page.evaluate("QAlignShell.open()")  # as the app does
    return page


@dataclass
class Shared:
    """The lab that tests hand on, and how many tests had failed when it was opened."""

    page: Any = None
    failed: int = 0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared() -> AsyncIterator[Shared]:
    shared = Shared()
    yield shared
    if shared.page:
        await shared.page.close()


@pytest_asyncio.fixture(loop_scope="session")
async def lab(
    request: pytest.FixtureRequest, shared: Shared, visitors: Any, lab_app: str
) -> AsyncIterator[Any]:
    """One lab for all tests: each begins by leading it, or opens a section that is its alone.

    After a test that failed, the next one has another lab.
    """
    if shared.page and request.session.testsfailed > shared.failed:
        await shared.page.close()
    if not shared.page or shared.page.is_closed():
        shared.page = await opened(visitors, lab_app)
        shared.failed = request.session.testsfailed
    yield shared.page
    assert not shared.page.errors


async def begin(page: Any, section: str) -> None:
    """Lead the lab to a section, with everything else as at first."""
    await page.evaluate("(settings) => lead(settings)", urlencode({"lab-opened": section}))
    await page.wait_for_function("arrived")


async def slide(page: Any, name: str, value: float) -> None:
    """Set a slider through its number box."""
    box = page.locator(f"#{name} input[type=number]")
    await box.fill(str(value))
    await box.press("Tab")


async def open_section(page: Any, name: str) -> None:
    await page.locator("#lab-opened").get_by_text(name, exact=True).click()


async def text_in(page: Any, name: str, words: str) -> None:
    """Wait until the words stand in an element of the page."""
    await page.locator(f"#{name}").get_by_text(words, exact=False).first.wait_for()


async def pick(page: Any, name: str, option: str) -> None:
    """Choose from a dropdown, and wait until its list, which fades, is not beside the next one."""
    await page.locator(f"#{name} input").click()
    await page.get_by_role("option", name=option, exact=True).click()
    await page.get_by_role("option").first.wait_for(state="detached")


async def press(page: Any, name: str, label: str) -> None:
    """Press a radio button."""
    await page.locator(f"#{name}").get_by_text(label, exact=True).click()


async def fill(page: Any, values: dict[str, float]) -> None:
    """Write into several number boxes, of sliders too, in one turn."""
    await page.evaluate(SET.replace("#watch-", "#lab-"), values)


async def edit_cell(page: Any, row: int, column: int, text: str) -> None:
    """Write into a cell of the language model's table."""
    cell = page.get_by_test_id(f"cell-{row}-{column}")
    await cell.dblclick()
    await cell.locator("textarea, input").fill(text)
    await cell.locator("textarea, input").press("Enter")


async def changes(page: Any, place: str, words: Sequence[str], act: Awaitable[None]) -> None:
    """Move a control: the words do not all stand in the place before, and do after it."""
    before = await page.inner_text(f"#{place}")
    assert not all(word in before for word in words)
    await act
    await page.wait_for_function(
        "([place, words]) => words.every("
        "(word) => document.querySelector(`#${place}`).innerText.includes(word))",
        arg=[place, list(words)],
    )


async def curve(page: Any, plot: str, name: str) -> np.ndarray:
    """The y values that the browser draws for a trace."""
    values = await page.evaluate(
        """([plot, name]) =>
            document.querySelector(`#${plot}`).data.find(t => t.name === name)?.y""",
        [plot, name],
    )
    return np.array(values, dtype=float)


async def curve_is(page: Any, plot: str, name: str, expected: Sequence[float]) -> None:
    """Wait until the browser draws these y values for a trace."""
    await page.wait_for_function(
        """([plot, name, expected]) => {
            const traces = document.querySelector(`#${plot}`)?.data || [];
            const y = traces.find(t => t.name === name)?.y;
            return y && expected.every((v, k) => Math.abs(v - y[k]) < 1e-9);
        }""",
        arg=[plot, name, list(expected)],
    )


async def wait_for_curve(page: Any, plot: str, name: str) -> None:
    """Wait until a plot has a trace of this name."""
    await page.wait_for_function(
        """([plot, name]) => (document.querySelector(`#${plot}`)?.data || [])
            .some(t => t.name === name)""",
        arg=[plot, name],
    )


@pytest.mark.asyncio(loop_scope="session")
async def test_t_moves_the_chain_to_the_target_on_a_graph_that_stays(lab) -> None:
    await begin(lab, "Convergence")
    chain = WORLD.chain(1.0)
    exact = distances(chain, 64)
    assert style.cell_text(float(exact[0])) in await lab.inner_text("#lab-convergence-told")
    await lab.evaluate("window.kept = document.querySelector('#lab-strip .main-svg')")
    for t in (4, 64):
        await slide(lab, "lab-t", t)
        await text_in(lab, "lab-convergence-told", style.cell_text(float(exact[t])))
        await wait_for_curve(lab, "lab-strip", f"after {t} steps")
        values = await curve(lab, "lab-strip", f"after {t} steps")
        assert values == pytest.approx(chain.after(t)[by_reward(chain)], abs=1e-12)
        await lab.wait_for_function(
            f"location.search === '?tab=lab&lab-opened=Convergence&lab-t={t}'"
        )
    assert await lab.evaluate("kept === document.querySelector('#lab-strip .main-svg')")
    # the address has changed: what is drawn must not refer to it as it was
    assert await lab.evaluate(
        """[...document.querySelectorAll('#lab-strip [clip-path]')].map(
            (clipped) => clipped.getAttribute('clip-path').match(/^url\\(#(.+)\\)$/))
            .every((found) => found && document.getElementById(found[1]))"""
    )
    await lab.locator("#lab-strip-open").get_by_text("Show the numbers").click()
    after = float(chain.after(64)[by_reward(chain)[-1]])
    row = lab.locator("#lab-strip-numbers tbody tr").first
    await row.get_by_text(style.cell_text(after), exact=True).first.wait_for()
    await lab.locator("#lab-distance-open").get_by_text("Show the numbers").click()
    await text_in(lab, "lab-distance-numbers", style.cell_text(float(exact[64])))
    walked = shares(simulate(chain, n_chains=16, steps=64, seed=SEED), 121)[64]
    noise = noise_floor(chain.target, 16)
    expected = [style.cell_text(x) for x in (total_variation(walked, chain.target), noise)]
    await changes(lab, "lab-convergence-told", expected, press(lab, "lab-shown", "16 chains"))


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_play_moves_t_until_pause_and_quick_moves_end_on_the_last_one(lab) -> None:
    await begin(lab, "Convergence")
    t = lab.locator("#lab-t input[type=number]")
    assert float(await t.input_value()) == 0
    await lab.locator("#lab-play").click()
    moved = "Number(document.querySelector('#lab-t input[type=number]').value) >= 3"
    await lab.wait_for_function(moved)
    await lab.get_by_text("Pause").click()
    await lab.locator("#lab-play", has_text="Play").wait_for()
    assert float(await t.input_value()) >= 3
    await lab.evaluate(
        """() => {
            const slider = document.querySelector('#lab-t input[type=range]');
            for (const t of [1, 2, 4, 8, 16, 32]) {
                slider.value = t;
                slider.dispatchEvent(new Event('input', { bubbles: true }));
            }
        }"""
    )
    await text_in(lab, "lab-convergence-told", "at t = 32")
    await wait_for_curve(lab, "lab-strip", "after 32 steps")


@pytest.mark.asyncio(loop_scope="session")
async def test_no_figure_has_a_toolbar_over_its_legend(lab) -> None:
    await lab.wait_for_selector("#lab-distance .main-svg", state="attached")
    assert await lab.locator(".modebar-btn >> visible=true").count() == 0


COLLIDING = """() => [...document.querySelectorAll('.js-plotly-plot')].flatMap((plot) => {
    const labels = [...plot.querySelectorAll('.xtick text')].filter((one) => one.checkVisibility());
    const boxes = labels.map((one) => [one.textContent, one.getBoundingClientRect()]);
    return boxes.flatMap(([a, p], k) => boxes.slice(k + 1).filter(([, q]) =>
        p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom
    ).map(([b]) => `${plot.id}: ${a}${b}`));
})"""
"""Labels of a horizontal axis that lie over each other, in the figures that are seen."""


FITS = """(plot) => {
    const graph = document.querySelector(`#${plot}`);
    const drawing = graph?.querySelector('.main-svg');
    return drawing && graph.offsetWidth > 0 && drawing.width.baseVal.value === graph.offsetWidth;
}"""


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_an_anchor_opens_its_section_and_what_was_hidden_is_drawn_at_its_full_width(
    visit, toy_app
) -> None:
    page = await visit(f"{toy_app}#lab-section-convergence")
    await page.wait_for_function(FITS, arg="lab-strip")
    await page.wait_for_function("location.search.includes('lab-opened=Convergence')")
    assert not await page.evaluate("location.hash")
    await slide(page, "lab-t", 252)  # each step to 256 is drawn
    await wait_for_curve(page, "lab-strip", "after 252 steps")
    await page.locator("#lab-play").click()
    await page.locator("#tab-watch-button").click()
    await page.wait_for_function(
        "!document.querySelector('#lab-convergence-told').textContent.includes('at t = 252')"
    )
    await page.set_viewport_size({"width": 700, "height": 900})
    await page.locator("#tab-lab-button").click()
    await page.wait_for_function(FITS, arg="lab-strip")
    await wait_for_curve(page, "lab-strip", "after 256 steps")
    await open_section(page, "Beta")
    await page.wait_for_function(FITS, arg="lab-sweep")
    await page.click("#tab-watch-button")
    await page.evaluate(
        """() => {
            const link = document.createElement('a');
            link.href = '#lab-section-wrong';
            document.body.append(link);
            link.click();
            link.remove();
        }"""
    )
    await page.wait_for_function(FITS, arg="lab-proxy")
    assert await page.locator("#lab-section-wrong h2").first.is_visible()


def chain_facts(world: World, beta: float) -> list[str]:
    """What the page says of a chain: numbers of the core."""
    chain = world.chain(beta)
    kl = kl_divergence(chain.target, chain.base)
    return [style.percent(acceptance_rate(chain)), f"{kl:.3f} nats"]


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_the_first_section_is_fetched_with_the_lab_and_replaces_no_newer_drawing(
    visit, toy_app
) -> None:
    page = await visit(toy_app)
    mounted, release = asyncio.Event(), asyncio.Event()

    def is_initial(request: Any) -> bool:
        return '"initial"' in (request.post_data or "")

    async def hold(route: Any) -> None:
        if is_initial(route.request):
            await release.wait()
        await route.continue_()

    async def hold_event(route: Any) -> None:
        # a section that an event of the opening Lab has drawn already is not fetched
        await mounted.wait()
        await route.continue_()

    await page.route("**/component_server/**", hold)
    await page.route("**/run/predict*", hold_event)
    async with page.expect_request(is_initial):
        await page.click("#tab-lab-button")
    mounted.set()
    await slide(page, "lab-beta", 0.5)
    words = signed(at_beta(WORLD, 0.5).mean_reward)
    await text_in(page, "lab-beta-told", words)
    async with page.expect_event("requestfinished", is_initial):
        release.set()
    await page.evaluate("fetch(location).then((reply) => reply.text())")
    assert words in await page.inner_text("#lab-beta-told")


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_every_editor_beta_and_the_presets_change_the_world(lab) -> None:
    await begin(lab, "Convergence")
    facts, rows, parts = "lab-convergence-told", rows_of("Mixed"), parts_of("Likes a, dislikes c")
    await lab.get_by_role("button", name="Edit the language model").click()
    first, parts = parts, [2.0, 0.5, 0.5, -0.5, 3.0, 2.0]
    expected = chain_facts(world_of(rows, *parts), 1.0)
    for k, value in enumerate(first):  # a part that does not move is told
        still = [*parts[:k], value, *parts[k + 1 :]]
        assert chain_facts(world_of(rows, *still), 1.0) != expected
    moved = {f"part-{k}": value for k, value in enumerate(parts)}
    await changes(lab, facts, expected, fill(lab, moved))
    rows[1][4] = 0.9
    expected = chain_facts(world_of(rows, *parts), 1.0)
    await changes(lab, facts, expected, edit_cell(lab, 1, 4, "0.9"))
    await changes(lab, "lab-message", ["is not a number"], edit_cell(lab, 0, 1, "often"))
    await edit_cell(lab, 0, 1, "0.4")
    await lab.wait_for_function("document.querySelector('#lab-message').innerText.trim() === ''")
    expected = chain_facts(world_of(rows, *parts), 0.5)
    await changes(lab, facts, expected, slide(lab, "lab-beta", 0.5))
    other = world_of(rows_of("Sure of itself"), *parts)
    await changes(lab, facts, chain_facts(other, 0.5), pick(lab, "lab-lm", "Sure of itself"))
    other = preset("Sure of itself", "Likes short answers")
    move = pick(lab, "lab-reward", "Likes short answers")
    await changes(lab, facts, chain_facts(other, 0.5), move)


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_both_flows_are_shown_and_a_broken_rule_unbalances_them(lab) -> None:
    words_id = "lab-balance-told"
    await begin(lab, "Detailed balance")
    await text_in(lab, words_id, "The two flows are equal")

    def flows(beta: float, y: str, z: str, rule: Rule = EXACT) -> list[str]:
        return [balance.format_flow(f.total) for f in balance.pair(WORLD, beta, y, z, rule)]

    await text_in(lab, words_id, flows(1.0, "ab·", "abca…")[0])
    await changes(lab, words_id, flows(1.0, "aa·", "abca…"), pick(lab, "lab-y", "aa·"))
    await changes(lab, words_id, flows(1.0, "aa·", "b·"), pick(lab, "lab-z", "b·"))
    await changes(lab, words_id, flows(0.7, "aa·", "b·"), slide(lab, "lab-beta", 0.7))
    no_ratio = MISTAKES["No length ratio"]
    forth, back = balance.pair(WORLD, 0.7, "aa·", "b·", no_ratio)
    unequal = f"differ by {100 * balance.residual(forth, back):.1f}%"
    move = pick(lab, "lab-rule", no_ratio.name)
    await changes(lab, words_id, [unequal, balance.format_flow(back.total)], move)


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_every_mistake_shows_its_distance(lab) -> None:
    await begin(lab, "Break it")
    for name, rule in MISTAKES.items():
        await press(lab, "lab-mistake", name)
        distance = break_it.broken(WORLD, 1.0, rule).distance
        await text_in(lab, "lab-break-told", style.cell_text(distance))
        await wait_for_curve(lab, "lab-wrong", name.lower())
    distance = break_it.broken(WORLD, 0.5, rule).distance
    move = slide(lab, "lab-beta", 0.5)
    await changes(lab, "lab-break-told", [style.cell_text(distance)], move)


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_the_acceptance_rate_is_revealed_after_the_guess(lab) -> None:
    await begin(lab, "Beta")
    await text_in(lab, "lab-beta-told", "What share of the proposals")
    await text_in(lab, "lab-beta-told", "Steps to within 1% of the target")
    assert "strings of a, b, c" in await lab.text_content("#lab-target .xtitle")
    here = at_beta(WORLD, 0.6)
    expected = [f"{style.cell_text(here.kl)} nats", f"{signed(here.mean_reward)} SD"]
    await changes(lab, "lab-beta-told", expected, slide(lab, "lab-beta", 0.6))
    await slide(lab, "lab-guess", 62)
    rate = f"{here.acceptance:.1%}"
    assert rate not in await lab.inner_text("#lab-beta-told")
    words = [f"you guessed 62%, and {rate}", style.percent(here.acceptance_changed)]
    await changes(lab, "lab-beta-told", words, press(lab, "lab-reveal", beta.REVEALED))
    await wait_for_curve(lab, "lab-sweep", "acceptance")
    values = await curve(lab, "lab-sweep", "acceptance")
    assert values == pytest.approx([point.acceptance for point in sweep(WORLD)])


def alignment_facts(mixture: Mixture, n: int) -> list[str]:
    """What the page says of best-of-n: numbers of the core; only the mode reads the means."""
    best, matched = best_of_n_as_alignment(mixture, n), match(mixture, n)
    return [style.cell_text(number) for number in (best.beta, matched.sd, matched.mode)]


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_n_and_every_slider_move_beta_star_and_shipped_and_pasted_rewards_are_fitted(
    lab,
) -> None:
    await open_section(lab, "Best-of-n")
    words_id = "lab-best-of-n-told"
    await text_in(lab, words_id, alignment_facts(TWO, 32)[0])
    await changes(lab, words_id, alignment_facts(TWO, 256), press(lab, "lab-n", "256"))
    moved = {"share": 70, "mean1": -0.5, "mean2": 1.5, "sd1": 2, "sd2": 2}
    mixture = Mixture((0.3, 0.7), (-0.5, 1.5), (2.0, 2.0))
    for still in (  # each of them with one slider that does not move
        Mixture((0.6, 0.4), (-0.5, 1.5), (2.0, 2.0)), Mixture((0.3, 0.7), (-1.5, 1.5), (2.0, 2.0)),
        Mixture((0.3, 0.7), (-0.5, 1.0), (2.0, 2.0)), Mixture((0.3, 0.7), (-0.5, 1.5), (0.8, 2.0)),
        Mixture((0.3, 0.7), (-0.5, 1.5), (2.0, 1.0)),
    ):  # fmt: skip
        assert alignment_facts(still, 256) != alignment_facts(mixture, 256)
    await changes(lab, words_id, alignment_facts(mixture, 256), fill(lab, moved))
    known = list(base_rewards().values())[-1]
    mixture = fit_mixture(known.rewards)
    assert mixture is not None
    await lab.locator("#lab-source input").click()
    await changes(
        lab, words_id, [f"BIC {mixture.bic:.1f}"],
        lab.get_by_role("option", name=known.title(60)).click(),
    )  # fmt: skip
    await lab.locator("#lab-source input").click()
    await lab.get_by_role("option", name="Your own rewards").click()
    await lab.locator("#lab-pasted textarea").fill("1 2 three")
    await text_in(lab, "lab-message", "'three' is not a number")
    rewards = np.random.default_rng(1).normal(size=40).round(3)
    mixture = fit_mixture(rewards.tolist())
    assert mixture is not None
    own = lab.locator("#lab-pasted textarea").fill(" ".join(map(str, rewards)))
    await changes(lab, words_id, ["40 base rewards", f"BIC {mixture.bic:.1f}"], own)


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_the_hacks_sliders_move_the_four_methods(lab) -> None:
    await open_section(lab, "A wrong reward")
    await lab.locator("#lab-beta").wait_for(state="hidden")
    await text_in(lab, "lab-wrong-told", "Best-of-n takes the highest reward")
    stay = ({"hack_mass": 0.01}, {"hack_reward": 3.0}, {"beta": 1.0})  # a slider that does not move
    example, words = Example(0.05, 2.0, 0.3), []
    for each in (example, *(replace(example, **one) for one in stay)):
        last = {o.method: o for o in outcomes(each) if o.n == 128}
        words.append(
            [style.percent(last["qalign"].accuracy), style.percent(float(each.target()[2]))]
        )
    assert words[0] not in words[1:]
    moved = {"hack-mass": 5, "hack-reward": 2, "hack-beta": 0.3}
    await changes(lab, "lab-wrong-told", words[0], fill(lab, moved))
    for plot, what in (("lab-accuracy", "accuracy"), ("lab-proxy", "proxy")):
        expected = [getattr(o, what) for o in outcomes(example) if o.method == "qalign"]
        await curve_is(lab, plot, "QAlign", expected)
    await text_in(lab, "lab-wrong-told", "the target itself prefers the hack")


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_every_slider_of_the_model_moves_the_methods(lab) -> None:
    await open_section(lab, "When is a chain worth it?")
    await wait_for_curve(lab, "lab-worth", "QAlign")
    moved = {"decisions": 8, "chance": 70, "near-miss": 80, "worth-beta": 0.5, "agree": 40}
    await fill(lab, moved)
    results = explore(Situation(8, 0.7, 0.8, 0.5, 0.4), most=256)
    await curve_is(lab, "lab-worth", "QAlign", results.right["qalign"].mean(axis=1).tolist())
    await curve_is(lab, "lab-worth", CEILING, results.any_of.tolist())
    await press(lab, "lab-budget", "64")
    await text_in(lab, "lab-worth-told", "At least one of 64 is right")


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_block_moves_help_until_the_fields_copy_each_other(lab) -> None:
    await open_section(lab, "Which move?")
    await text_in(lab, "lab-move-told", "Here block moves help")
    for copies, share, words in ((0, 80, "moves help"), (95, 80, "moves slow the chain")):
        await slide(lab, "lab-copies", copies)
        await slide(lab, "lab-share-blocks", share)
        await text_in(lab, "lab-move-told", words)
        names = which_move.ALONE, which_move.MIXED
        for chain, name in zip(which_move.both(copies, share), names, strict=True):
            await curve_is(lab, "lab-moves", name, distances(chain, 400).tolist())


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_a_link_shows_what_its_sender_saw(lab, visit, lab_app) -> None:
    await begin(lab, "Break it")
    await lab.wait_for_function("location.search === '?tab=lab&lab-opened=Break+it'")
    name, rule = list(MISTAKES.items())[1]
    await pick(lab, "lab-lm", "Long-winded")
    await slide(lab, "lab-beta", 0.6)
    await press(lab, "lab-mistake", name)
    await lab.wait_for_function(
        "['lab-opened=Break+it', 'lab-lm=', 'lab-beta=0.6', 'lab-mistake=']"
        ".every((part) => location.search.includes(part))"
    )
    query = await lab.evaluate("location.search")
    assert "lab-rows" not in query  # they follow from the preset
    other = await visit(f"{lab_app}{query}", ready="#lab-opened")
    distance = break_it.broken(preset("Long-winded"), 0.6, rule).distance
    await text_in(other, "lab-break-told", style.cell_text(distance))
    await wait_for_curve(other, "lab-wrong", name.lower())
    assert await other.locator("#lab-section-beta").is_hidden()
    assert await other.locator("#lab-mistake input:checked").input_value() == name
    assert await other.locator("#lab-beta input[type=number]").input_value() == "0.6"
    assert await other.locator("#lab-lm input").input_value() == "Long-winded"


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_a_link_of_an_earlier_version_opens_its_section_and_a_bad_value_is_told(lab) -> None:
    await begin(lab, "Beta")
    await lab.evaluate("lead('tab=lab&lab-t=3&lab-beta=-3')")
    refused = "The link's value “-3” of “β, in standard deviations of the reward” cannot be used"
    await lab.get_by_text(refused).wait_for()
    await lab.locator("#lab-section-beta").wait_for(state="hidden")
    distance = style.cell_text(float(distances(WORLD.chain(1.0), 3)[3]))
    for words in ("at t = 3", distance, *chain_facts(WORLD, 1.0)):
        await text_in(lab, "lab-convergence-told", words)


CUT = """[...document.querySelectorAll('.lab-plot .xtitle')].filter((node) => {
  const title = node.getBoundingClientRect();
  const plot = node.closest('.lab-plot').getBoundingClientRect();
  return plot.width && (title.left < plot.left || title.right > plot.right);
})"""
"""Titles under figures that are not whole."""


# the narrowest and lowest screen leaves figures and their labels the least room
@pytest.mark.more
@pytest.mark.parametrize(("width", "height"), [(360, 740), (1280, 800)])
@pytest.mark.asyncio(loop_scope="session")
async def test_each_section_is_on_the_first_screen_accessible_and_whole_and_does_not_jump(
    visit, toy_app, width, height
) -> None:
    page = await visit(f"{toy_app}?tab=lab", width=width, height=height)
    await page.wait_for_selector("#lab-target .main-svg")
    assert await page.locator("#lab-section-convergence").is_hidden()
    assert "lab-" not in page.url
    first = ("target", "strip", "flow", "wrong", "densities", "accuracy", "worth", "moves")
    described = ("sweep", "strip", "flow", "wrong", "betas", "accuracy", "worth-map", "moves-map")
    for section, plot, with_numbers in zip(SECTIONS, first, described, strict=True):
        await open_section(page, section.name)
        await page.evaluate("scrollTo(0, 0)")
        place = page.locator(f"#lab-{plot}")
        await place.wait_for()
        before = await place.bounding_box()
        await page.wait_for_function(FITS, arg=f"lab-{plot}")
        box = await place.bounding_box()
        assert box["y"] == before["y"], section.name
        assert box["height"] == before["height"], section.name
        assert box["y"] + box["height"] <= height, section.name
        for figure in section.figures:
            await page.wait_for_function(FITS, arg=f"lab-{figure}")
        numbers = page.locator(f"#lab-{with_numbers}-open").get_by_text("Show the numbers")
        await numbers.wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await page.locator(f"#lab-{with_numbers} .xtitle").count()
        await page.wait_for_function(f"() => !{CUT}.length")
        assert await page.evaluate(COLLIDING) == []
        assert await find_violations(page, f"#lab-section-{section.anchor}") == []
    await page.get_by_text("Show the numbers").locator("visible=true").first.click()
    await page.locator(".lab-table table:visible").first.wait_for()
    # labels that are pushed together are found
    await page.add_style_tag(content=".xtick text { font-size: 60px !important; }")
    assert await page.evaluate(COLLIDING)
