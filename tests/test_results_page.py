"""The Results page says what the numbers say, whichever way they come out."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import gradio as gr
import numpy as np
import pandas as pd
import pytest
from test_compare_page import changed, recorded_comparison
from test_page_mistakes import reads, shows
from toys import ANSWER, PROMPT, ToyLM, ToyRM
from traces import with_run

from components.compare.view import ranking
from components.results.advice import QUESTIONS, Clause, between, clauses, waiting
from components.results.findings import findings, findings_html
from components.results.page import DECIDING, _Sets, advice, build_results_page
from components.results.problems import problems_html
from components.results.sheet import (
    BETAS,
    betas_of,
    file_of,
    key_of,
    paper_html,
    show,
    whole_html,
)
from qalign_core.assets import ASSETS
from qalign_core.run import Limits, Run
from qalign_study.measure.curves import Point
from qalign_study.measure.differences import paired
from qalign_study.measure.intervals import Difference
from qalign_study.measure.report import COLUMNS, Compared, Evaluated, Group, Report
from qalign_study.measure.results import pack, results_in, unpack
from qalign_study.sets.folder import run_set
from qalign_study.sets.generated import kind_of
from qalign_study.sets.problem_sets import Problem
from qalign_study.sheet.evaluated import (
    AS_IN_THE_PAPER,
    FOLDER,
    OLD_NAMES,
    beside,
    beside_the_papers,
    difference_of_votes,
    groups_of,
    read,
    results_files,
    summarise,
    title_of,
)
from qalign_study.sheet.figures import betas, errors, proxy
from qalign_study.sheet.page import table_html, to_html
from qalign_study.sheet.values import Table, tables
from qalign_study.sheet.words import SURVIVE, VERDICTS, brief, gap, in_points, number, standing

pytestmark = pytest.mark.recorded


def point(method: str, n: int, value: float, *, seed: int = 0) -> Point:
    """A point of 200 problems; two of different seeds are right about different ones."""
    each = np.random.default_rng(seed).permutation(200) < 200 * value
    return Point(
        method=method,  # type: ignore[arg-type]
        n=n,
        used=n,
        spent=1e9 * n,
        tokens=50 * n,
        value=value,
        low=value - 0.02,
        high=value + 0.02,
        reward=float(n) ** 0.5,
        each=tuple(each.astype(float).tolist()),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run, packed as the shipped ones are."""
    import asyncio

    home = tmp_path_factory.mktemp("results")
    problems = [
        Problem(id=f"toy-{k}", prompt=f"{PROMPT} {k}", answer=ANSWER, extractor="number")
        for k in range(6)
    ]
    run = Run(steps=64, pool=16, seed=3, matched="chain")
    asyncio.run(
        run_set(
            ToyLM(), ToyRM(), run, problems, home / "run", task="in_distribution",
            command="qalign evaluate <b>",
        )
    )  # fmt: skip
    pack(results_in(home / "run"), home / "in_distribution-weak.zip")
    return home


def gaps(points: list[Point]) -> str:
    """What the page's table of differences says of points at one budget."""
    table = tables([Compared("", tuple(points)).row(points[0].n)])[1]
    return re.sub("<[^>]+>", "", table_html(table))


def interval_text(gap: Difference) -> str:
    """What a table says of a difference."""
    return f"{in_points(gap, '+.1f').replace('(', '')[:-1]}, {VERDICTS[gap.verdict]}"


SETTINGS = Run(lm="toy", rm="toy", pool=64)


def test_a_packed_run_is_found_named_and_drawn(folder: Path) -> None:
    (path,) = results_files(folder)
    assert title_of(path) == "Like the training problems; weak reward model"
    above, listed, below = show(path)
    assert listed == ""
    for id_ in ("results-error", "results-said", "results-table"):
        assert f'id="{id_}"' in above
    for id_ in ("results-proxy", "results-beta", "results-facts"):
        assert f'id="{id_}"' in below
    assert 'id="results-beside"' not in below
    for name in ("QAlign", "Best-of-n", "Majority vote", "Weighted vote"):
        assert f"<bdi>{name}</bdi>" in above
        assert f"<th>{name}</th>" in above
    assert "QAlign (" in above
    assert re.search(r"\d problems, drawn at β = [\d.]+\.", above)
    assert re.search(r"These draws are at β = [\d.]+\.", below)
    assert "qalign evaluate &lt;b&gt;" in below


def test_the_curves_on_the_page_are_the_cores(folder: Path) -> None:
    (path,) = results_files(folder)
    summary = summarise(path)
    group = Group((summary,))
    figure = errors(summary.points, group)
    lines = {line.name: line.y for line in figure.lines}
    for method, name in (("qalign", "QAlign"), ("bon", "Best-of-n")):
        assert lines[name] == [1 - p.value for p in summary.points if p.method == method]
    assert figure.x.log
    assert proxy(group).lines


def test_the_beta_figure_shows_accuracy_acceptance_and_distance(folder: Path) -> None:
    (path,) = results_files(folder)
    summary, tried = summarise(path), betas_of(path)
    assert [p.beta for p in tried] == pytest.approx([1.0 * factor for factor in BETAS])
    lines = {line.name: line for figure in betas(tried, Group((summary,))) for line in figure.lines}
    assert lines["Weighted vote"].y == [p.accuracy for p in tried]
    assert lines["distance"].y == [p.kl for p in tried]
    known = [p for p in tried if p.acceptance is not None]
    assert lines["changes accepted"].x == [p.beta for p in known]
    assert lines["changes accepted"].y == [p.acceptance for p in known]
    assert 1.0 in lines["changes accepted"].x
    last = max((p for p in summary.points if p.method == "qalign"), key=lambda p: p.n)
    assert lines["QAlign"].y == [last.value]


def test_runs_of_one_set_with_other_reward_models_stand_beside_one_another(
    folder: Path, tmp_path: Path
) -> None:
    (weak,) = results_files(folder)
    for name in ("in_distribution.zip", "in_distribution-weak.zip", "shifted.zip"):
        shutil.copy(weak, tmp_path / name)
    assert list(beside(tmp_path / "in_distribution.zip")) == [
        "usual reward model",
        "weak reward model",
    ]
    assert [path.name for path in results_files(tmp_path)] == [
        "in_distribution.zip",
        "in_distribution-weak.zip",
        "shifted.zip",
    ]
    *_, below = show(tmp_path / "in_distribution.zip")
    panels = below[below.index('id="results-beside"') :]
    for name in beside(tmp_path / "in_distribution.zip"):
        assert f"<h3><bdi>{name}</bdi></h3>" in panels
        assert f"<th><bdi>{name}</bdi></th>" in panels
    assert 'id="results-beside"' not in show(tmp_path / "shifted.zip")[-1]


def test_an_open_ended_set_has_its_own_names() -> None:
    points = [point(m, 64, 0.5) for m in ("qalign", "mv", "wmv")]
    open_ended = replace(SETTINGS, extractor=None)
    assert "to weighted MBR (50%)" in findings_html(points, open_ended)
    assert "to MBR (50%)" in findings_html(points, open_ended)
    table = tables([Compared("", tuple(points)).row(64)], open_ended=True)[0]
    assert table is not None
    assert "Majority vote" not in table.frame.columns


def test_a_file_that_is_no_result_is_named_and_nothing_breaks(tmp_path: Path) -> None:
    broken = tmp_path / "long.zip"
    broken.write_bytes(b"no zip")
    html, listed, below = show(broken)
    assert "long.zip" in html
    assert "<svg" not in html
    assert advice([broken]) == listed == below == ""


def test_no_folder_is_no_results(tmp_path: Path) -> None:
    assert results_files(tmp_path / "none") == ()


def test_over_optimisation_is_said_only_where_the_problems_show_it() -> None:
    falls = [point("bon", 16, 0.85), point("bon", 256, 0.62, seed=1)]
    assert "over-optimizes" in findings(falls)[0]
    unclear = [point("bon", 16, 0.64), point("bon", 256, 0.62, seed=1)]
    assert "is not significantly different from its 62% at n = 256" in findings(unclear)[0]
    rises = [point("bon", 16, 0.62), point("bon", 256, 0.85)]
    assert "does not get worse" in findings(rises)[0]


@pytest.mark.parametrize(
    ("qalign", "other", "verdict"),
    [
        (0.9, 0.7, "QAlign (90%) is ahead of weighted vote (70%): +20.0 percentage points"),
        (0.7, 0.9, "is behind"),
        (
            0.8,
            0.81,
            "is not significantly different from weighted vote (81%): −1.0 percentage points",
        ),
    ],
)
def test_the_verdict_on_qalign_follows_the_paired_difference(
    qalign: float, other: float, verdict: str
) -> None:
    verdicts = findings([point("qalign", 256, qalign), point("wmv", 256, other, seed=1)])
    assert len(verdicts) == 1
    assert verdict in verdicts[0]


def test_level_is_said_only_within_three_points_and_the_width_beside_it() -> None:
    alike = [point("qalign", 256, 0.8), point("wmv", 256, 0.8)]
    assert "is equivalent within ±3 points to weighted vote" in findings(alike)[0]
    apart = [point("qalign", 256, 0.8), point("wmv", 256, 0.8, seed=1)]
    assert "is not significantly different from weighted vote" in findings(apart)[0]
    assert ", no significant difference" in gaps(apart)
    assert "equivalent within ±3 points" in gaps(alike)


def test_overlapping_bands_do_not_hide_a_difference_that_the_problems_show() -> None:
    # the case of the shipped results that was called level: 4 points on the same problems
    points = [point("qalign", 256, 0.88), point("wmv", 256, 0.92)]
    assert points[0].high >= points[1].low
    assert "is behind weighted vote" in findings(points)[0]


def test_a_table_has_every_method_at_the_first_and_the_last_budget() -> None:
    methods = ("qalign", "bon", "mv", "wmv")
    points = [point(m, n, 0.5) for m in methods for n in (1, 4, 16, 64)]
    rows = [Compared(str(n), tuple(points)).row(n) for n in (1, 4, 16, 64)]
    table = tables(rows, opens=key_of)[0]
    assert table is not None
    assert table.frame.shape == (4, 4)
    text = re.sub("<[^>]+>", "", table_html(table))
    assert text.count("50.0 48.0 to 52.0") == 16


def test_a_chain_that_ended_early_is_not_compared_as_if_it_had_not() -> None:
    points = [point(m, n, 0.8) for m in ("qalign", "wmv") for n in (16, 64)]
    points[1] = replace(points[1], spent=0.5 * points[1].spent, value=0.99, low=0.98)
    assert "At the compute of 16 samples QAlign (80%) is equivalent" in findings(points)[0]
    points.append(replace(points[-1], method="any"))
    table = tables([Compared("", tuple(points)).row(64)])[0]
    text = re.sub("<[^>]+>", "", table_html(table))
    assert "99.0 98.0 to 82.0 its chain stopped below this budget" in text


def test_the_papers_table_is_the_papers() -> None:
    # the paper, Section 4.2: general setting, accuracy in % at 1024 samples
    published = pd.read_csv(FOLDER / "paper.csv", index_col=0)
    assert published["MATH500"].tolist() == [31.6, 49.4, 53.0, 60.4, 55.8]
    assert published["Average"].tolist() == [53.5, 62.3, 59.2, 67.4, 65.6]
    averages = published.drop(columns="Average").mean(axis=1)
    assert published["Average"].tolist() == pytest.approx(averages.tolist(), abs=0.15)
    assert "<td><bdi>88.2</bdi></td>" in paper_html("paper")


def test_cells_are_text() -> None:
    html = table_html(Table(pd.DataFrame({"<script>": ["<b>"]}, index=["<script>"])))
    assert "<script>" not in html
    assert "<b>" not in html


def summary(**values: float) -> Evaluated:
    """A set of 200 problems on which methods are right so often, at 1 and at 256 samples."""
    points = tuple(
        point(m, n, value, seed=k) for k, (m, value) in enumerate(values.items()) for n in (1, 256)
    )
    shipped = summarise(results_files()[0])
    return replace(shipped, points=points)


def clause_for(use: str, candidates: list[Clause]) -> Clause:
    (clause,) = (each for each in candidates if each.use.startswith(use))
    return clause


def test_that_the_chain_passes_every_rule_over_its_samples_is_said_where_it_does() -> None:
    verdicts = {p.stem: findings(summarise(p).points)[0] for p in results_files()}
    assert SURVIVE in verdicts["inventory"]  # no part of the method knows what is right
    assert "among 512 samples, so no rule that chooses among them can do better" in verdicts.pop(
        "inventory"
    )
    assert verdicts
    assert not [name for name, first in verdicts.items() if "no rule that chooses" in first]
    summary = summarise(FOLDER / "inventory.zip")
    above = brief(paired(summary.points, "qalign", "any")[-1])
    text = re.sub("<[^>]+>", "", show(FOLDER / "inventory.zip")[0])
    assert interval_text(paired(summary.points, "qalign", "any")[-1]) in text
    sentences = findings_html(summary.points, summary.results.header.run)
    assert above in sentences.replace(" percentage points (95% CI ", " (")


def test_every_clause_of_the_advice_follows_from_the_shipped_results() -> None:
    usual = {p.stem: summarise(p) for p in results_files() if "-" not in p.stem}
    usual = {name: each for name, each in usual.items() if not each.results.header.run.open_ended}
    poor = {p.stem: summarise(p) for p in results_files() if "-" in p.stem}
    advised = clauses(usual, poor)
    assert len(advised) == 6
    votes = clause_for("The weighted vote", advised)
    rare = clause_for("QAlign", advised)
    for name, each in usual.items():
        difference = brief(paired(each.points, "qalign", "wmv")[-1])
        assert (difference in votes.because) == (name != "inventory")
    above = brief(paired(usual["inventory"].points, "qalign", "any")[-1])
    assert f"QAlign is ahead of every choice among the samples, {above}" in rare.because
    for each in poor.values():
        d = between(each, "bon", "mv", each.level)
        assert d is not None
        assert d.verdict == "behind"
        clause = next(c for c in advised if c.situation == "A poor reward model")
        assert brief(d) in clause.because
        assert "In this case, avoid best-of-n." in clause.because
        assert "est-of-n" not in clause.use
    ratios = [ratio for each in usual.values() for ratio in waiting(each)]
    assert f"{median(ratios):.0f} times as many tokens in a row" in advised[0].because
    assert SURVIVE in rare.because
    assert rare.lab == "#lab-section-worth"
    text = advice(results_files())
    assert f'href="{rare.lab}"' in text


def test_the_sets_are_groups_and_the_one_where_the_chain_is_ahead_is_among_the_first_two() -> None:
    by_name = {p.stem: p for p in results_files() + results_files(others=True)}
    groups = groups_of(by_name)
    assert len(groups) == 7
    forms = groups["Pretrained models: forms of ten separate fields"]
    assert next(iter(forms.items())) == (f"{AS_IN_THE_PAPER}; model in float32", "forms")
    for path in by_name.values():
        pretrained, in_int8 = path.parent.name == "pretrained", "int8" in title_of(path)
        assert in_int8 == read(path).header.lm_revision.endswith(" int8"), path.stem
        assert pretrained == ("; model in " in title_of(path)), path.stem
    assert "β = 0.4" in groups["Right samples are very rare, and the chain is ahead: inventories"]
    gemma = ["forms-gemma", "forms-gemma-64"]
    assert [*forms.values()] == ["forms", *gemma, "forms@9001", "forms@9001-block"]
    assert len(read(by_name["forms"]).records) == 300  # of which README and the docs report
    sets = _Sets(by_name)
    for old, today in OLD_NAMES.items():
        assert sets.path(old) == by_name[today]
    assert sets.path("../x") == by_name[sets.first]
    ifeval = groups["Pretrained models: IFEval, with its checkers or a weak reward model"]
    assert [*ifeval.values()] == [
        "ifeval",
        "ifeval-gemma",
        "ifeval-gemma-trained",
        "ifeval-trained",
    ]
    assert sorted(name for group in groups.values() for name in group.values()) == sorted(by_name)
    ahead = [title for title in groups if "the chain is ahead" in title]
    assert ahead == list(groups)[1:2]
    name = next(iter(groups[ahead[0]].values()))
    d = paired(summarise(by_name[name]).points, "qalign", "any")[-1]
    assert d.verdict == "ahead"


def test_three_questions_have_big_answers_and_the_numbers_are_behind_a_fold() -> None:
    text = advice(results_files())
    questions, numbers = text.split("<details")
    assert re.findall("<h3>(.*?)</h3>", questions) == list(QUESTIONS)
    answers = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", questions)
    assert ("No", "QAlign") in answers
    assert ("Yes", "The weighted vote") in answers
    assert not re.search(r"\([−\d]|percentage points", questions)  # no interval
    assert "95% intervals" in numbers


def test_a_sharper_chain_stands_beside_that_of_the_paper_on_the_page_and_in_the_docs() -> None:
    docs = (FOLDER.parents[1] / "docs/sharper.md").read_text("utf-8").replace("**", "")
    for name in ("in distribution", "shifted", "long"):
        path = FOLDER / f"{name.replace(' ', '_')}-sharp.zip"
        summary, d = summarise(path), beside_the_papers(path)
        assert d is not None
        value, low, high = (f"{100 * x + 1e-9:.1f}" for x in (d.value, d.low, d.high))
        mine = next(p for p in summary.points if (p.method, p.n) == ("qalign", 32))
        at = f"{100 * mine.value:.1f} ({100 * mine.low:.0f}-{100 * mine.high:.0f})"
        row = f"| {name} | {at} | {100 * (mine.value - d.value):.1f} ("
        assert row in docs
        assert f" | {value} ({low} to {high})" in docs[docs.index(row) :].split("\n")[0]
        html = findings_html(summary.points, summary.results.header.run, d)
        stands = "is behind" if name == "long" else "is not significantly different from"
        assert f"QAlign of sharpness 4 {stands} QAlign of sharpness 1" in html
    for other in ("shifted", "shifted-power"):
        assert beside_the_papers(FOLDER / f"{other}.zip") is None


def test_results_with_block_moves_stand_beside_suffix_moves_and_apart_from_the_usual_sets() -> None:
    usual, others = results_files(), results_files(others=True)
    assert not {path for path in usual if "@" in path.stem}
    assert not {*usual} & {*others}
    fresh = [path for path in others if path.parent.name == "fresh"]
    assert [path.stem for path in fresh[-2:]] == ["inventory@4", "inventory@4-block"]
    assert [p.stem for p in others if p.stem[:5] == "long-"][:2] == ["long-block", "long-entropy"]
    path = fresh[-1]
    assert title_of(path).endswith("fresh problems, seed 4; half of the steps rewrite one block")
    summary, d = summarise(path), beside_the_papers(path)
    assert d is not None
    assert d.n == 64
    assert d.low > 0
    html = findings_html(summary.points, summary.results.header.run, d)
    assert "QAlign with the moves 0.5*suffix+0.5*block(:) is ahead of QAlign with suffix" in html
    assert beside_the_papers(fresh[-2]) is None, "suffix moves are the paper's"


def test_the_advice_names_the_set_with_a_validator_that_it_does_not_hold_for() -> None:
    forms = summarise(FOLDER / "pretrained" / "forms.zip")
    one = next(p.value for p in forms.points if (p.method, p.n) == ("any", 1))
    assert f"it is ahead on forms where 1 sample in {1 / one:.0f} is right" in DECIDING
    gap = between(forms, "qalign", "wmv", forms.level)
    assert gap is not None
    assert gap.verdict == "ahead"


def test_the_advice_turns_where_the_results_do() -> None:
    wins = summary(qalign=0.5, wmv=0.3, bon=0.3, mv=0.1, any=0.35)
    (much,) = (c for c in clauses({"these": wins}, {}) if c.situation.startswith("Many samples"))
    assert much.use == "QAlign on these"
    loses = summary(qalign=0.3, wmv=0.5, bon=0.3, mv=0.1, any=0.6)
    (much,) = (c for c in clauses({"these": loses}, {}) if c.situation.startswith("Many samples"))
    assert much.use == "The weighted vote"


def test_a_set_of_rare_right_answers_is_shown_for_the_chain_itself() -> None:
    points = [
        replace(point(m, n, value, seed=k), value=value)
        for k, (m, n, value) in enumerate(
            [("any", 1, 0.002), ("any", 256, 0.3), ("qalign", 256, 0.5), ("wmv", 256, 0.3)]
        )
    ]
    rare = replace(summary(qalign=0.5), points=tuple(points))
    clause = clause_for(
        "QAlign", [c for c in clauses({"these": rare}, {}) if "rarer" in c.situation]
    )
    assert "on these QAlign is ahead of every choice among the samples" in clause.because


def test_the_advice_is_never_an_empty_box_and_computes_no_curve_that_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gr.Blocks() as demo:
        build_results_page(gr.State(0), gr.HTML())
    (box,) = (b for b in demo.blocks.values() if getattr(b, "elem_id", "") == "results-advice")
    assert "Comparing the methods on every set" in str(getattr(box, "value", ""))
    computed: list[str] = []

    def curves_of(path: Path) -> Evaluated:
        computed.append(path.stem)
        return summarise(path)

    monkeypatch.setattr("components.results.page.summarise", curves_of)
    assert advice(results_files())
    assert "long" in computed
    assert "writing" not in computed  # open-ended, and the slowest of all


def test_the_advice_makes_text_of_names(folder: Path) -> None:
    (path,) = results_files(folder)
    odd = path.with_name("<b>.zip")
    shutil.copy(path, odd)
    try:
        assert "<b>" not in advice([odd])
    finally:
        odd.unlink()


# --- from a number to a problem, and to its chain --------------------------------------------


def test_every_number_of_the_tables_leads_to_its_problems(folder: Path) -> None:
    (path,) = results_files(folder)
    summary = summarise(path)
    numbers = show(path)[0]
    opened = re.findall(r'data-opens="([^"]+)"', numbers)
    assert len(set(opened)) == len(opened) >= 4 * 5 + 3
    for cell in opened:
        listed = problems_html(summary, cell)
        assert all(record.id in listed for record in summary.results.records), cell
    for nobody in ("qalign", "any::1", "qalign::3", "qalign:none:1", "<b>:<b>:<b>"):
        assert problems_html(summary, nobody) == ""


def test_the_problems_on_which_a_method_does_worst_come_first(folder: Path) -> None:
    (path,) = results_files(folder)
    view = summarise(path)
    (point,) = (p for p in view.points if (p.method, p.n) == ("bon", 4))
    listed = problems_html(view, "bon::4")
    ids = [record.id for record in view.results.records]
    order = re.findall(r"<th><bdi>(toy-\d)</bdi></th>", listed)
    values = [point.each[ids.index(id_)] for id_ in order]
    assert values == sorted(values)
    assert "starting where best-of-n does worst" in listed
    beside = problems_html(view, "qalign:wmv:4")
    assert "QAlign does worst compared with weighted vote" in beside
    # a set of somebody's own: its problems are not here
    assert "The command draws a chain again" in listed
    assert "qalign run --task in_distribution --problem 0 " in listed


def test_a_problem_of_a_shipped_set_opens_on_watch_with_the_very_run(tmp_path: Path) -> None:
    view = summarise(FOLDER / "long.zip")
    listed = problems_html(view, "wmv::256")
    problems = view.listed
    assert len(problems) == len(view.results.header.problems)
    links = [html.unescape(link) for link in re.findall(r'href="\?([^"]+)"', listed)]
    assert len(links) == 200
    for link in links[:3]:
        run = Run.read(dict(parse_qsl(link)))
        place = run.seed - view.results.header.run.seed
        assert run.prompt == problems[place].prompt
        assert (run.beta, run.lm, run.rm) == (
            0.8,
            view.results.header.run.lm,
            view.results.header.run.rm,
        )
        record = view.results.records[place]
        assert run.steps == len(record.chain_reward) - 1
    changed = replace(view.results, header=replace(view.results.header, digest="another"))
    assert replace(view, results=changed).listed == ()


def test_the_longest_chain_of_a_shipped_set_opens_within_the_servers_limits() -> None:
    listed = problems_html(summarise(FOLDER / "inventory.zip"), "wmv::512")
    runs = [Run.read(dict(parse_qsl(html.unescape(x)))) for x in re.findall(r'"\?([^"]+)"', listed)]
    assert max(run.steps for run in runs) == Limits().steps
    for run in runs:
        run.check(Limits())


def test_all_sets_together_are_the_reports_figures_and_files(folder: Path, tmp_path: Path) -> None:
    (path,) = results_files(folder)
    shutil.copy(path, tmp_path / "<i>.zip")
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"no zip")
    files = [tmp_path / "<i>.zip", broken]
    html = whole_html(files)
    assert "&lt;i&gt;" in html
    assert "<i>" not in html
    for heading in ("Sets and methods", "Set by set", "Where curves turn and cross", "waits"):
        assert heading in html
    assert "#problems-" not in html
    csv, tex = (json.loads(file_of(files, kind)) for kind in ("csv", "tex"))
    assert csv["name"] == "qalign-results.csv"
    assert csv["text"].startswith(",".join(COLUMNS) + "\r\n")
    assert "\\toprule" in tex["text"]
    assert json.loads(file_of(files, "csv"))["at"] > csv["at"]
    assert "No results can be read" in whole_html([broken])


def test_one_problem_is_set_against_the_recorded_ones_of_its_kind() -> None:
    comparison = recorded_comparison()
    kind = kind_of(comparison.header.run.prompt)
    summary = summarise(FOLDER / f"{kind}.zip")
    last = paired(summary.points, "qalign", "wmv")[-1]
    sentence = ranking(comparison)
    target = f"drawn at β = {number(summary.results.header.run.beta)}"
    assert (
        f"on {len(summary.results.records)} recorded problems of this kind, {target}," in sentence
    )
    # the page's skeleton waits for this: only the largest budgets are computed
    assert difference_of_votes(FOLDER / f"{kind}.zip") == last
    assert f"the compute of {last.n} samples each, QAlign" in sentence
    assert gap(last) in sentence
    assert standing(last) in sentence
    for header in (
        with_run(comparison.header, prompt="Tell me of shells."),
        with_run(comparison.header, rm="another"),
    ):
        sentence = ranking(changed(comparison, header=header))
        assert sentence == "One problem cannot rank the methods; whole sets of problems can."


def test_a_link_to_a_set_that_there_is_not_opens_the_first_and_says_so(monkeypatch) -> None:
    monkeypatch.setattr(gr, "Warning", (notices := []).append)
    sets = _Sets({"long-power": FOLDER / "long-power.zip"})
    for query in ({}, {"set": "long-power"}, {"set": "UNKNOWN"}):
        chosen = asyncio.run(sets.look("", SimpleNamespace(query_params=query)))
        assert chosen[1].value == "long-power"
    assert notices == ["The link's value “UNKNOWN” of “Problem set” cannot be used here."]


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_a_report_fits_1280_pixels(browser):
    sets = {"long-sharp": unpack(ASSETS / "results" / "long-sharp.zip")}
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    await page.set_content(to_html(Report(sets)))
    await page.evaluate("for (const node of document.querySelectorAll('details')) node.open = true")
    beyond = """Math.max(...[...document.querySelectorAll('*')]
      .filter((node) => /auto|scroll/.test(getComputedStyle(node).overflowX) || !node.parentElement)
      .map((node) => node.scrollWidth - node.clientWidth))"""
    assert await page.evaluate(beyond) == 0
    await page.add_style_tag(content="table { min-width: 1400px; }")
    assert await page.evaluate(beyond) > 0  # or nothing would be tested
    await page.close()


OF_LONG = "?tab=results&set=long&seed=4"


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_the_charts_of_a_sheet_are_saved_with_their_titles_and_legends(
    revisit, toy_app, tmp_path
):
    page = await revisit(toy_app + OF_LONG)
    await page.emulate_media(color_scheme="dark")
    await page.wait_for_selector("#results-beta svg.chart")
    for figure, words in (
        ("error", ("QAlign", "Any of n: at least one sample is right")),
        ("beta", ("Changes accepted", "samples can show")),
    ):
        async with page.expect_download() as saving:
            await page.click(f"[data-figure=results-{figure}][data-save=svg]")
        path = tmp_path / (await saving.value).suggested_filename
        await (await saving.value).save_as(path)
        root = ElementTree.parse(path).getroot()
        text = "".join(root.itertext())
        assert all(word in text for word in words), figure
        assert "var(--" not in path.read_text("utf-8"), "its colors are written in it"


SEEN_SHEETS = """() => {
  const sheet = document.querySelector("#results-sheet");
  window.sheets = [];
  new MutationObserver(() => sheets.push(sheet.innerText)).observe(sheet,
    { childList: true, subtree: true, characterData: true }) }"""
TITLES = """[...document.querySelectorAll(":is(#results-set, #results-variant) .wrap-inner")]
  .map((menu) => menu.dataset.title).join(" / ")"""


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_the_problem_set_of_results_is_in_its_link_and_its_numbers_lead_on(revisit, toy_app):
    page = await revisit(toy_app + OF_LONG)
    await reads(page, "#results-facts", "long")
    await page.locator("summary", has_text="All numbers").click()
    await page.locator("#results-table [data-opens='wmv::64']").click()
    await reads(page, "#results-problems", "starting where weighted vote does worst")
    chain = await page.locator("#results-problems a").first.get_attribute("href")
    assert chain.startswith("?prompt=")
    assert "seed=" in chain
    chosen = "document.querySelector('#results-set input').value"
    await shows(page, f"{chosen}.startsWith('Right samples are rare')")
    await shows(page, f"{TITLES} === 'Right samples are rare: long problems / {AS_IN_THE_PAPER}'")
    await page.evaluate(SEEN_SHEETS)
    await page.click("#results-set input")
    await page.get_by_role("option", name="Unfamiliar wording, more events", exact=True).click()
    await shows(page, "location.search === '?tab=results&set=shifted'")
    await reads(page, "#results-facts", "of shifted")
    await shows(page, f"{TITLES} === 'Unfamiliar wording, more events / {AS_IN_THE_PAPER}'")
    assert "Reading the results…" in await page.evaluate("sheets.map((text) => text.trim())")
    await page.click("#results-variant input")
    await page.get_by_role("option", name="Sharpness 4", exact=True).click()
    await shows(page, "location.search === '?tab=results&set=shifted-sharp'")
    assert (await page.text_content("#results-problems")).strip() == ""
