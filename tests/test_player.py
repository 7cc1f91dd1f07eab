"""The chain player in a real browser, alone on a page: what it shows is what the trace says."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import pairwise

import pytest
import pytest_asyncio
from browser import ROOT, standalone
from traces import (
    HOSTILE,
    block_trace,
    hostile_trace,
    long_trace,
    numbers,
    sharper_trace,
    toy_trace,
)

from qalign_core.decide.answers.extraction import extract_number
from qalign_core.errors import InvalidTrace
from qalign_core.record.format import parse_trace
from qalign_core.types import Step

pytestmark = pytest.mark.asyncio(loop_scope="session")

STILL = "autoplay: false"
HITS = "() => [window.hit ?? 0, document.querySelectorAll('img, main script').length]"
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def open_player(visit, trace=None, options=STILL, **how):
    return await visit(standalone(trace or toy_trace(), options=options), **how)


async def shows(page, condition: str) -> None:
    await page.wait_for_function(condition)


async def at(page, t: int, phase: int = 5) -> None:
    await page.wait_for_function(
        "([t, phase]) => { const d = document.querySelector('.qp').dataset;"
        " return d.t == t && d.phase == phase }",
        arg=[t, phase],
    )


@pytest.mark.more
async def test_a_recorded_run_moves_before_any_click(visit):
    page = await open_player(visit, options="", moving=True)
    await shows(page, "api.position.playing && api.position.t >= 2")
    assert page.errors == []


LOOK = """() => {
  const all = (part) => [...document.querySelectorAll(part)].map((node) => node.innerText);
  return { cells: all(".qp-cell-body"), ifs: all(".qp-if"), bead: all(".qp-bead-now").join(),
    verdict: document.querySelector(".qp").dataset.verdict };
}"""


async def look_at_steps(page, trace: str) -> list[tuple[Step, dict]]:
    """Each step after the first draft, and what stands on the page at its end."""
    rows = []
    for step in parse_trace(trace).steps[1:]:
        await page.evaluate(f"api.seek({step.t})")
        await at(page, step.t)
        rows.append((step, await page.evaluate(LOOK)))
    return rows


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def step_pages(stay):
    """What the page says of each step of a toy trace."""
    return await look_at_steps(await open_player(stay), toy_trace())


LANES = "(name) => document.querySelector(`.qp-${name}-row .qp-${name}`).textContent"


async def test_a_block_step_shows_what_is_kept_rewritten_and_kept_again(opened):
    trace = block_trace()
    blocks = [step for step in parse_trace(trace).steps if step.kept_again and step.changed]
    assert {step.accepted for step in blocks} == {True, False}
    page = await opened(trace)
    again = page.locator(".qp-again-row")
    for step in blocks:
        await page.evaluate(f"api.seek({step.t})")
        await at(page, step.t)
        old, new, n = step.current.response.pieces, step.proposal.response.pieces, step.kept_again
        lanes = [await page.evaluate(LANES, name) for name in ("kept", "old", "new", "again")]
        parts = old[: step.index], old[step.index : -n], new[step.index : -n], old[-n:]
        assert lanes == ["".join(part) for part in parts]
        assert await again.is_visible()
        cells = await page.locator(".qp-cell-body").all_inner_texts()
        assert cells[0].startswith(f"i = {step.index} of {len(old)}: a block begins there")
        assert f"; {n} token{'s' * (n > 1)} kept again" in cells[1]
        assert "p(rest|new)/p(rest|old)" in cells[3]
        assert "how well the rest still fits" in cells[3]
    # a step of the paper's move keeps nothing behind the cut
    suffix = next(s for s in parse_trace(trace).steps[1:] if not (s.kept_again or s.refused))
    await page.evaluate(f"api.seek({suffix.t})")
    await at(page, suffix.t)
    assert not await again.is_visible()
    refused = next(step for step in parse_trace(trace).steps if step.refused)
    await page.evaluate(f"api.seek({refused.t})")
    await at(page, refused.t)
    cells = await page.locator(".qp-cell-body").all_inner_texts()
    assert cells[1].startswith(f"No proposal: {refused.refused.reason}.")
    assert await page.locator(".qp-new-row .qp-lane").inner_text() == "refused"
    assert page.errors == []


async def test_each_phase_shows_its_numbers_and_they_agree_with_the_trace(step_pages, opened):
    for step, page in step_pages:
        cells = page["cells"]
        n, new = len(step.current.response), len(step.proposal.response)
        old, proposed = step.current.reward, step.proposal.reward
        assert cells[0].startswith(f"i = {step.index} of {n}, each with probability 1/{n}")
        assert numbers(cells[1])[:3] == [new - step.index, n, new]
        # the score: both rewards and their difference, to the printed digits
        assert f"r(y) = {old:.2f}".replace("-", "−") in cells[2]
        assert f"r(y′) = {proposed:.2f}".replace("-", "−") in cells[2]
        assert f"{proposed - old:+.2f}".replace("-", "−") in cells[2]
        # the formula, with the length ratio as a factor of its own
        raw = math.exp(proposed - old) * n / new
        factors = [math.exp(proposed - old), n / new]
        assert f"× {n}/{new})" in cells[3]
        assert "p′/p" not in cells[3]
        assert f" × {factors[1]:#.3g}) = " in cells[3]
        if 0.001 <= factors[0] < 100:
            assert f"= min(1, {factors[0]:#.3g} × " in cells[3]
        alpha = min(1.0, raw)
        assert alpha == pytest.approx(math.exp(step.log_alpha), rel=1e-9)
        if alpha >= 0.1:
            printed = numbers(cells[3].split(") = ")[-1])[0]
            assert printed == pytest.approx(alpha, abs=5.1e-3)
        # the draw and the verdict
        assert numbers(cells[4].split("u =")[1])[0] == pytest.approx(
            math.exp(step.log_u), abs=5.1e-3
        )
        assert cells[5].startswith("Accepted" if step.accepted else "Rejected")
        assert page["verdict"] == ("yes" if step.accepted else "no")
    # of a sharper target there is a third factor, the core's
    trace = sharper_trace()
    for step, page in await look_at_steps(await opened(trace), trace):
        chance = page["cells"][3]
        old, new = step.current, step.proposal
        factors = [
            math.exp(new.reward - old.reward),
            math.exp(new.response.log_prob - old.response.log_prob),
            len(old.response) / len(new.response),
        ]
        assert min(1.0, math.prod(factors)) == pytest.approx(math.exp(step.log_alpha), rel=1e-4)
        assert "× (p′/p)1 ×" in " ".join(chance.split())
        assert f"= min(1, {' × '.join(f'{x:#.3g}' for x in factors)}) = " in chance


@pytest.mark.more
async def test_the_strip_opens_where_the_action_is_and_keeps_what_it_said(opened):
    trace = toy_trace()
    page = await opened(trace)
    step = next(s for s in parse_trace(trace).steps[1:] if s.changed and s.log_alpha < 0)
    for phase in range(6):
        await page.evaluate(f"(api.seek({step.t}), api.goPhase({phase}))")
        await at(page, step.t, phase)
        open_now = [await b.is_visible() for b in await page.locator(".qp-cell-body").all()]
        # the chance stays beside the coin and the verdict that it leads to
        assert open_now[:5] == [k == phase or 3 <= k < phase for k in range(5)]
        briefs = await page.locator(".qp-strip .qp-brief").all_inner_texts()
        assert [bool(words) for words in briefs] == [k <= phase for k in range(6)]
    assert numbers(briefs[0]) == [step.index, len(step.current.response)]
    assert numbers(briefs[1]) == [len(step.proposal.response) - step.index]
    difference = step.proposal.reward - step.current.reward
    assert numbers(briefs[2]) == [pytest.approx(difference, abs=5.1e-3)]
    assert numbers(briefs[3])[0] == pytest.approx(math.exp(step.log_alpha), abs=5.1e-4)
    assert numbers(briefs[4])[0] == pytest.approx(math.exp(step.log_u), abs=5.1e-4)


async def test_a_text_is_struck_through_only_once_it_has_lost(opened):
    trace = toy_trace()
    page = await opened(trace)
    struck = """(part) => getComputedStyle(document.querySelector(part)).textDecorationLine"""
    for accepted in (True, False):
        step = next(s for s in parse_trace(trace).steps[1:] if s.changed & (s.accepted == accepted))
        for phase in range(6):
            await page.evaluate(f"(api.seek({step.t}), api.goPhase({phase}))")
            await at(page, step.t, phase)
            lost = [await page.evaluate(struck, part) for part in (".qp-old", ".qp-new")]
            if phase < 5:
                assert lost == ["none", "none"]
            else:
                assert lost == (["line-through", "none"] if accepted else ["none", "line-through"])


@pytest.mark.more
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
async def test_the_cut_of_a_long_text_is_in_view(opened, size):
    page = await opened(long_trace(400), width=size[0], height=size[1])
    inside = """(part) => { const pane = document.querySelector('.qp-text').getBoundingClientRect();
        const spans = document.querySelector(part).children;
        const token = spans[part === '.qp-kept' ? spans.length - 1 : 0].getBoundingClientRect();
        return token.top >= pane.top - 1 && token.bottom <= pane.bottom + 1 }"""
    for t in (1, 2, 3):
        for phase, parts in ((0, (".qp-old",)), (5, (".qp-kept", ".qp-old", ".qp-new"))):
            await page.evaluate(f"(api.seek({t}), api.goPhase({phase}))")
            await at(page, t, phase)
            assert [part for part in parts if not await page.evaluate(inside, part)] == []


async def test_a_ratio_above_one_stands_beside_alpha_one(step_pages):
    for step, page in step_pages:
        old, new = step.current, step.proposal
        ratio = math.exp(new.reward - old.reward) * len(old.response) / len(new.response)
        _, above, product = page["cells"][3].partition("before the limit of 1, the product is ")
        assert bool(above) == (ratio >= 1)
        if ratio >= 1:
            assert numbers(product)[0] == pytest.approx(ratio, rel=5.1e-3)


@pytest.mark.more
async def test_a_rewrite_that_begins_as_before_says_how_far(opened):
    trace = toy_trace(64)
    page = await opened(trace)
    later = 0
    for step in parse_trace(trace).steps[1:]:
        old, new = step.current.response.tokens, step.proposal.response.tokens
        both = zip(old, new, strict=False)
        same = next((k for k, (a, b) in enumerate(both) if a != b), len(new)) - step.index
        if not step.changed or same < 2:
            continue
        later += 1
        await page.evaluate(f"(api.seek({step.t}), api.goPhase(1))")
        await at(page, step.t, 1)
        assert f"the first {same} are unchanged" in await page.inner_text(".qp-current")
        assert await page.locator(".qp-same").count() == same
    assert later


async def test_the_panels_agree_with_the_chain_up_to_the_step(opened):
    trace = toy_trace()
    parsed = parse_trace(trace)
    page = await opened(trace)
    for t in (1, 7, 32):
        await page.evaluate(f"api.seek({t})")
        await at(page, t)
        done, states = parsed.steps[1 : t + 1], parsed.states[: t + 1]
        differ = [step.accepted for step in done if step.changed]
        captions = [
            await page.inner_text(f"{panel} .qp-value")
            for panel in ("[data-stage=trace]", ".qp-rate", ".qp-histogram", ".qp-lengths")
        ]
        assert captions[0] == f"now {states[-1].reward:.2f}".replace("-", "−")
        overall = 100 * sum(step.accepted for step in done) / t
        assert numbers(captions[1])[0] == pytest.approx(overall, abs=0.51)
        if differ:
            rate = 100 * sum(differ) / len(differ)
            assert numbers(captions[1])[1] == pytest.approx(rate, abs=0.51)
        mean, alone, *_ = numbers(captions[2])
        assert mean == pytest.approx(sum(s.reward for s in states) / len(states), abs=5.1e-3)
        base = parsed.rewards
        assert alone == pytest.approx(sum(base) / len(base), abs=5.1e-3)
        length, length_alone, *_ = numbers(captions[3])
        lengths = [len(s.response.tokens) for s in states]
        assert length == pytest.approx(sum(lengths) / len(lengths), abs=0.51)
        lengths = [len(s.response.tokens) for s in parsed.pool]
        assert length_alone == pytest.approx(sum(lengths) / len(lengths), abs=0.51)
        shares = await page.locator(".qp-much").all_inner_texts()
        votes = Counter(extract_number(s.response.text) for s in states).most_common(4)
        for text, (_, n) in zip(shares, votes, strict=False):
            assert numbers(text) == [n, pytest.approx(100 * n / len(states), abs=0.51)]


@pytest.mark.parametrize("beta", [0.1, 1.0, 5.0])
async def test_the_histogram_ends_at_its_highest_bar_and_says_what_its_target_is_worth(
    opened, beta
):
    trace = toy_trace(beta=beta)
    rewards = parse_trace(trace).rewards
    weights = [math.exp((r - max(rewards)) / beta) for r in rewards]
    worth = sum(weights) ** 2 / sum(w * w for w in weights)
    page = await opened(trace)
    for t in (1, 7, 32):
        await page.evaluate(f"api.seek({t})")
        await at(page, t)
        paths = await page.locator(".qp-histogram svg > path").evaluate_all(
            "all => all.map((path) => path.getAttribute('d'))"
        )
        tops = [float(y) for path in paths for y in re.findall(r"V(-?[\d.]+)", path or "")]
        assert min(tops) == pytest.approx(8, abs=0.06)
        caption = await page.inner_text(".qp-histogram .qp-value")
        (effective,) = re.findall(r"the target’s curve is worth (\d+) samples?", caption)
        assert abs(int(effective) - worth) <= 0.5
        assert ("too few to draw" in caption) == (worth < 5)
        assert bool(paths[2]) == (worth >= 5)  # bars, the model alone, the target


async def test_a_click_on_the_reward_trace_goes_there_and_burn_in_is_shaded(opened):
    page = await opened(toy_trace())
    await page.evaluate("api.setBurnIn(8)")
    await page.wait_for_selector(".qp-burn")
    box = await page.locator(".qp-seek").first.bounding_box()
    await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 40)
    await shows(page, "api.position.t > 10 && api.position.t < 22")
    t = await page.evaluate("api.position.t")
    await page.locator(".qp-value", has_text=f"{t - 7} states").wait_for()


BOX = """() => {
  const { appearance, backgroundImage } = getComputedStyle(
    document.querySelector(".qp-late input"));
  return [appearance, backgroundImage] }"""


async def test_a_switch_on_the_votes_says_what_leaving_out_early_states_changes(opened):
    trace = (ROOT / "assets" / "runs" / "watch.jsonl").read_text(encoding="utf-8")
    page = await opened(trace)
    states = [extract_number(step.state.response.text) for step in parse_trace(trace).steps]
    for t, changes in ((38, True), (256, False)):
        await page.evaluate(f"api.seek({t})")
        await at(page, t)
        await page.get_by_label("later half only").focus()
        for half in (True, False):
            await page.keyboard.press("Space")  # which plays elsewhere
            box = await page.evaluate(BOX)  # a page around it may style all boxes otherwise
            assert box == ["auto", "none"]
            counted = states[t // 2 : t + 1] if half else states[: t + 1]
            await page.locator(".qp-votes .qp-value", has_text=f"{len(counted)} states").wait_for()
            if half:
                sentence = await page.inner_text(".qp-votes [role=status]")
                assert sentence.startswith(
                    f"Without the first {t // 2} of {t + 1} states (burn-in), "
                )
                (now, share), (before, old) = re.findall(r"(\S+) [✓✗] has (\d+)%", sentence)
                for votes, leader, whole in ((counted, now, share), (states[: t + 1], before, old)):
                    ((answer, n),) = Counter(votes).most_common(1)
                    assert (leader, int(whole)) == (answer, round(100 * n / len(votes)))
                assert (now != before) == changes
            else:
                assert await page.inner_text(".qp-votes [role=status]") == ""
        assert not await page.evaluate("api.position.playing")


@pytest.mark.more
async def test_a_player_in_a_hidden_part_is_drawn_to_size_when_it_is_shown(visit):
    text = standalone(toy_trace(), options=STILL).replace('id="here"', 'id="here" hidden')
    page = await visit(text)
    await page.evaluate("api.seek(3)")
    await at(page, 3)
    await page.evaluate("document.getElementById('here').hidden = false")
    await page.wait_for_function(  # as wide as its panel, less the padding
        """() => { const svg = document.querySelector('.qp-seek');
        const room = svg.parentElement.clientWidth - 28 - svg.getAttribute('width');
        return room >= 0 && room <= 2 }"""
    )


async def test_what_if_shows_the_verdict_of_the_same_u_at_half_and_double_beta(step_pages):
    for step, page in step_pages:
        if not step.changed:
            continue
        difference = step.proposal.reward - step.current.reward
        ratio = math.log(len(step.current.response) / len(step.proposal.response))
        for chip, beta in zip(page["ifs"], (0.5, 1.0, 2.0), strict=True):
            accepted = step.log_u < min(0.0, difference / beta + ratio)
            assert chip.endswith("accepted" if accepted else "rejected")


async def test_the_verdict_is_not_in_the_page_before_its_phase(opened):
    trace = toy_trace()
    page = await opened(trace)
    for step in parse_trace(trace).steps[1:8]:
        for phase in range(5):
            await page.evaluate(f"(api.seek({step.t}), api.goPhase({phase}))")
            await at(page, step.t, phase)
            text = await page.inner_text(".qp-main")
            assert "Accepted" not in text
            assert "Rejected" not in text
            filled = await page.locator(".qp-cell-body").all_inner_texts()
            assert [bool(f.strip()) for f in filled] == [k <= phase for k in range(6)]
            assert (await page.inner_text("[data-stage=votes] .qp-value")).startswith(
                f"{step.t} state"
            )


@pytest.mark.more
async def test_playing_goes_through_the_phases_in_order(visit):
    page = await open_player(visit, moving=True)
    await page.evaluate(
        """() => { window.seen = []; const root = document.querySelector('.qp');
        new MutationObserver(() => { const now = root.dataset.t + '/' + root.dataset.phase;
          if (seen[seen.length - 1] !== now) seen.push(now); })
          .observe(root, { attributes: true }); api.setSpeed(2); api.toggle(true); }"""
    )
    await shows(page, "api.position.t >= 3")
    seen = await page.evaluate("seen")
    order = [tuple(map(int, x.split("/"))) for x in seen if not x.startswith("0/")]
    assert order == sorted(order)


@pytest.mark.more
async def test_back_and_keys_work_only_with_the_focus(visit):
    page = await open_player(visit, moving=True)
    await page.keyboard.press("ArrowRight")
    assert await page.evaluate("api.position.t") == 0
    await page.focus(".qp")
    for keys, t in (
        ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("Shift+ArrowRight", 11),
        ("Shift+ArrowLeft", 1), ("End", 32), ("Home", 0),
    ):  # fmt: skip
        await page.keyboard.press(keys)
        await at(page, t)
    await page.keyboard.press("5")
    await at(page, 1, 4)
    await page.keyboard.press("]")
    assert await page.locator(".qp-select").nth(1).input_value() == "2×"
    await page.keyboard.press("?")
    assert await page.is_visible(".qp-help")
    help_, bar = [await page.locator(name).bounding_box() for name in (".qp-help", ".qp-transport")]
    assert help_["y"] >= 0
    assert help_["y"] + help_["height"] <= bar["y"]  # above the bar, whose edge may be the window's
    await page.keyboard.press("Space")
    assert await page.evaluate("api.position.playing")
    await page.click("[aria-label='Pause']")
    await page.click("[aria-label='Step back']")
    assert not await page.evaluate("api.position.playing")


@pytest.mark.more
async def test_the_menu_and_its_keys_go_to_steps_that_teach(opened):
    trace = toy_trace(64)
    steps = parse_trace(trace).steps[1:]
    page = await opened(trace)
    moves = [s.t for s in steps if s.accepted and s.changed]
    for t in moves[:3]:
        await page.click("text=Jump to")
        await page.get_by_role("button", name="next accepted").first.click()
        await at(page, t)
    await page.focus(".qp")
    worse = [s.t for s in steps if s.accepted and s.proposal.reward < s.current.reward]
    better = [s.t for s in steps if not s.accepted and s.proposal.reward > s.current.reward]
    for key, places in (("w", worse), ("b", better)):
        await page.evaluate("api.seek(0)")
        await at(page, 0)
        for t in [*places[:3]]:
            await page.keyboard.press(key)
            await at(page, t)
    assert worse
    await page.click("text=Jump to")
    await page.keyboard.press("Escape")
    await page.wait_for_selector(".qp-menu", state="hidden")


@pytest.mark.more
async def test_a_jump_that_has_nowhere_to_go_says_so(visit):
    page = await open_player(visit, long_trace(80), moving=True)  # each text is better, and taken
    await page.click("text=Jump to")
    entry = page.locator(".qp-jump", has_text="accepted though worse")
    assert await entry.is_disabled()
    assert "nothing worse has been accepted" in await entry.inner_text()
    await page.focus(".qp")
    await page.keyboard.press("w")
    await page.wait_for_selector(".qp-note >> text=nothing worse has been accepted")
    assert await page.evaluate("api.position.t") == 0


async def test_a_rejected_step_counts_the_old_text_again(step_pages):
    stay = 1
    for step, page in step_pages:
        stay = 1 if step.accepted and step.changed else stay + 1
        assert page["bead"].endswith(f"×{stay}")


@pytest.mark.more
async def test_reduced_motion_shows_a_finished_step_and_waits(visit):
    page = await open_player(visit, options="")
    await at(page, 1)
    assert not await page.evaluate("api.position.playing")
    assert await page.get_attribute(".qp-play", "aria-label") == "Play"


WATCH_MOTION = """(speed) => { window.moved = {}; const animate = Element.prototype.animate;
  Element.prototype.animate = function (frames, timing) {
    moved[this.classList[0] ?? this.parentElement.classList[0]] = timing.duration;
    return animate.call(this, frames, timing); };
  api.setSpeed(speed); api.toggle(true); }"""


@pytest.mark.more
@pytest.mark.parametrize(("speed", "reduced"), [(1, False), (4, False), (1, True)])
async def test_cause_moves_into_effect_unless_it_is_fast_or_unwanted(visit, speed, reduced):
    trace = toy_trace()
    page = await open_player(visit, trace, moving=not reduced)
    steps = parse_trace(trace).steps
    # a step that is rejected, and one that takes another text
    t = next(s.t for s, n in pairwise(steps) if not s.accepted and n.accepted and n.changed)
    await page.evaluate(f"api.seek({t - 1})")
    await page.evaluate(WATCH_MOTION, speed)
    await shows(page, f"api.position.t >= {t + 2}")
    moved = await page.evaluate("moved")
    if speed < 4 and not reduced:
        assert {"qp-flyer", "qp-new-row", "qp-bead", "qp-plus"} <= set(moved)
        assert all(150 <= duration <= 400 for duration in moved.values())
    else:
        assert moved == {}
    # where it ends is there in any case
    await page.evaluate("(api.seek(5), api.goPhase(4))")
    await at(page, 5, 4)
    assert await page.locator(".qp-pending").get_attribute("d") != ""
    await page.evaluate("api.goPhase(5)")
    await at(page, 5)
    assert await page.locator(".qp-pending").get_attribute("d") == ""
    assert await page.locator(".qp-plus").count() == 1
    await page.wait_for_selector(".qp-flyer", state="detached")


@pytest.mark.more
@pytest.mark.parametrize("dark", [False, True])
async def test_the_page_fits_360_pixels_light_and_dark(visit, dark):
    page = await visit(
        standalone(toy_trace(), dark=dark, options=STILL), width=360, height=740, dark=dark
    )
    for tab in ("tree", "lineage", "table"):
        await page.evaluate(f"(api.seek(9), api.openTab('{tab}'))")
        await at(page, 9)
        assert await page.evaluate(WIDER) <= 0
    small = await page.evaluate(
        """() => [...document.querySelectorAll('.qp button, .qp select')]
        .filter((b) => b.offsetParent && b.getBoundingClientRect().height < 44)
        .map((b) => b.textContent || b.title)"""
    )
    assert small == []
    ink = await page.evaluate("getComputedStyle(document.querySelector('.qp')).color")
    assert (sum(map(int, ink[4:-1].split(","))) > 384) == dark


@pytest.mark.more
async def test_steps_are_spoken_when_paused_and_silent_when_playing(opened):
    page = await opened(toy_trace())
    await page.evaluate("api.seek(3)")
    spoken = await page.inner_text("[aria-live='polite']")
    assert spoken.startswith("Step 3 of 32.")
    assert "ccepted" in spoken or "ejected" in spoken
    await page.evaluate("api.toggle(true)")
    await shows(page, "api.position.t >= 4")
    assert await page.inner_text("[aria-live='polite']") == spoken


async def test_tree_lineage_and_table_agree_with_the_chain(opened):
    trace = toy_trace(64)
    parsed = parse_trace(trace)
    page = await opened(trace)
    counts = await page.evaluate(
        """() => { const { leaves } = QAlignInside.prefixTree(api.trace.chains);
        return { times: leaves.map(({ time }) => time).filter((n) => n),
          texts: leaves.length, rejected: leaves.reduce((n, leaf) => n + leaf.rejected, 0),
          writers: QAlignInside.writers(api.trace.chains[0], 64) }; }"""
    )
    states = [s.response.tokens for s in parsed.states]
    assert sorted(counts["times"]) == sorted(states.count(x) for x in set(states))
    assert counts["texts"] == len({s.proposal.response.tokens for s in parsed.steps})
    assert counts["rejected"] == sum(not s.accepted for s in parsed.steps)
    written: list[int] = []
    for step in parsed.steps:
        if step.accepted:
            rest = len(step.proposal.response) - step.index
            written = written[: step.index] + [step.t] * rest
    assert counts["writers"] == written
    await page.evaluate("(api.seek(20), api.openTab('table'))")
    await page.wait_for_selector("tr[aria-current]")
    cells = await page.locator("tr[aria-current] > *").all_inner_texts()
    assert cells[0] == "20"
    assert cells[1] == f"{parsed.steps[20].index} of {len(parsed.steps[20].current.response)}"


MIDDLE = """() => { const canvas = document.querySelector('.qp-river canvas');
  const { left, top, height } = canvas.getBoundingClientRect();
  const data = canvas.getContext('2d').getImageData(60, 0, 1, canvas.height).data;
  const rows = [...Array(canvas.height).keys()].filter((y) => data[4 * y + 3]);
  return [left + 60, top + rows[rows.length >> 1] * height / canvas.height]; }"""
PAINTED = """() => { const canvas = document.querySelector('.qp-river canvas');
  return canvas?.width && canvas.getContext('2d').getImageData(60, 0, 1, canvas.height).data
    .some((part) => part); }"""


PINCH = """() => { const canvas = document.querySelector('.qp-river canvas');
  const { left, top } = canvas.getBoundingClientRect();
  const high = () => document.querySelector('.qp-river-room').offsetHeight;
  const two = (kind, apart) => canvas.dispatchEvent(new TouchEvent(kind, { bubbles: true,
    cancelable: true, touches: [-apart, apart].map((x, identifier) => new Touch({ identifier,
      target: canvas, clientX: left + 200 + x, clientY: top + 100 })) }));
  const before = high();
  const kept = [two('touchstart', 20), two('touchmove', 40)];
  const larger = high();
  two('touchmove', 1);
  return [before, larger, high(), kept]; }"""


@pytest.mark.more
async def test_a_press_on_a_branch_of_the_tree_goes_to_its_steps_and_keys_go_along_it(opened):
    trace = toy_trace(64, chains=2)
    parsed = parse_trace(trace)
    page = await opened(trace)
    await page.evaluate("(api.seek(20), api.openTab('tree'))")
    await page.wait_for_function(PAINTED)
    await page.locator(".qp-river").scroll_into_view_if_needed()
    await page.mouse.click(*await page.evaluate(MIDDLE))
    branch = page.locator(".qp-river-branch")
    await branch.get_by_text("states").wait_for()
    assert await page.evaluate("api.position.t") < 20
    of = re.findall(r"(\d+) states of (\d+)", await branch.inner_text())
    assert of[0][1] == str(len(parsed.states))
    await page.locator(".qp-river").focus()
    # along the widest branches, one ends at the text of most states
    for _ in range(30):
        await page.keyboard.press("ArrowRight")
    most = Counter(s.response.tokens for s in parsed.states).most_common(1)[0][1]
    spoken = await page.locator(".qp-view [aria-live]").inner_text()
    assert int(re.search(r"(\d+) states? of", spoken)[1]) <= most
    assert "reward" in spoken
    await page.keyboard.press("Enter")
    t, chain = await page.evaluate("[api.position.t, api.position.chain]")
    assert parsed.chains[chain][t].proposal.response.text[-20:] in (
        await page.inner_text(".qp-river-text")
    ).replace("<eos>", "")
    # the same as a table, for whoever does not see it
    await page.get_by_text("The same as a table").click()
    await page.locator(".qp-river-table tbody tr").first.wait_for()
    rows = await page.locator(".qp-river-table tbody tr").all_inner_texts()
    assert len(rows) == min(30, len({s.response.tokens for s in parsed.states}))
    assert rows[0].split("\t")[3] == str(most)
    # two fingers size the tree, and not the page
    before, larger, smaller, kept = await page.evaluate(PINCH)
    assert larger > 1.3 * before
    assert smaller == before
    assert kept == [False, False]


@pytest.mark.more
async def test_two_chains_can_be_chosen(opened):
    page = await opened(toy_trace(12, chains=2))
    line = "document.querySelector('.qp-state-line').getAttribute('d')"
    first = await page.evaluate(line)
    await page.select_option("select[aria-label='Chain']", "1")
    await shows(page, "api.position.chain === 1")
    await page.wait_for_function(f"(first) => {line} !== first", arg=first)
    assert page.errors == []


async def test_several_chains_share_one_axis_and_one_vote_and_their_agreement_is_told(opened):
    trace = toy_trace(24, chains=3)
    parsed = parse_trace(trace)
    page = await opened(trace)
    await page.evaluate("api.seek(20)")
    await at(page, 20)
    assert await page.locator(".qp-other-line").count() == 2
    states = [
        [extract_number(s.state.response.text) for s in parsed.steps if s.chain == k and s.t <= 20]
        for k in range(3)
    ]
    pooled = Counter(answer for chain in states for answer in chain)
    counts = [numbers(x)[0] for x in await page.locator(".qp-much").all_inner_texts()]
    assert counts[: len(pooled)] == sorted(pooled.values(), reverse=True)[:4]
    sentence = await page.inner_text(".qp-agree")
    leading = {Counter(chain).most_common(1)[0][0] for chain in states}
    assert sentence.startswith("All 3 chains say") == (len(leading) == 1)
    key = "[data-stage=trace] .qp-key >> text=other chains"
    assert await page.locator(key).is_visible()
    # a key names only what is drawn
    await page.evaluate("(text) => api.open(text)", hostile_trace())
    await page.locator(key).wait_for(state="hidden")
    assert (await page.inner_text(".qp-histogram .qp-key")).split() == ["■", "chain"]


async def test_cost_and_worth_are_on_the_stage(opened):
    trace = toy_trace(24)
    page = await opened(trace)
    for t in (0, 9, 24):
        await page.evaluate(f"api.seek({t})")
        await at(page, t)
        steps = parse_trace(trace).steps[: t + 1]
        written = sum(len(s.proposal.response) - s.index for s in steps)
        assert numbers(await page.inner_text(".qp-summary"))[0] == written
    assert "weighted vote" in await page.inner_text(".qp-summary")
    open_ended = sharper_trace().replace('"extractor":"number"', '"extractor":null')
    await page.evaluate("(text) => api.open(text)", open_ended)  # it has no answers to count
    await shows(page, "document.querySelector('.qp-summary').innerText.includes('typical')")
    assert "vote" not in await page.inner_text(".qp-summary")


async def test_where_answers_are_read_texts_without_one_are_votes_for_none(opened):
    trace = sharper_trace()  # a question about a number, answered with letters
    page = await opened(trace)
    votes = page.locator(".qp-votes")
    assert "Votes: one for every state" in await votes.inner_text()
    assert "no answer" in await votes.inner_text()
    page = await opened(trace.replace('"extractor":"number"', '"extractor":null'))
    assert "How long it stayed at each text" in await votes.inner_text()


@pytest.mark.parametrize("way", ["recorded", "live", "uploaded"])
async def test_hostile_texts_are_shown_and_never_run(visit, way):
    trace = hostile_trace()
    if way == "recorded":
        page = await open_player(visit, trace)
    else:
        page = await open_player(visit)
        argument = trace if way == "live" else [trace]
        await page.evaluate("(x) => Array.isArray(x) ? api.open(x[0]) : api.stream(x)", argument)
    await page.evaluate("(api.toggle(false), api.seek(1))")
    await at(page, 1)
    for tab in ("tree", "lineage", "table"):
        await page.evaluate(f"api.openTab('{tab}')")
        await page.wait_for_selector(".qp-view > *")
    proposal = await page.evaluate("document.querySelector('.qp-new').textContent")
    for text in HOSTILE:
        literal = text.replace("\u202e", "⟨U+202E⟩").replace("\u2066", "⟨U+2066⟩")
        assert literal.replace("\u0000", "␀") in proposal
    assert HOSTILE[0] in await page.inner_text(".qp-prompt")
    assert await page.evaluate(HITS) == [0, 0]
    assert await page.evaluate(WIDER) <= 0
    assert page.errors == []


def edited(**changes):
    lines = toy_trace(4).splitlines()
    for number, change in changes.items():
        k = int(number[1:])
        lines[k] = change(lines[k])
    return "\n".join(lines)


def with_(**changes):
    return lambda line: json.dumps(json.loads(line) | changes)


def steps_of(trace: str) -> list[int]:
    return [k for k, line in enumerate(trace.splitlines()) if '"type":"step"' in line]


FIRST, SECOND = steps_of(toy_trace(4))[:2]
BROKEN = {
    "not a trace": "hello",
    "another version": edited(l0=with_(version=9)),
    "no number": edited(**{f"l{SECOND}": with_(reward="1")}),
    "not finite": edited(**{f"l{SECOND}": lambda s: s.replace('"reward":', '"reward":NaN,"x":')}),
    "an index outside": edited(**{f"l{SECOND}": with_(index=9999)}),
    "a step twice": edited(**{f"l{SECOND}": with_(t=0)}),
    "a piece too few": edited(**{f"l{SECOND}": with_(pieces=["x"] * 999)}),
    "no tokens": edited(**{f"l{SECOND}": with_(tokens=[], pieces=[])}),
    "a false verdict": edited(**{f"l{SECOND}": with_(log_alpha=-2.0, log_u=-1.0, accepted=True)}),
    "an id beyond all": edited(**{f"l{SECOND}": with_(tokens=[2**60], pieces=["x"])}),
    "an id below 0": edited(**{f"l{SECOND}": with_(tokens=[-1], pieces=["x"])}),
    "400 digits": edited(**{f"l{SECOND}": with_(reward=10**400)}),
    "hardly finite": edited(**{f"l{SECOND}": with_(reward=1e308)}),
    "yes for a number": edited(**{f"l{SECOND}": with_(reward=True)}),
    "a cost of 400 digits": edited(**{f"l{SECOND}": with_(cost=[10**400, 0, 0, 0, 0])}),
    "a number for yes": edited(**{f"l{SECOND}": with_(finished=1)}),
    "half a line": edited(**{f"l{SECOND}": lambda s: s[: len(s) // 2]}),
    "empty": "",
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_file_gets_one_sentence_and_changes_nothing(opened, kind):
    with pytest.raises(InvalidTrace):  # the core refuses it too: one format, two readers
        parse_trace(BROKEN[kind])
    page = await opened(toy_trace())
    await page.evaluate("api.seek(7)")
    sentence = await page.evaluate(
        "(text) => { try { api.open(text); return '' } catch (e) { return e.message } }",
        BROKEN[kind],
    )
    assert sentence.endswith(".")
    assert sentence.count(". ") <= 1
    assert await page.evaluate("[api.position.t, api.position.last]") == [7, 32]


@pytest.mark.parametrize("text", ["{}\n", "half a li", "[" * 9999])
async def test_a_recorded_run_that_is_none_is_said_in_one_sentence(visit, text):
    page = await visit(standalone(text, options=STILL))
    await page.get_by_text("This trace cannot be shown. Line 1").wait_for()


async def test_a_growing_run_shows_only_what_has_arrived_and_stop_keeps_it(visit):
    lines = toy_trace(20).splitlines(keepends=True)
    page = await open_player(visit)
    await page.evaluate("(x) => api.stream(x)", "".join(lines[:8]))
    last = await page.evaluate("api.position.last")
    assert 0 < last < 8
    await page.evaluate("(x) => api.stream(x)", "".join(lines[:14]) + lines[14][:20])
    assert await page.evaluate("api.position.last") > last
    await page.evaluate("api.stop()")
    await shows(page, "document.querySelector('.qp-top').innerText.includes('stopped')")
    await page.evaluate("api.seek(3)")
    await at(page, 3)


async def test_a_file_opened_while_a_run_goes_on_stays_until_the_next_run(visit):
    run, file = toy_trace(20), toy_trace(6)
    lines = run.splitlines(keepends=True)
    page = await open_player(visit)
    await page.evaluate("(x) => api.stream(x)", "".join(lines[:8]))
    await page.evaluate("(x) => api.open(x, 'Opened file')", file)
    await page.evaluate("(x) => api.stream(x)", "".join(lines[:14]))
    assert await page.evaluate("[api.position.source, api.position.last]") == ["file", 6]
    await page.evaluate("(x) => { api.expect(null); api.stream(x) }", run)
    assert await page.evaluate("[api.position.source, api.position.last]") == ["live", 20]
