"""Every line of answer_cases.tsv is a way in which models really end a response."""

import json
import os
import re
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qalign_core.decide.answers.equality import canonical, same_answer
from qalign_core.decide.answers.extraction import (
    EXTRACTORS,
    extract_boxed,
    extract_choice,
    extract_number,
)
from qalign_core.decide.answers.graders import get_grader
from qalign_core.errors import InvalidSetting
from qalign_study.sets.problem_sets import Problem

TESTS = Path(__file__).parent
DATA = Path(os.environ.get("QALIGN_DATA", TESTS.parents[1] / "shared" / "data"))
OFFICIAL = {"number": DATA / "gsm8k_test.jsonl", "boxed": DATA / "math500.json"}
"""The official sets, where they are; they are no part of this project."""


def rows_of(name):
    lines = (TESTS / name).read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t") for line in lines]


CASES = rows_of("answer_cases.tsv")
RESPONSES = rows_of("response_cases.tsv")


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_the_answer_that_a_reader_would_read_is_extracted(name, text, expected):
    assert get_grader(name).extract(text.replace("⏎", "\n")) == (expected or None)


def test_there_are_at_least_two_hundred_cases_and_every_extractor_has_some():
    assert len(CASES) >= 200
    assert {name for name, _, _ in CASES} == set(EXTRACTORS)


def test_the_responses_of_small_models_are_read_as_their_labels_say():
    misread = []
    for name, text, expected in RESPONSES:
        answer = get_grader(name).extract(text.replace("⏎", "\n"))
        if answer != (expected or None):
            misread.append(f"{name}: {text!r} has {expected!r}, not {answer!r}")
    assert not misread, "\n".join(misread)


def test_at_least_150_different_responses_have_labels_and_a_third_of_them_state_no_answer():
    assert len({text for _, text, _ in RESPONSES}) >= 150
    assert sum(not expected for _, _, expected in RESPONSES) >= 50
    assert {name for name, _, _ in RESPONSES} == set(EXTRACTORS)


@pytest.mark.parametrize("name", EXTRACTORS)
def test_no_extractor_reads_a_thought(name):
    texts = {"amounts": ("Eggs: 3", "Nuts: 4"), "choice": ("B", "C"), "option": ("B", "C")}
    thought, spoken = texts.get(name, ("\\boxed{3}", "\\boxed{4}"))
    read = get_grader(name).extract
    assert read(spoken) not in (None, read(thought))
    for before in (
        f"<think>{thought}</think>",
        f"{thought}</think>",
        f"<thinking>{thought}</thinking>",
    ):
        assert read(before + spoken) == read(spoken)
    assert read(f"{spoken}<think>{thought}</think>") == read(spoken)
    assert read(f"<think>{thought}") is read(f"{spoken}<think>{thought}") is None
    assert read(f"<think>a</think>{spoken}<think>{thought}") is None


BOXES = [
    "(3, \\frac{\\pi}{2})", "x^2+2x+1", "p - q", "6 - 5i", "[2,5)", "(-\\infty, 2) \\cup (3, 4]",
    "-\\frac{\\pi}{6}", "12\\pi", "5x - 7y + 4 = 0", "3R^2", "\\cot x", "\\frac{20}{\\pi}", "1,-2",
    "\\begin{pmatrix} -18 \\\\ -49 \\\\ 96 \\end{pmatrix}", "x \\in [-2,7]", "\\text{Evelyn}",
]  # fmt: skip
"""Shapes of the answers of MATH."""


def test_the_guides_table_of_notations_is_true():
    guide = (TESTS.parent / "docs" / "measuring.md").read_text(encoding="utf-8")
    n = 0
    for row in guide.splitlines():
        written, _, read = row.strip("| ").partition(" | ")
        spans = re.findall(r"`([^`]+)`", written)
        if not spans or not re.fullmatch(r"[-\d./, ]+", read):
            continue
        readings = read.split(", ") if ", " in read else [read] * len(spans)
        for text, expected in zip(spans, readings, strict=True):
            assert extract_number(f"The answer is {text}.") == expected, text
            n += 1
    assert n > 20
    for text in re.search(r"Examples: (.*?) without its result", guide, re.DOTALL)[1].split(","):
        assert extract_number(f"The answer is {text.strip(' `' + chr(10))}.") is None
    labelled = [row for row in RESPONSES if row[0] in ("number", "boxed", "choice")]
    assert f"All {len(labelled)}\nresponses" in guide


STYLES = {
    "number": (
        "She has 7 at first.\n#### REF",
        "The answer is REF.",
        "So there are **REF** in total.\n\n**Answer: REF**",
        "Adding 7 gives \\[ \\boxed{REF} \\]",
        "<think>It is 7.</think>答案是REF。解释:每盒6个。",
        "Therefore, she makes $REF every day.",
    ),
    "boxed": (
        "So $x = 7$ and the answer is $\\boxed{REF}$.",
        "The final answer is $REF$. I hope it is correct.",
        "**Final Answer:** $\\boxed{REF}$\n\nAll 7 cases are done.",
        "<think>\\boxed{7}?</think>\\[\n\\boxed{ REF }.\n\\]",
        "La réponse est $REF$.",
    ),
}
"""Ways to state a right answer, REF."""
SHAPES = {  # of the references of GSM8K and MATH
    "number": ["18", "-3", "0", "1,600", "1,450,000", "0.5"],
    "boxed": [
        *BOXES, "90^\\circ", "52_8", "11\\sqrt2", "3, 5, 7", "\\$36", "15\\%", "2k", "y = -2x",
        "11,\\! 222,\\! 333", "\\text{(C)}", "\\frac43", ".0000672", "6 + 9i", "x^3 - x^2 + 1",
        "10\\text{ cm}", "(2,12) \\cup (12,102)",
    ],
}  # fmt: skip


def assert_right_in_every_style(extractor, references):
    wrong = []
    for reference in references:
        problem = Problem("x", "prompt", reference, extractor)
        for style in STYLES[extractor]:
            text = style.replace("REF", reference)
            if not problem.solved_by(text):
                wrong.append(f"{reference!r} in {text!r}: {problem.extract(text)!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("extractor", STYLES)
def test_a_reference_grades_itself_as_right_in_every_style(extractor):
    assert_right_in_every_style(extractor, SHAPES[extractor])
    problem = Problem("x", "prompt", "8", extractor)  # the control
    assert not any(problem.solved_by(style.replace("REF", "9")) for style in STYLES[extractor])


@pytest.mark.parametrize(("extractor", "file"), OFFICIAL.items())
def test_official_references_grade_themselves_as_right_in_every_style(extractor, file):
    if not file.exists():
        pytest.skip(f"{file.name} is not here")
    text = file.read_text(encoding="utf-8")
    if extractor == "boxed":
        references = [row["answer"] for row in json.loads(text)]
    else:
        answers = [json.loads(line)["answer"] for line in text.splitlines()]
        references = [answer.rpartition("####")[2].strip() for answer in answers]
    assert len(references) in (500, 1319)
    assert_right_in_every_style(extractor, references)


def test_an_unknown_extractor_is_named_with_those_that_exist():
    with pytest.raises(InvalidSetting, match=r"'numbr'.*number, choice, option, boxed, text"):
        get_grader("numbr")


@pytest.mark.parametrize("bare", BOXES)
def test_a_formula_in_a_box_is_the_formula_and_read_again_it_stays(bare):
    answer = extract_boxed(f"So $\\boxed{{{bare}}}$.")
    assert same_answer(answer, bare)
    assert canonical(answer) == answer
    assert [other for other in BOXES if same_answer(answer, other)] == [bare]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x^2+2x+1", "4x+1"),
        ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{pmatrix} 2 \\\\ 1 \\end{pmatrix}"),
        ("x \\in [-2,7]", "x \\in [0,1]"),
        ("\\infty", "-\\infty"),
        ("5!", "5"),
    ],
)
def test_what_is_alike_only_where_it_is_read_wrongly_is_not_the_same(one, other):
    assert not same_answer(one, other)
    assert not same_answer(canonical(one), canonical(other))


@given(st.integers(-(10**12), 10**12))
def test_every_spelling_of_an_integer_is_one_vote(n):
    spellings = [f"{n}", f"{n}.00", f"{n:,}", f"{2 * n}/2", f"\\frac{{{3 * n}}}{{3}}"]
    assert {extract_number(f"The answer is {s}.") for s in spellings} == {str(n)}
    assert {canonical(s) for s in [*spellings, f"${n} dollars"]} == {str(n)}


@given(st.fractions(min_value=-1000, max_value=1000, max_denominator=400))
def test_a_canonical_number_keeps_the_exact_value(value):
    text = extract_number(f"The answer is {value.numerator}/{value.denominator}.")
    assert Fraction(text) == value
    assert canonical(text) == text


@given(st.text(max_size=300))
def test_no_text_breaks_an_extractor(text):
    for extract in (extract_number, extract_choice, get_grader("text").extract):
        answer = extract(text)
        assert answer is None or answer


@given(st.text(alphabet="\\boxed{}frac12sqrt$x^+=,. ()%answer is", max_size=60))
def test_no_soup_of_latex_breaks_an_extractor(text):
    for extract in EXTRACTORS.values():
        extract("\\boxed{" + text)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("18", "18.0"),
        ("$18.00", "18"),
        ("1,000", "1000"),
        ("1/2", "0.5"),
        ("\\frac{1}{2}", "0.5"),
        ("(B)", "B"),
        ("Paris.", "paris"),
        ("(x+1)^2", "x^2+2x+1"),
        ("\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"),
        ("18 cm", "18"),
        ("90^\\circ", "90"),
    ],
)
def test_the_same_answer_written_twice_is_the_same(a, b):
    assert same_answer(a, b)
    assert same_answer(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("18", "-18"),
        ("0.33", "1/3"),
        ("(x+1)^2", "x^2+1"),
        ("x", "y"),
        ("A", "B"),
        ("\\sqrt{2}", "1.414"),
        (None, "18"),
        ("None", None),
        (None, None),
    ],
)
def test_different_answers_and_no_answers_are_not_the_same(a, b):
    assert not same_answer(a, b)
    assert not same_answer(b, a)


LEADS = ("a=", "a =", "a= ", "f(a)=", "a(a) = ", "it's ", "to", "1 ", "is**", "\\text{", "a 1=")
"""What may stand before the number of a clause, several times."""
LARGE = (
    r"\frac{1}{a^{20}+b^{21}+c^{22}+d^{23}}+\frac{1}{a+b^{20}+c^3+d}+\frac{1}{e^{9}+f}",
    r"\frac{x^{99}+y^{98}+z^{97}}{x^{96}+y^{95}+z^{94}+1}",
)
"""Fractions whose common denominator takes a computer algebra system minutes."""


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{9^{9^{9^9}}}",
        "\\boxed{99999^{99999}}",
        "\\boxed{99999999!}",
        "\\boxed{1e999}",
        "The answer is " + "9" * 50_000,
        "The answer is 1/" + "9" * 50_000,
        "answer " * 5_000 + "is",
        "\\boxed{" * 3_000,
        "1," * 20_000,
        "- " * 20_000,
        "\\frac{" * 5_000,
        "a" * 100_000,
        "(" * 10_000 + "B" + ")" * 10_000,
        "<think>" * 20_000,
        "</think>" * 20_000,
        "The answer is " + "a 1 " * 20_000,
        "The answer is Tom " + "12" * 20_000,
        "A is not " * 10_000,
        "A, " * 20_000,
        "the answer is 0^{-1}",
        "the answer is " + "9" * 299 + "^-999",
        *(f"The answer is {lead * 40}zzz 5." for lead in LEADS),
        "\\boxed{" + "a=*" * 30 + "zzz 5}",
        *(f"\\boxed{{{formula}}}" for formula in LARGE),
    ],
    ids=lambda text: text[:16],
)
def test_reading_any_text_ends(text):
    for extract in EXTRACTORS.values():
        assert isinstance(extract(text), str | None)


def test_formulas_are_read_in_threads_too():
    # No time limit by signals may be needed: only the main thread could use it.
    answers = []
    thread = threading.Thread(target=lambda: answers.append(extract_boxed("\\boxed{\\sqrt{18}}")))
    thread.start()
    thread.join()
    assert answers == ["3 \\sqrt{2}"]


def test_whole_numbers_are_compared_without_loading_a_computer_algebra_system():
    program = (
        "import sys\n"
        "from qalign_core.decide.answers.equality import same_answer\n"
        "assert not same_answer('76', '83') and same_answer('18', '$18.00')\n"
        "assert not same_answer(str(10**12), str(10**12 + 1))\n"
        "assert 'sympy' not in sys.modules\n"
        "assert same_answer('(x+1)^2', 'x^2+2x+1') and 'sympy' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[1])
