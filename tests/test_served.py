"""Models behind HTTP, on a fake server that fails as told: what passes, what ends, what is said."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import deque

import pytest
from fake_server import EOS, IDS, SCORES, FakeServer
from forks import Program
from refusals import refusal
from tiny_models import N_VOCABULARY, save

from qalign_core import Sampling, registry, run_chain
from qalign_core.errors import (
    EngineError,
    InvalidPrompt,
    InvalidReward,
    InvalidSetting,
    ModelContractError,
    ModelLoadError,
)
from qalign_core.models.loading import n_stored
from qalign_core.models.served import client, language_model
from qalign_core.models.served.client import Server
from qalign_core.models.served.language_model import RetokenisedLanguageModel, ServedLanguageModel
from qalign_core.record.format import parse_trace
from qalign_core.record.runner import record
from qalign_core.registry import load_reward_model
from qalign_core.rewards.served import ServedRewardModel
from qalign_core.run import Run
from qalign_core.types import Response, Step
from qalign_study.commands import main
from qalign_study.serve.refusal import public_errors

PROMPT = "Mia has 12 books. How many?"
QUICK = {"pause": 0.001, "timeout": 20.0}
TEMPORARY = ["429", "500", "503", "gone", "half", "html", "nested without end",
             "lost ids", "aborted"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("served"), "llama")


@pytest.fixture
def server(folder):
    fake = FakeServer(folder)
    yield fake
    fake.hold.set()
    fake.stop()


def connect(server, limit=14, **options):
    sampling = Sampling(max_new_tokens=limit)
    return ServedLanguageModel.connect(server.address, sampling=sampling, **{**QUICK, **options})


def connect_rm(server, **options):
    return ServedRewardModel.connect(server.address, **{**QUICK, **options})


async def steps_of(lm, rm, n=6):
    return [s async for s in run_chain(lm, rm, PROMPT, beta=1.0, steps=n, seed=4)]


async def test_ids_go_both_ways_and_the_eos_counts(server):
    lm = connect(server)
    ids = lm.encode(PROMPT)
    responses = await asyncio.gather(*(lm.extend(ids, (), seed=k) for k in range(40)))
    assert responses == [await lm.extend(ids, (), seed=k) for k in range(40)]
    assert {r.finished for r in responses} == {True, False}
    for response in responses:
        assert response.finished == (response.tokens[-1] in EOS)
        assert response.finished or len(response) == 14
        assert len(response.pieces) == len(response)
    longest = max(responses, key=len)
    again = await lm.extend(ids, longest.tokens[:9], seed=1)
    assert again.tokens[:9] == longest.tokens[:9]
    assert server.bodies[-1]["prompt"] == [*ids, *longest.tokens[:9]]
    assert server.bodies[-1]["max_tokens"] == 5


def test_the_size_of_a_served_model_is_counted_in_its_folder_or_that_of_the_registry(
    server, folder
):
    """Without it a table has no FLOPs."""

    def size(**options):
        lm = registry.load_language_model(server.address, **options)
        registry.unload(server.address)
        return lm.n_parameters

    assert size() == n_stored(folder)
    server.root = "allenai/Llama-3.1-Tulu-3-8B-SFT"
    assert size(tokenizer=str(folder)) == 8_030_300_000
    server.root = "/a/folder/of/the/server"
    assert size(tokenizer=str(folder)) == 0


async def test_every_setting_is_sent_so_that_no_default_of_the_server_leaks_in(server):
    lm = connect(server).with_sampling(
        Sampling(temperature=0.7, top_p=0.8, top_k=9, max_new_tokens=14)
    )
    await lm.extend(lm.encode(PROMPT), (), seed=2**64 - 1)
    body = server.bodies[-1]
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.7, 0.8, 9)
    assert (body["min_p"], body["repetition_penalty"]) == (0, 1)
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0, 0)
    assert body["stop_token_ids"] == list(EOS)  # those of the generation config
    assert body["return_token_ids"] is True
    assert 0 <= body["seed"] < 2**63


async def test_log_probabilities_are_asked_for_where_they_are_of_what_is_sampled(server):
    for reported, settings, known in (
        ("as sampled", Sampling(temperature=0.7, top_p=0.8, top_k=9, max_new_tokens=14), True),
        ("model", Sampling(max_new_tokens=14), True),  # then the model is what is sampled
        ("model", Sampling(temperature=0.7, max_new_tokens=14), False),
        ("model", Sampling(top_k=9, max_new_tokens=14), False),
        ("", Sampling(max_new_tokens=14), False),
    ):
        server.log_probs_kind = reported
        lm = connect(server).with_sampling(settings)
        response = await lm.extend(lm.encode(PROMPT), (), seed=3)
        assert ("logprobs" in server.bodies[-1]) == known
        expected = [-1 - token / 100 for token in response.tokens] if known else []
        assert list(response.log_probs) == pytest.approx(expected)


async def test_a_served_chain_of_a_sharper_target_keeps_what_was_told_of_the_prefix(server):
    lm, rm = connect(server), load_reward_model("none")
    chain = run_chain(lm, rm, PROMPT, beta=1.0, alpha=4.0, steps=12, seed=2)
    for step in [step async for step in chain]:
        tokens = step.proposal.response.tokens
        assert step.proposal.response.log_prob == pytest.approx(sum(-1 - id / 100 for id in tokens))
    server.log_probs_kind = ""
    chain = run_chain(connect(server), rm, PROMPT, beta=1.0, alpha=4.0, steps=12, seed=2)
    with refusal(ModelContractError, match="logprobs-mode processed_logprobs"):
        await anext(aiter([step async for step in chain]))


BYTES = "\ufffd"  # what half of the tiny tokenizer's ids are, each by itself


async def test_a_served_chain_rewrites_blocks_where_given_ids_are_weighed_as_sampled(server):
    lm, rm = connect(server), load_reward_model("none")
    how = {"beta": 1.0, "steps": 60, "seed": 4, "move": f"0.3*suffix+0.7*block({BYTES})"}
    steps = [step async for step in run_chain(lm, rm, PROMPT, **how)]
    blocks = [step for step in steps if step.kept_again]
    assert blocks
    assert any(step.refused for step in steps)
    delimiters = lm.delimiters(BYTES)
    for step in blocks:
        new, n = step.proposal.response, step.kept_again
        assert new.tokens[-n:] == step.current.response.tokens[-n:]
        written = new.tokens[step.index : -n]
        assert [token in delimiters for token in written] == [False] * (len(written) - 1) + [True]
        assert new.log_prob == pytest.approx(sum(-1 - id / 100 for id in new.tokens))
        assert step.log_correction == pytest.approx(0.0)
    colder = lm.with_sampling(Sampling(temperature=0.7, max_new_tokens=14))
    with refusal(ModelContractError, match="at temperature 1 without top-p"):
        [step async for step in run_chain(colder, rm, PROMPT, **how)]
    with refusal(ModelContractError, "returns no entropies, but the move entropy"):
        [step async for step in run_chain(lm, rm, PROMPT, **{**how, "move": "entropy"})]


async def test_log_probabilities_that_are_none_end_the_run_and_missing_ones_are_asked_again(server):
    lm = connect(server)
    expected = await lm.extend(lm.encode(PROMPT), (), seed=8)
    server.faults.append("too few told")
    again = await lm.extend(lm.encode(PROMPT), (), seed=8)
    assert (again, again.log_probs) == (expected, expected.log_probs)
    server.faults.append("no log")
    with refusal(ModelContractError, match="where log-probabilities were expected"):
        await lm.extend(lm.encode(PROMPT), (), seed=8)


async def test_no_more_requests_are_open_than_allowed(server):
    lm = connect(server, rows=3)
    ids = lm.encode(PROMPT)
    await asyncio.gather(*(lm.extend(ids, (), seed=k) for k in range(40)))
    assert 1 <= server.most <= 3


async def test_a_connection_serves_one_request_after_the_other(server):
    lm = connect(server, rows=3)
    before = len(server.connections)
    await asyncio.gather(*(lm.extend(lm.encode(PROMPT), (), seed=k) for k in range(40)))
    assert len(server.connections) - before == 3


async def test_a_request_that_is_given_up_leaves_its_place_to_others(server):
    lm = connect(server, rows=2)
    ids = lm.encode(PROMPT)
    server.faults.extend(["slow", "slow"])
    cancelled = [asyncio.ensure_future(lm.extend(ids, (), seed=k)) for k in range(2)]
    while server.open < 2:
        await asyncio.sleep(0)
    for request in cancelled:
        request.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
    assert all(request.cancelled() for request in cancelled)
    responses = await asyncio.gather(*(lm.extend(ids, (), seed=k) for k in range(4)))
    assert len({response.tokens for response in responses}) == 4


@pytest.mark.parametrize("fault", TEMPORARY)
async def test_what_may_pass_is_tried_again_with_the_same_seed(server, fault):
    lm, ids = connect(server), connect(server).encode(PROMPT)
    expected = await lm.extend(ids, (), seed=8)
    server.bodies.clear()
    server.faults.extend([fault] * 3)
    assert await lm.extend(ids, (), seed=8) == expected
    assert len(server.bodies) == 4
    assert all(body == server.bodies[0] for body in server.bodies)


async def test_a_slow_answer_is_asked_for_again_with_the_same_seed(server):
    expected = await connect(server).extend(connect(server).encode(PROMPT), (), seed=8)
    lm = connect(server, timeout=0.5)
    server.bodies.clear()
    server.faults.append("slow")
    assert await lm.extend(lm.encode(PROMPT), (), seed=8) == expected
    assert server.bodies[0] == server.bodies[1]


@pytest.mark.parametrize("kind", ["lm", "rm"])
async def test_an_answer_without_end_is_not_kept(server, kind, monkeypatch):
    lm, rm = connect(server), connect_rm(server)

    async def ask() -> object:
        if kind == "lm":
            return await lm.extend(lm.encode(PROMPT), (), seed=8)
        return await rm.score(PROMPT, Response((70, 2), "a", True))

    server.bodies.clear()
    server.lasting = "endless"
    with refusal(EngineError, match=r"more than the 1,\d\d\d,\d\d\d bytes"):
        await ask()
    assert len(server.bodies) == 1  # a server that lies is not asked again
    assert server.sent < 2**24  # what was on its way
    before = server.sent  # what was on its way may be counted later: hence >= below
    monkeypatch.setattr(client, "MOST", 2**40)  # the control: nothing else ends it
    monkeypatch.setattr(language_model, "MOST", 2**40)
    monkeypatch.setattr(Server.post, "__kwdefaults__", {"most": 2**40})
    server.lasting, server.faults = "", deque(["endless"])
    await ask()
    assert server.sent - before >= 2**25


@pytest.mark.parametrize("fault", ["drip", "drip of heads"])
async def test_an_answer_that_comes_byte_by_byte_is_given_up_as_a_whole(server, fault):
    expected = await connect(server).extend(connect(server).encode(PROMPT), (), seed=8)
    lm = connect(server, timeout=0.5)
    server.faults.append(fault)
    assert await lm.extend(lm.encode(PROMPT), (), seed=8) == expected
    lm = connect(server, timeout=0.5, patience=0.2)
    server.lasting = fault
    with pytest.raises(EngineError, match="no answer in time"):
        await lm.extend(lm.encode(PROMPT), (), seed=8)


@pytest.mark.parametrize(("fault", "words"), [("endless", "1,048,576 bytes"), ("drip", "in time")])
def test_a_server_that_lies_while_it_is_connected_to_is_refused(server, fault, words):
    server.lasting = fault
    with refusal(ModelLoadError, match=words):
        connect(server, timeout=0.5)


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("other prompt", ModelContractError, "changes ids"),
        ("no end", ModelContractError, "up to the first EOS"),
        ("eos within", ModelContractError, "up to the first EOS"),
        *((fault, ModelContractError, f"ids from 0 to {N_VOCABULARY - 1}") for fault in IDS),
        ("400", EngineError, "told to fail"),
        ("404", EngineError, "/v1/completions; an LM is served by 'vllm serve"),
        ("401", EngineError, "refused the key"),
    ],
)
async def test_what_will_not_pass_is_not_tried_again(server, fault, error, words):
    lm = connect(server)
    server.bodies.clear()
    server.lasting = fault
    with refusal(error, words) as raised:
        await lm.extend(lm.encode(PROMPT), (), seed=1)
    assert len(server.bodies) == 1
    with pytest.raises(error, match=re.escape(words)), public_errors():  # what visitors read
        raise raised.value


async def test_a_server_that_stays_away_ends_every_request_and_is_used_when_it_is_back(
    server,
):
    lm = connect(server, patience=0.2)
    ids = lm.encode(PROMPT)
    expected = await lm.extend(ids, (), seed=0)
    server.stop()
    ended = await asyncio.gather(
        *(lm.extend(ids, (), seed=k) for k in range(100)), return_exceptions=True
    )
    assert {type(error) for error in ended} == {EngineError}
    assert "what was sampled is kept" in str(ended[0])
    server.start()
    assert await lm.extend(ids, (), seed=0) == expected


async def test_a_chain_is_the_same_when_the_server_is_killed_and_comes_back(server):
    lm, rm = connect(server), connect_rm(server)
    expected = await steps_of(lm, rm)
    got = []
    async for step in run_chain(lm, rm, PROMPT, beta=1.0, steps=6, seed=4):
        got.append(step)
        if step.t in (1, 3):
            server.stop()
            asyncio.get_running_loop().call_later(0.05, server.start)
    assert got == expected


async def test_a_run_that_fails_keeps_its_steps_and_says_why(server):
    lm, rm = connect(server, patience=0.05), connect_rm(server, patience=0.05)
    lines = []
    with pytest.raises(EngineError):
        async for item in record(lm, rm, Run(PROMPT, steps=50, seed=4, pool=0)):
            lines.append(item.line)
            if isinstance(item.draw, Step) and item.draw.t == 3:
                server.stop()
    trace = parse_trace("".join(lines))
    assert len(trace.steps) >= 4
    assert json.loads(lines[-1])["reason"] == "failed"
    server.start()


async def test_the_key_is_sent_and_never_shown(server, monkeypatch, capsys, tmp_path):
    secret = "sk-not-for-your-eyes"
    server.key = secret
    with refusal(ModelLoadError, "set QALIGN_LM_KEY"):
        connect(server)
    for name in ("QALIGN_LM_KEY", "QALIGN_RM_KEY"):
        monkeypatch.setenv(name, secret)
    lm, rm = connect(server), connect_rm(server)
    lines = [r.line async for r in record(lm, rm, Run(PROMPT, steps=3, seed=1, pool=0))]
    assert server.keys[-1] == f"Bearer {secret}"
    server.lasting = "400"
    server.root = secret
    with pytest.raises(EngineError) as failed:
        await lm.extend(lm.encode(PROMPT), (), seed=1)
    server.key = "another"
    with pytest.raises(EngineError) as refused:
        await rm.score(PROMPT, Response((9,), "x", False))
    out = tmp_path / "run.jsonl"
    command = ["run", "--lm", server.address, "--rm", server.address, "--out", str(out)]
    assert await asyncio.to_thread(main, command) == 2
    outputs = [*lines, *map(str, (failed.value, refused.value)), *capsys.readouterr()]
    outputs += [repr(vars(lm)), repr(vars(rm))]
    assert not any(secret in text for text in outputs)


@pytest.mark.parametrize(
    "address", ["http://me:secret@host:1", "http://host:1/?key=secret", "http://", "http://x:y"]
)
def test_an_address_with_a_secret_or_none_at_all_is_refused(address):
    with refusal(ModelLoadError) as raised:
        registry.load_language_model(address)
    assert "secret" not in str(raised.value)


def test_nobody_at_the_address_is_said_at_once(server):
    server.stop()
    for load in (registry.load_language_model, registry.load_reward_model):
        with refusal(ModelLoadError, "no server answers"):
            load(server.address)
    server.start()


def test_a_server_with_another_tokenizer_is_refused(server, tmp_path):
    from qalign_core.assets import ASSETS

    with refusal(ModelLoadError, "--lm-tokenizer"):
        connect(server, tokenizer=str(ASSETS / "models" / "lm"))
    with refusal(ModelLoadError, "--lm-tokenizer"):
        connect(server, tokenizer=str(tmp_path / "nothing"))


async def test_a_prompt_or_a_temperature_that_the_server_would_change_is_refused(server):
    with pytest.raises(InvalidPrompt, match="more than the context of 192"):
        connect(server).encode("long " * 40)
    with pytest.raises(InvalidSetting, match="silently raise"):
        connect(server).with_sampling(Sampling(temperature=0.001))


@pytest.mark.parametrize("fault", [*IDS, *SCORES])
async def test_what_is_no_id_and_no_reward_ends_a_run_with_its_steps_kept(server, fault):
    lm, rm = connect(server), connect_rm(server)
    lines = []
    with pytest.raises((ModelContractError, InvalidReward)):
        async for item in record(lm, rm, Run(PROMPT, steps=50, seed=4, pool=0)):
            lines.append(item.line)
            if isinstance(item.draw, Step) and item.draw.t == 3:
                server.lasting = fault
    assert len(parse_trace("".join(lines)).steps) == 4
    assert json.loads(lines[-1])["reason"] == "failed"


NO_MODEL = [[], {"data": []}, {"data": [{"id": 5}]}, {"data": [{"id": "\ud800"}]},
            {"data": [{"id": "a", "max_model_len": 10**400}]}]  # fmt: skip


@pytest.mark.parametrize("models", NO_MODEL)
def test_a_server_that_names_no_model_is_refused(server, models):
    server.answer = lambda path, body: models
    for load in (connect, connect_rm):
        with refusal(ModelLoadError, "names no model"):
            load(server)


def test_a_server_without_a_tokenizer_is_refused(server):
    whole = server.answer
    server.answer = lambda path, body: [] if path == "/tokenize" else whole(path, body)
    with refusal(ModelLoadError, "give different tokens"):
        connect(server)


# Servers that take text only


def test_a_server_that_takes_text_only_is_refused(folder):
    fake = FakeServer(folder, text_only=True)
    with refusal(ModelLoadError, "--approximate"):
        connect(fake)
    fake.stop()


async def test_it_is_used_if_asked_for_and_all_that_comes_of_it_is_labelled(folder):
    fake = FakeServer(folder, text_only=True)
    lm, rm = connect(fake, approximate=True), connect_rm(fake)
    assert isinstance(lm, RetokenisedLanguageModel)
    assert lm.notes == ("approximate: prefixes re-tokenised",)
    lines = [r.line async for r in record(lm, rm, Run(PROMPT, steps=30, seed=3, pool=0))]
    trace = parse_trace("".join(lines))
    assert trace.header.notes == ("approximate: prefixes re-tokenised",)
    assert len(trace.steps) == 31
    message = json.loads(lines[-1])["message"]
    label, _, changed = message.partition(", ")
    assert label == lm.notes[0].partition(", ")[0]
    n_changed, _, n = changed.split()[:3]
    # random bytes seldom are characters: most of these prefixes come back as others
    assert 10 < int(n_changed) <= int(n) == 31
    assert lm.with_sampling(Sampling(max_new_tokens=5)).notes == lm.notes
    fake.stop()


# Reward models


async def test_the_raw_score_of_the_whole_conversation_is_asked_for(server):
    rm = connect_rm(server)
    response = Response((99, 2), "]", True)
    reward = await rm.score(PROMPT, response)
    (sent,) = server.bodies[-1]["input"]
    assert sent == list(rm.render(PROMPT, response))
    assert server.bodies[-1]["use_activation"] is False
    assert reward == sum(sent) / 1000 - 8


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("two outputs", InvalidReward, "2 outputs, but a reward model has 1"),
        ("cut conversation", ModelContractError, "changes or cuts"),
        ("not a number", InvalidReward, "gave nan; one finite number was expected"),
        *((fault, InvalidReward, "one finite number was expected") for fault in SCORES),
    ],
)
async def test_a_score_that_is_none_is_refused(server, fault, error, words):
    rm = connect_rm(server)
    server.lasting = fault
    with refusal(error, words):
        await rm.score(PROMPT, Response((99, 2), "]", True))


def test_a_server_that_cannot_leave_the_activation_off_is_refused(server):
    server.lasting = "always squashed"
    with refusal(ModelLoadError, "with and without activation"):
        connect_rm(server)


async def test_a_conversation_is_never_cut(server):
    with pytest.raises(InvalidPrompt, match=r"has \d+ tokens .* reads 192"):
        await connect_rm(server).score("long " * 60, Response((), "x", True))


# The command line


def test_processes_with_servers_of_their_own_one_killed_fill_a_folder_as_one_does(
    server, folder, tmp_path, capsys
):
    other, prompts = FakeServer(folder), tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{PROMPT} {n}"}) + "\n" for n in range(4)))

    def command(at, name):
        settings = ["--steps", "3", "--pool", "2", "--max-new-tokens", "14", "--at-once", "1"]
        models = ["--lm", at.address, "--rm", at.address]
        where = ["--prompts", str(prompts), "--out", str(tmp_path / name), "--quiet"]
        return ["run", *models, *settings, *where]

    def lines_of(name):
        paths = sorted((tmp_path / name).glob("0*.jsonl"))
        return [sorted(path.read_bytes().splitlines()[1:]) for path in paths]

    def worker(at):
        at.faults.extend([""] * 12 + ["slow"])
        process = Program(*command(at, "shared"))
        assert at.stuck.wait(120)  # it holds a problem, and waits for its server
        return process

    first = worker(server)
    second = worker(other)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    other.hold.set()
    assert second.wait() == 0
    other.stop()
    server.hold.set()
    assert main(command(server, "alone")) == 0
    assert "4 prompts, 16 states" in capsys.readouterr().out
    assert lines_of("shared") == lines_of("alone")
    registry.unload(server.address)


def test_the_command_line_takes_addresses(server, capsys, tmp_path):
    out = tmp_path / "run.jsonl"
    command = ["run", "--lm", server.address, "--rm", f"{server.address}/v1", "--steps", "4"]
    assert main([*command, "--max-new-tokens", "9", "--prompt", PROMPT, "--out", str(out)]) == 0
    trace = parse_trace(out.read_text("utf-8"))
    assert (trace.header.run.lm, trace.header.run.rm) == ("fake", "fake")
    assert len(trace.steps) == 5
    assert "acceptance" in capsys.readouterr().out
    registry.unload(server.address)
    registry.unload(f"{server.address}/v1")
