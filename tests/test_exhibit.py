"""What a room shows of the place that a stop speaks of, as data."""

from __future__ import annotations

import json

import pytest

from components.common.evaluated import TITLES
from components.learn.exhibit import exhibit
from components.learn.facts import Share, run_of, shown, value_of
from components.learn.lessons import lessons

STOPS = [
    pytest.param(stop, id=f"{name}-{k}")
    for name, lesson in lessons().items()
    for k, stop in enumerate(lesson.stops, start=1)
]
ASKED = [each for each in STOPS if each.values[0].ask]
KINDS = {"texts", "rows", "bars", "walk", "tokens"}


def needed(stop) -> list[str]:
    """What has to be seen to answer a stop's question, or to follow its text."""
    at, lit = stop.at, stop.lit
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
    if lit in ("text", "chance", "verdict", "whatif"):
        seen += [step.current.response.text, str(len(step.current.response))]
        seen += [step.proposal.response.text] if at.phase and at.step else []
    if lit == "problem":
        seen.append("Sample 1")
    if at.tab == "tokens":
        seen += [*step.proposal.response.pieces, "likeliest"]
    return seen


def seen_in(made: dict) -> str:
    """All that a reader sees of an exhibit."""
    texts = [f"{name}: {kept}{written}" for name, kept, written in made["texts"]]
    texts += (made["tokens"] or {"pieces": ()})["pieces"]
    return "\n".join([*texts, *(f"{name}: {value}" for name, value in made["rows"])])


@pytest.mark.parametrize("stop", STOPS)
def test_every_stop_shows_what_it_speaks_of(stop):
    made = exhibit(stop)
    assert made.keys() == KINDS
    json.dumps(made, allow_nan=False)  # it goes to a browser
    text = seen_in(made)
    assert [part for part in needed(stop) if part not in text] == []
    if stop.lit in ("trace", "time", "votes"):
        assert made["walk"]
    other = exhibit(STOPS[0].values[0] if stop.at.page != "watch" else STOPS[-1].values[0])
    assert any(part not in seen_in(other) for part in needed(stop))  # or nothing would be tested


@pytest.mark.parametrize("stop", ASKED)
def test_an_exhibit_does_not_tell_what_is_asked_until_it_is_answered(stop):
    ask, before, after = stop.ask, exhibit(stop), exhibit(stop, answered=True)
    assert before != after or ask.fact in ("worth", "mixed", "taken:0.25", "counted")
    if ask.fact and not ask.options and isinstance(value_of(ask.fact, ask.then), Share):
        values = [value for _, value in before["rows"]]
        assert shown(value_of(ask.fact, ask.then)) not in values
    if ask.veil and ask.then.page in ("lab", "results"):
        assert before["bars"] == []
    if ask.veil and stop.lit == "votes":
        assert before["bars"] == [] and not any("say" in name for name, _ in before["rows"])  # noqa: PT018
    asked = [ask.fact] if ask.fact else list(ask.options)
    if ask.then.page == "lab" and not asked[0].partition(":")[1]:
        assert any(str(value).endswith("?") for _, value in before["rows"])
        assert not any(str(value).endswith("?") for _, value in after["rows"])
