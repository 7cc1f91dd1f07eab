"""Chain steps per second and their cost in multiples of the GEMV limit, side by side in one run.

    python -m benchmarks.chains [--sizes embedded 20M 135M] [--published ENV/bin/python]
    python -m benchmarks.chains --device cuda --sizes 20M 135M --rows 8 64 256

Systems take turns, each for so many seconds a round: of CPU time, so that a busy machine slows all
alike; with a GPU, of the clock. On a CPU, large models run in int8 too, with their speed and memory
relative to float32 below the table. "Limit" is the time of the bare chain of all linear layers for
one token. The published chain runs on the CPU and needs an environment of its own:

    python -m venv ENV; ENV/bin/pip install torch==2.13.0 transformers==5.23.0 numpy scipy tqdm
    ENV/bin/pip install --no-deps quest-decoding==1.0.16
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import mmap
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.baselines import LIMIT, PROMPT, Pair, lockstep, pair_folders, seconds
from qalign_core.chain.concurrent import run_chains
from qalign_core.models.local.engine import HFLanguageModel
from qalign_core.rewards.classifier import HFRewardModel
from qalign_core.run import Sampling

SECONDS = {"embedded": 10.0, "20M": 30.0, "135M": 45.0}  # a system and round
N_LOCKSTEP = 8
INT8 = " in int8"
ROWS = {8: (1, 8, 16), 16: (16, 32), 64: (64,), 256: (256,)}
"""Numbers of chains for an engine with so many rows."""


@dataclass
class Measured:
    """A system's work in some seconds (`baselines.seconds`): chain steps and new tokens."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, other: Measured) -> None:
        self.steps += other.steps
        self.tokens += other.tokens
        self.seconds += other.seconds


@contextmanager
def clock(measured: Measured, device: str) -> Iterator[Callable[[], float]]:
    """Write the seconds that pass into `measured`; yields a function for those so far."""
    start = seconds(device)
    yield lambda: seconds(device) - start
    measured.seconds = seconds(device) - start


def run_baseline(pair: Pair, n_chains: int, limit: float, seed: int) -> Measured:
    measured = Measured()
    with clock(measured, pair.device) as spent:
        for tokens in lockstep(pair, n_chains, seed):
            measured.add(Measured(n_chains, tokens))
            if spent() > limit:
                break
    return measured


def run_engine(
    lm: Any, rm: Any, n_chains: int, limit: float, seed: int, prompt: str = PROMPT
) -> Measured:
    return asyncio.run(_run_engine(lm, rm, n_chains, limit, seed, prompt))


async def _run_engine(
    lm: Any, rm: Any, n_chains: int, limit: float, seed: int, prompt: str
) -> Measured:
    """Chains that go on until the time is over: no row runs dry before.

    The tokens of steps count: neither those of proposals that the end cuts off, nor those of early
    draws that no step needs.
    """
    measured, endless = Measured(), 10**9
    steps = run_chains(lm, rm, prompt, n_chains=n_chains, beta=1.0, steps=endless, seed=seed)
    with clock(measured, lm.engine.net.device.type) as spent:
        async with aclosing(steps):
            async for step in steps:
                measured.add(Measured(1, step.cost.generated))
                if spent() > limit:
                    break
    return measured


class Published:
    """The published chain in its own environment, one round at a time."""

    def __init__(self, python: str, size: str, folder: Path) -> None:
        command = [python, "-m", "benchmarks.published", size, str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, n_chains: int, limit: float, seed: int) -> Measured:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(n_chains, limit, seed, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the published chain ended early: does ENV hold what --help says?")
        return Measured(**json.loads(line))

    def close(self) -> None:
        self._process.communicate()


def load_pair(size: str, folder: Path, rows: int, **options: Any) -> tuple[Any, Any]:
    """The models on this project's engines."""
    lm_folder, rm_folder = pair_folders(size, folder)
    sampling = Sampling(max_new_tokens=LIMIT)
    options = {"window": 256, "device": "cpu", **options}
    lm = HFLanguageModel.from_pretrained(lm_folder, rows=rows, sampling=sampling, **options)
    return lm, HFRewardModel.from_pretrained(rm_folder, score_ids=True, **options)


def resident_mib() -> float:
    """Memory of this process (MiB), under Linux; else 0."""
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text().split()[1]) if statm.is_file() else 0
    return pages * mmap.PAGESIZE / 2**20


def measure(size: str, options: argparse.Namespace, folder: Path) -> None:
    """Run all systems on the models of one size and print a row for each."""
    pair = Pair(size, folder, options.device)
    runs: dict[str, Callable[[float, int], Measured]] = {
        "A: generate() from scratch": partial(run_baseline, pair, 1),
        f"lockstep generate(), chains: {N_LOCKSTEP}": partial(run_baseline, pair, N_LOCKSTEP),
    }
    dtypes = [None, "int8"] if options.device == "cpu" and size != "embedded" else [None]
    memory: dict[str, float] = {}
    limits: list[float] = []
    with ExitStack() as stack:
        if options.published:
            published = Published(options.published, size, folder)
            stack.callback(published.close)
            for n_chains in (1, N_LOCKSTEP):
                runs[f"published, chains: {n_chains}"] = partial(published, n_chains)
        for rows, dtype in itertools.product(options.rows, dtypes):
            before, note = resident_mib(), INT8 if dtype else ""
            models = load_pair(size, folder, rows, device=options.device, dtype=dtype)
            for model in models:
                stack.callback(model.close)
            if models[0].engine.net.fixed:
                print(f"engine{note}, rows: {rows}: each step computes all rows on this processor")
            for n_chains in ROWS[rows]:
                name = f"engine{note}, rows: {rows}, chains: {n_chains}"
                runs[name] = partial(run_engine, *models, n_chains)
            if options.device == "cpu":
                memory[f"engine{note}, rows: {rows}"] = resident_mib() - before
        results = {name: Measured() for name in runs}
        share = options.seconds or SECONDS[size]
        for seed, (name, run) in itertools.product(range(options.rounds), runs.items()):
            limits.append(pair.limit_s())
            results[name].add(run(share, seed))
    limit = statistics.median(limits)
    print(f"\n{size}: the limit is {limit * 1e3:.3g} ms a token; {len(pair.prompt)} prompt tokens")
    header = "| system | steps | new tokens | steps a second | x limit a token | x over A |"
    print(f"{header}\n|{'---|' * 6}")
    a_token = [result.seconds / result.tokens for result in results.values()]
    for (name, result), cost in zip(results.items(), a_token, strict=True):
        rate, over_a = result.steps / result.seconds, a_token[0] / cost
        cells = f"{result.steps} | {result.tokens} | {rate:.3g} | {cost / limit:.2f} | {over_a:.1f}"
        print(f"| {name} | {cells} |", flush=True)
    for name, mib in memory.items():
        print(f"{name}: {mib:,.0f} MiB for both models before they run")
    for name in [*memory, *results]:
        wide = name.replace(INT8, "")
        if name != wide and name in memory:
            print(f"{name}: {memory[name] / memory[wide]:.2f} of float32's memory")
        elif name != wide:
            (a, b) = (results[each].tokens / results[each].seconds for each in (name, wide))
            print(f"{name}: {a / b:.2f} times float32's tokens per second")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", default=list(SECONDS), choices=SECONDS)
    parser.add_argument("--rows", nargs="+", type=int, default=[8, 16], choices=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="a system and round")
    parser.add_argument("--device", default="cpu", help="of the models, as in torch")
    parser.add_argument("--published", help="python of an environment with quest-decoding")
    parser.add_argument("--folder", type=Path, help="keeps the models of random weights")
    options = parser.parse_args()
    if options.published and not Path(options.published).is_file():
        parser.error(f"--published: there is no {options.published}; --help says how to make it")
    if not options.published:
        print("no --published given: the published chain is missing (see --help)")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        for size in options.sizes:
            measure(size, options, options.folder or Path(temporary))


if __name__ == "__main__":
    main()
