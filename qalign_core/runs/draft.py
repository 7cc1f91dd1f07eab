"""What was drawn for one problem so far: it grows, is saved, and is taken up again."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np

from qalign_core.analysis.record import Record
from qalign_core.protocols import AnswerExtractor
from qalign_core.runs.problem_sets import Problem
from qalign_core.runs.results import from_bytes, to_bytes
from qalign_core.types import Cost, Response, ScoredResponse, Step

_CostRow = tuple[int, int, int, int, int]


class Draft:
    """A record in the making: the same numbers, without texts, and the chain's last state."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        # an open-ended response is its own answer
        self._extract: AnswerExtractor = problem.extract or str
        self._answers: dict[str, int] = {}
        self._pool: list[tuple[float, int, _CostRow]] = []
        self._chain: list[tuple[float, int, _CostRow, bool, bool, int]] = []
        self._state: ScoredResponse | None = None

    @property
    def n_samples(self) -> int:
        """Independent samples so far."""
        return len(self._pool)

    @property
    def n_states(self) -> int:
        """States of the chain so far."""
        return len(self._chain)

    @property
    def pool_costs(self) -> Iterator[Cost]:
        """The cost of each sample."""
        return (Cost(*row[2]) for row in self._pool)

    @property
    def chain_costs(self) -> Iterator[Cost]:
        """The cost of each step."""
        return (Cost(*row[2]) for row in self._chain)

    @property
    def last_step(self) -> Step | None:
        """A step from which the chain goes on; None if it has not begun."""
        if self._state is None:
            return None
        t = len(self._chain) - 1
        return Step(0, t, 0, self._state, self._state, 0.0, -math.inf, True, Cost())

    def add_sample(self, sample: ScoredResponse) -> None:
        """Take in the next sample of the pool."""
        self._pool.append((sample.reward, self._number(sample), _row(sample.cost)))

    def add_step(self, step: Step) -> None:
        """Take in the next step of the chain."""
        changed = step.t == 0 or step.changed
        answer = self._number(step.proposal)
        self._chain.append(
            (
                step.proposal.reward,
                answer,
                _row(step.cost),
                step.accepted,
                changed,
                len(step.proposal.response),
            )
        )
        self._state = step.state

    def cut_chain(self, n_states: int) -> None:
        """Drop all but the first states; the chain cannot go on after that."""
        del self._chain[n_states:]

    def record(self) -> Record:
        """Everything so far, as arrays; the same whatever came first, pool or chain."""
        pool, chain = self._pool, self._chain
        said = [row[1] for row in pool] + [row[1] for row in chain]
        in_order = dict.fromkeys(answer for answer in said if answer >= 0)
        number = {old: new for new, old in enumerate(in_order)} | {-1: -1}
        texts = list(self._answers)
        answers = [texts[old] for old in in_order]
        return Record(
            id=self._problem.id,
            answers=np.array(answers, dtype=np.str_),
            right=np.array([self._problem.is_right(answer) for answer in answers], bool),
            pool_reward=np.array([row[0] for row in pool], np.float32),
            pool_answer=np.array([number[row[1]] for row in pool], np.int32),
            pool_cost=_matrix([row[2] for row in pool]),
            chain_reward=np.array([row[0] for row in chain], np.float32),
            chain_answer=np.array([number[row[1]] for row in chain], np.int32),
            chain_cost=_matrix([row[2] for row in chain]),
            chain_accepted=np.array([row[3] for row in chain], bool),
            chain_changed=np.array([row[4] for row in chain], bool),
            chain_length=np.array([row[5] for row in chain], np.int32),
        )

    def to_bytes(self) -> bytes:
        """The draft as a file: the record, and the chain's last state."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("record.npz", to_bytes(self.record()))
            if self._state is not None:
                state = io.BytesIO()
                tokens = np.array(self._state.response.tokens)
                reward = np.array(self._state.reward, np.float64)
                finished = np.array(self._state.response.finished)
                np.savez(state, allow_pickle=False, tokens=tokens, reward=reward, finished=finished)
                archive.writestr("state.npz", state.getvalue())
                archive.writestr("state.txt", self._state.response.text)
        return buffer.getvalue()

    @classmethod
    def load(cls, path: Path, problem: Problem) -> Draft:
        """Take up the draft at `path`; an empty one if there is none."""
        draft = cls(problem)
        if not path.exists():
            return draft
        with zipfile.ZipFile(path) as archive:
            record = from_bytes(archive.read("record.npz"), str(path))
            if "state.npz" in archive.namelist():
                with np.load(io.BytesIO(archive.read("state.npz")), allow_pickle=False) as state:
                    response = Response(
                        tokens=tuple(int(token) for token in state["tokens"]),
                        text=archive.read("state.txt").decode(),
                        finished=bool(state["finished"]),
                    )
                    draft._state = ScoredResponse(response, float(state["reward"]))
        draft._answers = {str(answer): k for k, answer in enumerate(record.answers)}
        draft._pool = list(
            zip(
                record.pool_reward.tolist(),
                record.pool_answer.tolist(),
                map(tuple, record.pool_cost.tolist()),
                strict=True,
            )
        )
        draft._chain = list(
            zip(
                record.chain_reward.tolist(),
                record.chain_answer.tolist(),
                map(tuple, record.chain_cost.tolist()),
                record.chain_accepted.tolist(),
                record.chain_changed.tolist(),
                record.chain_length.tolist(),
                strict=True,
            )
        )
        return draft

    def _number(self, sample: ScoredResponse) -> int:
        answer = self._extract(sample.response.text)
        return -1 if answer is None else self._answers.setdefault(answer, len(self._answers))


def _row(cost: Cost) -> _CostRow:
    generated, lm_processed, lm_reused, rm_processed, rm_reused = astuple(cost)
    return generated, lm_processed, lm_reused, rm_processed, rm_reused


def _matrix(rows: Sequence[_CostRow]) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    return np.array(rows, dtype=np.int32).reshape(len(rows), 5)
