"""One format of numbers on all pages: Python and JavaScript write the same table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial

import pytest
from browser import ROOT

from components.lab.balance import format_flow
from components.lab.style import cell_text
from qalign_study.lessons.files import load_lessons
from qalign_study.lessons.messages import fill_facts
from qalign_study.sheet.words import fixed, number, percent, signed

TABLE = ROOT / "tests" / "number_cases.tsv"
FORMS: dict[str, Callable[..., str]] = {
    "": number,
    "padded": partial(number, padded=True),
    "fixed": fixed,
    "signed": signed,
}
SOURCES = [
    *(ROOT / "components").rglob("*.py"),
    *(ROOT / "qalign_study" / "sheet").rglob("*.py"),
    *(ROOT / "qalign_study" / "lessons").rglob("*.py"),
    *(ROOT / "assets" / "web").rglob("*.js"),
]
HOME = ("words.py", "words.js")
"""The modules that may write a power of ten."""


def test_numbers_are_written_as_the_table_says():
    rows = [row.split("\t") for row in TABLE.read_text("utf-8").splitlines() if row[0] != "#"]
    assert len(rows) > 300
    for value, digits, form, text in rows:
        assert FORMS[form](float(value), int(digits)) == text, (value, digits, form)


def test_no_number_is_written_in_another_form():
    """No exponent of a programming language reaches a page, and no second way to write one."""
    other = re.compile(r"toExponential|\.[0-9]e\b|\be[+−-]0|:[+#,]?\.?\d*e\}")
    for path in SOURCES:
        if path.name not in HOME:
            lines = path.read_text("utf-8").splitlines()
            assert [line for line in lines if other.search(line)] == [], path


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-10, "1 × 10⁻¹⁰"), (2.2e4, "22,000"), (4.14e-4, "4.14 × 10⁻⁴"), (1.97e16, "1.97 × 10¹⁶")],
)
def test_small_and_large_numbers_are_powers_of_ten_or_whole(value, text):
    assert number(value) == cell_text(value) == text
    assert format_flow(value) in (text, number(value, padded=True))


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (1e-4, "<0.1%"), (0.05, "5.0%"), (0.1, "10%"), (0.994, "99%"), (299 / 300, "99.7%"),
     (0.9995, ">99.9%"), (1, "100%")],
)  # fmt: skip
def test_a_share_is_0_or_100_percent_only_if_it_is(share, text):
    assert percent(share) == text


def test_the_lab_writes_whole_numbers_in_full_and_a_dash_for_no_number():
    assert [cell_text(x) for x in (1234567, None, "a", math.inf, math.nan)] == [
        *("1,234,567", "–", "a", "∞", "–"),
    ]


def test_no_sentence_of_a_lesson_compares_a_share_in_percent_with_a_decimal():
    mixed = []
    for name, lesson in load_lessons().items():
        for k, stop in enumerate(lesson.stops, start=1):
            places = [(stop.text, stop.at), (stop.notes, stop.at)]
            if ask := stop.ask:
                places += [(text, ask.then) for text in (ask.question, ask.right, ask.wrong)]
            for text, place in places:
                for sentence in re.split(r"(?<=[.:?])\s", fill_facts(text, place, stop.at)):
                    decimals = re.findall(r"(?<![\d.,−-])0\.\d+(?![\d.]*%)", sentence)
                    if re.search(r"\d%", sentence) and decimals:
                        mixed.append((name, k, sentence))
    assert mixed == []
