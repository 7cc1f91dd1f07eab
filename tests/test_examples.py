"""The examples in the engine's docstrings run and print what they show."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import qalign_core

MODULES = [
    module.name
    for module in pkgutil.walk_packages(qalign_core.__path__, "qalign_core.")
    if not module.name.startswith(("qalign_core.models", "qalign_core.rewards"))
    or module.name == "qalign_core.rewards.kinds"
]
REQUIRED = {
    f"qalign_core.{name}"
    for name in (
        *("target", "chain.acceptance", "chain.moves.suffix", "chain.randomness", "move_spec"),
        *("messages", "run", "record.trace", "decide.rules", "rewards.kinds"),
        *("decide.answers.extraction", "decide.answers.equality"),
    )
}
"""The modules that need an example: those that a reader opens first."""


def test_every_module_with_a_required_example_exists() -> None:
    assert set(MODULES) >= REQUIRED


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    failed, attempted = doctest.testmod(import_module(name))
    assert failed == 0
    assert attempted or name not in REQUIRED


def test_an_example_that_prints_something_else_fails() -> None:
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(verbose=False).run(example, out=lambda text: None).failed == 1
