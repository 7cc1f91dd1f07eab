"""The problems of a set as one list: what each came to, and what shows its chain.

Results, the report and the page of a folder write this table.
"""

import html
import shlex
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qalign_core.decide.answers.graders import format_references
from qalign_core.decide.arrays import vote
from qalign_core.record.trace import SetHeader
from qalign_study.export.command import command_of_problem
from qalign_study.measure.curves import Curve, Point
from qalign_study.measure.diagnostics import agreement
from qalign_study.measure.record import Record
from qalign_study.measure.report import Evaluated
from qalign_study.sheet.values import Markup, Table, table_columns
from qalign_study.sheet.words import curve_name, number, percent

MOST = 2_000
"""Problems in a list, at most."""
MOST_TEXT = 110
"""Characters of a problem before its row is opened."""
COLUMNS = (
    "Answer: the vote of all states of the chains (of answers with equal votes, the one that "
    "appears first). For open-ended texts: whether the last text is right. Votes: the "
    "answer’s share of the states. Reward: the states’ mean. R-hat compares the halves of the "
    "chains. Methods: how often each is right, in percent of the subsets of the samples; the chain "
    "ran once, and QAlign votes over the states that together cost as much as the samples."
)
"""The explanation of the columns, as printed above the list."""


def list_problems(
    evaluated: Evaluated,
    order: Sequence[int],
    at: Mapping[Curve, Point],
    chain: Callable[[int], str],
    *,
    sorts: bool = False,
) -> Table:
    """The list of a set's problems.

    Args:
        evaluated: the set.
        order: places of the records that are listed.
        at: the points of one budget; empty where nothing says what is right.
        chain: what shows the chain of the record at a place.
        sorts: as for `Table`.
    """
    import pandas as pd

    results = evaluated.results
    known = {problem.id: problem for problem in evaluated.listed}
    rows = []
    for k in order[:MOST]:
        record = results.records[k]
        problem = known.get(record.id)
        cells: dict[str, str] = {}
        if known:
            text = _text(problem.prompt if problem else "", results.texts.get(record.id, ""))
            right = format_references((problem and problem.answer) or "–")
            cells = {"Problem": text, "Right": right}
        cells |= _outcome_cells(record, results.header, problem is None or problem.is_graded)
        for method in (each for each in table_columns() if each in at):
            name = curve_name(method, results.header.run.open_ended)
            cells[name] = f"{100 * at[method].each[k]:.0f}"
        rows.append(cells | {"Chain": chain(k)})
    ids = [results.records[k].id for k in order[:MOST]]
    return Table(pd.DataFrame(rows, index=ids), sorts=sorts)


def at_level(evaluated: Evaluated, n: str | None = None) -> dict[Curve, Point]:
    """The points at a budget, by default the largest of equal compute; one sample at any."""
    if n is None:
        n = str(evaluated.level or max((p.n for p in evaluated.points), default=0))
    return {p.method: p for p in evaluated.points if str(p.n) == n or p.method == "one"}


def cut(n: int) -> str:
    """How many of n problems are listed, where not all are."""
    return f" The first {MOST:,} of {n:,} are listed." if n > MOST else ""


def progress(evaluated: Evaluated) -> str:
    """How much of a folder is here."""
    n, of = len(evaluated.results.records), len(evaluated.results.header.problems)
    still = (
        " The folder is still being filled. The list has the finished problems or, if none is "
        "finished, all that have begun."
    )
    return f"{n:,} of {of:,} problems.{still if n < of else ''}"


def _outcome_cells(record: Record, header: SetHeader, graded: bool) -> dict[str, str]:
    """Return a problem's cells on its chains: answer, votes, mean reward and R-hat."""
    if not len(record.chain_reward):
        return dict.fromkeys(("Answer", "Votes", "Reward", "R-hat"), "–")
    first = header.run.burn_in * record.n_chains
    states = record.state_of[min(first, len(record.state_of) - record.n_chains) :]
    answers, rewards = record.chain_answer[states].astype(np.int64), record.chain_reward[states]
    answers = answers.reshape(-1, record.n_chains).T.ravel()  # chain after chain
    if header.run.open_ended:
        won = int(answers[-1])
    else:
        each = np.ones((1, len(answers)))
        won = int(vote(answers[None], each, len(record.answers))[0])
    votes = float((answers == won).mean()) if won >= 0 else 0.0
    verdict = ("right" if won >= 0 and record.right[won] else "wrong") * graded
    answer = "" if header.run.open_ended else str(record.answers[won]) if won >= 0 else "none"
    mixing = agreement(rewards.reshape(-1, record.n_chains).T.tolist())
    return {
        "Answer": ", ".join(filter(None, (answer, verdict))) or "–",
        "Votes": "–" if header.run.open_ended else percent(votes),
        "Reward": number(float(rewards.mean())),
        "R-hat": str(mixing) + ", not mixed" * (mixing.rhat is not None and not mixing.is_mixed),
    }


def _text(prompt: str, response: str) -> str:
    """A problem, which opens where there is more of it, or a response."""
    begin = " ".join(prompt.split())
    begin = begin if len(begin) <= MOST_TEXT else f"{begin[: MOST_TEXT - 1]}…"
    if not response and begin == prompt:
        return prompt
    parts = "".join(
        f"<h4>{title}</h4><p><bdi>{html.escape(content)}</bdi></p>"
        for title, content in (("Problem", prompt), ("Response of the chain", response))
        if content
    )
    opened = f"<details><summary><bdi>{html.escape(begin)}</bdi></summary>{parts}</details>"
    return Markup(opened if parts else "")


def opens(evaluated: Evaluated, k: int) -> Markup:
    """The command that opens the chain of a problem on Watch, or draws it again first."""
    record, header = evaluated.results.records[k], evaluated.results.header
    place = evaluated.place(k)
    command = f"python app.py {shlex.quote(str(evaluated.trace_path(place)))}"
    if evaluated.folder is None and header.source:  # whose rows are elsewhere, and ordered by seed
        command = f"{header.command} && {command}"
    elif evaluated.folder is None:
        draw_command = command_of_problem(header, place, steps_of(record))
        command = f"{draw_command} --out chain.jsonl && python app.py chain.jsonl"
    return Markup(f"<code>{html.escape(command)}</code>")


def steps_of(record: Record) -> int:
    """The steps of each chain behind its initial draw."""
    return len(record.chain_reward) // record.n_chains - 1
