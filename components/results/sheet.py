"""The sheet of one set and of all, as markup for the page, and files to take home."""

import html
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from components.common.options import heading
from components.common.saving import save_line
from components.results.findings import findings_html
from components.results.problems import problems_html
from qalign_core.decide.rules import chain_vote
from qalign_core.errors import QAlignError
from qalign_study.measure.report import Evaluated, Group, Report, Row
from qalign_study.measure.tuning import BetaPoint, against_beta
from qalign_study.serve.refusal import public_errors
from qalign_study.sheet.evaluated import (
    FOLDER,
    beside,
    beside_the_papers,
    once_per_version,
    summarise,
)
from qalign_study.sheet.figures import betas, errors, proxy
from qalign_study.sheet.files import to_csv, to_latex
from qalign_study.sheet.page import STYLE, figure_html, panels_html, section_html, table_html
from qalign_study.sheet.problems import progress
from qalign_study.sheet.report import INTERVALS, describe_run, sections
from qalign_study.sheet.values import Section, Table, tables
from qalign_study.sheet.words import COMPUTE_NOTE, number, si, target_of

BETAS = (1 / 8, 1 / 4, 1 / 2, 1 / 2**0.5, 1.0, 2**0.5, 2.0, 4.0, 8.0)
"""Multiples of the run's beta at which the page shows what another one does."""
SHEET = f"""<style>
.qr-sheet {{ --ink: var(--body-text-color); --soft: var(--body-text-color-subdued);
  --line: var(--border-color-primary); --ground: var(--background-fill-primary);
  {STYLE}
}}
</style>"""
FORMS = {"csv": to_csv, "tex": to_latex}
"""The files of all results, by how their names end."""
PROXY = (
    "Each point is a budget. A curve that goes right and down shows "
    "[over-optimization](overoptimised): more reward, fewer right answers."
)
BETA = (
    "The same draws at other values of [β](beta): how often the [weighted vote](wmv) is right (the "
    "[chain](chain) aims at the same [target](target)), how many changes a chain would accept, and "
    "the [distance](kl) of the target from the language model. The distance is estimated from "
    "this run’s samples, which cannot show more than the dotted line: where the curve comes close "
    "to it, the true distance may be larger."
)
BESIDE = (
    "The same problems and the same language model, with a weak reward model. If yours is poor, "
    "avoid best-of-n: use a majority or weighted vote, or train another reward model "
    "(qalign train-rm)."
)


@once_per_version
def betas_of(path: Path) -> tuple[BetaPoint, ...]:
    """What other betas would have made of the same samples."""
    results = summarise(path).results
    tried = [results.header.run.beta * factor for factor in BETAS]
    is_weighted = results.header.run.pool and results.header.run.has_reward
    return tuple(against_beta(results, tried)) if is_weighted else ()


def show(path: Path) -> tuple[str, str, str]:
    """Everything of one set; each figure with an id and its buttons.

    Returns:
        The main figure with its findings, the problems if it is a folder, and, below the advice,
        the other figures and what was run.
    """
    try:
        with public_errors():
            evaluated, papers, others = summarise(path), beside_the_papers(path), beside(path)
            runs = {name: summarise(other) for name, other in others.items()}
            tried = betas_of(path) if evaluated.points else ()
    except QAlignError as error:
        return f'<p class="qc-sub">{html.escape(f"{path.name}: {error}")}</p>', "", ""
    group, header = Group((evaluated,)), evaluated.results.header
    above = below = problems = ""
    if evaluated.points:
        above = _figure("results-error", figure_html(errors(evaluated.points, group)))
        caption = f"{len(evaluated.results.records):,} problems, drawn at {target_of(header.run)}."
        findings = findings_html(evaluated.points, header.run, papers)
        above += f'<p class="qc-sub" id="results-drawn">{html.escape(caption)}</p>'
        above += f'<div id="results-said">{findings}</div>{_numbers(evaluated)}'
    if evaluated.folder is not None:  # its problems come first
        fold = f"<details><summary>Its figure and numbers</summary>{above}</details>"
        above = f'<p role="status">{progress(evaluated)}</p>{fold * bool(above)}'
        problems = list_html(evaluated)
    if header.run.has_reward and evaluated.points:
        figure = _figure("results-proxy", figure_html(proxy(group)))
        below += heading("Does more reward mean more right answers?", PROXY) + figure
    if tried:
        figure = _figure("results-beta", panels_html(betas(tried, group)))
        words = f"{BETA} These draws are at β = {number(header.run.beta)}."
        below += heading("What does β change?", words) + figure
    if len(runs) > 1:
        panels = [errors(each.points, group, name) for name, each in runs.items()]
        level = min(each.level or max(p.n for p in each.points) for each in runs.values())
        both = tables([each.row(level, name) for name, each in runs.items()])
        sentence = (
            f"Right answers in percent, at the compute of {level:,} samples; differences below."
        )
        numbers = Section(
            "The numbers of both", sentence, both, fold=True, id="results-beside-table"
        )
        below += heading("What does a worse reward model do?", BESIDE)
        below += _figure("results-beside", panels_html(panels)) + section_html(numbers)
    facts = Table(pd.DataFrame({"": describe_run(evaluated)}), heads=False)
    title = "What was run, and the command that draws it again"
    below += section_html(Section(title, "", [facts], fold=True, id="results-facts"))
    return _sheet(above), problems, _sheet(below)


def list_html(evaluated: Evaluated, opened: str = "") -> str:
    """The problems of a set, or those behind a number (`problems_html`)."""
    return _sheet(problems_html(evaluated, opened))


def _numbers(evaluated: Evaluated) -> str:
    """All methods at every budget, and what QAlign has more; each number leads to its problems."""
    header, ns = evaluated.results.header, sorted({p.n for p in evaluated.points})
    spent = {
        p.n: si(p.spent, header.meter.unit) for p in evaluated.points if p.method != chain_vote.id
    }
    labels = {n: f"{n:,} sample{'s' * (n > 1)}" + f", {spent[n]}" * (n in spent) for n in ns}
    rows = [evaluated.row(n, label) for n, label in labels.items()]
    numbers = tables(rows, open_ended=header.run.open_ended, opens=key_of)
    title, sentence = (
        "All numbers, and the definition of compute",
        f"{COMPUTE_NOTE}</p><p>{INTERVALS}",
    )
    return section_html(Section(title, sentence, numbers, fold=True, id="results-table"))


def key_of(row: Row, of: str) -> str:
    """What `problems_html` reads of a number: its method, the other one, and its budget."""
    return "" if of in ("one", "any") else f"{of}{':' * (2 - of.count(':'))}{row.n}"


def _figure(id_: str, markup: str) -> str:
    return f'<div id="{id_}">{markup}</div>{save_line(id_)}'


def _sheet(markup: str) -> str:
    return f'{SHEET}<div class="qr-sheet">{markup}</div>'


def paper_html(name: str) -> str:
    """A table of the paper, as the paper has it."""
    frame = pd.read_csv(FOLDER / f"{name}.csv", index_col=0, dtype=str)
    return _sheet(table_html(Table(frame)))


def whole_html(files: Sequence[Path]) -> str:
    """Averages, differences, small multiples, where curves turn and cross, gains and waiting."""
    report = _report(*files)
    if report is None:
        return '<p class="qc-sub">No results can be read.</p>'
    return _sheet("".join(map(section_html, sections(report))))


def file_of(files: Sequence[Path], kind: str) -> str:
    """A file of all results, as JSON for the browser: its name and its text."""
    report = _report(*files)
    text = "" if report is None else FORMS[kind](report)
    # the browser is told of what changes: a file that is asked for twice is saved twice
    return json.dumps({"name": f"qalign-results.{kind}", "text": text, "at": time.monotonic()})


@once_per_version
def _report(*files: Path) -> Report | None:
    sets = {}
    for path in files:
        try:
            sets[path.stem] = summarise(path)
        except QAlignError:  # the page shows the error where that set is chosen
            continue
    known = {name: each.points for name, each in sets.items()}
    return (
        Report({name: each.results for name, each in sets.items()}, known=known) if sets else None
    )
