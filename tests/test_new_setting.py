"""A setting is one field: form, command, link, trace and endpoints carry it, and engines refuse it.

Each test adds a field to a copy of the source, as a stranger would, and runs that copy.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from house import changed_copy, run_in

SETTINGS = {
    "repetition_penalty": ("Sampling", "float", "1.0", "1.2"),
    "min_tokens": ("Sampling", "int", "0", "3"),
    "thinning": ("Run", "int", "1", "4"),
}
"""New settings: the class that has them, their type, default and another value."""
PLACES = {"Sampling": "    top_k: int = setting(", "Run": "    burn_in: int = setting("}
"""A line of each class in front of which the field goes."""

CHECK = """
import sys

import qalign_core

assert "stranger" in open(sys.argv[0]).name
name, kind, default, value = sys.argv[1:]
read_as = {"int": int, "float": float}[kind]
default, value = read_as(default), read_as(value)

import asyncio
from dataclasses import replace

from components import endpoints
from components.common.form import RunForm
from components.session.links import from_query
from components.session.offer import Offer
from components.session.runs import Runs
from qalign_core.errors import InvalidSetting
from qalign_core.models.local.engine import HFLanguageModel
from qalign_core.models.served.language_model import (
    LlamaCppLanguageModel,
    RetokenisedLanguageModel,
    ServedLanguageModel,
)
from qalign_core.record.runner import record
from qalign_core.record.format import parse_trace
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Limits, Run, Sampling
from qalign_study.commands import main, read, shared
from qalign_study.export.browser import unsupported_reason
from qalign_study.export.command import command_of
from qalign_study.serve.request_schema import parse_request

usual, changed = Run(prompt="2 + 2?", steps=1, pool=1, max_new_tokens=4), {name: value}
run = usual.with_changes(**changed)
option = "--" + name.replace("_", "-")

# the command line
assert getattr(shared.settings_of(read(["run", option, str(value)])), name) == value
assert f"{option} {value}" in command_of(run)
# a link
assert f"{name}={value}" in run.query()
linked, notices = from_query({"prompt": "2 + 2?", **run.changes()}, Limits(), Offer())
assert getattr(linked, name) == value and not notices, notices
# a form
assert name in RunForm(Run(), Runs(), page="watch").rest
# the endpoints of the app, and of chat completions
assert name in [each.name for each in endpoints.settings(Limits())]
messages = [{"role": "user", "content": "2 + 2?"}]
body = {"model": "toy/qalign", "messages": messages, "qalign": changed}
assert getattr(parse_request(body, ("toy",), {}, Limits()).run, name) == value


# the engines
async def draw(lm, run):
    rm = load_reward_model("plain")
    return parse_trace("".join([item.line async for item in record(lm, rm, run)]))


def refusal(of):
    try:
        of()
    except InvalidSetting as error:
        sentence = str(error)
        assert f"does not apply the setting {name}; leave it at {default:g}" in sentence, sentence
        assert "\\n" not in sentence
        return sentence
    raise AssertionError("it was not refused")


lm = load_language_model("embedded", max_new_tokens=4)
trace = asyncio.run(draw(lm, usual))
assert getattr(trace.header.run, name) == default and len(trace.steps) == 2
refusal(lambda: asyncio.run(draw(lm, run)))
assert unsupported_reason(usual) == ""
assert unsupported_reason(run) == f"a browser does not know the setting {name}"
if name in Sampling.settings():
    refusal(lambda: load_language_model("embedded", **changed))
    for served in (ServedLanguageModel, RetokenisedLanguageModel, LlamaCppLanguageModel):
        model = object.__new__(served)
        model.id = "served"
        refusal(lambda: model.with_sampling(run.sampling))
    HFLanguageModel.applies |= {name}  # a model that declares it
    assert getattr(load_language_model("embedded", **changed).sampling, name) == value
    model = lm.with_sampling(replace(run.sampling))
    trace = asyncio.run(draw(model, run))
    assert getattr(trace.header.run, name) == value and len(trace.steps) == 2
else:
    assert main(["run", "--prompt", "2 + 2?", "--rm", "plain", option, str(value)]) not in (0, None)
print("all of it")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_one_field(name: str, tmp_path: Path) -> None:
    owner, kind, default, value = SETTINGS[name]
    field = f'    {name}: {kind} = setting({default}, "new here", min=0, max=9)\n\n'
    place = PLACES[owner]
    edits = {"qalign_core/run.py": (place, field + place)}
    copy = changed_copy(tmp_path, edits)
    assert run_in(copy, CHECK, name, kind, default, value).endswith("all of it\n")


@pytest.mark.slow
def test_without_the_field_nothing_knows_the_setting(tmp_path: Path) -> None:
    """The control."""
    with pytest.raises(AssertionError, match="repetition_penalty"):
        run_in(changed_copy(tmp_path, {}), CHECK, "repetition_penalty", "float", "1.0", "1.2")
