"""A move in a file of one's own, FILE.py:NAME: run by commands, refused from links and requests."""

from __future__ import annotations

import hashlib

import pytest

from components.session.links import from_query
from components.session.offer import Offer
from qalign_core.record.store import read_trace
from qalign_core.run import Limits, Run
from qalign_study.commands import main
from qalign_study.exact.bench import worlds
from qalign_study.export.browser import unsupported_reason
from qalign_study.measure.results import load_results
from qalign_study.serve.refusal import HTTPRefusal
from qalign_study.serve.request_schema import parse_request

MINE = """
import numpy as np

from qalign_core.chain.moves.move import Proposal
from qalign_core.chain.moves.suffix import length_ratio


class Mine:
    async def propose(self, choices, y):
        kept = choices.uniform(len(y))
        new = await choices.extend(y, kept)
        return Proposal(new, kept, length_ratio(new=len(new), old=len(y)))


class Whole:
    needs_log_probs = False

    async def propose(self, choices, y):
        return Proposal(await choices.extend(y, 0), 0, ())


class FirstToken(Mine):
    async def propose(self, choices, y):
        kept = min(1, len(y) - 1)
        return Proposal(await choices.extend(y, kept), kept, ())


class Fails:
    async def propose(self, choices, y):
        return y.tokens[len(y)]


class Exits:
    async def propose(self, choices, y):
        raise SystemExit(3)


class Worded(Mine):
    async def propose(self, choices, y):
        return Proposal(y, 0, "one")


class Undefined(Mine):
    async def propose(self, choices, y):
        return Proposal(y, 0, (float("nan"),))


class Textual(Mine):
    async def propose(self, choices, y):
        return Proposal(y.text, 0, ())


class Halved(Mine):
    async def propose(self, choices, y):
        return Proposal(y, len(y) / 2, ())


class Numpy(Mine):
    async def propose(self, choices, y):
        proposal = await super().propose(choices, y)
        terms = (each for each in proposal.log_correction)  # can be read once
        return Proposal(proposal.response, np.int64(proposal.kept), terms)


class Unmade:
    def __init__(self):
        raise ValueError("no such file")


INSTANCE = Mine()
"""
RUN = "run --problem 0 --rm plain --steps {steps} --max-new-tokens 12 --out {out} --move {move}"
EVALUATE = (
    "evaluate --problems 1 --budget 2 --rm plain --max-new-tokens 12 --out {out} --move {move}"
)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    monkeypatch.chdir(tmp_path)
    # every command certifies the move; tests/test_bench_moves.py does so in all worlds
    monkeypatch.setattr("qalign_study.exact.certify.worlds", lambda: worlds()[:1])
    return path


def command(line, **settings):
    return main(line.format(**settings).split())


@pytest.mark.parametrize(
    "move", ["mine.py:Mine", "mine.py:INSTANCE", "0.3*suffix+0.7*mine.py:Mine"]
)
def test_run_names_the_move_states_that_it_is_certified_and_continues(move, mine, capsys):
    assert command(RUN, steps=2, out="a.jsonl", move=move) in (0, None)
    verdict = f"the move {move} is certified for texts of 1 to 12 tokens"
    assert verdict in capsys.readouterr().err
    header = read_trace("a.jsonl").header
    assert (header.run.move, header.notes) == (move, (verdict,))
    assert header.move_revision == hashlib.sha256(mine.read_bytes()).hexdigest()
    assert command(RUN, steps=4, out="a.jsonl", move=move) in (0, None)
    (steps,) = read_trace("a.jsonl").chains.values()
    assert len(steps) == 5


def test_run_draws_the_proposals_of_the_move(mine):
    assert command(RUN, steps=6, out="a.jsonl", move="mine.py:Whole") in (0, None)
    (steps,) = read_trace("a.jsonl").chains.values()
    assert {step.index for step in steps[1:]} == {0}
    assert command(RUN, steps=6, out="b.jsonl", move="mine.py:Mine") in (0, None)
    (steps,) = read_trace("b.jsonl").chains.values()
    assert {step.index for step in steps[1:]} != {0}, "the control: another move of the same file"
    assert command(RUN, steps=6, out="c.jsonl", move="mine.py:Numpy") in (0, None)
    assert read_trace("c.jsonl").states == read_trace("b.jsonl").states


def test_a_move_that_is_not_certified_runs_and_the_trace_states_it(mine, capsys):
    assert command(RUN, steps=2, out="a.jsonl", move="mine.py:FirstToken") in (0, None)
    (note,) = read_trace("a.jsonl").header.notes
    assert note.startswith("the move mine.py:FirstToken is not certified: balance fails in")
    assert note in capsys.readouterr().err


@pytest.mark.more
@pytest.mark.parametrize(("line", "out"), [(RUN, "a.jsonl"), (EVALUATE, "results")])
def test_draws_of_a_move_are_not_continued_with_a_changed_one(line, out, mine, capsys):
    assert command(line, steps=2, out=out, move="mine.py:Mine") in (0, None)
    mine.write_text(f"{MINE}# changed\n")
    capsys.readouterr()
    assert command(line, steps=4, out=out, move="mine.py:Mine") == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"qalign: {out} contains a different run (move: ")
    assert "mine.py:Mine' has changed since" in last


@pytest.mark.more
@pytest.mark.parametrize("move", ["mine.py:Mine", "suffix+mine.py:Mine"])
def test_evaluate_names_the_move_in_its_results_and_reports(move, mine, capsys):
    assert command(f"{EVALUATE} --pack results.zip", out="results", move=move) in (0, None)
    printed = capsys.readouterr()
    assert f"the move {move} is certified for texts of 1 to 12 tokens" in printed.err
    for path in ("results", "results.zip"):
        assert load_results(path).header.run.move == move
        assert main(["report", path]) in (0, None)
        assert f"moves {move}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("move", "sentence"),
    [
        ("nope.py:Mine", "nope.py cannot be run (FileNotFoundError"),
        ("mine.py:Nope", "mine.py has no function or class Nope"),
        ("mine.py:MINE", "mine.py has no function or class MINE"),
        ("mine.py:Fails", "mine.py:Fails failed with IndexError: tuple index out of range"),
        ("mine.py:Exits", "mine.py:Exits failed with SystemExit: 3; fix the move"),
        ("mine.py:Worded", "mine.py:Worded returned a Proposal that cannot be used (ValueError"),
        ("mine.py:Undefined", "mine.py:Undefined returned a Proposal that cannot be used (ValueE"),
        ("mine.py:Textual", "mine.py:Textual returned a Proposal that cannot be used (TypeError"),
        ("mine.py:Halved", "mine.py:Halved returned a Proposal that cannot be used (TypeError"),
        ("mine.py:Unmade", "mine.py:Unmade cannot be made (ValueError: no such file)"),
        ("mine.py", "move must be written like suffix"),
    ],
)
@pytest.mark.parametrize("line", [RUN, EVALUATE])
def test_a_file_without_such_a_move_is_refused_in_one_sentence(line, move, sentence, mine, capsys):
    assert command(line, steps=2, out="out", move=move) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"qalign: {sentence}")


OWN = ("mine.py:Mine", "suffix+mine.py:Mine", "0.5*/tmp/mine.py:Mine+0.5*suffix")
REFUSED = "is in a file of your own, which servers and links do not run; use it with `qalign run`"


@pytest.mark.parametrize("move", OWN)
def test_a_request_refuses_a_move_in_a_file(move):
    body = {"model": "embedded/qalign", "messages": [{"role": "user", "content": "Hi"}]}
    assert parse_request({**body, "qalign": {"move": "suffix"}}, ("embedded",), {}, Limits())
    with pytest.raises(HTTPRefusal, match=REFUSED) as refusal:
        parse_request({**body, "qalign": {"move": move}}, ("embedded",), {}, Limits())
    assert (refusal.value.status, refusal.value.error["error"]["param"]) == (400, "qalign.move")


@pytest.mark.parametrize("move", OWN)
def test_a_server_and_the_browsers_engine_refuse_a_move_in_a_file(move, capsys, mine):
    assert main(["serve", "--move", move]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert REFUSED in line
    run = Run("Hi", extractor="number")
    assert unsupported_reason(run) == ""
    reason = unsupported_reason(run.with_changes(move=move))
    assert reason == "a browser does not know the setting move"


@pytest.mark.parametrize("move", OWN)
def test_a_link_falls_back_from_a_move_in_a_file_with_a_notice(move):
    offer = Offer.from_environment({})
    run, notices = from_query({"move": move, "prompt": "Hi"}, Limits(), offer)
    assert run.move == Run.move
    short = move if len(move) <= 24 else f"{move[:24]}…"
    assert notices == (f"The link's value “{short}” of “Moves” cannot be used here.",)
    assert from_query({"move": "entropy", "prompt": "Hi"}, Limits(), offer)[1] == ()
