"""Write each notebook's source, plain Python in the percent format, as a notebook for Jupyter.

python -m notebooks
"""

import argparse
import json
import re
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("__"))


def cells_of(source: str) -> list[tuple[str, str]]:
    """The cells of a source in order, each "markdown" or "code" with its text."""
    parts = re.split(r"^# %%(.*)\n", source, flags=re.MULTILINE)[1:]
    found = []
    for head, text in zip(parts[::2], parts[1::2], strict=True):
        kind = "markdown" if "markdown" in head else "code"
        if kind == "markdown":
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        found.append((kind, text.strip()))
    return found


def notebook_of(source: str) -> str:
    """The notebook of a source: no outputs, and ids that follow the order."""
    cells = []
    for k, (kind, text) in enumerate(cells_of(source)):
        more = {"execution_count": None, "outputs": []} if kind == "code" else {}
        lines = text.splitlines(keepends=True)
        cells.append({"cell_type": kind, "id": f"{k}", "metadata": {}, "source": lines, **more})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for path in SOURCES:
        made = path.with_suffix(".ipynb")
        made.write_text(notebook_of(path.read_text("utf-8")), encoding="utf-8")
        print(made)
