"""pyproject.toml says what each part needs; the requirements files repeat its pins, one for one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from qalign_core import __version__

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
CORE = PROJECT["dependencies"]
EXTRAS = PROJECT["optional-dependencies"]
FILES = {
    "requirements.txt": CORE + EXTRAS["app"],
    "requirements-dev.txt": CORE + EXTRAS["dev"],
    "requirements-mcp.txt": CORE + EXTRAS["mcp"],
    "requirements-tasks.txt": CORE + EXTRAS["app"] + EXTRAS["tasks"],
    "requirements-train.txt": CORE + EXTRAS["app"] + EXTRAS["train"],
    # in an environment of its own, with nothing of the core but torch's pin
    "requirements-servers.txt": [*EXTRAS["servers"], "torch==2.13.0"],
    "requirements-pretrained.txt": PYPROJECT["dependency-groups"]["pretrained"],
    "requirements-llamacpp.txt": PYPROJECT["dependency-groups"]["llamacpp"],
}


def wanted(lines: list[str]) -> dict[str, Requirement]:
    """Requirements by name and extras; those of the project's own extras in place of their name."""
    pins: dict[str, Requirement] = {}
    for requirement in map(Requirement, lines):
        if requirement.name == PROJECT["name"]:
            for extra in requirement.extras:
                pins |= wanted(EXTRAS[extra])
        else:
            pins[str(requirement).removesuffix(str(requirement.specifier))] = requirement
    return pins


def written(name: str) -> dict[str, str]:
    """The pins of a file and of those that it includes."""
    pins: dict[str, str] = {}
    for line in (ROOT / name).read_text("utf-8").splitlines():
        if line.startswith("-r "):
            pins |= written(line.removeprefix("-r "))
        elif line := line.partition("#")[0].strip():
            package, pin = line.split("==")
            pins[package] = pin
    return pins


@pytest.mark.parametrize("name", FILES)
def test_a_requirements_file_pins_what_pyproject_names_at_the_newest_version_it_allows(name):
    requirements, pins = wanted(FILES[name]), written(name)
    assert set(pins) == set(requirements)
    for package, pin in pins.items():
        specifier = requirements[package].specifier
        assert specifier.contains(pin), f"{package}=={pin} is not {specifier}"
        assert {f"=={pin}", f"<={pin}"} & {str(part) for part in specifier}, str(specifier)


def test_every_requirements_file_is_compared():
    assert {path.name for path in ROOT.glob("requirements*.txt")} == set(FILES)


def test_the_core_needs_no_package_of_the_page():
    pages = {"gradio", "plotly", "orjson", "threadpoolctl", "segno"}
    assert not pages & set(wanted(CORE))
    assert pages == set(wanted(EXTRAS["app"]))


def test_the_changelog_has_dated_versions_of_named_kinds_and_this_one_first():
    assert PROJECT["dynamic"] == ["version"]
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *_ = versions = re.findall(r"^## (\d\S*) - (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    assert first[0] == __version__
    assert len(versions) + changes.count("\n## Unreleased\n") == changes.count("\n## ")
    kinds = {"Added", "Changed", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", changes, re.MULTILINE)) == kinds
    assert len(re.findall(r"^## .+\n\n### ", changes, re.MULTILINE)) == changes.count("\n## ")


def test_a_citation_names_this_version_and_the_paper():
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"\n## {cff['version']} - {cff['date-released']}\n" in changes
    assert (cff["version"], cff["license"]) == (__version__, PROJECT["license"])
    bibtex = (ROOT / "CITATION.bib").read_text("utf-8")
    assert f"version = {{{__version__}}}" in bibtex
    (paper,) = cff["references"]
    assert f"{{{paper['title']}}}" in bibtex
    for fact in (paper["url"], paper["journal"], str(paper["year"])):
        assert fact in bibtex


def test_the_command_is_the_command_lines_main():
    from qalign_study.__main__ import main

    (target,) = PROJECT["scripts"].values()
    assert target == f"{main.__module__}:{main.__qualname__}"
