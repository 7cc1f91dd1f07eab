"""A kind of reward is one decorated loader: names, pages, servers and commands find it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from house import changed_copy, run_in

from components.common.reward import typed_rewards
from components.session.offer import Offer, needs_gpu
from qalign_core import registry
from qalign_core.chain.cost import parameters_of
from qalign_core.errors import InvalidSetting, ModelLoadError
from qalign_core.protocols import RewardModel
from qalign_core.registry import load_reward_model
from qalign_core.rewards.functions import FunctionReward
from qalign_core.rewards.kinds import KINDS, RewardKind, reward_kind
from qalign_core.rewards.names import reward_named
from qalign_core.types import Response
from qalign_study.commands import main
from qalign_study.commands.plan import facts_of


def starts() -> str:
    """A rule that reads the text alone."""

    @reward_kind("starts", argument="WORD", noun="a first word", example="The")
    def load_starts(argument: str, *, id: str) -> RewardModel:
        if not argument:
            raise InvalidSetting("starts needs a word, got none; write starts:WORD")
        return FunctionReward(lambda _, text: float(text.startswith(argument)), id=id)

    return "starts:The"


def vowels() -> str:
    """A rule without an argument."""

    @reward_kind("vowels")
    def load_vowels(argument: str, *, id: str) -> RewardModel:
        return FunctionReward(lambda _, text: sum(c in "aeiou" for c in text) / 10, id=id)

    return "vowels"


class Likelihood:
    """The log-probability of a response under another language model."""

    def __init__(self, lm: Any, *, id: str) -> None:
        self.lm, self.id, self.n_parameters = lm, id, parameters_of(lm)

    async def score(self, prompt: str, response: Response) -> float:
        own = await self.lm.extend(self.lm.encode(prompt), (), seed=len(response.text))
        return len(own) / 10

    def n_read(self, known: int, total: int) -> int:
        return total


def like() -> str:
    """A reward that a language model gives."""

    reward_kind("like", uses="lm", argument="LM", max_new_tokens=4)(Likelihood)
    return "like:embedded"


@pytest.fixture(params=[starts, vowels, like], ids=lambda make: make.__name__)
def added(request: pytest.FixtureRequest) -> Iterator[tuple[str, RewardKind]]:
    """The name of a reward of a new kind, and the kind."""
    make: Callable[[], str] = request.param
    reward_named.cache_clear()
    name = make()
    yield name, KINDS[name.partition(":")[0]]
    del KINDS[name.partition(":")[0]]
    reward_named.cache_clear()


def score(rm: RewardModel, text: str) -> float:
    return asyncio.run(rm.score("How many?", Response((1,), text, True)))


def test_its_name_loads_it_alone_and_in_every_combination(added):
    name, _ = added
    rm = load_reward_model(name)
    assert rm.id == name
    value = score(rm, "The end")
    for form, expected in (
        (f"0.5*{name} + 0.5*contains:end", 0.5 * value + 0.5),
        (f"mean({name}, contains:end)", 0.5 * value + 0.5),
        (f"min({name}, contains:end)", min(value, 1.0)),
    ):
        assert score(load_reward_model(form), "The end") == pytest.approx(expected)


def test_servers_offer_what_reads_text_alone_and_check_the_language_model_of_the_rest(added):
    name, kind = added
    none = Offer(names=())
    none.check("embedded", f"0.5*{name} + 0.5*mood")
    assert not needs_gpu("embedded", name)
    if kind.uses == "lm":
        with pytest.raises(ModelLoadError, match="does not offer 'owner/model'"):
            none.check("embedded", f"{kind.prefix}:owner/model")


def test_pages_and_help_list_it(added, capsys):
    _, kind = added
    if kind.example:
        assert f"{kind.prefix}:{kind.example}" in typed_rewards()
    with pytest.raises(SystemExit, match="0"):
        main(["run", "--help"])
    assert not kind.argument or f"{kind.prefix}:{kind.argument}" in capsys.readouterr().out


def test_the_command_line_draws_with_it(added, capsys):
    name, _ = added
    run = f"run --steps 2 --max-new-tokens 4 --quiet --prompt Go --rm {name}"
    assert main(run.split()) in (0, None)


def test_a_registry_of_ones_own_names_it(added, tmp_path, monkeypatch):
    name, kind = added
    file = tmp_path / "mine.toml"
    file.write_text(f'[[rm]]\nid = "mine"\nsource = "{name}"\ntitle = "Mine"\n')
    monkeypatch.setenv("QALIGN_REGISTRY", str(file))
    registry.entries.cache_clear()
    try:
        rm = load_reward_model("mine")
        assert rm.id == "mine"
        assert score(rm, "The end") == score(load_reward_model(name), "The end")
        if kind.uses == "text":
            assert facts_of("rm", "mine")[0].reads_text
    finally:
        registry.entries.cache_clear()


FILE = '''"""A reward of a stranger."""

from qalign_core.rewards.kinds.texts import text_kind


@text_kind("shouts", argument="SIGN", noun="a sign", example="!")
def _shouts(argument):
    return lambda text: float(text.count(argument or "!"))
'''

CHECK = """
from components.common.reward import typed_rewards
from qalign_core import collect, load_language_model, load_reward_model, run_chain
from qalign_study.commands import main

print(typed_rewards())
lm, rm = load_language_model("embedded", max_new_tokens=4), load_reward_model("shouts:!")
steps = collect(run_chain(lm, rm, "2 + 2?", beta=1.0, steps=1, seed=1))
print([step.state.reward == step.state.response.text.count("!") for step in steps])
try:
    main(["run", "--help"])
except SystemExit:
    print("the end")
"""


def test_a_kind_of_reward_is_one_file(tmp_path: Path) -> None:
    """A copy of the source with a file more, as a stranger would add it."""
    copy = changed_copy(tmp_path, ("qalign_core/rewards/kinds/shouts.py", "", FILE))
    offered, is_score, *help_text, end = run_in(copy, CHECK).splitlines()
    assert "shouts:!" in offered
    assert is_score == "[True, True]"
    assert any("shouts:SIGN" in line for line in help_text)
    assert end == "the end"


def test_without_the_kind_its_name_is_unknown():
    """The control of the tests above."""
    assert typed_rewards() == "contains:rain or length:30"
    for name in ("starts:The", "vowels", "like:embedded"):
        with pytest.raises(ModelLoadError, match="no model called"):
            load_reward_model(name)
