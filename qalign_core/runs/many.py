"""Chains of many prompts at once, in a folder that outlives a kill: one trace a prompt.

A step is a line that is appended as soon as it is made, so a process that is killed at any moment
loses at most the steps that were being drawn. Going on continues each chain from its current state;
since randomness is addressed, the trace is the one that an uninterrupted run would have written
(to the bit, if the models are deterministic). A trace a prompt, and not one file for all, so that
every one of them opens on the Watch page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TextIO

from qalign_core.analysis.diagnostics import acceptance
from qalign_core.chain.chain import run_chain
from qalign_core.chain.kernel import check_beta
from qalign_core.chain.sampling import check_count, gather
from qalign_core.decide.rules import chain_states, majority_vote, minimum_bayes_risk
from qalign_core.decide.utilities import rouge1
from qalign_core.errors import InvalidSetting, InvalidTrace
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.runs.problem_sets import Problem
from qalign_core.runs.recording import header_of
from qalign_core.runs.trace import TraceReader, end_line, header_line, step_line
from qalign_core.types import Step, TraceHeader

ANSWERS = "answers.jsonl"
"""The file of the folder with a line for each prompt whose chains are done."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the chains of one prompt came to.

    Attributes:
        id: the problem's.
        answer: the vote of all states, or None (none could be read, or the prompt is open-ended).
        share: the answer's share of the states, 0 without one.
        text: the response that represents it; by minimum Bayes risk if the prompt is open-ended.
        reference: the known right answer, if there is one.
        n_states: of all chains.
        accepted: share of the proposals that differ from the state that were accepted.
    """

    id: str
    answer: str | None
    share: float
    text: str
    reference: str | None
    n_states: int
    accepted: float | None


async def run_many(
    lm: LanguageModel,
    rm: RewardModel,
    problems: Sequence[Problem],
    *,
    beta: float,
    steps: int,
    seed: int,
    folder: str | Path,
    n_chains: int = 1,
    at_once: int = 64,
    lookahead: int = 1,
    progress: Callable[[int], None] | None = None,
) -> tuple[Answer, ...]:
    """Run `n_chains` chains for every problem, `at_once` of them side by side, into `folder`.

    Args:
        lm, rm, beta, steps, n_chains, lookahead: as in `run_chains`.
        problems: the prompts; answers are needed only to say what is right.
        seed: address of the randomness; the problem at place k (from 0) uses `seed + k`.
        folder: where the traces go ("00000.jsonl", ...), or where a run with the same settings was
            stopped: it goes on.
        at_once: chains that run side by side, of any prompts.
        progress: told how many more steps are in the folder.

    Returns:
        The answers, in the order of the problems.

    Raises:
        InvalidSetting: settings out of range, or the folder holds other things.
        InvalidPrompt: a prompt is too long; nothing is drawn then.
        QAlignError: a model failed; what was drawn is kept.
    """
    check_beta(beta)
    check_count("steps", steps, 0)
    check_count("n_chains", n_chains, 1)
    check_count("at_once", at_once, 1)
    headers = [
        header_of(
            lm,
            rm,
            problem.prompt,
            beta=beta,
            seed=seed + place,
            steps=steps,
            n_chains=n_chains,
            reference=problem.answer,
            extractor=problem.extractor,
        )
        for place, problem in enumerate(problems)
    ]
    folder = Path(folder)
    told = progress or (lambda n: None)
    with _owned(folder), _Answers.open(folder / ANSWERS) as answers, ExitStack() as stack:
        files: dict[int, _TraceFile] = {}

        def file_of(place: int) -> _TraceFile:
            if place not in files:
                path = folder / f"{place:05}.jsonl"
                files[place] = file = _TraceFile(path, headers[place], problems[place])
                stack.callback(file.close)
                told(file.n_steps)
            return files[place]

        async def run(place: int, chain: int) -> None:
            file = file_of(place)
            start = file.last.get(chain)
            if start is None or start.t < steps:
                drawn = run_chain(
                    lm,
                    rm,
                    problems[place].prompt,
                    beta=beta,
                    steps=steps,
                    seed=seed + place,
                    chain=chain,
                    start=start,
                    lookahead=lookahead,
                )
                async with aclosing(drawn):  # type: ignore[type-var]
                    async for step in drawn:
                        file.add(step)
                        told(1)
            if file.complete:
                answers.add(place, file)
                file.end("; ".join(getattr(lm, "notes", ())))
                file.close()

        queue = iter([(p, c) for p in range(len(problems)) for c in range(n_chains)])

        async def work() -> None:
            for place, chain in queue:
                await run(place, chain)

        await gather(*(work() for _ in range(min(at_once, len(problems) * n_chains))))
        return answers.in_order(problems)


class _TraceFile:
    """A trace that grows; what is there already is read first.

    Attributes:
        last: the last step of each chain.
        n_steps: steps that were there.
    """

    def __init__(self, path: Path, header: TraceHeader, problem: Problem) -> None:
        self.path, self.problem = path, problem
        self.last: dict[int, Step] = {}
        self._header = header
        self._ended = False
        self._file = _reopen(path)
        self._read()
        self.n_steps = sum(step.t + 1 for step in self.last.values())

    @property
    def complete(self) -> bool:
        """Whether every chain has all of its steps."""
        done = [step for step in self.last.values() if step.t == self._header.steps]
        return len(done) == self._header.chains

    def add(self, step: Step) -> None:
        """Append a step; it is in the file when this returns."""
        extract = self.problem.extract
        answer = extract(step.proposal.response.text) if extract else None
        self._file.write(step_line(step, answer))
        self.last[step.chain] = step

    def end(self, message: str) -> None:
        """Say that the run is over, once."""
        if not self._ended:
            self._file.write(end_line("finished", message))
            self._ended = True

    def close(self) -> None:
        """Close the file; steps may no longer be added."""
        self._file.close()

    def steps(self) -> list[Step]:
        """All steps, from the file, chain after chain."""
        reader = TraceReader()
        with self.path.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                reader.feed(line)
        return sorted(reader.steps, key=lambda step: (step.chain, step.t))

    def _read(self) -> None:
        reader = TraceReader()
        try:
            with self.path.open(encoding="utf-8", newline="\n") as lines:
                for line in lines:
                    reader.feed(line)
                    self.last.update((step.chain, step) for step in reader.steps)
                    reader.steps.clear()
        except InvalidTrace as error:
            raise InvalidSetting(f"{self.path}: {error}; use an empty folder") from error
        if reader.header is None:
            self._file.write(header_line(self._header))
        else:
            self._check_same(reader.header)
            self._ended = reader.end is not None

    def _check_same(self, there: TraceHeader) -> None:
        wanted = replace(self._header, created=there.created, notes=there.notes)
        for field in fields(TraceHeader):
            old, new = getattr(there, field.name), getattr(wanted, field.name)
            if old != new:
                raise InvalidSetting(
                    f"{self.path} is of another run ({field.name}: {old!r:.40}, now {new!r:.40}); "
                    "use another folder, or the same settings to go on"
                )


class _Answers:
    """The file of answers: a line for each prompt that is done, in order of that."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._file = file
        lines = path.read_text("utf-8").splitlines()
        self._known = {line["id"]: Answer(**line) for line in map(json.loads, lines)}

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[_Answers]:
        with _reopen(path) as file:
            yield cls(path, file)

    def add(self, place: int, file: _TraceFile) -> None:
        """Decide, and append the answer, unless it is there."""
        problem = file.problem
        if problem.id not in self._known:
            answer = _decide(problem, file.steps())
            self._known[problem.id] = answer
            self._file.write(json.dumps(asdict(answer), ensure_ascii=False) + "\n")

    def in_order(self, problems: Sequence[Problem]) -> tuple[Answer, ...]:
        return tuple(self._known[problem.id] for problem in problems)


def _decide(problem: Problem, steps: Sequence[Step]) -> Answer:
    states = chain_states(steps)
    if problem.extract is None:
        decision = minimum_bayes_risk(states, rouge1)
    else:
        decision = majority_vote(states, problem.extract)
    return Answer(
        id=problem.id,
        answer=decision.answer,
        share=decision.shares[0][1] if decision.answer is not None else 0.0,
        text=decision.chosen.response.text if decision.chosen else "",
        reference=problem.answer,
        n_states=len(states),
        accepted=acceptance(steps).changed.value,
    )


def _reopen(path: Path) -> TextIO:
    """Open a file of lines to append to it; a last line that was cut off in writing is removed."""
    with path.open("ab+") as file:
        file.seek(0)
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
    return path.open("a", encoding="utf-8", newline="\n", buffering=1)


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Keep a folder for this process; the system gives it back however the process ends."""
    import fcntl  # not on Windows: only what is here is missing there

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise InvalidSetting(
            f"{folder} cannot be used ({error.strerror}); give another folder with --out"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InvalidSetting(
                f"{folder} is in use by another run; wait for it, or give another folder"
            ) from error
        yield
