"""New problems of the kinds that the embedded models know."""

import random
from collections.abc import Iterable

from qalign_study.sets.generated import ProblemKind, generate_problem, generate_writing_task
from qalign_study.sets.inventory import generate_inventory

KINDS = {
    "Short: two or three events": "in_distribution",
    "Unfamiliar: more events, other wording": "shifted",
    "Long: six events or more": "long",
    "Inventory: twelve steps, all of them needed": "inventory",
    "Writing: words and sentences to use": "writing",
}


def list_kinds(sets: Iterable[str]) -> list[tuple[str, str]]:
    """Return titles and values of the kinds of problems: the operator's own sets are last."""
    return [*KINDS.items(), *((f"Set: {name}", name) for name in sets)]


def new_problem(kind: str, rng: random.Random | None = None) -> tuple[str, str]:
    """A problem that no embedded model was trained on: its text and known answer ("" if none)."""
    rng = rng or random.Random()
    if kind == "writing":
        return generate_writing_task(rng).prompt, ""
    if kind == "inventory":
        inventory = generate_inventory(rng)
        return inventory.prompt, inventory.answer
    kinds: dict[str, ProblemKind] = {"shifted": "shifted", "long": "long"}
    problem = generate_problem(rng, kinds.get(kind, "in_distribution"))
    return problem.prompt, problem.answer
