"""Generated inventories: several things counted at once, the answer all of their amounts.

Each thing has a start and two events, and each event is one decision of a solution: to see what it
does to the amount. The answer is right only if all of them are, so a right one is rare among
independent samples; and it is never hit by luck, since no pattern of the usual mistakes gives a
thing its right amount. Held out as the problems of `qalign_study.sets.generated` are.
"""

import random
from dataclasses import dataclass
from itertools import product

from qalign_study.sets.generated import (
    LARGEST,
    Event,
    EventKind,
    Split,
    contradict,
    draw_event,
    draw_split,
    draw_words,
    phrase,
)

N_THINGS = 6
EVENTS_A_THING = 2
# In the order in which every inventory names them: alphabetical, as a list of stock would be.
STOCK = (
    "apples", "beads", "candles", "cards", "coins", "cookies", "eggs", "nuts", "plums", "stamps",
)  # fmt: skip
_WEIGHTS: dict[EventKind, float] = {
    "gain": 0.25, "loss": 0.25, "boxes": 1.6, "days": 0.6, "times": 0.5, "half": 3.0,
    "distractor": 1.3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """One thing of an inventory: how many there are at the start, and what happens to them."""

    things: str
    start: int
    events: tuple[Event, ...]

    def amounts(self, mistaken: tuple[bool, ...] = (False,) * EVENTS_A_THING) -> list[int]:
        """The amount after each event, with the usual mistake where `mistaken` says so."""
        amount, amounts = self.start, list[int]()
        for event, is_mistaken in zip(self.events, mistaken, strict=True):
            amount = event.mistake(amount) if is_mistaken else event.apply(amount)
            amounts.append(amount)
        return amounts


@dataclass(frozen=True, slots=True)
class Inventory:
    """An inventory and its answer, "7 apples, 20 plums"; `words` are the names and pronouns."""

    prompt: str
    parts: tuple[Part, ...]
    words: dict[str, str]

    @property
    def answer(self) -> str:
        """Every amount and what it counts, as the extractor "amounts" reads them."""
        return ", ".join(f"{part.amounts()[-1]} {part.things}" for part in self.parts)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all things in order: the decisions of a solution."""
        return tuple(event for part in self.parts for event in part.events)

    @property
    def key(self) -> str:
        """The content that makes two inventories the same one, whatever their wording."""
        return "inventory|" + "|".join(
            ";".join([str(part.start), *(f"{e.kind}:{e.a}:{e.b}" for e in part.events)])
            for part in self.parts
        )


def generate_inventory(
    rng: random.Random, n_things: int = N_THINGS, *, split: Split = "held_out"
) -> Inventory:
    """Draw an inventory.

    Args:
        rng: the source of randomness; the same state gives the same inventory.
        n_things: how many things are counted; each brings two decisions.
        split: "held_out" for inventories that no embedded model was trained on, "train" for the
            rest.
    """
    return draw_split(lambda: _draw_inventory(rng, n_things), split)


def _draw_inventory(rng: random.Random, n_things: int) -> Inventory:
    words = draw_words(rng)
    while True:
        parts, sentences = list[Part](), list[str]()
        for things in sorted(rng.sample(STOCK, n_things)):
            part = _draw_part(rng, things)
            slots = words | {"things": things}
            events = tuple(phrase(rng, "in_distribution", event, slots) for event in part.events)
            parts.append(Part(things, part.start, events))
            who = words["He"] if sentences else words["name"]
            sentences += [f"{who} has {part.start} {things}.", *(event.text for event in events)]
        if not contradict(event for part in parts for event in part.events):
            question = f"How many of each does {words['name']} have now?"
            return Inventory(" ".join([*sentences, question]), tuple(parts), words)


def _draw_part(rng: random.Random, things: str) -> Part:
    while True:
        events = tuple(draw_event(rng, _WEIGHTS) for _ in range(EVENTS_A_THING))
        part = Part(things, rng.randint(6, 30), events)
        if _every_mistake_shows(part):
            return part


def _every_mistake_shows(part: Part) -> bool:
    """True if amounts stay whole and in range whatever is mistaken, and no mistake is hidden."""
    if all(event.kind == "distractor" for event in part.events):
        return False
    last = list[int]()
    for mistaken in product((False, True), repeat=EVENTS_A_THING):
        amounts = part.amounts(mistaken)
        before = [part.start, *amounts]
        if not all(2 <= amount <= LARGEST for amount in amounts):
            return False
        for event, v in zip(part.events, before, strict=False):
            # "half of 4" less 2 is 2 as well; then a mistake would be no mistake
            if (event.kind == "half" and v % 2) or event.apply(v) == event.mistake(v):
                return False
        last.append(amounts[-1])
    return last[0] not in last[1:]
