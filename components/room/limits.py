"""The limits of rooms: how many, how large, how long, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qalign_study.serve.limits import read_caps
from qalign_study.serve.refusal import HTTPRefusal


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of the rooms of a server.

    Attributes:
        rooms: at one time.
        members: of a room.
        server_chains: members of a room whose chains the server draws; the others' browsers do.
        steps: proposals of a member's chain.
        pace: the fewest seconds between two steps of a chain, so that a class can follow.
        text: the most characters of a problem.
        life: seconds after which any room is over.
        alone: seconds after which an empty room is over.
        away: seconds after which, in a full room, the place of an absent member is freed.
        rate, burst: requests per second that one token may send, and at once.
    """

    rooms: int = 8
    members: int = 1000
    server_chains: int = 100
    steps: int = 60
    pace: float = 0.45
    text: int = 600
    life: float = 3 * 3600.0
    alone: float = 900.0
    away: float = 60.0
    rate: float = 4.0
    burst: int = 20

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Caps:
        """The defaults, with `QALIGN_MAX_ROOMS` (0 for none) and `QALIGN_MAX_MEMBERS` instead.

        Raises:
            InvalidSetting: one of them is not a whole number.
        """
        return cls(**read_caps(environment, ("rooms", "members"), minimum=0))


class Bucket:
    """A rate limit: a bucket that fills by `rate` per second, up to `burst`."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate, self._burst, self._left, self._at = rate, burst, float(burst), now

    def take(self, now: float) -> None:
        """Count one request.

        Raises:
            HTTPRefusal: it is empty.
        """
        self._left = min(self._burst, self._left + self._rate * (now - self._at))
        self._at = now
        if self._left < 1:
            raise HTTPRefusal(429, "that was too much at once; wait a moment and try again")
        self._left -= 1
