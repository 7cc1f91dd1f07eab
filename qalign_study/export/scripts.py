"""The pages' scripts: ES modules under assets/web/, joined into one classic script at start-up.

A module script runs after the page has been read, and a component of Gradio's may have started by
then; a classic one in the head runs first, needs no request, no address and so no proxy's, and a
page saved as one file carries it.

What a module may be, so that joining needs no parser:

- `import { a, b } from "./file.js";` at the start of a line, or over several; no other imports, no
  new names;
- `export` before a `const`, a `function` (`async` and generators too) or a `class` at the start of
  a line; no other exports;
- comments on lines of their own, comments without quotes at the end of a line, and types in front
  of what they belong to (`/** @type {...} */`), which the page does not get: `//` or `/* ... */`,
  and no text with a line break in it, since lines are joined and lose their indentation, and
  lines of code the spaces around their signs.

A module becomes a function that runs once, after those that it imports, and returns what it
exports; the exports of the modules asked for are the page's globals.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qalign_core.assets import ASSETS

IMPORT = re.compile(
    r'^import \{((?:\s*\w+,)*\s*\w+,?\s*)\} from "(\.[\w./-]+\.js)";\n', re.MULTILINE
)
EXPORT = re.compile(r"^export (?=(?:const|(?:async )?function\*?|class) (\w+))", re.MULTILINE)
COMMENT = re.compile(r"^[ ]*(?:/\*(?:(?!\*/).)*\*/[ ]*|//[^\n]*)\n", re.MULTILINE | re.DOTALL)
INDENT = re.compile(r"^\s+", re.MULTILINE)
OPEN_LINE = re.compile(r"^((?:(?!//).)*[{}(\[,;=?:&|>])\n", re.MULTILINE)
ASIDE = re.compile(r" +// [^\"'`\n]*$", re.MULTILINE)
TYPE = re.compile(r"/\*\* @type \{[^\n]*?\} \*/ ?")
SHEET_SPACE = re.compile(
    r"/\*.*?\*/\s*|\s+(?=[{}])|(?<=[{};,])\s+|(?<=:) |^\s+", re.MULTILINE | re.DOTALL
)
QUOTED = r'"(?:\\.|[^"\\\n])*"'
TEMPLATE = r"`(?:\\.|[^`\\\n])*`"
SIMPLE_LINE = re.compile(
    rf"""^(?:[^"'`/$\n]|{QUOTED}|(?:^|(?<=[(\[,=>?:+])|(?<=return)) *{TEMPLATE}|(?<=[\w)]) / )*$""",
    re.MULTILINE,
)
"""A line of code with whole texts, each behind a sign, but without regular expressions."""
SPACES = re.compile(rf"""({QUOTED}|{TEMPLATE})| *(=>|[=<>?:|&,{{}}();!*/]+) *""")
LEFT = re.compile(r"^\s*(?:import|export)\b(?!\().*", re.MULTILINE)


WEB = ASSETS / "web"
"""The folder with the pages' scripts and styles."""


@cache
def bundle(*entries: Path) -> str:
    """One classic script that sets the exports of these modules as the page's globals.

    Raises:
        ValueError: a module is not written as the rules say, or imports itself.
    """
    joined: dict[Path, _Joined] = {}
    globals_ = [f"...{_join(entry.resolve(), joined, ()).name}" for entry in entries]
    body = "".join(module.code for module in joined.values())
    return (
        f'(() => {{\n"use strict";\n{body}'
        f"Object.assign(globalThis, {{ {', '.join(globals_)} }});\n}})();\n"
    )


def as_data(text: str) -> str:
    """Escape JSON for a page: no text ends its element, since `<` becomes an escape of strings."""
    return text.replace("<", "\\u003c")


def sheets(*parts: Path) -> str:
    """Join the style sheets beside these modules, if they have one, without spaces or comments."""
    paths = (part.with_suffix(".css") for part in parts)
    text = "".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
    return SHEET_SPACE.sub("", text)


def with_sheet(script: Path) -> str:
    """Return a module as one script that also brings the style sheet beside it, if there is one."""
    css = sheets(script)
    if not css:
        return bundle(script)
    brings = f"{{const own=new CSSStyleSheet();own.replaceSync({json.dumps(css)});"
    return f"{brings}document.adoptedStyleSheets.push(own)}}{bundle(script)}"


def _tighten(line: re.Match[str]) -> str:
    """Return a line of code without the spaces around its signs.

    A line with a template in a template stays as it is.
    """
    whole = all(text.count("{") == text.count("}") for text in re.findall(TEMPLATE, line[0]))
    return SPACES.sub(r"\1\2", line[0]) if whole else line[0]


@dataclass(frozen=True, slots=True)
class _Joined:
    name: str
    exports: tuple[str, ...]
    code: str


def _join(path: Path, joined: dict[Path, _Joined], importers: tuple[Path, ...]) -> _Joined:
    """Add a module, and before it those that it imports."""
    if path in importers:
        raise ValueError(f"{path.name} imports itself, by way of {importers[-1].name}")
    if path in joined:
        return joined[path]
    source = ASIDE.sub("", TYPE.sub("", COMMENT.sub("", path.read_text(encoding="utf-8"))))
    imports = ""
    for listed, place in IMPORT.findall(source):
        module = _join((path.parent / place).resolve(), joined, (*importers, path))
        names = re.findall(r"\w+", listed)
        if missing := set(names) - set(module.exports):
            absent = ", ".join(sorted(missing))
            raise ValueError(f"{path.name} imports {absent}, which {place[2:]} does not export")
        imports += f"const{{{','.join(names)}}}={module.name};"
    own = EXPORT.sub("", IMPORT.sub("", source))
    if other := LEFT.search(own):
        raise ValueError(f"{path.name}: this cannot be joined: {other[0].strip()}")
    code = INDENT.sub("", SIMPLE_LINE.sub(_tighten, own))
    if "</script" in code:
        raise ValueError(f"{path.name} would end the page's script")
    code = OPEN_LINE.sub(r"\1", code)
    name, exports = f"m{len(joined)}", tuple(EXPORT.findall(source))
    body = f"{imports}{code}return{{{','.join(exports)}}};\n"
    joined[path] = _Joined(name, exports, f"const {name}=(()=>{{{body}}})();\n")
    return joined[path]
