"""What a room shows of the place that a stop speaks of, as data."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from browser import serve
from test_presenter import present_lesson

import app
from components.learn.exhibit import build_exhibit
from components.session.runs import Runs
from qalign_study.lessons.facts import Share, format_value, run_of, value_of
from qalign_study.lessons.files import load_lessons
from qalign_study.sheet.evaluated import TITLES

STOPS = [
    pytest.param(stop, id=f"{name}-{k}")
    for name, lesson in load_lessons().items()
    for k, stop in enumerate(lesson.stops, start=1)
]
QUESTIONS = [each for each in STOPS if each.values[0].ask]
KINDS = {"texts", "rows", "bars", "charts", "walk", "tokens"}
RICHEST = ("one-step", "worse", "worth")
"""Lessons that together have every kind of question, page and figure of the lessons."""


def needed(stop) -> list[str]:
    """What has to be seen to answer a stop's question, or to follow its text."""
    at, selector = stop.at, stop.highlight
    page = stop.ask.then.page if stop.ask else at.page
    if page == "compare":
        return ["QAlign", "Best-of-n", "Majority vote", "Weighted vote"]
    if page == "results":
        return [TITLES[(stop.ask.then if stop.ask else at).set.removesuffix("-weak")]]
    if page == "lab":
        return ["reward hack" if dict(at.lab)["opened"] == "A wrong reward" else "β"]
    trace = run_of(at.run)
    step = trace.chains[0][at.step]
    seen = [trace.header.run.prompt]
    if selector in ("text", "chance", "verdict", "whatif"):
        seen += [step.current.response.text, str(len(step.current.response))]
        seen += [step.proposal.response.text] if at.phase and at.step else []
    if selector == "problem":
        seen.append("amples")
    if at.tab == "tokens":
        seen += [*step.proposal.response.pieces, "likeliest"]
    return seen


def seen_in(exhibit: dict) -> str:
    """All that a reader sees of an exhibit."""
    texts = [f"{name}: {kept}{written}" for name, kept, written in exhibit["texts"]]
    texts += (exhibit["tokens"] or {"pieces": ()})["pieces"]
    charts = [f"{each['name']} {each['x']['name']}" for each in exhibit["charts"]]
    return "\n".join([*texts, *charts, *(f"{name}: {value}" for name, value in exhibit["rows"])])


@pytest.mark.parametrize("stop", STOPS)
def test_every_stop_shows_what_it_speaks_of(stop):
    exhibit = build_exhibit(stop)
    assert exhibit.keys() == KINDS
    json.dumps(exhibit, allow_nan=False)  # it goes to a browser
    text = seen_in(exhibit)
    assert [part for part in needed(stop) if part not in text] == []
    if stop.highlight in ("trace", "time", "votes"):
        assert bool(exhibit["walk"]) != (stop.highlight == "time" and bool(stop.ask))
    other = build_exhibit(STOPS[0].values[0] if stop.at.page != "watch" else STOPS[-1].values[0])
    assert any(part not in seen_in(other) for part in needed(stop))  # or nothing would be tested


def test_the_richest_lessons_have_every_kind_of_question_page_and_figure():
    def kinds_of(lesson):
        stops = lesson.stops
        figures = [build_exhibit(stop, answered=True) for stop in stops]
        places = [stop.ask.then if stop.ask else stop.at for stop in stops]
        return {
            *(stop.ask.kind for stop in stops if stop.ask),
            *(place.page for place in places),
            *(kind for figure in figures for kind, parts in figure.items() if parts),
        }

    lessons = load_lessons()
    all_kinds = set().union(*map(kinds_of, lessons.values()))
    assert all_kinds == set().union(*(kinds_of(lessons[name]) for name in RICHEST))


@pytest.mark.parametrize("stop", QUESTIONS)
def test_an_exhibit_does_not_tell_what_is_asked_until_it_is_answered(stop):
    ask, before, after = stop.ask, build_exhibit(stop), build_exhibit(stop, answered=True)
    assert before != after or ask.fact in ("worth", "mixed", "taken:0.25", "counted")
    if ask.fact and not ask.options and isinstance(value_of(ask.fact, ask.then), Share):
        values = [value for _, value in before["rows"]]
        assert format_value(value_of(ask.fact, ask.then)) not in values
    if ask.veil and ask.then.page in ("lab", "results"):
        assert before["bars"] == [] or ask.fact.startswith("margin")
        assert before["charts"] != after["charts"] or before["rows"][-1][1] == "?"
    if ask.veil and stop.highlight == "votes":
        assert before["bars"] == [] and not any("say" in name for name, _ in before["rows"])  # noqa: PT018
    hidden = [ask.fact] if ask.fact else list(ask.options)
    if ask.then.page == "lab" and not hidden[0].partition(":")[1]:
        assert any(str(value).endswith("?") for _, value in before["rows"])
        assert not any(str(value).endswith("?") for _, value in after["rows"])


@pytest.mark.parametrize("stop", [s for s in STOPS if s.values[0].at.page == "lab"])
def test_a_number_of_a_rule_has_no_arrow_from_another_rules_number(stop):
    places = (stop.at, stop.ask.then if stop.ask else stop.at)
    mistakes = [dict(place.lab).get("mistake") for place in places]
    for answered in (False, True):
        arrows = [name for name, value in build_exhibit(stop, answered=answered)["rows"]
                  if "this rule" in name and "→" in str(value)]  # fmt: skip
        assert not arrows or mistakes[0] == mistakes[1]


@pytest.mark.parametrize("stop", QUESTIONS)
def test_a_text_keeps_its_name_when_the_answer_is_shown(stop):
    before, after = build_exhibit(stop), build_exhibit(stop, answered=True)
    names = {kept + written: name for name, kept, written in before["texts"]}
    assert {names.get(kept + written, name) for name, kept, written in after["texts"]} == {
        name for name, _, _ in after["texts"]
    }
    if before["texts"] == after["texts"]:
        rows = [{name for name, _ in each["rows"]} for each in (before, after)]
        assert rows[0] <= rows[1]


def test_a_stop_about_two_methods_shows_the_problems_that_they_share():
    for stop in load_lessons()["reading"].stops:
        if "both:" not in f"{stop.text}{stop.ask and stop.ask.fact}":
            continue
        for answered in (False, True):
            exhibit = build_exhibit(stop, answered=answered)
            ((_, bars),) = exhibit["bars"]
            first, second, *groups = [n for _, _, n in bars]
            if stop.ask and not answered:
                assert groups == ["?"] * 4
                continue
            both, only_first, only_second, neither = map(int, groups)
            assert (int(first), int(second)) == (both + only_first, both + only_second)
            assert sum((both, only_first, only_second, neither)) == value_of("problems", stop.at)
            assert exhibit["charts"] == []  # curves show none of these


def test_an_exhibit_has_as_many_samples_as_its_words_name():
    four_ways, first_pass = load_lessons()["four-ways"], load_lessons()["first-pass"]
    (weights,) = build_exhibit(four_ways.stops[2])["charts"]
    assert len(weights["columns"]["points"]) == value_of("samples", four_ways.stops[2].at)
    stop = first_pass.stops[-1]
    _, (name, shares) = build_exhibit(stop)["bars"]
    assert name == f"{value_of('even_samples', stop.at)} samples of the model alone"
    assert {answer: share for answer, share, _ in shares}["25"] == pytest.approx(
        float(value_of("even_share:25", stop.at))
    )


def test_a_place_is_asked_over_the_models_own_rewards():
    stop = load_lessons()["worse"].stops[3]
    (chart,) = build_exhibit(stop)["charts"]
    rewards = run_of(stop.at.run).rewards
    points = chart["columns"]["points"]
    assert sum(share for _, share in points) == pytest.approx(1)
    assert min(rewards) < points[0][0] < points[-1][0] < max(rewards)


def test_a_curve_of_distances_ends_where_it_leaves_the_axis_and_is_not_flat():
    (chart,) = build_exhibit(load_lessons()["trust"].stops[3], answered=True)["charts"]
    for line in chart["lines"][:-1]:
        values = [y for _, y in line["points"]]
        assert all(b < a for a, b in pairwise(values))


SMALL, LARGE = {"width": 1280, "height": 720}, {"width": 1920, "height": 1080}
SETTLED = """([name, k, answered, width]) => {
  const now = QAlignLearn.now;
  if (innerWidth !== width || now?.lesson.name !== name || now.k !== k) return false;
  if (Boolean(now.answer) !== answered) return false;
  const root = document.documentElement;
  if (root.dataset.present === 'exhibit') {
    return document.querySelector('.pr-exhibit').dataset.stop
      === JSON.stringify({ lesson: name, stop: k, answered });
  }
  const { t, phase, chain } = document.querySelector('#watch-player .qp').qalign.position;
  const { at } = now;
  return t === at.step && phase === at.phase && chain === at.chain
    && (!at.tab || Boolean(document.querySelector('.qp-view')?.textContent))
    && (at.tab !== 'tokens' || Boolean(document.querySelector('.qp-view svg')));
}"""
# after two frames: too small texts, texts that are cut, parts of the figure below the words, and
# texts that the rim of what a stop speaks of crosses
FAULTS = """async (least) => {
  const rims = (node) => {
    const { outlineWidth, outlineOffset } = getComputedStyle(node);
    const { left, right, top, bottom } = node.getBoundingClientRect();
    const grow = (by) => (
      { left: left - by, right: right + by, top: top - by, bottom: bottom + by });
    return [parseFloat(outlineOffset) + parseFloat(outlineWidth), parseFloat(outlineOffset)]
      .map((by) => grow(by * node.currentCSSZoom));
  };
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let k = 0; k < 3; k += 1) await frame();
  const how = { visibilityProperty: true, opacityProperty: true, contentVisibilityAuto: true };
  const regions = ['.pr-words', '.pr-exhibit', '.qp-host', '.pr-line'];
  const nodes = [...document.querySelectorAll(regions.map((r) => `${r} *`).join())]
    .filter((node) => node.checkVisibility(how)
      && !node.closest('.qp-hidden, .qp-eos, sup, .qp-flyer'));
  const words = document.querySelector('.pr-words').getBoundingClientRect();
  const line = document.querySelector('.pr-line').getBoundingClientRect();
  const faults = [];
  const tell = (what, node) => faults.push(
    `${what}: ${node.className?.baseVal ?? node.className} “${node.textContent.slice(0, 40)}”`);
  const lit = document.querySelector('.learn-highlight');
  const [rim, inner] = lit?.checkVisibility(how) ? rims(lit) : [];
  if (rim) {
    for (let up = lit.parentElement; !up.matches('.qp-host'); up = up.parentElement) {
      const edge = up.getBoundingClientRect();
      if (getComputedStyle(up).overflow !== 'visible' && (rim.bottom > edge.bottom + 1
        || rim.top < edge.top - 1 || rim.left < edge.left - 1 || rim.right > edge.right + 1)) {
        tell('a rim is cut', lit);
      }
    }
  }
  for (const view of document.querySelectorAll('.qp-view, .pr-words, .pr-exhibit')) {
    const isLong = view.scrollHeight > view.clientHeight + 1;
    if (isLong && view.checkVisibility(how)) tell('longer', view);
  }
  for (const node of nodes) {
    const own = [...node.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
    const inFigure = node.closest('.qp-host, .pr-exhibit');
    const box = node.getBoundingClientRect();
    if (inFigure && box.width && box.height && !node.closest('.qp-view, .qp-lane-text')
      && (box.right > words.left + 1 || box.bottom > line.top + 1 || box.left < -1)) {
      tell('over', node);
    }
    if (!own.length) continue;
    const svg = node.ownerSVGElement;
    const scale = svg?.viewBox.baseVal?.width
      ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : node.currentCSSZoom;
    const size = parseFloat(getComputedStyle(node).fontSize) * scale;
    if (size < least - .2) tell(`${size.toFixed(1)} px`, node);
    if (node.closest('.qp-view, .qp-kept-row, .pr-line')) continue;
    const range = document.createRange();
    for (const text of own) {
      range.setStart(text, text.data.search(/\\S/)); // a space may hang over the end of a line
      range.setEnd(text, text.data.trimEnd().length);
      const rects = [...range.getClientRects()];
      if (rim && !lit.matches('.qp-view') && rects.some((r) => (lit.contains(node)
        ? r.left < inner.left - 1
        || r.right > inner.right + 1 : r.left < rim.right && r.right > rim.left
        && r.top + r.height / 5 < rim.bottom && r.bottom - r.height / 5 > rim.top))) {
        tell('a rim crosses', node);
      }
      if (!svg && getComputedStyle(node).display !== 'inline'
        && rects.some((r) => r.right > box.right + 1)) tell('beyond its box', node);
      for (let up = svg ?? node; up; up = up.matches(regions.join()) ? null : up.parentElement) {
        if (getComputedStyle(up).overflow === 'visible') continue;
        const edge = up.getBoundingClientRect();
        if (rects.some((r) => r.right > edge.right + 3 || r.bottom > edge.bottom + 6
          || r.top < edge.top - 6 || r.left < edge.left - 3)) tell('cut', node);
      }
    }
  }
  return [...new Set(faults)];
}"""


def least_of(page) -> float:
    """The height of the smallest text, in pixels: 26 in a window of 1280 by 720."""
    return 26 * page.viewport_size["height"] / 720


@pytest.fixture(scope="module")
def real_app():
    """The app with the models of the lessons, which shade tokens."""
    runs = Runs()
    with serve(app.build_app(runs), **app.launch_options(runs)) as address:
        yield address


@pytest.mark.more
@pytest.mark.parametrize("lesson", load_lessons().values(), ids=load_lessons())
@pytest.mark.asyncio(loop_scope="session")
async def test_no_question_covers_its_figure_and_every_text_is_read_from_the_last_row(
    revisit, real_app, lesson
):
    page = await revisit(real_app, width=1280, height=720)
    await present_lesson(page, lesson)
    faults: dict[str, list[str]] = {}
    for k, stop in enumerate(lesson.stops):
        for answered in (False, True)[: 1 + bool(stop.ask)]:
            # all is drawn half as large again there: the first stop and the last one say it
            for size in (SMALL, LARGE) if k in (0, len(lesson.stops) - 1) else (SMALL,):
                await page.set_viewport_size(size)
                width = size["width"]
                await page.wait_for_function(SETTLED, arg=[lesson.name, k, answered, width])
                state = f"{k + 1}{' answered' * answered} {width}"
                faults[state] = await page.evaluate(FAULTS, least_of(page))
            await page.keyboard.press("PageDown")
    await page.wait_for_selector(f".pr-words >> text={lesson.end[:30]}")  # the summary
    faults["the end"] = await page.evaluate(FAULTS, least_of(page))
    assert {state: each for state, each in faults.items() if each} == {}
    wide = await page.add_style_tag(content=".pr-words { width: 900px !important }")
    control = await page.evaluate(FAULTS, least_of(page))
    assert any(each.startswith("over") for each in control)
    await wide.evaluate("(style) => style.remove()")
