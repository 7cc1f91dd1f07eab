"""Find the run that everybody sees first.

    python -m benchmarks.first_run [--problem in_distribution-126] [--beta 3] [--seeds 3000]

Each seed draws a chain on one problem. A seed drops out at the first of these rules that fails:

1. The first draft is wrong.
2. Step 1 rewrites it into another wrong answer of lower reward and other length, and is accepted.
3. The chain is right by step 10.
4. Within the next six steps a wrong rewrite of a right answer is rejected.
5. The majority vote of the samples is wrong.
6. The sample of the highest reward is wrong.
7. The chain's vote is right.
8. The halves of the chain agree, and its states are worth at least 30 independent ones.
9. Its share of right states is within 10 points of the weighted vote of 8,192 samples.
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence

from qalign_core import (
    best_of_n,
    load_language_model,
    load_reward_model,
    majority_vote,
    run_chain,
    sample_iid,
    weighted_majority_vote,
)
from qalign_core.decide.answers.graders import get_grader
from qalign_core.target import Target
from qalign_core.types import ScoredResponse, Step
from qalign_study.measure.diagnostics import agreement, ess
from qalign_study.sets.problem_sets import Problem, load_problems

WORSE, RIGHT_BY, REJECTED_WITHIN, WORTH, NEAR = 0.1, 10, 6, 30, 0.10
MANY = 8192
"""Samples by which the share of the right answer under the target is estimated."""
AT_ONCE = 48

read = get_grader("number").extract


class Search:
    """One problem at one β: how many seeds pass each rule."""

    def __init__(self, problem: Problem, beta: float, steps: int, samples: int) -> None:
        self.lm = load_language_model("embedded", rows=AT_ONCE)
        self.rm = load_reward_model("embedded")
        self.problem, self.target = problem, Target(beta)
        self.steps, self.samples = steps, samples
        self.passed: Counter[int] = Counter()

    def is_right(self, state: ScoredResponse) -> bool:
        return read(state.response.text) == self.problem.answer

    async def pool(self, n: int, seed: int) -> list[ScoredResponse]:
        samples = sample_iid(self.lm, self.rm, self.problem.prompt, n=n, seed=seed)
        return [each async for each in samples]

    async def share(self) -> float:
        """The right answer's share in the weighted vote of many samples."""
        vote = weighted_majority_vote(await self.pool(MANY, 0), read, target=self.target)
        print(f"weighted vote of {MANY:,} samples: {vote.shares[:4]}", flush=True)
        return dict(vote.shares).get(self.problem.answer, 0.0)

    async def passes(self, seed: int, share: float) -> str | None:
        """Return the line to print for a seed that passes all rules, or None."""
        steps: list[Step] = []
        walk = run_chain(self.lm, self.rm, self.problem.prompt, target=self.target,
                         steps=self.steps, seed=seed)  # fmt: skip
        right_at = 0
        async for step in walk:
            steps.append(step)
            right, before = self.is_right(step.state), steps[max(0, step.t - 1)].state
            if step.t == 0:
                if right or read(step.state.response.text) is None:
                    return None
                self.passed[1] += 1
            elif step.t == 1:
                if right or not (step.accepted and is_worse(before, step.proposal)):
                    return None
                self.passed[2] += 1
            elif not right_at:
                if right:
                    right_at = step.t
                    self.passed[3] += 1
                elif step.t >= RIGHT_BY:
                    return None
            elif self.is_right(before) and not step.accepted and not self.is_right(step.proposal):
                self.passed[4] += 1
                break
            elif step.t >= right_at + REJECTED_WITHIN:
                return None
        pool = await self.pool(self.samples, seed)
        rules = [majority_vote(pool, read).answer, read(best_of_n(pool).chosen.response.text)]
        for rule, answer in enumerate(rules, 5):
            if answer == self.problem.answer:
                return None
            self.passed[rule] += 1
        steps += [step async for step in run_chain(
            self.lm, self.rm, self.problem.prompt, target=self.target, steps=self.steps, seed=seed,
            start=steps[-1])]  # fmt: skip
        vote = majority_vote([step.state for step in steps], read)
        if vote.answer != self.problem.answer:
            return None
        self.passed[7] += 1
        rewards = [[step.state.reward for step in steps]]
        halves, worth = agreement(rewards), ess(rewards) or 0.0
        if not halves.is_mixed or worth < WORTH:
            return None
        self.passed[8] += 1
        if abs(vote.shares[0][1] - share) > NEAR:
            return None
        self.passed[9] += 1
        return (
            f"seed {seed}: majority vote and best-of-n {rules}, chain {vote.shares[:3]}, right at "
            f"step {right_at}, R-hat {halves}, worth {worth:.0f} independent states"
        )


def is_worse(state: ScoredResponse, proposal: ScoredResponse) -> bool:
    """True if a rewrite has a different answer, a lower reward and a different length."""
    answer = read(proposal.response.text)
    return (
        answer not in (None, read(state.response.text))
        and proposal.reward < state.reward - WORSE
        and len(proposal.response) != len(state.response)
    )


async def search(options: argparse.Namespace) -> None:
    named = {p.id: p for name in ("in_distribution", "shifted") for p in load_problems(name)}
    of = Search(named[options.problem], options.beta, options.steps, options.samples)
    share, turns = await of.share(), asyncio.Semaphore(AT_ONCE)

    async def one(seed: int) -> None:
        async with turns:
            if summary := await of.passes(seed, share):
                print(summary, flush=True)

    await asyncio.gather(*map(one, range(options.seeds)))
    passed = ", ".join(f"rule {rule}: {of.passed[rule]}" for rule in range(1, 10))
    print(f"{options.seeds} seeds; {passed}")


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="in_distribution-126")
    parser.add_argument("--beta", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3000)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(search(options()))
