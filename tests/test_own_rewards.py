"""Rewards of a user's own file, a class among them, and several rewards as one."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from refusals import refuse_command

from qalign_core import registry
from qalign_core.errors import InvalidReward, InvalidSetting, ModelLoadError
from qalign_core.registry import current_name, entries, load_reward_model
from qalign_core.rewards.functions import FunctionReward
from qalign_core.rewards.names import reward_named
from qalign_core.types import Response
from qalign_study.commands import main

OWN = """
from qalign_core.errors import InvalidPrompt, InvalidSetting


def short(prompt, response):
    return -len(response) / 10


class Eggs:
    id = "eggs"

    async def score(self, prompt, response):
        return response.text.count("egg")


class Bare:
    async def score(self, prompt, response):
        return float(len(response.tokens))


class Plain:
    def score(self, prompt, response):
        return 1.0


class Torn:
    async def score(self, prompt, response):
        raise SystemExit(3)


class Settled:
    async def score(self, prompt, response):
        raise InvalidSetting("/home/me/x")


class Prompted:
    async def score(self, prompt, response):
        raise InvalidPrompt("too long")


class Nameless:
    async def score(self, prompt, response): ...

    @property
    def id(self):
        raise InvalidSetting("no id")


class Slow:
    async def score(self, prompt, response):
        await __import__("asyncio").Event().wait()


class Cancelled:
    async def score(self, prompt, response):
        raise __import__("asyncio").CancelledError


class Surrogate(Eggs):
    id = "\\ud800"


class Infinite:
    async def score(self, prompt, response):
        return float("inf")


class Sized(Bare):
    n_parameters = "many"


class Negative(Bare):
    n_parameters = -1


class Unreadable(Bare):
    @property
    def n_read(self):
        raise InvalidSetting("no reading")


class Uncounted(Bare):
    def n_read(self, known, total):
        return "all"


class Failing(Bare):
    def n_read(self, known, total):
        return total / 0


class Constant(Bare):
    n_read = 5


class Needy:
    def __init__(self, of):
        pass
"""
TEXT = Response((1, 2, 3), "two eggs and an egg", True)


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text(OWN)
    return path


def score(name):
    return asyncio.run(load_reward_model(name, code=True).score("p", TEXT))


def test_a_class_of_a_file_is_a_reward_by_its_id_or_its_name(own):
    assert score(f"{own}:Eggs") == 2.0
    assert load_reward_model(f"{own}:Eggs", code=True).id == "eggs"
    assert score(f"{own}:Bare") == 3.0
    assert load_reward_model(f"{own}:Bare", code=True).id == "Bare"
    assert score(f"0.5*{own}:Bare + 2*{own}:Eggs") == 5.5


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("Plain", ModelLoadError, "has a plain method score; write async def score"),
        ("Needy", ModelLoadError, "a class whose __init__ takes no arguments was expected"),
        ("Torn", InvalidReward, "Torn failed with SystemExit: 3; fix the class"),
        ("Settled", InvalidReward, "Settled failed with InvalidSetting: /home/me/x; fix the class"),
        ("Prompted", InvalidReward, "Prompted failed with InvalidPrompt: too long; fix the class"),
        ("Nameless", ModelLoadError, "InvalidSetting: no id.; fix its attributes"),
        ("Surrogate", ModelLoadError, r"the id '\\ud800' is not UTF-8 text.; fix its attributes"),
        ("Cancelled", InvalidReward, "Cancelled failed with CancelledError"),
        ("Infinite", InvalidReward, "Infinite returned inf; one finite number was expected"),
    ],
)
def test_what_is_no_reward_is_refused_in_one_sentence(own, name, error, sentence):
    with pytest.raises(error, match=sentence):
        score(f"{own}:{name}")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Sized", "Sized cannot be used (ValueError: invalid literal for int"),
        ("Negative", "Negative cannot be used (InvalidSetting: n_parameters must be a finite"),
        (
            "Unreadable",
            "Unreadable cannot be used (InvalidSetting: no reading); fix its attributes",
        ),
        ("Uncounted", "Uncounted failed with InvalidSetting: n_read must be a whole number >= 0"),
        ("Failing", "Failing failed with ZeroDivisionError: division by zero; fix the class"),
        ("Constant", "Constant failed with TypeError: 'int' object is not callable; fix the class"),
    ],
)
def test_the_cost_that_a_class_states_is_refused_in_one_sentence_that_names_it(
    own, capsys, name, sentence
):
    run = ["run", "--prompt", "Tom has 5 eggs. How many?", "--steps", "1", "--quiet", "--rm"]
    refuse_command(capsys, [*run, f"{own}:{name}"], sentence)


def test_an_async_function_is_refused_before_it_is_called():
    class Late:
        async def __call__(self, prompt, text):
            return 1.0

    for function in (Late(), Late().__call__):
        with pytest.raises(
            InvalidSetting, match="rule is an async function; write it with a plain"
        ):
            FunctionReward(function)


async def test_the_end_of_a_task_is_no_failure_of_its_reward(own):
    rm = load_reward_model(f"{own}:Slow", code=True)
    task = asyncio.create_task(rm.score("p", TEXT))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_numbers_of_numpy_are_rewards():
    for value in (np.float32(1), np.int64(1), np.bool_(True), True, 1):
        reward = FunctionReward(lambda prompt, text, value=value: value)
        assert asyncio.run(reward.score("p", TEXT)) == 1.0


@pytest.mark.parametrize(
    ("sum_", "weights"),
    [
        (".5*embedded + .25*plain", [0.5, 0.25]),
        ("1e-3*embedded+2E+1*plain", [0.001, 20.0]),
        ("-.5 * embedded + 1.*plain", [-0.5, 1.0]),
        ("1e-05*embedded + plain", [1e-05, 1.0]),
    ],
)
def test_a_weight_is_written_as_python_writes_a_number(sum_, weights):
    assert [weight for weight, _ in reward_named(sum_).parts] == weights
    assert [part.text for _, part in reward_named(sum_).parts] == ["embedded", "plain"]


def test_a_sum_with_an_old_name_keeps_its_weights(monkeypatch):
    entry = replace(entries()["rm", "embedded"], aliases=("old",))
    monkeypatch.setattr(registry, "entries", lambda: {("rm", "old"): entry})
    sum_ = current_name("rm", "0.12345678*old + 1e-07*plain")
    assert [weight for weight, _ in reward_named(sum_).parts] == [0.12345678, 1e-07]


def test_the_least_and_the_mean_of_several_rewards(own):
    each = [score(name) for name in (f"{own}:short", f"{own}:Eggs", "length:5")]
    names = f"({own}:short, {own}:Eggs, length:5)"
    assert score(f"min{names}") == min(each)
    assert score(f"mean{names}") == pytest.approx(sum(each) / 3)
    assert load_reward_model(f"min{names}", code=True).id == f"min{names}"


def test_the_names_of_several_rewards_are_read():
    least = reward_named("min(embedded, length:5)")
    assert (least.kind, [part.text for part in least.members]) == ("min", ["embedded", "length:5"])
    mean = reward_named("mean(embedded, embedded-weak)")
    assert [weight for weight, _ in mean.parts] == [0.5, 0.5]
    for bad in ("min(a, )", "mean(, a)", f"min({', '.join(map(str, range(9)))})",
                "min(a, min(b, c))", "2*min(a)"):  # fmt: skip
        with pytest.raises(InvalidSetting, match="takes 2 to 8 rewards"):
            reward_named(bad)
    with pytest.raises(ModelLoadError, match="no model called"):  # no file without `code`
        load_reward_model("min(rules.py:short, embedded)")


def test_the_command_line_takes_them(own, capsys):
    run = ["run", "--prompt", "Tom has 5 eggs. How many?", "--steps", "2", "--quiet", "--rm"]
    for rm in (f"{own}:Eggs", "min(embedded, embedded-weak)", f"mean({own}:short, embedded)"):
        assert main([*run, rm]) == 0
    refuse_command(capsys, [*run, f"{own}:Plain"], "async def score")
