"""How many threads the layers of an exact net use: one, or two while these are faster.

    for layer in governor.spread(layers):  # sets the threads of each layer
        x = layer(x)

A net of whole numbers has the same bits with any number of threads, so the number may follow the
load of the machine, even from one layer to the next. Measured with SmolLM2-135M on two cores: 32
steps of Watch took 20 s with one thread and 15 s with two. Next to other programs, the two threads
wait for each other in every product, and a step takes up to 35 times as long as with one thread.
A step cannot be stopped, but a layer costs little: so both numbers are tried within one step.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import torch

from qalign_core.models.local.worker import torch_threads

Layer = TypeVar("Layer")

GAIN = 0.9  # two threads are used while they take at most this share of one thread's time
SLOW = 3  # times as long as one thread: two such layers in a row end the use of two threads
LONGEST_WAIT = {1: 256, 2: 32}  # steps between two tries while so many threads are faster


class Governor:
    """Chooses between one and two threads by trying both in alternate layers of one step.

    Args:
        clock: seconds, monotonic.

    Attributes:
        n_threads: what is faster now.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.n_threads = 1
        self._wait = self._left = 1  # steps until the next try

    def spread(self, layers: Sequence[Layer]) -> Iterator[Layer]:
        """Yield the layers of one step, each after setting the threads that it uses."""
        if torch.get_num_threads() > 1 or n_cores() < 2 or len(layers) < 4:
            yield from layers  # the caller has chosen, or there is no choice or nothing to compare
            return
        self._left -= 1
        is_trial = self._left < 0
        times, single, n_slow = [0.0, 0.0], 0.0, 0
        with torch_threads(1):
            for i, layer in enumerate(layers):
                n = 1 + i % 2 if is_trial else min(self.n_threads, i + 1)
                torch.set_num_threads(n)
                start = self._clock()
                yield layer
                seconds = self._clock() - start
                if n == 1:
                    single = seconds
                    continue
                n_slow = n_slow + 1 if seconds > SLOW * single else 0
                if n_slow == 2:
                    is_trial = False
                    self._choose(1)
                elif is_trial and i > 1:  # the first two may have to wake a thread
                    times[0] += single
                    times[1] += seconds
        if is_trial:
            self._choose(2 if times[1] < GAIN * times[0] else 1)

    def threads(self) -> AbstractContextManager[None]:
        """Let torch use the threads that are faster now, or those that the caller has chosen."""
        return torch_threads(max(self.n_threads, torch.get_num_threads()))

    def _choose(self, n_threads: int) -> None:
        same = n_threads == self.n_threads
        self._wait = min(4 * self._wait, LONGEST_WAIT[n_threads]) if same else 2
        self._left, self.n_threads = self._wait, n_threads


def n_cores() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
