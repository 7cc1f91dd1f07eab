"""A language model that grades, and rewards that are sums: as the names on the command line say."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from refusals import refusal
from toys import ToyLM

from qalign_core import registry
from qalign_core.errors import InvalidReward, InvalidSetting, ModelLoadError
from qalign_core.rewards.kinds.judge import GRADES, JudgeReward, read_grade
from qalign_core.rewards.names import reward_named
from qalign_core.types import Response


class Grader(ToyLM):
    """Grades by the length of what it is shown, and sometimes talks instead."""

    n_parameters = 7

    def __init__(self, *answers):
        super().__init__()
        self.prompts, self.answers = [], answers

    def encode(self, prompt):
        self.prompts.append(prompt)
        return tuple(prompt.encode())

    async def extend(self, prompt_ids, prefix, *, seed):
        text = self.answers[seed % len(self.answers)]
        return Response((1, 2), text, True)


RESPONSE = Response((5, 0), "It is 17.", True)


@pytest.mark.parametrize(
    ("text", "grade"),
    [("7", 7), (" 10.", 10), ("Grade: 8/10", 8), ("I give it a 3", 3), ("0", None), ("11", None),
     ("7.5", None), ("-4", None), ("no idea", None), ("", None)],
)  # fmt: skip
def test_a_grade_is_a_whole_number_from_1_to_10_that_stands_alone(text, grade):
    assert read_grade(text) == grade


async def test_the_reward_is_the_mean_grade_and_a_function_of_prompt_and_response():
    judge = Grader("4", "9", "hm")
    rm = JudgeReward(judge)
    reward = await rm.score("What is 12 + 5?", RESPONSE)
    assert 4 <= reward <= 9
    assert reward == await rm.score("What is 12 + 5?", RESPONSE)
    assert "What is 12 + 5?" in judge.prompts[1]
    assert RESPONSE.text in judge.prompts[1]
    assert rm.n_parameters == 7


def test_a_judge_reads_its_question_for_every_grade_and_writes_to_its_limit():
    judge = Grader("4")
    rm = JudgeReward(judge)
    (question,) = judge.prompts  # with neither prompt nor response
    assert rm.n_read(10, 30) == GRADES * (len(question.encode()) + 30 + judge.max_new_tokens)


async def test_a_judge_that_does_not_grade_is_asked_again_and_with_other_seeds():
    seeds = []

    class Hesitant(Grader):
        async def extend(self, prompt_ids, prefix, *, seed):
            seeds.append(seed)
            text = "8" if len(seeds) == 2 * GRADES + 1 else "well"
            return Response((1, 2), text, True)

    reward = await JudgeReward(Hesitant()).score("x", RESPONSE)
    assert reward == 8.0
    assert len(set(seeds)) == 3 * GRADES


async def test_a_judge_that_never_grades_is_an_error():
    with pytest.raises(InvalidReward, match="returned 'well' instead of a grade"):
        await JudgeReward(Grader("well")).score("x", RESPONSE)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("embedded", ((1.0, "embedded"),)),
        ("0.7*embedded + 0.3*a/b-c", ((0.7, "embedded"), (0.3, "a/b-c"))),
        ("embedded + -2 * judge:toy", ((1.0, "embedded"), (-2.0, "judge:toy"))),
        ("0.5*http://localhost:8001 + x", ((0.5, "http://localhost:8001"), (1.0, "x"))),
    ],
)
def test_a_weighted_sum_is_written_as_one(name, parts):
    assert tuple((weight, part.text) for weight, part in reward_named(name).parts) == parts


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("embedded", "model"), ("owner/name@main", "model"), ("http://localhost:8001", "model"),
        ("judge:embedded", "lm"), ("length:12", "text"), ("none", "text"),
        ("rules.py:short", "code"), ("2*embedded", "sum"), ("mood + plain", "sum"),
    ],
)  # fmt: skip
def test_a_rewards_name_is_of_one_kind(name, kind):
    named = reward_named(name)
    assert (named.text, named.kind) == (name, kind)
    assert bool(named.weighted) == (kind == "sum")
    assert (named.kind == "lm") == (named.argument == "embedded")


def test_a_reward_named_often_is_scored_once_with_the_sum_of_its_weights():
    ((weight, part),) = reward_named(" + ".join(["embedded"] * 165)).parts
    assert (weight, part.text) == (165.0, "embedded")
    two = registry.load_reward_model("0.5*embedded + 0.25*embedded-weak + 0.5*embedded")
    assert [(rm.id, weight) for rm, weight in two.parts] == [
        ("embedded", 1.0), ("embedded-weak", 0.25),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (" + ".join(f"r{k}" for k in range(9)), "at most 8 rewards"),
        ("0.1*embedded + " * 20_000 + "embedded", "at most 4,096 characters"),
        ("9" * 400 + "*embedded", "finite weights"),
        ("1" + "+1" * 2000, None),
        ("1*" * 2000, None),
    ],
)
def test_a_sum_without_end_is_refused(name, sentence):
    with pytest.raises(InvalidSetting, match=sentence) if sentence else nullcontext():
        reward_named(name)


async def test_two_preferences_steer_at_once(tmp_path):
    file = tmp_path / "rules.py"
    file.write_text("def short(prompt, response):\n    return -len(response) / 10\n")
    rm = registry.load_reward_model(f"0.5*embedded + 2*{file}:short", code=True)
    parts = [registry.load_reward_model("embedded"), lambda text: -len(text) / 10]
    prompt = "Tom has 5 eggs. How many?"
    expected = 0.5 * await parts[0].score(prompt, RESPONSE) + 2 * parts[1](RESPONSE.text)
    assert await rm.score(prompt, RESPONSE) == pytest.approx(expected)
    assert rm.id == f"0.5*embedded + 2*{file}:short"


@pytest.mark.parametrize(
    ("code", "name", "sentence"),
    [
        ("def f(a, b): return 1", "g", "has no function or class g"),
        ("async def f(a, b): return 1", "f", "is an async function; write it with a plain def"),
        ("1 +", "f", "cannot be run (SyntaxError"),
        ("import no_such_module", "f", "cannot be run (ModuleNotFoundError"),
    ],
)
def test_a_file_without_the_function_is_refused(tmp_path, code, name, sentence):
    file = tmp_path / "rules.py"
    file.write_text(code)
    with refusal(ModelLoadError, sentence):
        registry.load_reward_model(f"{file}:{name}", code=True)


async def test_a_function_that_fails_is_one_sentence(tmp_path):
    file = tmp_path / "rules.py"
    file.write_text("def f(prompt, response): return {}[response]")
    rm = registry.load_reward_model(f"{file}:f", code=True)
    with pytest.raises(InvalidReward, match="f failed with KeyError"):
        await rm.score("x", RESPONSE)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("raise ValueError('a\\nb')", "f failed with ValueError: a; fix the function"),
        (
            "return 10**5000",
            "f returned a whole number beyond 2^53; one finite number was expected",
        ),
        ("return 1e305", "f returned 1e+305; one finite number was expected"),
        ("return 'x' * 10**6", "f returned 'xxxx"),
        ("return __import__('numpy').zeros((99, 2))", "f returned array([[0., 0.],"),
    ],
)
async def test_whatever_a_function_does_is_one_short_line(tmp_path, code, sentence):
    file = tmp_path / "rules.py"
    file.write_text(f"def f(prompt, response): {code}")
    rm = registry.load_reward_model(f"{file}:f", code=True)
    with refusal(InvalidReward, sentence, most=200):
        await rm.score("x", RESPONSE)


def test_a_file_is_run_for_its_user_only(tmp_path):
    file = tmp_path / "rules.py"
    file.write_text("import pytest; pytest.fail('the code was run')")
    with pytest.raises((ModelLoadError, InvalidSetting)):
        registry.load_reward_model(f"{file}:f")
