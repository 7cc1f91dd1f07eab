"""Open-ended prompts with a reference text, or with a judge of the user's own."""

import csv
import json
import shlex
from pathlib import Path

import pytest

from qalign_core.errors import InvalidTask
from qalign_study.commands import main
from qalign_study.measure.report import Report
from qalign_study.measure.results import load_results
from qalign_study.sets.checks import JUDGES, Likeness
from qalign_study.sets.folder import digest_of
from qalign_study.sets.problem_sets import load_problems, parse_problems, problem_line
from qalign_study.sheet.report import describe_run

JUDGE = """
CALLS = []


def is_short(prompt, text):
    CALLS.append(text)
    return len(text) < 20


class IsShort:
    def __call__(self, prompt, text):
        return len(text) < 20


def fragile(prompt, text):
    return 1 / text.count("a") > 0


def vague(prompt, text):
    return "perhaps"


class Mute:
    pass
"""
REFERENCE = "A dog sleeps on the warm stone."


@pytest.fixture
def judges(tmp_path):
    path = tmp_path / "judges.py"
    path.write_text(JUDGE)
    yield path
    JUDGES.clear()


def lines_of(*rows):
    return [json.dumps({"prompt": "Describe a dog.", **row}) for row in rows]


def rouge(reference=REFERENCE, at_least=0.6):
    return {"rouge": {"reference": reference, "at_least": at_least}}


def test_a_text_is_right_if_it_is_like_any_of_the_references():
    problem, either = parse_problems(lines_of(rouge(), rouge([REFERENCE, "Fido."], 1)))
    assert problem.solved_by(REFERENCE)
    assert problem.solved_by("the warm stone, a dog sleeps on it")
    assert not problem.solved_by("A cat runs over cold grass.")
    assert not problem.solved_by("")
    assert either.solved_by("Fido")
    assert not either.solved_by("A dog sleeps on a warm stone.")


def test_a_thought_is_not_compared_and_is_not_judged(judges):
    problem, short = load_problems(
        written(judges.parent, rouge(), {"judge": "judges.py:is_short"}), code=True
    )
    assert problem.solved_by(f"<think>Cats, dogs, and a lot more.</think>{REFERENCE}")
    assert not problem.solved_by(f"<think>{REFERENCE}")
    assert short.solved_by("<think>It should not be longer than this is.</think>Short.")
    assert not short.solved_by("<think>Short.")


def written(folder, *rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(line + "\n" for line in lines_of(*rows)))
    return path


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"rouge": REFERENCE}, 'give "reference" .* and "at_least"'),
        (rouge(at_least=0), "above 0 and at most 1"),
        (rouge(at_least=1.5), "above 0 and at most 1"),
        (rouge(at_least=True), "above 0 and at most 1"),
        (rouge(reference=[]), 'give "reference"'),
        (rouge(reference=[5]), 'give "reference"'),
        (rouge(reference="狗在石头上睡觉。"), "cannot read, .* use a judge"),
        (rouge(reference="狗有3个"), "cannot read, .* use a judge"),
        (rouge(reference="..."), "cannot read"),
        ({**rouge(), "answer": 5}, "leave one of them out"),
        ({**rouge(), "judge": "judges.py:is_short"}, "leave one of them out"),
        ({"judge": 5}, "give FILE.py:NAME"),
        ({"judge": "is_short"}, "give FILE.py:NAME"),
        ({"judge": "judges.py:is_short"}, "which only the command line runs"),
    ],
)
def test_a_check_that_cannot_be_made_is_refused_by_its_line(row, sentence):
    with pytest.raises(InvalidTask, match=f"line 2.*{sentence}"):
        parse_problems(lines_of(rouge(), row))


def test_a_judge_is_a_function_or_a_class_and_judges_each_text_once(judges):
    path = written(judges.parent, {"judge": "judges.py:is_short"}, {"judge": "judges.py:IsShort"})
    for problem in load_problems(path, code=True):
        assert [problem.solved_by(text) for text in ("Fido.", "Fido.", 5 * "Fido. ")] == [1, 1, 0]
    assert JUDGES[f"{judges}:is_short"].cache_info().misses == 2


@pytest.mark.parametrize(
    ("name", "noted"),
    [("fragile", "failed with ZeroDivisionError"), ("vague", "returned 'perhaps'")],
)
def test_a_text_whose_judge_fails_is_wrong_and_the_log_says_so_once(judges, caplog, name, noted):
    problem = load_problems(written(judges.parent, {"judge": f"judges.py:{name}"}), code=True)[0]
    assert not problem.solved_by("x")
    assert not problem.solved_by("y")
    assert caplog.text.count(noted) == 1
    assert problem.solved_by("a") is (name == "fragile")


def test_what_cannot_be_called_is_no_judge(judges):
    with pytest.raises(InvalidTask, match="is no judge; write a function of the prompt"):
        load_problems(written(judges.parent, {"judge": "judges.py:Mute"}), code=True)


def test_a_judge_in_another_folder_is_the_same_judge_and_a_check_reads_back(judges, tmp_path):
    path = written(judges.parent, {"judge": "judges.py:is_short"}, rouge(["a dog", "a cat"]))
    problems = load_problems(path, code=True)
    assert parse_problems(map(problem_line, problems)) == problems
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "judges.py").write_text(JUDGE)
    there = written(moved, {"judge": "judges.py:is_short"}, rouge(["a dog", "a cat"]))
    others = load_problems(there, code=True)
    assert others != problems
    assert digest_of(others) == digest_of(problems)
    assert digest_of([problems[0]]) != digest_of([problems[1]])


def test_evaluate_and_report_take_references_and_judges(judges, tmp_path, capsys):
    """At least 0.01 is every text with a shared word; the judge accepts none of the long ones."""
    prompts = [json.loads(line) for line in (ASSETS / "writing.jsonl").read_text().splitlines()[:4]]
    for name, check in {
        "like": rouge("a the and was to in he she", 0.01),
        "judged": {"judge": "judges.py:is_short"},
    }.items():
        rows = [{"prompt": row["prompt"], **check} for row in prompts]
        path, out = written(judges.parent, *rows), tmp_path / name
        few = ["--budget", "2", "--states", "2", "--out", str(out)]
        assert main(["evaluate", "--task", str(path), *few]) == 0
        results = load_results(out, code=True)
        assert len(results.records) == len(rows)
        share = [record.right.mean() for record in results.records]
        assert share == [float(name == "like")] * len(rows)
        whole = Report({name: results}, {name: out})
        sentence = describe_run(whole.groups[0].sets[0])["What is right"]
        assert (
            sentence
            == {
                "like": "a text with ROUGE-1 of at least 0.01 against the reference",
                "judged": "a text that judges.py:is_short accepts",
            }[name]
        )
    assert "accuracy, %" in capsys.readouterr().out


ASSETS = Path(__file__).parent.parent / "assets" / "tasks"


def test_a_table_names_the_column_of_the_reference_or_the_judge_of_all_rows(judges):
    folder = judges.parent
    with (folder / "dogs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["what", "summary"], ["dog", REFERENCE], ["cat", "A cat."]])
    start = 'rows = "dogs.csv"\ntemplate = "Describe a <{what}>."\n'
    (folder / "like.toml").write_text(f'{start}rouge = {{reference = "summary", at_least = 0.4}}\n')
    problems = load_problems(folder / "like.toml")
    assert [p.check for p in problems] == [
        Likeness("Describe a dog.", (REFERENCE,), 0.4),
        Likeness("Describe a cat.", ("A cat.",), 0.4),
    ]
    (folder / "judged.toml").write_text(f'{start}judge = "judges.py:is_short"\n')
    assert load_problems(folder / "judged.toml", code=True)[1].solved_by("A cat.")
    for broken, sentence in (
        ('rouge = {reference = "summary"}', "rouge needs"),
        ("rouge = 5", "an object was expected"),
        ('rouge = {reference = "other", at_least = 0.4}', "row 0 has no 'other'"),
        ('rouge = {reference = "summary", at_least = 4}', "line 1.*at most 1"),
    ):
        (folder / "like.toml").write_text(f"{start}{broken}\n")
        with pytest.raises(InvalidTask, match=sentence):
            load_problems(folder / "like.toml")


def test_grade_checks_open_ended_responses_too(judges, capsys):
    rows = [
        {**rouge(), "response": [REFERENCE, "No."]},
        {"judge": "judges.py:is_short", "response": "Fido."},
        rouge("Fido", 1),
    ]
    assert main(["grade", str(written(judges.parent, *rows))]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"0\t{REFERENCE}\t-\t{REFERENCE}\tright",
        f"0\tNo.\t-\t{REFERENCE}\twrong",
        "1\tFido.\t-\t-\tright",
        "2\tFido\t-\tFido\tright",
        "4 texts: 3 right, 1 wrong",
    ]


def test_the_rows_of_the_documents_are_graded_as_they_say(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parent.parent / "docs" / "command-line.md"
    section = page.read_text(encoding="utf-8").partition("## Open-ended prompts")[2]
    blocks = [block.partition("\n") for block in section.split("```")[1::2]]
    (_, _, judge), (_, _, rows), (_, _, command), (_, _, printed) = blocks[:4]
    monkeypatch.chdir(tmp_path)
    Path("judges.py").write_text(judge)
    Path("letters.jsonl").write_text(rows)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == printed
    JUDGES.clear()
