"""What a room shows of the place that a stop speaks of, as data."""

from __future__ import annotations

import json

import pytest

from components.learn.exhibit import build_exhibit
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
        assert exhibit["walk"]
    other = build_exhibit(STOPS[0].values[0] if stop.at.page != "watch" else STOPS[-1].values[0])
    assert any(part not in seen_in(other) for part in needed(stop))  # or nothing would be tested


@pytest.mark.parametrize("stop", QUESTIONS)
def test_an_exhibit_does_not_tell_what_is_asked_until_it_is_answered(stop):
    ask, before, after = stop.ask, build_exhibit(stop), build_exhibit(stop, answered=True)
    assert before != after or ask.fact in ("worth", "mixed", "taken:0.25", "counted")
    if ask.fact and not ask.options and isinstance(value_of(ask.fact, ask.then), Share):
        values = [value for _, value in before["rows"]]
        assert format_value(value_of(ask.fact, ask.then)) not in values
    if ask.veil and ask.then.page in ("lab", "results"):
        assert before["bars"] == []
        assert before["charts"] != after["charts"]
    if ask.veil and stop.highlight == "votes":
        assert before["bars"] == [] and not any("say" in name for name, _ in before["rows"])  # noqa: PT018
    hidden = [ask.fact] if ask.fact else list(ask.options)
    if ask.then.page == "lab" and not hidden[0].partition(":")[1]:
        assert any(str(value).endswith("?") for _, value in before["rows"])
        assert not any(str(value).endswith("?") for _, value in after["rows"])


SIZES = ((1280, 720), (1920, 1080))
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
    && (!at.tab || Boolean(document.querySelector('.qp-view')?.textContent));
}"""
# after two frames: too small texts, texts that are cut, and parts of the figure below the words
FAULTS = """async (least) => {
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


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_no_question_covers_its_figure_and_every_text_is_read_from_the_last_row(
    visit, toy_app
):
    lessons = load_lessons()
    page = await visit(f"{toy_app}?lesson=one-step&present=1", width=1280, height=720, first=True)
    await page.wait_for_selector(".pr-line")
    await page.evaluate("document.querySelector('#tab-learn-button').click()")
    await page.wait_for_selector(".learn-list li", state="attached")
    start = """(title) => [...document.querySelectorAll('.learn-list li')]
      .find((row) => row.querySelector('h3').textContent === title)
      .querySelector('button').click()"""
    faults: dict[str, list[str]] = {}
    for name, lesson in lessons.items():
        await page.evaluate(start, lesson.title)
        for k, stop in enumerate(lesson.stops):
            for answered in (False, True)[: 1 + bool(stop.ask)]:
                for width, height in SIZES:
                    await page.set_viewport_size({"width": width, "height": height})
                    await page.wait_for_function(SETTLED, arg=[name, k, answered, width])
                    state = f"{name} {k + 1}{' answered' * answered} {width}"
                    faults[state] = await page.evaluate(FAULTS, 26 * height / 720)
                await page.keyboard.press("PageDown")
        await page.wait_for_selector(f".pr-words >> text={lesson.end[:30]}")  # the summary
        faults[f"{name}: the end"] = await page.evaluate(FAULTS, 39)
    assert {state: each for state, each in faults.items() if each} == {}
    await page.add_style_tag(content=".pr-words { width: 900px !important }")
    assert any(each.startswith("over") for each in await page.evaluate(FAULTS, 39))  # the control
