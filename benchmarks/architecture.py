"""Draw the packages, their parts and imports: `python -m benchmarks.architecture`.

It writes `assets/architecture.svg`, with arrows from the imports in the code. An arrow that follows
from others is left out.
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "assets" / "architecture.svg"
PACKAGES = {
    "qalign_study": "the study: problem sets, measures, commands",
    "qalign_core": "the engine: runs chains",
}
BASE = "types, run, …"
"""The single modules below all subpackages, as one box."""
BOX, GAP, ROW, HEAD, EDGE = (116, 38), 20, 74, 62, 22
STYLE = """
svg { --ink: #1d2430; --grey: #4c5159; --line: #6b7280; --page: #ffffff; --panel: #f1f4f9;
  --box: #ffffff; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #f2f5fa; --grey: #a9adb5; --line: #8b93a1; --page: #0f141d; --panel: #171e2a;
    --box: #222c3c; } }
text { font: 14px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: var(--ink); }
.title { font-weight: 600; font-size: 17px; } .says { font-size: 13px; fill: var(--grey); }
.page { fill: var(--page); } .panel { fill: var(--panel); }
.box { fill: var(--box); stroke: var(--line); }
.arrow { stroke: var(--line); fill: none; marker-end: url(#head); }
.head { fill: var(--line); }
"""

Graph = dict[str, set[str]]


def name_of(path: Path, root: Path = ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, at its top or within a function."""
    imports = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            imports |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return imports


def graph_of(package: str, root: Path = ROOT) -> Graph:
    """Every module of a package with the modules of it that it imports."""
    paths = {name_of(path, root): path for path in sorted((root / package).rglob("*.py"))}
    return {name: {m for m in imports_of(path) if m in paths} for name, path in paths.items()}


def parts_of(package: str, root: Path = ROOT) -> Graph:
    """The subpackages of a package, and the single modules that import one, with what they import.

    Single modules that import no subpackage are one part, `BASE`.
    """
    parts: Graph = {}
    for name, imported in graph_of(package, root).items():
        if "." in name:
            part = name.split(".")[1]
            parts.setdefault(part, set()).update(m.split(".")[1] for m in imported if "." in m)
    rooms = {part for part in parts if (root / package / part).is_dir()}
    kept = {part for part in parts if part in rooms or parts[part] & rooms} - {"__main__"}
    arrows = {p: {m if m in kept else BASE for m in parts[p]} - {p} for p in sorted(kept)}
    return arrows | ({BASE: set()} if any(BASE in below for below in arrows.values()) else {})


def reach(graph: Graph, part: str) -> set[str]:
    """All parts that a part imports, directly or by way of others."""
    return graph[part].union(*(reach(graph, below) for below in graph[part]))


def reduced(graph: Graph) -> Graph:
    """The graph without the arrows that follow from others."""
    return {
        part: {m for m in below if not any(m in reach(graph, other) for other in below)}
        for part, below in graph.items()
    }


def rows(graph: Graph) -> list[list[str]]:
    """The parts from the top: below all that import them, those with long arrows last."""
    depth = dict.fromkeys(graph, 0)
    for _ in graph:
        for part, below in graph.items():
            depth |= {m: max(depth[m], depth[part] + 1) for m in below}
    span = {p: max((depth[m] - depth[p] for m in below), default=0) for p, below in graph.items()}
    order = sorted(graph, key=lambda part: (span[part], part))
    return [[p for p in order if depth[p] == k] for k in range(max(depth.values()) + 1)]


def panel(package: str, graph: Graph, x: float, y: float, width: float, height: float) -> list[str]:
    """One package: its boxes in rows from the top, and the arrows between them."""
    graph = reduced(graph)
    (wide, high), box_rows = BOX, rows(graph)
    at = {
        part: (x + GAP + k * (wide + GAP), y + HEAD + n * ROW)
        for n, row in enumerate(box_rows)
        for k, part in enumerate(row)
    }
    elements = [
        f'<rect class="panel" x="{x}" y="{y}" width="{width}" height="{height}" rx="10"/>',
        f'<text class="title" x="{x + GAP}" y="{y + 27}">{package}</text>',
        f'<text class="says" x="{x + GAP}" y="{y + 47}">{PACKAGES[package]}</text>',
    ]
    for part in graph:
        for other in sorted(graph[part]):
            (x1, y1), (x2, y2) = at[part], at[other]
            turn, middle = y2 - (ROW - high), y2 - (ROW - high) / 2
            elements.append(
                f'<path class="arrow" d="M{x1 + wide / 2:g} {y1 + high} V{turn} '
                f"C{x1 + wide / 2:g} {middle:g} {x2 + wide / 2:g} {middle:g} "
                f'{x2 + wide / 2:g} {y2 - 6}"/>'
            )
    for part, (left, top) in at.items():
        elements += [
            f'<rect class="box" x="{left}" y="{top}" width="{wide}" height="{high}" rx="6"/>',
            f'<text x="{left + wide / 2:g}" y="{top + 24}" text-anchor="middle">{part}</text>',
        ]
    return elements


def drawing(root: Path = ROOT) -> str:
    """The picture as SVG."""
    graphs = {package: parts_of(package, root) for package in PACKAGES}
    height = HEAD + ROW * max(len(rows(graph)) for graph in graphs.values()) - 16
    pages = sorted(parts_of("components", root).keys() - {BASE, "common", "session"})
    pages = [page for page in pages if (root / "components" / page).is_dir()]
    lines, x, y = [], EDGE, EDGE + 62 + 34
    ends = []
    for package, graph in graphs.items():
        width = 2 * GAP + max(map(len, rows(graph))) * (BOX[0] + GAP) - GAP
        lines += panel(package, graph, x, y, width, height)
        ends.append((x, x + width))
        x += width + 44
    (_, right), (left, far) = ends
    lines += [
        f'<rect class="panel" x="{EDGE}" y="{EDGE}" width="{far - EDGE}" height="62" rx="10"/>',
        f'<text class="title" x="{EDGE + GAP}" y="{EDGE + 27}">app.py and components</text>',
        f'<text class="says" x="{EDGE + GAP}" y="{EDGE + 47}">the pages: {", ".join(pages)}</text>',
        f'<path class="arrow" d="M{right} {y + 30} H{left - 8}"/>',
    ]
    for start, end in ends:
        lines.append(f'<path class="arrow" d="M{(start + end) // 2} {EDGE + 62} V{y - 8}"/>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {far + EDGE} {y + height + 44}" '
            'role="img" aria-label="The packages and their parts; an arrow means: imports">',
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto">'
            '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            f'<rect class="page" width="{far + EDGE}" height="{y + height + 44}"/>',
            *lines,
            f'<text class="says" x="{EDGE}" y="{y + height + 28}">An arrow means “imports”. '
            "Arrows that follow from others are left out.</text>",
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    PICTURE.write_text(drawing(), encoding="utf-8")
    print(PICTURE)
