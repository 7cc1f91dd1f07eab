"""What came out on a set, in sentences that follow from the numbers alone."""

from collections.abc import Mapping, Sequence

from qalign_core.decide.rules import RULES, chain_vote
from qalign_core.run import Run
from qalign_study.export.dictionary import Idea, markup_of
from qalign_study.measure.curves import Point
from qalign_study.measure.differences import difference, paired
from qalign_study.measure.intervals import Difference
from qalign_study.sheet.figures import of
from qalign_study.sheet.words import (
    SURVIVE,
    gap,
    in_a_sentence,
    names_of,
    number,
    percent,
    standing,
)


def findings(points: Sequence[Point], names: Mapping[str, Idea] | None = None) -> list[str]:
    """What came out, in sentences that follow from the numbers alone."""
    names = names or names_of()
    chain_points, sentences = of(points, chain_vote.id), _out_of_reach(points)
    for rule in RULES.values():
        if rule.maximizes and (highest := of(points, rule.id)):
            sentences.append(_highest(highest, names[rule.id].word, rule.maximizes))
    for method in (id_ for id_ in RULES if id_ != chain_vote.id):
        if differences := paired(points, chain_vote.id, method):
            last = differences[-1]
            chain = next(p for p in chain_points if p.n == last.n)
            sentences.append(
                f"At the compute of {last.n} samples QAlign ({percent(chain.value)}) "
                f"{standing(last)} {in_a_sentence(names[method].word)} "
                f"({percent(chain.value - last.value)}): {gap(last)}."
            )
    return sentences


def _out_of_reach(points: Sequence[Point]) -> list[str]:
    """That the chain is above what any rule over as many samples could be, if it is."""
    differences = paired(points, chain_vote.id, "any")
    if not differences or differences[-1].verdict != "ahead":
        return []
    last = differences[-1]
    ceiling = next(p for p in of(points, "any") if p.n == last.n).value
    return [
        f"Only {percent(ceiling)} of the problems have a right answer among {last.n} samples, so "
        "no rule that chooses among them can do better. At the same compute QAlign reaches "
        f"{percent(ceiling + last.value)}: {gap(last)}. {SURVIVE}."
    ]


def _highest(points: Sequence[Point], name: str, score: str) -> str:
    """Describe whether taking the highest score of more samples went on to pay."""
    best, last = max(points, key=lambda p: p.value), points[-1]
    if best.n == last.n:
        return f"{name} does not get worse here: {percent(last.value)} at n = {last.n}."
    lost = difference(best, last)
    if lost.verdict == "ahead":
        return (
            f"{name} is right on {percent(best.value)} at n = {best.n} and on "
            f"{percent(last.value)} at n = {last.n}, a drop of {gap(lost, sign=False)}: it "
            f"over-optimizes this {score}."
        )
    return (
        f"{name} is best at n = {best.n} ({percent(best.value)}), which "
        f"{standing(lost)} its {percent(last.value)} at n = {last.n}: {gap(lost)}."
    )


def findings_html(points: Sequence[Point], settings: Run, papers: Difference | None = None) -> str:
    """The findings as a list; `papers` is QAlign minus QAlign of the paper's target and move."""
    sentences = findings(points, names_of(settings.open_ended))
    if settings.sharpness != 1:
        without = "" if settings.has_reward else "Without a reward there is no best-of-n. "
        sentences.insert(
            0,
            f"{without}QAlign and the weighted vote aim at sharpness "
            f"{number(settings.sharpness)}; the "
            "majority vote uses samples of the unchanged model, sharpness 1.",
        )
    if papers is not None:
        here, there = f"of sharpness {number(settings.sharpness)}", "of sharpness 1"
        if settings.move != "suffix":
            here, there = f"with the moves {settings.move}", "with suffix moves alone"
        sentences.append(
            f"On the same problems at the compute of {papers.n} samples QAlign {here} "
            f"{standing(papers)} QAlign {there}: {gap(papers)}."
        )
    items = "".join(f"<li>{markup_of(text)}</li>" for text in sentences)
    return f'<ul class="qr-said">{items}</ul>'
