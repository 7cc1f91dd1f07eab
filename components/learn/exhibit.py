"""Exhibits: the data that a room or a presenter shows of the place of a stop.

An exhibit is texts, tokens, rows of numbers, shares as bars, charts, and chains on one axis. While
a prediction is open, an exhibit does not contain its answer; that number is "?".
"""

import asyncio
import math
import re
from collections import Counter
from typing import Any

from components.learn.charts import lab_charts, result_charts, reward_chart, weight_chart
from qalign_core.decide.methods import importance_weights, majority_vote
from qalign_core.decide.rules import best_reward, chain_vote
from qalign_core.record.trace import TraceHeader
from qalign_core.registry import load_language_model
from qalign_core.types import Response
from qalign_study.exact.wrong_reward import ANSWERS, MEANINGS, Example
from qalign_study.lessons.facts import (
    FACTS,
    ChainFacts,
    Place,
    ResultFacts,
    format_value,
    run_of,
    value_of,
)
from qalign_study.lessons.files import Ask, Stop
from qalign_study.sheet.evaluated import TITLES
from qalign_study.sheet.words import curve_name, in_points, names_of, percent

MOST = 4
"""The number of answers of a vote that are shown."""
IN_A_ROW = 8
"""Samples whose answers share a row."""
STEP = ((0, "Tokens", "length", "new_length"), (2, "Reward", "reward", "new_reward"),
        (2, "β", "beta"), (3, "Acceptance probability", "alpha"), (4, "Coin", "u"),
        (5, "Accepted", "taken"))  # fmt: skip
"""For each number of a step: the phase from which it is known, its name, and its facts."""
SETTINGS = {"lm": "Language model", "beta": "β", "sharpness": "Sharpness",
            "hack-beta": "β"}  # fmt: skip
SECTIONS = {
    "Beta": {
        "rate": "Proposals accepted",
        "reward": "Mean reward of the target, in SD",
        "distance": "Its distance from the model, in nats",
        "patience": "Steps to within 1% of the target",
    },
    "Break it": {
        "reward": "Mean reward, right rule, in SD",
        "wrong_reward": "Mean reward, this rule, in SD",
        "right_length": "Mean length, right rule, in tokens",
        "wrong_length": "Mean length, this rule, in tokens",
        "lost": "Distance from the target, 0 to 1",
    },
    "Convergence": {"patience": "Steps to within 1% of the target"},
    "A wrong reward": {},
}
"""The Lab's sections: the facts that each shows, with their names."""
GROUPS = {"both", "only", "neither"}
"""The facts of the groups into which two methods divide the problems of a set."""
SHARED = re.compile(r"\{(?:both|only|neither):(\w+,\w+)\}")
INTERVAL = re.compile(r"\{(?:margin|more):")
NAMES = {"any": ("At least one sample", "a sample")}
"""The names of curves that are no methods: alone, and after "only"."""


def build_exhibit(stop: Stop, *, answered: bool = False) -> dict[str, Any]:
    """Return the exhibit of a stop.

    Args:
        stop: of a lesson.
        answered: whether the outcome of its prediction may be shown.

    Returns:
        {"texts": (name, kept, written) each, "rows": (name, value) each, "bars": (name, shares)
        each, "charts": as `components/learn/charts.py` makes them, "walk": chains on one axis, or
        None, "tokens": a proposal with the model's probability of each token, or None}.
    """
    ask = stop.ask
    place = ask.then if ask and (answered or ask.then.page != stop.at.page) else stop.at
    highlight = ask.highlight if ask and answered else stop.highlight
    content: dict[str, Any] = {"texts": [], "rows": [], "bars": [], "charts": []}
    content |= {"walk": None, "tokens": None}
    open_ = None if answered else ask
    if place.page == "watch":
        if highlight == "problem":
            trace = run_of(place.run)
            content["texts"] = [("The lesson’s problem", "", trace.header.run.prompt)]
            _samples(content, place, ask, answered=answered)
        else:
            _watch(content, place, highlight, open_)
    elif place.page == "lab":
        _lab(content, stop.at, ask, open_)
        content["charts"] = lab_charts(stop.at, ask, answered=answered)
    elif place.page == "results":
        _results(content, stop, place, open_)
    else:
        of = FACTS[place.page](place)
        content["rows"] = [
            (f"{idea.word}, {of.draws(m)} draws", f"says {of.says(m)}")
            for m, idea in names_of().items()
        ]
        content["rows"] += [
            ("Tokens in a row: the chain", format_value(of.waiting(chain_vote.id))),
            ("Tokens in a row: the longest sample", format_value(of.waiting(best_reward.id))),
        ]
    return content


def _watch(content: dict[str, Any], place: Place, highlight: str, ask: Ask | None) -> None:
    """Fill in a step as two texts and its numbers, or a run as traces and votes."""
    trace, of = run_of(place.run), ChainFacts(place)
    content["texts"] = [("The lesson’s problem", "", trace.header.run.prompt)]
    step = trace.chains[place.chain][place.step]
    old, new = step.current.response, step.proposal.response
    if place.step == 0:
        content["texts"].append(("The first draft", "", old.text))
        content["rows"] = [("Tokens", of.length())]
    elif place.tab == "tokens":
        _tokens(content, trace.header, new)
    elif highlight in ("text", "chance", "verdict", "whatif") or place.tab == "hand":
        kept = "".join(old.pieces[: step.index])
        is_first = place.step == 1 and not place.phase
        name = "The first draft" if is_first else "Old text"
        both = [(name, old), ("New text", new)][: 1 + (place.phase > 0)]
        content["texts"] += [(name, kept, each.text[len(kept) :]) for name, each in both]
        content["rows"] = [
            (name, " → ".join(format_value(value_of(f, place)) for f in facts[: len(both)]))
            for k, name, *facts in STEP
            if k <= place.phase
        ]
    elif place.tab == "tree":
        ends = [chain[place.step].state.response.text for chain in trace.chains.values()]
        content["texts"] += [(f"Chain {k} ends at", "", end) for k, end in enumerate(ends, 1)]
    elif highlight == "time" and ask is not None and ask.veil:
        content["charts"] = [reward_chart(trace.rewards)]
    else:
        hides, chains = ask is not None and ask.veil, trace.chains
        traces = {k + 1: [s.state.reward for s in c[: place.step + 1]] for k, c in chains.items()}
        content["walk"] = {
            "chains": list(traces.items()),
            "base": trace.rewards,
            "weights": importance_weights(trace.rewards, trace.header.run.target),
            "worth": of.weights_worth() if trace.rewards else 0,
            "steps": trace.header.run.steps,
            "single": min(2, len(chains)),  # the lesson with several speaks of the second
        }
        votes = [_shares([s.state for s in c[: place.step + 1]], of) for c in chains.values()]
        if not hides and len(votes) == 1 and votes[0]:
            content["bars"] = [("The chain’s votes", votes[0])]
        elif not hides:
            content["rows"] = [(f"Most states of chain {k} say", f"{first} ({share})")
                            for k, ((first, _, share), *_) in enumerate(votes, 1)]  # fmt: skip
    if trace.pool and ask is None and highlight == "votes":
        content["bars"].append(
            (f"{of.even_samples()} samples of the model alone", _shares(of._even_pool(), of))
        )


def _samples(content: dict[str, Any], place: Place, ask: Ask | None, *, answered: bool) -> None:
    """Fill in the model's own samples: their answers, rewards or weights, as the question needs."""
    of, (fact, _, first) = ChainFacts(place), (ask.fact if ask else "").partition(":")
    if fact == "weights_worth":
        worth = format_value(of.weights_worth()) if answered else "?"
        content["charts"] = [weight_chart(place)]
        content["rows"] = [("Samples", of.samples()), ("Equal weights that they are worth", worth)]
    elif fact == "best_reward":
        says = Counter(map(of._answer, of._pool)).most_common(MOST)
        content["rows"] = [(f"{n} samples say {answer}: mean reward",
                            format_value(of.rewarded(answer))) for answer, n in says]  # fmt: skip
        best = format_value(of.best_reward()) if answered else "?"
        content["rows"].append((f"The best sample says {of.best_says()}: reward", best))
    else:
        n = int(first or 24)
        answers = [of._answer(each) for each in of._pool[:n]]
        content["rows"] = [(f"Samples {k + 1} to {min(k + IN_A_ROW, n)}",
                            " ".join(answers[k : k + IN_A_ROW]))
                           for k in range(0, len(answers), IN_A_ROW)]  # fmt: skip
        if answered and first:
            content["bars"] = [(f"The first {n}", _shares(of._pool[:n], of))]
        if not ask:
            content["bars"].append((f"All {of.samples()} samples", _shares(of._pool, of)))


def _tokens(content: dict[str, Any], header: TraceHeader, text: Response) -> None:
    """Fill in a proposal token by token, and the tokens that the model finds least likely."""
    lm: Any = load_language_model(header.run.lm, sampling=header.run.sampling)
    scores = asyncio.run(lm.score_tokens(lm.encode(header.run.prompt), text.tokens))
    tokens = [(each.log_p, each.others) for each in scores]
    content["tokens"] = {"pieces": text.pieces, "finished": text.finished, "scores": tokens}
    for k in sorted(range(len(tokens)), key=lambda k: tokens[k][0])[:MOST]:
        likeliest = ", ".join(f"“{it.strip()}” {percent(math.exp(p))}" for it, p in tokens[k][1])
        name = f"Token {k + 1}, “{text.pieces[k].strip()}”: {percent(math.exp(tokens[k][0]))}"
        content["rows"].append((name, f"likeliest: {likeliest}"))


def _shares(samples: Any, of: ChainFacts) -> list[tuple[str, float, str]]:
    shares = majority_vote(samples, of._read).shares[:MOST]
    return [(name, share, percent(share)) for name, share in shares]


def _lab(content: dict[str, Any], at: Place, ask: Ask | None, open_: Ask | None) -> None:
    """Fill in the settings of a world and their effects, before and after a prediction."""
    then = ask.then if ask and ask.then.page == "lab" else at
    before, after = ({"beta": "1", **dict(place.lab)} for place in (at, then))
    section = after.get("opened", "Beta")
    if section == "A wrong reward":
        before, after = ({"hack-beta": "1", **each, "beta": ""} for each in (before, after))
        _wrong_reward(content)
    changed = {name for name in (*SETTINGS, "mistake") if before.get(name) != after.get(name)}
    of_rule = ("wrong_reward", "wrong_length", "lost")
    content["rows"] += [(SETTINGS[name], _arrow(before.get(name, "1"), after[name]))
                        for name in SETTINGS
                        if after.get(name) and (name in changed or name != "hack-beta")
                        ]  # fmt: skip
    open_facts = [ask.fact] if ask and ask.fact else list(ask.options) if ask else []
    for fact, name in SECTIONS[section].items():
        old, new = (format_value(value_of(fact, place)) for place in (at, then))
        # with another mistake, "this rule" is another rule, so the value before is not its own
        before_it = "" if fact in of_rule and "mistake" in changed else old if changed else "?"
        if open_ is None:
            content["rows"].append((name, _arrow(before_it if changed else old, new)))
        elif fact in open_facts and (open_.fact or old != new or not changed):
            content["rows"].append((name, _arrow(before_it, "?")))
        elif fact not in of_rule or not changed:
            content["rows"].append((name, old))


def _arrow(old: str, new: str) -> str:
    """Return a value and what it becomes; `old` is "" if there was none before."""
    return f"{old} → {new}" if old not in ("", new) else new


def _wrong_reward(content: dict[str, Any]) -> None:
    """Fill in three answers, with their rewards and their shares of the samples."""
    example = Example()
    content["rows"] = [
        (f"{answer}: {meaning}", f"reward {reward:g}, {percent(base)} of samples")
        for answer, meaning, base, reward in zip(
            ANSWERS, MEANINGS, example.base, example.rewards, strict=True)
    ]  # fmt: skip


def _results(content: dict[str, Any], stop: Stop, place: Place, open_: Ask | None) -> None:
    """Fill in curves against compute, or how many problems two methods share if a stop names it."""
    of, title = ResultFacts(place), TITLES.get(place.set.removesuffix("-weak"), "")
    content["rows"] = [(title, f"{of.problems()}\u00a0problems")]
    words = stop.text + (f"{{{stop.ask.fact}}} {stop.ask.right}" if stop.ask else "")
    pair = SHARED.search(words)
    if pair is None:
        single = format_value(of.at_first(best_reward.id))
        content["rows"].append(("A single sample is right", single))
        content["charts"] = result_charts(of, answered=open_ is None)
        return
    asks = open_.fact.partition(":")[0] if open_ else ""
    hidden = GROUPS if asks in GROUPS else {*GROUPS, "count"} if asks == "count" else ()
    bars = []
    for name, fact in _shared(*pair[1].split(",")):
        n = int(value_of(fact, place))
        is_known = fact.partition(":")[0] not in hidden
        bars.append((name, is_known * n / of.problems(), str(n) if is_known else "?"))
    content["bars"] = [(f"Right at the compute of {of.budget()} samples", bars)]
    if INTERVAL.search(words):
        more, interval = in_points(of._difference(pair[1]), "+.1f").split(" ", 1)
        content["rows"] += [
            ("Difference, in percentage points", more),
            ("Its 95% interval", "?" if open_ else interval.strip("()")),
        ]


def _shared(first: str, second: str) -> list[tuple[str, str]]:
    """Return what two methods are right on, together and alone: a name and its fact each."""
    (of_first, only_first), (of_second, only_second) = (
        NAMES.get(method, 2 * (curve_name(method),)) for method in (first, second)
    )
    pair = f"{first},{second}"
    return [
        (of_first, f"count:{first}"),
        (of_second, f"count:{second}"),
        ("Both", f"both:{pair}"),
        (f"Only {only_first}", f"only:{pair}"),
        (f"Only {only_second}", f"only:{second},{first}"),
        ("Neither", f"neither:{pair}"),
    ]
