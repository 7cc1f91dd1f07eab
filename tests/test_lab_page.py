"""The lab in a real browser: every control against the core, links, and what is drawn when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import gradio as gr
import numpy as np
import pytest
import pytest_asyncio
from browser import PATIENCE, serve

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

WORLD = preset()
TWO = Mixture((0.6, 0.4), (-1.5, 1.0), (0.8, 1.0))


@pytest.fixture(scope="session")
def lab_app() -> Iterator[str]:
    with gr.Blocks(analytics_enabled=False) as demo:
        build_lab_page(demo, gr.HTML())
    with serve(demo.queue(default_concurrency_limit=None), ssr_mode=False, head=head()) as address:
        yield address


CEILING = "at least one of n is right: the ceiling"


@asynccontextmanager
async def opened(visitors: Any, address: str) -> AsyncIterator[Any]:
    """The lab, opened at Convergence; scripts' errors are collected in `page.errors`."""
    page = await visitors.new_page()
    await page.set_viewport_size({"width": 1280, "height": 900})
    page.set_default_timeout(3 * PATIENCE)  # the plots are a bundle of 5 MB
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    await page.goto(f"{address}?tab=lab&lab-opened=Convergence")
    await page.wait_for_selector("#lab-distance .main-svg")
    await page.evaluate("QAlignShell.open()")  # as the app does
    yield page
    await page.close()


@pytest_asyncio.fixture(loop_scope="session")
async def lab(visitors: Any, lab_app: str) -> AsyncIterator[Any]:
    async with opened(visitors, lab_app) as page:
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sections(visitors: Any, lab_app: str) -> AsyncIterator[Any]:
    """One lab for all tests that move nothing but their own section's controls, and β."""
    async with opened(visitors, lab_app) as page:
        yield page


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


async def edit(page: Any, name: str, value: float) -> None:
    """Write into a number box."""
    box = page.locator(f"#{name} input")
    await box.fill(str(value))
    await box.press("Tab")


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
    found = await page.evaluate(
        """([plot, name]) =>
            document.querySelector(`#${plot}`).data.find(t => t.name === name)?.y""",
        [plot, name],
    )
    return np.array(found, dtype=float)


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


async def drawn(page: Any, plot: str, name: str) -> None:
    """Wait until a plot has a trace of this name."""
    await page.wait_for_function(
        """([plot, name]) => (document.querySelector(`#${plot}`)?.data || [])
            .some(t => t.name === name)""",
        arg=[plot, name],
    )


@pytest.mark.asyncio(loop_scope="session")
async def test_the_lab_opens_computed_and_t_moves_the_chain_to_the_target(lab) -> None:
    chain = WORLD.chain(1.0)
    told = await lab.inner_text("#lab-convergence-told")
    assert style.number(float(distances(chain, 0)[0])) in told
    await slide(lab, "lab-t", 64)
    await text_in(lab, "lab-convergence-told", style.number(float(distances(chain, 64)[64])))
    await drawn(lab, "lab-strip", "after 64 steps")
    shown = await curve(lab, "lab-strip", "after 64 steps")
    assert shown == pytest.approx(chain.after(64)[by_reward(chain)], abs=1e-12)
    walked = shares(simulate(chain, n_chains=16, steps=64, seed=SEED), 121)[64]
    noise = noise_floor(chain.target, 16)
    expected = [style.number(x) for x in (total_variation(walked, chain.target), noise)]
    await changes(lab, "lab-convergence-told", expected, press(lab, "lab-shown", "16 chains"))
    assert not lab.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_play_moves_t_and_pause_stops_it(lab) -> None:
    await lab.locator("#lab-play").click()
    moved = "Number(document.querySelector('#lab-t input[type=number]').value) >= 3"
    await lab.wait_for_function(moved)
    await lab.get_by_text("Pause").click()
    await lab.locator("#lab-play", has_text="Play").wait_for()
    assert float(await lab.locator("#lab-t input[type=number]").input_value()) >= 3


@pytest.mark.asyncio(loop_scope="session")
async def test_a_graph_stays_in_the_page_and_takes_new_data(lab) -> None:
    await lab.evaluate("window.kept = document.querySelector('#lab-strip .main-svg')")
    for t in (4, 64):
        await slide(lab, "lab-t", t)
        await drawn(lab, "lab-strip", f"after {t} steps")
        shown = await curve(lab, "lab-strip", f"after {t} steps")
        chain = WORLD.chain(1.0)
        assert shown == pytest.approx(chain.after(t)[by_reward(chain)], abs=1e-12)
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
    assert not lab.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_quick_moves_end_on_the_last_one(lab) -> None:
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
    await drawn(lab, "lab-strip", "after 32 steps")
    assert not lab.errors


FITS = """(plot) => {
    const graph = document.querySelector(`#${plot}`);
    const drawing = graph?.querySelector('.main-svg');
    return drawing && graph.offsetWidth > 0 && drawing.width.baseVal.value === graph.offsetWidth;
}"""


@pytest.mark.asyncio(loop_scope="session")
async def test_what_was_hidden_is_drawn_at_its_full_width(visit, toy_app) -> None:
    page = await visit(f"{toy_app}?tab=lab&lab-opened=Convergence")
    await page.wait_for_function(FITS, arg="lab-strip")
    await page.locator("#lab-play").click()
    await page.locator("#tab-watch-button").click()
    await page.wait_for_function(
        "/at t = [4-9]/.test(document.querySelector('#lab-convergence-told').textContent)"
    )
    await page.set_viewport_size({"width": 700, "height": 900})
    await page.locator("#tab-lab-button").click()
    await page.wait_for_function(FITS, arg="lab-strip")
    await drawn(page, "lab-strip", "after 256 steps")
    for name, plot in (("Beta", "lab-sweep"), ("A wrong reward", "lab-proxy")):
        await open_section(page, name)
        await page.wait_for_function(FITS, arg=plot)
    assert not page.errors


def chain_facts(world: World, beta: float) -> list[str]:
    """What the page says of a chain: numbers of the core."""
    chain = world.chain(beta)
    kl = kl_divergence(chain.target, chain.base)
    return [style.percent(acceptance_rate(chain)), f"{kl:.3f} nats"]


@pytest.mark.asyncio(loop_scope="session")
async def test_beta_and_presets_change_the_world(lab) -> None:
    facts = "lab-convergence-told"
    await changes(lab, facts, chain_facts(WORLD, 0.5), slide(lab, "lab-beta", 0.5))
    other = preset("Sure of itself")
    await changes(lab, facts, chain_facts(other, 0.5), pick(lab, "lab-lm", "Sure of itself"))
    other = preset("Sure of itself", "Likes short answers")
    move = pick(lab, "lab-reward", "Likes short answers")
    await changes(lab, facts, chain_facts(other, 0.5), move)
    assert not lab.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_every_editor_of_the_language_model_and_the_reward_changes_the_world(lab) -> None:
    rows, parts = rows_of("Mixed"), parts_of("Likes a, dislikes c")
    await lab.get_by_role("button", name="Edit the language model").click()
    for k, value in enumerate((2.0, 0.5, 0.5, -0.5, 3.0, 2.0)):
        parts[k] = value
        expected = chain_facts(world_of(rows, *parts), 1.0)
        await changes(lab, "lab-convergence-told", expected, edit(lab, f"lab-part-{k}", value))
    rows[1][4] = 0.9
    expected = chain_facts(world_of(rows, *parts), 1.0)
    await changes(lab, "lab-convergence-told", expected, edit_cell(lab, 1, 4, "0.9"))
    await changes(lab, "lab-message", ["is not a number"], edit_cell(lab, 0, 1, "often"))
    await edit_cell(lab, 0, 1, "0.4")
    await lab.wait_for_function("document.querySelector('#lab-message').innerText.trim() === ''")
    assert not lab.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_both_flows_are_shown_and_a_broken_rule_unbalances_them(sections) -> None:
    told = "lab-balance-told"
    await open_section(sections, "Detailed balance")
    await text_in(sections, told, "The two flows are equal")

    def flows(beta: float, y: str, z: str, rule: Rule = EXACT) -> list[str]:
        return [balance.shown_flow(f.total) for f in balance.pair(WORLD, beta, y, z, rule)]

    await text_in(sections, told, flows(1.0, "ab·", "abca…")[0])
    await changes(sections, told, flows(1.0, "aa·", "abca…"), pick(sections, "lab-y", "aa·"))
    await changes(sections, told, flows(1.0, "aa·", "b·"), pick(sections, "lab-z", "b·"))
    await changes(sections, told, flows(0.7, "aa·", "b·"), slide(sections, "lab-beta", 0.7))
    no_ratio = MISTAKES["No length ratio"]
    forth, back = balance.pair(WORLD, 0.7, "aa·", "b·", no_ratio)
    unequal = f"differ by {100 * balance.residual(forth, back):.1f}%"
    move = pick(sections, "lab-rule", no_ratio.name)
    await changes(sections, told, [unequal, balance.shown_flow(back.total)], move)
    assert not sections.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_every_mistake_shows_its_distance(sections) -> None:
    await slide(sections, "lab-beta", 1.0)
    await open_section(sections, "Break it")
    for name, rule in MISTAKES.items():
        await press(sections, "lab-mistake", name)
        distance = break_it.broken(WORLD, 1.0, rule).distance
        await text_in(sections, "lab-break-told", style.number(distance))
        await drawn(sections, "lab-wrong", name.lower())
    distance = break_it.broken(WORLD, 0.5, rule).distance
    move = slide(sections, "lab-beta", 0.5)
    await changes(sections, "lab-break-told", [style.number(distance)], move)
    assert not sections.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_the_acceptance_rate_is_revealed_after_the_guess(sections) -> None:
    await open_section(sections, "Beta")
    await text_in(sections, "lab-beta-told", "What share of the proposals")
    await text_in(sections, "lab-beta-told", "Steps to within 1% of the target")
    assert "strings of a, b, c" in await sections.text_content("#lab-target .xtitle")
    here = at_beta(WORLD, 0.6)
    expected = [f"{style.number(here.kl)} nats", f"{here.mean_reward:+.2f} SD"]
    await changes(sections, "lab-beta-told", expected, slide(sections, "lab-beta", 0.6))
    await slide(sections, "lab-guess", 62)
    rate = f"{here.acceptance:.1%}"
    assert rate not in await sections.inner_text("#lab-beta-told")
    words = [f"you guessed 62%, and {rate}", style.percent(here.acceptance_changed)]
    await changes(sections, "lab-beta-told", words, press(sections, "lab-reveal", beta.REVEALED))
    await drawn(sections, "lab-sweep", "acceptance")
    shown = await curve(sections, "lab-sweep", "acceptance")
    assert shown == pytest.approx([point.acceptance for point in sweep(WORLD)])


def alignment_facts(mixture: Mixture, n: int) -> list[str]:
    """What the page says of best-of-n: numbers of the core."""
    best = best_of_n_as_alignment(mixture, n)
    return [style.number(best.beta), style.number(match(mixture, n).sd)]


@pytest.mark.asyncio(loop_scope="session")
async def test_n_and_every_slider_of_the_mixture_move_beta_star(sections) -> None:
    await open_section(sections, "Best-of-n")
    told = "lab-best-of-n-told"
    await text_in(sections, told, alignment_facts(TWO, 32)[0])
    await changes(sections, told, alignment_facts(TWO, 256), press(sections, "lab-n", "256"))
    for name, value, mixture in (
        ("lab-share", 70, Mixture((0.3, 0.7), (-1.5, 1.0), (0.8, 1.0))),
        ("lab-sd2", 2, Mixture((0.3, 0.7), (-1.5, 1.0), (0.8, 2.0))),
        ("lab-sd1", 2.4, Mixture((0.3, 0.7), (-1.5, 1.0), (2.4, 2.0))),
    ):
        await changes(sections, told, alignment_facts(mixture, 256), slide(sections, name, value))
    for name, value, mixture in (  # beta*(n) does not depend on the means; the mode does
        ("lab-mean1", -3, Mixture((0.3, 0.7), (-3.0, 1.0), (2.4, 2.0))),
        ("lab-mean2", 2.5, Mixture((0.3, 0.7), (-3.0, 2.5), (2.4, 2.0))),
    ):
        mode = style.number(match(mixture, 256).mode)
        await changes(sections, told, [mode], slide(sections, name, value))
    assert not sections.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_shipped_and_pasted_rewards_are_fitted_on_the_page(sections) -> None:
    await open_section(sections, "Best-of-n")
    told = "lab-best-of-n-told"
    known = list(base_rewards().values())[-1]
    mixture = fit_mixture(known.rewards)
    assert mixture is not None
    await sections.locator("#lab-source input").click()
    await changes(
        sections, told, [f"BIC {mixture.bic:.1f}"],
        sections.get_by_role("option", name=known.title(60)).click(),
    )  # fmt: skip
    await sections.locator("#lab-source input").click()
    await sections.get_by_role("option", name="Your own rewards").click()
    await sections.locator("#lab-pasted textarea").fill("1 2 three")
    await text_in(sections, "lab-message", "'three' is not a number")
    rewards = np.random.default_rng(1).normal(size=40).round(3)
    mixture = fit_mixture(rewards.tolist())
    assert mixture is not None
    own = sections.locator("#lab-pasted textarea").fill(" ".join(map(str, rewards)))
    await changes(sections, told, ["40 base rewards", f"BIC {mixture.bic:.1f}"], own)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_hacks_sliders_move_the_four_methods(sections) -> None:
    await open_section(sections, "A wrong reward")
    await sections.locator("#lab-beta").wait_for(state="hidden")
    await text_in(sections, "lab-wrong-told", "Best-of-n takes the highest reward")
    for name, value, example in (
        ("lab-hack-mass", 5, Example(0.05)),
        ("lab-hack-reward", 2, Example(0.05, 2.0)),
        ("lab-hack-beta", 0.3, Example(0.05, 2.0, 0.3)),
    ):
        last = {o.method: o for o in outcomes(example) if o.n == 128}
        words = [style.percent(last["qalign"].accuracy),
                 style.percent(float(example.target()[2]))]  # fmt: skip
        await changes(sections, "lab-wrong-told", words, slide(sections, name, value))
        for plot, what in (("lab-accuracy", "accuracy"), ("lab-proxy", "proxy")):
            expected = [getattr(o, what) for o in outcomes(example) if o.method == "qalign"]
            await curve_is(sections, plot, "QAlign", expected)
    await text_in(sections, "lab-wrong-told", "the target itself prefers the hack")
    assert not sections.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_every_slider_of_the_model_moves_the_methods(sections) -> None:
    await open_section(sections, "When is a chain worth it?")
    await drawn(sections, "lab-worth", "QAlign")
    settings: dict[str, Any] = {"decisions": 12, "chance": 60, "near-miss": 98, "worth-beta": 0.3}
    for name, value in (
        ("decisions", 8), ("chance", 70), ("near-miss", 80), ("worth-beta", 0.5), ("agree", 40),
    ):  # fmt: skip
        await slide(sections, f"lab-{name}", value)
        settings[name] = value
        situation = Situation(
            settings["decisions"], settings["chance"] / 100, settings["near-miss"] / 100,
            settings["worth-beta"], settings.get("agree", 0) / 100,
        )  # fmt: skip
        found = explore(situation, most=256)
        await curve_is(sections, "lab-worth", "QAlign", found.right["qalign"].mean(axis=1).tolist())
        await curve_is(sections, "lab-worth", CEILING, found.any_of.tolist())
    await press(sections, "lab-budget", "64")
    await text_in(sections, "lab-worth-told", "At least one of 64 is right")
    assert not sections.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_block_moves_help_until_the_fields_copy_each_other(sections) -> None:
    await open_section(sections, "Which move?")
    await text_in(sections, "lab-move-told", "Here block moves help")
    for copies, share, words in ((0, 80, "moves help"), (95, 80, "moves slow the chain")):
        await slide(sections, "lab-copies", copies)
        await slide(sections, "lab-share-blocks", share)
        await text_in(sections, "lab-move-told", words)
        names = which_move.ALONE, which_move.MIXED
        for chain, name in zip(which_move.both(copies, share), names, strict=True):
            await curve_is(sections, "lab-moves", name, distances(chain, 400).tolist())
    assert not sections.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_every_sections_figure_is_on_the_first_screen_and_nothing_jumps(
    visit, toy_app
) -> None:
    page = await visit(f"{toy_app}?tab=lab", height=800)
    await page.wait_for_selector("#lab-target .main-svg")
    plots = ("target", "strip", "flow", "wrong", "densities", "accuracy", "worth", "moves")
    sizes = ((1280, 800), (390, 844))
    for (section, plot), (width, height) in product(zip(SECTIONS, plots, strict=True), sizes):
        await page.set_viewport_size({"width": width, "height": height})
        await open_section(page, section.name)
        await page.evaluate("scrollTo(0, 0)")
        place = page.locator(f"#lab-{plot}")
        before = await place.bounding_box()
        await page.wait_for_function(FITS, arg=f"lab-{plot}")
        box = await place.bounding_box()
        assert box["y"] == before["y"], section.name
        assert box["height"] == before["height"], section.name
        assert box["y"] + box["height"] <= height, section.name


@pytest.mark.asyncio(loop_scope="session")
async def test_an_anchor_opens_its_section_from_any_page_and_from_outside(visit, toy_app) -> None:
    page = await visit(toy_app)
    for anchor, plot in (
        ("worth", "worth"), ("break", "wrong"),
    ):  # fmt: skip
        await page.click("#tab-watch-button")
        await page.evaluate(
            """(anchor) => {
                const link = document.createElement('a');
                link.href = `#lab-section-${anchor}`;
                document.body.append(link);
                link.click();
                link.remove();
            }""",
            anchor,
        )
        await page.wait_for_function(FITS, arg=f"lab-{plot}")
        assert await page.locator(f"#lab-section-{anchor} h2").first.is_visible()
    other = await visit(f"{toy_app}#lab-section-convergence")
    await other.wait_for_function(FITS, arg="lab-strip")
    await other.wait_for_function("location.search.includes('lab-opened=Convergence')")
    assert not await other.evaluate("location.hash")


@pytest.mark.asyncio(loop_scope="session")
async def test_the_numbers_under_a_figure_are_those_of_its_settings(lab) -> None:
    exact = distances(WORLD.chain(1.0), 64)
    await slide(lab, "lab-t", 64)
    await text_in(lab, "lab-convergence-told", "at t = 64")
    await lab.locator("#lab-strip-open").get_by_text("Show the numbers").click()
    best = by_reward(WORLD.chain(1.0))[-1]
    after = float(WORLD.chain(1.0).after(64)[best])
    row = lab.locator("#lab-strip-numbers tbody tr").first
    await row.get_by_text(style.number(after), exact=True).first.wait_for()
    await lab.locator("#lab-distance-open").get_by_text("Show the numbers").click()
    await text_in(lab, "lab-distance-numbers", style.number(float(exact[64])))


@pytest.mark.asyncio(loop_scope="session")
async def test_a_link_shows_what_its_sender_saw(visit, toy_app) -> None:
    page = await visit(f"{toy_app}?tab=lab")
    await pick(page, "lab-lm", "Long-winded")
    await open_section(page, "Beta")
    await slide(page, "lab-beta", 0.6)
    await slide(page, "lab-guess", 37)
    await page.wait_for_function(
        "['lab-opened=Beta', 'lab-lm=', 'lab-beta=0.6', 'lab-guess=37']"
        ".every((part) => location.search.includes(part))"
    )
    assert "lab-rows" not in page.url  # they follow from the preset
    other = await visit(page.url)
    here = at_beta(preset("Long-winded"), 0.6)
    await text_in(other, "lab-beta-told", f"{style.number(here.kl)} nats")
    assert await other.locator("#lab-guess input[type=number]").input_value() == "37"
    assert await other.locator("#lab-lm input").input_value() == "Long-winded"
    assert not page.errors + other.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_the_lab_opens_on_beta_and_links_keep_their_section(visit, toy_app) -> None:
    page = await visit(f"{toy_app}?tab=lab")
    await page.wait_for_selector("#lab-target .main-svg")
    assert await page.locator("#lab-section-convergence").is_hidden()
    assert "lab-" not in page.url
    await open_section(page, "Convergence")
    await page.wait_for_function("location.search === '?tab=lab&lab-opened=Convergence'")
    for link in (page.url, f"{toy_app}?tab=lab&lab-t=3"):  # the second is of an earlier version
        other = await visit(link)
        await other.wait_for_selector("#lab-distance .main-svg")
        assert await other.locator("#lab-section-beta").is_hidden()
        assert not other.errors


@pytest.mark.asyncio(loop_scope="session")
async def test_a_links_bad_value_falls_back_and_is_told(visit, toy_app) -> None:
    page = await visit(f"{toy_app}?tab=lab&lab-opened=Break+it&lab-beta=-3")
    await page.get_by_text("The link's lab-beta “-3” cannot be used here.").wait_for()
    distance = break_it.broken(WORLD, 1.0, MISTAKES["No length ratio"]).distance
    await text_in(page, "lab-break-told", style.number(distance))
    assert not page.errors


CUT = """[...document.querySelectorAll('.lab-plot .xtitle')].filter((node) => {
  const title = node.getBoundingClientRect();
  const plot = node.closest('.lab-plot').getBoundingClientRect();
  return plot.width && (title.left < plot.left || title.right > plot.right);
})"""
"""Titles under figures that are not whole."""


@pytest.mark.asyncio(loop_scope="session")
async def test_every_figure_has_its_numbers_and_the_phone_needs_no_sideways_scrolling(lab) -> None:
    await lab.set_viewport_size({"width": 360, "height": 740})
    plots = ("sweep", "strip", "flow", "wrong", "betas", "accuracy", "worth-map", "moves-map")
    for section, plot in zip(SECTIONS, plots, strict=True):
        await open_section(lab, section.name)
        await lab.locator(f"#lab-{plot}.js-plotly-plot").wait_for()
        await lab.locator(f"#lab-{plot}-open").get_by_text("Show the numbers").wait_for()
        assert await lab.evaluate("document.documentElement.scrollWidth") <= 360
        assert await lab.locator(f"#lab-{plot} .xtitle").count()
        await lab.wait_for_function(f"() => !{CUT}.length")
    await lab.get_by_text("Show the numbers").locator("visible=true").first.click()
    await lab.locator(".lab-table table:visible").first.wait_for()
    assert not lab.errors
