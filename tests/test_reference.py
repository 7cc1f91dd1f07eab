"""The API reference (`make docs`) has a sentence for every public name."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import qalign_core

ROOT = Path(__file__).resolve().parent.parent


def undocumented(module: object) -> list[str]:
    """Public names of a module, and public methods of its classes, without a docstring."""
    names = []
    for name in module.__all__:  # type: ignore[attr-defined]
        value = getattr(module, name)
        doc = value.__doc__ or ""
        if not doc or doc.startswith(f"{name}("):  # a dataclass writes its own signature there
            names.append(name)
        members = vars(value).items() if inspect.isclass(value) else ()
        for member, part in members:
            documented = inspect.isroutine(part) or isinstance(part, property)
            if documented and not member.startswith("_") and not inspect.getdoc(part):
                names.append(f"{name}.{member}")
    return names


def test_every_public_name_of_the_engine_has_a_docstring() -> None:
    assert undocumented(qalign_core) == []


def test_a_missing_docstring_is_found() -> None:
    @dataclass
    class Bare:
        x: int

        def method(self) -> None: ...

    module = SimpleNamespace(__all__=["Bare", "collect"], Bare=Bare, collect=qalign_core.collect)
    Bare.__doc__ = Bare.__doc__.replace(Bare.__qualname__, "Bare")
    assert undocumented(module) == ["Bare", "Bare.method"]


def test_the_reference_has_every_module_from_which_the_documents_import() -> None:
    target = (ROOT / "Makefile").read_text("utf-8").split("\ndocs:")[1].split("\n\n")[0]
    listed = set(re.findall(r"\bqalign_(?:core|study)[\w.]*", target))
    texts = [path.read_text("utf-8") for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))]
    pattern = r"^\s*from (qalign_(?:core|study)[\w.]*) import"
    used = {name for text in texts for name in re.findall(pattern, text, re.MULTILINE)}
    assert used
    assert used <= listed
