"""What was recorded on one machine is drawn again on any: the promise, and what would break it."""

from __future__ import annotations

import asyncio
import json
import math
import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import recorded
from recorded import AtBorder, check_same_draws, check_same_run

from benchmarks.reproduce import draw_again
from qalign_core.assets import ASSETS
from qalign_core.record.store import load_trace
from qalign_core.types import NoProposal
from qalign_study.measure.record import Record
from qalign_study.measure.results import unpack
from qalign_study.sets.folder import traces_of

RUN = ASSETS / "runs" / "hacked.jsonl"
TEXT = RUN.read_text(encoding="utf-8")
BLOCKS = (ASSETS / "runs" / "repair.jsonl").read_text(encoding="utf-8")
SETS = sorted([*ASSETS.glob("results/*.zip"), *ASSETS.glob("results/fresh/*.zip")])
BUDGET = 2
"""Samples of a problem of a shipped set that are drawn again."""


KINDS = (
    *(f"in_distribution{kind}" for kind in ("", "-entropy", "-power", "-sharp", "-weak")),
    *("inventory-block", "long", "writing"),
)
"""Each target, reward and move, and each kind of text; the rest have other problems or numbers."""
EACH_SET = [
    pytest.param(
        path,
        # the second problem's seed is derived from its place
        2 if path.stem == "in_distribution" else 1,
        id=path.stem,
        marks=[] if path.stem in KINDS else pytest.mark.more,
    )
    for path in SETS
]
"""The shipped sets, and of how many of their problems the draws are repeated."""


def changed(kind: str, place: int, *, text: str = TEXT, **values: object) -> str:
    """The recorded run with other values in one of its lines."""
    lines = [json.loads(line) for line in text.splitlines()]
    line = [line for line in lines if line["type"] == kind][place]
    line |= values
    return "".join(json.dumps(line) + "\n" for line in lines)


def value(kind: str, place: int, name: str) -> object:
    lines = [json.loads(line) for line in TEXT.splitlines()]
    return [line for line in lines if line["type"] == kind][place][name]


def other_token(kind: str, place: int) -> str:
    first, *rest = value(kind, place, "tokens")
    return changed(kind, place, tokens=[first + 1, *rest])


def flipped(place: int) -> str:
    return changed("step", place, accepted=not value("step", place, "accepted"))


def coin(place: int) -> float:
    """How far a coin fell from the acceptance probability."""
    step = load_trace(RUN).steps[place]
    return abs(math.exp(step.log_u) - math.exp(step.log_alpha))


FAR = next(k for k in range(1, 48) if coin(k) > 0.1)
ANOTHER = {
    "a token of a step": other_token("step", 5),
    "a token of a sample": other_token("sample", 3),
    "a reward of a step": changed("step", 5, reward=value("step", 5, "reward") + 2e-3),
    "a reward of a sample": changed("sample", 3, reward=value("sample", 3, "reward") - 2e-3),
    "a verdict": flipped(FAR),
    "a cut": changed("step", 5, index=value("step", 5, "index") + 1),
    "an answer": changed("sample", 3, answer="7"),
    "a cost": changed("step", 5, cost=[1, 1]),
    "a seed": changed("header", 0, seed=8),
    "an end": changed("end", 0, reason="stopped"),
    "a step less": "".join(line for line in TEXT.splitlines(keepends=True) if '"t":48' not in line),
}


@pytest.mark.recorded
@pytest.mark.parametrize("name", ANOTHER)
def test_a_run_that_differs_in_one_thing_is_another_run(name):
    with pytest.raises(AssertionError):
        check_same_run(TEXT, lambda begun: ANOTHER[name])


def test_last_bits_and_the_date_make_no_other_run():
    check_same_run(TEXT, lambda begun: TEXT)
    near = changed("step", 5, reward=value("step", 5, "reward") + 2e-5)
    check_same_run(TEXT, lambda begun: near)
    check_same_run(TEXT, lambda begun: changed("header", 0, created="later"))


def test_log_probabilities_are_the_same_up_to_their_last_bits():
    step = load_trace(ASSETS / "runs" / "repair.jsonl").steps[5]
    of_block = step.proposal.response.log_probs[step.index :]
    assert step.kept_again
    for by, same in ((2e-5, True), (2e-3, False)):
        for values in (
            {"log_probs": [p - by for p in of_block]},
            {"log_correction": step.log_correction + 4 * by},
        ):
            again = changed("step", 5, text=BLOCKS, **values)
            if same:
                check_same_run(BLOCKS, lambda begun, again=again: again)
            else:
                with pytest.raises(AssertionError, match="no border near"):
                    check_same_run(BLOCKS, lambda begun, again=again: again)
    shorter = changed("step", 5, text=BLOCKS, log_probs=list(of_block[:-1]))
    with pytest.raises(AssertionError, match="no border near"):
        check_same_run(BLOCKS, lambda begun: shorter)


def test_a_trace_from_before_moves_had_names_is_drawn_again_with_them():
    named = changed("step", 5, text=BLOCKS, move="block")
    assert '"move":"block"' not in BLOCKS
    check_same_run(BLOCKS, lambda begun: named)
    for again in (BLOCKS, changed("step", 5, text=BLOCKS, move="suffix")):
        with pytest.raises(AssertionError, match="no border near"):
            check_same_run(named, lambda begun, again=again: again)


@pytest.mark.recorded
@pytest.mark.parametrize("name", ["a token of a step", "a token of a sample", "a verdict"])
def test_at_its_border_a_difference_is_shown_and_the_recorded_run_goes_on(name, monkeypatch):
    monkeypatch.setattr(recorded, "BORDER", 1.0)
    calls = []

    def draw(begun: str) -> str:
        calls.append(begun)
        return TEXT if begun else ANOTHER[name]

    with pytest.warns(AtBorder, match="from its border"):
        check_same_run(TEXT, draw)
    first, again = calls
    assert first == ""
    assert len(again.splitlines()) > 5
    assert set(again.splitlines()[1:]) < set(TEXT.splitlines())


def test_a_draw_lies_inside_the_part_of_its_token_or_so_far_from_it():
    p = [0.5, 0.0, 0.3, 0.2]
    assert recorded.distance(p, 0.7, 2) == 0
    assert recorded.distance(p, 0.4999, 2) == pytest.approx(1e-4)
    assert recorded.distance(p, 0.81, 2) == pytest.approx(0.01)


@pytest.mark.recorded
def test_each_recorded_token_lies_inside_its_own_part():
    trace = load_trace(RUN)
    blocks = load_trace(ASSETS / "runs" / "repair.jsonl")
    (block, *_) = (step for step in blocks.steps if step.kept_again)
    for of, draw in ((trace, trace.steps[0]), (trace, trace.pool[3]), (blocks, block)):
        ids, at, first = recorded.draw_fields(draw, 3)
        assert ids[first:]
        for p, u, token in recorded._draws(of, ids, at, first):
            assert recorded.distance(p, u, token) <= recorded.BORDER
            assert sum(p) == pytest.approx(1)
    in_vain = NoProposal("the new text is longer than the length limit", first, ids[first:])
    refused = replace(block, proposal=block.current, refused=in_vain)
    assert recorded.draw_fields(refused, 3) == (ids, at, first)


READS = re.compile(
    r"assets/(runs|results)|ASSETS / .(runs|results)\b|import .*\bRECORDED\b|\bENTRIES\b"
)
LOADS = re.compile(
    r"load_(language|reward)_model\(.embedded|from_pretrained\(|\bdraw_again\(|check_same_run\("
    r"|\bRuns\((Limits\([^()]*\))?\)"
)
"""What loads the embedded models, or draws with them."""


def lacks_its_mark(source: str) -> bool:
    """Whether tests read recorded numbers and draw with the same models, but none says so."""
    return bool(READS.search(source) and LOADS.search(source) and "mark.recorded" not in source)


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parent.glob("test_*.py")), ids=lambda path: path.stem
)
def test_tests_that_draw_against_recorded_numbers_are_tried_on_other_processors(path: Path):
    assert not lacks_its_mark(path.read_text("utf-8"))


def test_a_file_that_draws_against_recorded_numbers_without_the_mark_is_found():
    source = 'RUN = load_trace(ASSETS / "runs" / "a.jsonl")\nlm = load_language_model("embedded")\n'
    assert lacks_its_mark(source)
    assert not lacks_its_mark(source + "pytestmark = pytest.mark.recorded\n")
    assert not lacks_its_mark(source.replace("embedded", "tiny"))
    assert lacks_its_mark(
        (Path(__file__).parent / "test_inside.py")
        .read_text("utf-8")
        .replace("mark.recorded", "mark.more")
    )


@pytest.fixture(scope="module")
def draw(tmp_path_factory):
    """What the first problems of a shipped set are, drawn again: shipped, redrawn and traces."""

    @cache
    def draw_first(path: Path, problems: int):
        folder = tmp_path_factory.mktemp("drawn")
        shipped = unpack(path)
        redrawn = asyncio.run(draw_again(shipped, problems, BUDGET, folder))
        return shipped.records, redrawn.records, dict(traces_of(folder, problems))

    return draw_first


@pytest.mark.recorded
@pytest.mark.parametrize(("path", "problems"), EACH_SET)
def test_shipped_results_begin_with_what_is_drawn_again(path: Path, problems: int, draw):
    shipped, redrawn, traces = draw(path, problems)
    assert len(redrawn) == problems
    for place, again in enumerate(redrawn):
        check_same_draws(shipped[place], again, traces[place])


@pytest.mark.recorded
def test_results_that_differ_in_one_draw_are_others(draw, monkeypatch):
    (shipped, *_), (redrawn,), traces = draw(ASSETS / "results" / "inventory-block.zip", 1)
    trace = traces[0]
    law = cache(partial(recorded._draws, trace))
    monkeypatch.setattr(recorded, "_draws", lambda of, *how: law(*how))
    check_same_draws(shipped, redrawn, trace)
    assert redrawn.chain_cost[1, 2] > 0, "a kept tail is read again"

    def but(name: str, by: float) -> Record:
        values = np.array(getattr(redrawn, name))
        values[1 if name.startswith("chain") else 0] += by  # one of two samples is left
        return replace(redrawn, **{name: values})

    alone = {"pool_reward": 2e-3, "chain_reward": -2e-3, "chain_correction": 1.0}
    telling = {"chain_cost": [0, 0, 1], "chain_length": 1, "pool_cost": 1}
    for name, by in {**alone, **telling}.items():
        with pytest.raises(AssertionError, match="border"):
            check_same_draws(shipped, but(name, by), trace)
    monkeypatch.setattr(recorded, "BORDER", 1.0)  # every draw and every coin lies at its border
    for name, by in alone.items():  # no other token: its cost or its length would tell
        with pytest.raises(AssertionError, match="no border near"):
            check_same_draws(shipped, but(name, by), trace)
    for name, by in telling.items():
        with pytest.warns(AtBorder, match="; [1-9] later draws are not compared"):
            check_same_draws(shipped, but(name, by), trace)
