"""The pages' scripts: modules joined by rules that are checked, small, and no markup from texts."""

from __future__ import annotations

import gzip
import re
import tomllib
from pathlib import Path

import pytest
from browser import ROOT

from components.common import static_routes
from components.common.theme import head
from qalign_study.export.scripts import WEB, bundle, sheets

SCRIPTS = sorted(WEB.rglob("*.js"))
WITH_SCRIPTS_IN_THEM = [ROOT / "app.py", *sorted((ROOT / "components").rglob("*.py"))]

MARKUP_OR_CODE_FROM_TEXT = (
    *("innerHTML", "outerHTML", "insertAdjacent", "document.write", "setHTMLUnsafe", "srcdoc"),
    *("parseFromString", "createContextualFragment", "eval(", "new Function"),
)


def write(folder: Path, **modules: str) -> Path:
    """Write modules by their names; returns the first."""
    for name, source in modules.items():
        (folder / f"{name}.js").write_text(source)
    return folder / f"{next(iter(modules))}.js"


@pytest.mark.parametrize(
    "path", [*SCRIPTS, *WITH_SCRIPTS_IN_THEM], ids=lambda p: str(p.relative_to(ROOT))
)
def test_no_script_makes_markup_or_code_from_a_text(path):
    source = path.read_text(encoding="utf-8")
    words = [word for word in MARKUP_OR_CODE_FROM_TEXT if word in source]
    assert words == []


def test_nodes_are_made_in_one_place():
    makers = [p.name for p in SCRIPTS if "createElement" in p.read_text(encoding="utf-8")]
    assert makers == ["dom.js"]


@pytest.mark.parametrize("path", [*SCRIPTS, *WITH_SCRIPTS_IN_THEM], ids=lambda p: p.name)
def test_no_script_finds_a_setting_by_its_place_in_a_list(path):
    assert not re.search(r"\b(v|values)\[\d", path.read_text(encoding="utf-8"))


def test_the_player_travels_in_31_kb():
    """Script and style as a server sends them, the builder of nodes included."""
    script = bundle(ROOT / "assets/web/player/player.js")
    style = sheets(ROOT / "assets/web/player/player")
    assert len(gzip.compress((script + style).encode())) <= 31_000


def test_the_scripts_run_before_any_module_script_of_gradios():
    """Classic and in the page itself: neither deferred nor fetched from an address."""
    assert re.findall(r"<script[^>]*>", head()) == ["<script>"]
    assert "sourceMappingURL" not in head()


def test_what_saves_and_the_encoders_of_others_are_not_in_the_head():
    there, fetched = head(), bundle(ROOT / "assets/web/export/export.js")
    for name in ("drawStep", "framesOf", "GIFEncoder"):
        assert name in fetched
        assert name not in there


def test_the_scripts_of_others_are_named_with_their_versions_and_have_their_licences():
    vendor = WEB / "vendor"
    readme = (vendor / "README.md").read_text(encoding="utf-8")
    scripts = [path for path in vendor.iterdir() if path.suffix not in (".md", ".LICENSE")]
    assert len(scripts) == 1
    for path in scripts:
        assert re.search(rf"\| `{path.name}` \| .* \d+\.\d+\.\d+, .* \| MIT \|", readme)
        assert path.with_suffix(".LICENSE").stat().st_size > 1000


def test_a_module_runs_once_after_what_it_imports_and_its_exports_become_the_pages(tmp_path):
    page = write(
        tmp_path,
        page='/* The page. */\nimport {\n  one,\n  two,\n} from "./numbers.js";\n'
        'import { say } from "./words.js";\n\nexport const Page = { said: say(one + two) };\n',
        words='import { one } from "./numbers.js";\n'
        "export function say(n) {\n  // why\n  return `${one}, ${n}`; // aside\n}\n",
        numbers="/** Numbers.\n * @type {number} */\nexport const one = 1;\nexport const two = 2;\n"
        "export class Box {}\nexport async function go() {}\n",
    )
    assert (
        bundle(page)
        == """(() => {
"use strict";
const m0=(()=>{const one=1;const two=2;class Box{}async function go(){}return{one,two,Box,go};
})();
const m1=(()=>{const{one}=m0;function say(n){return `${one}, ${n}`;}return{say};
})();
const m2=(()=>{const{one,two}=m0;const{say}=m1;const Page={said:say(one + two)};return{Page};
})();
Object.assign(globalThis, { ...m2 });
})();
"""
    )


def test_a_comment_before_code_takes_nothing_with_it(tmp_path):
    body = "const a =\n  /** @type {any} */ (1);\n"
    page = write(tmp_path, page=f"{body}/** A sum. */\nexport const b = a + 1;\n")
    assert "const a=(1);const b=a + 1;" in bundle(page)  # a type and an indent go too


def test_braces_lose_their_spaces_and_texts_keep_theirs(tmp_path):
    page = write(tmp_path, page='export const a = { b: "{ it\'s }", c: `{ ${1} }` };\n')
    assert 'const a={b:"{ it\'s }",c:`{ ${1} }`};' in bundle(page)


def test_a_comment_that_stays_keeps_its_line(tmp_path):
    page = write(tmp_path, page="export const a = 1; // it's one,\nexport const b = 2;\n")
    assert "const a = 1; // it's one,\nconst b=2;" in bundle(page)


@pytest.mark.parametrize(
    "line",
    [
        'import numbers from "./numbers.js";',
        'import * as numbers from "./numbers.js";',
        'import { one as two } from "./numbers.js";',
        'import { one } from "numbers";',
        'import "./numbers.js";',
        "export default 1;",
        "export let one = 1;",
        "export const { one } = {};",
        "export { one };",
        'export { one } from "./numbers.js";',
    ],
)
def test_an_import_or_export_of_another_kind_is_refused_by_name(tmp_path, line):
    page = write(tmp_path, page=f"{line}\n", numbers="export const one = 1;\n")
    with pytest.raises(ValueError, match=re.escape(line[:20])):
        bundle(page)


def test_modules_that_import_each_other_and_the_end_of_a_script_are_refused(tmp_path):
    page = write(
        tmp_path,
        page='import { b } from "./other.js";\nexport const a = b;\n',
        other='import { a } from "./page.js";\nexport const b = a;\n',
        end='export const a = "</script>";\n',
    )
    with pytest.raises(ValueError, match=r"page\.js imports itself, by way of other\.js"):
        bundle(page)
    with pytest.raises(ValueError, match=r"end\.js would end the page's script"):
        bundle(tmp_path / "end.js")


@pytest.mark.parametrize(
    ("line", "joined"),
    [
        ('f(a, "x , y" , b ? c : d);', 'f(a,"x , y",b?c:d);'),
        ("const t = `${a} , ${b ? 1 : 2}`;", "const t=`${a} , ${b ? 1 : 2}`;"),
        ("g(`a , ${b ? `c , d` : 1}`, x );", "g(`a , ${b ? `c , d` : 1}`, x );"),
        ("x} , text ${", "x} , text ${"),
        ("y} , text` , z;", "y} , text` , z;"),
        ("h(/a , b/, x );", "h(/a , b/, x );"),
        ("return a + +b - -c;", "return a + +b - -c;"),
    ],
)
def test_spaces_around_signs_go_and_those_in_texts_stay(tmp_path, line, joined):
    assert joined in bundle(write(tmp_path, page=f"{line}\n"))


def test_an_import_of_what_is_not_exported_is_refused(tmp_path):
    page = write(
        tmp_path,
        page='import { two } from "./numbers.js";\n',
        numbers="export const one = 1;\n",
    )
    with pytest.raises(ValueError, match=r"imports two, which numbers\.js does not export"):
        bundle(page)


def test_style_sheets_travel_without_comments_and_spaces_around_rules(tmp_path):
    (tmp_path / "a.css").write_text(
        "/* why\n   so */\n.a,\n.a > b :is(i, p) {\n\tcolor: red; /* here */\n"
        "\twidth: calc(1px + 2px)\n}\n"
    )
    (tmp_path / "b.css").write_text(".b { & i:hover { } }\n")
    text = sheets(tmp_path / "a", tmp_path / "b")
    assert text == ".a,.a > b :is(i,p){color:red;width:calc(1px + 2px)}.b{& i:hover{}}"


def test_every_script_that_a_shipped_one_imports_is_shipped():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    shipped = [ROOT / name for name in build["targets"]["wheel"]["force-include"]]
    imported = {
        (path.parent / name).resolve()
        for path in SCRIPTS
        if any(path.is_relative_to(root) for root in shipped)
        for name in re.findall(r'^(?:import|export|\}) .*?from "(\..+?)"', path.read_text(), re.M)
    }
    assert len(imported) > 30
    assert [p for p in imported if not any(p.is_relative_to(root) for root in shipped)] == []


def test_what_the_server_writes_needs_no_style_that_comes_with_a_later_script():
    """Its elements are there before that script is fetched, if it ever is."""
    python = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "components").rglob("*.py")
    )
    for script in {*static_routes.LATER.values()}:
        css = script.with_suffix(".css")
        names = set(
            re.findall(r"\.([a-z]+-[\w-]+)", css.read_text("utf-8") if css.exists() else "")
        )
        written = {name for name in names if re.search(rf"(?<![\w-]){name}(?![\w-])", python)}
        assert written <= {"room-exhibit"}, script.name  # a room has that sheet from the start


@pytest.mark.parametrize("path", sorted(WEB.rglob("*.css")), ids=lambda path: path.stem)
def test_a_style_sheet_has_one_rule_a_line(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        assert len(line) <= 120, line
        assert not re.search(r"^\S.*\} [^}/@]+\{", line), f"two rules: {line}"
