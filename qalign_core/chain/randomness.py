"""Addressed randomness: a random number depends on its address and on nothing else.

The number at (seed, chain, t, role) does not depend on how many chains run, on the batch or on
other users. Any step can therefore be replayed alone, and a run can be drawn again from its seed:
bit for bit on the same machine. On another, rewards may differ in their last bits, which changes a
verdict only if the coin is that close to alpha.

    >>> address = StepAddress(seed=7, chain=0, t=3)
    >>> address.derive_uniform("accept") == derive_uniform(7, 0, 3, "accept")
    True
    >>> address.derive_uniform("accept") == address.derive_uniform("index")
    False
"""

import hashlib
from dataclasses import dataclass


def derive_seed(seed: int, chain: int, t: int, role: str) -> int:
    """Return 64 random bits for one address (BLAKE2b of the address, RFC 7693)."""
    address = f"{seed}/{chain}/{t}/{role}".encode()
    return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest(), "big")


def derive_uniform(seed: int, chain: int, t: int, role: str) -> float:
    """Return the uniform number in [0, 1) at one address, a multiple of 2^-53."""
    return (derive_seed(seed, chain, t, role) >> 11) * 2.0**-53


@dataclass(frozen=True, slots=True)
class StepAddress:
    """The address of a step: seed of the run, number of the chain, number t of the step."""

    seed: int
    chain: int
    t: int

    def derive(self, role: str) -> int:
        """Return 64 random bits for one role in this step."""
        return derive_seed(self.seed, self.chain, self.t, role)

    def derive_uniform(self, role: str) -> float:
        """Return the uniform number in [0, 1) for one role in this step."""
        return derive_uniform(self.seed, self.chain, self.t, role)
