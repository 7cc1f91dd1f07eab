"""`qalign bench-moves`: moves are certified by enumeration, and a planted error is caught."""

from __future__ import annotations

import re
from itertools import product

import pytest

from qalign_core.chain.moves.block import Block
from qalign_core.chain.moves.mixture import Mixture, move_of
from qalign_core.chain.moves.suffix import Suffix
from qalign_core.mix import read_mix
from qalign_study.commands import main
from qalign_study.exact.bench import in_world, worlds

MINE = '''
from qalign_core.chain.moves.move import Proposal
from qalign_core.chain.moves.suffix import length_ratio


class Mine:
    """Cut the text where it was cut before the last token, or anywhere."""

    async def propose(self, choices, y):
        if choices.weighted((0.3, 0.7), "kind"):
            kept = choices.uniform(len(y))
            new = await choices.extend(y, kept)
            return Proposal(new, kept, length_ratio(new=len(new), old=len(y)))
        new = await choices.extend(y, 0, role="whole")
        return Proposal(new, 0, ())


class Planted(Mine):
    """The same, without the ratio of lengths."""

    async def propose(self, choices, y):
        made = await super().propose(choices, y)
        return Proposal(made.response, made.kept, ())


class Stuck:
    """Only the last token."""

    async def propose(self, choices, y):
        kept = len(y) - 1
        return Proposal(await choices.extend(y, kept), kept, ())
'''


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_users_move_runs_and_a_planted_error_is_caught_with_its_worst_pair(mine, capsys):
    assert main(["bench-moves", "suffix", "entropy", f"{mine}:Mine"]) == 0
    told = capsys.readouterr().out
    assert told.count("holds") == 9
    assert "FAILS" not in told
    assert main(["bench-moves", f"{mine}:Planted"]) == 2
    said = capsys.readouterr()
    assert "FAILS" in said.out
    assert "worst pair: " in said.out
    assert "do not sample the target" in said.err


def test_a_move_that_cannot_reach_every_response_is_caught(mine, capsys):
    assert main(["bench-moves", f"{mine}:Stuck"]) == 2
    told = capsys.readouterr().out
    assert "cannot reach every response" in told
    assert "nan" not in told
    assert "-0.0" not in told


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def propose(self, choices, y): ...", "needs `async def propose(self, choices, y)`"),
        ("async def propose(self, choices, y): return 'a'", "returned str; return a Proposal"),
        ("", "needs `async def propose"),
    ],
)
def test_a_move_that_is_none_is_told_in_one_sentence(code, said, tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(f"class Mine:\n    {code or 'pass'}\n")
    assert main(["bench-moves", f"{path}:Mine"]) == 2
    assert said in capsys.readouterr().err
    assert main(["bench-moves", f"{path}:Nope"]) == 2
    assert "has no function or class Nope" in capsys.readouterr().err


def test_blocks_help_where_the_rest_does_not_depend_on_them_and_not_where_it_does():
    mixed, suffix = "suffix+block(:)", Suffix()
    gaps = {}
    for lm in worlds()[:2]:
        move = move_of(read_mix(mixed), lm)
        gaps[lm.id] = [in_world(lm, each).gap for each in (suffix, move)]
    assert gaps["separable"][1] > 2 * gaps["separable"][0]
    assert gaps["dependent"][1] < 1.2 * gaps["dependent"][0]


def test_every_world_has_texts_that_a_block_refuses_and_a_rare_best_one():
    for lm in worlds():
        found = in_world(lm, Mixture((Suffix(), Block(lm.delimiters(":"))), (0.5, 0.5)))
        assert found.is_exact
        assert 0 < found.gap < 0.2
        assert found.distance < 1e-9


def test_the_table_has_a_line_per_set_and_move(capsys):
    command = "bench-moves suffix suffix+block(.) --task shifted long --problems 2 --steps 12"
    assert main([*command.split(), "--rm", "none", "--max-new-tokens", "48"]) == 0
    heads, *rows = (re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()[-5:])
    assert heads[:3] == ["set", "move", "right, %"]
    sets = [(row[0], row[1]) for row in rows]
    assert sets == [*product(("shifted", "long"), ("suffix", "suffix+block(.)"))]
