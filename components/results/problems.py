"""From a number of Results to the problems behind it, and from a problem to its chain on Watch."""

from __future__ import annotations

import html
from functools import cache

from components.common.evaluated import Summary
from qalign_core.assets import ASSETS
from qalign_core.decide.compared import RULES
from qalign_core.record.command import command_of_problem
from qalign_core.run import Run
from qalign_core.types import SetHeader
from qalign_study.measure.curves import Curve, Point
from qalign_study.sets.folder import digest_of, run_of
from qalign_study.sets.problem_sets import Problem, load_problems
from qalign_study.sheet.words import curve_name, in_a_sentence

MOST = 400
"""Problems in the list, at most."""
MOST_TEXT = 110
"""Characters of a problem in the list."""
WATCH = (
    "These results hold numbers only: “Watch” puts a problem’s settings and seed in place, and "
    "“Run it live” draws that chain again."
)
COMMANDS = (
    "These results hold numbers only, and their problems are not here: the command draws a chain "
    "again, into a file that <code>python app.py chain.jsonl</code> opens on Watch."
)


def problems_html(found: Summary, opened: str) -> str:
    """The problems behind a number, those first on which its method does worst.

    Args:
        found: the set.
        opened: the number: a method, "" or the other one of a difference, and a budget, joined by
            colons, as `cell_of` writes it. Anybody's word: nothing else is shown for.
    """
    method, _, rest = str(opened).partition(":")
    other, _, n = rest.partition(":")
    at: dict[str, Point] = {p.method: p for p in found.points if str(p.n) == n or p.method == "one"}
    if method not in at or (other and other not in at) or method not in RULES:
        return ""
    header, records = found.settings, found.draws.records
    values = [
        at[method].each[k] - (at[other].each[k] if other else 0.0) for k in range(len(records))
    ]
    order = sorted(range(len(records)), key=lambda k: values[k])[:MOST]
    problems = problems_of(header)
    rules = sorted(RULES, key=lambda id_: RULES[id_].draws == "chain")
    shown = [name for name in ("one", *rules) if name in at]
    rows = []
    for k in order:
        record, steps = records[k], len(records[k].chain_reward) // records[k].n_chains - 1
        place = header.problems.index(record.id)
        cells = "".join(f"<td>{100 * at[name].each[k]:.0f}</td>" for name in shown)
        if problems:
            run = run_of(header.run, problems[place], place)
            run = run.with_changes(steps=steps, pool=Run().pool, matched="none")
            chain = f'<a href="?{html.escape(run.query())}">Watch</a>'
        else:
            chain = f"<code>{html.escape(command_of_problem(header, place, steps))}</code>"
        rows.append(
            f'<tr><th scope="row">{html.escape(record.id)}</th>{cells}<td>{chain}</td>'
            f'<td class="qr-text">{html.escape(_begin(problems, place))}</td></tr>'
        )
    heads = "".join(f'<th scope="col">{html.escape(curve_name(name))}</th>' for name in shown)
    first = in_a_sentence(curve_name(method))
    if other:
        first += f" does worst beside {in_a_sentence(curve_name(other))}"
    else:
        first += " does worst"
    return (
        f'<p class="qc-sub">At the compute of {at[method].n:,} samples, how often each method is '
        f"right, in percent (a chain ran once); those first on which {html.escape(first)}. "
        f"{WATCH if problems else COMMANDS}</p>"
        '<div class="qr-table qr-problems" tabindex="0" role="group" aria-label="problems">'
        f"<table><thead><tr><td></td>{heads}<td></td><td></td></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def cell_of(method: Curve, n: int, other: Curve | str = "") -> str:
    """What a number's button says that it is."""
    return f"{method}:{other}:{n}"


def _begin(problems: tuple[Problem, ...], place: int) -> str:
    if not problems:
        return ""
    text = " ".join(problems[place].prompt.split())
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def problems_of(header: SetHeader) -> tuple[Problem, ...]:
    """The problems of an embedded set, if they are the very ones of these results."""
    return _problems_of(header.task, len(header.problems), header.digest)


@cache
def _problems_of(task: str, n: int, digest: str) -> tuple[Problem, ...]:
    embedded = {path.stem: path for path in (ASSETS / "tasks").glob("*.jsonl")}
    if task not in embedded:
        return ()
    problems = tuple(load_problems(embedded[task])[:n])
    return problems if digest_of(problems) == digest else ()
