"""Agreement with Math-Verify on the hand-labelled tables: `python -m benchmarks.answers`.

For each table: how often the product and Math-Verify agree with the labels, and every row on which
the two differ, with the note of the table where there is one.
"""

import argparse
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from math_verify import StringExtractionConfig, parse, verify

from qalign_core.decide.answers.equality import same_answer
from qalign_core.decide.answers.graders import get_grader

TESTS = Path(__file__).resolve().parent.parent / "tests"


@dataclass(frozen=True)
class Row:
    """A labelled row: what was compared, whether it is right, and the two verdicts."""

    text: str
    label: bool
    product: bool
    reference: bool
    note: str = ""


def read_table(name: str) -> list[list[str]]:
    """The rows of a table of the tests, without its heading."""
    lines = (TESTS / name).read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t") for line in lines]


def compare_pairs() -> list[Row]:
    """Compare the reference and the answer of each pair."""
    return [
        Row(
            f"{reference}  |  {answer}",
            label == "yes",
            same_answer(answer, reference),
            verify(parse(f"${reference}$"), parse(f"${answer}$")),
            note,
        )
        for reference, answer, label, note in read_table("equality_cases.tsv")
    ]


def compare_responses() -> list[Row]:
    """Compare what is read of each response with its label; letters are read as letters.

    Math-Verify reads no words and no amounts, so those responses are left out.
    """
    letters = [StringExtractionConfig(strings=tuple("ABCDEFGHIJ"))]
    rows = []
    for extractor, text, label in read_table("response_cases.tsv"):
        if extractor not in ("number", "boxed", "choice"):
            continue
        response = text.replace("⏎", "\n")
        configs = {"extraction_config": letters} if extractor == "choice" else {}
        reading = parse(response, **configs)
        gold = parse(label if extractor == "choice" else f"${label}$", **configs) if label else []
        answer = get_grader(extractor).extract(response)
        rows.append(
            Row(
                f"{extractor}: {text}",
                True,
                answer == (label or None),
                verify(gold, reading) if label else not reading,
                f"{label or 'no answer'}; Math-Verify: {reading[-1] if reading else 'no answer'}",
            )
        )
    return rows


TABLES: dict[str, Callable[[], list[Row]]] = {
    "pairs": compare_pairs,
    "responses": compare_responses,
}


def print_agreement(title: str, rows: Sequence[Row]) -> None:
    """Print the counts of a table, and the rows on which the two differ."""
    n = len(rows)
    print(f"{title}: {n} rows")
    print(f"  product agrees with the label      {sum(r.product == r.label for r in rows):>4}")
    print(f"  Math-Verify agrees with the label  {sum(r.reference == r.label for r in rows):>4}")
    print(f"  the two agree                      {sum(r.product == r.reference for r in rows):>4}")
    print("  they differ on (label, product, Math-Verify):")
    for row in rows:
        if row.product != row.reference:
            verdicts = " ".join(
                "yes" if v else "no " for v in (row.label, row.product, row.reference)
            )
            print(f"    {verdicts}  {row.text}" + (f"    ({row.note})" if row.note else ""))
    print()


def main() -> None:
    """Print the agreement on each table, or on one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", choices=TABLES, help="default: both")
    table = parser.parse_args().table
    logging.disable(logging.WARNING)  # Math-Verify logs each text that it cannot read
    for name in [table] if table else TABLES:
        print_agreement(name, TABLES[name]())


if __name__ == "__main__":
    main()
