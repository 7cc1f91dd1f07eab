"""Randomness is addressed, not consumed: a number depends on its address and on nothing else.

The uniform for (seed, chain, t, role) is the same however many chains run, in whatever batch, and
for however many users; so any step replays alone, and a link with a seed
repeats a run: bit for bit on one machine, up to the last bits of rewards on another.
"""

import hashlib
from dataclasses import dataclass


def derive_seed(seed: int, chain: int, t: int, role: str) -> int:
    """64 random bits for one address (BLAKE2b of the address, RFC 7693)."""
    address = f"{seed}/{chain}/{t}/{role}".encode()
    return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest(), "big")


def uniform(seed: int, chain: int, t: int, role: str) -> float:
    """The uniform number in [0, 1) at one address, a multiple of 2^-53."""
    return (derive_seed(seed, chain, t, role) >> 11) * 2.0**-53


@dataclass(frozen=True, slots=True)
class StepAddress:
    """The address of a step: number t of a chain of a run with this seed."""

    seed: int
    chain: int
    t: int

    def derive(self, role: str) -> int:
        """64 random bits for one use in this step."""
        return derive_seed(self.seed, self.chain, self.t, role)

    def uniform(self, role: str) -> float:
        """The uniform number in [0, 1) for one use in this step."""
        return uniform(self.seed, self.chain, self.t, role)
