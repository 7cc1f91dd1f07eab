import json
from pathlib import Path

import pytest
from refusals import refusal

from qalign_core.decide.answers.equality import same_answer
from qalign_core.errors import InvalidTask
from qalign_study.sets.problem_sets import Problem, load_problems, parse_problems

SETS = sorted((Path(__file__).parents[1] / "assets" / "tasks").glob("*.jsonl"))


def test_a_problem_needs_a_prompt_and_its_id_is_the_number_that_options_take():
    lines = ['{"prompt": "Hello"}', "", '{"prompt": "2 + 2?", "answer": 4}']
    assert parse_problems(lines) == [
        Problem("0", "Hello"),
        Problem("1", "2 + 2?", "4", "number"),
    ]


def test_other_fields_are_kept():
    (problem,) = parse_problems(['{"id": "x", "prompt": "p", "level": 3}'])
    assert problem.extra == {"level": 3}


def test_the_extractor_reads_a_response():
    (problem,) = parse_problems(['{"prompt": "p", "answer": "B", "extractor": "choice"}'])
    assert problem.extract("The answer is (B).") == "B"
    (problem,) = parse_problems(['{"prompt": "p"}'])
    assert problem.extract is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("1" * 5000, "not JSON"),
        ('{"prompt": "p", "n": NaN}', "not JSON"),
        ('{"prompt": "\\ud800"}', "not JSON"),
        ("3", "JSON int"),
        ("{}", '"prompt" is missing'),
        ('{"prompt": " "}', '"prompt" is " "'),
        ('{"prompt": 3}', '"prompt" is 3'),
        ('{"prompt": "p", "id": true}', '"id" is true'),
        ('{"prompt": "p", "id": "first"}', "that of line 1"),
        ('{"prompt": "p", "answer": [[1]]}', r'"answer" is \[\[1\]\]'),
        ('{"prompt": "p", "answer": ""}', '"answer" is ""'),
        ('{"prompt": "p", "answer": "1", "extractor": "numbr"}', "number, choice, option, boxed"),
        ('{"prompt": "p", "extractor": ["number"]}', '"extractor" is'),
        ('{"prompt": "p", "constraints": {"use": "cat"}}', 'give "use" and "end"'),
        ('{"prompt": "p", "answer": "1", "constraints": {}}', "leave one of them"),
        ('{"prompt": "p", "constraints": {}, "instructions": {}}', "leave one of them"),
        ('{"prompt": "p", "instructions": {"ids": ["a"], "kwargs": []}}', "as long as the other"),
        (
            '{"prompt": "p", "instructions": {"ids": ["a"], "kwargs": [{}], "rule": "lax"}}',
            'perhaps "rule"',
        ),
    ],
)
def test_a_bad_line_is_named_by_number(line, message):
    with pytest.raises(InvalidTask, match=f"set.jsonl, line 3.*{message}"):
        parse_problems(['{"id": "first", "prompt": "p"}', "", line], "set.jsonl")


def test_an_empty_or_unreadable_file_is_refused(tmp_path):
    with pytest.raises(InvalidTask, match="no problems"):
        parse_problems(["", " "])
    with pytest.raises(InvalidTask, match="cannot be read"):
        load_problems(tmp_path / "absent.jsonl")
    with pytest.raises(InvalidTask, match="cannot be read"):
        load_problems(tmp_path)
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "caf\xe9"}')
    with pytest.raises(InvalidTask, match="not UTF-8"):
        load_problems(tmp_path / "latin.jsonl")


def test_line_breaks_inside_a_text_do_not_end_the_line(tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_text('\ufeff{"prompt": "a\u2028b"}\r\n{"prompt": "c"}\n', encoding="utf-8")
    assert [p.prompt for p in load_problems(path)] == ["a\u2028b", "c"]


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_the_embedded_sets_load_and_their_answers_are_canonical(path):
    problems = load_problems(path)
    assert len(problems) >= 100
    for problem in problems:
        if problem.answer is not None:
            sentence = problem.extract(f"The answer is {problem.answer}.")
            if problem.extractor == "amounts":
                parts = (part.split(" ", 1) for part in problem.answer.split(", "))
                sentence = problem.extract("\n".join(f"{thing}: {n}" for n, thing in parts))
            assert same_answer(sentence, problem.answer)
        else:
            assert problem.check is not None


def described(folder, rows, description):
    (folder / "rows.csv").write_text(rows)
    path = folder / "mine.toml"
    path.write_text(description)
    return path


ROWS = "story,eggs,code\nTom has 3 eggs.,3,a\nAnn has <{eggs}> eggs.,4,b\n"
DESCRIPTION = """rows = "rows.csv"
template = "<{story}> How many?"
answer = "eggs"
extractor = "text"
id = "code"
"""


def test_a_small_file_says_prompt_answer_and_grader_of_rows_of_ones_own(tmp_path):
    first, second = load_problems(described(tmp_path, ROWS, DESCRIPTION))
    assert (first.id, first.prompt, first.answer) == ("a", "Tom has 3 eggs. How many?", "3")
    assert second.prompt == "Ann has <{eggs}> eggs. How many?", "what a row holds is no template"
    assert first.extractor == "text"
    assert first.is_right("3")
    assert not first.is_right("4")
    braces = DESCRIPTION.replace("<{story}>", "{story}")
    with pytest.raises(InvalidTask, match="its template has no field; write one as"):
        load_problems(described(tmp_path, ROWS, braces))
    bare = load_problems(described(tmp_path, ROWS, "\n".join(DESCRIPTION.split("\n")[:2])))
    assert [(p.id, p.answer, p.extractor) for p in bare] == [("0", None, None), ("1", None, None)]


def test_a_field_of_a_template_may_have_a_name_of_several_words(tmp_path):
    rows = "Question text,eggs,code\nTom has 3 eggs.,3,a\n"
    for field in ("<{Question text}>", "<{ Question text }>"):
        table_file = described(tmp_path, rows, DESCRIPTION.replace("<{story}>", field))
        assert load_problems(table_file)[0].prompt == "Tom has 3 eggs. How many?"
    unknown = DESCRIPTION.replace("<{story}>", "<{Question  texts}>")
    with pytest.raises(InvalidTask, match="row 0 has no 'Question  texts'"):
        load_problems(described(tmp_path, rows, unknown))


def test_a_column_that_a_template_names_without_angles_is_refused_and_latex_is_not(tmp_path):
    template = "<{story}> How many?"
    bare = DESCRIPTION.replace(template, "<{story}> Is it {eggs}?")
    with pytest.raises(InvalidTask, match=r"has \{eggs\} without angles; write <\{eggs\}>"):
        load_problems(described(tmp_path, ROWS, bare))
    latex = DESCRIPTION.replace(template, "<{story}> Write \\\\boxed{eggs}, or {nothing}.")
    (first, _) = load_problems(described(tmp_path, ROWS, latex))
    assert first.prompt == "Tom has 3 eggs. Write \\boxed{eggs}, or {nothing}."


@pytest.mark.parametrize(
    ("extractor", "good", "bad", "advice"),
    [
        ("number", ["18", "1,000", "$1.5M", "2/3", "1.234,56", "5\\sqrt{2}"],
         ["abc", "5 or 7", "2x", "3:30", "between 5 and 7"], "give a number"),
        ("choice", ["B", "(c)", "J"], ["Paris", "K", "A or B"], "give a letter from A to J"),
        ("option", ["B"], ["b", "Paris", "K"], "give a letter from A to J"),
        ("amounts", ["5 eggs, 9 nuts", "5 eggs"], ["5", "eggs"], "give amounts"),
        ("text", ["Paris", "St. Louis", "B", "3.5 miles"], [], ""),
        ("boxed", ["x^2 + 1", "Evelyn", "[-2,7]", "5"], [], ""),
    ],
)  # fmt: skip
def test_a_reference_that_its_extractor_does_not_read_is_refused_by_its_line(
    extractor, good, bad, advice
):
    def row(answer):
        return json.dumps({"prompt": "How many?", "answer": answer, "extractor": extractor})

    for answer in good:
        (problem,) = parse_problems([row(answer)])
        assert problem.is_right(problem.answer)
    for answer in bad:
        with refusal(InvalidTask, match="mine, line 2.*does not read.*" + advice):
            parse_problems([row(good[0]), row(answer)], "mine")


def test_texts_of_described_rows_are_graded_by_their_constraints(tmp_path):
    path = described(tmp_path, "", 'rows = "rows.jsonl"\ntemplate = "Write of <{what}>."')
    constraints = {"use": "cat", "end": "hat", "sentences": 1}
    (tmp_path / "rows.jsonl").write_text(json.dumps({"what": "cats", "constraints": constraints}))
    (problem,) = load_problems(path)
    assert problem.is_right("The cat has a hat.")
    assert not problem.is_right("The cat has a coat.")


@pytest.mark.parametrize(
    ("was", "now", "sentence"),
    [
        ("rows = ", "rows == ", "does not describe a problem set"),
        ('template = "', 'prompt = "', "'prompt' is not one of rows, template, answer"),
        ('"eggs"', "3", "answer = 3; text was expected"),
        ('"eggs"', '"hens"', "rows.csv, row 0 has no 'hens'; it has story, eggs, code"),
        ("<{story}>", "<{tale}>", "rows.csv, row 0 has no 'tale'"),
        ('"rows.csv"', '"none.csv"', "none.csv cannot be read"),
        ('"text"', '"colour"', "use one of number, choice"),
    ],
)
def test_a_file_that_describes_no_set_is_refused_in_one_sentence(tmp_path, was, now, sentence):
    with refusal(InvalidTask, match=sentence):
        load_problems(described(tmp_path, ROWS, DESCRIPTION.replace(was, now)))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("story,eggs\nTwo boxes, 6 eggs each,12\n", "row 0 has 3 fields.*2 columns.*quotes"),
        ("story,eggs\n\n'Six.',6\nAnn\n", "row 1 has 1 fields"),
        ("story,eggs,eggs\nTwo boxes,12,6\n", "two columns are called 'eggs'"),
    ],
)
def test_a_table_whose_fields_are_not_those_of_its_columns_is_refused(table, sentence, tmp_path):
    (tmp_path / "eggs.csv").write_text(table)
    (tmp_path / "eggs.toml").write_text(
        'rows = "eggs.csv"\ntemplate = "<{story}> How many?"\nanswer = "eggs"\n'
    )
    with pytest.raises(InvalidTask, match=sentence):
        load_problems(tmp_path / "eggs.toml")
