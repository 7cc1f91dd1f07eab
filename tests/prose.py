"""Phrases and names that are hard to read: `python tests/prose.py` prints each with its line.

It reads documents, gallery, glossary, docstrings and the texts of pages, commands and errors,
without headings, code, links' addresses and quotations. In code, tests included, it also reads the
names of functions, classes, arguments and variables.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DICTIONARY = ROOT / "assets" / "dictionary.toml"
SCRIPTS = (
    *("compare", "engine", "exhibit", "export", "gallery", "inside", "lab"),
    *("learn", "list", "player", "presenter", "room", "shell"),
)
INSTEAD = {
    r"anew": "again",
    r"mend(s|ed|ing)?": "fix",
    r"at times": "sometimes",
    r"whoever": "the learner, the user",
    r"in place of": "instead of",
    r"(not )?told apart": "no significant difference; distinguished",
    r"tells? (none|which|apart)": "return; distinguish",
    r"has a say": "decides",
    r"(is|are|was) (once )?said (in|once|to)": "appears, is described",
    r"(stands?|stood) (in|on|at|there|beside)": "is in",
    r"go(es)? both ways": "are sent and checked",
    r"as good as": "a difference with its interval",
    r"\d+ \w+ an? (second|minute|hour|step|problem|prompt|token)": "per",
    r"\A(- )?what [^.?!:]* (is|are) [^?]*\.\Z": "begin with a noun",
}
PHRASES = {re.compile(rf"(?<!\w){p}(?!\w)", re.I): instead for p, instead in INSTEAD.items()}
PARAGRAPH = re.compile(r"\n\s*\n|\n\s+(?=[\w, *]+: )")  # of a docstring, or one of its arguments
QUOTED = re.compile(r'“[^”]*”|"[^"\n]*"|`[^`]*`|\]\([^)]*\)|<!--.*?-->|\$[^$]*\$')


def prose(path: Path) -> Iterator[tuple[str, str]]:
    """The texts of a file, each with a name of its place: paragraphs, or the strings of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _of_python(text)
        return
    if path.suffix == ".js":
        code = re.sub(r"^\s*(/?\*|//).*|\s//\s.*", "", text, flags=re.MULTILINE)
        joined = re.sub(r"[\"`]\s*\+\s*[\"`]", "", code)
        for string in re.findall(r"\"([^\"\n]+)\"|`([^`]+)`", joined):
            yield "".join(string)[:40], "".join(string)
        return
    if path.suffix == ".toml":
        yield from _strings(tomllib.loads(text), "")
        return
    text = re.sub(r"\A---\n.*?^---$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-|#]|\d+\. )", text):
        if not paragraph.lstrip().startswith("#"):
            yield paragraph.strip()[:40], " ".join(paragraph.split())


def _of_python(text: str) -> Iterator[tuple[str, str]]:
    """The strings of a module, docstrings by paragraph; a value in an f-string is an ellipsis."""
    tree = [*ast.walk(ast.parse(text))]
    silent = {id(node.value) for node in tree if isinstance(node, ast.Expr | ast.FormattedValue)}
    for node in tree:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for values in re.split(PARAGRAPH, str(node.value.value)):
                yield f"line {node.lineno}", " ".join(values.split())
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        silent |= {id(part) for part in parts if part is not node}
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in silent:
            values = [part.value if isinstance(part, ast.Constant) else "…" for part in parts]
            yield f"line {node.lineno}", " ".join("".join(map(str, values)).split())


def _strings(value: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, " ".join(value.split())
    elif isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _strings(each, f"{place}.{key}".strip("."))


def find_phrases(text: str) -> Iterator[tuple[str, str]]:
    """Each phrase of a text that is better written otherwise, and how."""
    text = QUOTED.sub("…", text)
    for sentence in re.split(r"(?<=[.!?])\s+", text):
        for phrase, instead in PHRASES.items():
            if match := phrase.search(sentence):
                yield match[0], instead


def pages(root: Path = ROOT) -> list[Path]:
    """All files that are checked."""
    globs = (
        "*.md",
        "docs/*.md",
        "assets/models/*.md",
        "assets/runs/gallery.toml",
        "assets/lessons/*.toml",
        "benchmarks/*.md",
        "app.py",
        "components/**/*.py",
        "qalign_core/**/*.py",
        "qalign_study/**/*.py",
        *(f"assets/web/{folder}/*.js" for folder in SCRIPTS),
    )
    return [*(path for each in globs for path in sorted(root.glob(each))), DICTIONARY]


VAGUE = frozenset(
    "told said asked found shown drawn given made came had lit ours".split()  # noqa: SIM905
)
"""Words that say nothing of what a name holds: a function is a verb, a value a noun."""
CODE = (
    "app.py",
    *(f"{folder}/**/*.py" for folder in ("qalign_core", "qalign_study", "components")),
    *("tools/**/*.py", "benchmarks/**/*.py", "assets/web/**/*.js"),
    *("tests/**/*.py", "tests/js/*.js"),
)
_SCRIPT_NAME = re.compile(r"^\s*(?:export )?(?:async )?(?:const|let|function\*?|class) (\w+)", re.M)


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each name that a file of code binds, with its line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".js":
        for match in _SCRIPT_NAME.finditer(text):
            yield text.count("\n", 0, match.start(1)) + 1, match[1]
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id


def vague_names(path: Path) -> Iterator[str]:
    """Yield a sentence for each vague name of a file, and each docstring that begins with "Of"."""
    place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for line, name in names(path):
        if name.strip("_").lower() in VAGUE:
            yield f"{place}: line {line}: {name} (a verb for a function, a noun for a value)"
    for node in ast.walk(ast.parse(path.read_text("utf-8"))) if path.suffix == ".py" else ():
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if text.startswith("Of "):
                yield f"{place}: line {node.lineno}: “{text[:60]}” (begin with a verb)"


def main() -> int:
    """Print all that is found; the exit status is 1 if there is any."""
    hits = [
        f"{path.relative_to(ROOT)}: {place}: “{phrase[:60]}” ({instead})"
        for path in pages()
        for place, text in prose(path)
        for phrase, instead in find_phrases(text)
    ]
    hits += [hit for each in CODE for path in sorted(ROOT.glob(each)) for hit in vague_names(path)]
    print("\n".join(hits) or "prose: nothing found")
    return bool(hits)


if __name__ == "__main__":
    sys.exit(main())
