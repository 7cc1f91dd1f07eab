"""A setting is one field: form, command, link, trace and endpoints carry it, and engines refuse it.

Fields are added to a copy of the source, as a stranger would, and that copy runs.
"""

from __future__ import annotations

import json

import pytest
from house import changed_copy, run_in

SETTINGS = {
    "repetition_penalty": ("Sampling", "float", 1.0, 1.2),
    "min_tokens": ("Sampling", "int", 0, 3),
    "thinning": ("Run", "int", 1, 4),
}
"""New settings: the class that has them, their type, default and another value."""
PLACES = {"Sampling": "    top_k: int = setting(", "Run": "    burn_in: int = setting("}
"""A line of each class in front of which the field goes."""

CHECK = """
import asyncio
import json
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import qalign_core
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


async def draw(lm, run):
    rm = load_reward_model("plain")
    return parse_trace("".join([item.line async for item in record(lm, rm, run)]))


def check(name, default, value):
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
    def refusal(of):
        try:
            of()
        except InvalidSetting as error:
            sentence = str(error)
            words = f"does not apply the setting {name}; leave it at {default:g}"
            assert words in sentence, sentence
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
        words = ["run", "--prompt", "2 + 2?", "--rm", "plain", option, str(value)]
        assert main(words) not in (0, None)


def error_of(name, default, value):
    try:
        check(name, default, value)
    except (AssertionError, InvalidSetting, TypeError):
        return traceback.format_exc()
    return ""


assert __file__.startswith(str(Path(qalign_core.__file__).parents[1]))
settings = json.loads(sys.argv[1])
print(json.dumps({name: error_of(name, *values) for name, values in settings.items()}))
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What goes wrong with each setting in a copy that has a field for all but `unknown`."""
    fields = dict.fromkeys(PLACES, "")
    for name, (owner, kind, default, _) in SETTINGS.items():
        fields[owner] += f'    {name}: {kind} = setting({default}, "new here", min=0, max=9)\n\n'
    copy = changed_copy(
        tmp_path_factory.mktemp("house"),
        *(("qalign_core/run.py", place, fields[owner] + place) for owner, place in PLACES.items()),
    )
    values = {name: (default, value) for name, (*_, default, value) in SETTINGS.items()}
    output = run_in(copy, CHECK, json.dumps({**values, "unknown": (0, 1)}))
    return dict(json.loads(output.splitlines()[-1]))


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_one_field(name: str, errors: dict[str, str]) -> None:
    assert errors[name] == ""


def test_without_the_field_nothing_knows_the_setting(errors: dict[str, str]) -> None:
    """The control."""
    assert "unknown" in errors["unknown"]
