"""Forms of ten independent fields: a problem set for blocks, and a reward that reads the note.

    python -m benchmarks.forms --problems 60 --out forms.jsonl
    qalign evaluate --task forms.jsonl --rm benchmarks/forms.py:filled ...

A note states ten facts about a person, in an order of its own; the answer is the form with all ten.
    python -m benchmarks.forms --compare forms

The last command compares single states of the chains with best-of-n, at all that both have spent.
The reward `filled` sees no field's meaning; `valid` counts the right lines, as a validator would.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from qalign_core.errors import InvalidSetting, QAlignError, on_disk
from qalign_core.types import Array
from qalign_core.validation import check_count
from qalign_study.measure.intervals import paired_difference, share_of
from qalign_study.measure.record import Record
from qalign_study.measure.results import load_results
from qalign_study.sheet.words import brief, in_points

FIELDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "name": ("My name is {}.", ("Mara", "Tom", "Ines", "Omar", "Kate", "Leo", "Nora", "Paul")),
    "age": ("I am {} years old.", tuple(map(str, range(19, 78)))),
    "city": ("I live in {}.", ("Leeds", "Oslo", "Lima", "Cairo", "Boston", "Rome", "Delhi")),
    "job": ("I work as a {}.", ("nurse", "baker", "pilot", "teacher", "farmer", "lawyer", "clerk")),
    "pet": ("At home I keep a {}.", ("cat", "dog", "parrot", "rabbit", "turtle", "hamster")),
    "sport": ("On Sundays I play {}.", ("tennis", "golf", "chess", "hockey", "rugby", "cricket")),
    "drink": ("I mostly drink {}.", ("tea", "coffee", "water", "milk", "juice", "cocoa")),
    "color": ("My favorite color is {}.", ("red", "blue", "green", "black", "white", "purple")),
    "music": ("I listen to {}.", ("jazz", "rock", "opera", "folk", "blues", "techno")),
    "room": ("My room number is {}.", tuple(map(str, range(101, 400)))),
}
ASK = "Fill in the form ({}).\n\n{}"
N_EXAMPLES = 2
"""Forms that a prompt shows filled in, as turns of a conversation."""


def draw_form(rng: random.Random) -> tuple[str, str]:
    """A note, and its form."""
    values = {key: rng.choice(choices) for key, (_, choices) in FIELDS.items()}
    facts = [sentence.format(values[key]) for key, (sentence, _) in FIELDS.items()]
    rng.shuffle(facts)
    return " ".join(facts), "\n".join(f"{key}: {value}" for key, value in values.items())


def problem(seed: int, examples: int | None = None) -> dict[str, str]:
    """A problem: a conversation in which some forms are filled in, and one more note.

    The examples are drawn from the seed `examples` if it is given, so that problems share them.
    """
    rng = random.Random(seed)
    of_examples = rng if examples is None else random.Random(examples)
    turns = []
    for source in (*[of_examples] * N_EXAMPLES, rng):
        note, form = draw_form(source)
        turns += [{"role": "user", "content": ASK.format(", ".join(FIELDS), note)}]
        turns += [{"role": "assistant", "content": form}]
    answer = turns.pop()["content"]
    prompt = json.dumps(turns)
    return {"id": f"form-{seed}", "prompt": prompt, "answer": answer, "extractor": "text"}


def filled(prompt: str, response: str) -> float:
    """How many lines name the field that is due and give a word of the note not given before.

    It does not know which word belongs to which field.
    """
    note = json.loads(prompt)[-1]["content"].rpartition("\n\n")[2]
    words, n = {word.strip(".") for word in note.split()}, 0
    for key, line in zip(FIELDS, response.split("\n"), strict=False):
        named, _, value = line.partition(": ")
        if named == key and value in words:
            words.discard(value)
            n += 1
    return float(n)


def valid(prompt: str, response: str) -> float:
    """How many lines give the note's value for the field that is due, minus surplus lines."""
    note = json.loads(prompt)[-1]["content"].rpartition("\n\n")[2]
    lines = response.strip().split("\n")
    n = min(0, len(FIELDS) - len(lines))
    for (key, (sentence, _)), line in zip(FIELDS.items(), lines, strict=False):
        value = re.search(re.escape(sentence).replace(r"\{\}", "([^.]+)"), note)
        n += value is not None and line == f"{key}: {value[1]}"
    return float(n)


def compare(path: Path) -> None:
    """Print how often the best and the last state are right, and minus best-of-n."""
    records = load_results(path).records

    def right_of(draw: Callable[[Record], Array]) -> Array:
        return np.array([float(r.is_right(draw(r))) for r in records])

    best_of_n = right_of(lambda r: r.pool_answer[r.pool_reward.argmax()])
    print(f"{len(records)} problems, in %\nbest-of-n: {in_points(share_of(best_of_n))}")
    for name, place in {
        "best state": lambda r: r.state_of[r.chain_reward[r.state_of].argmax()],
        "last state": lambda r: r.state_of[-1],
    }.items():
        right = right_of(lambda r, place=place: r.chain_answer[place(r)])
        d = paired_difference(name, "bon", right, best_of_n, n=len(records[0].pool_reward), spent=0)
        gained, lost = ((right > best_of_n).sum(), (right < best_of_n).sum())
        print(f"{name}: {in_points(share_of(right))}")
        print(f"  minus best-of-n: {brief(d)}\n  problems gained {gained}, lost {lost}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1, help="of the first problem")
    parser.add_argument("--examples", type=int, help="seed of the examples that all problems show")
    parser.add_argument("--out", type=Path, default=Path("forms.jsonl"))
    parser.add_argument("--compare", type=Path, help="results to compare instead of drawing a set")
    options = parser.parse_args()
    if options.compare:
        compare(options.compare)
        return
    n = check_count("--problems", options.problems, 1)
    rows = [problem(options.seed + k, options.examples) for k in range(n)]
    with on_disk(options.out, "written", "give another --out", InvalidSetting):
        options.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except QAlignError as error:
        sys.exit(str(error))
