"""The examples in the engine's docstrings run and print what they show."""

import ast
import doctest
import pkgutil
import re
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

import qalign_core
import qalign_study
import qalign_study.exact

MODULES = [
    "qalign_core",
    *(each.name for each in pkgutil.walk_packages(qalign_core.__path__, "qalign_core.")),
    *(
        each.name
        for each in pkgutil.iter_modules(qalign_study.exact.__path__, "qalign_study.exact.")
    ),
]
REQUIRED = {"qalign_core"} | {
    f"qalign_core.{name}"
    for name in (
        *(
            "chain.chain",
            "record.runner",
            "registry",
            "target",
            "chain.moves.suffix",
            "chain.randomness",
            "move_spec",
        ),
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


def code_without_prompts(source: str) -> list[str]:
    """The paragraphs of a module's docstrings that are Python with a call, but no examples."""
    code: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for paragraph in re.split(
            r"\n\s*\n", ast.get_docstring(node, clean=not isinstance(node, ast.Module)) or ""
        ):
            if paragraph.startswith("    ") and ">>>" not in paragraph:
                try:
                    tree = ast.parse(textwrap.dedent(paragraph))
                except SyntaxError:
                    continue
                code += [paragraph] * any(isinstance(each, ast.Call) for each in ast.walk(tree))
    return code


def test_code_in_a_docstring_is_an_example_that_runs() -> None:
    packages = [*qalign_core.__path__, *qalign_study.__path__]
    files = [file for package in packages for file in sorted(Path(package).rglob("*.py"))]
    by_name = {file.name: code_without_prompts(file.read_text()) for file in files}
    assert {name: code for name, code in by_name.items() if code} == {}
    assert code_without_prompts('"""Add.\n\n    y = add(1, 2)\n"""') == ["    y = add(1, 2)\n"]
