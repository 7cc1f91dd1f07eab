"""Methods of one set are compared by paired differences, on the page, in files and in the shell."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import with_run

from qalign_core.assets import ASSETS
from qalign_core.chain.cost import n_at_budget
from qalign_core.decide.arrays import vote
from qalign_core.decide.rules import RULES
from qalign_core.errors import InvalidSetting
from qalign_core.record.trace import SetHeader
from qalign_core.run import Run
from qalign_core.types import Array
from qalign_study.commands import main
from qalign_study.lessons.files import load_lessons
from qalign_study.measure.cross_validated_beta import (
    FACTORS,
    chosen_elsewhere,
    cross_validated,
    part_of,
)
from qalign_study.measure.curves import Curve, Point, averaged, curves
from qalign_study.measure.diagnostics import near_misses
from qalign_study.measure.differences import difference, level_n, paired
from qalign_study.measure.intervals import Difference, Measured, paired_difference, share_of
from qalign_study.measure.landmarks import crossing, gain, turn
from qalign_study.measure.record import Record, prices
from qalign_study.measure.report import AVERAGE, Compared, Report, others
from qalign_study.measure.results import Results, pack, unpack
from qalign_study.sheet.evaluated import read, summarise
from qalign_study.sheet.files import escape_latex, to_csv, to_latex
from qalign_study.sheet.page import to_html
from qalign_study.sheet.words import VERDICTS, few, in_points

pytestmark = pytest.mark.recorded

RESULTS = ASSETS / "results"
PAPERS = "suffix"
"""The paper's move."""
BAND = ("accuracy", "low", "high")
GAP = ("difference", "low", "high")


def point(method: Curve, each: list[float], *, spent: float = 1.0) -> Point:
    mean = float(np.mean(each))
    return Point(method, 8, 8.0, spent, 80.0, mean, mean, mean, 0.0, tuple(each))


def test_what_two_methods_share_is_no_part_of_their_difference() -> None:
    rng = np.random.default_rng(0)
    hard = (rng.random(200) < 0.5).astype(float)
    better = hard.copy()
    better[np.flatnonzero(hard == 0)[:8]] = 1.0
    gap = difference(point("wmv", better.tolist()), point("qalign", hard.tolist()))
    assert gap.value == pytest.approx(0.04)
    # 8 of 200 problems differ, all one way; the standard error is 0.014, not 0.05 as unpaired
    assert gap.low == pytest.approx(0.04 - 1.96 * 0.0139, abs=0.006)
    assert gap.verdict == "ahead"
    assert difference(point("qalign", hard.tolist()), point("wmv", better.tolist())).low < -0.06


def test_the_interval_of_a_difference_has_its_coverage() -> None:
    # 95 % of 300 intervals: fewer than 270 or more than 298 once in a million seeds
    rng, hits = np.random.default_rng(1), 0
    for _ in range(300):
        a, b = (rng.random((2, 200)) < [[0.8], [0.7]]).astype(float)
        gap = difference(point("wmv", a.tolist()), point("qalign", b.tolist()))
        hits += gap.low <= 0.1 <= gap.high
    assert 268 <= hits <= 299


def test_methods_are_compared_at_equal_prices_and_over_the_same_problems_only() -> None:
    one, cheap = point("qalign", [1.0, 0.0]), point("wmv", [1.0, 0.0], spent=0.9)
    assert paired([one, cheap], "qalign", "wmv") == []
    assert len(paired([one, replace(cheap, spent=0.99)], "qalign", "wmv")) == 1
    with pytest.raises(InvalidSetting, match="the same problems, got 2 and 3"):
        difference(one, point("wmv", [1.0, 0.0, 0.0]))


CARD = {
    "in distribution, 256 samples": ("in_distribution", 256),
    "shifted, 128 samples": ("shifted", 128),
    "shifted, 256 samples": ("shifted", 256),
    "long, 256 samples": ("long", 256),
    "weak reward model, 128 samples": ("in_distribution-weak", 128),
}
"""The rows of the model card's table of differences."""


@pytest.fixture(scope="module")
def full_report() -> Report:
    """The shipped sets with the paper's move; what is said of others is tested set by set.

    It decides every set at nine betas. What documents say of it is alike to what they say of
    fresh inventories, whose report is small.
    """
    paths = (path for path in sorted(RESULTS.glob("*.zip")) if read(path).header.run.move == PAPERS)
    sums = {path.stem: summarise(path) for path in paths}
    sets = {name: each.results for name, each in sums.items()}
    return Report(sets, known={name: each.points for name, each in sums.items()})


@pytest.fixture(scope="module")
def shipped(full_report: Report) -> dict[str, list[dict[str, Any]]]:
    return full_report.json()


@pytest.mark.more
def test_where_the_vote_of_samples_is_ahead_it_is_not_called_level(
    shipped: dict[str, list[dict[str, Any]]],
) -> None:
    claims = []
    few = [(name, 32) for name in ("in_distribution", "shifted", "long")]
    for name, n in [*few, *CARD.values()]:
        (row,) = (r for r in shipped["paired"] if (r["set"], r["b"], r["n"]) == (name, "wmv", n))
        claims.append(row["verdict"])
        at = {r["method"]: r for r in shipped["rows"] if (r["set"], r["n"]) == (name, n)}
        assert row["difference"] == pytest.approx(at["qalign"]["accuracy"] - at["wmv"]["accuracy"])
    assert claims == ["behind"] * len(few) + ["not significant"] * len(CARD)
    paired = {(r["set"], r["b"], r["n"]): r for r in shipped["paired"] if r["a"] == "qalign"}
    gaps = [[-100 * paired[name, "wmv", n][key] for key in ("difference", "high", "low")]
            for name, n in few]  # fmt: skip
    first, second, third = (f"{gap:.1f} ({low:.1f} to {high:.1f})" for gap, low, high in gaps)
    card = (ASSETS / "models" / "README.md").read_text("utf-8")
    assert f"ahead on each set, by {first}, {second} and {third} points" in card
    gap, low, high = (100 * paired["in_distribution", "wmv", 128][key] for key in GAP)
    assert (
        f"at 128 the chain is ahead in distribution, by {gap:.1f} ({low:.1f} to {high:.1f})" in card
    )


@pytest.mark.more
def test_every_shipped_set_is_in_every_form_of_the_report(full_report: Report) -> None:
    for form in (to_csv, to_latex, to_html):
        text = form(full_report)
        for each in full_report.sets:
            assert escape_latex(each.name) in text or each.name in text, (form, each.name)


@pytest.mark.more
def test_the_cards_table_of_differences_is_the_reports(
    shipped: dict[str, list[dict[str, Any]]],
) -> None:
    paired = {(r["set"], r["b"], r["n"]): r for r in shipped["paired"] if r["a"] == "qalign"}
    expected = []
    for title, (name, n) in CARD.items():
        # without rewards, samples run out sooner
        rows = [_latest(paired, name, other, n) for other in ("wmv", "mv", "bon")]
        cells = [
            "{:+.1f} ({:+.1f} to {:+.1f}) ".format(
                *(100 * r[key] for key in ("difference", "low", "high"))
            )
            + VERDICTS[r["verdict"]]
            + f" (at {r['n']})" * (r["n"] < n)
            for r in rows
        ]
        expected.append(f"| {title} | {' | '.join(cells)} |")
    card = (ASSETS / "models" / "README.md").read_text("utf-8").replace("−", "-")
    assert "\n".join(expected) in card, "the table is:\n" + "\n".join(expected)


@pytest.mark.more
def test_the_page_of_results_says_the_reports_numbers(
    full_report: Report, shipped: dict[str, list[dict[str, Any]]]
) -> None:
    page = " ".join(
        (ASSETS.parent / "docs/results.md").read_text("utf-8").replace("**", "").split()
    )
    paired = {(r["set"], r["b"], r["n"]): r for r in shipped["paired"] if r["a"] == "qalign"}
    groups = [
        g
        for g in full_report.groups
        if (g.header.run.sharpness, g.header.run.move) == (1, "suffix")
    ]
    (average,) = (group.average.points for group in groups if group.average)
    paired |= {(AVERAGE, d.b, d.n): _as_row(d) for d in Compared("", tuple(average)).differences}
    for place in (("in_distribution", "wmv", 256), ("shifted", "wmv", 256), ("long", "wmv", 256),
                  ("in_distribution-weak", "mv", 64), ("in_distribution", "wmv_own", 256),
                  ("shifted", "wmv_own", 256), ("long", "wmv_own", 256),
                  (AVERAGE, "wmv", 256), (AVERAGE, "wmv_own", 256), ("inventory", "any", 256),
                  ("inventory", "wmv", 256), ("inventory", "any", 512),
                  ("inventory", "wmv", 512), ("writing", "bon", 64), ("writing", "mv", 32),
                  ("writing", "wmv", 64)):  # fmt: skip
        value, low, high = (100 * paired[place][key] for key in ("difference", "low", "high"))
        one = f"{value:+.1f}" if value > 0 else f"{value:.1f}"
        assert re.search(rf"{re.escape(one)} (points )?\({low:.1f} to {high:.1f}\)", page), place
    at = {(r["set"], r["method"], r["n"]): r for r in shipped["rows"]}
    own = [at[name, "wmv_own", 256]["accuracy"] for name in ("in_distribution", "shifted", "long")]
    assert "{:.1f}, {:.1f} and {:.1f} % on the three sets".format(*(100 * x for x in own)) in page
    for n in (64, 128, 256, 512):
        cells = [_cell(at["inventory", m, n]) for m in ("mv", "bon", "wmv", "any", "qalign")]
        row = re.escape(" | ".join(cells))
        assert re.search(rf"\| {n} samples, [\d,]+ states \| {row} \|", page)
    for name in ("inventory-beta0.4", "inventory", "inventory-beta1.6"):
        (each,) = (each for each in full_report.sets if each.name == name)
        cells = [_cell(at[name, method, 256]) for method in ("wmv", "any", "qalign")]
        gaps = [[100 * paired[name, b, 256][key] for key in GAP] for b in ("wmv", "any")]
        cells += [f"{value:+.1f} ({low:.1f} to {high:.1f})" for value, low, high in gaps]
        assert f"| {each.results.header.run.beta:g} | {' | '.join(cells)} |" in page
    methods = ("mv", "bon", "wmv", "qalign")
    cells = [_cell(at["writing", m, 64]) for m in (*methods, "any")]
    assert f"| {' | '.join([_cell(at['writing', 'one', 1]), *cells])} |" in page
    for name in ("in_distribution", "shifted", "long"):
        cells = [_cell(at[name, "one", 1]), *(_cell(at[name, m, 256]) for m in methods)]
        assert f"| {name.replace('_', ' ')} | {' | '.join(cells)} |" in page


@pytest.mark.more
def test_on_inventories_the_chain_is_above_the_ceiling_of_every_rule_over_its_samples(
    shipped: dict[str, list[dict[str, Any]]],
) -> None:
    paired = {(r["set"], r["b"], r["n"]): r for r in shipped["paired"] if r["a"] == "qalign"}
    for other in ("any", "wmv", "bon", "mv", "wmv_own"):
        for n in (128, 256, 512):
            row = _latest(paired, "inventory", other, n)
            assert row["low"] > 0, (other, n)
    for other in ("any", "wmv"):
        for beta in ("0.4", "1.6"):
            assert paired[f"inventory-beta{beta}", other, 256]["low"] > 0, "at other betas too"
    control = paired["long", "any", 256]
    assert control["high"] < 0, "where samples hold right answers no chain is above them"


@pytest.mark.more
def test_the_readme_and_the_card_say_the_reports_numbers_of_inventories(
    shipped: dict[str, list[dict[str, Any]]],
) -> None:
    card = (ASSETS / "models" / "README.md").read_text("utf-8")
    at = {(r["method"], r["n"]): r for r in shipped["rows"] if r["set"] == "inventory"}
    gaps = (r for r in shipped["paired"] if (r["set"], r["a"]) == ("inventory", "qalign"))
    by_pair = {(r["b"], r["n"]): r for r in gaps}
    for n in (256, 512):
        for method in ("qalign", "wmv", "any"):
            value, low, high = (100 * at[method, n][key] for key in BAND)
            assert f"{value:.1f} % ({low:.1f}-{high:.1f})" in card, (method, n)
        for other in ("any", "wmv"):
            value, low, high = (100 * by_pair[other, n][key] for key in GAP)
            cell = rf"\+{value:.1f} (points )?\({low:.1f} to {high:.1f}\)"
            assert re.search(cell, card), (other, n)
    readme = " ".join((ASSETS.parent / "README.md").read_text("utf-8").split())
    points = {(p.method, p.n): p for p in curves(unpack(RESULTS / "inventory.zip"), ns=(512,))}
    chain, ceiling = (np.array(points[method, 512].each) == 1 for method in ("qalign", "any"))
    gained, lost = int((chain & ~ceiling).sum()), int((ceiling & ~chain).sum())
    value, low, high = (100 * by_pair["any", 512][key] for key in GAP)
    assert f"right on {gained} problems where no sample is right" in readme
    assert f"wrong on {lost} where at least one sample is" in readme
    gap = f"+{value:.1f} points (95% CI {low:.1f} to {high:.1f})"
    assert f"net gain of {gained - lost} problems, {gap}" in readme
    inventories = unpack(RESULTS / "inventory.zip")
    records = inventories.records
    n_right = sum(int(r.is_right(r.pool_answer).sum()) for r in records)
    n_samples = sum(len(r.pool_answer) for r in records)
    results, gallery = (
        " ".join((ASSETS.parent / path).read_text("utf-8").split())
        for path in ("docs/results.md", "docs/gallery.md")
    )
    rare = f"{n_samples:,} single samples, {n_right} are right (one in {n_samples / n_right:.0f})."
    assert rare in results
    beyond = sum(
        bool(r.is_right(r.chain_answer[r.state_of]).mean() > 0.5)
        for r in records
        if not r.is_right(r.pool_answer).any()
    )
    assert f"On {beyond} of the 300 problems, most states of the chain are right" in results
    assert f"of the {beyond} inventories of the Results page" in gallery
    rates = [_accepted(unpack(RESULTS / f"{x}.zip")) for x in ("inventory-beta1.6", "inventory")]
    claim = f"where it accepts {rates[0]:.0%} of changes instead of {100 * rates[1]:.0f}."
    assert f"most of all at 1.6, {claim}" in results
    faq = " ".join((ASSETS.parent / "docs/faq.md").read_text("utf-8").split())
    claim = "is higher at β = 1.6 ({:.0%} accepted) than at β = 0.8 ({:.0%})".format(*rates)
    assert f"measured accuracy {claim}" in faq
    assert f"The chain accepts {100 * rates[1]:.0f} % of changes." in card
    near = near_misses(records)
    assert near.value is not None
    assert f"Of the 153,600 samples {n_right} are right" in card
    assert f"the right one in {100 * near.value:.1f} % of {near.trials:,}." in card


def test_what_is_said_of_fresh_inventories_are_the_reports_numbers() -> None:
    fresh = unpack(RESULTS / "fresh" / "inventory@2.zip")
    assert (fresh.header.run.beta, fresh.header.rm_revision) == (0.8, "b3cf714bb912")
    both = {"first": unpack(RESULTS / "inventory.zip"), "fresh": fresh}
    known = {name: curves(results, ns=[128]) for name, results in both.items()}
    (group,) = Report(both, known=known).groups
    texts = {
        path: " ".join((ASSETS.parent / path).read_text("utf-8").split())
        for path in ("docs/results.md", "README.md", "assets/models/README.md")
    }
    titles = {"first": "the first 300", "fresh": "the fresh 300", AVERAGE: "all 600"}
    for line in group.lines:
        name = line.name
        at = {p.method: p for p in line.points if p.n == 128}
        cells = [_cell(_as_share(at[m])) for m in ("mv", "wmv", "any", "qalign")]
        gaps = {d.b: d for d in line.differences if (d.a, d.n) == ("qalign", 128)}
        words = {b: "{:+.1f} ({:.1f} to {:.1f})".format(*_percent(gaps[b])) for b in ("wmv", "any")}
        row = f"| {titles[name]} | {' | '.join([*cells, *words.values()])} |"
        assert row in texts["docs/results.md"]
        assert gaps["any"].low > 0
        if name == AVERAGE:
            chain, ceiling = (f"{100 * at[m].value:.1f}%" for m in ("qalign", "any"))
            assert f"chain is right on {chain}." in texts["README.md"]
            assert f"one sample is right on {ceiling}" in texts["README.md"]
            value, low, high = _percent(gaps["any"])
            assert f"{value:+.1f} points (95% CI {low:.1f} to {high:.1f})" in texts["README.md"]
        if name == "fresh":
            value, low, high = _percent(gaps["any"])
            assert f"{value:+.1f} points ({low:.1f} to {high:.1f})" in texts["README.md"]
            assert (
                f"ceiling {words['any']}, minus WMV {words['wmv']}"
                in texts["assets/models/README.md"]
            )
            chain, ceiling = (np.array(at[m].each) == 1 for m in ("qalign", "any"))
            gained, lost = int((chain & ~ceiling).sum()), int((ceiling & ~chain).sum())
            assert f"right on {gained} where none of the 128" in texts["docs/results.md"]
            assert f"wrong on {lost} where at least one" in texts["docs/results.md"]


def texts_of(*paths: str) -> dict[str, str]:
    """The texts of documents, on one line each."""
    return {path: " ".join((ASSETS.parent / path).read_text("utf-8").split()) for path in paths}


def _table_of_blocks(runs: list[Results], ns: list[int]) -> list[dict[tuple[Curve, int], Point]]:
    """The points of suffix moves, half blocks and a larger share, whose table the docs have."""
    moves = ["suffix", "0.5*suffix+0.5*block(:)", "0.2*suffix+0.8*block(:)"]
    assert [each.header.run.move for each in runs] == moves
    ids = [[r.id for r in each.records] for each in runs]
    assert ids == [ids[0]] * 3
    assert len(ids[0]) == 300
    at = [{(p.method, p.n): p for p in curves(each, ns=ns)} for each in runs]
    (text,) = texts_of("docs/moves.md").values()
    for n in ns:
        suffix, block, more = (points["qalign", n] for points in at)
        for each in (block, more):
            assert abs(each.spent / suffix.spent - 1) < 0.01, "at equal compute"
        points = [*(at[1][m, n] for m in ("mv", "bon", "wmv", "any")), suffix, block]
        cells = [_cell(_as_share(point)) for point in points]
        cells.append("{:+.1f} ({:.1f} to {:.1f})".format(*_percent(difference(block, suffix))))
        cells.append(_cell(_as_share(more)))
        assert f"| {n} samples | {' | '.join(cells)} |" in text
        shares = difference(more, block)
        assert shares.low <= 0 <= shares.high, "at no budget do they differ significantly"
    assert "At no budget of either table do the two shares differ significantly" in text
    return at


def test_what_is_said_of_block_moves_on_fresh_inventories_are_the_runs_numbers() -> None:
    runs = [unpack(RESULTS / "fresh" / f"inventory@2{x}.zip") for x in ("", "-block", "-share")]
    at = _table_of_blocks(runs, [16, 32, 64, 128])
    texts = texts_of(
        "docs/moves.md", "docs/results.md", "README.md", "docs/workshop.md", "CHANGELOG.md"
    )
    suffix, block, ceiling = at[0]["qalign", 64], at[1]["qalign", 64], at[1]["any", 64]
    assert difference(block, suffix).low > 0
    over = "{:+.1f} ({:.1f} to {:.1f})".format(*_percent(difference(block, ceiling)))
    assert f"minus any of n is {over} points" in texts["docs/moves.md"]
    shares = [f"{100 * p.value:.1f}%" for p in (block, suffix, ceiling)]
    for path in ("docs/results.md", "README.md"):
        chains = "with block moves is right on {} of them and the chain with the paper's move"
        assert (chains + " on {}").format(*shares) in texts[path]
        assert f"of 64 samples is right on {shares[2]}" in texts[path]
    row = (
        "the chain is right on {} of 300 fresh inventories at the compute of 64 samples. With "
        "the paper's move it is right on {}. At least one of 64 samples is right on {}."
    ).format(*shares)
    assert row in texts["docs/workshop.md"]
    assert (
        "the chain is right on {} of 300 fresh inventories at the compute of 64 samples, with the "
        "paper’s move on {}; at least one of 64 samples is right on {}."
    ).format(*shares) in load_lessons()["worth"].stops[4].notes
    rounded = "half block moves are right on {:.0%}, suffix moves alone on {:.0%}."
    assert rounded.format(block.value, suffix.value) in texts["CHANGELOG.md"]


def test_what_is_said_of_block_moves_on_a_third_seed_are_the_runs_numbers() -> None:
    runs = [unpack(RESULTS / "fresh" / f"inventory@4{x}.zip") for x in ("", "-block")]
    assert [each.header.run.move for each in runs] == ["suffix", "0.5*suffix+0.5*block(:)"]
    assert [r.id for r in runs[0].records] == [r.id for r in runs[1].records]
    at = [{p.method: p for p in curves(each, ns=[64])} for each in runs]
    spent = [points["qalign"].spent for points in at]
    assert abs(spent[1] / spent[0] - 1) < 0.01, "at equal compute"
    gap = difference(at[1]["qalign"], at[0]["qalign"])
    assert gap.low > 0
    points = (at[1]["any"], at[0]["qalign"], at[1]["qalign"])
    assert (
        "at 64 samples: any of n {}, `suffix` {}, the mix {}, and the mix minus `suffix` {}"
    ).format(
        *(_cell(_as_share(p)) for p in points),
        "{:+.1f} ({:.1f} to {:.1f})".format(*_percent(gap)),
    ) in texts_of("docs/moves.md")["docs/moves.md"]


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("fresh/inventory@2-block", 64),
        *(
            pytest.param(name, n, marks=pytest.mark.more)
            for name, n in (
                *((f"fresh/inventory@2{kind}", 64) for kind in ("", "-share")),
                *(("fresh/inventory@2", 128), ("inventory", 256), ("inventory", 512)),
            )
        ),
    ],
)
def test_what_is_said_of_the_state_to_answer_with_is_what_the_chains_say(name: str, n: int) -> None:
    results = unpack(RESULTS / f"{name}.zip")
    (point,) = (p for p in curves(results, ns=[n]) if p.method == "qalign")
    shares: dict[str, list[float]] = {"all": [], "half": [], "best": []}
    for record in results.records:
        spent = np.cumsum(prices(record.chain_cost, results.header.meter))
        budget = float(prices(record.pool_cost, results.header.meter).mean() * n)
        most, states = n_at_budget(spent.tolist(), budget), record.state_of
        rewards, answers = record.chain_reward[states][:most], record.chain_answer[states][:most]
        for key, kept in (("all", slice(None)), ("half", slice(most // 2, None))):
            voters = answers[kept].astype(np.int64)[None]
            won = vote(voters, np.ones(voters.shape), len(record.answers))
            shares[key].append(float(record.is_right(won)[0]))
        shares["best"].append(float(record.is_right(answers[rewards.argmax()][None])[0]))
    assert tuple(shares["all"]) == point.each
    row = [
        f"{'second' if '@' in name else 'first'} 300, {n} samples",
        f"`{results.header.run.move}`",
    ]
    row.append(f"{100 * point.value:.1f}")
    for key in ("half", "best"):
        other = replace(point, each=tuple(shares[key]), value=float(np.mean(shares[key])))
        gap = "{:+.1f} ({:.1f} to {:.1f})".format(*_percent(difference(other, point)))
        row.append(f"{100 * other.value:.1f}, {gap}")
    assert f"| {' | '.join(row)} |" in (ASSETS.parent / "docs/moves.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "ns"),
    [
        ("fresh/inventory@2", [16, 32, 64]),
        pytest.param("inventory", [32, 64, 128], marks=pytest.mark.more),
    ],
)
def test_what_is_said_of_entropy_on_inventories_are_the_runs_numbers(
    name: str, ns: list[int]
) -> None:
    uniform, entropy = (unpack(RESULTS / f"{name}{each}.zip") for each in ("", "-entropy"))
    assert entropy.header.run.move == "entropy"
    uniform = replace(uniform, records=uniform.records[: len(entropy.records)])
    assert [r.id for r in uniform.records] == [r.id for r in entropy.records]
    at = [{p.n: p for p in curves(x, ns=ns) if p.method == "qalign"} for x in (uniform, entropy)]
    cells = [_cell(_as_share(at[1][n])).replace(" ", "% ") for n in ns]
    claim = "is right on {} at {} samples, {} at {} and {} at {}".format(
        *(each for pair in zip(cells, ns, strict=True) for each in pair)
    )
    (text,) = texts_of("docs/moves.md").values()
    assert claim in text
    gap = "{:+.1f} ({:.1f} to {:.1f})".format(*_percent(difference(at[1][ns[-1]], at[0][ns[-1]])))
    assert f"from `suffix` is {gap}, not significant" in text


@pytest.mark.more  # the table of the fresh inventories is made by the same function
def test_what_is_said_of_blocks_at_larger_budgets_are_the_runs_numbers() -> None:
    runs = [unpack(RESULTS / f"inventory{name}.zip") for name in ("", "-block", "-share")]
    at = _table_of_blocks(runs, [32, 64, 128, 256, 512])
    texts = texts_of("docs/moves.md", "docs/results.md", "README.md", "CHANGELOG.md")
    suffix, block, ceiling = at[0]["qalign", 512], at[1]["qalign", 512], at[1]["any", 512]
    over = "{:+.1f} ({:.1f} to {:.1f})".format(*_percent(difference(block, ceiling)))
    assert f"half blocks minus any of n is {over} points" in texts["docs/moves.md"]
    percents = [f"{100 * p.value:.1f}%" for p in (block, suffix, ceiling)]
    claim = "with block moves is right on {}, with the paper's move on {}, and at least one sample"
    for path in ("docs/results.md", "README.md", "CHANGELOG.md"):
        assert f"{claim} is right on {{}}".format(*percents) in texts[path], path
    claim = f"512 samples, the chain with block moves is right on {percents[0]} of 300 problems."
    assert claim in (ASSETS.parent / "docs/workshop.md").read_text()
    notes = load_lessons()["worth"].stops[4].notes
    assert f"512 samples, block moves are right on {percents[0]} of 300 problems." in notes


def test_what_is_said_of_forms_are_the_runs_numbers() -> None:
    packed = [unpack(RESULTS / "forms" / f"{name}.zip") for name in ("suffix", "block")]
    suffix, block = ({p.method: p for p in curves(each, ns=[8])} for each in packed)
    cells = {m: _cell(_as_share(suffix[m])) for m in ("mv", "bon", "wmv", "any", "qalign")}
    assert cells["bon"] == cells["wmv"] == cells["any"]
    text = " ".join((ASSETS.parent / "docs/moves.md").read_text("utf-8").split())
    mix = f"`{packed[1].header.run.move}`".replace("\n", "\\n")
    assert (
        f"MV {cells['mv']}, best-of-n, WMV and any of n {cells['any']}, `suffix` "
        f"{cells['qalign']}, {mix} {_cell(_as_share(block['qalign']))}."
    ) in text
    gap = difference(block["qalign"], suffix["qalign"])
    assert gap.p is not None
    assert (
        "is {:.1f} points ({:.1f} to {:.1f}; they differ on {:.0f} problems, exact p = {:.3f})"
    ).format(*_percent(gap), gap.discordant, gap.p) in text


OTHER_SETS = [
    *(path for path in RESULTS.glob("*-entropy.zip") if path.stem != "inventory-entropy"),
    RESULTS / "fresh" / "shifted@2-entropy.zip",
]


def others_alike(paths: list[Path], *kinds: str) -> list[Any]:
    """Cases by path: those of other names than these are alike."""
    alike = {True: (), False: pytest.mark.more}
    return [pytest.param(path, id=path.stem, marks=alike[path.stem in kinds]) for path in paths]


# of answers with blocks, and of texts
@pytest.mark.parametrize(
    "entropy", others_alike(OTHER_SETS, "in_distribution-entropy", "writing-entropy")
)
def test_what_is_said_of_moves_on_other_sets_are_the_runs_numbers(entropy: Path) -> None:
    name = entropy.stem.removesuffix("-entropy")
    suffix = unpack(entropy.with_name(f"{name}.zip"))
    assert suffix.header.run.move == "suffix"
    (theirs,) = (p for p in curves(suffix, ns=[32]) if p.method == "qalign")
    cells = [_cell(_as_share(theirs))]
    for kind, move in (("block", "0.5*suffix+0.5*block(.)"), ("entropy", "entropy")):
        path = entropy.with_name(f"{name}-{kind}.zip")
        if not path.exists():
            cells += ["–", "–"]
            continue
        results = unpack(path)
        assert results.header.run.move == move
        assert [r.id for r in results.records] == [r.id for r in suffix.records]
        (own,) = (p for p in curves(results, ns=[32]) if p.method == "qalign")
        assert abs(own.spent / theirs.spent - 1) < 0.01, "at equal compute"
        gap = "{:+.1f} ({:.1f} to {:.1f})".format(*_percent(difference(own, theirs)))
        cells += [_cell(_as_share(own)), gap]
    title = name.replace("_", " ").replace("@2", ", new problems")
    text = (ASSETS.parent / "docs/moves.md").read_text("utf-8")
    assert f"| {title} | {' | '.join(cells)} |" in text


def test_what_is_said_of_entropy_over_both_seeds_are_the_runs_numbers() -> None:
    def both(*paths: str) -> Point:
        sets = [curves(unpack(RESULTS / f"{path}.zip"), ns=[32]) for path in paths]
        (mean,) = (p for p in averaged(sets) if p.method == "qalign")
        return mean

    entropy = both("shifted-entropy", "fresh/shifted@2-entropy")
    gap = _percent(difference(entropy, both("shifted", "fresh/shifted@2")))
    text = " ".join((ASSETS.parent / "docs/moves.md").read_text("utf-8").split())
    assert "over both seeds, it is {:+.1f} points ({:.1f} to {:.1f})".format(*gap) in text


def _accepted(results: Results) -> float:
    """The share of changes that chains accepted."""
    first = [(r, slice(r.n_chains, None)) for r in results.records]
    accepted = sum(int((r.chain_accepted & r.chain_changed)[steps].sum()) for r, steps in first)
    return accepted / sum(int(r.chain_changed[steps].sum()) for r, steps in first)


@pytest.mark.parametrize(
    ("name", "n", "cheaper"),
    [
        ("smollm2/ifeval-100", 4, "half"),
        ("pretrained/ifeval-trained", 16, "half"),
        pytest.param("pretrained/ifeval-gemma-trained", 16, "a third", marks=pytest.mark.more),
    ],
)
def test_what_is_said_of_a_pretrained_model_are_the_packed_results_numbers(
    name, n, cheaper
) -> None:
    results = unpack(RESULTS / f"{name}.zip")
    points = {(p.method, p.n): p for p in curves(results)}
    at = [("one", 1), *((m, n) for m in ("mv", "bon", "wmv", "qalign", "any"))]
    text = " ".join((ASSETS.parent / "docs/results.md").read_text("utf-8").split())
    assert f"| {' | '.join(_cell(_as_share(points[each])) for each in at)} |" in text
    share = {"half": 1 / 2, "a third": 1 / 3}[cheaper]
    assert points["mv", n].spent / points["qalign", n].spent == pytest.approx(share, abs=0.03)
    mbr = f"MBR, which costs {cheaper} as much, is"
    for rival, label in (("mv", mbr), ("bon", "best-of-n"), ("wmv", "weighted MBR")):
        value, low, high = _percent(difference(points["qalign", n], points[rival, n]))
        points_ = " points" if rival == "mv" else ""
        assert low < 0 < high
        assert f"inus {label} {value:.1f}{points_} ({low:.1f} to {high:.1f})" in text


def test_the_runs_beside_a_server_are_as_the_paper_page_says() -> None:
    runs = [
        {(p.method, p.n): p for p in curves(unpack(RESULTS / "smollm2" / f"{name}.zip"))}
        for name in ("ifeval", "ifeval-vllm")
    ]
    text = texts_of("docs/paper.md")["docs/paper.md"]
    for label, at in {
        "one sample": ("one", 1),
        "best-of-n, 3 samples": ("bon", 3),
        "minimum Bayes risk, 3 samples": ("mv", 3),
        "the same, weighted": ("wmv", 3),
        "QAlign, equal FLOPs: 5 states": ("qalign", 3),
        "any of 3": ("any", 3),
    }.items():
        cells = [in_points(run[at]).replace(" to ", "-") for run in runs]
        assert f"| {label} | {' | '.join(cells)} |" in text


def test_the_states_and_the_misread_forms_are_those_of_the_files() -> None:
    forms, suffix, blocks = (
        unpack(RESULTS / "pretrained" / f"{name}.zip").records
        for name in ("forms", "forms@9001", "forms@9001-block")
    )
    ends = [
        f"{min(len(r.state_of) for r in x)} to {max(len(r.state_of) for r in x)}"
        for x in (suffix, blocks)
    ]
    right = np.concatenate([r.pool_reward[r.is_right(r.pool_answer)] for r in forms])
    text = texts_of("docs/results.md")["docs/results.md"]
    assert f"({ends[0]} states with `suffix`, {ends[1]} with blocks)" in text
    assert f"{(right < 10).sum()} of the {len(right):,} right samples have" in text


@pytest.mark.parametrize(
    "name", ["ifeval-trained", pytest.param("ifeval-gemma-trained", marks=pytest.mark.more)]
)
def test_with_a_weak_reward_model_no_method_differs_from_one_sample(name) -> None:
    results = unpack(RESULTS / "pretrained" / f"{name}.zip")
    points = {(p.method, p.n): p for p in curves(results)}
    for method in ("mv", "bon", "wmv", "qalign"):
        d = difference(points[method, 16], points["one", 1])
        assert d.low < 0 < d.high
    right = [
        (r.pool_reward, np.array([bool(r.is_right(a)) for a in r.pool_answer]))
        for r in results.records
    ]
    ordered = [
        np.mean(np.greater.outer(rewards[x], rewards[~x]))
        for rewards, x in right
        if 0 < x.sum() < len(x)
    ]
    states = [len(r.state_of) for r in results.records]
    text = texts_of("docs/results.md")["docs/results.md"]
    assert f"({min(states)} to {max(states)} states): | one sample | MBR |" in text
    assert f"accepts {_accepted(results):.0%} of the proposals that differ" in text
    of_pairs = rf"in {np.mean(ordered):.0%} of the pairs [^:]*\(mean over {len(ordered)} prompts\)"
    assert re.search(of_pairs, text)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        pytest.param("pretrained/forms", 64, marks=pytest.mark.more),
        ("pretrained/ifeval", 16),
        ("forms/smollm2-entropy", 64),
        pytest.param("forms/smollm2-block", 64, marks=pytest.mark.more),
        ("pretrained/forms-gemma", 32),
        pytest.param("pretrained/forms-gemma-64", 64, marks=pytest.mark.more),
        pytest.param("forms/gemma-entropy", 32, marks=pytest.mark.more),
        pytest.param("forms/gemma-block", 32, marks=pytest.mark.more),
        pytest.param("pretrained/ifeval-gemma", 16, marks=pytest.mark.more),
    ],
)
def test_what_is_said_of_a_verifiable_reward_are_the_packed_results_numbers(
    name: str, n: int
) -> None:
    results = unpack(RESULTS / f"{name}.zip")
    records, points = results.records, {(p.method, p.n): p for p in curves(results)}
    move = "" if name.startswith("pretrained") else f"`{results.header.run.move}`: "
    move = move.replace("\n", "\\n")
    text = " ".join((ASSETS.parent / "docs/results.md").read_text("utf-8").split())
    qalign, best_of_n = points["qalign", n], points["bon", n]
    is_any = points["any", n].value == best_of_n.value
    assert is_any == ("gemma" not in name or "ifeval" in name)

    def row(
        label: str, share: dict[str, float], gap: Difference | None = None, counts: str = ""
    ) -> str:
        if gap is None:
            return f"| {label} | {_cell(share)} | | |"
        value, low, high = _percent(gap)
        verdict = "significant" if low > 0 or high < 0 else "not significant"
        over = f"{_signed(value)} ({low:.1f} to {high:.1f}), {verdict}"
        return f"| {label} | {_cell(share)} | {over} | {counts}|"

    right = _best_of_samples(records)
    for label, x in {
        "best state (the primary outcome)": _best_of_states(records),
        "last state": np.array([bool(r.is_right(r.chain_answer[r.state_of[-1]])) for r in records]),
    }.items():
        gap = paired_difference("a", "b", 1.0 * x, 1.0 * right, n=n, spent=0)
        counts = f"{(x & ~right).sum()}, {(right & ~x).sum()} "
        assert row(move + label, _as_share(share_of(1.0 * x)), gap, counts) in text
    vote = "vote (QAlign, minimum Bayes risk)" if "ifeval" in name else "vote (QAlign)"
    assert row(move + vote, _as_share(qalign), difference(qalign, best_of_n)) in text
    rules = [("bon", n, "best-of-n"), ("any", n, "any of n")]
    rules = [("bon", n, "best-of-n, any of n")] if is_any else rules
    for method, k, label in (("one", 1, "one sample"), *rules):
        assert row(label, _as_share(points[method, k])) in text


def _best_of_samples(records: Sequence[Record]) -> Array:
    best = (r.pool_answer[r.pool_reward.argmax()] for r in records)
    return np.array([bool(r.is_right(a)) for r, a in zip(records, best, strict=True)])


def _best_of_states(records: Sequence[Record]) -> Array:
    best = (r.chain_answer[r.state_of[r.chain_reward[r.state_of].argmax()]] for r in records)
    return np.array([bool(r.is_right(a)) for r, a in zip(records, best, strict=True)])


@pytest.mark.parametrize(("name", "looked_at"), [("smollm2-entropy", 100), ("smollm2-block", 75)])
def test_moves_on_forms_do_not_differ_significantly_and_the_last_problems_stand_alone(
    name: str, looked_at: int
) -> None:
    suffix = {r.id: r for r in unpack(RESULTS / "pretrained" / "forms.zip").records}
    text = texts_of("docs/results.md")["docs/results.md"]
    records = unpack(RESULTS / "forms" / f"{name}.zip").records
    same = [suffix[r.id] for r in records]
    assert np.array_equal([r.pool_reward for r in records], [r.pool_reward for r in same])
    best, rival, samples = (
        _best_of_states(records),
        _best_of_states(same),
        _best_of_samples(records),
    )

    def gap(x: Array, y: Array) -> Difference:
        return paired_difference("a", "b", 1.0 * x, 1.0 * y, n=64, spent=0)

    def in_points_of(x: Array, y: Array) -> str:
        value, low, high = _percent(gap(x, y))
        return f"{value:+.1f} points ({low:.1f} to {high:.1f}"

    counts = f"{(rival & ~samples).sum()}, {(samples & ~rival).sum()}"
    over = in_points_of(rival, samples).replace(" points", "")
    cell = _cell(_as_share(share_of(1.0 * rival)))
    assert f"| `suffix`: best state | {cell} | {over}), significant | {counts} |" in text
    assert gap(best, rival).low < 0 < gap(best, rival).high
    differ = f"{(best != rival).sum()} problems"
    assert f"{in_points_of(best, rival)}; they differ on {differ}" in text
    best, rival, samples = best[looked_at:], rival[looked_at:], samples[looked_at:]
    gained, lost = (best & ~samples).sum(), (samples & ~best).sum()
    count = f"{gained} problems gained, {lost or 'none'} lost)"
    assert f"last {len(best)} have {in_points_of(best, samples)}; {count}" in text
    assert f"{in_points_of(best, rival)}) over `suffix`" in text


def test_what_is_said_of_gemma_and_of_what_was_drawn_last_are_the_runs_numbers() -> None:
    text = texts_of("docs/results.md")["docs/results.md"]
    suffix, entropy, block, ifeval = (
        unpack(RESULTS / f"{name}.zip").records
        for name in (
            "pretrained/forms-gemma",
            "forms/gemma-entropy",
            "forms/gemma-block",
            "pretrained/ifeval-gemma",
        )
    )

    def over(x: Array, y: Array) -> tuple[str, str]:
        value, low, high = _percent(paired_difference("a", "b", 1.0 * x, 1.0 * y, n=1, spent=0))
        counts = f"{(x & ~y).sum()} gained, {(y & ~x).sum()} lost)"
        return f"{value:+.1f} points ({low:.1f} to {high:.1f}", counts

    def any_right(records: Sequence[Record]) -> Array:
        return np.array([any(r.is_right(a) for a in r.pool_answer) for r in records])

    best = [_best_of_states(records) for records in (suffix, entropy, block)]
    for states, records in zip(best, (suffix, entropy, block), strict=True):
        same = [r.pool_reward.tolist() for r in records] == [r.pool_reward.tolist() for r in suffix]
        assert same, "all moves have the same samples"
        assert "{}; {}".format(*over(states, any_right(records))) in text
    more = unpack(RESULTS / "pretrained/forms-gemma-64.zip").records
    assert "{}; {}".format(*over(_best_of_states(more), any_right(more))) in text
    for states in best[1:]:
        interval, _ = over(states, best[0])
        assert f"{interval}; they differ on {(states != best[0]).sum()} problems)" in text
    for part, claim in (
        (slice(100), "with {}; {}, before the second 100 were drawn"),
        (slice(100, None), "These stand alone: {}; {}"),
    ):
        pair = _best_of_states(ifeval[part]), _best_of_samples(ifeval[part])
        assert claim.format(*over(*pair)) in text


def test_what_readme_says_of_forms_is_in_the_results_and_the_vote_gains_with_compute() -> None:
    results = unpack(RESULTS / "pretrained" / "forms.zip")
    at = {(p.method, p.n): p for p in curves(results)}
    texts = texts_of("docs/results.md", "README.md")
    gaps = {n: difference(at["qalign", n], at["bon", n]) for n in (4, 16, 32, 64)}
    over = {n: "{:+.1f} ({:.1f} to {:.1f})".format(*_percent(gap)) for n, gap in gaps.items()}
    first, low = over[4].split(" ", 1)
    claim = f"minus best-of-n is {first} points {low} at the FLOPs of 4 samples, {over[16]} at 16"
    assert f"{claim} and {over[32]} at 32." in texts["docs/results.md"]
    gemma = {(p.method, p.n): p for p in curves(unpack(RESULTS / "pretrained/forms-gemma-64.zip"))}
    for n, claim in (
        (4, "it is {} points {} at the FLOPs of 4"),
        (16, "{} {} at"),
        (32, "{} {} at"),
    ):
        value, low, high = _percent(difference(gemma["qalign", n], gemma["bon", n]))
        assert (
            claim.format(f"{value:+.1f}", f"({low:.1f} to {high:.1f})") in texts["docs/results.md"]
        )
    value, low = over[64].split(" ", 1)
    vote = f"QAlign's vote is right on {100 * at['qalign', 64].value:.1f}%: {value} points {low}."
    assert vote in texts["README.md"]


def _latest(
    rows: dict[tuple[str, str, int], dict[str, Any]], name: str, other: Curve, n: int
) -> dict[str, Any]:
    """The difference from a rule at the largest budget of equal compute up to n."""
    return rows[name, other, max(at for *pair, at in rows if pair == [name, other] and at <= n)]


def _as_share(point: Point | Measured) -> dict[str, float]:
    return {"accuracy": point.value, "low": point.low, "high": point.high}


def _percent(gap: Difference) -> tuple[float, float, float]:
    return 100 * gap.value, 100 * gap.low, 100 * gap.high


def _signed(value: float) -> str:
    return f"{value:+.1f}" if round(value, 1) else "0.0"


def _cell(row: dict[str, Any]) -> str:
    value, low, high = (100 * row[key] for key in BAND)
    form = ".0f" if round(low) <= round(value, 1) <= round(high) else ".1f"
    return f"{value:.1f} ({low + 1e-9:{form}}-{high + 1e-9:{form}})"


def _as_row(gap: Difference) -> dict[str, float]:
    return {"difference": gap.value, "low": gap.low, "high": gap.high}


@pytest.mark.more
def test_what_is_said_of_sharper_targets_are_the_reports_numbers(
    shipped: dict[str, list[dict[str, Any]]],
) -> None:
    text = (ASSETS.parent / "docs/sharper.md").read_text("utf-8").replace("**", "")
    paired = {(r["set"], r["b"], r["n"]): r for r in shipped["paired"] if r["a"] == "qalign"}
    at = {(r["set"], r["method"], r["n"]): 100 * r["accuracy"] for r in shipped["rows"]}
    for name in ("in_distribution", "shifted", "long"):
        row = next(
            line for line in text.split("\n") if line.startswith(f"| {name}".replace("_", " "))
        )
        assert f"| {at[f'{name}-power', 'one', 1]:.1f} |" in row
        for method in ("mv", "wmv", "qalign"):
            assert f" {at[f'{name}-power', method, 32]:.1f} (" in row
        d = paired[f"{name}-power", "mv", 32]
        value, low, high = (100 * d[key] for key in ("difference", "low", "high"))
        assert f"{value:.1f} ({low:.1f} to {high:.1f}) |" in row


def test_what_is_said_of_sharper_targets_with_the_reward_are_the_runs_numbers() -> None:
    text = " ".join((ASSETS.parent / "docs/sharper.md").read_text("utf-8").split())
    ahead, exact = [], list[str]()
    for name in ("in_distribution", "shifted", "long"):
        sharp, usual = unpack(RESULTS / f"{name}-sharp.zip"), unpack(RESULTS / f"{name}.zip")
        usual = replace(usual, records=usual.records[: len(sharp.records)])
        assert [r.id for r in sharp.records] == [r.id for r in usual.records]
        at = [{p.method: p for p in curves(each, ns=[32])} for each in (sharp, usual)]
        cells = []
        for method in ("qalign", "wmv"):
            pair = [points[method] for points in at]
            cells += [_cell(_as_share(point)) for point in pair]
            gap = difference(*pair)
            cells.append("{:.1f} ({:.1f} to {:.1f})".format(*_percent(gap)))
            if claim := few(gap):
                cells[-1] += ", few"
                exact.append(claim.rpartition("= ")[2])
        assert f"| {name.replace('_', ' ')} | {' | '.join(cells)} |" in text
        ahead.append(_percent(difference(at[0]["wmv"], at[0]["qalign"])))
    gaps = [f"{value:.1f} ({low:.1f} to {high:.1f})" for value, low, high in ahead]
    assert "ahead of the κ = 4 chain by {}, {} and {} points".format(*gaps) in text
    assert f"the exact test decides (p = {' and '.join(exact)})" in text
    rates = [_accepted(each) for each in (sharp, usual)]
    claim = f"there it accepts {rates[0]:.0%} of changes instead of {100 * rates[1]:.0f}."
    assert claim in text


ALL = sorted([*RESULTS.glob("*.zip"), *RESULTS.glob("fresh/*.zip")])
"""Every shipped set of the embedded models."""


# with each move, and without a reward
@pytest.mark.parametrize(
    "path",
    others_alike(ALL, "inventory", "inventory-block", "inventory-entropy", "in_distribution-power"),
)
def test_the_shipped_results_are_billed_by_the_run_alone(path: Path) -> None:
    # the embedded reward model reads on, so it reads what the language model wrote and read again
    results = unpack(path)
    reads = int(results.header.run.has_reward)
    refused = np.finfo(np.float32).min
    for each in results.records:
        first = each.chain_cost[: each.n_chains, 0]
        for cost in (each.pool_cost, each.chain_cost):
            real = np.ones(len(cost), dtype=bool)
            if cost is each.chain_cost and len(each.chain_correction):
                real = each.chain_correction != refused
            assert (cost[:, 1] == reads * real * (cost[:, 0] + cost[:, 2])).all()
            assert cost[real, 0].min() >= 1
        assert not each.pool_cost[:, 2].any()
        assert (first == each.chain_length[: each.n_chains]).all()
        assert (
            each.chain_cost[real].sum(axis=1) - each.chain_cost[real, 1] <= each.chain_length[real]
        ).all()
        assert each.prompt[0] > 0
        assert each.prompt[1] == reads * each.prompt[0]
    assert results.header.run.move != "suffix" or not results.records[0].chain_cost[:, 2].any()


def record(id_: str, seed: int, n_chains: int = 1) -> Record:
    """Eight samples and eight states of each chain, all of one price."""
    rng = np.random.default_rng(seed)
    n = 8 * n_chains
    accepted = rng.random(n) < 0.6
    accepted[:n_chains] = True
    return Record(
        id=id_,
        answers=np.array(["18", "17"]),
        right=np.array([True, False]),
        pool_reward=rng.normal(size=8),
        pool_answer=rng.integers(-1, 2, 8),
        pool_cost=np.tile([5, 5, 0], (8, 1)),
        chain_reward=rng.normal(size=n),
        chain_answer=rng.integers(-1, 2, n),
        chain_cost=np.tile([5, 5, 0], (n, 1)),
        chain_accepted=accepted,
        chain_changed=np.ones(n, dtype=bool),
        chain_length=np.full(n, 5),
        n_chains=n_chains,
    )


def results_of(*records: Record) -> Results:
    """Results of a model of one parameter."""
    problems = tuple(record.id for record in records)
    return Results(SetHeader(Run(pool=8), lm_parameters=1, problems=problems), records)


def test_the_command_prints_the_report_as_a_table_and_as_json(tmp_path, capsys) -> None:
    results = results_of(*(record(f"p{k}", k) for k in range(20)))
    path = pack(results, tmp_path / "toy.zip")
    assert main(["report", str(path), "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert payload == Report({"toy": unpack(path)}).json()
    assert {tuple(row) for row in payload["rows"]} == {
        ("set", "method", "n", "flops", "accuracy", "low", "high")
    }
    columns = "set a b n flops difference low high discordant p verdict"
    assert {" ".join(row) for row in payload["paired"]} == {columns}
    assert {(row["a"], row["b"], row["n"]) for row in payload["paired"]} == {
        ("qalign", other, n) for other in others() for n in (1, 2, 4, 8)
    }
    assert {row["method"] for row in payload["rows"]} == {*RULES, "one", "any", "wmv_own"}
    assert main(["report", str(path)]) == 0
    table = capsys.readouterr().out
    assert "\ntoy, " in table
    for row in payload["paired"]:
        assert (
            f"{100 * row['difference']:+.1f} ({100 * row['low']:.1f} to ".replace("-", "−") in table
        )
    assert main(["report", str(tmp_path / "none")]) == 2


def test_several_chains_of_a_problem_vote_together() -> None:
    several = record("p", 3, n_chains=2)
    at = several.state_of.reshape(8, 2)
    for chain in (0, 1):
        accepted = several.chain_accepted.reshape(8, 2)[:, chain]
        last = [max(t for t in range(k + 1) if accepted[t]) for k in range(8)]
        assert at[:, chain].tolist() == [2 * t + chain for t in last]
    draws = results_of(several)
    used = {p.n: p.used for p in curves(draws) if p.method == "qalign"}
    # a state of each of two chains costs what two samples do
    assert used == {1: 2, 2: 2, 4: 4, 8: 8}


def test_a_packed_file_keeps_how_many_chains_there_were(tmp_path) -> None:
    results = results_of(record("a", 0), record("b", 1, n_chains=2))
    again = unpack(pack(results, tmp_path / "two.zip"))
    assert [r.n_chains for r in again.records] == [1, 2]


# --- any of n, averages, bold ----------------------------------------------------------------


def test_any_of_n_is_the_share_of_all_subsets_that_hold_a_right_sample() -> None:
    draws = results_of(record("p", 3))
    (each,) = draws.records
    right = each.is_right(each.pool_answer)
    assert 0 < right.sum() < 8
    values = {p.n: p.value for p in curves(draws) if p.method == "any"}
    for n in (1, 2, 4, 8):
        held = [any(right[k] for k in subset) for subset in itertools.combinations(range(8), n)]
        assert values[n] == pytest.approx(np.mean(held))
    (one,) = (p for p in curves(draws) if p.method == "one")
    assert (one.n, one.value) == (1, pytest.approx(right.mean()))


def test_what_one_waits_for_is_the_longest_sample_or_the_whole_chain() -> None:
    first = record("p", 3, n_chains=2)
    lengths = np.array([3, 9, 4, 1, 5, 5, 2, 8])
    first = replace(
        first,
        pool_cost=np.stack([lengths, lengths, 0 * lengths], 1),
        chain_cost=np.stack([np.tile([6, 2], 8)] * 2 + [np.zeros(16, int)], 1),
    )
    at = {(p.method, p.n): p for p in curves(results_of(first))}
    for n in (1, 2, 4, 8):
        longest = [max(subset) for subset in itertools.combinations(lengths.tolist(), n)]
        assert at["mv", n].waited == pytest.approx(np.mean(longest))
    chain = at["qalign", 8]
    assert chain.waited == 6 * chain.used / 2  # the longer of the two chains
    assert chain.tokens == 8 * chain.used / 2


def test_an_average_counts_every_set_the_same_and_draws_problems_again_within_each() -> None:
    rng = np.random.default_rng(0)
    small, large = (rng.random(50) < 0.9).tolist(), (rng.random(400) < 0.3).tolist()
    (mean,) = averaged([[point("wmv", small)], [point("wmv", large)]])
    assert mean.value == pytest.approx((np.mean(small) + np.mean(large)) / 2)
    assert mean.strata == (50, 400)
    half = 1.96 * np.sqrt(np.var(small) / 50 + np.var(large) / 400) / 2
    assert (mean.high - mean.low) / 2 == pytest.approx(half, rel=0.1)
    (other,) = averaged([[point("bon", [0.0] * 50)], [point("bon", [0.0] * 400)]])
    gap = difference(mean, other)
    assert (gap.value, gap.low) == (
        pytest.approx(mean.value),
        pytest.approx(mean.low, abs=5e-3),
    )


def test_an_average_has_only_budgets_that_every_set_has_and_every_chain_has_spent() -> None:
    long = [point("qalign", [1.0, 0.0]), point("any", [1.0, 0.0]), point("wmv", [1.0, 1.0])]
    short = [replace(long[0], spent=0.5), *long[1:], replace(long[2], n=16)]
    assert {p.method for p in averaged([long, long])} == {"qalign", "any", "wmv"}
    assert {p.method for p in averaged([long, short])} == {"any", "wmv"}
    assert (level_n(long), level_n(short)) == (8, None)


# --- each method at its own beta -------------------------------------------------------------


def test_no_problem_has_a_say_in_the_choice_that_decides_it() -> None:
    values = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    parts = np.array([0, 0, 1, 1])
    # part 0 alone likes the first choice, and so part 1 gets it
    assert chosen_elsewhere(values, parts).tolist() == [1, 1, 0, 0]
    assert chosen_elsewhere(np.ones((2, 4)), parts).tolist() == [0] * 4  # the stated one, of equals


def test_a_beta_found_on_other_problems_does_not_flatter_itself() -> None:
    rng, elsewhere, on_itself = np.random.default_rng(0), [], []
    parts = np.array([part_of(f"p{k}") for k in range(100)])
    for _ in range(200):
        values = (rng.random((9, 100)) < 0.5).astype(float)  # no choice is better than another
        elsewhere.append(values[chosen_elsewhere(values, parts), np.arange(100)].mean())
        on_itself.append(values.mean(axis=1).max())
    # the mean of 200 has a standard error of 0.0036 or less
    assert np.mean(elsewhere) == pytest.approx(0.5, abs=0.015)
    assert np.mean(on_itself) > 0.56


def test_the_problems_are_dealt_by_their_ids_alone_into_parts_of_about_a_size() -> None:
    counts = np.bincount([part_of(f"in_distribution-{k}") for k in range(1000)])
    assert len(counts) == 5
    assert counts.min() > 150  # the standard deviation is 13
    assert [part_of(id_) for id_ in ("p0", "p1", "\ud800")] == [
        part_of(id_) for id_ in ("p0", "p1", "\ud800")
    ]


def test_weights_and_chains_are_decided_at_their_own_beta() -> None:
    records = [record(f"p{k}", k) for k in range(30)]
    stated = results_of(*records)
    # the same problems at a beta at which every state is right
    all_right = [replace(each, chain_answer=np.zeros(8, dtype=int)) for each in records]
    other = Results(with_run(stated.header, beta=2.0), tuple(all_right))
    values = {
        (p.method, p.n): p
        for p in cross_validated([curves(stated), curves(other)], [stated, other])
    }
    assert {method for method, _ in values} == {"wmv_own", "qalign_own"}
    assert values["qalign_own", 8].each == (1.0,) * 30
    at_betas = {f: Results(with_run(stated.header, beta=f), tuple(records)) for f in FACTORS}
    tried = {f: {p.n: p for p in curves(at_betas[f]) if p.method == "wmv"} for f in FACTORS}
    parts = [part_of(each.id) for each in records]
    for k, part in enumerate(parts):
        means = {
            f: np.mean([v for v, at in zip(points[8].each, parts, strict=True) if at != part])
            for f, points in tried.items()
        }
        best = max(FACTORS, key=lambda f: means[f])  # the first of equals
        assert values["wmv_own", 8].each[k] == tried[best][8].each[k]
    few = results_of(*records[:9])
    assert cross_validated([curves(few)], [few]) == []


def test_results_at_several_betas_are_one_set_with_one_stated_beta() -> None:
    records = [record(f"p{k}", k) for k in range(20)]
    stated = results_of(*records)
    other = Results(with_run(stated.header, beta=2.0), stated.records)
    pool = ("pool_reward", "pool_answer", "pool_cost")
    fewer = (replace(r, **{k: getattr(r, k)[:4] for k in pool}) for r in stated.records[:12])
    begun = Results(with_run(stated.header, beta=4.0), tuple(fewer))
    elsewhere = Results(replace(stated.header, digest="another"), stated.records)
    report = Report({"toy-2": other, "toy": stated, "toy-4": begun, "far": elsewhere})
    (group,) = report.groups
    assert [each.name for each in report.sets if each.stated] == ["toy", "far"]
    assert {p.strata for p in group.average.points} == {(20, 20)}
    assert [row.label for row in group.rows] == ["toy-2", "toy", "toy-4, 4 samples", "far", AVERAGE]
    own = {row["set"] for row in report.json()["rows"] if row["method"] == "qalign_own"}
    assert own == {"toy"}
    merged = cross_validated([curves(stated), curves(begun)], [stated, begun])
    assert {p.method for p in merged} == {"wmv_own"}, "a chain that has not all problems has no say"
    weak = Results(with_run(stated.header, rm="weak"), stated.records)
    assert [g.header.run.rm for g in Report({"toy": stated, "weak": weak}).groups] == [
        stated.header.run.rm,
        "weak",
    ]


# --- where curves turn and cross -------------------------------------------------------------


def curve(method: Curve, shares: list[float], n_problems: int = 200) -> list[Point]:
    """A method right on the first so many problems at n = 1, 2, 4, ..., each costing n."""
    points = []
    for k, share in enumerate(shares):
        each = (np.arange(n_problems) < share * n_problems).astype(float).tolist()
        points.append(replace(point(method, each, spent=2.0**k), n=2**k))
    return points


def test_best_of_n_turns_where_more_samples_harm_beyond_doubt() -> None:
    falls = turn(curve("bon", [0.4, 0.6, 0.9, 0.8, 0.6]))
    assert falls is not None
    assert (falls.n, falls.last, falls.seen) == (4, 16, True)
    assert falls.low == falls.high == 4
    assert falls.lost.value == pytest.approx(0.3)
    rises = turn(curve("bon", [0.4, 0.6, 0.9]))
    assert rises is not None
    assert not rises.seen
    doubtful = turn(curve("bon", [0.4, 0.605, 0.6]))
    assert doubtful is not None
    assert (doubtful.n, doubtful.seen) == (2, False)
    assert turn(curve("bon", [0.5])) is None
    few = turn(curve("bon", [0.02, 0.065, 0.02], 100))  # 5 problems, exact p = 0.06
    assert few is not None
    assert few.lost.low > 0
    assert not few.seen


def test_two_methods_cross_between_two_budgets_on_the_logarithmic_scale() -> None:
    chain, votes = curve("qalign", [0.1, 0.2, 0.6, 0.8]), curve("wmv", [0.3, 0.4, 0.5, 0.5])
    budgets = crossing([*chain, *votes], "qalign", "wmv")
    assert budgets is not None
    assert (budgets.ahead, budgets.last) == ("qalign", 8.0)
    # from -0.2 at 2 to +0.1 at 4: two thirds of the way
    assert budgets.spent == pytest.approx(2 * 2 ** (2 / 3))
    assert budgets.seen
    assert 2 < budgets.low <= budgets.spent <= budgets.high < 4
    turned = crossing([*chain, *votes], "wmv", "qalign")
    assert turned == budgets
    always = crossing([*curve("qalign", [0.5, 0.9]), *curve("wmv", [0.4, 0.6])], "qalign", "wmv")
    assert always is not None
    assert (always.spent, always.high) == (0.0, 0.0)
    near = crossing([*curve("qalign", [0.5, 0.605]), *curve("wmv", [0.6, 0.6])], "qalign", "wmv")
    assert near is not None
    assert not near.seen
    few = [*curve("qalign", [0.02, 0.065], 100), *curve("wmv", [0.02, 0.02], 100)]
    exact = crossing(few, "qalign", "wmv")
    assert exact is not None
    assert not exact.seen  # 5 problems gained, none lost: exact p = 0.06
    alike = crossing([*curve("qalign", [0.5]), *curve("wmv", [0.5])], "qalign", "wmv")
    assert alike is None


def test_a_gain_is_a_ratio_with_an_interval_of_ratios() -> None:
    (one,), (many,) = curve("one", [0.2]), curve("qalign", [0.8])
    value, low, high = gain(many, one)
    assert value == pytest.approx(4)
    assert 2.8 < low < 4 < high < 6
    (never,) = curve("one", [0.0])
    assert gain(many, never)[0] == np.inf
    assert gain(never, one) == (0, 0, 0)
