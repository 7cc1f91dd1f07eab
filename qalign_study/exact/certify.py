"""Certify that chains of a move sample their target, for texts of every length up to a limit.

    >>> certify("suffix+block(:)", limit=64).faults
    ()

Short texts are enumerated, long ones compared in pairs. A part of a user's file that ran in
neither is named, because nothing is known about it.
"""

import inspect
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from qalign_core.chain.moves.mixture import move_of
from qalign_core.errors import InvalidSetting
from qalign_core.move_spec import parse_moves
from qalign_core.registry import load_move
from qalign_core.types import Response
from qalign_core.validation import short_repr
from qalign_study.exact.bench import REACHED, TARGETS, InWorld, in_world, prefers_b, worlds
from qalign_study.exact.exercised import Exercised
from qalign_study.exact.pairs import LongTexts, Pairs, compare_pairs

MAX_LENGTH = 1024
"""Tokens of the longest texts that are compared, whatever the limit of a run."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The findings about a move.

    Attributes:
        worlds: the move in each exact world.
        pairs: the move between long texts.
        faults: why chains of it may not sample the target, one phrase each; empty if they do.
    """

    worlds: tuple[InWorld, ...]
    pairs: Pairs
    faults: tuple[str, ...]

    @property
    def lengths(self) -> tuple[int, int]:
        """The shortest and the longest text that was checked, in tokens."""
        ranges = [*(world.lengths for world in self.worlds)]
        ranges += [self.pairs.lengths] if self.pairs.n else []
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    @property
    def verdict(self) -> str:
        """The result in a few words: certified for which lengths, or why not."""
        low, high = self.lengths
        if self.faults:
            return f"not certified: {'; '.join(self.faults)}"
        return f"certified for texts of {low} to {high} tokens"


def certify(move: str, *, limit: int) -> Certificate:
    """Check a move, or a mix, in the exact worlds and between long texts; ":" ends its blocks.

    Moves of the user's own files are loaded, watched for parts that never run, and note the result.

    Args:
        move: a setting such as "suffix+block(:)" or "mine.py:Mine".
        limit: tokens of the longest texts.

    Raises:
        ModelLoadError, InvalidSetting: there is no such move, or it cannot be replayed.
    """
    parts = tuple(replace(part, delimiter=":") for part in parse_moves(move))
    own = [load_move(part.name) for part in parts if part.is_own]
    watch = Exercised([each.move.propose for each in own])
    long = LongTexts(min(limit, MAX_LENGTH), [mark for each in own for mark in _marks(each.move)])
    try:
        with watch if own else nullcontext():
            in_worlds = tuple(in_world(lm, move_of(parts, lm)) for lm in worlds())
            pairs = compare_pairs(long, move_of(parts, long), TARGETS, prefers_b)
    except InvalidSetting as error:
        raise InvalidSetting(str(error) if move in str(error) else f"{move}: {error}") from error
    faults = [
        f"balance fails in {world.world}, worst pair: {_both(world.worst)}"
        for world in in_worlds
        if not world.is_exact
    ]
    if pairs.worst is not None and not pairs.is_exact:
        faults.append(f"balance fails in {long.id}, worst pair: {_both(pairs.worst)}")
    if not pairs.n:
        faults.append(f"it refuses all proposals in {long.id}")
    if any(world.is_exact and world.distance > REACHED for world in in_worlds):
        faults.append("it cannot reach every response; mix it with suffix")
    faults += [f"no text of the worlds runs {part}" for part in watch.missing()]
    result = Certificate(in_worlds, pairs, tuple(faults))
    for each in own:
        each.note = f"the move {move} is {result.verdict}"
    return result


def _both(pair: tuple[Response, Response]) -> str:
    return " and ".join(
        f"{short_repr(y.text + '…' * (not y.finished), 60)} ({len(y)} tokens)" for y in pair
    )


def _marks(move: Any) -> list[str]:
    """The short texts that an own move mentions, which long texts then contain."""
    code = [inspect.unwrap(move.propose).__code__]
    values = [*vars(type(move)).values(), *getattr(move, "__dict__", {}).values()]
    while code:
        constants = code.pop().co_consts
        code += [each for each in constants if isinstance(each, CodeType)]
        values += constants
    return sorted({each for each in values if isinstance(each, str) and 0 < len(each) <= 20})
