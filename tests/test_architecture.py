"""Who may import whom, read off the code itself; and what an import must not load."""

from __future__ import annotations

import ast
import keyword
import re
import shutil
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from house import PACKAGES

from benchmarks.architecture import PICTURE, drawing, imports_of, name_of
from benchmarks.architecture import graph_of as graph

ROOT = Path(__file__).resolve().parent.parent

# the floors, from the ground up: a module may import from its own room and from lower floors
FLOORS = {
    "qalign_core": (
        {"errors", "assets", "context", "types"},
        {"validation", "protocols"},
        {"move_spec", "target", "messages"},
        {"chain"},
        {"run"},
        {"decide"},
        {"models"},
        {"rewards"},
        {"registry"},
        {"record"},
        {"contract"},
    ),
    "qalign_study": (
        {"export"},
        {"sets"},
        {"measure"},
        {"exact"},
        {"train"},
        {"sheet"},
        {"lessons"},
        {"serve"},
        {"commands"},
        {"__main__"},
    ),
}
HEAVY = ("torch", "transformers", "safetensors", "tokenizers", "httpx")
HEAVY_ALLOWED = ("models", "rewards", "train")
PAGES = {"watch", "compare", "lab", "results", "learn", "room"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def room_of(module: str) -> str:
    return module.split(".")[1]


def floor_of(module: str) -> int:
    for number, rooms in enumerate(FLOORS[module.split(".")[0]]):
        if room_of(module) in rooms:
            return number
    raise AssertionError(f"{module} has no floor: add it to FLOORS where it belongs")


def cycle_in(imports: dict[str, set[str]]) -> list[str]:
    """The modules of one circle of imports, the first again at the end; empty if there is none."""
    try:
        tuple(TopologicalSorter(imports).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("path", [*modules("qalign_core"), *modules("qalign_study")], ids=name_of)
def test_a_module_imports_only_from_its_own_room_and_from_lower_floors(path: Path) -> None:
    name = name_of(path)
    package = name.split(".")[0]
    imported = imports_of(path)
    foreign = {module.split(".")[0] for module in imported}
    assert not foreign & {"gradio", "plotly", "components", "app"}
    if package == "qalign_core":
        assert "qalign_study" not in foreign, f"{name} imports the study"
    if name != package:
        for module in imported:
            if module.startswith(f"{package}.") and room_of(module) != room_of(name):
                assert floor_of(module) < floor_of(name), f"{name} imports {module}"
        if room_of(name) not in HEAVY_ALLOWED:
            assert not foreign & set(HEAVY), f"{name} imports {foreign & set(HEAVY)}"


@pytest.mark.parametrize("package", ["qalign_core", "qalign_study", "components"])
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    assert cycle_in(graph(package)) == []


def test_the_import_tests_see_a_circle_within_a_room(tmp_path: Path) -> None:
    (tmp_path / "house").mkdir()
    for name, other in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        (tmp_path / "house" / f"{name}.py").write_text(f"from house import {other}\n")
    cycle = cycle_in(graph("house", tmp_path))
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"house.a", "house.b", "house.c"}


@pytest.mark.parametrize("path", modules("components"), ids=name_of)
def test_pages_do_not_import_pages(path: Path) -> None:
    name = name_of(path)
    if name != "components" and room_of(name) in PAGES:
        imported = {m for m in imports_of(path) if m.startswith("components.")}
        others = {room_of(m) for m in imported} - {room_of(name), "common", "session"}
        assert not others, f"{name} imports the pages {others}"


@pytest.mark.parametrize("path", modules("components"), ids=name_of)
def test_pages_and_panels_never_import_a_model_library(path: Path) -> None:
    foreign = {module.split(".")[0] for module in imports_of(path)}
    assert not foreign & {*HEAVY, "app"}


def test_the_import_test_sees_a_forbidden_import(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text("def f():\n    import torch\n    from gradio import Blocks\n")
    assert imports_of(file) == {"torch", "gradio", "gradio.Blocks"}
    assert floor_of("qalign_core.target") < floor_of("qalign_core.record.trace")


@pytest.mark.parametrize(
    "start",
    [
        "from qalign_study.commands import read; read(['run'])",
        "import app; app.build_app()",
    ],
)
def test_neither_a_command_nor_the_page_loads_at_its_start_what_only_a_run_needs(
    start: str,
) -> None:
    slow = ("torch", "transformers", "scipy.stats", "sklearn", "sympy", "vaderSentiment")
    slow += ("rouge_score", "arviz_base") + ("pandas",) * ("app" not in start)  # Gradio loads it
    code = f"{start}; import sys; print([m for m in {slow} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_core_imports_without_the_study_gradio_plotly_and_torch() -> None:
    code = (
        "import sys; sys.modules.update("
        "dict.fromkeys(['qalign_study', 'gradio', 'plotly', 'torch', 'pandas', 'rouge_score']))\n"
        "import qalign_core; print(qalign_core.Target(1.0, 1.0))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "Target(beta=1.0, sharpness=1.0)"


def test_what_is_carried_unseen_is_in_one_place() -> None:
    """A context variable is passed by no call that one can read; `carried` describes them all."""
    packages = ("qalign_core", "qalign_study", "components")
    files = [path for package in packages for path in modules(package)]
    assert [name_of(path) for path in files if "contextvars" in imports_of(path)] == [
        "qalign_core.context"
    ]


@pytest.mark.more
def test_the_picture_of_the_architecture_is_that_of_the_imports(tmp_path: Path) -> None:
    picture = PICTURE.read_text(encoding="utf-8")
    assert picture == drawing(), "draw it again: python -m benchmarks.architecture"
    assert len(picture.encode()) < 60_000
    for package in ("qalign_core", "qalign_study", "components"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=lambda *_: ["__pycache__"])
    assert drawing(tmp_path) == picture
    more = tmp_path / "qalign_study" / "exact" / "more.py"
    more.write_text("import qalign_study.train\n")  # the control: one arrow more
    assert drawing(tmp_path) != picture


MOST_SHARED = 12
"""Lines that two places may share, whatever their names, strings and numbers."""
_NO_SHAPE = re.compile(
    r'^\s*r?"""(?:.|\n)*?"""|^from [\w.]+ import \((?:.|\n)*?^\)|^(?:from|import) .*$'
    r"|/\*(?:.|\n)*?\*/|\s*(?:#|//) .*$",
    re.MULTILINE,
)
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|`[^`\n]*`|\b\d[\w.]*')
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_WORDS = {*keyword.kwlist, "const", "let", "function", "export", "new", "this", "throw", "switch"}


def shapes_of(text: str) -> list[str]:
    """The lines of a file that hold code, with one name for all names and one value for all."""
    lines = [line.strip() for line in _NO_SHAPE.sub("", text).split("\n")]
    plain = [_STRING.sub("0", line) for line in lines if re.search(r"\w", line)]
    return [_NAME.sub(lambda m: m[0] if m[0] in _WORDS else "n", line) for line in plain]


def shared(texts: dict[str, str]) -> list[str]:
    """The places that begin more lines in a row than two places may share; tables do not count."""
    seen: dict[tuple[str, ...], tuple[str, int]] = {}
    runs, n = [], MOST_SHARED + 1
    for name, text in texts.items():
        lines = shapes_of(text)
        for k in range(len(lines) - n + 1):
            window = tuple(lines[k : k + n])
            if len(set(window)) <= n // 2:  # rows of a table are alike, and no logic
                continue
            other, at = seen.setdefault(window, (name, k))
            if other != name or k - at >= n:
                runs.append(f"{other} and {name}: {window[0]}")
    return runs


def test_no_two_places_share_more_than_twelve_lines() -> None:
    files = [path for package in (*FLOORS, "components") for path in modules(package)]
    files += sorted((ROOT / "assets").rglob("*.js"))
    assert not shared({str(path.relative_to(ROOT)): path.read_text("utf-8") for path in files})


def test_the_test_of_shared_lines_sees_a_copy_with_other_names() -> None:
    code = (ROOT / "qalign_core" / "chain" / "chain.py").read_text("utf-8")
    assert len(shapes_of(code)) > MOST_SHARED
    assert shared({"one": code, "other": code.replace("state", "former")})


def missing_imports(folder: Path) -> list[str]:
    """Names that a test below a folder imports from a module of that folder that lacks them."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")}
    missing = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                near = [place / f"{node.module}.py" for place in (path.parent, folder)]
                module = next((each for each in near if each in trees), None)
                if module is not None:
                    names = {alias.name for alias in node.names} - bound_names(trees[module])
                    missing += [f"{path.name}: {node.module}.{name}" for name in sorted(names)]
    return missing


def bound_names(tree: ast.Module) -> set[str]:
    """The names that a module defines, assigns or imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def test_what_a_test_imports_from_another_is_there_in_those_too_that_run_apart(tmp_path: Path):
    assert missing_imports(ROOT / "tests") == []
    (tmp_path / "helpers.py").write_text("def draw(): pass\n")
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "test_it.py").write_text("from helpers import draw, sketch\n")
    assert missing_imports(tmp_path) == ["test_it.py: helpers.sketch"]


def missing_fixtures(folder: Path) -> list[str]:
    """Fixtures that a test takes and that a module below a folder, which imports it, lacks."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")}
    missing = []
    for path, tree in trees.items():
        if path.parent == folder:
            continue
        conftests = [trees.get(place / "conftest.py") for place in (path.parent, folder)]
        known = set().union(*(bound_names(each) for each in (tree, *conftests) if each))
        for node in ast.walk(tree):
            module = trees.get(folder / f"{getattr(node, 'module', None)}.py")
            for test in module.body if isinstance(node, ast.ImportFrom) and module else ():
                if test.__dict__.get("name", "").startswith("test_") and test.name in known:
                    taken = {each.arg for each in test.args.args} - BUILT_IN_FIXTURES - known
                    taken -= set(
                        re.findall(r"\w+", " ".join(map(ast.unparse, test.decorator_list)))
                    )
                    missing += [f"{path.name}: {test.name}({name})" for name in sorted(taken)]
    return missing


BUILT_IN_FIXTURES = {"request", "monkeypatch", "tmp_path", "tmp_path_factory", "capsys", "caplog"}


def test_a_test_that_runs_apart_too_finds_its_fixtures_there(tmp_path: Path):
    assert missing_fixtures(ROOT / "tests") == []
    (tmp_path / "test_law.py").write_text("def fewer(): pass\ndef test_law(lm, fewer): pass\n")
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "test_it.py").write_text("from test_law import test_law\nlm = 1\n")
    assert missing_fixtures(tmp_path) == ["test_it.py: test_law(fewer)"]


READS_OPTIONS = r"parse_args\(|write_pages\(|commands\.main\("


def test_every_script_reads_its_options_before_it_works():
    """Or its --help measures for minutes, and may write over files of the repository."""
    folders = ("benchmarks", "tools", "notebooks", *PACKAGES)
    texts = {p: p.read_text("utf-8") for each in folders for p in (ROOT / each).rglob("*.py")}
    scripts = {path for path, text in texts.items() if '__name__ == "__main__"' in text}
    deaf = {p for p in scripts if not re.search(READS_OPTIONS, texts[p])}
    assert len(scripts) > 20
    assert deaf == set()
