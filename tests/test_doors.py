"""One value says what a run is, and every door has it: its settings, their ranges, their help."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import gradio as gr
import httpx
import pytest
import uvicorn
from house import changed_copy, run_script
from refusals import check_sentence, refusal, refuse_command
from tiny_models import save
from toys import PROMPT, ToyLM, ToyRM

from components.common.form import RunForm, label_of
from components.endpoints import build_api
from components.session.drawing import draw_run
from components.session.links import from_query
from components.session.offer import Offer
from components.session.runs import Feed, Runs
from qalign_core.errors import InvalidSetting, QAlignError
from qalign_core.record.format import parse_trace
from qalign_core.record.store import read_trace
from qalign_core.registry import load_language_model, unload
from qalign_core.run import DEFAULT_SAMPLING, Limits, Run, Sampling
from qalign_study.commands import main, shared, train_rm
from qalign_study.commands import serve as serve_command
from qalign_study.commands import tune as tune_command
from qalign_study.export.command import COMMAND_DEFAULTS, command_of

ROOT = Path(__file__).resolve().parent.parent
METADATA = {each.name: each.metadata for each in fields(Run)}
AFTER = "    seed: int = setting("
ADDED = '    patience: int = setting(3, "how long to wait", min=0, max=9)\n'


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """What `doors_client.py` found in a copy with one field more, which the runner applies."""
    applied = "APPLIES = frozenset("
    root = changed_copy(
        tmp_path_factory.mktemp("house"),
        ("qalign_core/run.py", AFTER, f"{ADDED}{AFTER}"),
        ("qalign_core/record/runner.py", applied, 'APPLIES = {"patience"} | frozenset('),
    )
    for name in ("docs", "tests"):
        (root / name).symlink_to(ROOT / name)
    script = root / "tests" / "doors_client.py"
    return json.loads(run_script(root, script, str(root), "patience", "5").splitlines()[-1])


def test_a_setting_that_is_one_line_more_is_an_option_of_the_commands(house):
    for text in house["help"].values():
        assert "--patience INT" in text
        assert "how long to wait (default: 3)" in " ".join(text.split())
    assert house["refused"] == [
        [2, "qalign: patience must be between 0 and 9, got 10\n"],
        [2, "qalign: patience must be a whole number, got 'few'\n"],
    ]


def test_it_is_a_parameter_of_both_endpoints(house):
    for name in ("/run_chain", "/compare"):
        (parameter,) = (
            each
            for each in house["api"][name]["parameters"]
            if each["parameter_name"] == "patience"
        )
        assert parameter["parameter_default"] == 3
        assert parameter["python_type"]["type"] == "int"
    assert house["called"] == 5


def test_it_is_a_widget_of_watch_and_compare_and_scripts_know_its_name(house):
    assert house["widgets"] == 2
    assert house["sent"] == {"watch-run": 1, "compare-run": 1}
    assert '"patience"' in house["scripts"]


def test_it_is_read_from_a_link_and_written_into_one(house):
    assert house["link"] == [5, "This link's settings are in place.", house["link"][2]]
    assert "patience=5" in house["link"][2].split("&")


def test_it_is_in_the_header_of_a_trace_and_in_a_folders_and_in_the_command_that_it_names(house):
    assert house["trace"] == house["set"]["patience"] == 5
    assert "--patience 5" in house["set"]["command"]


# --- one range at all doors ----------------------------------------------------------------------


def wrong_values():
    """Texts that no door takes, for each setting, with what is said of them."""
    limits = Limits()
    for name, kind in Run.kinds().items():
        metadata = METADATA[name]
        if metadata["choices"]:
            yield name, "magic", f"{name} must be one of {', '.join(metadata['choices'])}"
        elif kind is not str:
            most = getattr(limits, metadata["cap"]) if metadata["cap"] else metadata["max"]
            beyond = [metadata["min"] - 1, most * 2 + 1, metadata["max"] + 1]
            yield from ((name, f"{value}", f"{name} must be between") for value in beyond)
            yield name, "nan", f"{name} must be a"
            yield name, "many", f"{name} must be a"
            if kind is int:
                yield name, "4.7", f"{name} must be a whole number"


WRONG = [each for each in wrong_values() if METADATA[each[0]]["page"] or each[0] == "matched"]


@pytest.fixture(scope="module")
def form():
    """The form of a page, and what its widgets show at first."""
    with gr.Blocks():
        run_form = RunForm(Run(PROMPT), Runs(Limits(), offer=Offer(names=())), page="a")
        run_form.add(*run_form.rest)
    return run_form


def tried(form, runs, name, value):
    """What a page says of a form with this value."""
    values = dict(zip(form.widgets, form.show(Run(PROMPT)).values(), strict=True))
    values |= {"rm": "embedded", name: value}

    async def draw_once():
        await draw_run(Feed(), runs, form.read(list(values.values())))

    with pytest.raises(QAlignError) as raised:
        asyncio.run(draw_once())
    return str(raised.value)


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG)
def test_every_door_refuses_the_same_values_with_one_sentence(
    name, value, sentence, form, toy_app, capsys
):
    # as texts, and as the numbers that a browser and a program send
    forms_of_value = [value]
    if Run.kinds()[name] is not str and value not in ("nan", "many"):
        forms_of_value.append(float(value) if "." in value or "e" in value else int(value))
    with refusal(InvalidSetting, sentence, most=200):
        Run.read({"prompt": PROMPT, name: value}).check(Limits())
    if name == "matched":
        return  # a matter of the commands and of Compare's own choice
    run, notices = from_query({name: value}, Limits(), Offer(names=()))
    assert run == Run()
    notice = f"The link's value “{value}” of “{label_of(name)}” cannot be used here."
    check_sentence(" ".join(notices), notice, most=200)
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM()))
    for each in forms_of_value:
        check_sentence(tried(form, runs, name, each), sentence, most=200)
        call = f"{toy_app}gradio_api/call/"
        event = httpx.post(f"{call}v2/run_chain", json={"prompt": PROMPT, name: each}, timeout=60)
        answer = httpx.get(f"{call}run_chain/{event.json()['event_id']}", timeout=60).text
        error = json.loads(answer.strip().rsplit("data: ", 1)[1])["error"]
        check_sentence(error, sentence, most=200)


@pytest.mark.parametrize(
    ("name", "value", "sentence"), [each for each in WRONG if each[0] not in ("matched", "burn_in")]
)
def test_the_command_line_refuses_them_too_but_for_a_servers_caps(name, value, sentence, capsys):
    metadata = METADATA[name]
    number = Run.kinds()[name] is not str and value not in ("nan", "many")
    if number and metadata["cap"] and metadata["min"] <= float(value) <= metadata["max"]:
        return
    option = f"--{name.replace('_', '-')}={value}"
    check_sentence(refuse_command(capsys, ["run", option, "--prompt", PROMPT]), sentence, most=200)


def test_a_small_server_starts_within_its_limits():
    small = Limits(steps=8, samples=4, tokens=16)
    runs = Runs(small, load=lambda *_: (ToyLM(), ToyRM()))
    run, notices = from_query({"beta": "2"}, small, Offer(names=()))
    assert (run.beta, run.steps, run.pool, notices) == (2.0, 8, 4, ())
    with gr.Blocks() as demo:
        form = RunForm(Run(PROMPT, steps=64), runs, page="a")
        form.add(*form.rest)
        build_api(runs)
    run = form.read([widget.value for widget in form.values()])
    assert (run.steps, run.pool, run.max_new_tokens) == (8, 4, 16)
    parameters = demo.get_api_info()["named_endpoints"]["/run_chain"]["parameters"]
    defaults = {each["parameter_name"]: each["parameter_default"] for each in parameters}
    assert (defaults["steps"], defaults["pool"], defaults["max_new_tokens"]) == (8, 4, 16)


def test_a_form_reaches_as_far_as_a_run_does(form):
    for name, widget in form.widgets.items():
        if isinstance(widget, gr.Slider) and name in METADATA:
            metadata, limits = METADATA[name], Limits()
            most = min(
                metadata["max"],
                getattr(limits, metadata["cap"]) if metadata["cap"] else metadata["max"],
            )
            assert (widget.minimum, widget.maximum) == (metadata["min"], most)
        if isinstance(widget, gr.Number):
            assert widget.minimum is widget.maximum is widget.precision is None


# what a door prints as a default is what it draws with

DRAWS = {
    "run": "run --steps 1",
    "compare": "compare --steps 1",
    "evaluate": "evaluate --problems 1 --states 1",
    "train-rm": "train-rm --problems 1 --only-draw",
}


def printed(command: str, option: str, capsys) -> int:
    """The default that the help of a command prints for an option."""
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    (default,) = re.findall(rf" --{option} [A-Z]+ [^()]*?\((?:default: )?(\d+)\)", text)
    return int(default)


@pytest.mark.parametrize("command", DRAWS)
def test_a_command_draws_with_the_defaults_that_it_prints(command, tmp_path, capsys, monkeypatch):
    loaded = []

    def load(id: str = "embedded", **sampling: object) -> ToyLM:
        loaded.append(replace(DEFAULT_SAMPLING, **sampling))
        lm = ToyLM()
        lm.sampling = loaded[-1]
        return lm

    monkeypatch.setattr(shared, "load_language_model", load)
    monkeypatch.setattr(shared, "load_reward_model", lambda *_, **__: ToyRM())
    monkeypatch.setattr(train_rm, "unload", lambda id: None)
    out = tmp_path / "out"
    assert main([*DRAWS[command].split(), "--out", str(out)]) == 0
    capsys.readouterr()
    (first,) = out.rglob("00000.jsonl") if out.is_dir() else (out,)
    header = read_trace(first).header
    assert (
        header.run.max_new_tokens
        == printed(command, "max-new-tokens", capsys)
        == DEFAULT_SAMPLING.max_new_tokens
    )
    budget = {"evaluate": "budget", "train-rm": "samples"}.get(command, "pool")
    assert header.run.pool == printed(command, budget, capsys)
    if command == "train-rm":
        assert (
            header.run.steps
            == printed(command, "steps", capsys)
            == COMMAND_DEFAULTS[command]["steps"]
        )


def test_tune_draws_with_the_defaults_that_it_prints(capsys, monkeypatch):
    calls = []

    async def tune(lm, rm, prompts, run, **_):
        calls.append((lm.sampling, run))
        raise InvalidSetting("enough")

    monkeypatch.setattr(tune_command, "tune_beta", tune)
    refuse_command(capsys, ["tune", "--problems", "1"], "enough")
    ((sampling, run),) = calls
    assert sampling.max_new_tokens == printed("tune", "max-new-tokens", capsys)
    assert run.steps == printed("tune", "steps", capsys)
    assert run.seed == printed("tune", "seed", capsys)


@pytest.mark.parametrize("method", ["qalign", "majority-vote"])
def test_serve_answers_with_the_defaults_that_it_prints(method, capsys, monkeypatch):
    runs = []

    async def draw_nothing(lm, rm, run):
        runs.append(run)
        raise InvalidSetting("enough")
        yield

    async def ask(server, sockets):
        message = {"role": "user", "content": PROMPT}
        transport = httpx.ASGITransport(app=server.config.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"model": f"embedded/{method}", "messages": [message]}
            answer = await client.post("/v1/chat/completions", json=body)
        assert "enough" in answer.text
        sockets[0].close()

    monkeypatch.setattr(serve_command, "record", draw_nothing)
    monkeypatch.setattr(uvicorn.Server, "serve", ask)
    assert main(["serve", "--port", "0"]) == 0
    capsys.readouterr()
    (run,) = runs
    assert run.max_new_tokens == printed("serve", "max-new-tokens", capsys)
    n_texts = run.pool if method == "majority-vote" else run.steps
    assert n_texts == printed("serve", "pool" if method == "majority-vote" else "steps", capsys)


def test_a_model_without_an_entry_has_the_limit_that_the_help_prints(tmp_path, capsys):
    folder, out = (
        str(save(tmp_path / "model", "llama", max_position_embeddings=512)),
        tmp_path / "a",
    )
    assert main(["run", "--lm", folder, "--rm", "plain", "--prompt", "Hi", "--steps", "0",
                 "--out", str(out), "--quiet"]) == 0  # fmt: skip
    capsys.readouterr()
    unload(folder)
    assert read_trace(out).header.run.max_new_tokens == printed("run", "max-new-tokens", capsys)


def test_a_plan_counts_with_the_defaults_that_the_help_prints(capsys):
    for command, budget in (("evaluate", "budget"), ("train-rm", "samples")):
        assert main([command, "--plan"]) == 0
        output = capsys.readouterr().out
        assert f"each {printed(command, budget, capsys)} samples" in output
        limit = printed(command, "max-new-tokens", capsys)
        assert f"{limit // 2} tokens per response (assumed: half of the limit)" in output


def test_python_pages_and_endpoints_have_the_same_defaults(form, toy_app):
    assert (
        load_language_model("embedded").sampling == DEFAULT_SAMPLING == Sampling() == Run().sampling
    )
    assert form.read([widget.value for widget in form.values()]).sampling == DEFAULT_SAMPLING
    call = f"{toy_app}gradio_api/call/"
    event = httpx.post(f"{call}v2/run_chain", json={"prompt": PROMPT, "steps": 1}, timeout=60)
    answer = httpx.get(f"{call}run_chain/{event.json()['event_id']}", timeout=60).text
    header = parse_trace(json.loads(answer.strip().rsplit("data: ", 1)[1])[0]).header
    api = httpx.get(f"{toy_app}gradio_api/info", timeout=60).json()
    parameters = api["named_endpoints"]["/run_chain"]["parameters"]
    defaults = {each["parameter_name"]: each["parameter_default"] for each in parameters}
    assert defaults["pool"] == header.run.pool == Run().pool
    assert defaults["max_new_tokens"] == Run().max_new_tokens


def test_the_command_of_a_run_draws_as_many_samples_as_the_run():
    for matched, pool in (("none", 64), ("none", 0), ("pool", 64), ("pool", 4096)):
        run = Run(PROMPT, matched=matched, pool=pool)
        words = shlex.split(command_of(run))
        pool_option = dict(pairwise(words)).get("--pool")
        assert int(pool_option or COMMAND_DEFAULTS[words[1]]["pool"]) == pool
