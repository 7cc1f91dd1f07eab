"""How speed depends on chains, response length and prompt length, and what bit-exactness costs.

    python -m benchmarks.growth [--size embedded] [--seconds 5]

Tokens and steps a CPU second, prompt and reward model included. "Shapes held constant" is what the
engine does on a machine where results would otherwise depend on the load: every step has all rows
and attends to the whole window. Bookkeeping is the time spent on finding and copying kept keys and
values, a part of all CPU time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import chains
from benchmarks.baselines import PROMPT
from qalign_core.run import Sampling

ENDLESS: frozenset[int] = frozenset()


class Stopwatch:
    """CPU time of one thread within some methods, counted once however they call one another."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def watch(self, owner: Any, *names: str) -> None:
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = time.thread_time()
            self._depth += 1
            try:
                return method(*arguments)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.thread_time() - start

        return timed


def row(what: str, measured: chains.Measured, baseline: float | None = None) -> float:
    """Print a row; returns tokens a CPU second."""
    steps, rate = measured.steps / measured.seconds, measured.tokens / measured.seconds
    relative = f"{rate / baseline:.2f}" if baseline else "1"
    print(f"| {what} | {steps:.3g} | {rate:.4g} | {relative} |", flush=True)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="embedded", choices=chains.SECONDS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of CPU time a row")
    parser.add_argument("--folder", type=Path, help="keeps the models of random weights")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        lm, rm = chains.load_pair(options.size, folder, 16, window=512)
        eos = lm.engine.eos

        def run(n_chains: int = 16, prompt: str = PROMPT, model: Any = None) -> chains.Measured:
            return chains.run_engine(model or lm, rm, n_chains, options.seconds, 0, prompt)

        run()  # the first products are slow
        print("| 16 rows | steps | tokens | relative |\n|---|---|---|---|")
        alone = None
        for n_chains in (1, 2, 4, 8, 16, 32, 64):
            rate = row(f"chains: {n_chains}", run(n_chains), alone)
            alone = alone or rate
        lm.engine.eos, first = ENDLESS, None
        for length in (32, 64, 128, 256):
            model = lm.with_sampling(Sampling(max_new_tokens=length))
            rate = row(f"responses of {length}", run(model=model), first)
            first = first or rate
        lm.engine.eos, first = eos, None
        for times in (1, 2, 4):
            prompt = " ".join([PROMPT] * times)
            rate = row(f"prompt of {len(lm.encode(prompt))}", run(prompt=prompt), first)
            first = first or rate

        net = lm.engine.net
        for n_chains in (1, 16):
            net.fixed = False
            free = row(f"chains: {n_chains}, shapes by load", run(n_chains))
            net.fixed = True
            row(f"chains: {n_chains}, shapes held constant", run(n_chains), free)
        net.fixed = False
        watches = []
        for worker in (lm.engine, rm.worker):
            watch = Stopwatch()  # the two models have a thread each
            watch.watch(worker.cache, "match", "read", "reserve", "write")
            watch.watch(worker.net, "copy_in", "copy_out")
            watches.append(watch)
        measured = run()
        spent = sum(watch.seconds for watch in watches)
        print(f"\nbookkeeping of keys and values: {spent / measured.seconds:.2%} of the CPU time")
        for model in (lm, rm):
            model.close()


if __name__ == "__main__":
    main()
