"""The app as served: nothing public but what is meant to be, nothing of the server's given away."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import subprocess
import threading
import time
from itertools import pairwise
from types import SimpleNamespace

import gradio as gr
import httpx
import pytest
from browser import PATIENCE, serve
from forks import START_APP, Program
from gradio.state_holder import SessionState
from gradio_client import Client
from gradio_client.exceptions import AppError, ValidationError
from starlette.applications import Starlette
from starlette.testclient import TestClient
from toys import PROMPT, ToyLM, ToyRM

import app
from components import request_guard
from components.common import static_routes
from components.common.new_problem import new_problem
from components.common.status import next_problem, status_value
from components.common.theme import head
from components.endpoints import MOST_SENT, _texts, settings
from components.request_guard import RequestGuard
from components.results.sheet import show
from components.session.drawing import draw_run
from components.session.offer import Offer
from components.session.runs import IDLE, Runs, Status
from components.watch.gallery import recorded_run
from qalign_core import collect, run_chain
from qalign_core.assets import ASSETS
from qalign_core.decide.rules import RULES
from qalign_core.errors import QAlignError
from qalign_core.record.format import parse_trace
from qalign_core.run import Limits, Run
from qalign_study.sheet.words import COMPUTE_NOTE


def test_every_handler_of_the_page_is_private_and_two_endpoints_are_typed():
    endpoints = app.build_app().get_api_info()["named_endpoints"]
    assert set(endpoints) == {"/run_chain", "/compare"}
    for endpoint in endpoints.values():
        types = {p["parameter_name"]: p["python_type"]["type"] for p in endpoint["parameters"]}
        assert types["prompt"] == types["rm"] == "str"
        assert types["beta"] == "float"
        assert types["steps"] == "int"
        assert [p["parameter_has_default"] for p in endpoint["parameters"]][:2] == [False, True]


@pytest.fixture(scope="module")
def client(toy_app):
    return Client(toy_app, verbose=False)


def test_a_chain_from_a_program_is_the_one_that_the_core_draws(client):
    text = client.predict(PROMPT, reference="18", steps=12, chains=2, seed=3, api_name="/run_chain")
    trace = parse_trace(text)
    assert len(trace.steps) == 26
    assert trace.header.run.reference == "18"
    expected = collect(run_chain(ToyLM(), ToyRM(), PROMPT, beta=1.0, steps=12, seed=3, chain=1))
    assert list(trace.chains[1]) == expected


def test_its_steps_arrive_while_it_runs(client):
    job = client.submit(PROMPT, steps=40, api_name="/run_chain")
    outputs = list(job)
    assert len(outputs) > 3
    assert all(new.startswith(old) for old, new in pairwise(outputs))
    assert len(parse_trace(outputs[-1]).steps) == 41


def test_two_calls_of_one_client_do_not_end_each_other(client):
    jobs = [client.submit(PROMPT, steps=16, seed=k, api_name="/run_chain") for k in range(2)]
    assert [len(parse_trace(job.result()).steps) for job in jobs] == [17, 17]


def test_a_comparison_from_a_program_has_every_method(client):
    text = client.predict(PROMPT, reference="18", steps=16, seed=3, api_name="/compare")
    rows = {row["method"]: row for row in json.loads(text)}
    assert set(rows) == set(RULES)
    for row in rows.values():
        assert row["right"] == (row["answer"] == "18")
        assert row["spent"] > 0


BAD_CALLS = [
    ({"prompt": "  "}, "the problem is empty; write one"),
    ({"beta": -1.0}, "beta must be between"),
    ({"beta": "much"}, "beta must be a number, got 'much'"),
    ({"steps": 10**6}, "steps must be between 0 and 1024"),
    ({"steps": 4.7}, "steps must be a whole number, got 4.7"),
    ({"steps": True}, "steps must be a whole number, got True"),
    ({"steps": 10**300}, "steps must be a whole number, got a whole number beyond 2^53"),
    ({"reference": "x" * 5000}, "reference has 5,000 characters; 4,000 at most"),
    ({"extractor": "magic"}, "extractor must be one of number"),
    ({"lm": "no-such-model"}, "this server does not offer 'no-such-model'; choose embedded"),
    ({"rm": "http://localhost:8001"}, "this server does not offer"),
]


@pytest.mark.parametrize("endpoint", ["/run_chain", "/compare"])
@pytest.mark.parametrize(("changes", "sentence"), BAD_CALLS)
def test_a_bad_call_gets_one_sentence(client, endpoint, changes, sentence):
    with pytest.raises(AppError, match=re.escape(sentence)) as raised:
        client.predict(**{"prompt": PROMPT, "steps": 4, **changes}, api_name=endpoint)
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize("endpoint", ["/run_chain", "/compare"])
@pytest.mark.parametrize("key", ["steps", "beta", "prompt"])
def test_a_client_of_gradio_shows_the_sentence_of_a_call_that_no_event_is(client, endpoint, key):
    number = "100000000000000000000000000000000000... is too large a number"
    with pytest.raises(ValidationError, match=re.escape(number)) as raised:
        client.predict(**{"prompt": PROMPT, "steps": 4, key: 10**400}, api_name=endpoint)
    assert "data[" in str(raised.value)


def post(address, path, body):
    """The answer to a call that is no call, or what came of it: status and text."""
    content = body if isinstance(body, bytes) else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    call = f"{address}gradio_api/call/"
    joined = httpx.post(f"{call}{path}", content=content, headers=headers, timeout=60)
    if joined.status_code != 200:
        return joined.status_code, joined.json()["detail"]
    event = joined.json()["event_id"]
    text = httpx.get(f"{call}{path.removeprefix('v2/')}/{event}", timeout=60).text
    kind, data = text.strip().split("\n")[-2:]
    payload = json.loads(data.removeprefix("data: "))
    return kind.removeprefix("event: "), payload["error"] if "error" in kind else payload[0]


HALF = "\ud800 half a character"
WRONG_CALLS = [
    ("v2/run_chain", {"prompt": HALF}, 422, "prompt contains half a character"),
    ("run_chain", {"data": [PROMPT, HALF]}, 422, "data[1] contains half a character"),
    ("v2/run_chain", {"prompt": PROMPT, "lm": HALF}, 422, "lm contains half a character"),
    ("v2/run_chain", {"prompt": PROMPT, "steps": 4.7}, "error", "steps must be a whole number"),
    ("v2/compare", {"prompt": PROMPT, "steps": True}, "error", "steps must be a whole number"),
    ("v2/run_chain", {"prompt": PROMPT, "mood": 3}, 422, "run_chain has no setting 'mood'; it has"),
    ("v2/compare", {"steps": 4}, 422, "the prompt is missing"),
    ("v2/compare", {"prompt": ["a"]}, 422, "prompt must be a text or a number, got ['a']"),
    ("run_chain", {"data": []}, 422, "the prompt is missing"),
    ("run_chain", {"data": [PROMPT] * 30}, 422, "data must be a list of at most"),
    ("run_chain", {"data": "x"}, 422, "data must be a list of at most"),
    ("run_chain", {"data": [PROMPT, {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}]},
     403, "this server accepts no files"),
    ("run_chain", {"data": [PROMPT, {"path": 1}]}, 422, "reference must be a text or a number"),
    ("run_chain", [PROMPT], 422, "the request must be an object of settings"),
    ("v2/run_chain", b'{"prompt": "a", "beta": NaN}', 422, "NaN is not a JSON number"),
    ("v2/run_chain", b"[" * 100_000, 422, "it is nested too deeply"),
    ("v2/run_chain", b"\xff", 422, "the request is not JSON"),
    ("v2/run_chain", {"prompt": PROMPT, "reference": "x" * 60_000_000}, 413, "the request has 60,"),
    ("v2/on_run", {}, 404, "there is no endpoint 'on_run'; choose one of run_chain, compare"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status", "words"), WRONG_CALLS)
def test_what_no_call_can_be_gets_one_sentence_in_place_of_null(toy_app, path, body, status, words):
    code, text = post(toy_app, path, body)
    assert code == status
    assert text is not None
    assert words in text
    assert "\n" not in text
    assert len(text) < 300


def test_a_short_list_of_settings_has_the_defaults_of_the_rest(toy_app):
    code, text = post(toy_app, "run_chain", {"data": [PROMPT, "18"]})
    assert code == "complete"
    header = parse_trace(text).header
    assert (header.run.reference, header.run.steps, header.run.seed) == (
        "18",
        Run().steps,
        Run().seed,
    )


def test_a_body_without_end_is_not_kept(toy_app):
    def parts():
        for _ in range(64):
            yield b" " * 2**20

    answer = httpx.post(f"{toy_app}gradio_api/call/v2/run_chain", content=parts(), timeout=60)
    assert answer.status_code == 413
    assert answer.json()["detail"].startswith("the request has 67,108,864 bytes")


def test_the_curl_commands_of_the_docs_call_the_endpoints(toy_app):
    page = (ASSETS.parent / "docs/endpoints.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    result = subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            block.replace("http://127.0.0.1:7860", toy_app.rstrip("/")),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "event: complete" in result.stdout
    data = result.stdout.strip().rsplit("data: ", 1)[1]
    assert len(parse_trace(json.loads(data)[0]).steps) == 17


class EndlessLM(ToyLM):
    """Draws a few responses and then waits for ever; says when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.ended = 6, threading.Event()

    async def extend(self, *args, **options):
        self.left -= 1
        if self.left > 0:
            return await super().extend(*args, **options)
        try:
            return await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.mark.parametrize("endpoint", ["run_chain", "compare"])
def test_a_call_that_nobody_reads_any_more_ends(endpoint):
    lm = EndlessLM()
    runs = Runs(Limits(), load=lambda *_: (lm, ToyRM()))
    with serve(app.build_app(runs), **app.launch_options()) as address:
        call = f"{address}gradio_api/call/v2/{endpoint}"
        event = httpx.post(call, json={"prompt": PROMPT}).json()["event_id"]
        with httpx.stream("GET", f"{call}/{event}", timeout=PATIENCE) as answer:
            next(line for line in answer.iter_lines() if line == "event: generating")
            assert not lm.ended.is_set()
        assert lm.ended.wait(PATIENCE / 1000)


@pytest.mark.parametrize("way", ["call", "queue"])
def test_a_call_that_nobody_ever_reads_ends(monkeypatch, way):
    monkeypatch.setattr(request_guard, "UNREAD", 0.1)
    lm = EndlessLM()
    runs = Runs(Limits(), load=lambda *_: (lm, ToyRM()))
    with serve(app.build_app(runs), **app.launch_options()) as address:
        if way == "call":
            started = httpx.post(f"{address}gradio_api/call/run_chain", json={"data": [PROMPT]})
        else:
            started = httpx.post(f"{address}gradio_api/queue/join", json=joined(address))
        assert started.status_code == 200
        assert lm.ended.wait(PATIENCE / 1000)
        event = started.json()["event_id"]
        forgotten = httpx.get(f"{address}gradio_api/call/run_chain/{event}", timeout=60)
        assert forgotten.text == 'event: error\ndata: "404: Not Found"\n\n'


def test_calls_of_programs_leave_no_session_behind():
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM()))
    demo = app.build_app(runs)
    with serve(demo, **app.launch_options()) as address:
        call = f"{address}gradio_api/call/v2/run_chain"
        for _ in range(3):
            event = httpx.post(call, json={"prompt": PROMPT, "steps": 1}).json()["event_id"]
            assert "event: complete" in httpx.get(f"{call}/{event}", timeout=PATIENCE).text
        holder, queue, patience = (
            demo.app.state_holder,
            demo._queue,
            time.monotonic() + PATIENCE / 1000,
        )
        while (  # they go a moment after the last word of a call
            holder.session_data
            or queue.pending_messages_per_session
            or queue.pending_event_ids_session
            or runs._running
        ):
            assert time.monotonic() < patience
            httpx.get(f"{address}config")


def test_a_call_whose_reader_comes_in_time_goes_on(monkeypatch):
    monkeypatch.setattr(request_guard, "UNREAD", 1.0)
    lm = EndlessLM()
    runs = Runs(Limits(), load=lambda *_: (lm, ToyRM()))
    with serve(app.build_app(runs), **app.launch_options()) as address:
        call = f"{address}gradio_api/call/v2/run_chain"
        event = httpx.post(call, json={"prompt": PROMPT}).json()["event_id"]
        with httpx.stream("GET", f"{call}/{event}", timeout=PATIENCE) as answer:
            beats = (line for line in answer.iter_lines() if line == "event: generating")
            for _ in range(6):  # of a second each, where nothing comes any more
                next(beats)
            assert not lm.ended.is_set()
        assert lm.ended.wait(PATIENCE / 1000)


def joined(address, **changes):
    """The body of a call of /run_chain as Gradio's own client sends it."""
    events = httpx.get(f"{address}config").json()["dependencies"]
    (number,) = (event["id"] for event in events if event["api_name"] == "run_chain")
    values = [PROMPT, *(each.default for each in settings(Limits())[1:])]
    return {"fn_index": number, "data": values, "session_hash": "a", **changes}


WRONG_EVENTS = [
    ({"fn_index": 10**6, "data": []}, "fn_index must be the number of an event, got 1000000"),
    ({"fn_index": "0", "data": []}, "fn_index must be the number of an event, got '0'"),
    ({"fn_index": True, "data": []}, "fn_index must be the number of an event, got True"),
    ({"data": []}, "got None; programs use /call"),
    ({"fn_index": 0, "data": [0] * 99}, "values for event 0, got 99 of them"),
    ({"fn_index": 0, "data": "x"}, "values for event 0, got 'x'"),
    ({"fn_index": 0, "data": [], "session_hash": "x" * 10**6}, "must be 1 to 64 letters, digits"),
    ({"fn_index": 0, "data": [], "session_hash": 5}, "hyphens and underscores, got 5"),
    ([], "the request must be an object"),
]


@pytest.mark.parametrize("path", ["queue/join", "run/predict", "api/run_chain/"])
@pytest.mark.parametrize(("body", "words"), WRONG_EVENTS)
def test_what_is_no_event_gets_one_sentence(toy_app, path, body, words):
    answer = httpx.post(f"{toy_app}gradio_api/{path}", json=body)
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    sentence = detail[0]["message"] if path == "queue/join" else detail
    assert words in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("path", ["queue/join", "cancel", "reset", "component_server"])
@pytest.mark.parametrize("key", ["trigger_id", "batched", "simple_format", "fn_index"])
@pytest.mark.parametrize("length", [10, 10**6])
def test_a_value_that_is_refused_is_not_repeated_as_a_whole(toy_app, path, key, length):
    body = {"fn_index": 0, "data": ["a"], "session_hash": "a", key: "x" * length}
    answer = httpx.post(f"{toy_app}gradio_api/{path}", json=body, timeout=PATIENCE / 1000)
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    sentence = detail[0]["message"] if path == "queue/join" else detail
    assert "\n" not in sentence
    assert len(sentence) < 250


def test_an_endpoint_joins_the_queue_with_all_of_its_settings_only(toy_app):
    few = httpx.post(f"{toy_app}gradio_api/queue/join", json=joined(toy_app, data=[PROMPT]))
    assert few.status_code == 422
    assert re.search(r"a list of \d+ values for event \d+, got 1 of them", few.text)
    direct = httpx.post(f"{toy_app}gradio_api/run/run_chain", json=joined(toy_app))
    assert direct.status_code == 404  # nothing skips the queue


CLOSED = [
    *("upload", "gradio_api/upload", "gradio_api/upload/", "gradio_api/upload?upload_id=a"),
    *("gradio_api/process_recording", "gradio_api/deep_link?session_hash=a"),
    *("gradio_api/file=/etc/passwd", "gradio_api/file=https://example.org/large"),
    *("gradio_api/file/app.py", "gradio_api/proxy=https://example.org"),
    "gradio_api/custom_component/a/client/component/app.py",
]


@pytest.mark.parametrize("path", CLOSED)
def test_no_file_is_taken_or_given(toy_app, path):
    for answer in (
        httpx.post(f"{toy_app}{path}", files={"files": ("a.txt", b"x" * 10**6)}),
        httpx.get(f"{toy_app}{path}"),
    ):
        assert answer.status_code == 403
        assert answer.json() == {"detail": "this server accepts no files"}


def test_both_pages_with_costs_say_what_is_counted():
    texts = [str(c["props"].get("value")) for c in app.build_app().config["components"]]
    assert sum(COMPUTE_NOTE in text for text in texts) == 1  # Compare's, there from the start
    results = show(ASSETS / "results" / "in_distribution-sharp.zip")
    assert COMPUTE_NOTE in "".join(results)


def test_opening_a_page_without_a_link_creates_no_widget_again():
    demo = app.build_app(Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM())))
    opening = [
        fn for fn in demo.fns.values() if fn.fn and ("load" in {kind for _, kind in fn.targets})
    ]
    assert len(opening) == 3
    assert [type(output) for fn in opening for output in fn.outputs] == [gr.State] * 3
    with gr.Blocks() as skipping:  # the control: Gradio creates what an event skips
        slider = gr.Slider()
        skipping.load(lambda: gr.skip(), None, slider)
    state = SessionState(skipping)
    asyncio.run(skipping.process_api(0, [], state=state))
    assert state[slider._id] is not slider


async def test_a_call_sends_a_long_text_seldom_and_the_whole_of_it_at_last():
    runs, loop = Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM())), asyncio.get_running_loop()
    run, since = Run(prompt=PROMPT, steps=600, chains=4), loop.time()
    sent = [text async for text in _texts(runs, lambda feed: draw_run(feed, runs, run))]
    assert json.loads(sent[-1].splitlines()[-1])["type"] == "end"
    most = 2 * len(sent[-1]) + MOST_SENT * (loop.time() - since)
    assert sum(map(len, sent)) < most
    assert len(sent) > 2


def test_a_session_keeps_no_copy_of_the_page_and_of_the_texts_of_its_runs():
    demo = app.build_app(Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM())))
    state = SessionState(demo)
    assert state.config_values == {}
    (number,) = (n for n, fn in demo.fns.items() if fn.api_name == "run_chain")
    inputs = [PROMPT, *(each.default for each in settings(Limits())[1:])]
    request = gr.Request()
    request.session_hash = "a"
    output = asyncio.run(demo.process_api(number, inputs, request=request, state=state))
    assert output["is_generating"]
    assert state.config_values == {}


def test_mcp_is_offered_only_if_asked_for(monkeypatch):
    assert "mcp_server" not in app.launch_options()
    monkeypatch.setenv("QALIGN_MCP", "1")
    assert app.launch_options()["mcp_server"] is True


def test_launching_shows_no_error_text_and_no_file_of_the_server():
    options = app.launch_options()
    assert options["show_error"] is False
    assert options["strict_cors"] is True
    assert options["share"] is False
    assert "allowed_paths" not in options


def test_the_guard_is_outside_all_layers_of_the_app_that_is_served():
    layers = app.launch_options()["_app"].build_middleware_stack()
    assert isinstance(layers, RequestGuard)


def test_the_pages_head_asks_no_outside_host():
    text = head().replace("http://www.w3.org/2000/svg", "")  # the name of SVG, never fetched
    assert "http://" not in text
    assert "https://" not in text


def test_the_recorded_run_is_one_of_the_shipped_models_and_travels_in_20_kb():
    text, run = recorded_run()
    trace = parse_trace(text)
    assert len(gzip.compress(text.encode())) <= 20_000
    assert trace.header.run.lm in Offer(names=()).models["lm"]
    assert trace.header.run.rm in Offer(names=()).models["rm"]
    assert run == trace.header.run
    assert len(trace.rewards) >= 32
    changed = [step for step in trace.steps[1:] if step.changed]
    assert any(step.accepted for step in changed)
    assert any(not step.accepted for step in changed)


def test_a_trace_that_a_killed_writer_left_opens_to_its_last_whole_line(tmp_path):
    text, _ = recorded_run()
    lines = text.splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    for half in (lines[9].encode()[:-20], b'{"type":"step","text":"\xf0\x9f'):
        cut.write_bytes("".join(lines[:9]).encode() + half)
        assert recorded_run(cut)[0] == "".join(lines[:9])
    cut.write_text(text.replace('"beta":', '"beta":null,"was":', 1))
    with pytest.raises(QAlignError, match="beta must be a finite number"):
        app.build_app(opened=cut)


MISTAKES = [
    ({"QALIGN_MAX_RUNS": "0"}, [], "QALIGN_MAX_RUNS must be a whole number above 0, got '0'"),
    ({}, ["no-such-trace.jsonl"], "no-such-trace.jsonl cannot be read (No such file"),
    ({"QALIGN_REGISTRY": "nowhere.toml"}, [], "QALIGN_REGISTRY=nowhere.toml cannot be read"),
    ({}, ["--lessons", "nowhere"], f"{ASSETS.parent / 'nowhere'} is not a folder"),
    ({"QALIGN_OWN_MODELS": "x"}, [], "QALIGN_OWN_MODELS must be 1 or 0, got 'x'"),
    ({"QALIGN_OPENAI": "true"}, [], "QALIGN_OPENAI must be 1 or 0, got 'true'"),
    ({"QALIGN_MCP": "yes"}, [], "QALIGN_MCP must be 1 or 0, got 'yes'"),
    ({"QALIGN_PATCHES": "off"}, [], "QALIGN_PATCHES must be 1 or 0, got 'off'"),
]


def test_what_the_operator_gets_wrong_is_one_sentence(tmp_path):
    for environment, arguments, sentence in MISTAKES:
        with (tmp_path / "errors").open("w+") as errors:
            how = {"env": {**os.environ, **environment}, "stderr": errors.fileno()}
            with Program(*arguments, code=START_APP, **how) as process:
                assert process.wait() == 1
            errors.seek(0)
            text = errors.read()
        assert text.startswith(f"app.py: {sentence}")
        assert text.count("\n") == 1


def test_a_new_problem_leaves_the_status_of_a_run_that_goes_on():
    for state in ("loading", "queued", "sampling"):
        *_, status = next_problem({}, "long", status_value(Status(state, "It goes on.")))
        assert status == gr.skip()
    prompt, *_, status = next_problem({}, "long", status_value(IDLE))
    assert json.loads(status) == {"state": "idle", "text": f"Next run: {prompt}"}


def test_new_problems_come_with_a_known_answer_where_there_is_one():
    for kind in ("in_distribution", "shifted", "long"):
        prompt, answer = new_problem(kind)
        assert prompt.endswith("?")
        assert answer.isdecimal()
    assert new_problem("writing")[1] == ""


def test_weights_are_compressed_once_and_kept_by_browsers(monkeypatch):
    compressed = []

    def compress(data):
        compressed.append(len(data))
        return gzip.compress(data)

    monkeypatch.setattr(static_routes, "gzip", SimpleNamespace(compress=compress))
    static_routes._compress.cache_clear()
    weights = (ASSETS / "models/lm/model.safetensors").read_bytes()
    with TestClient(Starlette(routes=static_routes.routes(), middleware=app.MIDDLEWARE)) as browser:
        first, again = (browser.get("/models/lm/model.safetensors") for _ in range(2))
        assert first.content == again.content == weights
        assert first.headers["content-encoding"] == "gzip"
        assert compressed == [len(weights)]
        kept = {"If-None-Match": first.headers["etag"]}
        assert browser.get("/models/lm/model.safetensors", headers=kept).status_code == 304
        plain = browser.get("/models/lm/model.safetensors", headers={"Accept-Encoding": "identity"})
        assert plain.content == weights
        assert "content-encoding" not in plain.headers
        assert browser.get("/models/../registry.toml").status_code == 404
