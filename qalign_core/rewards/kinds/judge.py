"""A language model as a judge: its grade of a response is the reward."""

import hashlib
import re
from statistics import fmean

from qalign_core.chain.cost import parameters_of
from qalign_core.chain.merging import gather
from qalign_core.chain.randomness import derive_seed
from qalign_core.errors import InvalidReward
from qalign_core.messages import transcript
from qalign_core.protocols import LanguageModel
from qalign_core.rewards.kinds import reward_kind
from qalign_core.types import Response

GRADES = 4
"""How often a response is graded."""
_QUESTION = """Grade an answer to a task by how correct, complete and helpful it is.

Task:
{prompt}

Answer:
{response}

Reply with one whole number from 1 (worst) to 10 (best) and nothing else."""
_ROUNDS = 4


@reward_kind("judge", uses="lm", argument="LM", max_new_tokens=8)
class JudgeReward:
    """`r(x, y)` = the mean of `GRADES` grades, 1 to 10, that a language model gives.

    Grades that cannot be read are left out; if none of them can, as many are asked for again, three
    times. They are drawn with seeds that are made of the question itself, so that the reward is a
    function of prompt and response, as the target needs it to be.

    Args:
        lm: the judge, as sampled; a limit of a few tokens is enough.
        id: its name; by default the judge's.
    """

    def __init__(self, lm: LanguageModel, *, id: str | None = None) -> None:
        self._lm = lm
        self.id = id or f"judge:{lm.id}"
        question = _QUESTION.format(prompt="", response="")
        self._n_question = len(lm.encode(question))
        self.n_parameters = parameters_of(lm)

    async def score(self, prompt: str, response: Response) -> float:
        """The mean grade.

        Raises:
            InvalidReward: none of the judge's answers holds a grade.
            QAlignError: the judge failed.
        """
        task = transcript(prompt)
        question = _QUESTION.format(prompt=task, response=response.text)
        ids = self._lm.encode(question)
        address = int.from_bytes(hashlib.blake2b(question.encode(), digest_size=8).digest(), "big")
        answers: list[Response] = []
        grades: list[int] = []
        while not grades and len(answers) < _ROUNDS * GRADES:
            places = range(len(answers), len(answers) + GRADES)
            seeds = [derive_seed(address, place, 0, "sample") for place in places]
            answers += await gather(*(self._lm.extend(ids, (), seed=seed) for seed in seeds))
            grades = [grade for answer in answers if (grade := read_grade(answer.text)) is not None]
        if not grades:
            raise InvalidReward(
                f"{self.id} returned {answers[0].text[:60]!r} instead of a grade; choose a "
                "larger judge"
            )
        return fmean(grades)

    def n_read(self, known: int, total: int) -> int:
        """Tokens of the grades: each reads the question and writes at most as many as it may."""
        return GRADES * (self._n_question + total + self._lm.max_new_tokens)


def read_grade(text: str) -> int | None:
    """The first whole number from 1 to 10 that stands alone; None if there is none."""
    match = re.search(r"(?<![\d.-])(10|[1-9])(?![\d]|\.\d)", text)
    return int(match[1]) if match else None
