"""What the page once said or did wrongly, each in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from browser import API, SET
from traces import toy_trace

from components.common.status import status_value
from components.session.runs import STOPPED, Status
from components.watch.gallery import WATCH
from components.watch.page import PLAYS
from qalign_core.record.format import parse_trace
from qalign_core.record.store import load_trace
from qalign_core.run import Run

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.more]

STILL = "Promise.all(document.getAnimations().map((a) => a.finished.catch(() => 0)))"
FORGET = "window.copied = ''; navigator.clipboard.writeText = async (t) => { window.copied = t; };"
HOW = {
    "paste": "document.execCommand('insertText', false, 'Tom has 2 eggs. How many?')",
    "menu": "document.execCommand('delete')",
    "drop": "(() => { const box = document.activeElement; box.value = 'Dropped'; box.dispatchEvent("
    "new InputEvent('input', { bubbles: true, inputType: 'insertFromDrop' })); })()",
}


async def shows(page, condition: str, arg: object = None) -> None:
    await page.wait_for_function(condition, arg=arg)


async def reads(page, selector: str, words: str) -> None:
    """Wait until a part of the page contains these words."""
    await shows(
        page,
        "([at, words]) => document.querySelector(at)?.textContent.includes(words)",
        [selector, words],
    )


async def press_copy(page) -> None:
    """Press "Copy link", on Watch in the menu of what can be saved."""
    menu = page.get_by_role("button", name="Save…").locator("visible=true")
    if await menu.count():
        await menu.click()
    await page.get_by_role("button", name="Copy link").locator("visible=true").click()


async def copied(page) -> dict[str, str]:
    """The query of the link that the button copies, by name."""
    await page.evaluate(FORGET)
    await press_copy(page)
    await shows(page, "copied !== ''")
    pairs = parse_qs(urlsplit(await page.evaluate("copied")).query)
    return {name: values[0] for name, values in pairs.items()}


async def choose_file(page, tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text, encoding="utf-8")
    async with page.expect_file_chooser() as choosing:
        await page.locator("#watch-player").get_by_text("Open a trace").click()
    await (await choosing.value).set_files(path)


async def open_file(page, tmp_path: Path, text: str) -> None:
    await choose_file(page, tmp_path, text)
    await reads(page, ".qp-origin", "Opened file")


# both pages have the same form; Watch's is in a drawer
@pytest.mark.parametrize("name", ["watch", "compare"])
async def test_whatever_changes_the_problem_clears_the_known_answer(watch, name):
    page, tab = watch, "" if name == "watch" else f"tab={name}&"
    await page.evaluate("(name) => QAlignShell.turn(name)", name)
    if name == "watch":
        await page.click("#watch-settings")
    else:
        await page.get_by_text("Change the problem or the settings").click()
    prompt, answer = (page.locator(f"#{name}-{field} textarea, #{name}-{field} input").first
                      for field in ("prompt", "reference"))  # fmt: skip
    for act in (*HOW.values(), "key"):
        await answer.fill("42")
        await answer.press("Tab")
        await prompt.click()
        await page.keyboard.press("Control+A")
        await (page.keyboard.type("x") if act == "key" else page.evaluate(act))
        await shows(
            page,
            f"document.querySelector('#{name}-reference :is(input, textarea)').value === ''",
        )
    await prompt.fill("Tom has 2 eggs. How many?")
    await page.keyboard.press("Escape")
    await page.click(f"#{name}-run")
    await shows(page, "run => location.search.startsWith(run)", f"?{tab}prompt=Tom")
    assert "reference" not in await page.evaluate("location.search")
    await page.click(f"#{name}-stop")


async def test_another_chain_is_shown_whole(opened):
    trace = toy_trace(24, chains=3)
    steps = {k: [s for s in parse_trace(trace).steps if s.chain == k] for k in range(3)}
    page = await opened(trace)
    await page.evaluate("api.seek(24)")
    paths = []
    for k in range(3):
        await page.get_by_label("Chain", exact=True).select_option(str(k))
        now = f"now {steps[k][-1].state.reward:.2f}".replace("-", "−")
        mean = sum(s.state.reward for s in steps[k]) / 25
        await reads(page, "[data-stage=trace]", now)
        await reads(page, ".qp-histogram", f"mean reward {mean:.2f}".replace("-", "−"))
        paths.append(
            await page.eval_on_selector_all(
                ".qp :is(.qp-state-line, .qp-rings, .qp-bars)",
                "all => all.map((one) => one.getAttribute('d'))",
            )
        )
    assert all(len({one[k] for one in paths}) == 3 for k in range(len(paths[0])))


async def test_the_link_of_an_opened_trace_draws_its_run_again_or_says_why_not(watch, tmp_path):
    page = watch
    await open_file(page, tmp_path, toy_trace(6, seed=3, beta=0.5))
    await page.evaluate(f"{API}.seek(4)")
    await shows(page, "location.search.includes('seed=3') && location.search.includes('step=4')")
    query = await copied(page)
    assert query.pop("step") == "4"
    restored = Run.read(query)
    header = parse_trace(toy_trace(6, seed=3, beta=0.5)).header
    assert restored == header.run
    await reads(page, ".qs-status", "It draws the run of this file again.")
    await page.keyboard.press("Escape")
    text = toy_trace(6).replace('"temperature":1.0', '"temperature":"hot"', 1)
    async with page.expect_response(lambda answer: "component_server" in answer.url):
        await open_file(page, tmp_path, text)
    await press_copy(page)
    await reads(
        page, ".qs-status", "This file cannot be linked. line 1 of the trace has temperature"
    )


UNCUT = """() => {
  const at = document.activeElement;
  const ringed = [at, at.parentElement].find((n) => getComputedStyle(n).outlineStyle !== 'none'
    && parseFloat(getComputedStyle(n).outlineWidth) >= 2);
  if (!ringed) return 'no ring on ' + at.outerHTML;
  const style = getComputedStyle(ringed);
  const out = parseFloat(style.outlineWidth) + parseFloat(style.outlineOffset);
  const ring = ringed.getBoundingClientRect();
  for (let n = ringed.parentElement; n; n = n.parentElement) {
    if (getComputedStyle(n).overflow === 'visible') continue;
    const box = n.getBoundingClientRect();
    if (n === document.body || n === document.documentElement) continue;
    if (ring.left - out < box.left - 0.5 || ring.right + out > box.right + 0.5
      || ring.top - out < box.top - 0.5 || ring.bottom + out > box.bottom + 0.5) {
      return 'cut by ' + n.className;
    }
  }
  return '';
}"""
"""What is wrong with the ring around what has the focus, if anything."""


async def test_a_link_has_the_state_of_its_own_page_only_and_the_ring_of_focus_is_whole(
    visit, toy_app
):
    rm = "0.7*embedded + 0.3*embedded-weak"
    page = await visit(f"{toy_app}?seed=5&steps=8&step=3&lab-beta=0.5&{urlencode({'rm': rm})}")
    await shows(page, "document.querySelector('#watch-second input').value.includes('weak')")
    await page.click("#tab-compare-button")
    await page.wait_for_selector("#compare-panel .qc-card >> nth=3")
    assert await copied(page) == {"tab": "compare"}
    await page.click("#tab-lab-button")
    await shows(page, "location.search === '?tab=lab&lab-opened=Convergence&lab-beta=0.5'")
    await page.click("#tab-watch-button")
    assert await copied(page) == {"seed": "5", "steps": "8", "step": "3", "rm": rm}
    await page.keyboard.press("Escape")
    await page.locator("#tab-watch-button").focus()
    for key in ("ArrowRight", "ArrowRight"):
        await page.keyboard.press(key)
        assert await page.evaluate(UNCUT) == ""
    await page.locator("#tab-lab-button").click()
    await page.locator("#lab-opened input").first.focus()
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("Tab")
    for _ in range(6):
        assert await page.evaluate(UNCUT) == ""
        await page.keyboard.press("Tab")


async def test_back_and_forward_lead_through_the_pages_that_were_looked_at(visit, toy_app):
    page = await visit(f"{toy_app}?step=3")
    chosen = "document.querySelector('#tab-{}-button').ariaSelected === 'true'"
    for name in ("compare", "results", "lab"):
        await page.click(f"#tab-{name}-button")
        await shows(page, f"location.search.startsWith('?tab={name}')")
    for name in ("results", "compare", "watch"):
        await page.go_back()
        await shows(page, chosen.format(name))
    await shows(page, "location.search === '?step=3'")
    await page.go_forward()
    await shows(page, chosen.format("compare"))
    before = await page.evaluate("history.length")
    await page.click("#tab-learn-button")  # in the place of what was ahead
    await shows(page, "location.search === '?tab=learn'")
    assert await page.evaluate("history.length") == before - 1


async def test_the_example_of_moves_is_shown_as_it_is_typed(visit, toy_app):
    page = await visit(toy_app)
    for name in ("watch", "compare"):
        await page.click(f"#tab-{name}-button")
        hint = page.locator(f"#{name}-move")
        assert "such as suffix+block(:)" in await hint.text_content()


async def test_what_is_too_long_is_refused_and_not_cut(watch):
    page, paste = watch, "(text) => document.execCommand('insertText', false, text)"
    await page.evaluate("QAlignShell.turn('watch')")
    status = "#watch .q-status[data-state=failed]"
    for name, text, sentence in (
        ("seed", "1" * 21, "Seed must be between"),
        ("prompt", "x" * 4001, "Problem has 4,001 characters; 4,000 at most"),
    ):
        await page.click("#watch-settings")
        box = page.locator(f"#watch-{name} :is(textarea, input)").first
        await box.click()
        await page.keyboard.press("Control+A")
        await page.evaluate(paste, text)
        assert await box.input_value() == text
        await page.keyboard.press("Escape")
        await page.click("#watch-run")
        await reads(page, status, sentence)
        await page.click("#watch-settings")
        await box.fill("" if name == "seed" else "Tom has 2 eggs. How many?")
        await page.keyboard.press("Escape")


async def test_a_link_leads_to_its_page_though_the_address_has_followed_the_player(visit, toy_app):
    # in a window in which Gradio would hide tabs that have no room
    page = await visit(f"{toy_app}?tab=learn", width=320)
    await page.click("#tab-watch-button")
    await page.evaluate("document.querySelector('#watch-player .qp').qalign.seek(3)")
    await shows(page, "!location.search.includes('learn')")
    await page.evaluate("QAlignShell.open()")  # on a busy machine it comes so late
    await page.wait_for_selector("#tab-learn-button[aria-selected=true]")


async def test_the_focus_stays_on_a_bead_that_is_drawn_anew(opened):
    page = await opened(toy_trace())
    await page.evaluate("api.seek(32)")
    bead = page.locator(".qp-bead").nth(-2)
    at = await bead.get_attribute("data-key")
    await bead.focus()
    await page.keyboard.press("Enter")
    await shows(page, "at => document.querySelector('.qp').dataset.t === at", at)
    assert await page.evaluate("document.activeElement.dataset.key") == at
    await page.evaluate("api.openTab('table')")
    await page.locator(".qp-view .qp-link").first.focus()
    row = await page.evaluate("document.activeElement.dataset.key")
    await page.keyboard.press("Enter")
    await shows(page, "row => document.querySelector('.qp').dataset.t === row", row)
    assert await page.evaluate("document.activeElement.dataset.key") == row
    await page.evaluate("api.seek(0)")  # the row of that step is gone; keys still reach the player
    await shows(page, "document.activeElement.classList.contains('qp')")


async def stop_and_run(page, name: str) -> None:
    """Press Stop before a run, which says so, and begin a run."""
    await page.wait_for_selector(f"#{name}-stop[aria-disabled=true]")
    await page.click(f"#{name}-stop", force=True)
    await reads(page, f"#{name} .q-status", "Nothing is being drawn.")
    if name == "compare":
        await page.wait_for_selector("#compare-panel .qc[data-state=recorded]")
    await page.click(f"#{name}-run")
    await page.wait_for_selector(f"#{name} .q-status[data-state=sampling]")
    await page.wait_for_selector(f"#{name}-stop[aria-disabled=false]")


async def stop(page, name: str) -> None:
    await page.click(f"#{name}-stop")
    await reads(page, f"#{name} .q-status", "Stopped. The steps drawn so far are kept.")
    await page.wait_for_selector(f"#{name}-stop[aria-disabled=true]")


async def test_stop_and_a_file_in_mid_run_say_what_happened_until_it_is_past(
    visit, toy_app, tmp_path
):
    page = await visit(f"{toy_app}?steps=1024&seed=4")
    await reads(page, ".qp-note", "settings are in place")  # it would replace what Stop says
    await page.get_by_role("button", name="Step forward").click()
    assert await page.locator(".qp-note").is_visible()  # it says what Run will do
    await stop_and_run(page, "watch")
    await page.wait_for_selector(".qp-note", state="hidden")
    await shows(page, f"{API}.position.source === 'live' && {API}.position.last > 1")
    await open_file(page, tmp_path, toy_trace(6, seed=3))
    await reads(page, ".qp-note", "The live run continues in the background; press Stop to end it.")
    await shows(page, "location.search.includes('seed=3')")
    await stop(page, "watch")
    assert "seed=3" in await page.evaluate("location.search")
    await choose_file(page, tmp_path, "no trace")
    await reads(page, ".qp-note", "This file was not opened.")
    await page.get_by_role("button", name="Step forward").click()
    await page.wait_for_selector(".qp-note", state="hidden")


async def test_a_run_that_is_stopped_before_its_first_step_does_not_say_that_steps_are_kept(watch):
    page = watch
    await page.click("#watch-new")
    await shows(page, f"{API}.position.source === 'next'")
    await reads(page, "#watch .q-status", "Next run: ")
    await page.evaluate("QAlignShell.tune([])")  # a status is shown again, as after Run
    text = f"{STOPPED.text}{PLAYS} · seed 4"
    say = "(value) => QAlignShell.status(document.querySelector('#watch .q-status'), { value })"
    await page.evaluate(say, status_value(Status("stopped", text)))
    assert await page.inner_text("#watch .q-status") == "Stopped. No step was drawn. · seed 4"
    await page.evaluate(f"(text) => {API}.open(text, 'Run')", toy_trace(6, seed=3))
    await page.evaluate(say, status_value(Status("stopped", text)))
    assert await page.inner_text("#watch .q-status") == text


@pytest.mark.parametrize("pressed", ["before the first step", "after Stop", "in mid-run"])
async def test_a_new_problem_ends_the_run_is_shown_and_is_what_the_next_run_draws(watch, pressed):
    page = watch
    await page.evaluate(SET, {"steps": 1024, "seed": 4})
    await page.click("#watch-run")
    if pressed != "before the first step":
        await shows(page, f"{API}.position.source === 'live' && {API}.position.last > 1")
    # both in one turn: what Stop and the ended run still say comes later
    await page.evaluate(
        "(names) => names.forEach((name) => document.querySelector(`#watch-${name}`).click())",
        ["stop", "new"] if pressed == "after Stop" else ["new"],
    )
    await reads(page, "#watch .q-status", "Next run: ")
    await shows(page, f"{API}.position.source === 'next'")
    new = await page.input_value("#watch-prompt textarea")
    await shows(page, "text => document.querySelector('.qp-prompt').innerText === text", new)
    assert not await page.locator("#watch-stale").is_visible()
    assert await page.locator("#watch-stop").get_attribute("aria-disabled") == "true"
    # the ended run says nothing more
    for state in ("sampling", "stopped", "finished"):
        late = json.dumps({"state": state, "text": "It goes on."})
        await page.evaluate(
            "(value) => QAlignShell.status(document.querySelector('#watch .q-status'), { value })",
            late,
        )
    assert (await page.inner_text("#watch .q-status")).startswith("Next run: ")
    await page.evaluate(f"(text) => {API}.stream(text)", toy_trace(6, seed=3))
    assert await page.evaluate(f"{API}.position.source") == "next"
    await page.locator(".qp-invite").get_by_role("button", name="Run it live").click()
    await shows(page, f"{API}.position.source === 'live' && {API}.position.last > 1")
    assert await page.evaluate(f"{API}.trace.header.prompt") == new
    assert await page.inner_text(".qp-prompt") == new
    await page.click("#watch-stop")
    await reads(page, "#watch .q-status", "Stopped. The steps drawn so far are kept.")


async def test_a_link_to_another_page_leaves_this_ones_form_alone_and_its_player_draws_when_seen(
    visit, toy_app
):
    page = await visit(f"{toy_app}?tab=compare&seed=5&steps=1024")
    # what comes later would replace what Stop says
    await reads(page, "#compare .q-status", "settings are in place")
    steps = "input[aria-label='number input for Steps']"
    assert await page.input_value(f"#compare-steps {steps}") == "1024"
    assert await page.input_value(f"#watch-steps {steps}") == str(
        load_trace(WATCH).header.run.steps
    )
    assert await page.text_content(".qp-note") == ""
    await page.wait_for_selector("#compare-panel .qc-card >> nth=3")
    await stop_and_run(page, "compare")
    await page.click("#compare-new")
    await reads(page, "#compare-stale", "The next run uses a different problem: ")
    assert await page.locator("#compare-stale").is_visible()
    await page.wait_for_selector("#compare .q-status[data-state=sampling]")
    await stop(page, "compare")
    await page.click("#tab-watch-button")
    await shows(page, f"{API}.position.t >= 1")


async def test_the_second_reward_list_leaves_out_the_first_and_escape_closes_innermost_first(
    watch,
):
    page = watch
    await page.click("#watch-settings")
    options = page.locator("[role=listbox] [role=option]")
    chosen = "document.querySelector('#watch-second input').value"
    first = await page.input_value("#watch-rm input")
    await page.click("#watch-second input")
    assert first not in [text.strip() for text in await options.all_inner_texts()]
    await options.filter(has_text="0.9M weak reward model").click()
    await shows(page, f"{chosen} !== 'None'")
    weak = await page.input_value("#watch-second input")
    await options.first.wait_for(state="detached")
    await page.click("#watch-rm input")
    await options.filter(has_text=weak).click()
    await shows(page, f"{chosen} === 'None'")
    await options.first.wait_for(state="detached")
    await page.click("#watch-second input")
    names = [text.strip("✓ \n") for text in await options.all_inner_texts()]
    assert first in names
    assert weak not in names
    await page.keyboard.press("Escape")
    await options.first.wait_for(state="detached")
    # lists, drawer, help and view: Escape closes what is open, innermost first
    await page.locator("#watch-rm input").click()
    await page.wait_for_selector("[role=listbox]")
    await page.keyboard.press("Escape")
    await page.wait_for_selector("[role=listbox]", state="detached")
    assert await page.locator("#watch-drawer").is_visible()
    await page.keyboard.press("Escape")
    await page.wait_for_selector("#watch-drawer", state="hidden")
    await page.get_by_role("tab", name="Table").click()
    await page.get_by_label("Keyboard help").click()
    await page.keyboard.press("Escape")
    await page.wait_for_selector(".qp-help", state="hidden")
    assert await page.locator(".qp-view").is_visible()
    await page.keyboard.press("Escape")
    await page.wait_for_selector(".qp-view", state="hidden")


async def test_the_label_of_u_stands_under_its_needle(opened):
    trace = toy_trace(64)
    page = await opened(trace)
    steps = sorted(parse_trace(trace).steps[1:], key=lambda step: step.log_u)
    for step in (steps[0], steps[len(steps) // 2], steps[-1]):
        await page.evaluate("t => api.seek(t)", step.t)
        await shows(page, "t => document.querySelector('.qp').dataset.t === t", str(step.t))
        await page.evaluate(STILL)
        needle, label, bar = [
            await page.locator(at).bounding_box()
            for at in (".qp-needle", ".qp-bar-scale b", ".qp-bar")
        ]
        assert (
            label["x"] - 3 <= needle["x"] + needle["width"] / 2 <= label["x"] + label["width"] + 3
        )
        assert bar["x"] - 1 <= label["x"]
        assert label["x"] + label["width"] <= bar["x"] + bar["width"] + 1
        for number in await page.locator(".qp-bar-scale > span").all():
            box = await number.bounding_box()
            if box and box["width"]:
                apart = (
                    box["x"] >= label["x"] + label["width"] or box["x"] + box["width"] <= label["x"]
                )
                assert apart


async def test_a_late_leading_answer_has_a_colour_of_its_own(opened):
    lines = [json.loads(line) for line in toy_trace(20).splitlines()]
    steps = [line for line in lines if line["type"] == "step"]
    for line in steps:
        # eight answers in a row, and the last of them for half of the chain
        line |= {"answer": str(100 + min(line["t"], 8)), "log_alpha": 0.0, "accepted": True}
        line["log_u"] = None if line["t"] == 0 else -1.0
    text = "".join(json.dumps(line) + "\n" for line in [lines[0], *steps, lines[-1]])
    page = await opened(text)
    await page.evaluate("api.seek(20)")
    await reads(page, ".qp-answers", "108")
    colours = await page.eval_on_selector_all(
        ".qp-answers li",
        "all => all.map((li) => getComputedStyle(li.querySelector('.qp-swatch')).backgroundColor)",
    )
    assert len(set(colours)) == len(colours)
