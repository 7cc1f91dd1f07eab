"""The methods behind OpenAI's API, asked by clients that nobody here wrote."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from added_rules import ADDED, added_rule
from browser import serve
from forks import Program
from huggingface_hub import InferenceClient
from huggingface_hub.errors import BadRequestError
from tiny_models import save
from toys import PROMPT, ToyLM, ToyRM

import app
from components.chat import chat_routes
from components.session.runs import Runs
from qalign_core.decide.answers.graders import get_grader
from qalign_core.decide.rules import RULES
from qalign_core.errors import EngineError, InvalidSetting
from qalign_core.messages import messages_of
from qalign_core.record.format import parse_trace
from qalign_core.record.runner import record
from qalign_core.registry import load_language_model, load_reward_model, unload
from qalign_core.rewards.functions import FunctionReward
from qalign_core.run import Limits, Run
from qalign_study.commands import main
from qalign_study.serve import routes
from qalign_study.serve.answer import Choice
from qalign_study.serve.origins import OriginPolicy
from qalign_study.serve.request_schema import methods, parse_request
from qalign_study.serve.routes import ChatAPI

QUESTION = {"role": "user", "content": PROMPT}
FEW = {"qalign": {"steps": 6, "pool": 6}}
SMALL = {"seed": 7, "extra_body": FEW}


@contextmanager
def answering(served: ChatAPI) -> Iterator[str]:
    """A server on a thread of its own; yields its address."""
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    config = uvicorn.Config(served.app(OriginPolicy()), port=0, log_level="warning", lifespan="off")
    server = Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(120)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


def served_by(lm: Any, rm: Any, **more: Any) -> ChatAPI:
    """A server of two models, whatever their kind."""

    async def draw(run: Run) -> Any:
        model = lm.with_sampling(run.sampling) if hasattr(lm, "with_sampling") else lm
        async for item in record(model, rm, run):
            yield item.line

    settings = {"lms": (lm.id,), "draw": draw, "defaults": {"rm": rm.id}, "limits": Limits()}
    return ChatAPI(**{**settings, **more})


@contextmanager
def talking(address: str, key: str = "none") -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with answering(served_by(ToyLM(), ToyRM())) as url:
        yield url


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with talking(address) as api:
        yield api


def ask(client: openai.OpenAI, model: str = "toy/qalign", **more: Any) -> Any:
    request = {"messages": [QUESTION], **SMALL, **more}
    return client.chat.completions.create(model=model, **request)


def header_fields(answer: Any) -> dict[str, Any]:
    return answer.choices[0].qalign


def trace_of(address: str, answer: Any) -> Any:
    return parse_trace(
        httpx.get(f"{address}{header_fields(answer)['trace']}.jsonl", timeout=60).text
    )


# What is answered.


def test_every_language_model_is_there_by_every_rule(client):
    names = ("qalign", "best-of-n", "majority-vote", "weighted-vote")
    assert [model.id for model in client.models.list()] == [f"toy/{name}" for name in names]
    assert tuple(methods().values()) == tuple(RULES.values())
    assert client.models.retrieve("toy/qalign").object == "model"
    with pytest.raises(openai.NotFoundError, match="there is no model 'toy/mcmc'"):
        client.models.retrieve("toy/mcmc")


def test_an_answer_has_its_votes_its_mixing_and_all_tokens_drawn(client, address):
    answer = ask(client, extra_body={"qalign": {"steps": 60}})
    (choice,), details, usage = answer.choices, header_fields(answer), answer.usage
    trace = trace_of(address, answer)
    assert details["trace"] == f"/v1/traces/{answer.id}"
    assert len(trace.steps) == details["draws"] == 61
    n = sum(step.cost.generated for step in trace.steps)
    assert usage.completion_tokens == n
    assert usage.prompt_tokens == trace.header.prompt_tokens
    assert usage.total_tokens == n + usage.prompt_tokens
    assert 0 < usage.completion_tokens_details.reasoning_tokens < n
    assert details["answer"] in choice.message.content
    assert details["votes"][details["answer"]] == max(details["votes"].values())
    assert details["rhat"] > 0.9
    assert "the rewards of the halves" in details["mixing"]
    assert details["effective_samples"] >= 1
    page = httpx.get(f"{address}{details['trace']}", timeout=60)
    assert page.headers["content-type"].startswith("text/html")
    assert PROMPT in page.text


@pytest.mark.parametrize("method", ["best-of-n", "majority-vote", "weighted-vote"])
def test_a_rule_over_samples_draws_a_pool(client, address, method):
    answer = ask(client, f"toy/{method}")
    trace, details = trace_of(address, answer), header_fields(answer)
    assert len(trace.pool) == details["draws"] == 6
    assert [step.t for step in trace.steps] == [0]
    assert details["rhat"] is None
    decided = methods()[method].decide(
        trace.pool, get_grader("number").extract, trace.header.run.target
    )
    assert decided.answer == details["answer"]


@pytest.mark.parametrize("make", ADDED, ids=lambda make: make.__name__)
def test_a_rule_that_is_added_answers(client, address, make):
    with added_rule(make) as rule:
        name = f"toy/{rule.word.lower().replace(' ', '-')}"
        assert client.models.list().data[-1].id == name
        answer = ask(client, name)
        trace, details = trace_of(address, answer), header_fields(answer)
        draws = [s.state for s in trace.steps] if rule.draws == "chain" else trace.pool
        decision = rule.decide(draws, get_grader("number").extract, trace.header.run.target)
    assert decision.answer == details["answer"]
    assert decision.chosen.response.text == answer.choices[0].message.content


def test_choice_k_is_the_answer_to_the_seed_plus_k(client):
    both = ask(client, n=2, seed=6).choices
    one = ask(client).choices[0]
    assert [each.model_extra["qalign"]["seed"] for each in both] == [6, 7]
    assert both[1].message.content == one.message.content
    assert both[1].model_extra["qalign"]["votes"] == one.model_extra["qalign"]["votes"]


def test_without_a_seed_one_is_drawn_and_told(client):
    first = ask(client, seed=None)
    again = ask(client, seed=header_fields(first)["seed"])
    assert again.choices[0].message.content == first.choices[0].message.content
    assert header_fields(ask(client, seed=None))["seed"] != header_fields(first)["seed"]


def test_a_stop_cuts_the_text_and_changes_no_draw(client):
    cut, whole = ask(client, stop=["no such", " "]), ask(client)
    text = whole.choices[0].message.content
    assert cut.choices[0].message.content == text.partition(" ")[0]
    assert cut.choices[0].finish_reason == "stop"
    assert header_fields(cut)["votes"] == header_fields(whole)["votes"]


# Streams.


def streamed(events: Any) -> tuple[str, str, list[Any]]:
    """What a stream thought and said, and its events."""
    chunks = list(events)
    deltas = [each.choices[0].delta for each in chunks if each.choices]
    thought = "".join(getattr(delta, "reasoning_content", "") for delta in deltas)
    return thought, "".join(delta.content or "" for delta in deltas), chunks


def test_a_stream_tells_progress_as_reasoning_and_then_the_same_answer(client):
    whole = ask(client)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    thought, content, events = streamed(ask(client, **options))
    assert content == whole.choices[0].message.content
    answer, votes = max(header_fields(whole)["votes"].items(), key=lambda vote: vote[1])
    assert thought.splitlines()[-1] == f"step 6 of 6, {votes:.0%} of votes for {answer}"
    assert len(thought.splitlines()) == 6
    assert events[-1].usage == whole.usage
    assert header_fields(events[-2])["answer"] == answer
    assert events[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert len({each.id for each in events}) == 1


# Convergence of a reward of 0 or 1, whose chains are often constant.


def is_best(prompt: str, text: str) -> float:
    """1 for the few solutions that are right and have two given wordings, 0 for all others."""
    return float(all(part in text for part in ("We begin", "bags of 4", "18.")))


@pytest.fixture(scope="module")
def constant() -> Iterator[httpx.Client]:
    served = served_by(ToyLM(), FunctionReward(is_best))
    with answering(served) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def strictly(text: str) -> Any:
    """Parse JSON that has no NaN and no infinite number."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize(
    ("seed", "mixing"),
    [
        (271, "not yet: the rewards of the halves differ, and within each half they are constant"),
        (270, "undefined: the reward never changed"),
        *((seed, "") for seed in range(272, 282)),
    ],
)
def test_a_reward_of_0_or_1_is_answered_whatever_its_r_hat(constant, seed, mixing):
    body = {"model": "toy/qalign", "messages": [QUESTION], "seed": seed}
    body["qalign"] = {"steps": 32, "beta": 0.05}
    whole = constant.post("/v1/chat/completions", json=body)
    assert whole.status_code == 200
    facts = strictly(whole.text)["choices"][0]["qalign"]
    assert facts["mixing"].startswith(mixing)
    assert (facts["rhat"] is None) == ("infinite" in facts["mixing"] or "undef" in facts["mixing"])
    stream = constant.post("/v1/chat/completions", json={**body, "stream": True}).text
    events = [strictly(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    (ending,) = (each for each in events if "qalign" in each["choices"][0])
    streamed = ending["choices"][0]["qalign"]
    assert {**streamed, "trace": ""} == {**facts, "trace": ""}


# Who leaves.


class Slow(ToyLM):
    """Draws three responses; the next takes until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.waits, self.cancelled = 0, threading.Event(), threading.Event()

    async def extend(self, prompt_ids: Any, prefix: Any, *, seed: int) -> Any:
        self.n += 1
        if self.n > 3:
            self.waits.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        return await super().extend(prompt_ids, prefix, seed=seed)


class Noticed(ChatAPI):
    """Tells when what was drawn is kept."""

    def __init__(self, lm: Any, rm: Any) -> None:
        plain = served_by(lm, rm)
        super().__init__(plain.lms, plain.draw, plain.defaults, plain.limits)
        self.kept = threading.Event()

    def _keep(self, choices: Any) -> None:
        super()._keep(choices)
        self.kept.set()


def test_a_client_that_closes_the_stream_ends_the_chain_and_what_was_drawn_is_kept():
    lm = Slow()
    served = Noticed(lm, ToyRM())
    with answering(served) as address, talking(address) as client:
        events = ask(client, stream=True)
        for event in events:
            if (event.choices[0].delta.model_extra or {}).get("reasoning_content"):
                break
        assert lm.waits.wait(60)
        assert not lm.cancelled.is_set()  # the control: it is the leaving that ends it
        events.close()
        assert lm.cancelled.wait(60)
        assert served.kept.wait(60)
        (kept,) = served._traces.values()
        assert parse_trace(kept).end == ("stopped", "")
        assert served._open == 0
        assert lm.n == 4


async def test_a_client_that_leaves_before_a_whole_answer_ends_the_chain():
    lm = Slow()
    served = Noticed(lm, ToyRM())
    with answering(served) as address:
        async with httpx.AsyncClient(timeout=None) as client:
            body = {"model": "toy/qalign", "messages": [QUESTION]}
            post = asyncio.create_task(client.post(f"{address}/v1/chat/completions", json=body))
            assert await asyncio.to_thread(lm.waits.wait, 60)
            post.cancel()
            assert await asyncio.to_thread(lm.cancelled.wait, 60)
            assert await asyncio.to_thread(served.kept.wait, 60)


# The embedded models, and two clients that nobody here wrote.


@pytest.fixture(scope="module")
def embedded() -> Iterator[tuple[Noticed, str]]:
    """A server of the embedded models, and its address."""
    served = Noticed(load_language_model("embedded"), load_reward_model("embedded"))
    with answering(served) as url:
        yield served, url


def of_the_hub(address: str) -> InferenceClient:
    return InferenceClient(base_url=f"{address}/v1", api_key="none", timeout=60)


both = pytest.mark.parametrize("connect", [talking, of_the_hub])
NEXT = {"role": "user", "content": "Tom has 5 eggs and buys 7. How many?"}


def test_a_second_turn_answers_the_last_message_and_tells_what_it_left_out(embedded):
    with talking(embedded[1]) as client:
        first = ask(client, "embedded/qalign")
        reply = {"role": "assistant", "content": first.choices[0].message.content}
        second = ask(client, "embedded/qalign", messages=[QUESTION, reply, NEXT])
        thought, written, events = streamed(
            ask(client, "embedded/qalign", messages=[QUESTION, reply, NEXT], stream=True)
        )
        alone = ask(client, "embedded/qalign", messages=[NEXT])
    assert first.choices[0].message.content != alone.choices[0].message.content
    assert second.choices[0].message.content == alone.choices[0].message.content == written
    assert thought.startswith("step 1 of 6, ")
    left_out = "embedded reads the last message only; earlier messages left out: 2"
    assert header_fields(second)["left_out"] == header_fields(events[-1])["left_out"] == left_out
    assert "left_out" not in header_fields(alone)


@both
def test_a_client_that_leaves_a_stream_of_the_embedded_model_ends_its_run(embedded, connect):
    served, address = embedded
    served.kept.clear()
    with connect(address) as client:
        long = {"qalign": {"steps": 1024}}
        events = ask(client, "embedded/qalign", extra_body=long, stream=True)
        seen = next(e for e in events if getattr(e.choices[0].delta, "reasoning_content", ""))
        assert not served.kept.is_set()  # the control: it is the leaving that ends it
    assert served.kept.wait(60)
    trace = parse_trace(served._traces[seen.id])
    assert trace.end == ("stopped", "")
    assert 16 <= len(trace.steps) < 1024
    assert served._open == 0


@both
def test_a_client_shows_the_sentence_of_an_error(embedded, connect):
    refused = pytest.raises((openai.BadRequestError, BadRequestError), match="n must be 1 to 8")
    with connect(embedded[1]) as client, refused:
        ask(client, "embedded/qalign", n=99)


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """`qalign serve` as a process on a free port; yields its address."""
    with Program("serve", "--port", "0", *options) as process:
        yield process.stdout.readline().partition("/v1 answers as embedded/qalign, ")[0]


def test_the_command_serves_what_the_command_line_draws_and_refuses_other_models(tmp_path, capsys):
    with serving("--lm", "embedded", "--rm", "embedded") as address, talking(address) as client:
        answer = ask(client, "embedded/qalign")
        trace = trace_of(address, answer)
        other = trace_of(address, ask(client, "embedded/qalign", seed=8))
        with pytest.raises(openai.BadRequestError, match="has the reward embedded, got 'mood'"):
            ask(client, "embedded/qalign", extra_body={"qalign": {"rm": "mood"}})
        with pytest.raises(openai.BadRequestError, match="has the reward embedded, got") as refused:
            ask(client, "embedded/qalign", extra_body={"qalign": {"rm": "x" * 3000}})
        assert len(refused.value.body["message"]) < 100
        assert refused.value.body["param"] == "qalign.rm"
        with pytest.raises(openai.BadRequestError, match="has no setting 'lm'"):
            ask(client, "embedded/qalign", extra_body={"qalign": {"lm": "SmolLM2-135M"}})
        with pytest.raises(openai.NotFoundError, match="no model 'SmolLM2-135M/qalign'"):
            ask(client, "SmolLM2-135M/qalign")
    out = tmp_path / "run.jsonl"
    arguments = ["--prompt", PROMPT, "--steps", "6", "--seed", "7", "--out", str(out)]
    assert main(["run", *arguments]) == 0
    steps = parse_trace(out.read_text("utf-8")).steps
    assert trace.steps == steps != other.steps
    details = header_fields(answer)
    line = f"answer {details['answer']}, {details['votes'][details['answer']]:.0%} of 7 states"
    assert line in capsys.readouterr().out


# What is refused.

GOOD = {"model": "embedded/qalign", "messages": [QUESTION], "qalign": {"steps": 1}}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
ANSWERED = [QUESTION, {"role": "assistant", "content": "18"}]
BAD: list[tuple[dict[str, Any], int, str, str]] = [
    ({"model": None}, 400, "model", "the model is missing"),
    ({"model": "gpt-4o"}, 404, "model", "there is no model 'gpt-4o'"),
    ({"model": "embedded/mcmc"}, 404, "model", "such as embedded/qalign"),
    ({"messages": None}, 400, "messages", "the messages are missing"),
    ({"messages": "hello"}, 400, "messages", "must be a list"),
    ({"messages": []}, 400, "messages", "the last message must be the user's"),
    ({"messages": ANSWERED}, 400, "messages", "the last message must be the user's"),
    ({"messages": ["hello"]}, 400, "messages", "message 0 must be an object"),
    ({"messages": [{"role": "tool", "content": "18"}]}, 400, "messages", "the roles are"),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, 400, "messages", "send text only"),
    (
        {"messages": [{**QUESTION, "tool_calls": [{}]}]},
        400,
        "messages",
        "which is not supported",
    ),
    (
        {"messages": [{"role": "user", "content": "eggs " * 700}]},
        400,
        "messages",
        "or lower the setting max_tokens",
    ),
    ({"temperature": 0}, 400, "temperature", "temperature must be above 0, got 0"),
    ({"temperature": "hot"}, 400, "temperature", "temperature must be a number"),
    ({"top_p": 1.5}, 400, "top_p", "top_p must be between"),
    ({"seed": -1}, 400, "seed", "seed must be between 0 and 2147483647"),
    ({"seed": 2**31 - 1, "n": 2}, 400, "seed", "choice k has the seed + k"),
    ({"max_tokens": 10**6}, 400, "max_tokens", "max_tokens must be between 1 and 512 on this"),
    ({"max_tokens": 8, "max_completion_tokens": 9}, 400, "max_tokens", "give one of them"),
    ({"n": 9}, 400, "n", "n must be 1 to 8, got 9"),
    ({"stop": ["a", ""]}, 400, "stop", "up to 4 texts, none of them empty"),
    ({"stream": "yes"}, 400, "stream", "true or false"),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options", "needs stream = true"),
    *(
        ({"stream": True, "stream_options": {name: value}}, 400, "stream_options", repr(name))
        for name, value in (("include_usag", True), ("include_usage", "no"))
    ),
    ({"logprobs": True}, 400, "logprobs", "logprobs is not supported; leave it out"),
    ({"tools": [{"type": "function"}]}, 400, "tools", "tools is not supported"),
    ({"response_format": {"type": "json_object"}}, 400, "response_format", "not supported"),
    ({"frequency_penalty": 0.5}, 400, "frequency_penalty", "not supported"),
    ({"steps": 5}, 400, "steps", "settings of a run go into the object 'qalign'"),
    ({"qalign": 5}, 400, "qalign", "must be an object"),
    ({"qalign": {"stepz": 5}}, 400, "qalign.stepz", "has no setting 'stepz'"),
    ({"qalign": {"seed": 5}}, 400, "qalign.seed", "send seed as a field of the request"),
    ({"qalign": {"max_new_tokens": 5}}, 400, "qalign.max_new_tokens", "send max_tokens as a field"),
    ({"qalign": {"lm": "embedded"}}, 400, "qalign.lm", "send model as a field of the request"),
    ({"qalign": {"steps": 10**6}}, 400, "qalign.steps", "qalign.steps must be between 0 and 1024"),
    ({"qalign": {"steps": 4, "burn_in": 5}}, 400, "qalign.burn_in", "0 to 4 steps, got 5"),
    ({"qalign": {"beta": 0}}, 400, "qalign.beta", "qalign.beta must be between"),
    ({"model": "embedded/best-of-n", "qalign": {"rm": "none"}}, 400, "model", "needs a reward"),
    ({"model": "embedded/best-of-n", "qalign": {"pool": 0}}, 400, "qalign.pool", "at least 1"),
]


@pytest.mark.parametrize(("change", "status", "param", "sentence"), BAD)
def test_a_bad_request_gets_one_sentence_that_names_the_field(
    embedded, change, status, param, sentence
):
    """The official client sends each of them: it rejects none by itself."""
    _, address = embedded
    body = {**GOOD, **change}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert sentence in error["message"]
    assert "\n" not in error["message"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    own = {name: body.pop(name) for name in ("qalign", "steps") if name in body}
    with talking(address) as client, pytest.raises(openai.APIStatusError) as raised:
        client.chat.completions.create(**body, extra_body=own)
    assert (raised.value.status_code, raised.value.body) == (status, error)


def test_the_client_raises_what_the_server_says_and_takes_what_asks_for_nothing(client):
    with pytest.raises(openai.BadRequestError, match="n must be 1 to 8") as raised:
        ask(client, n=9)
    assert raised.value.param == "n"
    neutral = {"presence_penalty": 0, "logprobs": False, "response_format": {"type": "text"}}
    assert ask(client, messages=[{**QUESTION, "name": "tom"}], user="tom", tools=[], **neutral)


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "sentence"),
    [
        ("GET", "/v1/chat/completions", {}, 404, "there is no GET /v1/chat/completions"),
        ("POST", "/v1/completions", {"json": {}}, 404, "POST /v1/chat/completions"),
        ("POST", "/chat/completions", {"json": {}}, 404, "there is no POST /chat/completions"),
        ("GET", "/", {}, 404, "there are GET /v1/models"),
        ("GET", "/v1/traces/chatcmpl-1", {}, 404, "no such trace"),
        ("POST", "/v1/chat/completions", {"content": b"{}"}, 415, "must be application/json"),
        ("POST", "/v1/chat/completions", {"content": b"{", "headers": JSON}, 400, "is not JSON"),
        *(
            (
                "POST",
                "/v1/chat/completions",
                {"content": b"[%s]" % value, "headers": JSON},
                400,
                "is not JSON",
            )
            for value in (b"1e400", b"NaN", b"9" * 400, b'"\\ud800"', b'"\xed\xa0\x80"', b"\xff")
        ),
        ("POST", "/v1/chat/completions", {"json": []}, 400, "must be an object"),
        ("GET", "//v1/completions", {}, 404, "there is no GET /v1/completions"),
        ("POST", "/v1//chat///completions", {"json": []}, 400, "must be an object"),
        ("GET", "//v1/models", {"headers": {"Host": "evil.example"}}, 421, "this server is not"),
        ("GET", f"/v1/traces/{'x' * 256}", {}, 414, "at most 255 are allowed"),
        ("POST", "/v1/chat/completions", {"json": ["a" * 2**20]}, 413, "at most 1,048,576 are"),
        ("GET", "/v1/models", {"headers": {"Host": "evil.example"}}, 421, "this server is not"),
        ("GET", "/v1/models", {"headers": {"Origin": "https://evil.example"}}, 403, "may not use"),
    ],
)
def test_the_guards_answer_in_the_same_form(address, method, path, more, status, sentence):
    answer = httpx.request(method, f"{address}{path}", timeout=60, **more)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]["message"]


def test_a_key_is_asked_for_where_there_is_one():
    with answering(served_by(ToyLM(), ToyRM(), key="secret")) as address:
        with talking(address, "secret") as client:
            assert client.models.list().data
        wrong = pytest.raises(openai.AuthenticationError, match="key is missing or wrong")
        with talking(address, "other") as client, wrong:
            client.models.list()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER ", "bEARER"])
def test_the_scheme_of_a_key_has_no_case(scheme):
    with answering(served_by(ToyLM(), ToyRM(), key="abc")) as address:
        headers = {"Authorization": f"{scheme} abc"}
        assert httpx.get(f"{address}/v1/models", headers=headers, timeout=60).status_code == 200


@pytest.mark.parametrize("sent", ["Basic abc", "abc", "Bearer", "Bearer abcd", "bearerabc", ""])
def test_a_key_in_another_scheme_is_refused(sent):
    with answering(served_by(ToyLM(), ToyRM(), key="abc")) as address:
        answer = httpx.get(f"{address}/v1/models", headers={"Authorization": sent}, timeout=60)
        assert answer.status_code == 401
        assert "Authorization: Bearer KEY" in answer.json()["error"]["message"]


@pytest.mark.parametrize("temperature", [0, 0.0, 1, 0.5])
def test_the_shape_of_an_lm_eval_request_is_read_or_names_the_settings_to_change(
    address, temperature
):
    messages = [{"role": "user", "content": PROMPT}]
    body = {"model": "toy/best-of-n", "messages": messages, "temperature": temperature, **FEW}
    body |= {"do_sample": temperature > 0, "max_tokens": 64, "stop": ["Q:"], "seed": 1234}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == (200 if temperature else 400)
    advice = "set temperature to 1 and do_sample to true"
    assert temperature or advice in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["//v1/models", "/v1/models/", "//v1//models//"])
def test_slashes_that_clients_add_to_an_address_change_nothing(address, path):
    models = httpx.get(f"{address}/v1/models", timeout=60).json()
    assert httpx.get(f"{address}{path}", timeout=60).json() == models


def test_slashes_behind_the_address_of_an_answer_and_a_trace_change_nothing(address):
    body = {
        "model": "toy/qalign",
        "messages": [{"role": "user", "content": PROMPT}],
        "seed": 7,
        **FEW,
    }
    answer = httpx.post(f"{address}/v1/chat/completions/", json=body, timeout=60)
    assert answer.status_code == 200
    trace = answer.json()["choices"][0]["qalign"]["trace"]
    assert httpx.get(f"{address}{trace}.jsonl/", timeout=60).status_code == 200
    model = httpx.get(f"{address}/v1/models/toy/qalign/", timeout=60)
    assert model.json()["id"] == "toy/qalign"
    assert httpx.get(f"{address}/v1/", timeout=60).json()["error"]["code"] == "unknown_url"


def test_beyond_this_machine_a_key_is_needed(capsys, monkeypatch):
    monkeypatch.delenv("QALIGN_API_KEY", raising=False)
    assert main(["serve", "--host", "0.0.0.0"]) == 2
    assert "listens beyond this machine; set QALIGN_API_KEY" in capsys.readouterr().err
    runs, environment = Runs(Limits()), {"QALIGN_OPENAI": "1"}
    assert chat_routes(runs, OriginPolicy(), {}) == []
    assert chat_routes(runs, OriginPolicy(), environment)
    for beyond in (OriginPolicy(bound="0.0.0.0"), OriginPolicy(is_space=True)):
        with pytest.raises(InvalidSetting, match="set QALIGN_API_KEY"):
            chat_routes(runs, beyond, environment)
        assert chat_routes(runs, beyond, {**environment, "QALIGN_API_KEY": "secret"})


@pytest.mark.parametrize("key", ["two words", " kq", "kq\n", "\t", "é", "日本", "k\x7f", "\udcff"])
def test_a_key_that_no_client_can_send_is_refused_at_the_start(key):
    environment = {"QALIGN_OPENAI": "1", "QALIGN_API_KEY": key}
    with pytest.raises(InvalidSetting, match="set another in QALIGN_API_KEY") as refused:
        chat_routes(Runs(Limits()), OriginPolicy(), environment)
    assert key not in str(refused.value)


# What fails later.


class Failing(ToyRM):
    """Scores three responses, and no more."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.n = error, 0

    async def score(self, prompt: str, response: Any) -> float:
        self.n += 1
        if self.n > 3:
            raise self.error
        return await super().score(prompt, response)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (EngineError("the server is gone; start it again"), "the server is gone; start it again"),
        (ZeroDivisionError("secret"), "the server had an internal error; try again"),
    ],
)
def test_a_failure_in_the_middle_is_an_error_of_the_answer(error, sentence, stream):
    with answering(served_by(ToyLM(), Failing(error))) as address, talking(address) as client:
        with pytest.raises(openai.APIError, match=sentence) as raised:
            list(ask(client, stream=stream))
        assert raised.value.type == "server_error"


def test_a_full_server_asks_to_come_again():
    served = served_by(ToyLM(), ToyRM(), limits=Limits(runs=1))
    with answering(served) as address, talking(address) as client:
        with pytest.raises(openai.RateLimitError, match="try again in a minute"):
            ask(client, n=2)
        assert ask(client, n=1)  # the control


async def test_requests_that_come_together_are_no_more_than_the_server_draws():
    served = served_by(ToyLM(), ToyRM(), limits=Limits(runs=2))
    transport = httpx.ASGITransport(served.app(OriginPolicy()))
    body = {"model": "toy/qalign", "messages": [QUESTION], **FEW}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        posts = [client.post("/v1/chat/completions", json=body) for _ in range(5)]
        statuses = [answer.status_code for answer in await asyncio.gather(*posts)]
    assert sorted(statuses) == [200, 200, 429, 429, 429]


def test_traces_are_kept_up_to_a_number_and_a_size(monkeypatch):
    served = served_by(ToyLM(), ToyRM())
    wanted = parse_request({**GOOD, "seed": 1}, ("embedded",), {}, Limits())
    monkeypatch.setattr(routes, "MOST_TRACES", 2)
    for name in "abc":
        choice = Choice(wanted, 0, name)
        choice._lines = ["12345\n"]
        served._keep([choice])
    assert list(served._traces) == ["b", "c"]
    monkeypatch.setattr(routes, "MOST_BYTES", 1)
    served._keep([choice])
    assert served._traces == {}


# Real models.


def test_a_conversation_of_several_turns_is_held_at_its_own_temperature(tmp_path_factory):
    folders = [
        str(save(tmp_path_factory.mktemp(kind), "llama", n_outputs=n))
        for kind, n in (("lm", 0), ("rm", 1))
    ]
    lm = load_language_model(folders[0], device="cpu", max_new_tokens=4)
    rm = load_reward_model(folders[1], device="cpu")
    messages: list[Any] = [{"role": "developer", "content": "Be brief."}]
    with answering(served_by(lm, rm, defaults={"rm": rm.id, "max_new_tokens": 4})) as address:
        with talking(address) as client:
            for question in ("One?", [{"type": "text", "text": "Two?"}]):
                messages.append({"role": "user", "content": question})
                answer = ask(client, f"{lm.id}/qalign", messages=messages, temperature=0.5)
                messages.append(answer.choices[0].message)  # with all its fields, as clients do
            limited = ask(client, f"{lm.id}/qalign", max_completion_tokens=1)
        trace = trace_of(address, answer)
    for each in folders:
        unload(each)
    turns = messages_of(trace.header.run.prompt)
    assert [each["role"] for each in turns] == ["system", "user", "assistant", "user"]
    assert turns[-1]["content"] == "Two?"
    assert "left_out" not in header_fields(answer)  # the control: this model reads all of them
    assert trace.header.run.temperature == 0.5
    assert limited.usage.completion_tokens == 7  # one for the first draw and for each proposal
    assert header_fields(limited)["answer"] is None
    assert limited.choices[0].message.content is not None  # then the most typical text


def test_a_seed_gives_the_same_answer_by_the_endpoint_the_page_and_the_command(
    monkeypatch, tmp_path
):
    """The page draws by the function behind its own endpoint, `draw_run`."""
    monkeypatch.setenv("QALIGN_OPENAI", "1")
    runs, out = Runs(Limits()), tmp_path / "run.jsonl"
    with serve(app.build_app(runs), **app.launch_options(runs)) as page:
        address = page.rstrip("/")
        with talking(address) as client:
            answer = ask(client, "embedded/qalign")
            thought, content, _ = streamed(ask(client, "embedded/qalign", stream=True))
            second = ask(client, "embedded/qalign", messages=[*ANSWERED, QUESTION])
            with pytest.raises(openai.BadRequestError, match="n must be 1 to 8"):
                ask(client, "embedded/qalign", n=9)
        of_chat = trace_of(address, answer)
        from gradio_client import Client

        caller = Client(page, verbose=False)
        line = caller.predict(PROMPT, steps=6, seed=7, pool=0, api_name="/run_chain")
    arguments = ["--prompt", PROMPT, "--steps", "6", "--seed", "7", "--quiet", "--out", str(out)]
    assert main(["run", *arguments]) == 0
    of_command = parse_trace(out.read_text("utf-8"))
    assert of_chat.steps == parse_trace(line).steps == of_command.steps
    assert answer.choices[0].message.content == content == second.choices[0].message.content
    assert header_fields(second)["left_out"].endswith("left out: 2")
    assert thought
    other = ask_again(arguments)
    assert other != of_command.steps  # the control: another seed draws others


def ask_again(arguments: list[str]) -> Any:
    out = arguments[-1].replace("run.jsonl", "other.jsonl")
    assert main(["run", *arguments[:-1], out, "--seed", "8"]) == 0
    with open(out, encoding="utf-8") as file:
        return parse_trace(file.read()).steps
