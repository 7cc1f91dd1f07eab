"""The gallery: each entry is drawn again by its own command, plays at one click, and is small."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from browser import API, ROOT
from recorded import check_same_run

from benchmarks import first_run
from components.common.rpc import server_functions
from components.session.links import from_query
from components.session.offer import Offer
from components.watch.gallery import gallery, page_parts, recorded_text
from qalign_core import best_of_n, majority_vote
from qalign_core.decide.answers.graders import get_grader
from qalign_core.record.store import load_trace
from qalign_core.run import Limits
from qalign_study.commands import main
from qalign_study.export.player import page
from qalign_study.export.scripts import as_data
from qalign_study.measure.diagnostics import agreement, ess
from qalign_study.sets.problem_sets import load_problems

ENTRIES = gallery()
EMBEDDED = [
    name for name, entry in ENTRIES.items() if load_trace(entry.path).header.run.lm == "embedded"
]
WHOLE = "hacked"
"""The entry that is drawn again from its first step to its last."""
WHOLE_PARTS = """[...document.querySelectorAll(".qp-text, .qp-votes")].every(
    (part) => part.offsetHeight > 0 && part.scrollHeight <= part.clientHeight + 1)"""
"""Neither the texts nor the votes go on below their edge."""
FEWER_SAMPLES = ("cheerful", "praise", "short", "flight", "climb")
"""Entries whose samples cost less than their chains."""
ENDS = 4
"""Steps and samples of the others that are drawn again at their beginning and at their end."""
RICHEST_ENTRIES = ("compare", "cheerful", "stuck", "repair")
"""Entries of Compare, another model, four chains and another move; the others open as these do."""
SMALL = 40_000
"""Bytes of a trace as it travels when it is chosen."""


@pytest.mark.parametrize("name", ENTRIES)
def test_a_server_takes_the_settings_that_an_entry_links_to(name):
    query = dict(parse_qsl(ENTRIES[name].query))
    run, notices = from_query(query, Limits(), Offer(names=(query.get("lm", "embedded"),)))
    assert notices == ()
    assert run.prompt == load_trace(ENTRIES[name].path).header.run.prompt


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_there_is_to_see_and_is_small(name):
    entry = ENTRIES[name]
    trace = load_trace(entry.path)
    assert trace.end == ("finished", "")
    assert len(gzip.compress(entry.path.read_bytes())) <= SMALL
    assert 0 < len(entry.title) <= 60
    assert entry.summary.endswith(".")
    assert entry.page in ("watch", "compare")
    assert f"β = {trace.header.run.beta:g}, " in entry.facts
    assert f", {trace.header.run.steps} steps" in entry.facts


def test_every_trace_in_the_folder_is_an_entry():
    assert {path.stem for path in (ROOT / "assets/runs").glob("*.jsonl")} == set(ENTRIES)
    assert next(iter(ENTRIES)) == "watch"


def test_the_run_that_everybody_sees_first_has_converged_and_beats_both_rules_over_its_samples():
    trace = load_trace(ENTRIES["watch"].path)
    right, read = trace.header.run.reference, get_grader("number").extract
    rewards = [[step.state.reward for step in trace.chains[0]]]
    halves, worth = agreement(rewards), ess(rewards)
    assert halves.is_mixed
    assert worth is not None
    assert worth >= first_run.WORTH
    assert majority_vote(trace.states, read).answer == right
    first = trace.pool[: first_run.options([]).samples]
    assert majority_vote(first, read).answer != right
    assert read(best_of_n(first).chosen.response.text) != right
    # those that cost as much as the chain
    spent = sum(sample.cost.generated for sample in trace.pool)
    walked = sum(step.cost.generated for step in trace.steps)
    assert 0 <= walked - spent < 100
    assert majority_vote(trace.pool, read).answer != right
    draft, worse, corrected, rejected = trace.steps[:4]  # all that the first pass shows
    assert worse.accepted
    assert first_run.is_worse(draft.state, worse.proposal)
    assert read(corrected.state.response.text) == right
    assert not rejected.accepted
    early = [[step.state.reward for step in trace.chains[0][:51]]]
    assert not agreement(early).is_mixed  # what the lesson on trust says


def test_the_first_run_is_one_that_its_search_finds_by_default():
    usual, header = first_run.options([]), load_trace(ENTRIES["watch"].path).header
    assert (header.run.beta, header.run.steps) == (usual.beta, usual.steps)
    assert header.run.pool >= usual.samples
    assert 0 <= header.run.seed < usual.seeds
    problems = {p.id: p for p in load_problems("in_distribution")}
    assert problems[usual.problem].prompt == header.run.prompt
    assert f"{usual.seeds:,} seeds of one problem" in (ROOT / "docs/gallery.md").read_text("utf-8")


@pytest.mark.recorded
def test_on_one_entry_the_chain_is_right_and_no_sample_beside_it():
    lines = [json.loads(line) for line in ENTRIES["beyond"].path.read_text("utf-8").splitlines()]
    right = lines[0]["reference"]
    samples = [line["answer"] for line in lines if line["type"] == "sample"]
    assert len(samples) == 256
    assert right not in samples
    states = list[str]()
    for line in lines:
        if line["type"] == "step":
            states.append(line["answer"] if line["accepted"] or not states else states[-1])
    assert states.index(right) == 44
    assert set(states[44:]) == {right}


@pytest.mark.recorded
def test_on_one_entry_four_wrong_amounts_are_corrected_one_by_one_and_two_inside_the_text():
    trace, read = load_trace(ENTRIES["repair"].path), get_grader("amounts").extract
    right = trace.header.run.reference
    assert right not in [read(sample.response.text) for sample in trace.pool]
    assert len(trace.pool) == 64

    def wrong(state) -> int:
        answer = read(state.response.text) or ""
        return sum(amount not in answer.split(", ") for amount in right.split(", "))

    left = [wrong(step.state) for step in trace.steps]
    corrected = [t for t in range(1, len(left)) if left[t] < left[t - 1]]
    assert left[0] == len(corrected) == 4
    assert corrected == [3, 5, 9, 10]
    assert [t for t in corrected if trace.steps[t].kept_again] == [5, 9]
    assert set(left[10:]) == {0}


def redraw(name: str, out: Path, *more: str) -> Callable[[str], str]:
    """What goes on with a trace, or begins one, by the command of an entry."""
    words = [*shlex.split(ENTRIES[name].command)[1:], *more, "--out", str(out)]

    def draw(begun: str) -> str:
        out.unlink(missing_ok=True)
        if begun:
            out.write_text(begun, encoding="utf-8")
        assert main(words) == 0
        return out.read_text("utf-8")

    return draw


@pytest.mark.recorded
def test_its_command_draws_an_entry_of_the_embedded_models_again(tmp_path):
    recorded = ENTRIES[WHOLE].path.read_text("utf-8")
    check_same_run(recorded, redraw(WHOLE, tmp_path / "again.jsonl"))


def check_both_ends(name: str, folder: Path) -> None:
    """Fail unless the first steps and samples of an entry, and its last, are those recorded.

    A step is a function of the text before it and of its address (seed, chain, t), a sample of
    its own address; what was drawn before changes neither (tests/test_chain.py). So a change of
    models or engine shows in the first and the last ones, and the middle can be left out.
    """
    text = ENTRIES[name].path.read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    steps, pool = (max(line.get(key, -1) for line in lines) + 1 for key in ("t", "n"))
    few = ["--steps", str(ENDS), "--pool", str(min(ENDS, pool))]
    check_same_run(text, redraw(name, folder / "first.jsonl", *few), part=True)
    begun = ""
    for raw, line in zip(text.splitlines(keepends=True), lines, strict=True):
        of_step, of_sample = line.get("t", -1), line.get("n", -1)
        if line["type"] != "end" and of_step < steps - ENDS and of_sample < pool - ENDS:
            begun += raw
    check_same_run(text, redraw(name, folder / "last.jsonl"), begun=begun)


@pytest.mark.recorded
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.more] * (n != "repair")) for n in EMBEDDED if n != WHOLE],
)
def test_the_others_are_drawn_again_at_both_ends(name, tmp_path):
    """The first has both moves, and answers and a reward of another kind than the whole one."""
    check_both_ends(name, tmp_path)


def test_a_name_that_is_no_entry_reads_no_file():
    for name in ("../watch", "gallery.toml", "", None, ["watch"]):
        assert "no recorded run called" in recorded_text(name)["error"]


@pytest.mark.parametrize("name", ENTRIES)
async def test_what_the_page_saves_is_what_the_command_exports(name):
    entry = ENTRIES[name]
    text = recorded_text(name)["text"]
    around = page_parts({"header": text.split("\n")[0], "run": name})
    whole = page(text, title=entry.title, caption=entry.summary)
    assert around["before"] + as_data(text) + around["behind"] == whole
    (answer,) = server_functions(page_parts)
    assert (await answer({"header": "{}", "run": name}))["error"].endswith(".")


# in a browser


async def titled(page, entry):
    await page.wait_for_function(
        "(title) => document.querySelector('.qp-origin')?.innerText === title", arg=entry.title
    )


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    "names",
    [
        RICHEST_ENTRIES,
        pytest.param(sorted({*ENTRIES} - {*RICHEST_ENTRIES}), marks=pytest.mark.more),
    ],
    ids=["richest", "others"],
)
async def test_each_entry_opens_at_one_click_ends_whole_and_has_a_link(revisit, toy_app, names):
    page = await revisit(toy_app, width=1280, height=800)
    for name in names:
        entry = ENTRIES[name]
        await page.get_by_role("button", name="Gallery").click()
        await page.locator(f"[data-name='{name}']").click()
        if entry.page == "compare":
            await page.wait_for_function("location.search.includes('tab=compare')")
            assert await page.locator("#compare-panel").is_visible()
            await page.get_by_role("tab", name="Watch").click()
            continue
        await page.wait_for_function(f"{API}.text.length === {len(entry.path.read_text('utf-8'))}")
        await titled(page, entry)
        note = entry.summary
        if load_trace(entry.path).header.run.lm != "embedded":
            load = "SmolLM2 135M Instruct (0.5 GB, about 20 s)"
            note += f" “Run it live” draws this run again: it loads {load} first."
        await page.wait_for_function(
            "(note) => document.querySelector('.qp-note').innerText === note", arg=note
        )
        assert not await page.locator(".qg-list").is_visible()
        await page.wait_for_function(f"location.search.includes('run={name}')")
        await page.evaluate(f"{API}.seek({API}.position.last)")
        await page.wait_for_function(
            f"document.querySelector('.qp').dataset.t > 0 && {WHOLE_PARTS}"
        )
        all_drawn = "; no more exist" in await page.inner_text(".qp-summary")
        assert all_drawn == (name in FEWER_SAMPLES)
    assert page.hosts == {toy_app.split("/")[2]}


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("", "cheerful"),  # of other models, whose settings follow the entry
        ("?run=short", "short"),
        ("?lesson=trust&stop=5", "stuck"),
    ],
)
async def test_run_it_live_draws_the_run_that_is_shown(visit, revisit, toy_app, address, name):
    header = load_trace(ENTRIES[name].path).header
    page = await (visit(f"{toy_app}{address}") if address else revisit(toy_app))
    if not address:
        await page.get_by_role("button", name="Gallery").click()
        await page.locator(f"[data-name='{name}']").click()
    seed = "#watch-seed :is(input, textarea)"
    await page.wait_for_function(
        f"(seed) => document.querySelector('{seed}').value === seed", arg=str(header.run.seed)
    )
    assert not await page.locator("#watch-stale.q-on").count()  # nothing has been changed
    assert await page.input_value("#watch-prompt textarea") == header.run.prompt
    await page.click("#watch-run")
    await page.wait_for_function(f"{API}.position.source === 'live'")
    live = await page.evaluate(f"{API}.trace.header")
    names = ("prompt", "beta", "seed", "steps", "chains")
    assert [live[name] for name in names] == [getattr(header.run, name) for name in names]
    await page.wait_for_function("location.search.includes('seed=')")
    query = dict(parse_qsl(urlsplit(page.url).query))
    models = query.get("lm", "embedded"), query.get("rm", "embedded")
    assert models == (header.run.lm, header.run.rm)


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_a_link_opens_an_entry_at_a_step_and_the_list_is_left_by_escape_or_by_one_that_plays(
    visit, toy_app
):
    name = "stuck"
    entry = ENTRIES[name]
    page = await visit(f"{toy_app}?run={name}&step=5", width=360, height=740)
    await titled(page, entry)  # until it is there the recorded run stands at that step too
    await page.wait_for_function(f"{API}.position.t === 5")
    await page.evaluate(f"{API}.seek(8)")
    await page.wait_for_function("location.search.includes('step=8')")
    assert f"run={name}" in await page.evaluate("location.search")
    # the list asks for no trace
    before = await page.evaluate(f"{API}.text")
    await page.get_by_role("button", name="Gallery").press("Enter")
    assert await page.locator(".qg-pick").count() == len(ENTRIES)
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await page.evaluate(wider) <= 0
    await page.keyboard.press("Escape")
    assert not await page.locator(".qg-list").is_visible()
    assert await page.evaluate("document.activeElement.textContent.trim()") == "Gallery"
    assert await page.evaluate(f"{API}.text") == before
    # where motion is wanted, what is chosen plays
    await page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    await page.get_by_role("button", name="Gallery").click()
    await page.locator("[data-name='climb']").click()
    await page.wait_for_function("location.search.includes('run=climb')")
    await page.wait_for_function(f"{API}.position.playing && {API}.position.t >= 1")
