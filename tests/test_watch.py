"""The Watch page in a real browser: live runs of toy models, links, settings, visitors apart."""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate

import pytest
from browser import API, SET
from traces import hostile_trace, toy_trace

from components.watch.gallery import WATCH
from qalign_core import Target, best_of_n, majority_vote, weighted_majority_vote
from qalign_core.decide.answers.graders import get_grader
from qalign_core.record.format import parse_trace
from qalign_core.record.store import load_trace

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def run_until(page, steps: int) -> None:
    await page.click("#watch-run")
    await page.wait_for_function(
        f"{API}.position.source === 'live' && {API}.position.last >= {steps}"
    )


BOXES = """() => Object.fromEntries([...document.querySelectorAll('#watch [data-stage]')]
  .map((part) => { const { left, top, right, bottom } = part.getBoundingClientRect();
  return [part.dataset.stage, [left, top, right, bottom]] }))"""
DESKTOPS = ((1280, 800), (1920, 1080))
STAGE = {"problem", "text", "chance", "verdict", "votes", "trace", "transport"}


def covering(boxes: dict[str, list[float]]) -> list[str]:
    """The parts of the stage that the transport lies over."""
    left, top, right, bottom = boxes["transport"]
    return [
        name
        for name, (x, y, x2, y2) in boxes.items()
        if name != "transport" and x < right and x2 > left and y < bottom and y2 > top
    ]


async def sized(page, width, height):
    """A window of this size, once the page has been drawn in it."""
    await page.set_viewport_size({"width": width, "height": height})
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


async def turned(page, t, phase):
    """The recorded run at this phase of this step."""
    await page.evaluate(f"({API}.seek({t}), {API}.goPhase({phase}))")
    await page.wait_for_selector(f".qp[data-t='{t}'][data-phase='{phase}']")


WHOLE = """(n) => {
  const lanes = [...document.querySelectorAll('#watch .qp-lane-text')].filter((lane) =>
    lane.clientHeight && getComputedStyle(lane).display !== 'inline').map((lane) => {
      const line = parseFloat(getComputedStyle(lane).lineHeight);
      return [lane.clientHeight / line, Math.round(lane.scrollHeight / line)] });
  return lanes.length >= n && lanes.every(([seen, there]) =>
    Math.abs(seen - Math.round(seen)) < 0.1 && Math.round(seen) >= Math.min(2, there)) }"""
"""At least n texts are shown in lanes, each by whole lines: all that it has, or two at least."""


async def boxes_of_phases(page):
    """Where the parts of the stage are in each phase of a step; all lanes show whole lines."""
    for t, phase in ((1, 1), (1, 3), *((7, phase) for phase in range(6))):
        await turned(page, t, phase)
        if phase in (1, 3, 5):  # a rewrite plays: two texts at least are shown
            await page.wait_for_function(WHOLE, arg=3)
        if t == 7:
            yield await page.evaluate(BOXES)


@pytest.mark.more
async def test_the_stage_is_one_window_of_whole_lines_and_the_transport_covers_nothing(
    watch,
):
    page = watch
    for width, height in DESKTOPS:
        await sized(page, width, height)
        async for boxes in boxes_of_phases(page):
            assert set(boxes) == STAGE
            for name, (left, top, right, bottom) in boxes.items():
                assert right - left > 100, name
                assert bottom - top > 20, name
                assert 0 <= left < right <= width, name
                assert 0 <= top < bottom <= height, name
            assert covering(boxes) == []
        main = await page.locator(".qp").bounding_box()
        left, right = main["x"], width - main["x"] - main["width"]
        assert abs(left - right) <= 16  # centred, but for a scroll bar
        assert main["width"] >= min(width, 1760) - 72  # and the width is used
    # nor do several chains that disagree, and a note of some lines, push it out
    await page.evaluate(f"(text) => {API}.open(text, 'Three chains')", toy_trace(chains=3))
    await page.evaluate(f"({API}.seek(20), {API}.tell('A note of a few lines. '.repeat(16), true))")
    await page.wait_for_function("document.querySelector('.qp').dataset.t === '20'")
    for width, height in DESKTOPS:
        await sized(page, width, height)
        boxes = await page.evaluate(BOXES)
        assert all(top >= 0 and bottom <= height for _, top, _, bottom in boxes.values()), boxes
        assert covering(boxes) == []
    edge = (await page.locator(".qp").bounding_box())["x"]  # where every page begins
    await page.click("#tab-learn-button")
    await page.locator("ol.learn-list").wait_for()
    learn = await page.locator("ol.learn-list").bounding_box()
    assert learn["x"] == pytest.approx(edge, abs=1)


SUMMARY = (
    *("Cost so far:", "Can I trust all 256 steps?", "When is a chain worth it?"),
    "Can this step be repeated?",
)
"""The sentences on the stage, by how they begin."""


async def check_summary(page):
    """Cost, trust, worth and votes are on the first screen, whole."""
    lines = page.locator(".qp-summary p")
    await lines.get_by_text("Only roughly").wait_for()
    # as narrow as beside a scroll bar, which this browser hides
    await page.set_viewport_size({"width": 1265, "height": 800})
    votes = page.locator(".qp-votes")
    for t in (1, 256):
        await turned(page, t, 5)
        for text, line in zip(SUMMARY, await lines.all(), strict=True):
            assert (await line.inner_text()).startswith(text)
            box = await line.bounding_box()
            assert 0 <= box["y"] < box["y"] + box["height"] <= 800
            assert await line.evaluate("(p) => p.scrollWidth <= p.clientWidth")
            assert await line.evaluate("(p) => parseFloat(getComputedStyle(p).fontSize) >= 14")
        assert "more samples can bring a wrong, overrated text" in await votes.inner_text()
        assert await votes.evaluate("(one) => one.scrollHeight <= one.clientHeight")


OWN_CLIPS = """[...document.querySelectorAll(".qp-seek")].map((svg) => {
  const clip = svg.querySelector("[clip-path]").getAttribute("clip-path");
  return svg.contains(document.getElementById(clip.slice(5, -1))) })"""
"""Whether each chart over steps hides later steps by its own clip, not by another chart's."""


@pytest.mark.more
async def test_the_cost_counts_a_rewrite_from_its_phase_and_the_chart_shows_samples_before_steps(
    watch,
):
    page, trace = watch, load_trace(WATCH)
    draft, first = (step.cost.generated for step in trace.steps[:2])
    spent = list(accumulate(sample.cost.generated for sample in trace.pool))
    for phase in range(6):
        await turned(page, 1, phase)
        tokens = draft + first * (phase > 0)
        n = max(1, sum(each <= tokens for each in spent))
        assert f"{tokens} tokens, with" in await page.inner_text(".qp-summary")
        assert f"{n} sample{'s' * (n > 1)}." in await page.inner_text(".qp-votes")
    await page.evaluate(f"{API}.seek(0)")
    bars = page.locator("[data-stage=trace] .qp-base-ticks")
    first = page.locator("[data-stage=trace] .qp-head")
    samples, step = await bars.bounding_box(), await first.bounding_box()
    assert samples["width"] > 10
    assert samples["height"] > 40
    assert samples["x"] + samples["width"] <= step["x"]
    key = await page.inner_text("[data-stage=trace] .qp-key")
    assert "model alone" in key
    assert await page.evaluate(OWN_CLIPS) == [True, True]


STOP = """(k) => {
  const { now } = QAlignLearn, { t, phase } = document.querySelector('#watch .qp').dataset;
  return now?.k === k && +t === now.at.step && +phase === now.at.phase
    && document.querySelector('.learn-highlight')?.matches(now.highlight) }"""
PLACES = """() => ({
  panel: document.querySelector('.learn-panel').offsetHeight,
  stage: document.querySelector('#watch .qp').getBoundingClientRect().top })"""
SENTENCES = ["A language model rewrites its own answer", "Run it live"]
TOPS = """(said) => {
  const seen = [...document.querySelectorAll('p, button')].filter((n) => n.checkVisibility(
    { visibilityProperty: true }) && n.getBoundingClientRect().height);
  return Object.fromEntries(said.map((words) => [words, seen.filter((n) =>
    n.textContent.includes(words)).map((n) => n.getBoundingClientRect().top)])) }"""
"""Where what is said is seen."""
SIZES = ((1280, 800), (390, 844))


@pytest.mark.more
async def test_in_the_first_pass_the_page_does_not_jump_and_all_is_on_the_first_screen(
    visit, toy_app
):
    page = await visit(toy_app, first=True)
    for width, height in SIZES:
        await sized(page, width, height)
        places = []
        for k in range(8):
            await page.wait_for_function(STOP, arg=k)
            places.append(await page.evaluate(PLACES))
            boxes = await page.evaluate(BOXES)
            stages = STAGE if width > 1000 else {"problem", "text", "votes" if k == 7 else "chance"}
            for name in stages - ({"verdict"} if k == 0 else set()):
                _, top, _, bottom = boxes[name]
                assert places[k]["panel"] <= top + 1, (k, name)
                assert bottom <= height, (k, name)
            assert await page.evaluate(WHOLE, 1 if k == 0 else 0 if k == 1 else 3), (width, k)
            for sentence, tops in (await page.evaluate(TOPS, SENTENCES)).items():
                assert len(tops) == 1, (k, sentence)
                assert 0 <= tops[0] < places[k]["panel"], (k, sentence)
            if k < 7:
                await page.click(".learn-next")
        assert places == [places[0]] * 8
        for _ in range(7):
            await page.click(".learn-back:text-is('Back')")
    await page.wait_for_function(STOP, arg=0)
    await check_summary(page)  # the tour takes room of the screen
    await page.mouse.move(200, 20)  # over the tour
    await page.mouse.wheel(0, 200)
    await page.wait_for_function("scrollY > 0")
    seed = await page.evaluate(f"{API}.trace.header.seed")
    await page.locator(".learn-panel").get_by_text("Run it live").click()
    await page.wait_for_function(  # the run that the lesson showed, not one of a new seed
        f"{API}.position.source === 'live' && {API}.trace.header.seed === {seed}"
    )
    assert await page.locator(".learn-panel").count() == 0
    await page.click("#watch-stop")
    await page.wait_for_selector("#watch .q-status[data-state=stopped]")
    await page.click("#watch-run")  # from here on each run has a new seed again
    await page.wait_for_function(
        f"{API}.position.source === 'live' && {API}.trace.header.seed !== {seed}"
    )


LATE = """state => {
    const line = document.querySelector(".q-status");
    const props = { value: JSON.stringify({ state, text: "It goes on." }) };
    QAlignShell.status(line, props);
    return [line.dataset.state, line.innerText, JSON.parse(props.value).state];
}"""


async def test_run_streams_steps_stop_keeps_them_and_a_new_problem_is_run(watch):
    page = watch
    await page.click("#watch-settings")
    drawer = page.locator("#watch-drawer")
    await drawer.get_by_text("More", exact=True).click()
    for label, value in (("number input for Steps", "1024"), ("Pool", "64")):
        box = drawer.get_by_label(label)
        await box.fill(value)
        await box.press("Enter")
    await drawer.get_by_role("button", name="Close").click()
    await run_until(page, 32)
    assert "Sampling" in await page.inner_text(".q-status")
    await page.click("#watch-stop")
    await page.wait_for_function("document.querySelector('.q-status').dataset.state === 'stopped'")
    # the steps that were on their way still come
    await page.wait_for_function(f"""() => document.querySelector(".qp-top").innerText.includes(
        `stopped after ${{{API}.position.last}} of 1024 steps`)""")
    last = await page.evaluate(f"{API}.position.last")
    assert 32 <= last < 1024
    assert not await page.evaluate(f"{API}.position.playing")  # and it says how to play it
    assert "▶ plays them" in await page.inner_text(".q-status")
    for state in ("loading", "sampling"):  # what the run said before it ended may come after that
        was, text, value = await page.evaluate(LATE, state)
        assert (was, value) == ("stopped", "stopped")  # the server reads the value
        assert "▶ plays them" in text
    assert await page.evaluate(LATE, "finished") == ["finished", "It goes on.", "finished"]
    await page.evaluate(f"{API}.seek(20)")
    await page.wait_for_function("document.querySelector('.qp').dataset.t === '20'")
    # one step against the test's own arithmetic
    text = await page.evaluate(f"{API}.text")
    step = parse_trace(text).steps[20]
    beta = parse_trace(text).header.run.beta
    ratio = math.exp((step.proposal.reward - step.current.reward) / beta)
    ratio *= len(step.current.response) / len(step.proposal.response)
    assert step.log_alpha == pytest.approx(min(0.0, math.log(ratio)), abs=1e-12)
    assert step.accepted == (math.exp(step.log_u) < ratio)
    word = await page.inner_text(".qp-word")
    assert word.strip() == ("Accepted" if step.accepted else "Rejected")
    assert await page.evaluate(f"{API}.position.last") == last
    # a new problem has a known answer
    await page.click("#watch-new")
    await page.wait_for_function(
        "document.querySelector('.q-status').innerText.startsWith('Next run:')"
    )
    problem = (await page.inner_text(".q-status")).removeprefix("Next run: ").strip()
    await page.wait_for_function(f"{API}.position.source === 'next'")
    await run_until(page, 1)
    header = parse_trace(await page.evaluate(f"{API}.text")).header
    assert re.sub(r"\s+", " ", header.run.prompt) == re.sub(r"\s+", " ", problem)
    assert header.run.reference is not None
    assert page.errors == []


async def test_two_visitors_do_not_mix(watch, visit, toy_app):
    pages = [watch, await visit(toy_app)]
    for page, seed in zip(pages, (11, 12), strict=True):
        await page.evaluate(SET, {"steps": 12, "pool": 2})
        await page.click("#watch-settings")
        await page.locator("#watch-drawer").get_by_label("Seed").fill(str(seed))
        await page.locator("#watch-drawer").get_by_label("Seed").press("Tab")
    for page in pages:
        await page.click("#watch-run")
    for page, seed in zip(pages, (11, 12), strict=True):
        await page.wait_for_function(f"{API}.trace.end && {API}.position.source === 'live'")
        trace = parse_trace(await page.evaluate(f"{API}.text"))
        assert trace.header.run.seed == seed
        assert [s.t for s in trace.steps] == list(range(trace.header.run.steps + 1))
        header = trace.header
        expected = parse_trace(toy_trace(header.run.steps, seed=seed, beta=header.run.beta))
        assert [s.proposal.reward for s in trace.steps][1:] == [
            s.proposal.reward for s in expected.steps
        ][1:]


@pytest.mark.more
async def test_each_run_has_a_new_seed_until_one_is_set_and_the_menu_tells_how_long_it_took(
    watch,
):
    page = watch
    # without motion the recorded run waits for play
    await page.wait_for_function(f"{API}.position.t === 1 && !{API}.position.playing")
    await page.evaluate(SET, {"steps": 12, "pool": 2})
    seeds = []
    for _ in range(2):
        await page.click("#watch-run")
        await page.wait_for_function(
            f"{API}.position.source === 'live' && {API}.trace.end"
            f" && !{seeds}.includes({API}.trace.header.seed)"
        )
        # and the end of a live run is shown
        await page.wait_for_function(f"{API}.position.t === {API}.position.last")
        seeds.append(parse_trace(await page.evaluate(f"{API}.text")).header.run.seed)
        await page.wait_for_selector(f".q-status >> text=seed {seeds[-1]}")
        await page.wait_for_function(f"location.search.includes('seed={seeds[-1]}')")
    await page.click("#watch-settings")
    await page.locator("#watch-drawer").get_by_label("Seed").fill(str(seeds[0]))
    await page.locator("#watch-drawer").get_by_label("Seed").press("Tab")
    await page.click("#watch-run")
    await page.wait_for_function(f"{API}.trace.end && {API}.trace.header.seed === {seeds[0]}")
    await page.locator("#watch-lm input").focus()
    await page.wait_for_function(
        "/12 steps took \\d+ s here/.test(document.querySelector('#watch-lm').innerText)"
    )


@pytest.mark.more
async def test_a_live_run_outlives_its_page_that_is_loaded_again(visit, toy_app):
    page = await visit(toy_app)
    await page.evaluate(SET, {"steps": 1024, "seed": 4})
    await page.click("#watch-run")
    await page.wait_for_function(f"{API}.position.source === 'live' && {API}.position.last > 2")
    text = await page.evaluate(f"{API}.text")

    async def go_back() -> None:
        await page.goto(f"{toy_app}?step=2")
        await page.wait_for_selector(".qp-origin >> text=Recorded run", state="attached")
        await page.reload()  # this page has not shown the run
        await page.wait_for_selector(".qp-origin >> text=Recorded run", state="attached")
        await page.go_back()

    for load_again in (page.reload, page.reload, go_back):
        await load_again()
        await page.wait_for_selector(".qp", state="attached")
        await page.wait_for_function(f"{API}.position.source === 'file' && {API}.position.t > 2")
        assert (await page.evaluate(f"{API}.text")).startswith(text)
        await page.get_by_text(
            "The page was loaded again. The steps that were drawn before"
        ).wait_for()
    await page.goto(toy_app)  # another visit, not the same page again
    await page.wait_for_selector(".qp-origin >> text=Recorded run")
    assert (await page.evaluate(f"{API}.text")) == WATCH.read_text("utf-8")


async def test_a_run_that_is_refused_says_why_and_nothing_else(watch):
    await watch.evaluate(SET, {"move": ""})
    await watch.click("#watch-run")
    line = watch.locator("#watch .q-status[data-state=failed]")
    await line.wait_for()
    assert (await line.inner_text()).endswith("each weight above 0, but the field is empty")


@pytest.mark.more
async def test_a_link_restores_run_step_of_a_chain_and_reading_and_reports_bad_values(
    visit, toy_app
):
    run = "prompt=Tom+has+5+eggs.+How+many%3F&beta=0.5&seed=99&steps=12&chains=3&pool=2"
    page = await visit(f"{toy_app}?{run}&step=9&chain=2&extractor=choice&rm=nonsense")
    await page.wait_for_function("document.querySelector('.qp-note').textContent.length > 0")
    note = await page.inner_text(".qp-note")
    assert "value “nonsense” of “Reward model” cannot be used" in note
    assert "other settings are in place. Press “Run it live”" in note
    await page.click("#watch-settings")
    field = page.locator("#watch-extractor input")
    assert await field.input_value() == "Choice letters"
    await page.locator("#watch-drawer").get_by_role("button", name="Close").click()
    await page.click("#watch-run")
    await page.wait_for_function(f"{API}.position.source === 'live' && {API}.position.t === 9")
    assert await page.evaluate(f"{API}.position.chain") == 1
    live = f"{API}.trace.end && {API}.position.source === 'live'"
    await page.wait_for_function(live)
    run = parse_trace(await page.evaluate(f"{API}.text")).header.run
    assert (run.prompt, run.beta, run.seed, run.steps, run.extractor) == (
        "Tom has 5 eggs. How many?", 0.5, 99, 12, "choice",
    )  # fmt: skip
    await page.wait_for_function("location.search.endsWith('step=9&chain=2')")
    await page.wait_for_selector(".qp-summary >> text=Seed 99, chain 2, step 9")
    assert "seed=99" in await page.evaluate("location.search")
    assert "extractor=choice" in await page.evaluate("location.search")
    await page.evaluate(f"{API}.seek(6, 0)")
    await page.wait_for_function("location.search.endsWith('step=6')")
    await page.click("#watch-new")  # a problem of ours: its answers are read as it asks
    await page.wait_for_function(
        "document.querySelector('#watch-extractor input').value === 'As the problem asks'"
    )
    await page.click("#watch-run")
    await page.wait_for_function(f"{live} && {API}.trace.header.extractor === 'number'")


@pytest.mark.more
async def test_beta_is_told_in_units_of_the_spread_tuned_and_when_changed_keeps_the_run(watch):
    page = watch
    await page.locator("#watch-beta-slider").focus()
    await page.wait_for_selector(".q-beta >> text=times the spread of this problem’s rewards")
    assert "best-of-" not in await page.inner_text(".q-beta")  # these rewards have two modes
    box = page.locator(".q-beta [type=number]")
    for nonsense in ("-1", "5000", ""):
        await box.fill(nonsense)
        await box.press("Tab")  # the sentence stays when the field is left
        await page.wait_for_selector(
            ".q-beta >> text=β must be a number from 0.001 to 1,000; it stays 3."
        )
        assert await box.input_value() == "3"
    # a search that is stopped keeps its last estimate, and can begin again
    await page.evaluate(SET, {"seed": 3})
    await box.fill("50")
    await box.press("Enter")
    assert "a small β follows the reward" in await page.inner_text(".q-beta")
    await page.click("#watch-settings")
    await page.click("#watch-tune")
    await page.wait_for_selector("#watch-drawer", state="hidden")  # it covers β and Stop
    beta = "Number(document.querySelector('.q-beta [type=number]').value)"
    await page.wait_for_function(f"{beta} !== 50")  # the first round's estimate
    await page.click("#watch-stop")
    await page.wait_for_selector("#watch .q-status[data-state=stopped]")
    assert "β is the estimate of the last round" in await page.inner_text("#watch .q-status")
    assert await page.evaluate(beta) != 50
    assert await page.get_attribute("#watch-stop", "aria-disabled") == "true"
    await box.fill("3")
    await box.press("Enter")
    await page.evaluate(
        """() => { window.said = []; const line = document.querySelector('.q-status');
        new MutationObserver(() => said.push(line.innerText)).observe(line,
          { subtree: true, childList: true, characterData: true }); }"""
    )
    await page.click("#watch-settings")
    await page.click("#watch-tune")
    await page.wait_for_function("document.querySelector('.q-status').dataset.state === 'finished'")
    progress = re.compile(r"Finding β: round \d of at most 6, \d+ of 64 proposals\.")
    assert any(map(progress.match, await page.evaluate("said")))
    beta, rate = re.match(r"β = (\S+) accepts (\d+)%", await page.inner_text(".q-status")).groups()
    assert 35 <= int(rate) <= 65
    await page.wait_for_function(
        "(beta) => Number(document.querySelector('.q-beta [type=number]').value) === beta",
        arg=float(beta),
    )
    await run_until(page, 3)
    await page.click("#watch-settings")
    # at once, with no frame drawn in between: a key that follows must not be lost
    assert await page.evaluate("document.activeElement.id") == "watch-drawer"
    await page.locator("#watch-beta-slider").focus()
    await page.keyboard.press("ArrowRight")
    await page.wait_for_selector("#watch-stale.q-on")
    assert await page.evaluate(f"{API}.position.source") == "live"
    assert "times as likely" in await page.inner_text(".q-beta")
    await page.keyboard.press("Escape")
    await page.wait_for_function("document.activeElement.id === 'watch-settings'")


async def choose_other(page, menu):
    """Choose another entry of a menu of the line: two presses."""
    before = await page.input_value(f"#watch-{menu} input")
    await page.click(f"#watch-{menu} input")
    await page.locator("[role=option][aria-selected=false]").first.click()
    assert await page.input_value(f"#watch-{menu} input") != before


async def press_keys(page, menu):
    """The same by the keyboard."""
    before = await page.input_value(f"#watch-{menu} input")
    await page.locator(f"#watch-{menu} input").focus()
    await page.wait_for_selector("[role=listbox]")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("[role=listbox]", state="detached")
    assert await page.input_value(f"#watch-{menu} input") != before


@pytest.mark.more
@pytest.mark.parametrize(
    ("width", "height", "by_keyboard"),
    [
        pytest.param(1280, 800, True, id="keyboard"),
        pytest.param(390, 844, False, id="pointer-on-a-phone", marks=pytest.mark.more),
        pytest.param(1280, 800, False, id="pointer", marks=pytest.mark.more),
        pytest.param(390, 844, True, id="keyboard-on-a-phone", marks=pytest.mark.more),
    ],
)
async def test_model_reward_and_beta_are_changed_and_run_from_the_first_screen(
    watch, width, height, by_keyboard
):
    page = watch
    await sized(page, width, height)
    for name in ("lm", "rm"):
        await (press_keys if by_keyboard else choose_other)(page, name)
    slider = page.locator("#watch-beta-slider")
    if by_keyboard:
        await slider.focus()
        await page.keyboard.press("ArrowRight")
    else:
        await slider.click(position={"x": 16, "y": 22})
    await page.wait_for_function(
        "Number(document.querySelector('#watch-beta [type=number]').value) !== 3"
    )
    beta = float(await page.input_value("#watch-beta [type=number]"))
    # the run on screen is marked as older, and the button stands out
    await page.wait_for_function(
        "document.querySelector('.qp-origin').textContent === 'Recorded run, of the old settings'"
    )
    glow = "getComputedStyle(document.querySelector('#watch-run')).boxShadow.includes('4px')"
    await page.wait_for_function(glow)
    # each part explains itself in a sentence that is in sight while it is used
    for part, words in (("lm", "writes the texts"), ("rm", "scores each text"),
                        ("beta", "a small β follows the reward")):  # fmt: skip
        await page.locator(f"#watch-{part} input").first.focus()
        help_ = page.locator(f"#watch-{part}").get_by_text(words)
        await help_.wait_for()
        box = await help_.bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= width
        await page.keyboard.press("Escape")
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await page.evaluate(wider) <= 0
    if by_keyboard:
        await page.locator("#watch-run").focus()
        await page.keyboard.press("Enter")
    else:
        await page.click("#watch-run")
    await page.wait_for_function(f"{API}.position.source === 'live' && {API}.position.last >= 1")
    header = parse_trace(await page.evaluate(f"{API}.text")).header
    assert header.run.beta == pytest.approx(beta, rel=0.01)
    assert header.run.rm != "embedded"
    await page.wait_for_function(f"!({glow})")  # a button changes within a moment
    await page.click("#watch-stop")


@pytest.mark.more
async def test_diagnostics_say_too_few_steps_and_then_compare_the_chains(watch):
    page = watch
    await page.evaluate(SET, {"chains": 2, "steps": 64, "pool": 2, "seed": 5})
    await run_until(page, 2)
    await page.evaluate(f"({API}.seek(2), {API}.openTab('diagnostics'))")
    await page.wait_for_selector(".qp-facts >> text=too few steps")
    await page.wait_for_function(f"{API}.trace.end")
    await page.evaluate(f"{API}.seek(64)")
    await page.wait_for_selector(".qp-view >> text=Chain 2: flat is good")
    assert "Split R-hat" in await page.inner_text(".qp-facts")
    first = await page.inner_text(".qp-view > :first-child")
    assert re.match("(No|Not yet|Only roughly|Yes): ", first)


async def test_the_address_follows_the_recorded_run_and_traces_are_saved_opened_and_stay_text(
    watch, tmp_path
):
    page = watch
    await page.evaluate(f"{API}.seek(8)")
    await page.wait_for_function("location.search.includes('step=8')")
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Save…").click()
        await page.get_by_role("button", name="Trace as JSON lines").click()
    path = tmp_path / "run.jsonl"
    await (await waiting.value).save_as(path)
    await page.keyboard.press("Escape")
    assert parse_trace(path.read_text(encoding="utf-8")).steps
    for text, origin in ((toy_trace(6), "Opened file"), ("{}", None)):
        path.write_text(text, encoding="utf-8")
        async with page.expect_file_chooser() as choosing:
            await page.locator("#watch-player").get_by_text("Open a trace").click()
        await (await choosing.value).set_files(path)
        if origin:
            await page.wait_for_function(
                f"document.querySelector('.qp-origin').textContent === '{origin}'"
            )
            assert await page.evaluate(f"{API}.position.last") == 6
        else:
            await page.wait_for_selector(".qp-note:not([hidden])")
            assert "was not opened" in await page.inner_text(".qp-note")
            assert (await page.locator(".qp-note").bounding_box())["y"] > -1  # on the screen
            assert await page.evaluate(f"{API}.position.last") == 6
    # a hostile prompt and file stay text
    await page.click("#watch-settings")
    hostile = json.loads(hostile_trace().splitlines()[1])["pieces"]
    prompt = " ".join(hostile[:4])
    await page.locator("#watch-drawer textarea").first.fill(prompt)
    await page.locator("#watch-drawer textarea").first.press("Tab")
    await run_until(page, 2)
    await page.wait_for_function(
        "(prompt) => document.querySelector('.qp-prompt').innerText === prompt", arg=prompt
    )
    await page.evaluate(f"(x) => {API}.open(x, 'Opened file')", hostile_trace())
    await page.wait_for_function(f"{API}.position.source === 'file'")
    hit = "[window.hit ?? 0, document.querySelectorAll('img[src=x]').length]"
    assert await page.evaluate(hit) == [0, 0]
    assert page.errors == []


@pytest.mark.more
async def test_the_page_fits_a_phone_text_and_phases_one_screen_and_votes_the_next(watch):
    page = watch
    await sized(page, 360, 740)
    await page.evaluate(f"{API}.seek(6)")
    await page.wait_for_function("document.querySelector('.qp').dataset.t === '6'")
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    for dark in (True, False):
        await page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
        assert await page.evaluate(wider) <= 0
        bar = await page.locator(".qp-transport").bounding_box()
        assert bar["y"] + bar["height"] <= 741  # the transport is in sight without scrolling
        await page.click("#watch-settings")
        drawer = await page.locator("#watch-drawer").bounding_box()
        assert drawer["width"] <= 360
        await page.keyboard.press("Escape")
    await sized(page, 390, 844)
    async for boxes in boxes_of_phases(page):
        assert covering(boxes) == []
        assert boxes["transport"][3] <= 845
        for name in ("problem", "text", "chance"):
            assert boxes[name][3] <= boxes["transport"][1], name
    assert boxes["verdict"][3] <= boxes["transport"][1]
    assert boxes["votes"][3] <= 2 * 844
    assert boxes["trace"][3] <= 2 * 844


@pytest.mark.more
async def test_the_votes_panel_shows_what_the_same_tokens_buy_without_a_chain(watch):
    page, trace, read = watch, load_trace(WATCH), get_grader("number").extract
    for t in (40, 256):
        walked = sum(step.cost.generated for step in trace.steps[: t + 1])
        spent = list(accumulate(sample.cost.generated for sample in trace.pool))
        n = sum(tokens <= walked for tokens in spent)
        pool, target = trace.pool[:n], Target(trace.header.run.beta)
        decisions = [
            best_of_n(pool, read),
            majority_vote(pool, read),
            weighted_majority_vote(pool, read, target=target),
        ]
        await page.evaluate(f"{API}.seek({t})")
        await page.wait_for_selector(f".qp[data-t='{t}']")
        assert f"{n} samples." in await page.inner_text(".qp-votes")
        cost = await page.inner_text(".qp-summary")
        assert f"{walked:,} tokens" in cost
        assert f"have {n} samples ({spent[n - 1]:,} tokens)" in cost
        best = [
            max(s.reward for s in pool if (read(s.response.text) == "25") is right)
            for right in (True, False)
        ]
        lead = f"{'right' if best[0] > best[1] else 'wrong'} text leads by "
        lead += f"{abs(best[0] - best[1]):.2f}"
        assert lead in await page.inner_text(".qp-votes")
        marks = [f"{d.answer} {'✓' if d.answer == '25' else '✗'}" for d in decisions]
        answers = await page.locator(".qp-rivals b").all_inner_texts()
        assert [" ".join(answer.split()) for answer in answers] == marks
    await page.get_by_role("button", name="Compare them").click()
    await page.wait_for_selector("#compare .q-status >> text=settings are in place")
    assert "seed=701" in page.url
