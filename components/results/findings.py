"""What came out on a set, in sentences that follow from the numbers alone."""

import html
from collections.abc import Mapping, Sequence

from qalign_core.decide.rules import RULES
from qalign_core.types import SetHeader
from qalign_study.export.dictionary import Idea
from qalign_study.measure.curves import Point, difference, paired
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
    bon, ours = of(points, "bon"), of(points, "qalign")
    said = [*_out_of_reach(points), *([_best_of_n(bon)] if bon else [])]
    for method in (id_ for id_ in RULES if id_ != "qalign"):
        found = list(paired(points, "qalign", method))
        if found:
            last = found[-1]
            chain = next(p for p in ours if p.n == last.n)
            said.append(
                f"At the compute of {last.n} samples QAlign ({percent(chain.value)}) "
                f"{standing(last)} {in_a_sentence(names[method].word)} "
                f"({percent(chain.value - last.value)}): {gap(last)}."
            )
    return said


def _out_of_reach(points: Sequence[Point]) -> list[str]:
    """That the chain is above what any rule over as many samples could be, if it is."""
    found = list(paired(points, "qalign", "any"))
    if not found or found[-1].verdict != "ahead":
        return []
    last = found[-1]
    ceiling = next(p for p in of(points, "any") if p.n == last.n).value
    return [
        f"Only {percent(ceiling)} of the problems have a right answer among {last.n} samples, so "
        "no rule that chooses among them can do better. At the same compute QAlign reaches "
        f"{percent(ceiling + last.value)}: {gap(last)}. {SURVIVE}."
    ]


def _best_of_n(bon: Sequence[Point]) -> str:
    """Whether taking the best of more samples went on to pay."""
    best, last = max(bon, key=lambda p: p.value), bon[-1]
    if best.n == last.n:
        return f"Best-of-n does not get worse here: {percent(last.value)} at n = {last.n}."
    lost = difference(best, last)
    if lost.verdict == "ahead":
        return (
            f"Best-of-n is right on {percent(best.value)} at n = {best.n} and on "
            f"{percent(last.value)} at n = {last.n}, a drop of {gap(lost, sign=False)}: it "
            "over-optimizes this reward."
        )
    return (
        f"Best-of-n is best at n = {best.n} ({percent(best.value)}), which "
        f"{standing(lost)} its {percent(last.value)} at n = {last.n}: {gap(lost)}."
    )


def findings_html(
    points: Sequence[Point], settings: SetHeader, papers: Difference | None = None
) -> str:
    """The findings as a list; `papers` is QAlign minus QAlign of the paper's target and move."""
    said = findings(points, names_of(settings.open_ended))
    if settings.sharpness != 1:
        without = "" if settings.rewarded else "Without a reward there is no best-of-n. "
        said.insert(
            0,
            f"{without}QAlign and the weighted vote aim at sharpness "
            f"{number(settings.sharpness)}; the "
            "majority vote uses samples of the unchanged model, sharpness 1.",
        )
    if papers is not None:
        here, there = f"of sharpness {number(settings.sharpness)}", "of sharpness 1"
        if settings.move != "suffix":
            here, there = f"with the moves {settings.move}", "with suffix moves alone"
        said.append(
            f"On the same problems at the compute of {papers.n} samples QAlign {here} "
            f"{standing(papers)} QAlign {there}: {gap(papers)}."
        )
    items = "".join(f"<li>{html.escape(text)}</li>" for text in said)
    return f'<ul class="qr-said">{items}</ul>'
