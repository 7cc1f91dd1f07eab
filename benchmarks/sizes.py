"""Print the code lines of each package, and of all tests: `python -m benchmarks.sizes`.

Docstrings, comments and blank lines do not count.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("qalign_core", "qalign_study", "components")
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(path: Path) -> int:
    """The lines of a Python file that hold code."""
    source = path.read_text(encoding="utf-8")
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                documented |= {*range(child.lineno, (child.end_lineno or child.lineno) + 1)}
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            held |= {*range(token.start[0], token.end[0] + 1)}
    return len(held - documented)


def sizes() -> dict[str, Counter[str]]:
    """Code lines by package, and in each by subpackage or module."""
    counts: dict[str, Counter[str]] = {}
    for package in PACKAGES:
        counts[package] = Counter()
        for path in sorted((ROOT / package).rglob("*.py")):
            counts[package][path.relative_to(ROOT / package).parts[0]] += code_lines(path)
    return counts


def main() -> None:
    """Print a line per package and one per part of it, their sum, and a line for the tests."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for package, parts in sizes().items():
        print(f"{package:<20}{sum(parts.values()):>7,}")
        for part, n in parts.most_common():
            print(f"  {part:<18}{n:>7,}")
    print(f"{'all':<20}{sum(sum(parts.values()) for parts in sizes().values()):>7,}")
    print(f"{'tests':<20}{sum(map(code_lines, (ROOT / 'tests').rglob('*.py'))):>7,}")


if __name__ == "__main__":
    main()
