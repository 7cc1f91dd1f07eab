"""Graders: reading an answer and comparing it, built in or of the user's own file."""

import asyncio
import json
import logging
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refuse_command
from toys import ToyLM, ToyRM
from traces import with_run

from qalign_core.decide.answers.graders import (
    BUILT_IN,
    OWN_GRADERS,
    canonical_references,
    format_references,
    get_grader,
    grader_of_trace,
    own_grader,
    references,
    title_of,
)
from qalign_core.errors import InvalidSetting, InvalidTask, ModelLoadError
from qalign_core.record.format import answer_reader, header_line, parse_trace, trace_lines
from qalign_core.record.store import load_trace
from qalign_core.record.trace import TraceHeader
from qalign_core.registry import load_grader
from qalign_core.run import Limits, Run
from qalign_study.commands import main
from qalign_study.export.browser import engine_header
from qalign_study.export.player import show
from qalign_study.measure.comparisons import Comparison
from qalign_study.measure.results import load_results
from qalign_study.sets.folder import digest_of, read_set, run_set
from qalign_study.sets.problem_sets import load_problems, parse_problems, problem_line

OWN = '''
import re

VALUES = {"I": 1, "V": 5, "X": 10}


def roman(text):
    """The last word of Roman digits."""
    found = re.findall(r"\\b[IVX]+\\b", text)
    return found[-1] if found else None


class Roman:
    def extract(self, text):
        return roman(text)

    def same(self, answer, reference):
        return value(answer) == int(reference)


def value(word):
    total = 0
    for sign, after in zip(word, [*word[1:], ""]):
        total += VALUES[sign] if VALUES[sign] >= VALUES.get(after, 0) else -VALUES[sign]
    return total


def fragile(text):
    return [text][len(text) // 12]


def number(text):
    return 5


def half(text):
    return "\\ud800"


def other(text):
    return text


class Torn(Roman):
    def same(self, answer, reference):
        raise KeyError(answer)


class Needy:
    def __init__(self, of):
        pass


class Mute:
    pass
'''


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text(OWN)
    yield path
    OWN_GRADERS.clear()


def test_every_built_in_extractor_is_a_grader_and_all_compare_alike():
    for name, grader in BUILT_IN.items():
        assert get_grader(name) is grader
        assert grader.name == title_of(grader.name) == name
    assert BUILT_IN["number"].is_right("18", "18.0")
    assert not BUILT_IN["number"].is_right(None, "18")


def test_a_function_of_a_file_reads_answers_and_a_class_compares_them_too(own):
    grader = load_grader(f"{own}:roman")
    assert grader.extract("So IV and V make IX.") == "IX"
    assert grader.extract("nothing") is None
    assert grader.is_right("IX", "ix")
    assert not grader.is_right("IX", "9")
    grader = load_grader(f"{own}:Roman")
    assert grader.is_right("IX", "9")
    assert not grader.is_right("IX", "10")
    assert title_of(grader.name) == "rules.py:Roman"
    assert get_grader(grader.name) is grader


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("absent", "no function or class absent"),
        ("VALUES", "no function or class VALUES"),
        ("Needy", "a class whose __init__ takes no arguments was expected"),
        ("Mute", "has no method extract"),
    ],
)
def test_what_is_no_grader_is_refused_in_one_sentence(own, name, sentence):
    with pytest.raises(ModelLoadError, match=sentence):
        load_grader(f"{own}:{name}")
    with pytest.raises(ModelLoadError, match="cannot be run"):
        load_grader(f"{own}x.py:{name}")


def test_what_a_grader_raises_is_one_sentence_that_names_it_and_the_text_has_no_answer(own, caplog):
    grader = load_grader(f"{own}:fragile")
    with caplog.at_level(logging.WARNING):
        texts = [grader.extract(text) for text in ("short", "a longer text", "a longer one", "end")]
    assert texts == ["short", None, None, "end"], "the other texts are read"
    (record,) = caplog.records
    assert "rules.py:fragile failed with IndexError: list index out of range" in record.message
    caplog.clear()
    torn = load_grader(f"{own}:Torn")
    assert not torn.is_right("IX", "9")
    assert "rules.py:Torn failed with KeyError" in caplog.text
    assert load_grader(f"{own}:number").extract("x") is None
    assert "returned 5, where a text or None was expected" in caplog.text
    assert load_grader(f"{own}:half").extract("x") is None, "a trace could not be read back"
    assert r"returned '\ud800', where a text or None was expected" in caplog.text


def test_a_right_answer_may_be_any_of_a_list():
    (problem,) = parse_problems(
        ['{"prompt": "p", "answer": ["New York", "NYC", "NYC"], "extractor": "text"}']
    )
    assert references(problem.answer) == ("New York", "NYC")
    assert format_references(problem.answer) == "New York or NYC"
    for text in ("The answer is NYC.", "New York", "nyc"):
        assert problem.solved_by(text)
    assert not problem.solved_by("York")
    for extractor, answers in (
        ("text", ["a b", "c"]),
        ("number", ["3", "4"]),
        ("choice", list("AB")),
    ):
        line = json.dumps({"prompt": "p", "answer": [*answers], "extractor": extractor})
        (each,) = parse_problems([line])
        assert parse_problems([problem_line(each)]) == [each], "a run's folder is unreadable"
    header = TraceHeader(Run(prompt="p", reference=problem.answer, extractor="text"))
    assert Comparison(parse_trace(header_line(header))).problem.is_right("nyc")
    for interval in ("[-2, 7]", "[1]", '["', '["a", 1]'):
        assert references(interval) == (interval,), "no list of texts is one answer"
    for bad in ("[]", '[""]', "[[1]]", "[true]"):
        with pytest.raises(InvalidTask, match='"answer" is'):
            parse_problems([f'{{"prompt": "p", "answer": {bad}}}'])
    with pytest.raises(InvalidTask, match='"answer" is "abc"'):
        parse_problems(['{"prompt": "p", "answer": ["5", "abc"]}'])


def test_columns_of_a_table_are_aliases(tmp_path):
    (tmp_path / "rows.csv").write_text("q,capital,alias\nFrance,Paris,\nUSA,Washington,DC\n")
    (tmp_path / "mine.toml").write_text(
        'rows = "rows.csv"\ntemplate = "<{q}>?"\nextractor = "text"\nanswer = ["capital", "alias"]'
    )
    first, second = load_problems(tmp_path / "mine.toml")
    assert references(first.answer) == ("Paris",)
    assert references(second.answer) == ("Washington", "DC")


def test_none_means_open_ended_in_a_file_too(tmp_path):
    (problem,) = parse_problems(['{"prompt": "p", "extractor": "none"}'])
    assert problem.extractor is None
    with pytest.raises(InvalidTask, match="leave one of them out"):
        parse_problems(['{"prompt": "p", "extractor": "none", "answer": "5"}'])
    (tmp_path / "rows.csv").write_text("q\nWhy?\n")
    (tmp_path / "mine.toml").write_text(
        'rows = "rows.csv"\ntemplate = "<{q}>"\nextractor = "none"\n'
    )
    assert load_problems(tmp_path / "mine.toml")[0].extractor is None


def written_set(folder, extractor="rules.py:Roman"):
    lines = [
        {"prompt": f"Write {n} in Roman digits.", "answer": n, "extractor": extractor}
        for n in (4, 9)
    ]
    path = folder / "set.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_set_names_a_file_beside_it_and_only_the_command_line_runs_it(own, monkeypatch, tmp_path):
    path = written_set(own.parent)
    with pytest.raises(InvalidTask, match=r"set.jsonl, line 1.*which only the command line runs"):
        load_problems(path)
    assert not OWN_GRADERS
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    first, second = load_problems(path, code=True)
    assert first.solved_by("It is IV.")
    assert not second.solved_by("It is IV.")
    moved = replace(first, extractor=f"/other/{title_of(first.extractor)}")
    assert digest_of([first]) == digest_of([moved]), "the same file in another folder"


def test_no_link_request_or_trace_runs_a_file(own):
    name = f"{own}:Roman"
    with pytest.raises(InvalidSetting, match="extractor must be one of number"):
        Run.read({"prompt": "p", "extractor": name}).check(Limits())
    with pytest.raises(InvalidSetting, match="which pages, links and requests do not run"):
        get_grader(name)
    trace = parse_trace(header_line(TraceHeader(Run(prompt="p", extractor=name))))
    assert grader_of_trace(trace.header.run.extractor) is None
    assert "iframe" in show(trace).markup, "it plays, without answers"
    assert not OWN_GRADERS
    load_grader(name)
    with pytest.raises(InvalidSetting, match="extractor must be one of number"):
        Run.read({"prompt": "p", "extractor": name}).check(Limits())  # loaded, and still no setting


def draw_results(folder, problems, lm=None):
    run = Run("-", steps=2, pool=3, max_new_tokens=4)
    asyncio.run(run_set(lm or ToyLM(), ToyRM(), run, problems, folder))


def test_one_problem_that_cannot_be_graded_loses_none_of_the_others(own, tmp_path, caplog):
    problems = load_problems(written_set(own.parent, "rules.py:Torn"), code=True)
    draw_results(tmp_path / "out", problems)
    results = load_results(tmp_path / "out", code=True)
    assert len(results.records) == len(problems)


def test_a_folder_keeps_its_grader_and_its_traces_name_it(own, tmp_path):
    problems = load_problems(written_set(own.parent), code=True)
    draw_results(tmp_path / "out", problems)
    name = problems[0].extractor
    assert load_trace(tmp_path / "out" / "00000.jsonl").header.run.extractor == name
    OWN_GRADERS.clear()
    _, again = read_set(tmp_path / "out", code=True)
    assert again[1].solved_by("IX")
    draw_results(tmp_path / "out", problems)  # goes on: the same run


class AtPath(ToyLM):
    """A model of a folder: its id is the path, its revision a hash of the weights."""

    def __init__(self, path, revision):
        super().__init__()
        self.id, self.revision = path, revision


def test_a_folder_goes_on_under_another_path_of_the_same_model_and_grader(own, tmp_path):
    problems = load_problems(written_set(own.parent), code=True)
    draw_results(tmp_path / "out", problems, AtPath("/here/model", "0123456789ab"))
    elsewhere = tmp_path / "moved"
    elsewhere.mkdir()
    (elsewhere / "rules.py").write_text(OWN)
    moved = load_problems(written_set(elsewhere), code=True)
    assert moved[0].extractor != problems[0].extractor
    draw_results(tmp_path / "out", moved, AtPath("/there/model", "0123456789ab"))
    for other in (AtPath("/there/model", "0123456789ac"), AtPath("/there/model", "")):
        with pytest.raises(InvalidSetting, match="contains a different run"):
            draw_results(tmp_path / "out", moved, other)
    draw_results(tmp_path / "named", problems, AtPath("a/b", "main"))
    with pytest.raises(InvalidSetting, match="contains a different run"):
        draw_results(tmp_path / "named", problems, AtPath("c/d", "main"))  # a branch is no hash


def test_grade_prints_text_answer_reference_and_verdict_one_line_each(own, tmp_path, capsys):
    rows = [
        {"id": "a", "prompt": "4?", "answer": 4, "response": ["It is\nIV.", "It is V.", "Four."]},
        {"id": "b", "prompt": "9?", "answer": [9, 10], "solution": "X"},
    ]
    path = own.parent / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = tmp_path / "table.csv"
    assert main(["grade", str(path), "--extractor", f"{own}:Roman", "--csv", str(table)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a\tIt is IV.\tIV\t4\tright",
        "a\tIt is V.\tV\t4\twrong",
        "a\tFour.\t-\t4\tno answer",
        "b\tX\tX\t9 or 10\tright",
        "4 texts: 2 right, 1 wrong, 1 no answer",
    ]
    assert table.read_text().splitlines()[0] == "id,text,answer,reference,verdict"
    assert main(["grade", str(path), "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["text"] == "It is\nIV."
    assert first["verdict"] == "no answer"


def test_grade_reads_folders_traces_and_sets_without_responses(own, tmp_path, capsys):
    draw_results(tmp_path / "out", load_problems(written_set(own.parent), code=True))
    assert main(["grade", str(tmp_path / "out")]) == 0
    assert "\t4\tno answer" in capsys.readouterr().out
    assert main(["grade", str(tmp_path / "out" / "00001.jsonl"), "--extractor", "text"]) == 0
    assert "\t9\twrong" in capsys.readouterr().out
    assert main(["grade", "in_distribution"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" right"), "each reference is right"
    refuse_command(capsys, ["grade", "writing"], "has no text to grade; give it a field response")


def test_evaluate_and_run_take_a_grader(own, tmp_path, capsys):
    out = str(tmp_path / "out")
    few = ["--problems", "2", "--budget", "2", "--states", "2", "--out", out]
    task = ["--task", "in_distribution", "--extractor", f"{own}:other"]
    assert main(["evaluate", *task, *few]) == 0
    capsys.readouterr()
    assert main(["evaluate", *task, *few]) == 0, "it goes on"
    assert load_trace(tmp_path / "out" / "00000.jsonl").header.run.extractor == f"{own}:other"
    assert main(["report", out]) == 0
    short = ["--task", "in_distribution", "--steps", "1", "--quiet"]
    assert main(["run", *short, "--extractor", f"{own}:other"]) == 0
    assert main(["evaluate", "--task", "writing", *task[2:], *few[:-1], out + "2"]) == 2
    assert "is for problems with answers" in capsys.readouterr().err


def test_the_grader_of_the_documents_prints_what_they_show(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parent.parent / "docs" / "command-line.md"
    section = page.read_text(encoding="utf-8").partition("## Your own grader")[2]
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (_, grader), (_, rows), (_, command), (_, printed) = blocks[:4]
    monkeypatch.chdir(tmp_path)
    Path("roman.py").write_text(grader)
    Path("numbers.jsonl").write_text(rows)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == printed
    OWN_GRADERS.clear()


def test_an_own_grader_reads_no_thoughts() -> None:
    grader = own_grader("mine", lambda text: text.strip())
    assert grader.extract("<think>20</think> 21") == "21"
    assert grader.extract("<think>20") is None


def test_a_trace_keeps_the_verdict_of_its_grader_where_comparing_texts_would_not_tell(
    own, tmp_path
):
    """Roman digits are compared by value, so "IX" is 9; no text of an answer is "9"."""
    draw_results(tmp_path / "out", load_problems(written_set(own.parent), code=True))
    lines = (tmp_path / "out" / "00001.jsonl").read_text().splitlines()
    verdicts = {line["answer"]: line.get("right") for line in map(json.loads, lines[1:-1])}
    reference = json.loads(lines[0])["reference"]
    grader = get_grader(json.loads(lines[0])["extractor"])
    assert verdicts
    for answer, right in verdicts.items():
        assert (right or False) == grader.is_right(answer, reference), answer
    trace = load_trace(tmp_path / "out" / "00001.jsonl")
    assert [*trace_lines(trace)] == [line + "\n" for line in lines]
    plain = TraceHeader(Run(prompt="p", reference="0.5", extractor="boxed"))
    read = answer_reader(plain.run)
    assert read("It is \\boxed{\\frac12}.") == {"answer": "0.5"}
    assert read("It is \\boxed{x}.") == {"answer": "x"}
    same = with_run(plain, reference="\\sin 2x")
    assert read_answer(same, "\\boxed{2\\sin x\\cos x}")["right"] is True
    assert read_answer(with_run(plain, reference='["1/2", "7"]'), "\\boxed{0.5}")["right"] is True
    assert "right" not in read_answer(with_run(plain, reference=None), "\\boxed{0.5}")


def read_answer(header, text):
    return answer_reader(header.run)(text)


@pytest.mark.parametrize(
    ("reference", "sent"),
    [("1,000", "1000"), ("$18.00", "18"), ("5 eggs, 9 nuts", "5 eggs, 9 nuts"), ("abc!", "abc")],
)
def test_the_browser_gets_the_right_answer_in_the_form_of_the_answers_that_it_reads(
    reference, sent
):
    assert canonical_references(reference) == sent
    header = TraceHeader(Run(prompt="p", reference=reference))
    assert json.loads(engine_header(header))["reference"] == sent
    assert json.loads(engine_header(with_run(header, reference=None)))["reference"] is None
    assert canonical_references('["1,000", "1000.0", "7"]') == '["1000", "7"]'
