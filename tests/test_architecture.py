"""Who may import whom, read off the code itself; and what an import must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# a module may import from its own layer and from those above it
LAYERS = (
    {"types", "errors"},
    {"protocols", "formulas", "numerals"},
    {"kernel", "randomness", "decide", "answers", "utilities", "diagnostics", "cost", "problems"}
    | {"votes"},
    {"chain", "sampling", "calibrate", "trace_io", "recording", "merge", "sync", "tasks"}
    | {"compare", "compare_curves", "compare_file", "schedule"},
    {"models", "rewards", "registry", "exact", "theory"}
    | {"evaluate", "results", "results_curves", "draft"}
    | {"many"},
    {"cli", "__main__"},
)
HEAVY = ("torch", "transformers", "safetensors", "tokenizers", "httpx")
HEAVY_ALLOWED = ("models", "rewards")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, at its top or within a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


def layer_of(module: str) -> int:
    part = module.split(".")[1]
    for number, layer in enumerate(LAYERS):
        if part in layer:
            return number
    raise AssertionError(f"{module} has no layer: add it to LAYERS where it belongs")


@pytest.mark.parametrize("path", modules("qalign_core"), ids=name_of)
def test_the_core_imports_only_from_its_own_layer_and_those_above(path: Path) -> None:
    name = name_of(path)
    imported = imports_of(path)
    foreign = {module.split(".")[0] for module in imported}
    assert not foreign & {"gradio", "plotly", "components", "app", "training"}
    if name != "qalign_core":
        for module in imported:
            if module.startswith("qalign_core."):
                assert layer_of(module) <= layer_of(name), f"{name} imports {module}"
        if name.split(".")[1] not in HEAVY_ALLOWED:
            assert not foreign & set(HEAVY), f"{name} imports {foreign & set(HEAVY)}"


@pytest.mark.parametrize("path", modules("components"), ids=name_of)
def test_pages_and_panels_never_import_a_model_library(path: Path) -> None:
    foreign = {module.split(".")[0] for module in imports_of(path)}
    assert not foreign & {*HEAVY, "app", "training"}


def test_the_import_test_sees_a_forbidden_import(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text("def f():\n    import torch\n    from gradio import Blocks\n")
    assert imports_of(file) == {"torch", "gradio"}
    assert layer_of("qalign_core.kernel") < layer_of("qalign_core.chain")


@pytest.mark.parametrize("module", ["qalign_core", "app"])
def test_importing_loads_no_model_library(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY[:2]!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_core_imports_without_gradio_and_plotly() -> None:
    code = (
        "import sys; sys.modules.update(gradio=None, plotly=None, torch=None)\n"
        "import qalign_core; print(qalign_core.log_acceptance(reward_new=0.0, reward_old=1.0,"
        " len_new=1, len_old=1, beta=1.0))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "-1.0"
