"""What a room shows of the place that a stop speaks of, as data."""

from __future__ import annotations

import json

import pytest

from components.common.evaluated import TITLES
from components.learn.exhibit import build_exhibit
from components.learn.facts import Share, format_value, run_of, value_of
from components.learn.lessons import load_lessons

STOPS = [
    pytest.param(stop, id=f"{name}-{k}")
    for name, lesson in load_lessons().items()
    for k, stop in enumerate(lesson.stops, start=1)
]
QUESTIONS = [each for each in STOPS if each.values[0].ask]
KINDS = {"texts", "rows", "bars", "walk", "tokens"}


def needed(stop) -> list[str]:
    """What has to be seen to answer a stop's question, or to follow its text."""
    at, selector = stop.at, stop.highlight
    page = stop.ask.then.page if stop.ask else at.page
    if page == "compare":
        return ["QAlign", "Best-of-n", "Majority vote", "Weighted vote"]
    if page == "results":
        return [TITLES[(stop.ask.then if stop.ask else at).set.removesuffix("-weak")]]
    if page == "lab":
        return ["β", "right" if dict(at.lab)["opened"] == "A wrong reward" else "121 texts"]
    trace = run_of(at.run)
    step = trace.chains[0][at.step]
    seen = [trace.header.prompt]
    if selector in ("text", "chance", "verdict", "whatif"):
        seen += [step.current.response.text, str(len(step.current.response))]
        seen += [step.proposal.response.text] if at.phase and at.step else []
    if selector == "problem":
        seen.append("Sample 1")
    if at.tab == "tokens":
        seen += [*step.proposal.response.pieces, "likeliest"]
    return seen


def seen_in(exhibit: dict) -> str:
    """All that a reader sees of an exhibit."""
    texts = [f"{name}: {kept}{written}" for name, kept, written in exhibit["texts"]]
    texts += (exhibit["tokens"] or {"pieces": ()})["pieces"]
    return "\n".join([*texts, *(f"{name}: {value}" for name, value in exhibit["rows"])])


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
    if ask.veil and stop.highlight == "votes":
        assert before["bars"] == [] and not any("say" in name for name, _ in before["rows"])  # noqa: PT018
    hidden = [ask.fact] if ask.fact else list(ask.options)
    if ask.then.page == "lab" and not hidden[0].partition(":")[1]:
        assert any(str(value).endswith("?") for _, value in before["rows"])
        assert not any(str(value).endswith("?") for _, value in after["rows"])
