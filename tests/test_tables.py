"""A report as files: what they hold is what was measured, and every name in them is only a name."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_report import record, results_of
from traces import with_run

from qalign_core.errors import InvalidSetting
from qalign_study.commands import main, read
from qalign_study.commands.shared import run_of
from qalign_study.export.command import command_of_problem
from qalign_study.measure.report import AVERAGE, COLUMNS, Compared, Report
from qalign_study.measure.results import Results, pack
from qalign_study.sheet.chart import Axis, Figure, Line, chart
from qalign_study.sheet.files import cell, escape_latex, to_csv, to_latex
from qalign_study.sheet.page import to_html
from qalign_study.sheet.text import format_columns
from qalign_study.sheet.words import VERDICTS, percent

VERDICT = r"too few|(?<=[,;] )(?:ahead|behind)(?=[,;)<])|n(?:o|ot) significant"
HOSTILE = (
    '=HYPERLINK("http://x")',
    "+1",
    "@SUM(A1)",
    "\\input{/etc/passwd}",
    "<script>alert(1)</script>",
    "a & b % c $d$ #e _f ^g ~h {i}",
    "two\nlines \u202e",
)


@pytest.fixture(scope="module")
def hostile() -> Report:
    """Sets and models whose names are written to be taken for something else."""
    renamed = {}
    for name in HOSTILE:
        results = results_of(*(record(f"{name}{k}", k) for k in range(12)))
        header = replace(
            with_run(results.header, lm=name, rm=name), task=name, command=name, digest=name
        )
        renamed[name] = Results(header, results.records)
    return Report(renamed)


@pytest.fixture(scope="module")
def toys() -> Report:
    """Two sets of twelve problems and the same models."""
    first = results_of(*(record(f"p{k}", k) for k in range(12)))
    second = results_of(*(record(f"q{k}", 50 + k) for k in range(12)))
    blocks = Results(replace(second.header, digest="blocks"), second.records)
    return Report({"toys": first, "blocks": blocks})


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_the_csv_has_every_number_of_the_json_and_the_averages(toys: Report) -> None:
    rows = rows_of(to_csv(toys))
    assert tuple(rows[0]) == COLUMNS
    csv_rows = {(r["set"], r["method"], r["minus"], int(r["n"])): r for r in rows}
    numbers = toys.json()
    for each in numbers["rows"]:
        row = csv_rows.pop((each["set"], each["method"], "", each["n"]))
        assert [float(row[k]) for k in ("value", "low", "high", "flops")] == [
            each[k] for k in ("accuracy", "low", "high", "flops")
        ]
    for each in numbers["paired"]:
        row = csv_rows.pop((each["set"], each["a"], each["b"], each["n"]))
        assert float(row["value"]) == each["difference"]
    assert {key[0] for key in csv_rows} == {AVERAGE}
    best = {(r["set"], r["n"], r["method"]) for r in rows if r["best"] == "1"}
    for row in (line.row(8) for line in toys.groups[0].lines):
        marked = {method for name, n, method in best if (name, n) == (row.name, "8")}
        assert marked == {row.best} - {None}


def test_the_latex_table_has_a_row_a_set_the_average_last_and_the_best_in_bold(
    toys: Report,
) -> None:
    latex = to_latex(toys)
    (group,) = toys.groups
    accuracies, gaps = latex.split("\\end{table}\n")[:2]
    lines = [line for line in accuracies.splitlines() if " & " in line]
    assert lines[0].startswith("Set & One sample & Best-of-n & Majority vote & Weighted vote &")
    assert [line.split(" & ")[0] for line in lines[1:]] == ["toys", "blocks", AVERAGE]
    for line, row in zip(lines[1:], group.rows, strict=True):
        assert line.count("\\textbf{") == (row.best is not None)
        assert f"{100 * row.points['qalign'].value:.1f}" in line
        assert line.count(" & ") == accuracies.count("c", *_span(accuracies))
    assert "QAlign $-$ Weighted vote" in gaps


def _span(text: str) -> tuple[int, int]:
    """Where the columns of a table are declared."""
    match = re.search(r"\\begin\{tabular\}\{(l)c+\}", text)
    assert match is not None
    return match.end(1), match.end()


def printed(report: Report) -> str:
    """What `qalign report` prints of the differences."""
    lines = [Compared("", group.points) for group in report.groups]
    return format_columns((), [(d,) for line in lines for d in line.differences])


@pytest.mark.parametrize("write", [printed, to_csv, to_latex, to_html], ids=lambda f: f.__name__)
def test_four_problems_allow_no_verdict_in_any_form(write: Callable[[Report], str]) -> None:
    def verdicts(n: int) -> set[str]:
        results = results_of(*(record(f"p{k}", k) for k in range(n)))
        words = re.findall(VERDICT, write(Report({"toy": results})))
        return {"some" if word != "too few" else word for word in words}

    assert verdicts(4) == {"too few"}
    # the control; LaTeX gives the interval without the word
    assert verdicts(40) == (set() if write is to_latex else {"some"})


def test_no_name_is_a_formula_in_a_spreadsheet(hostile: Report) -> None:
    for row in csv.reader(io.StringIO(to_csv(hostile), newline="")):
        assert len(row) == len(COLUMNS)
        for value in row:
            assert not value.startswith(("=", "+", "@", "\t", "\r")), value
            assert not re.match(r"-[^\d.]", value), value


@pytest.mark.parametrize("begin", [*"=+-@\t\r\n＝＋－＠", "\n=", " =", "\u3000＝", "-1+", "-"])
def test_no_text_that_begins_so_is_a_formula(begin: str) -> None:
    assert cell(f"{begin}cmd|' /C calc'!A1") == f"'{begin}cmd|' /C calc'!A1"


@pytest.mark.parametrize("text", ["-1", "-1.5", "-0.", "12", "a=1", "", "it is\n=1", "−1"])
def test_numbers_and_words_stay_as_they_are(text: str) -> None:
    assert cell(text) == text


def test_no_name_is_a_command_of_latex(hostile: Report) -> None:
    tables_text = to_latex(hostile)
    assert "\\input" not in tables_text
    assert "\\textbackslash{}input\\{/etc/passwd\\}" in tables_text
    assert "a \\& b \\% c \\$d\\$ \\#e \\_f \\textasciicircum{}g" in tables_text
    assert "\u202e" not in tables_text
    for line in tables_text.splitlines():  # braces are balanced, whatever a name holds
        plain = re.sub(r"\\\\[{}]", "", line)
        assert plain.count("{") == plain.count("}"), line
    assert escape_latex("100 %\n%x") == "100 \\% \\%x"


def test_the_command_writes_the_files_that_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = pack(results_of(*(record(f"p{k}", k) for k in range(12))), tmp_path / "toys.zip")
    report = Report({"toys": results_of(*(record(f"p{k}", k) for k in range(12)))})
    files = [tmp_path / "t.csv", tmp_path / "t.tex"]
    assert main(["report", str(path), "--csv", str(files[0]), "--latex", str(files[1])]) == 0
    assert len(rows_of(files[0].read_bytes().decode())) == len(rows_of(to_csv(report)))
    assert "\\toprule" in files[1].read_text("utf-8")
    page = tmp_path / "t.html"
    assert main(["report", str(path), "--html", str(page), "--tuning", "1e3"]) == 0
    assert "finding β" in page.read_text("utf-8")
    assert main(["report", str(path), "--csv", str(tmp_path)]) == 2
    assert "cannot be written (Is a directory); give another path" in capsys.readouterr().err


# --- the page --------------------------------------------------------------------------------


class Page(HTMLParser):
    """A page's elements, what is in them, and its figures by their labels."""

    def __init__(self, html_text: str) -> None:
        super().__init__()
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.turning: set[str] = set()
        self.feed(html_text)
        self.svgs = [ElementTree.fromstring(svg) for svg in re.findall("<svg.*?</svg>", html_text)]

    def handle_starttag(self, tag, attributes):
        self.opened.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)
        if "\u202e" in data:
            self.turning.add(self.opened[-1][0])

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def ids(self) -> set[str]:
        return {attributes["id"] or "" for _, attributes in self.opened if "id" in attributes}


def test_the_page_needs_no_script_and_no_network_and_every_link_leads_somewhere(
    toys: Report,
) -> None:
    page = Page(to_html(toys))
    tags = {tag for tag, _ in page.opened}
    assert not tags & {"script", "link", "img", "iframe", "object", "form", "base"}
    links = [a["href"] for tag, a in page.opened if tag == "a"]
    assert len(links) >= 14  # seven columns of two sets
    for link in links:
        assert link is not None
        assert link.startswith("#")
        assert link[1:] in page.ids()
    policy = next(a["content"] for t, a in page.opened if "http-equiv" in a)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_page_says_the_reports_numbers(toys: Report) -> None:
    page = Page(to_html(toys))
    (group,) = toys.groups
    for row in group.rows:
        for method in ("qalign", "wmv", "bon", "mv", "any", "one", "wmv_own"):
            p = row.points[method]  # type: ignore[index]
            cell = f"{100 * p.value:.1f} {100 * p.low:.1f} to {100 * p.high:.1f}"
            assert cell in page.text, (row.name, method)
        for d in row.differences:
            cell = f"{100 * d.value:+.1f} {100 * d.low:.1f} to {100 * d.high:.1f}, "
            assert cell.replace("-", "−") + VERDICTS[d.verdict] in page.text
    assert "averaged over 2 sets" in page.text


def markers_of(svg: ElementTree.Element) -> dict[str, list[str]]:
    """What is told at the points of a figure, by the colour of their line."""
    labels_by_style = {}
    for line in svg.iter("g"):
        labels = [title.text or "" for title in line.iter("title")]
        if labels:
            labels_by_style[line.attrib["style"]] = labels
    return labels_by_style


def test_the_first_figure_has_every_method_and_any_of_n(toys: Report) -> None:
    first = next(s for s in Page(to_html(toys)).svgs if "role" in s.attrib)
    colours = {g.attrib["style"].removeprefix("--c: var(--c-")[:-1] for g in first.iter("g")}
    assert colours == {"qalign", "bon", "mv", "wmv", "any"}
    (group,) = toys.groups
    texts = markers_of(first)["--c: var(--c-bon)"]
    for p, label in zip([p for p in group.average.points if p.method == "bon"], texts, strict=True):
        assert f"{percent(1 - p.value)} wrong" in label


def test_a_second_language_model_stands_on_the_same_axes_and_tuning_is_marked(
    toys: Report,
) -> None:
    both = {each.name: each.results for each in toys.sets}
    for name, results in list(both.items()):
        header = replace(with_run(results.header, lm="trained"), lm_revision="x")
        both[f"{name} 2"] = Results(header, results.records)
    html_text = to_html(Report(both), tuning=2400.0)
    page = Page(html_text)
    assert "Majority vote of trained" in page.text
    # over 24 problems: 100 each
    assert "finding β: 100 FLOPs each" in page.text
    assert "Finding β cost 2.40 kFLOPs once" in page.text
    half = {name: results for name, results in both.items() if name != "toys 2"}
    assert "trained was not run on all of these sets, and is not drawn" in Page(
        to_html(Report(half))
    ).text  # fmt: skip
    with pytest.raises(InvalidSetting, match="tuning must be FLOPs above 0, got 0"):
        to_html(toys, tuning=0.0)


def test_waiting_is_drawn_for_one_chain_for_several_and_for_samples(toys: Report) -> None:
    results = toys.sets[0].results
    header = with_run(results.header, chains=2)
    two = Results(header, tuple(record(f"p{k}", k, n_chains=2) for k in range(12)))
    text = Page(to_html(Report({"toys": results, "two": two}))).text
    assert "one chain 2 chains independent samples" in text


def test_a_report_is_named_after_its_sets(toys: Report) -> None:
    page = to_html(toys)
    names = ", ".join(dict.fromkeys(each.results.header.task or each.name for each in toys.sets))
    assert f"<title>QAlign report: {names}</title>" in page
    assert f"QAlign report: {names}" in Page(page).text


def test_no_name_is_markup_or_turns_the_page_round(hostile: Report) -> None:
    page = Page(to_html(hostile))
    assert "script" not in {tag for tag, _ in page.opened}
    assert "<script>alert(1)</script>" in page.text
    assert not any(name.startswith("on") for _, attributes in page.opened for name in attributes)
    assert page.turning == {"bdi", "code"}  # both keep it to themselves


def test_a_problem_leads_to_its_chain(toys: Report, tmp_path: Path) -> None:
    results = toys.sets[0].results
    header = replace(with_run(results.header, seed=5, beta=0.5, pool=8), task="in_distribution")
    place = header.problems.index("p3")
    words = shlex.split(command_of_problem(header, place, 7))
    run, _ = run_of(read(words[1:]))
    assert (run.seed, run.beta, run.steps, run.chains) == (8, 0.5, 7, header.run.chains)
    assert (run.lm, run.rm, run.sampling) == (header.run.lm, header.run.rm, header.run.sampling)
    assert words[:6] == ["qalign", "run", "--task", "in_distribution", "--problem", "3"]
    packed = Page(to_html(Report({"toys": results})))
    assert "--problem 3 " in packed.text
    assert "--out chain.jsonl && python app.py chain.jsonl" in packed.text
    folder = tmp_path / "a run; x"
    kept = Page(to_html(Report({"toys": results}, {"toys": folder})))
    assert f"python app.py '{folder}/00003.jsonl'" in kept.text


def test_a_chart_leaves_out_what_has_no_place_and_is_never_empty_markup() -> None:
    odd = Line("qalign", [0.0, 1.0, 10.0], [0.5, float("inf"), 0.2], labels=["a", "b", "c"])
    svg = ElementTree.fromstring(
        chart(Figure("<&>", [odd], Axis("x", log=True), Axis("y"), mark=(5.0, "<here>")))
    )
    assert [title.text for title in svg.iter("title")] == ["c"]
    assert "nan" not in ElementTree.tostring(svg).decode()
    ElementTree.fromstring(chart(Figure("", [], Axis("x"), Axis("y"))))
    flat = ElementTree.fromstring(
        chart(Figure("", [Line("mv", [3.0], [0.0])], Axis("x", log=True), Axis("y", zero=True)))
    )
    assert "nan" not in ElementTree.tostring(flat).decode()


@pytest.mark.parametrize("most", [8.8e10, 1e11])
def test_the_last_label_of_a_logarithmic_axis_is_inside_the_figure(most: float) -> None:
    line = Line("mv", [2e8, most], [0.1, 0.5])
    svg = ElementTree.fromstring(
        chart(Figure("", [line], Axis("x", log=True), Axis("y")), width=720)
    )
    last = next(text for text in svg.iter("text") if text.text == "100G")
    half = 0.62 * 13 * len("100G") / 2  # the widest digits of the sheet's fonts, 13 pixels high
    assert float(last.attrib["x"]) + half <= 720
