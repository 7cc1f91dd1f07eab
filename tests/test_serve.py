"""The methods behind OpenAI's API, asked by clients that nobody here wrote."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from huggingface_hub import InferenceClient

from qalign_core.decide.compared import RULES
from qalign_core.record.runner import record
from qalign_core.record.trace import parse_trace
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Limits, Run
from qalign_study.serve.asked import METHODS
from qalign_study.serve.origins import Ours
from qalign_study.serve.routes import Served

QUESTION = "Tom has 3 pens. He buys 2 boxes of 4 pens each. How many pens does Tom have now?"
ASKED = {"role": "user", "content": QUESTION}
SMALL = {"seed": 7, "extra_body": {"qalign": {"steps": 40, "pool": 8}}}


@contextmanager
def answering(served: Served) -> Iterator[str]:
    """A server of its own thread; yields its address."""
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    config = uvicorn.Config(served.app(Ours()), port=0, log_level="warning", lifespan="off")
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


def served_by(lm: Any, rm: Any, **more: Any) -> Served:
    """A server of two models, whatever their kind."""

    async def draw(run: Run):
        model = lm.with_sampling(run.sampling) if hasattr(lm, "with_sampling") else lm
        async for item in record(model, rm, run):
            yield item.line

    given = {"lms": (lm.id,), "draw": draw, "defaults": {"rm": rm.id}, "limits": Limits()}
    return Served(**{**given, **more})


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with answering(served_by(load_language_model(), load_reward_model())) as found:
        yield found


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as made:
        yield made


def ask(client: openai.OpenAI, model: str = "embedded/qalign", **more: Any) -> Any:
    given = {"messages": [ASKED], **SMALL, **more}
    return client.chat.completions.create(model=model, **given)


# What is answered.


def test_every_language_model_is_there_by_every_rule(client):
    names = [model.id for model in client.models.list()]
    assert names == [
        f"embedded/{name}" for name in ("qalign", "best-of-n", "majority-vote", "weighted-vote")
    ]
    assert tuple(METHODS.values()) == tuple(RULES.values())
    assert client.models.retrieve("embedded/qalign").object == "model"
    with pytest.raises(openai.NotFoundError, match="there is no model 'embedded/mcmc'"):
        client.models.retrieve("embedded/mcmc")


def test_an_answer_has_its_votes_its_mixing_and_all_tokens_drawn(client, address):
    answer = ask(client)
    (choice,) = answer.choices
    told = choice.model_extra["qalign"]
    trace = parse_trace(httpx.get(f"{address}{told['trace']}.jsonl").text)
    assert told["trace"] == f"/v1/traces/{answer.id}"
    assert len(trace.steps) == told["draws"] == 41
    assert trace.header.run == Run(prompt=QUESTION, steps=40, pool=0, seed=7, extractor="number")
    n = sum(step.cost.generated for step in trace.steps)
    usage = answer.usage
    assert usage.completion_tokens == n
    assert usage.prompt_tokens == trace.header.prompt_tokens
    assert usage.total_tokens == n + usage.prompt_tokens
    assert 0 < usage.completion_tokens_details.reasoning_tokens < n
    assert told["answer"] in choice.message.content
    assert told["votes"][told["answer"]] == max(told["votes"].values())
    assert told["rhat"] > 0.9
    assert told["effective_samples"] >= 1
    page = httpx.get(f"{address}{told['trace']}")
    assert page.headers["content-type"].startswith("text/html")
    assert QUESTION in page.text


@pytest.mark.parametrize("method", ["best-of-n", "majority-vote", "weighted-vote"])
def test_a_rule_over_samples_draws_a_pool(client, address, method):
    told = ask(client, f"embedded/{method}").choices[0].model_extra["qalign"]
    trace = parse_trace(httpx.get(f"{address}{told['trace']}.jsonl").text)
    assert len(trace.pool) == told["draws"] == 8
    assert [step.t for step in trace.steps] == [0]
    assert told["rhat"] is None
    decided = METHODS[method].decide(
        trace.pool, Run.read({"prompt": ""}) and _number, trace.header.target
    )
    assert decided.answer == told["answer"]


def _number(text: str) -> str | None:
    from qalign_core.decide.answers.extraction import get_extractor

    return get_extractor("number")(text)


def test_choice_k_is_the_answer_to_the_seed_plus_k(client):
    both = ask(client, n=2).choices
    second = ask(client, seed=8).choices[0]
    assert both[1].message.content == second.message.content
    assert both[1].model_extra["qalign"]["votes"] == second.model_extra["qalign"]["votes"]
    assert [each.model_extra["qalign"]["seed"] for each in both] == [7, 8]


def test_another_temperature_is_another_base_distribution(client, address):
    for temperature in (0.5, 1.5):
        told = ask(client, temperature=temperature).choices[0].model_extra["qalign"]
        header = parse_trace(httpx.get(f"{address}{told['trace']}.jsonl").text).header
        assert header.temperature == temperature


def test_a_stop_cuts_the_text_and_changes_no_draw(client):
    whole, cut = ask(client).choices[0], ask(client, stop=[" "]).choices[0]
    assert cut.message.content == whole.message.content.partition(" ")[0]
    assert cut.finish_reason == "stop"
    assert cut.model_extra["qalign"]["votes"] == whole.model_extra["qalign"]["votes"]


def test_the_length_limit_is_the_answers(client):
    answer = ask(client, max_completion_tokens=4)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens <= 41 * 4
    assert answer.choices[0].model_extra["qalign"]["answer"] is None  # the most typical text


# Streams.


def streamed(events: Any) -> tuple[str, str, list[Any]]:
    """What a stream thought and said, and its events."""
    found = list(events)
    deltas = [each.choices[0].delta for each in found if each.choices]
    thought = "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas)
    return thought, "".join(delta.content or "" for delta in deltas), found


def test_a_stream_tells_progress_as_reasoning_and_then_the_same_answer(client):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    thought, said, events = streamed(ask(client, **options))
    whole = ask(client)
    assert said == whole.choices[0].message.content
    lines = thought.splitlines()
    assert lines[-1].startswith("step 40 of 40, ")
    answer, votes = max(whole.choices[0].model_extra["qalign"]["votes"].items(), key=lambda v: v[1])
    assert lines[-1] == f"step 40 of 40, {votes:.0%} of votes for {answer}"
    assert events[-1].usage == whole.usage
    assert events[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert events[-2].choices[0].model_extra["qalign"]["answer"] == answer
    assert len({each.id for each in events}) == 1


def test_another_client_asks_and_streams(address):
    other = InferenceClient(base_url=f"{address}/v1", api_key="none")
    given = {"messages": [ASKED], "model": "embedded/qalign", "seed": 7,
             "extra_body": {"qalign": {"steps": 8}}}  # fmt: skip
    whole = other.chat_completion(**given).choices[0].message.content
    parts = [each.choices[0].delta for each in other.chat_completion(**given, stream=True)]
    assert "".join(part.content or "" for part in parts) == whole
    with pytest.raises(Exception, match="400"):
        other.chat_completion(**{**given, "n": 99})
