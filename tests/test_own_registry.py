"""Models of one's own on the page: a file that the operator names."""

from __future__ import annotations

import pytest
from refusals import refusal, refuse_command
from tiny_models import save

from components.session.drawing import draw_run
from components.session.offer import Offer
from components.session.runs import Runs
from qalign_core import registry
from qalign_core.errors import ModelLoadError
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Limits, Run
from qalign_core.types import Response
from qalign_study.commands import main

OWN = """
[[lm]]
id = "mine"
source = "lm"
title = "My model"
sampling = { temperature = 0.8, max_new_tokens = 12 }
options = { device = "cpu", window = 190, rows = 4 }

[[rm]]
id = "short"
source = "rules.py:short"

[[rm]]
id = "both"
source = "0.5*short + 0.5*embedded"

[[rm]]
id = "graded"
source = "judge:mine"
"""
DOUBLED = "".join(
    f'[[rm]]\nid = "{name}{k}"\nsource = "0.5*a{k + 1} + 0.5*b{k + 1}"\n'
    for k in range(30)
    for name in "ab"
)
"""Rewards of two parts each, of which the first has a billion."""
RULES = "def short(prompt, response):\n    return -len(response) / 10\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a model, a rule and a registry of them."""
    save(tmp_path / "lm", "llama")
    (tmp_path / "rules.py").write_text(RULES)
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    monkeypatch.setenv("QALIGN_REGISTRY", str(path))
    registry.entries.cache_clear()
    yield path
    registry.unload("mine")
    registry.entries.cache_clear()


async def test_models_rules_and_sums_load_by_their_names(own):
    lm = load_language_model("mine")
    assert (lm.id, lm.context_length, lm.sampling.temperature) == ("mine", 190, 0.8)
    response = Response((), "ten chars!", True)
    short = load_reward_model("short")
    both = load_reward_model("both")
    embedded = load_reward_model("embedded")
    assert (short.id, both.id) == ("short", "both")
    assert await short.score("x", response) == -1.0
    expected = 0.5 * -1.0 + 0.5 * await embedded.score("x", response)
    assert await both.score("x", response) == pytest.approx(expected)
    assert load_reward_model("graded").id == "graded"


async def test_the_page_offers_them_and_runs_them(own):
    offer = Offer()
    assert offer.models["lm"]["mine"] == "My model"
    assert {"short", "both", "graded"} <= set(offer.models["rm"])
    runs = Runs(Limits(), offer=offer)
    wanted = Run(prompt="Hi", lm="mine", rm="both", steps=3, max_new_tokens=12)
    async for now in runs.stream("visitor", lambda feed: draw_run(feed, runs, wanted)):
        status = now.status
    assert status.state == "finished"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ('rows = "4"', "mine has the option rows = '4'; a whole number was expected"),
        ("window = 1.5", "mine has the option window = 1.5; a whole number was expected"),
        ("device = 0", "mine has the option device = 0; text was expected"),
        ("rows = true", "mine has the option rows = True; a whole number was expected"),
        ("threads = 0", "threads must be at least 1, got 0"),
        ("cache_bytes = -1", "cache_bytes must be at least 0, got -1"),
    ],
)
def test_an_option_of_another_kind_is_named_with_its_entry(own, options, sentence):
    own.write_text(OWN.replace('device = "cpu", window = 190, rows = 4', options))
    registry.entries.cache_clear()
    with refusal(ModelLoadError, sentence):
        load_language_model("mine")


def test_the_options_of_an_entry_reach_what_it_is_made_of_and_unknown_ones_are_named(own):
    own.write_text(OWN.replace('"judge:mine"', '"judge:mine"\noptions = { rows = 6 }'))
    registry.entries.cache_clear()
    assert load_reward_model("graded")._lm.engine.net.rows == 6
    own.write_text(OWN.replace("rows = 4", "rows = 4, lines = 3"))
    registry.entries.cache_clear()
    with pytest.raises(ModelLoadError, match="mine has no option lines; it has cache_bytes, "):
        load_language_model("mine")


@pytest.mark.parametrize("rm", ["other.py:short", "judge:/etc", "0.5*short + 0.5*/etc"])
def test_a_visitor_still_loads_nothing_else(own, rm):
    with pytest.raises(ModelLoadError, match="does not offer"):
        Offer().check("mine", rm)


def test_the_command_line_knows_them_too(own, capsys):
    command = ["run", "--lm", "mine", "--rm", "short", "--prompt", "Hi", "--steps", "2", "--quiet"]
    assert main(command) == 0
    assert "of 3 states" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[lm]\n", "Expected ']]'"),
        ('[[lm]]\nid = "a"\n', "[[lm]] number 1: 'source' is missing)"),
        ('[[rm]]\nsource = "b"\n', "[[rm]] number 1: 'id' is missing)"),
        ('[[lm]]\nid = "a"\nsource = "b"\nsize = 3\n', "1: 'size' is not one of its fields)"),
        ('[[lm]]\nid = "a"\nsource = "b"\nsampling = { temp = 1 }\n', "1: 'temp' is not one of"),
        ('[rm]\nid = "a"\nsource = "b"\n', "'rm' is not a list; write [[rm]] above every"),
        (OWN + '[[rm]]\nid = "short"\nsource = "mood"\n', "two [[rm]] have the id 'short'"),
        ('[[model]]\nid = "a"\n', "'model' is neither [[lm]] nor [[rm]]"),
        (None, "No such file"),
        ("lm = 5\n", "'lm' is not a list"),
        ('lm = ["a"]\n', "[[lm]] number 1: "),
        (OWN + '[[rm]]\nid = 5\nsource = "x"\n', "[[rm]] number 4: id = 5; text was expected"),
        ('[[lm]]\nid = "a"\nsource = ["b"]\n', "source = ['b']"),
        (
            '[[lm]]\nid = "a"\nsource = "b"\nbeta = "1"\n',
            "[[lm]] number 1: beta = '1'; a finite number was expected",
        ),
        ('[[lm]]\nid = "a"\nsource = "b"\nparameters = nan\n', "parameters = nan; a finite number"),
        ('[[lm]]\nid = "a"\nsource = "b"\ngated = 1\n', "gated = 1; true or false"),
        ('[[lm]]\nid = "a"\nsource = "b"\noptions = 7\n', "options = 7; an object"),
        ('[[lm]]\nid = "a"\nsource = "b"\nsampling = 7\n', "[[lm]] number 1: "),
        ('[[lm]]\nid = "a"\nsource = "b"\nsampling = { temperature = "1" }\n', "temperature must"),
        ('[[lm]]\nid = "a"\nsource = "b"\nsampling = { max_new_tokens = 1.5 }\n', "max_new_tokens"),
        ("a = " + "[" * 9999, "recursion"),
        (OWN.replace("0.5*short", "0.5*both"), "both is part of both; name other rewards"),
        (OWN.replace("rules.py:short", "2*both"), "short is part of both is part of short;"),
        (OWN.replace("rules.py:short", "a/" * 501), "source has 1,002 characters; 1,000 at most"),
        (OWN.replace('"short"', f'"{"x" * 2000}"'), "id has 2,000 characters; 1,000 at most"),
        (DOUBLED, "23' has more than 100 parts"),
    ],
)
def test_a_registry_that_cannot_be_read_is_one_sentence(own, text, sentence, capsys):
    own.unlink() if text is None else own.write_text(text)
    output = refuse_command(capsys, ["run", "--steps", "1"], sentence)
    assert output.startswith(f"qalign: QALIGN_REGISTRY={own} cannot be read (")


@pytest.mark.parametrize(
    "path", ["x" * 256, "9" * 100_000, "a/" * 5000, "~nobody-here/registry.toml", "."]
)
def test_a_registry_at_a_path_of_any_length_is_refused_in_one_short_sentence(path, monkeypatch):
    monkeypatch.setenv("QALIGN_REGISTRY", path)
    registry.entries.cache_clear()
    with refusal(ModelLoadError, match=r"^QALIGN_REGISTRY=.* cannot be read", most=600):
        registry.entries()
