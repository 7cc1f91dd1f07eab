"""`qalign bench-moves`: moves are certified by enumeration, and a planted error is caught."""

from __future__ import annotations

import re
from collections import deque
from itertools import product

import pytest
from refusals import refuse_command

from qalign_core.chain.moves.block import Block
from qalign_core.chain.moves.entropy import Entropy
from qalign_core.chain.moves.mixture import Mixture, move_of
from qalign_core.chain.moves.suffix import Suffix
from qalign_core.move_spec import parse_moves
from qalign_core.registry import load_move
from qalign_study.commands import main
from qalign_study.exact import certify
from qalign_study.exact.bench import TARGETS, in_world, prefers_b, worlds
from qalign_study.exact.exercised import Exercised
from qalign_study.exact.moves import outcomes
from qalign_study.exact.pairs import LongTexts, compare_flows, compare_pairs

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


def test_a_users_move_runs_and_a_planted_error_is_caught_with_its_worst_pair(
    mine, capsys, monkeypatch
):
    monkeypatch.setattr(certify, "worlds", lambda: worlds()[:2])
    assert main(["bench-moves", "suffix", f"{mine}:Mine"]) == 0
    output = capsys.readouterr().out
    assert output.count("holds") == 6
    assert output.count("certified for texts of 1 to 256 tokens") == 2
    assert "FAILS" not in output
    assert main(["bench-moves", f"{mine}:Planted"]) == 2
    streams = capsys.readouterr()
    assert "FAILS" in streams.out
    assert "worst pair: " in streams.out
    assert f"not certified: {mine}:Planted" in streams.err


def test_a_move_that_cannot_reach_every_response_is_caught(mine, capsys):
    assert main(["bench-moves", f"{mine}:Stuck"]) == 2
    output = capsys.readouterr().out
    assert "cannot reach every response" in output
    assert "nan" not in output
    assert "-0.0" not in output


PLANTED = """
import random
from dataclasses import replace
from qalign_core.chain.moves.block import Block
from qalign_core.chain.moves.move import Proposal
from qalign_core.chain.moves.suffix import length_ratio
from qalign_core.types import NoProposal


class Cut:
    async def cut(self, choices, y, kept):
        new = await choices.extend(y, kept)
        return Proposal(new, kept, length_ratio(new=len(new), old=len(y)))


class Right(Cut):
    async def propose(self, choices, y):
        if len(y) < 1:
            raise ValueError("the text is " + "empty")
        assert y.tokens, "the text is empty"
        return await self.cut(choices, y, choices.uniform(len(y)))


class FirstFour(Cut):
    async def propose(self, choices, y):
        return await self.cut(choices, y, choices.uniform(min(len(y), 4)))


class WeightsOfTheLength(Cut):
    async def propose(self, choices, y):
        late = 2.0 if len(y) > 5 else 1.0
        return await self.cut(choices, y, choices.weighted([late] + [1.0] * (len(y) - 1)))


class FirstHalfOf(Cut):
    def __init__(self, longest=30):
        self.longest = longest

    async def propose(self, choices, y):
        n = len(y)
        return await self.cut(choices, y, choices.uniform(n // 2 if n > self.longest else n))


class AtA(Cut):
    mark = "."

    async def propose(self, choices, y):
        stops = [at + 1 for at, piece in enumerate(y.pieces[:-1]) if piece == self.mark]
        if stops:
            return await self.cut(choices, y, stops[choices.uniform(len(stops))])
        return await self.cut(choices, y, choices.uniform(len(y)))


class AtAStep(Cut):
    async def propose(self, choices, y):
        stops = [at + 1 for at, piece in enumerate(y.pieces[:-1]) if piece == "Step"]
        if stops:
            return await self.cut(choices, y, stops[choices.uniform(len(stops))])
        return await self.cut(choices, y, choices.uniform(len(y)))


class AtAnUnknown(AtA):
    @property
    def mark(self):
        return chr(167)


class Sixteenth(Cut):
    async def propose(self, choices, y):
        return await self.cut(choices, y, choices.uniform(len(y) if len(y) % 16 else 1))


class OldTail:
    async def propose(self, choices, y):
        made = await Block(frozenset({2})).propose(choices, y)
        if isinstance(made, NoProposal):
            return made
        start = len(made.response) - made.kept_again
        old = y.log_probs[len(y) - made.kept_again :]
        log_probs = (*made.response.log_probs[:start], *old)
        return replace(made, response=replace(made.response, log_probs=log_probs))


class KeptTooMuch(Cut):
    async def propose(self, choices, y):
        made = await self.cut(choices, y, choices.uniform(len(y)))
        return replace(made, kept=made.kept + 1)


class Branch(Cut):
    async def propose(self, choices, y):
        n = len(y) if random.random() < 0.5 else 1
        return await self.cut(choices, y, choices.uniform(n))


class Index(Cut):
    async def propose(self, choices, y):
        return await self.cut(choices, y, random.randrange(len(y)))


class Correction(Cut):
    async def propose(self, choices, y):
        made = await self.cut(choices, y, choices.uniform(len(y)))
        return replace(made, log_correction=(random.random(),))


class Count(Cut):
    n = 0

    async def propose(self, choices, y):
        self.n += 1
        kept = choices.uniform(len(y))
        return await self.cut(choices, y, 0 if self.n % 5 == 0 else kept)


class OneRole(Cut):
    async def propose(self, choices, y):
        return await self.cut(choices, y, choices.uniform(choices.uniform(len(y)) + 1))


class Two(Cut):
    async def propose(self, choices, y):
        kept = choices.uniform(len(y))
        both = [await choices.extend(y, kept, role=role) for role in ("one", "two")]
        new = both[choices.uniform(2, "which")]
        return Proposal(new, kept, length_ratio(new=len(new), old=len(y)))


class Fails:
    async def propose(self, choices, y):
        return y.tokens[len(y)]


INSTANCE = Right()
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text(PLANTED)
    monkeypatch.chdir(tmp_path)
    return lambda name: f"planted.py:{name}"


def one_world(monkeypatch):
    """Certify in long texts and the smallest world."""
    monkeypatch.setattr(certify, "worlds", lambda: worlds()[:1])


@pytest.mark.parametrize(
    "name", ["FirstFour", "WeightsOfTheLength", "FirstHalfOf", "AtA", "AtAStep", "Sixteenth"]
)
def test_a_wrong_move_fails_at_any_length_with_its_worst_pair(name, planted, capsys, monkeypatch):
    # long texts are enough to see them all; one also runs in every world, which takes longer
    if name != "FirstFour":
        one_world(monkeypatch)
    assert main(["bench-moves", planted(name), "--max-new-tokens", "64"]) == 2
    printed = capsys.readouterr().out
    (worst, *_) = re.findall(r"worst pair: .* \((\d+) tokens\) and .* \((\d+) tokens\)", printed)
    assert worst[0] != worst[1]
    assert "is certified" not in printed


@pytest.mark.parametrize("name", ["Right", "INSTANCE"])
def test_a_right_move_is_certified_with_its_lengths_though_it_could_raise(
    name, planted, capsys, monkeypatch
):
    if name == "INSTANCE":
        one_world(monkeypatch)
    assert main(["bench-moves", planted(name), "--max-new-tokens", "100"]) == 0
    assert f"{planted(name)}: certified for texts of 1 to 100 tokens" in capsys.readouterr().out


def test_pairs_of_long_texts_lie_on_both_sides_of_every_length():
    for limit in (64, 512):
        lm = LongTexts(limit)
        pairs = list(compare_flows(lm, Suffix(), TARGETS[:1], prefers_b))
        crossed = {
            length
            for _, *pair in pairs
            for length in range(min(map(len, pair)), max(map(len, pair)))
        }
        assert crossed == {*range(1, limit)}


@pytest.mark.parametrize("longest", [2, 9, 13, 60, 128, 200, 250, 254])
def test_a_threshold_at_any_length_is_met(longest, planted):
    lm, move = LongTexts(256), load_move(planted("FirstHalfOf")).move
    move.longest = longest
    assert not compare_pairs(lm, move, TARGETS, prefers_b).is_exact


def test_a_branch_that_no_world_runs_is_named(planted, capsys, monkeypatch):
    one_world(monkeypatch)
    assert main(["bench-moves", planted("AtAnUnknown"), "--max-new-tokens", "20"]) == 2
    printed = capsys.readouterr().out
    assert re.search(r"no text of the worlds runs line \d+ of planted.py: at \+ 1\n", printed)
    assert re.search(r"runs line \d+ of planted.py: return await self.cut\(", printed)
    assert "FAILS" not in printed


def test_every_part_of_the_shipped_moves_runs_in_the_worlds():
    watch = Exercised([kind.propose for kind in (Suffix, Entropy, Block, Mixture)])
    for lm in worlds():
        move = move_of(parse_moves("suffix+entropy+block(:)"), lm)
        with watch:
            for y in lm.support[::3]:
                deque(outcomes(lm, move, y), maxlen=0)
    assert watch.missing() == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "draw all randomness through `choices`") for name in
          ("Branch", "Index", "Correction", "Count")),
        ("OldTail", "with the log-probabilities of another text; take them from `choices`"),
        ("KeptTooMuch", "a tuple of numbers as log_correction"),
        ("OneRole", "draws twice in the role 'index' of one step; give each its own"),
        ("Two", "has more than 500 outcomes; draw fewer texts per step"),
        ("Fails", "failed with IndexError: tuple index out of range; fix the move"),
    ],
)  # fmt: skip
def test_a_move_that_cannot_be_replayed_is_refused_in_one_sentence(
    name, reason, planted, capsys, monkeypatch
):
    monkeypatch.setattr("qalign_study.exact.moves.MOST", 500)
    assert main(["bench-moves", planted(name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"qalign: {planted(name)}")
    assert line.endswith(reason)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("def propose(self, choices, y): ...", "has no `async def propose(self, choices, y)`"),
        ("async def propose(self, choices, y): return 'a'", "returned str; return a Proposal"),
        ("", "has no `async def propose"),
    ],
)
def test_a_move_that_is_none_is_told_in_one_sentence(code, sentence, tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(f"class Mine:\n    {code or 'pass'}\n")
    refuse_command(capsys, ["bench-moves", f"{path}:Mine"], sentence)
    refuse_command(capsys, ["bench-moves", f"{path}:Nope"], "has no function or class Nope")


def test_blocks_help_where_the_rest_does_not_depend_on_them_and_not_where_it_does():
    mixed, suffix = "suffix+block(:)", Suffix()
    gaps = {}
    for lm in worlds()[:2]:
        move = move_of(parse_moves(mixed), lm)
        gaps[lm.id] = [in_world(lm, each).gap for each in (suffix, move)]
    assert gaps["separable"][1] > 2 * gaps["separable"][0]
    assert gaps["dependent"][1] < 1.2 * gaps["dependent"][0]


def test_every_world_has_texts_that_a_block_refuses_and_a_rare_best_one():
    for lm in worlds():
        result = in_world(lm, Mixture((Suffix(), Block(lm.delimiters(":"))), (0.5, 0.5)))
        assert result.is_exact
        assert 0 < result.gap < 0.5
        assert result.distance < 1e-9


def test_the_table_has_a_line_per_set_and_move(capsys):
    command = "bench-moves suffix suffix+block(.) --task shifted long --problems 1 --steps 4"
    assert main([*command.split(), "--rm", "none", "--max-new-tokens", "48"]) == 0
    heads, *rows = (re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()[-5:])
    assert heads[:3] == ["set", "move", "right, %"]
    sets = [(row[0], row[1]) for row in rows]
    assert sets == [*product(("shifted", "long"), ("suffix", "suffix+block(.)"))]
