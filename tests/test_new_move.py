"""A move is one file in `chain/moves`: settings, traces and Watch name it.

Two files are added to a copy of the source, as a stranger would; a run is drawn with each move, and
its trace opened in the player; `tests/js/moves.test.js` has the player's rules for names.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from browser import standalone
from house import changed_copy, run_in

from qalign_core.errors import InvalidSetting
from qalign_core.move_spec import parse_moves
from qalign_core.record.format import parse_trace

HEAD = '''"""A move of a stranger."""

from dataclasses import dataclass
from typing import ClassVar

from qalign_core.chain.moves.move import Choices, MoveResult, Proposal
from qalign_core.move_spec import move_kind
from qalign_core.types import NoProposal, Response


'''
WHOLE = '''@move_kind()
@dataclass(frozen=True, slots=True)
class Whole:
    """Draw the whole text again: the model's probabilities cancel."""

    name: ClassVar[str] = "whole"

    async def propose(self, choices: Choices, y: Response) -> MoveResult:
        return Proposal(await choices.extend(y, 0), 0, (0.0,))
'''
NEVER = '''@move_kind(lambda lm, text: Never(text), takes_text=True, reaches_all=False)
@dataclass(frozen=True, slots=True)
class Never:
    """Make no proposal."""

    text: str
    name: ClassVar[str] = "never"

    async def propose(self, choices: Choices, y: Response) -> MoveResult:
        return NoProposal(f"the text is {self.text}")
'''
MOVES = {"whole": (WHOLE, "whole"), "never": (NEVER, "never(of late)")}
"""New moves: the source, and the term of the setting."""

CHECK = """
import asyncio
import json
import sys

from qalign_core.errors import InvalidSetting
from qalign_core.move_spec import parse_moves
from qalign_core.record.runner import record
from qalign_core.record.format import parse_trace, trace_lines
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Limits, Run
from qalign_study.export.browser import unsupported_reason



async def draw(run):
    lm = load_language_model("embedded", max_new_tokens=4)
    return "".join([item.line async for item in record(lm, load_reward_model("plain"), run)])


def check(name, term):
    run = Run("2 + 2?", steps=12, pool=0, max_new_tokens=4, move=f"suffix+{term}").check(Limits())
    assert [part.name for part in parse_moves(run.move)] == ["suffix", name]
    try:
        parse_moves(term)
    except InvalidSetting as error:
        assert f"{name} moves alone cannot reach every response" in str(error)
        assert name == "never"
    text = asyncio.run(draw(run))
    trace = parse_trace(text)
    assert {step.move for step in trace.steps if step.t} == {"suffix", name}
    assert trace.steps[0].move == ""
    named = f'"move":"{name}"'
    assert "".join(trace_lines(trace)).count(named) == text.count(named)
    assert unsupported_reason(run) == "a browser does not know the setting move"
    return text


print(json.dumps({name: check(name, term) for name, term in json.loads(sys.argv[1]).items()}))
"""


NAMED = """(name) => document.querySelector(".qp-cell-0").textContent
  .includes(`This step makes the move ${name}.`)"""
"""True if the player names the move of the step that it shows."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The trace of a run with each move, drawn by a copy that has both files."""
    files = {
        f"qalign_core/chain/moves/{name}.py": HEAD + source for name, (source, _) in MOVES.items()
    }
    edits = [(path, "", source) for path, source in files.items()]
    copy = changed_copy(tmp_path_factory.mktemp("house"), *edits)
    terms = {name: term for name, (_, term) in MOVES.items()}
    return dict(json.loads(run_in(copy, CHECK, json.dumps(terms)).splitlines()[-1]))


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", MOVES)
async def test_a_move_is_one_file(name: str, traces: dict[str, str], visit: Any) -> None:
    page = await visit(standalone(traces[name], options="autoplay: false"))
    for step in parse_trace(traces[name]).steps[1:]:
        await page.evaluate(f"api.seek({step.t})")
        await page.wait_for_function(f"document.querySelector('.qp').dataset.t == {step.t}")
        assert await page.evaluate(NAMED, name) == (step.move == name)


@pytest.mark.parametrize("term", ["whole", "never(of late)", "suffix(x)", "block", "entropy(1)"])
def test_without_the_file_the_name_is_unknown(term: str) -> None:
    """The control; a name with a text that its move does not take is none either."""
    with pytest.raises(InvalidSetting, match="move must be written like suffix"):
        parse_moves(f"suffix+{term}")
