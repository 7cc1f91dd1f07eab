"""Lessons as data: what a file may say, and what the core makes of it."""

from __future__ import annotations

import inspect
import json
import math
import re
import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from components.learn.exhibit import build_exhibit
from components.learn.guide import GUIDE, exercises
from qalign_core.decide.answers.extraction import extract_number
from qalign_core.errors import QAlignError
from qalign_study.exact.convergence import at_beta
from qalign_study.exact.world import preset
from qalign_study.export.dictionary import ideas
from qalign_study.lessons import facts, files
from qalign_study.lessons.facts import (
    FACTS,
    RUNS,
    Place,
    Share,
    facts_of,
    format_value,
    run_of,
    value_of,
)
from qalign_study.lessons.files import (
    FOLDER,
    HIGHLIGHTS,
    PHASES,
    InvalidLesson,
    load_lessons,
    read_lesson,
)
from qalign_study.lessons.messages import check_lesson, check_prediction, fill_facts, lesson_message
from qalign_study.measure.diagnostics import agreement, ess
from qalign_study.sheet.evaluated import FOLDER as RESULTS
from qalign_study.sheet.evaluated import summarise
from qalign_study.sheet.words import percent

pytestmark = pytest.mark.recorded

TEACHING = Path(__file__).parent.parent / "docs" / "teaching.md"
LESSONS = load_lessons()
QUESTIONS = [
    pytest.param(stop, id=f"{name}-{k}")
    for name, lesson in LESSONS.items()
    for k, stop in enumerate(lesson.stops, start=1)
    if stop.ask
]
GOOD = """
title = "A lesson"
says = "One sentence."
minutes = 5

[[stop]]
title = "A stop"
text = "The chance is {alpha}."
at = { page = "watch", step = 1 }
lit = "text"

[stop.ask]
question = "How likely?"
fact = "alpha"
within = 10
right = "Yes."
wrong = "No, {alpha}; before, {before.alpha:2}."
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "1-a.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_first_pass_asks_nothing_and_comes_first():
    first = next(iter(LESSONS.values()))
    assert first.name == "first-pass"
    assert 7 <= len(first.stops) <= 8
    assert not any(stop.ask for stop in first.stops)


@pytest.mark.parametrize("lesson", list(LESSONS.values())[1:], ids=list(LESSONS)[1:])
def test_a_lesson_takes_6_to_9_minutes_and_asks_twice_or_more(lesson):
    assert 6 <= lesson.minutes <= 9
    assert 5 <= len(lesson.stops) <= 8
    assert sum(stop.ask is not None for stop in lesson.stops) >= 2


@pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)
def test_what_goes_to_the_browser_is_whole_and_tells_no_outcome(lesson):
    text = json.dumps(lesson_message(lesson))
    assert "{" not in "".join(stop["text"] for stop in json.loads(text)["stops"])
    for stop in lesson.stops:
        if stop.ask:
            assert stop.ask.right not in text
            assert stop.ask.wrong not in text


def test_a_lesson_recognizes_its_recorded_runs_by_their_first_lines():
    """The page would fetch, and start again, a run that it already shows."""
    lines = {name: line for lesson in LESSONS.values() for name, line in
             lesson_message(lesson)["runs"].items()}  # fmt: skip
    assert "watch" in lines
    for name, line in lines.items():
        assert RUNS[name].read_text(encoding="utf-8").startswith(line)


@pytest.mark.parametrize("stop", QUESTIONS)
def test_every_prediction_can_be_right_and_wrong(stop):
    unasked = check_prediction(stop, "")
    assert unasked["right"] is None
    if stop.ask.kind == "choice":
        verdicts = {answer: check_prediction(stop, answer)["right"] for answer in stop.ask.options}
        assert sum(verdicts.values()) == 1
        assert verdicts[unasked["value"]]
    else:
        value = value_of(stop.ask.fact, stop.ask.then)
        number = 100 * value if isinstance(value, Share) else value
        assert math.isfinite(number)
        assert check_prediction(stop, str(number))["right"]
        assert not check_prediction(stop, str(number + 2 * stop.ask.within + 1))["right"]


@pytest.mark.parametrize("stop", QUESTIONS)
def test_what_is_told_to_those_who_are_right_is_not_told_again_to_the_others(stop):
    clauses = re.compile(r"[.:;?!]\s")
    right, wrong = (set(clauses.split(text)) for text in (stop.ask.right, stop.ask.wrong))
    assert [each for each in right & wrong if len(each.split()) > 4] == []


def test_of_options_that_are_numbers_the_nearest_is_right():
    stop = next(s for s in LESSONS["beta"].stops if s.ask and s.ask.fact == "patience")
    near = min(stop.ask.options, key=lambda n: abs(int(n) - value_of("patience", stop.ask.then)))
    assert {n: check_prediction(stop, n)["right"] for n in stop.ask.options} == {
        n: n == near for n in stop.ask.options
    }
    assert len(stop.ask.options) > 2


def test_the_chain_that_is_stuck_has_the_lowest_r_hat_of_its_own():
    stop = next(stop for stop in LESSONS["trust"].stops if stop.at.run == "stuck")
    place = stop.ask.then
    rewards = [
        [step.state.reward for step in steps[: place.step + 1]]
        for steps in run_of("stuck").chains.values()
    ]
    alone, together = [agreement([each]) for each in rewards], agreement(rewards)
    own = [verdict.rhat for verdict in alone]
    assert min(own) == own[1]
    assert max(own) < together.rhat
    # each chain alone would have warned, so the lesson does not say that none would
    assert [verdict.is_mixed for verdict in (*alone, together)] == [False] * 5
    assert len({format_value(verdict.limit) for verdict in alone}) == 1
    assert check_prediction(stop, "lowest")["right"]
    for word in ("lowest", "highest"):
        text = check_prediction(stop, word)["explanation"]
        assert all(format_value(n) in text for n in (*own, alone[1].limit, together.rhat))
    assert [value_of(f"chain_says:{chain}", place) for chain in (0, 2, 3)] == ["63"] * 3
    assert value_of("chain_says:1", place) != "63"


def test_an_explanation_on_the_projector_neither_praises_nor_corrects():
    speaks = re.compile(r"(Yes|Close|Correct|Right|The other|No|Not|It is( not)?:)\b")
    for each in QUESTIONS:
        (stop,) = each.values
        explanation = check_prediction(stop, "")["explanation"]
        assert not speaks.match(explanation)
        assert (
            check_prediction(stop, "")["explanation"][0].isupper() or not explanation[0].isalpha()
        )
        assert explanation != fill_facts(stop.ask.wrong, stop.ask.then, stop.at)


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ("Yes: {alpha}, a `coin`.", "{alpha}, a “coin”."),
        ("Close, it is so.", "It is so."),
        ("Yesterday.", "Yesterday."),
    ],
)
def test_a_text_for_wrong_predictions_is_not_shown_as_the_answer(tmp_path, right, expected):
    text = GOOD.replace('right = "Yes."', f'right = "{right}"')
    (stop,) = read_lesson(written(tmp_path, text)).stops
    assert check_prediction(stop, "")["explanation"] == fill_facts(expected, stop.at, stop.at)


def test_what_was_predicted_is_checked_by_the_cores_own_number():
    lesson = LESSONS["beta"]
    place = next(stop.at for stop in lesson.stops if stop.at.page == "lab")
    held = dict(place.lab)
    there = at_beta(preset(), float(held.get("beta", 1)))
    assert value_of("rate", place) == there.acceptance
    assert value_of("distance", replace(place, lab=(("beta", "5"),))) == at_beta(preset(), 5.0).kl


def test_every_fact_says_what_it_is():
    for page in FACTS:
        for name in facts_of(page):
            assert getattr(FACTS[page], name).__doc__


def test_shares_are_read_in_percent_and_numbers_as_elsewhere():
    assert [format_value(x) for x in (Share(0.25), 1234, -0.5, "58")] == [
        "25%",
        "1,234",
        "−0.5",
        "58",
    ]


def test_a_good_file_is_read(tmp_path):
    lesson = read_lesson(written(tmp_path, GOOD))
    assert lesson.name == "a"
    assert lesson.stops[0].at == Place("watch", step=1)
    assert lesson.stops[0].ask is not None


def test_a_stop_goes_on_where_the_one_before_ended(tmp_path):
    second = '[[stop]]\ntitle = "B"\ntext = "b"\nlit = "votes"\nat = { phase = "cut" }\n'
    lesson = read_lesson(written(tmp_path, GOOD + "then = { step = 3 }\n" + second))
    assert lesson.stops[1].at == Place("watch", step=3, phase=0)


WRONG = {
    "not TOML": ('title = "A lesson"', "title = ", "1-a.toml:2: this is not TOML"),
    "no title": ('title = "A lesson"', "", "1-a.toml:1: 'title' is missing"),
    "a number as title": ('title = "A lesson"', "title = 3", "'title' is 3; expected a text"),
    "minutes as text": ("minutes = 5", 'minutes = "5"', "expected a whole number"),
    "an unknown key": ("minutes = 5", "minutes = 5\nhours = 2", "'hours' is not known here"),
    "an unknown page": ('page = "watch"', 'page = "home"', "stop 1, at: 'page' is 'home'"),
    "an unknown key of the page": ("step = 1", 'lab = "x"', "'lab' is not known here"),
    "a step too far": ("step = 1", "step = 9999", "'step' is 9999; this run has steps 0 to 256"),
    "a chain that there is not": ("step = 1", "chain = 7", "'chain' is 7; this run has 1"),
    "an unknown phase": ("step = 1", 'step = 1, phase = "love"', "expected one of cut, rewrite"),
    "an unknown run": ("step = 1", 'run = "nobody"', "no recorded run 'nobody'; choose from "),
    "something unknown lit": ('lit = "text"', 'lit = "sun"', "stop 1: 'lit' is 'sun'"),
    "an unknown fact": ('fact = "alpha"', 'fact = "luck"', "stop 1, ask: 'luck' is not a fact"),
    "an unknown fact in a text": ("{alpha}.", "{luck}.", "'luck' is not a fact of watch"),
    "notes that are no text": ('lit = "text"', 'lit = "text"\nnotes = 3', "stop 1: 'notes' is 3"),
    "an unknown fact in notes": (
        'lit = "text"',
        'lit = "text"\nnotes = "{luck}"',
        "'luck' is not a fact of watch",
    ),
    "a brace that is not closed": (
        'right = "Yes."',
        'right = "Yes {alpha."',
        "'{alpha.' has a single",
    ),
    "a brace that is not opened": ("{alpha}.", "alpha}.", "stop 1: '}.' has a single brace"),
    "a fact with spaces": ("{alpha}.", "{ alpha }.", "stop 1: '{ alpha }.' has a single brace"),
    "an unknown set": (
        'page = "watch", step = 1',
        'page = "results", set = "x"',
        "'x'; choose from",
    ),
    "no fact": ('fact = "alpha"', "", "expected one of fact, moves and largest"),
    "no tolerance": ("within = 10", "", "'within' is missing"),
    "true as a number": ("within = 10", "within = true", "'within' is True; expected a number"),
    "nothing said of the wrong": ("wrong = ", "wrung = ", "'wrung' is not known here"),
    "no stop": (GOOD[GOOD.index("[[stop]]") :], "stop = []", "has no stop"),
    "a stop that is none": (
        GOOD[GOOD.index("[[stop]]") :],
        "stop = [3]",
        "stop 1: 'title' is missing",
    ),
}


@pytest.mark.parametrize(("old", "new", "sentence"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_gets_one_sentence_with_its_line_and_place(tmp_path, old, new, sentence):
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InvalidLesson) as error:
        read_lesson(path)
    lesson, sentences = check_lesson(path)
    assert lesson is None
    assert isinstance(error.value, QAlignError)
    assert str(error.value) == sentences[0]
    assert sentence in "\n".join(sentences)
    assert all(re.match(r"1-a\.toml:\d+: .", each) for each in sentences)
    assert "\n" not in "".join(sentences)


def test_every_fault_of_a_file_is_named_with_its_line(tmp_path):
    text = GOOD.replace("minutes = 5", 'minutes = "5"').replace('lit = "text"', 'lit = "sun"')
    text = text.replace('fact = "alpha"', 'fact = "luck"').replace("Yes.", "Yes, {luck}.")
    text += '\n[[stop]]\ntitle = 3\ntext = """a\nlit = "x"\n"""\nlit = "votes"\n'
    _, sentences = check_lesson(written(tmp_path, text))
    lines = text.split("\n")
    keys = [(lines[int(each.split(":")[1]) - 1].split(" ")[0], each) for each in sentences]
    assert [key for key, _ in keys] == ["minutes", "lit", "fact", "right", "title"]
    assert "stop 2: 'title' is 3" in sentences[-1]


@pytest.mark.parametrize("wrong", ['run = "no"', 'phase = "no"', "step = 999", 'page = "no"'])
@pytest.mark.parametrize("at", ["", "at = { step = 2 }", 'at = { page = "watch", step = 240 }'])
def test_a_wrong_place_is_one_fault_and_not_one_of_each_later_stop(tmp_path, wrong, at):
    key = wrong.split(" ")[0]
    start = GOOD.replace("step = 1", wrong if key == "step" else f"step = 1, {wrong}")
    if key == "page":
        start = GOOD.replace('page = "watch"', wrong)
    later = f'[[stop]]\ntitle = "B"\ntext = "b"\nlit = "votes"\n{at}\n'
    _, sentences = check_lesson(written(tmp_path, start + 3 * later))
    assert len(sentences) == 1
    assert "'no'" in sentences[0] or "999" in sentences[0]


@pytest.mark.parametrize(
    ("phase", "fact", "veil", "is_shown"),
    [
        ("score", "alpha", False, False),
        ("chance", "alpha", False, True),
        ("chance", "alpha", True, False),
        ("rewrite", "new_reward", False, False),
        ("score", "new_reward", False, True),
        ("rewrite", "new_length", False, True),
        ("coin", "u", False, True),
    ],
)
def test_a_stop_that_shows_its_own_answer_is_named_by_the_check(
    tmp_path, phase, fact, veil, is_shown
):
    text = GOOD.replace("step = 1", f'step = 1, phase = "{phase}"').replace('"alpha"', f'"{fact}"')
    text += f"veil = {str(veil).lower()}\nthen = {{ step = 1 }}\n"
    _, sentences = check_lesson(written(tmp_path, text), reveals=True)
    assert len(sentences) == is_shown
    if is_shown:
        assert sentences[0].startswith(f"1-a.toml:14: stop 1, ask: the page shows '{fact}' from")


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("{alpha}.", "{chain_says:9}.", 8, "{chain_says:9} cannot be computed: KeyError, 9"),
        ("{alpha}.", "{chain_says}.", 8, "stop 1: {chain_says} cannot be computed: TypeError"),
        ('fact = "alpha"', 'fact = "trust"', 14, "stop 1, ask: the answer cannot be computed"),
        ("within = 10", 'options = { no = "No" }', 14, "the answer cannot be computed"),
        ('fact = "alpha"\nwithin = 10', 'fact = "taken"\noptions = { a = "A" }', 14, "is 'yes'"),
        ("minutes = 5", 'minutes = 5\nonward = ["b"]', 5, "'onward' has 'b'; choose from a, run="),
        ("minutes = 5", 'minutes = 5\nend = "{luck:2}"', 5, "'luck' is not a fact of watch"),
    ],
)
def test_a_number_that_cannot_be_computed_is_a_fault(tmp_path, old, new, line, sentence):
    _, (first, *_) = check_lesson(written(tmp_path, GOOD.replace(old, new, 1)))
    assert first.startswith(f"1-a.toml:{line}: ")
    assert sentence in first


@pytest.mark.parametrize("content", [b"\xff", b"x" * (2**20 + 1), b"a = [" * 5000])
def test_a_file_that_is_no_text_has_a_fault(tmp_path, content):
    path = tmp_path / "1-a.toml"
    path.write_bytes(content)
    _, (sentence,) = check_lesson(path)
    assert sentence.startswith("1-a.toml:1: ")
    assert len(sentence) < 400


def test_the_shipped_lessons_have_no_faults():
    for path in FOLDER.glob("*.toml"):
        assert check_lesson(path, LESSONS, reveals=True)[1] == []


def test_a_lesson_goes_on_with_one_that_there_is(tmp_path):
    written(tmp_path, GOOD.replace("minutes = 5", 'minutes = 5\nonward = ["b"]'))
    with pytest.raises(InvalidLesson, match="lesson 'a': 'onward' has 'b'; choose from a, run="):
        load_lessons(tmp_path)


def test_what_the_browser_says_is_an_answer_or_refused():
    stop = next(s for s in LESSONS["one-step"].stops if s.ask and s.ask.kind == "choice")
    with pytest.raises(ValueError, match="not one of the options"):
        check_prediction(stop, "<script>")
    number = next(s for s in LESSONS["one-step"].stops if s.ask and s.ask.kind == "number")
    with pytest.raises(ValueError, match="convert"):
        check_prediction(number, "many")


def test_each_page_of_the_app_that_a_lesson_speaks_of_has_something_to_light():
    assert set(HIGHLIGHTS) == set(FACTS)
    assert all(HIGHLIGHTS.values())


def test_the_table_of_what_is_to_be_understood_quotes_the_lessons():
    page = TEACHING.read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+ \| ([\w-]+), (?:stop (\d)|end) \| “(.+)” \|$", page, re.MULTILINE)
    assert len(rows) == 12
    for name, stop, words in rows:
        lesson = LESSONS[name]
        end = [lesson.end, *(text for _, text in lesson.learnt)]
        assert words in (lesson.stops[int(stop) - 1].text if stop else " ".join(end))


def test_what_the_guide_says_of_the_recorded_run_is_what_its_trace_has():
    run = run_of("watch")
    states = [step.state for step in run.chains[0]]
    rewards = [each.reward for each in states]
    answers = [extract_number(each.response.text) for each in states]
    first = answers.index(run.header.run.reference)
    leads = [Counter(answers[: t + 1]).most_common(2) for t in range(len(answers))]
    behind = [t for t, ((answer, n), *rest) in enumerate(leads)
              if answer != run.header.run.reference or n == sum(m for _, m in rest)]  # fmt: skip
    rejected = run.chains[0][first + 1]
    assert not rejected.accepted
    teaching = " ".join(TEACHING.read_text(encoding="utf-8").split())
    assert (
        f"The right answer comes at step {first} and is kept when step {rejected.t} is" in teaching
    )
    assert f"It leads the vote from step {max(behind) + 1} on" in teaching
    alone = Counter(extract_number(each.response.text) for each in run.pool)
    assert max(alone, key=lambda answer: alone[answer]) != run.header.run.reference
    worth, agree = ess([rewards]), agreement([rewards])
    guide = " ".join(GUIDE.read_text(encoding="utf-8").split())
    assert agree.is_mixed
    assert (
        f"The halves of the run agree (R-hat {agree.rhat:.3f}, limit {agree.limit:.3f}), but its "
        f"{len(states)} states are worth only about {worth:.0f} independent ones"
    ) in guide
    stop = LESSONS["trust"].stops[0]
    early = value_of("states", stop.at), value_of("step", stop.at), value_of("worth", stop.at)
    assert "the {} states up to step {} are worth about {:.0f} independent".format(*early) in guide


def test_the_worked_reading_counts_the_problems_of_the_recorded_result():
    lesson = LESSONS["reading"]
    place = lesson.stops[0].at
    evaluated = summarise(RESULTS / f"{place.set}.zip")
    level = evaluated.level
    chain = [point.each for point in evaluated.points
             if (point.method, point.n) == ("qalign", level)]  # fmt: skip
    records = evaluated.results.records
    has_right = [bool(record.is_right(record.pool_answer[:level]).any()) for record in records]
    cells = Counter(zip(map(bool, chain[0]), has_right, strict=True))
    facts = ("both:qalign,any", "only:qalign,any", "only:any,qalign", "neither:qalign,any")
    assert [value_of(fact, place) for fact in facts] == [
        cells[each] for each in ((True, True), (True, False), (False, True), (False, False))
    ]
    both, only_chain, only_sample, neither = (value_of(fact, place) for fact in facts)
    assert both + only_chain + only_sample + neither == len(records)
    shares = [percent(n / len(records)) for n in (both + only_chain, both + only_sample)]
    assert lesson.title == "What “{} against {}” means".format(*shares)
    # what the texts say of these numbers in words
    texts = [stop["text"] for stop in lesson_message(lesson)["stops"]]
    assert all(f"{n}" in texts[1] for n in (both, only_chain, only_sample, neither))
    assert both + only_chain + both + only_sample <= len(records)  # the overlap may be 0
    difference = 100 * (only_chain - only_sample) / len(records)
    explanation = check_prediction(lesson.stops[2], "")["explanation"]
    low, high = map(float, re.findall(r"CI ([\d.]+) to ([\d.]+)", explanation)[0])
    assert f"+{difference:.1f} percentage points" in explanation
    assert 0 < low < difference < high
    assert value_of("margin:qalign,any", place) == pytest.approx((high - low) / 2, abs=0.1)
    assert ideas()["elsewhere"].sentence in texts[-1]


def test_counts_of_problems_need_one_decision_per_problem():
    with pytest.raises(ValueError, match="averages over sets of samples"):
        value_of("count:any", Place("results", set="in_distribution"))


def test_the_guides_exercises_are_the_lessons_and_their_answers_the_cores():
    table = exercises(LESSONS)
    assert table in GUIDE.read_text(encoding="utf-8")
    assert table.count("\n") == 2 + sum(bool(s.ask) for x in LESSONS.values() for s in x.stops)


def test_a_lesson_opens_without_computing_the_curves_of_its_results(monkeypatch):
    monkeypatch.setattr(facts, "summarise", None)
    for name in ("worth", "best-of-n"):
        lesson_message(load_lessons()[name])
        for stop in load_lessons()[name].stops:
            build_exhibit(stop, answered=True)


def test_the_documents_list_the_entries_the_facts_and_the_phases_of_a_lesson():
    text = TEACHING.read_text(encoding="utf-8")
    entries = (files.__doc__ or "").split("\n\n", 1)[1].split("\n\nA prediction")[0]
    assert f"```text\n{textwrap.dedent(entries)}\n```" in text
    assert f"The phases of a step are {names(PHASES)}." in text
    for page, parts in HIGHLIGHTS.items():
        assert f"\n- {page}: {names(parts)}\n" in text
    for page in FACTS:
        if page != "watch":
            assert f"\n- {page}: {names(facts_of(page))}\n" in text
    for name in facts_of("watch"):
        fact = getattr(FACTS["watch"], name)
        _, *values = inspect.signature(fact).parameters.values()
        slot = name
        for value in values:
            wanted = f":{value.name.upper()}"
            slot += wanted if value.default is value.empty else f"[{wanted}]"
        assert f"| `{slot}` | {inspect.getdoc(fact)} |" in text


def names(words):
    return ", ".join(f"`{word}`" for word in words)
