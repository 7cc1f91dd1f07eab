"""Names of the rules and the format of numbers, on every page."""

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal

from qalign_core.decide.rules import RULES
from qalign_core.registry import entries
from qalign_core.run import Run
from qalign_study.export.dictionary import Idea, ideas
from qalign_study.measure.curves import Curve, Point
from qalign_study.measure.diagnostics import MIN_STATES, Agreement
from qalign_study.measure.intervals import NARROW, Difference, Measured, Verdict

COMPUTE_NOTE = (
    "What counts as compute: each model reads the prompt once per run. A sample costs all its "
    "tokens, a proposal only those after its cut, because the chain has the rest already. The "
    "reward model reads the same tokens, or the whole text if it cannot resume partway through. "
    "FLOPs are 2 × parameters × tokens, for both models together. The count depends on the run "
    "alone, not on caches or on who else is using the server."
)
"""The sentence on every page about what `chain.cost` counts."""
SURVIVE = "A rewrite that loses a right part is usually rejected, so right parts survive"
"""Why a chain can be right where no sample is: no part of the method knows what is right."""


def names_of(open_ended: bool = False) -> dict[str, Idea]:
    """The words for the rules, for prompts with an answer or for open-ended ones."""
    return {id_: _open(ideas()[id_]) if open_ended else ideas()[id_] for id_ in RULES}


def _open(idea: Idea) -> Idea:
    """A rule where a text is chosen, for which it may have another word or sentence."""
    if idea.open:
        return ideas()[idea.open]
    return replace(idea, sentence=idea.open_sentence or idea.sentence)


def curve_name(curve: Curve, open_ended: bool = False) -> str:
    """Return the name of a curve in tables."""
    id_, own, _ = curve.partition("_own")
    word = names_of(open_ended).get(id_, ideas().get(id_))
    return word.word + ", its own β" * bool(own) if word else "One sample"


MARGIN = f"±{100 * NARROW:.0f} points"
VERDICTS: dict[Verdict, str] = {
    "ahead": "ahead",
    "behind": "behind",
    "equivalent": f"equivalent within {MARGIN}",
    "not significant": "no significant difference",
    "too few": "too few problems for a verdict",
}
"""The words for each verdict on a paired difference, in tables."""
_STANDINGS: dict[Verdict, str] = {
    "ahead": "is ahead of",
    "behind": "is behind",
    "equivalent": f"is equivalent within {MARGIN} to",
    "not significant": "is not significantly different from",
    "too few": "was run on too few problems to be compared with",
}


def standing(difference: Difference) -> str:
    """How the first method compares with the second, as a verb."""
    return _STANDINGS[difference.verdict]


def in_points(measurement: Measured | Point | Difference, form: str = ".1f") -> str:
    """A measurement with its 95% interval, in percent or points: 41.0 (35.6 to 46.7)."""
    value, low, high = (100 * x for x in (measurement.value, measurement.low, measurement.high))
    return f"{value:{form}} ({low:.1f} to {high:.1f})".replace("-", "−")


def contrary_verdict(difference: Difference) -> str:
    """Return the verdict in words where the interval alone suggests another, else ""."""
    seems_clear = difference.low > 0 or difference.high < 0
    is_clear = difference.verdict in ("ahead", "behind")
    is_contrary = seems_clear != is_clear or difference.verdict == "too few"
    return VERDICTS[difference.verdict] if is_contrary else ""


def few(difference: Difference) -> str:
    """The number of discordant problems and the exact p-value if they are few, else ""."""
    if difference.p is None:
        return ""
    count = f"{difference.discordant:.1f}".removesuffix(".0")
    one = "" if count == "1" else "s"
    return f"few: they differ on {count} problem{one}, exact p = {number(difference.p, 2)}"


def brief(difference: Difference) -> str:
    """A difference in points with its interval, and the test where few problems are discordant."""
    return "; ".join(filter(None, (in_points(difference, "+.1f"), few(difference))))


def gap(difference: Difference, *, sign: bool = True) -> str:
    """The same in a sentence; without its sign where the sentence names the direction."""
    form = "+.1f" if sign else ".1f"
    text = in_points(difference, form).replace("(", "percentage points (95% CI ")
    return "; ".join(filter(None, (text, few(difference))))


def in_a_sentence(name: str) -> str:
    """A name as it is written within a sentence: "best-of-n", but "QAlign" and "MBR"."""
    return name if name[1:2].isupper() else name[:1].lower() + name[1:]


def si(value: float, unit: str) -> str:
    """A large count with its prefix: 11.9 GFLOPs; tokens in full."""
    if unit != "FLOPs":
        return f"{value:,.0f} {unit}"
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:#.3g}".rstrip(".") + f" {prefix}FLOPs"
    return f"{value:.0f} FLOPs"


def percent(share: float) -> str:
    """A share as a percentage, with a decimal only near 0, and where it is nearly 100%."""
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.999 < share < 1:
        return ">99.9%"
    digits = 1 if 0 < share < 0.1 or 0.995 <= share < 1 else 0
    return f"{100 * share:.{digits}f}%"


def percents(shares: Sequence[float]) -> list[str]:
    """Shares of one whole, each rounded by itself, so that equal shares look equal.

    Only nothing is 0%, and only everything 100%, as in assets/web/player/words.js.
    """

    def in_whole_percent(share: float) -> str:
        if 0 < share < 0.005:
            return "<1%"
        return ">99%" if 0.995 <= share < 1 else f"{math.floor(100 * share + 0.5)}%"

    whole = sum(shares) or 1.0
    return [in_whole_percent(share / whole) for share in shares]


def quantity(n: int, noun: str) -> str:
    """A count and its noun, which takes an s in the plural."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def number(value: float, digits: int = 3, *, padded: bool = False) -> str:
    """Format a number as all pages do: significant digits, or all before the point.

    Beyond three zeros after the point, or six digits before it, as a power of ten. `brief` and
    `plain` of assets/web/player/words.js write the same.

    Args:
        value: any number.
        digits: significant digits.
        padded: whether trailing zeros are kept, as for factors of a product: 0.690.
    """
    sign = "−" if value < 0 else ""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–" if math.isnan(value) else f"{sign}∞"
    exact = Decimal(abs(float(value)))
    rounded = Context(prec=digits, rounding=ROUND_HALF_UP).plus(exact)
    power = rounded.adjusted()
    if -4 < power < 6:
        text = f"{_round_half_up(exact, max(0, digits - 1 - power)):,f}"
    else:
        text = f"{rounded.scaleb(-power):.{digits - 1}f}"
    if not padded and "." in text:
        text = text.rstrip("0").rstrip(".")
    if -4 < power < 6:
        return sign + text
    return f"{sign}{text} × 10{str(power).translate(_RAISED)}"


def fixed(value: float, places: int = 2) -> str:
    """Format a number with a fixed number of decimal places and a true minus sign: −13.80."""
    return f"{_round_half_up(Decimal(float(value)), places):f}".replace("-", "−")


def signed(value: float, places: int = 2) -> str:
    """Format a difference, as `fixed` but with a plus sign too: +0.50."""
    return ("+" if value >= 0 else "") + fixed(value, places)


def _round_half_up(value: Decimal, places: int) -> Decimal:
    """Round as browsers do: of two numbers that are equally close, to the one further from 0."""
    return value.quantize(Decimal(1).scaleb(-places), context=_CONTEXT)


_CONTEXT = Context(prec=400, rounding=ROUND_HALF_UP)
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def model_title(kind: str, id_: str) -> str:
    """A model's title, or its id."""
    entry = entries().get((kind, id_))
    return entry.title if entry is not None else id_


def models_of(run: Run) -> str:
    """A run's models by their titles."""
    return f"language model: {model_title('lm', run.lm)}; reward model: {model_title('rm', run.rm)}"


def target_of(run: Run) -> str:
    """Describe a run's target in a few words: β or no reward, its sharpness, its own moves."""
    reward = f"β = {number(run.beta)}" if run.has_reward else "no reward"
    sharper = f", sharpness {number(run.sharpness)}" if run.sharpness != 1 else ""
    return reward + sharper + (f", moves {run.move}" if run.move != Run.move else "")


def describe_mixing(agreement: Agreement) -> str:
    """The sentence that every page and endpoint prints beside the split R-hat of chains."""
    one = agreement.n_chains == 1
    if agreement.n_states < MIN_STATES:
        return f"needs {MIN_STATES} states per chain, has {agreement.n_states}"
    if agreement.rhat is None:
        return "undefined: the reward never changed"
    who = f"the rewards of the {'halves' if one else 'chains'}"
    if not agreement.is_mixed:
        several = "run longer, or run several chains" if one else "run longer"
        why = f"since R-hat is above {agreement.limit:.3f}"
        if math.isinf(agreement.rhat):
            half = "half" if one else "half of a chain"
            why = f"and within each {half} they are constant, so R-hat is infinite"
        return f"not yet: {who} differ, {why}; {several}"
    unseen = "; only several chains can show a place that one never found" if one else ""
    bound = f"{agreement.limit:.3f}"
    if agreement.limit > 1.01:
        bound += ", the limit for so few states"
    return f"{who} agree: R-hat is no more than {bound}{unseen}"


MOST_TICKS = 10
"""Labelled ticks of an axis."""


def log_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Round numbers from a little below `low` to a little above `high`, at most `most` of them.

    As many of 1, 2 and 5 in each power of ten as there is room for, or only every so many powers.
    More digits where fewer than three numbers would be left.
    """
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    for digits, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3), ((1,), 6)):
        ticks = [
            float(f"{digit}e{power}")
            for power in range(first, last + 1)
            if power % every == 0
            for digit in digits
        ]
        within = [tick for tick in ticks if low / 1.2 <= tick <= high * 1.2]
        if len(within) <= most:
            break
    if len(within) < 3:
        apart = 1, 2, 3, 4, 5, 6, 8  # 0.7, 0.8, 0.9 and 1 are too close together
        ticks = [float(f"{k}e{power}") for power in range(first, last + 1) for k in apart]
        within = [tick for tick in ticks if low <= tick <= high * 1.2]
    return within


def tick_text(value: float) -> str:
    """A round number as an axis says it: 0.05, 200, 5k, 2M; powers where there is no such word."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if factor <= value < 1000 * factor:
            return f"{value / factor:g}{prefix}"
    if 0.001 <= value < 1000:
        return f"{value:g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    power = f"10<sup>{int(exponent)}</sup>".replace("-", "−")
    return power if mantissa == "1" else f"{mantissa} × {power}"
