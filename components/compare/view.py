"""A comparison in the words and numbers that the page shows: JSON for the browser, nothing else.

Every number is formatted here, from the core's values; the browser only lays them out, and puts
every text into the page as text.
"""

import json
from collections.abc import Sequence
from typing import Any

from qalign_core.decide.answers.graders import format_references
from qalign_core.decide.methods import Decision
from qalign_core.decide.rouge import unread
from qalign_core.decide.rules import Rule, chain_vote, plain_vote, weighted_vote
from qalign_core.errors import QAlignError
from qalign_study.export.dictionary import Idea, ideas
from qalign_study.measure.comparisons import (
    Budget,
    Comparison,
    Cut,
    Outcome,
    full_cut,
    ladder,
    outcomes,
    recycled,
)
from qalign_study.measure.diagnostics import acceptance, agreement
from qalign_study.sets.generated import WritingTask, constraints, kind_of, read_writing_task
from qalign_study.sheet.convergence import trust
from qalign_study.sheet.evaluated import (
    difference_of_votes,
    read,
    results_files,
    task_of,
)
from qalign_study.sheet.words import (
    SURVIVE,
    describe_mixing,
    fixed,
    gap,
    in_a_sentence,
    names_of,
    number,
    percent,
    percents,
    quantity,
    si,
    standing,
    target_of,
)

MAX_BARS = 5
"""Answers with a bar of their own; the rest is summed up."""
COUNTED = {
    True: "2 × parameters × tokens, for both models",
    False: "counted in tokens, because the size of a model is unknown",
}
"""The unit of compute in one line, by whether FLOPs are known."""
SAME = ("lm", "rm", "sharpness")
"""Settings in which recorded results must be as the comparison is, to be named beside it."""


def naming(comparison: Comparison) -> dict[str, Idea]:
    """Return the words for the rules at this kind of prompt."""
    return names_of(comparison.extract is None)


def writing_task(comparison: Comparison) -> WritingTask | None:
    """Parse the prompt of a writing task; None for other prompts."""
    return read_writing_task(comparison.header.run.prompt) if comparison.extract is None else None


def view(
    comparison: Comparison,
    *,
    state: str,
    budget: Budget = "flops",
    every_rung: bool = True,
) -> str:
    """Return the panel's content as JSON.

    Args:
        comparison: the draws so far.
        state: "live", "done", "stopped" or "recorded".
        budget: the comparison that is shown first.
        every_rung: False keeps only the largest budget, for a run in progress.
    """
    header = comparison.header
    texts: dict[str, int] = {}
    ladders: dict[str, list[dict[str, Any]]] = {}
    if comparison.ready:
        budgets: tuple[Budget, ...] = ("flops", "samples")
        for kind in budgets if every_rung else (budget,):
            cuts = ladder(comparison, kind) if every_rung else (full_cut(comparison, kind),)
            ladders[kind] = [_rung(comparison, cut, kind, texts) for cut in cuts]
    n_states = len(comparison.trace.steps)
    planned = header.run.chains * (header.run.steps + 1)
    progress = (
        f"{quantity(n_states, 'chain state')} of {max(planned, n_states):,}, "
        f"{quantity(len(comparison.pool), 'independent sample')}; seed {header.run.seed}"
    )
    return json.dumps(
        {
            "state": state,
            "prompt": header.run.prompt,
            "reference": None
            if header.run.reference is None
            else format_references(header.run.reference),
            "budget": budget,
            "open_ended": comparison.extract is None,
            "accounting": f"Compute is {COUNTED[header.meter.unit == 'FLOPs']}. A proposal costs "
            "only the tokens after its cut.",
            "progress": {"done": min(n_states, planned), "of": planned, "text": progress},
            "ladders": ladders,
            "texts": list(texts),
        },
        ensure_ascii=False,
    ).replace("<", "\\u003c")


def _rung(
    comparison: Comparison, cut: Cut, budget: Budget, texts: dict[str, int]
) -> dict[str, Any]:
    results = outcomes(comparison, cut)
    with_waste = recycled(comparison, cut)
    return {
        "t": cut.t,
        "n": cut.n,
        "conclusion": conclusion(comparison, results),
        "line": level_line(comparison, results, budget),
        "waits": waits(results),
        "cards": [_card(comparison, cut, outcome, with_waste, texts) for outcome in results],
    }


def level_line(comparison: Comparison, results: Sequence[Outcome], budget: Budget) -> str:
    """Describe the equal budget in one sentence, with the numbers of both sides."""
    chain, pool = _sides(results)
    unit = comparison.header.meter.unit
    apart = abs(chain.spent - pool.spent) / max(pool.spent, 1)
    spent = f"{si(chain.spent, unit)} against {si(pool.spent, unit)}"
    sides = f"{quantity(chain.n, 'chain state')} and {quantity(pool.n, 'independent sample')}"
    if budget == "samples":
        return f"Equal samples: {sides}. The compute is not equal: {spent}."
    each = number(chain.spent * pool.n / (chain.n * max(pool.spent, 1)), 2)
    sides += f" (a state costs {each} times as much)"
    return f"Equal compute: {sides}; {spent}, {percent(apart)} apart."


def waits(results: Sequence[Outcome]) -> str:
    """Describe the waiting time, which equal compute does not make equal."""
    chain, pool = _sides(results)
    return (
        f"The waiting time is not equal. The chain writes {chain.sequential:,} new tokens in a "
        f"row. Samples can be drawn in parallel, and the longest has {pool.sequential:,} tokens."
    )


def _sides(results: Sequence[Outcome]) -> tuple[Outcome, Outcome]:
    """Return one rule over the chain and one over the samples; others use the same draws."""
    chain, pool = (next(o for o in results if o.rule.draws == side) for side in ("chain", "pool"))
    return chain, pool


def conclusion(comparison: Comparison, results: Sequence[Outcome]) -> str:
    """Summarize the methods' answers; methods that agree share one clause."""
    names = naming(comparison)
    sides: dict[str, list[str]] = {}
    for outcome in results:
        clause = _clause(comparison, outcome)
        sides.setdefault(clause, []).append(in_a_sentence(names[outcome.method].word))
    if len(sides) == 1:
        return f"Here all methods {next(iter(sides))}."
    clauses = [f"{_join_names(who)} {clause}" for clause, who in sides.items()]
    return f"Here {'; '.join(clauses)}.{_out_of_reach(comparison, results)}"


def _out_of_reach(comparison: Comparison, results: Sequence[Outcome]) -> str:
    """Say that only the chain can be right here, or return an empty text if that is not so."""
    of = {outcome.method: outcome for outcome in results}
    pool = of[plain_vote.id]
    answers = [answer for answer, _ in pool.decision.shares]
    if not of[chain_vote.id].correct or any(map(comparison.problem.is_right, answers)):
        return ""
    return (
        f" None of the {quantity(pool.n, 'sample')} is right, so no rule that chooses among them "
        f"can be right. {SURVIVE}."
    )


def _clause(comparison: Comparison, outcome: Outcome) -> str:
    """Describe a method's decision as a verb phrase that fits any number of methods."""
    decision = outcome.decision
    if comparison.extract is None:
        if writing_task(comparison) is not None:
            return f"chose a text with {_headline(comparison, decision)}"
        place = None if decision.chosen is None else decision.chosen.reward
        return "chose no text" if place is None else f"chose a text of reward {number(place)}"
    if decision.answer is None:
        return "found no answer"
    verdict = {None: "", True: ", which is right", False: ", which is wrong"}[outcome.correct]
    return f"chose {decision.answer}{verdict}"


def _join_names(names: Sequence[str]) -> str:
    """Join names: QAlign; QAlign and best-of-n; QAlign, best-of-n and majority vote."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def ranking(comparison: Comparison) -> str:
    """Say that one problem cannot rank the methods, and give the result on recorded problems."""
    header = comparison.header
    one = "One problem cannot rank the methods"
    task = kind_of(header.run.prompt)
    for path in (each for each in results_files() if task_of(each) == task):
        try:
            results = read(path)
            settings = results.header.run
            if any(getattr(settings, k) != getattr(header.run, k) for k in SAME):
                continue
            last = difference_of_votes(path)
        except QAlignError:  # Results says so
            continue
        if last is not None:
            vote = in_a_sentence(naming(comparison)[weighted_vote.id].word)
            return (
                f"{one}: on {len(results.records)} recorded problems of this kind, drawn at "
                f"β = {number(settings.beta)}, at the compute of {last.n} samples each, QAlign "
                f"{standing(last)} the {vote}: {gap(last)}."
            )
    return f"{one}; whole sets of problems can."


def _card(
    comparison: Comparison,
    cut: Cut,
    outcome: Outcome,
    with_waste: Decision,
    texts: dict[str, int],
) -> dict[str, Any]:
    decision, chosen = outcome.decision, outcome.decision.chosen
    idea = naming(comparison)[outcome.method]
    is_open = comparison.extract is None
    is_chain = outcome.rule.draws == "chain"
    waste = with_waste if is_chain else None
    # as Watch says it of the same states
    verdict = trust(_rewards(comparison, cut)) if is_chain else None
    return {
        "method": outcome.method,
        "term": (is_open and ideas()[outcome.method].open) or outcome.method,
        "name": idea.word,
        "sentence": idea.sentence,
        "answer": None if is_open else decision.answer,
        "headline": _headline(comparison, decision),
        "correct": outcome.correct,
        "rule": rule(comparison, outcome),
        "unvoted": _without_votes(outcome.rule),
        "bars": _typical(outcome, waste) if is_open else _votes(comparison, decision, waste),
        "trust": verdict and f"Can I trust it? {verdict.sentence} {verdict.next}",
        "recycled": _recycled_line(comparison, decision, waste),
        "text": None if chosen is None else texts.setdefault(chosen.response.text, len(texts)),
        "reward": None if chosen is None else number(chosen.reward),
        "facts": _facts(comparison, cut, outcome),
    }


def _headline(comparison: Comparison, decision: Decision) -> str:
    """Return a method's decision as the headline of its card."""
    if comparison.extract is not None:
        return decision.answer or "no answer"
    task = writing_task(comparison)
    if task is None or decision.chosen is None:
        return "One text, without a vote"
    met = constraints(task, decision.chosen.response.text)
    return f"{sum(met.values())} of {len(met)} constraints met"


def rule(comparison: Comparison, outcome: Outcome) -> str:
    """Describe the rule in one line, with this run's numbers."""
    decision, n = outcome.decision, outcome.n
    what = "state" if outcome.rule.draws == "chain" else "sample"
    if outcome.rule.picks == "draw":
        return _taken_draw(outcome, what)
    if comparison.extract is None:
        weighted = ", weighted" if outcome.rule.is_weighted else ""
        score = decision.scores[decision.index] if decision.index is not None else 0.0
        blind = unread([sample.response.text for sample in comparison.pool])
        return (
            f"Of {quantity(n, what)}, this text shares the most words with the others{weighted}: "
            f"mean ROUGE-1 {fixed(score)}.{f' {blind}.' * bool(blind)}"
        )
    if decision.answer is None:
        return f"None of the {quantity(n, what)} states an answer, so there is no vote."
    share = dict(decision.shares)[decision.answer]
    if outcome.rule.is_weighted:
        run, its_own = comparison.header.run, not outcome.rule.aims
        weight = ["exp(reward / β)"] * run.has_reward + ["p^(sharpness − 1)"] * (run.sharpness != 1)
        weight_rule = f"weighs {' · '.join(weight) or '1'}, at {target_of(run)}"
        return (
            f"Each of {quantity(n, what)} {'has a weight' if its_own else weight_rule}: "
            f"{percent(share)} of the weight is on {decision.answer}."
        )
    votes = round(share * n)
    tied = sum(other == share for _, other in decision.shares) > 1
    more = ", all of them" if votes == n else "" if votes * 2 > n else ", the largest group"
    if tied:
        more = ", tied with another answer: the first to appear wins"
    say = "says" if votes == 1 else "say"
    return f"{votes:,} of {quantity(n, what)} {say} {decision.answer}{more}."


def _without_votes(rule: Rule) -> str:
    """Explain why a card has no bars."""
    if rule.picks == "vote":
        return "No votes."
    decides = f"the highest {rule.maximizes}" if rule.maximizes else "one draw"
    return f"No vote: {decides} decides."


def _taken_draw(outcome: Outcome, what: str) -> str:
    """Describe a rule that takes one draw, with this run's numbers."""
    rule, decision, n = outcome.rule, outcome.decision, outcome.n
    if not rule.maximizes:
        assert decision.chosen is not None, "one of the draws is taken"
        return (
            f"One of {quantity(n, what)} is taken; its reward is {number(decision.chosen.reward)}."
        )
    top = sorted(decision.scores, reverse=True)[:2]
    if len(top) < 2:
        return f"The only {what} has {rule.maximizes} {number(top[0])}."
    first, second = map(number, top)
    return f"The highest {rule.maximizes} of {n:,} {what}s is {first}; the next is {second}."


def _votes(
    comparison: Comparison, decision: Decision, waste: Decision | None
) -> list[dict[str, Any]]:
    """Return the bars of the largest answers, then of all others, then of no answer."""
    shares = decision.shares
    if not shares:
        return []
    also = dict(waste.shares) if waste else {}
    bars: list[dict[str, Any]] = [
        {
            "name": answer,
            "share": share,
            "label": "",
            "right": comparison.problem.is_right(answer),
            "won": answer == decision.answer,
            "recycled": also.get(answer, 0.0) if waste else None,
            "recycled_label": percent(also.get(answer, 0.0)) if waste else None,
        }
        for answer, share in shares[:MAX_BARS]
    ]
    rest = sum(share for _, share in shares[MAX_BARS:])
    if rest > 0:
        bars.append(_rest_bar(quantity(len(shares) - MAX_BARS, "other"), rest))
    silent = 1.0 - sum(share for _, share in shares)
    if silent > 1e-9:
        bars.append(_rest_bar("no answer", silent))
    labels = percents([bar["share"] for bar in bars])
    return [{**bar, "label": label} for bar, label in zip(bars, labels, strict=True)]


def _rest_bar(name: str, share: float) -> dict[str, Any]:
    return {"name": name, "share": share, "right": None, "won": False}


def _typical(outcome: Outcome, waste: Decision | None) -> list[dict[str, Any]]:
    """Return bars that compare the chosen text with the median and the least typical one."""
    if outcome.rule.picks == "draw":
        return []
    scores = sorted(outcome.decision.scores)
    places = (
        ("this one", scores[-1]),
        ("the median", scores[len(scores) // 2]),
        ("the least", scores[0]),
    )
    bars = [
        {"name": name, "share": score, "label": fixed(score), "right": None, "won": not place}
        for place, (name, score) in enumerate(places)
    ]
    if waste is not None:
        bars[0] |= {"recycled": max(waste.scores), "recycled_label": fixed(max(waste.scores))}
    return bars


def _recycled_line(
    comparison: Comparison, decision: Decision, waste: Decision | None
) -> str | None:
    if waste is None:
        return None
    start = "With each rejected proposal counted with probability α (waste recycling)"
    if comparison.extract is None:
        same = waste.text is not None and waste.text == decision.text
        return f"{start}: {'the same text' if same else 'another text'}."
    if waste.answer is None:
        return f"{start}: no answer."
    share = dict(waste.shares)[waste.answer]
    plain = dict(decision.shares).get(waste.answer, 0.0)
    return f"{start}: {waste.answer}, {100 * share:.1f}%; plain {100 * plain:.1f}%."


def _facts(comparison: Comparison, cut: Cut, outcome: Outcome) -> list[list[str]]:
    is_chain = outcome.rule.draws == "chain"
    rows: list[list[str]] = []
    task, chosen = writing_task(comparison), outcome.decision.chosen
    if task is not None and chosen is not None:
        met = constraints(task, chosen.response.text)
        for title, kept in (("Met", True), ("Not met", False)):
            if names := [name for name, is_met in met.items() if is_met is kept]:
                rows.append([title, "; ".join(names)])
    rows.append(["Generated tokens", f"{outcome.cost.generated:,}"])
    if comparison.header.meter.unit == "FLOPs":
        rows.append(["Compute", si(outcome.spent, "FLOPs")])
    rows.append(
        [
            "Tokens to wait for",
            f"{outcome.sequential:,}",
            _LATENCY["chain" if is_chain else "pool"],
        ]
    )
    if is_chain:
        rate = acceptance(comparison.steps_to(cut.t)).changed.value
        if rate is not None:
            rows.append(
                ["Accepted", f"{percent(rate)} of changes", "of the proposals that change the text"]
            )
        if len(comparison.chains) > 1:
            rows.append(["Chains", f"{len(comparison.chains)} pooled"])
            rows.append(_rhat(comparison, cut))
    if outcome.effective is not None:
        rows.append(
            [
                "Effective samples",
                f"{fixed(outcome.effective, 1)} of {outcome.n:,}",
                "equally weighted samples with the same precision: 1 / Σw²",
            ]
        )
    return rows


_LATENCY = {
    "chain": "all new tokens of the chain: each proposal waits for the previous verdict",
    "pool": "the longest sample: samples can be drawn in parallel",
}


def _rewards(comparison: Comparison, cut: Cut) -> list[list[float]]:
    """Return the rewards of the states up to a cut, one list per chain."""
    return [[step.state.reward for step in chain[: cut.t + 1]] for chain in comparison.chains]


def _rhat(comparison: Comparison, cut: Cut) -> list[str]:
    agree = agreement(_rewards(comparison, cut))
    verdict = "" if agree.is_mixed or agree.rhat is None else ", not yet"
    return ["R-hat", f"{agree}{verdict}", describe_mixing(agree)]
