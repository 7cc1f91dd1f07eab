"""A report as files: what they hold is what was measured, and every name in them is only a name."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_report import record, results_of

from qalign_core.cli import main
from qalign_core.export.tables import COLUMNS, latex, to_csv, to_latex
from qalign_core.runs.report import AVERAGE, Report
from qalign_core.runs.results import Results, pack

HOSTILE = (
    '=HYPERLINK("http://x")',
    "+1",
    "@SUM(A1)",
    "\\input{/etc/passwd}",
    "<script>alert(1)</script>",
    "a & b % c $d$ #e _f ^g ~h {i}",
    "two\nlines \u202e",
)


def hostile_results() -> dict[str, Results]:
    """Two sets of a model whose names are written to be taken for something else."""
    made = {}
    for name in HOSTILE:
        results = results_of(*(record(f"{name}{k}", k) for k in range(12)))
        header = replace(results.header, lm=name, rm=name, task=name, command=name, digest=name)
        made[name] = Results(header, results.records)
    return made


@pytest.fixture(scope="module")
def toys() -> Report:
    """Two sets of twelve problems and the same models."""
    first = results_of(*(record(f"p{k}", k) for k in range(12)))
    second = results_of(*(record(f"q{k}", 50 + k) for k in range(12)))
    return Report({"toys": first, "blocks": second})


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_the_csv_has_every_number_of_the_json_and_the_averages(toys: Report) -> None:
    rows = rows_of(to_csv(toys))
    assert tuple(rows[0]) == COLUMNS
    found = {(r["set"], r["method"], r["minus"], int(r["n"])): r for r in rows}
    made = toys.json()
    for each in made["rows"]:
        row = found.pop((each["set"], each["method"], "", each["n"]))
        assert [float(row[k]) for k in ("value", "low", "high", "flops")] == [
            each[k] for k in ("accuracy", "low", "high", "flops")
        ]
    for each in made["paired"]:
        row = found.pop((each["set"], each["a"], each["b"], each["n"]))
        assert float(row["value"]) == each["difference"]
    assert {key[0] for key in found} == {AVERAGE}
    best = {(r["set"], r["n"], r["method"]) for r in rows if r["best"] == "1"}
    for row in toys.groups[0].rows(8):
        assert {method for name, n, method in best if (name, n) == (row.name, "8")} == row.best
        assert row.best


def test_the_latex_table_has_a_row_a_set_the_average_last_and_the_best_in_bold(
    toys: Report,
) -> None:
    made = to_latex(toys)
    (group,) = toys.groups
    accuracies, gaps = made.split("\\end{table}\n")[:2]
    lines = [line for line in accuracies.splitlines() if " & " in line]
    assert lines[0].startswith("Set & One sample & Best-of-n & Majority vote & Weighted vote &")
    assert [line.split(" & ")[0] for line in lines[1:]] == ["toys", "blocks", AVERAGE]
    for line, row in zip(lines[1:], group.rows(), strict=True):
        assert line.count("\\textbf{") == len(row.best)
        assert f"{100 * row.points['qalign'].value:.1f}" in line
        assert line.count(" & ") == accuracies.count("c", *_span(accuracies))
    assert "QAlign $-$ Weighted vote" in gaps


def _span(text: str) -> tuple[int, int]:
    """Where the columns of a table are declared."""
    found = re.search(r"\\begin\{tabular\}\{(l)c+\}", text)
    assert found is not None
    return found.end(1), found.end()


def test_no_name_is_a_formula_in_a_spreadsheet() -> None:
    report = Report(hostile_results())
    for row in csv.reader(io.StringIO(to_csv(report), newline="")):
        assert len(row) == len(COLUMNS)
        for value in row:
            assert not value.startswith(("=", "+", "@", "\t", "\r")), value
            assert not re.match(r"-[^\d.]", value), value


def test_no_name_is_a_command_of_latex() -> None:
    made = to_latex(Report(hostile_results()))
    assert "\\input" not in made
    assert "\\textbackslash{}input\\{/etc/passwd\\}" in made
    assert "a \\& b \\% c \\$d\\$ \\#e \\_f \\textasciicircum{}g" in made
    assert "\u202e" not in made
    for line in made.splitlines():  # braces are balanced, whatever a name holds
        plain = re.sub(r"\\\\[{}]", "", line)
        assert plain.count("{") == plain.count("}"), line
    assert latex("100 %\n%x") == "100 \\% \\%x"


def test_the_command_writes_the_files_that_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = pack(results_of(*(record(f"p{k}", k) for k in range(12))), tmp_path / "toys.zip")
    made = Report({"toys": results_of(*(record(f"p{k}", k) for k in range(12)))})
    files = [tmp_path / "t.csv", tmp_path / "t.tex"]
    assert main(["report", str(path), "--csv", str(files[0]), "--latex", str(files[1])]) == 0
    assert len(rows_of(files[0].read_bytes().decode())) == len(rows_of(to_csv(made)))
    assert "\\toprule" in files[1].read_text("utf-8")
    assert main(["report", str(path), "--csv", str(tmp_path)]) == 2
    assert "cannot be written (Is a directory); give the path" in capsys.readouterr().err
