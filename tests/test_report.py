"""Methods of one set are compared by paired differences, on the page, in files and in the shell."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qalign_core.analysis.curves import NARROW, Curve, Point, curves, difference, paired, verdict
from qalign_core.analysis.record import Record
from qalign_core.assets import ASSETS
from qalign_core.cli import main
from qalign_core.errors import InvalidSetting
from qalign_core.runs.report import OTHERS, report
from qalign_core.runs.results import Results, pack, unpack
from qalign_core.types import SetHeader

RESULTS = ASSETS / "results"


def point(method: Curve, each: list[float], *, spent: float = 1.0) -> Point:
    mean = float(np.mean(each))
    return Point(method, 8, 8.0, spent, 80.0, mean, mean, mean, 0.0, tuple(each))


def test_what_two_methods_share_is_no_part_of_their_difference() -> None:
    rng = np.random.default_rng(0)
    hard = (rng.random(200) < 0.5).astype(float)
    better = hard.copy()
    better[np.flatnonzero(hard == 0)[:8]] = 1.0
    found = difference(point("wmv", better.tolist()), point("qalign", hard.tolist()))
    assert found.value == pytest.approx(0.04)
    # 8 of 200 problems differ, all one way; the standard error is 0.014, not 0.05 as unpaired
    assert found.low == pytest.approx(0.04 - 1.96 * 0.0139, abs=0.006)
    assert found.verdict == "ahead"
    assert difference(point("qalign", hard.tolist()), point("wmv", better.tolist())).low < -0.06


def test_the_interval_of_a_difference_has_its_coverage() -> None:
    # 95 % of 300 intervals: fewer than 270 or more than 298 once in a million seeds
    rng, hits = np.random.default_rng(1), 0
    for _ in range(300):
        a, b = (rng.random((2, 200)) < [[0.8], [0.7]]).astype(float)
        found = difference(point("wmv", a.tolist()), point("qalign", b.tolist()), n_bootstrap=500)
        hits += found.low <= 0.1 <= found.high
    assert 268 <= hits <= 299


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.001, 0.1, "ahead"),
        (-0.1, -0.001, "behind"),
        (-NARROW, NARROW, "level"),
        (-0.001, NARROW + 0.001, "not told apart"),
        (-0.048, 0.032, "not told apart"),
    ],
)
def test_level_needs_an_interval_that_is_narrow(low: float, high: float, said: str) -> None:
    assert verdict(low, high) == said


def test_methods_are_compared_at_equal_prices_and_over_the_same_problems_only() -> None:
    one, cheap = point("qalign", [1.0, 0.0]), point("wmv", [1.0, 0.0], spent=0.9)
    assert list(paired([one, cheap], "qalign", "wmv")) == []
    assert len(list(paired([one, replace(cheap, spent=0.99)], "qalign", "wmv"))) == 1
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
def shipped() -> dict[str, list[dict[str, Any]]]:
    return report({path.stem: unpack(path) for path in sorted(RESULTS.glob("*.zip"))})


def test_where_the_vote_of_samples_is_ahead_it_is_not_called_level(
    shipped: dict[str, list[dict[str, Any]]],
) -> None:
    said = []
    for name, n in CARD.values():
        (row,) = (r for r in shipped["paired"] if (r["set"], r["b"], r["n"]) == (name, "wmv", n))
        said.append(verdict(row["low"], row["high"]))
        at = {r["method"]: r for r in shipped["rows"] if (r["set"], r["n"]) == (name, n)}
        assert row["difference"] == pytest.approx(at["qalign"]["accuracy"] - at["wmv"]["accuracy"])
    unclear = "not told apart"
    assert said == [unclear, "behind", unclear, "behind", "behind"]


def test_the_cards_table_of_differences_is_the_reports(
    shipped: dict[str, list[dict[str, Any]]],
) -> None:
    found = {(r["set"], r["b"], r["n"]): r for r in shipped["paired"]}
    expected = []
    for title, (name, n) in CARD.items():
        rows = [found[name, other, n] for other in ("wmv", "mv", "bon")]
        cells = [
            "{:+.1f} ({:+.1f} to {:+.1f}) ".format(
                *(100 * r[key] for key in ("difference", "low", "high"))
            )
            + verdict(r["low"], r["high"])
            for r in rows
        ]
        expected.append(f"| {title} | {' | '.join(cells)} |")
    card = (ASSETS / "models" / "README.md").read_text("utf-8").replace("−", "-")
    assert "\n".join(expected) in card, "the table is:\n" + "\n".join(expected)


def test_the_page_of_results_says_the_reports_numbers(
    shipped: dict[str, list[dict[str, Any]]],
) -> None:
    said = " ".join(
        (ASSETS.parent / "docs/results.md").read_text("utf-8").replace("**", "").split()
    )
    found = {(r["set"], r["b"], r["n"]): r for r in shipped["paired"]}
    for place in (("in_distribution", "wmv", 256), ("shifted", "wmv", 256), ("long", "wmv", 256),
                  ("in_distribution-weak", "mv", 128)):  # fmt: skip
        value, low, high = (100 * found[place][key] for key in ("difference", "low", "high"))
        one = f"{value:+.1f}" if value > 0 else f"{value:.1f}"
        assert re.search(rf"{re.escape(one)} (points )?\({low:.1f} to {high:.1f}\)", said), place
    at = {(r["set"], r["method"], r["n"]): r for r in shipped["rows"]}
    for name in ("in_distribution", "shifted", "long"):
        columns = [("mv", 1), *((method, 256) for method in ("mv", "bon", "wmv", "qalign"))]
        rows = [[100 * at[name, *c][key] for key in ("accuracy", "low", "high")] for c in columns]
        cells = [f"{value:.1f} ({low + 1e-9:.0f}-{high + 1e-9:.0f})" for value, low, high in rows]
        assert f"| {name.replace('_', ' ')} | {' | '.join(cells)} |" in said


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.zip")), ids=lambda path: path.stem)
def test_the_shipped_results_are_billed_by_the_run_alone(path: Path) -> None:
    # the embedded reward model reads on, so it reads what the language model wrote
    for each in unpack(path).records:
        first = each.chain_cost[: each.n_chains, 0]
        for cost in (each.pool_cost, each.chain_cost):
            assert (cost[:, 0] == cost[:, 1]).all()
            assert cost.min() >= 1
        assert (first == each.chain_length[: each.n_chains]).all()
        assert (each.chain_cost[:, 0] <= each.chain_length).all()
        assert each.prompt[0] == each.prompt[1] > 0


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
        pool_cost=np.tile([5, 5], (8, 1)),
        chain_reward=rng.normal(size=n),
        chain_answer=rng.integers(-1, 2, n),
        chain_cost=np.tile([5, 5], (n, 1)),
        chain_accepted=accepted,
        chain_changed=np.ones(n, dtype=bool),
        chain_length=np.full(n, 5),
        n_chains=n_chains,
    )


def results_of(*records: Record) -> Results:
    """Results of a model of one parameter."""
    problems = tuple(record.id for record in records)
    return Results(SetHeader(pool=8, lm_parameters=1, problems=problems), records)


def test_the_command_prints_the_report_as_a_table_and_as_json(tmp_path, capsys) -> None:
    results = results_of(*(record(f"p{k}", k) for k in range(20)))
    path = pack(results, tmp_path / "toy.zip")
    assert main(["report", str(path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made == report({"toy": unpack(path)})
    assert {tuple(row) for row in made["rows"]} == {
        ("set", "method", "n", "flops", "accuracy", "low", "high")
    }
    assert {tuple(row) for row in made["paired"]} == {
        ("set", "a", "b", "n", "flops", "difference", "low", "high")
    }
    assert {(row["a"], row["b"], row["n"]) for row in made["paired"]} == {
        ("qalign", other, n) for other in OTHERS for n in (1, 2, 4, 8)
    }
    assert main(["report", str(path)]) == 0
    said = capsys.readouterr().out
    assert "toy\n" in said
    for row in made["paired"]:
        assert f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, " in said
    assert main(["report", str(tmp_path / "none")]) == 2


def test_several_chains_of_a_problem_vote_together() -> None:
    several = record("p", 3, n_chains=2)
    at = several.state_of.reshape(8, 2)
    for chain in (0, 1):
        accepted = several.chain_accepted.reshape(8, 2)[:, chain]
        last = [max(t for t in range(k + 1) if accepted[t]) for k in range(8)]
        assert at[:, chain].tolist() == [2 * t + chain for t in last]
    draws = results_of(several)
    used = {p.n: p.used for p in curves(draws, n_bootstrap=2) if p.method == "qalign"}
    # a state of each of two chains costs what two samples do
    assert used == {1: 2, 2: 2, 4: 4, 8: 8}


def test_a_packed_file_keeps_how_many_chains_there_were(tmp_path) -> None:
    results = results_of(record("a", 0), record("b", 1, n_chains=2))
    again = unpack(pack(results, tmp_path / "two.zip"))
    assert [r.n_chains for r in again.records] == [1, 2]
