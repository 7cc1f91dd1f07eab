"""Who is let in, and what one may carry in: each guard, and what happens without it."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import gradio as gr
import httpx
import pytest
from browser import serve
from gradio import processing_utils
from gradio_client import Client
from refusals import refusal
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route
from test_rooms import JSON, SETTINGS, bearer, end, until
from toys import PROMPT, ToyLM, ToyRM

import app
from components.common.rpc import server_functions
from components.request_guard import RequestGuard
from components.room import routes
from components.room import streams as streams_module
from components.room.limits import Caps
from components.room.routes import _draw_qr, qr_rows, room_routes
from components.room.service import SCREENS, RoomService
from components.session.runs import Runs
from qalign_core.errors import QAlignError
from qalign_core.run import Limits
from qalign_study.serve import guard, origins
from qalign_study.serve.guard import Bodies
from qalign_study.serve.origins import OriginPolicy
from qalign_study.serve.refusal import HTTPRefusal, respond_refused


class Anybody(OriginPolicy):
    """No guard: every host and page is ours."""

    def check(self, scope: Any, headers: Any) -> str:
        return ""


@contextmanager
def served(**options: Any) -> Iterator[str]:
    """The app with toy models."""
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM()))
    with serve(app.build_app(runs), **app.launch_options(runs), **options) as address:
        yield address


@pytest.fixture
async def service() -> AsyncIterator[RoomService]:
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM()))
    rooms = RoomService(runs, {}.__getitem__, Caps(steps=4))
    yield rooms
    await end(rooms)


def asking(
    behind: Any,
    hosts: OriginPolicy | None = None,
    host: str = "localhost",
    address: str = "192.0.2.9",
) -> httpx.AsyncClient:
    """A browser or program at an address, in front of a door."""
    behind.middleware_stack = RequestGuard(behind.build_middleware_stack(), hosts or OriginPolicy())
    transport = httpx.ASGITransport(app=behind, client=(address, 9))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}")


def rooms_of(service: RoomService, **options: Any) -> Starlette:
    handlers: Any = {HTTPRefusal: respond_refused}
    return Starlette(routes=room_routes(service, (), **options), exception_handlers=handlers)


async def body_of(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


ECHO = Starlette(routes=[Route("/{path:path}", body_of, methods=["GET", "POST", "DELETE"])])


def sentence(answer: httpx.Response) -> str:
    detail = str(answer.json()["detail"])
    assert "\n" not in detail
    assert len(detail) < 300
    return detail


# Hosts.

FOREIGN_HOSTS = [
    *("evil.localhost", "evil.localhost:7860", "example.org", "localhost.example.org", "127.1"),
    *("0.0.0.0", "192.0.2.1:7860", "[::2]:7860", "[2001:db8::1]", "localhost:x", "a@localhost"),
    *("localhost,localhost", " ", "", "[::1", "2130706433", "0x7f.1", "localhost."),
]
OWN_HOSTS = ["localhost", "127.0.0.1", "[::1]", "LocalHost:7860", "127.0.0.1:80", "[::1]:7860"]


@pytest.mark.parametrize("path", ["", "config", "room", "gradio_api/info", "vendor/x.js"])
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_host_that_is_not_ours_is_refused_on_every_route(toy_app, host, path):
    try:
        answer = httpx.get(f"{toy_app}{path}", headers={"Host": host}, timeout=60)
    except httpx.LocalProtocolError:  # no client sends that
        return
    assert answer.status_code in (400, 421)  # uvicorn refuses what is no header
    assert "language model" not in answer.text


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_this_machines_own_names_are_let_in(toy_app, host):
    assert httpx.get(f"{toy_app}config", headers={"Host": host}, timeout=60).status_code == 200


async def test_a_rebound_name_opens_no_room_and_would_without_the_guard(service):
    for hosts, status in ((OriginPolicy(), 421), (Anybody(), 200)):
        async with asking(rooms_of(service), hosts, "evil.localhost") as page:
            assert (await page.post("/room/open", json=SETTINGS)).status_code == status


async def test_the_literal_address_by_which_one_came_is_ours_and_no_other():
    async with asking(ECHO, host="192.0.2.7") as phone:
        assert (await phone.get("/")).status_code == 200
        other = await phone.get("/", headers={"Host": "192.0.2.8"})
        assert other.status_code == 421
        assert sentence(other) == (
            "this server is not '192.0.2.8'; open it by its own address, or name that host in "
            "QALIGN_HOSTS"
        )


async def test_hosts_that_the_operator_names_are_ours():
    hosts = OriginPolicy.from_environment({"QALIGN_HOSTS": "qalign.example.org, Other.example.org"})
    for host, status in (("qalign.example.org", 200), ("other.example.org:80", 200),
                         ("more.example.org", 421)):  # fmt: skip
        async with asking(ECHO, hosts, host) as page:
            assert (await page.get("/")).status_code == status


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("QALIGN_HOSTS", value) for value in ("https://a.org", "a.org/x", "a b", "*")),
        *(
            ("QALIGN_ORIGINS", value)
            for value in ("a.org", "https://a.org/", "null", "*", "ftp://a")
        ),
    ],
)
def test_what_is_no_host_and_no_origin_is_told_to_the_operator(name, value):
    with pytest.raises(QAlignError, match=f"^{name} must be .* such as .*, got"):
        OriginPolicy.from_environment({name: f"good.example.org,{value}"[17 * (name[-1] == "S") :]})


CHAT = "https://chat.example.org"


@pytest.fixture(scope="module")
def trusting() -> Iterator[str]:
    """The app at an address of this machine that has no name, with a page that it trusts."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:  # it is read while the app starts
            patch.setenv("QALIGN_ORIGINS", CHAT)
            address = stack.enter_context(served(server_name="127.0.0.2"))
        yield address


def test_a_class_joins_a_room_by_the_machines_own_address(trusting):
    address = trusting
    assert address.startswith("http://127.0.0.2:")
    own = {"Origin": address.rstrip("/")}
    lead = httpx.post(f"{address}room/open", json=SETTINGS, headers=own, timeout=60).json()
    seat = httpx.post(f"{address}room/join", json={"code": lead["code"]}, headers=own).json()
    follow, head = f"{address}room/follow?code={lead['code']}", bearer(seat["token"])
    with httpx.stream("GET", follow, headers=head) as screen:
        event = next(line for line in screen.iter_lines() if line.startswith("data: "))
    assert json.loads(event.removeprefix("data: "))["mine"]["number"] == 1
    other = httpx.get(f"{address}room", headers={"Host": "127.0.0.3"})
    assert other.status_code == 421


# Hosts that a proxy names.

FOREIGN_FORWARDED = [
    *("evil.example", "evil.example:7860", "localhost, evil.example", "evil.example, localhost"),
    *("http://evil.example", "localhost@evil.example", "localhost/x", ""),
]


@pytest.mark.parametrize("name", ["X-Forwarded-Host", "x-gradio-server"])
@pytest.mark.parametrize("value", [*FOREIGN_FORWARDED, "http://evil.example/x"])
def test_no_page_names_a_host_that_a_stranger_claims(toy_app, name, value):
    answer = httpx.get(f"{toy_app}config", headers={name: value}, timeout=60)
    assert answer.json()["root"] == toy_app.rstrip("/")
    assert "evil" not in answer.text


async def forwarded_to_app(request: Request) -> JSONResponse:
    names = ("x-forwarded-host", "x-gradio-server", "x-forwarded-proto")
    return JSONResponse({name: request.headers.getlist(name) for name in names})


@pytest.mark.parametrize(
    ("client", "is_space", "believed"),
    [
        (("127.0.0.1", 5), False, True),
        (("::1", 5), False, True),
        (("192.0.2.9", 0), False, True),  # as uvicorn names the client of a trusted proxy
        (("192.0.2.9", 5), False, False),
        (("192.0.2.9", 5), True, True),
    ],
)
@pytest.mark.parametrize("value", ["qalign.example.org", *FOREIGN_FORWARDED])
async def test_a_trusted_proxy_may_name_a_host_of_ours(client, is_space, believed, value):
    behind: Any = Starlette(routes=[Route("/", forwarded_to_app)])
    hosts = OriginPolicy(named=frozenset({"qalign.example.org"}), is_space=is_space)
    transport = httpx.ASGITransport(app=RequestGuard(behind, hosts), client=client)
    heads = {"X-Forwarded-Host": value, "X-Forwarded-Proto": "https", "X-Gradio-Server": value}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as proxy:
        answer = (await proxy.get("/", headers=heads)).json()
    is_kept = believed and value == "qalign.example.org"
    assert answer["x-forwarded-host"] == [value] * is_kept
    assert (answer["x-gradio-server"], answer["x-forwarded-proto"]) == ([], ["https"])


# Origins.

FOREIGN_ORIGINS = [
    *("http://evil.localhost:7860", "null", "http://localhost:1", "https://localhost:7861"),
    *("https://example.org", "http://127.0.0.1", "file://", "localhost", "http://[::1]:9"),
]


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_foreign_page_neither_asks_nor_reads(toy_app, origin):
    head = {"Origin": origin}
    call = {"prompt": PROMPT, "steps": 1}
    answers = [
        httpx.post(f"{toy_app}room/open", json=SETTINGS, headers=head, timeout=60),
        httpx.post(f"{toy_app}gradio_api/call/v2/run_chain", json=call, headers=head),
        httpx.post(f"{toy_app}gradio_api/queue/join", json={}, headers=head),
        httpx.get(f"{toy_app}gradio_api/queue/data?session_hash=a", headers=head),
        httpx.get(f"{toy_app}config", headers=head),
        httpx.delete(f"{toy_app}gradio_api/mcp", headers=head),
        httpx.options(f"{toy_app}room/open", headers=head
                      | {"Access-Control-Request-Method": "POST"}),
    ]  # fmt: skip
    for answer in answers:
        assert answer.status_code == 403
        assert "QALIGN_ORIGINS" in sentence(answer)
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "scheme", ["x", "chrome-extension", "moz-extension", "ws", "httpx", "", "file"]
)
def test_a_page_of_another_scheme_is_foreign_at_our_own_address_too(toy_app, scheme):
    head = {"Origin": f"{scheme}://{toy_app.rstrip('/').removeprefix('http://')}"}
    answer = httpx.post(f"{toy_app}room/open", json=SETTINGS, headers=head, timeout=60)
    assert answer.status_code == 403
    assert "QALIGN_ORIGINS" in sentence(answer)


def test_the_apps_own_pages_ask(toy_app):
    own = {"Origin": toy_app.rstrip("/")}
    answer = httpx.post(f"{toy_app}room/open", json=SETTINGS, headers=own, timeout=60)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers  # it needs no leave


async def test_a_foreign_page_opens_a_room_without_the_guard(service):
    async with asking(rooms_of(service), Anybody()) as page:
        head = {"Origin": "https://example.org"}
        opened = await page.post("/room/open", json=SETTINGS, headers=head)
        assert opened.json()["token"]


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "multipart/form-data",
                                  "application/x-www-form-urlencoded", "", "json"])  # fmt: skip
async def test_what_a_page_may_send_unasked_opens_no_room(service, kind):
    async with asking(rooms_of(service)) as page:
        content = json.dumps(SETTINGS)
        plain = await page.post("/room/open", content=content, headers={"Content-Type": kind})
        assert plain.status_code == 415
        assert "application/json" in sentence(plain)
        assert not list(service.rooms)
        kind = "application/json; charset=utf-8"  # the control: the kind is all that is wrong
        declared = await page.post("/room/open", content=content, headers={"Content-Type": kind})
        assert declared.status_code == 200


def test_a_page_that_the_operator_trusts_asks_and_reads(trusting):
    place = f"{trusting}gradio_api/call/v2/run_chain"
    ask = {"Access-Control-Request-Method": "POST",
           "Access-Control-Request-Headers": "content-type"}  # fmt: skip
    before = httpx.options(place, headers={"Origin": CHAT, **ask}, timeout=60)
    assert before.status_code == 204
    assert before.headers["access-control-allow-headers"] == "content-type"
    call = httpx.post(place, json={"prompt": PROMPT, "steps": 1}, headers={"Origin": CHAT})
    wrong = httpx.post(place, json={}, headers={"Origin": CHAT})
    for answer in (before, call, wrong):
        assert answer.headers["access-control-allow-origin"] == CHAT
        assert "origin" in answer.headers["vary"].lower()
    assert call.json()["event_id"]
    assert "the prompt is missing" in sentence(wrong)
    other = httpx.post(place, json={}, headers={"Origin": "https://example.org"})
    assert other.status_code == 403


async def test_a_page_behind_a_proxy_that_sends_another_host_is_ours():
    hosts = OriginPolicy.from_environment({"QALIGN_HOSTS": "qalign.example.org"})
    async with asking(ECHO, hosts, "127.0.0.1:7860") as page:
        for origin, status in (("https://qalign.example.org", 200), ("https://example.org", 403)):
            answer = await page.post("/x", json={}, headers={"Origin": origin})
            assert answer.status_code == status


async def test_no_page_opens_a_socket():
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    await RequestGuard(ECHO, OriginPolicy())({"type": "websocket", "path": "/"}, send, send)  # type: ignore[arg-type]
    assert messages == [{"type": "websocket.close"}]


def test_a_program_with_gradios_client_has_no_origin_and_is_let_in(toy_app):
    client = Client(toy_app, verbose=False)
    assert '"type":"header"' in client.predict(PROMPT, steps=1, api_name="/run_chain")


async def test_tools_are_asked_and_answer_as_they_do_without_a_door():
    async def tool(request: Request) -> StreamingResponse:
        raw = await request.body()
        method = json.loads(raw)[0]["method"] if raw else "a session ends"
        return StreamingResponse(iter([f"data: {method}\n\n"]))

    behind = Starlette(routes=[Route("/gradio_api/mcp/", tool, methods=["POST", "DELETE"])])
    async with asking(behind) as program:
        payload = [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]
        for path in ("/gradio_api/mcp/", "/gradio_api/mcp"):
            answer = await program.post(path, json=payload, follow_redirects=True)
            assert answer.text == "data: tools/list\n\n"
        assert (await program.delete("/gradio_api/mcp/")).text == "data: a session ends\n\n"


# A Space, in the frame of another origin.


@contextmanager
def a_page(text: str) -> Iterator[str]:
    """A page of another origin; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_space_is_asked_by_its_own_host_and_pages(monkeypatch):
    monkeypatch.setenv("SPACE_HOST", "owner-name.hf.space")
    with served() as address:
        head = {"Host": "owner-name.hf.space", "X-Forwarded-Proto": "https"}
        page = httpx.get(address, headers=head, timeout=60)
        policy = page.headers["content-security-policy"]
        assert policy.endswith("frame-ancestors 'self' https://huggingface.co")
        own = head | {"Origin": "https://owner-name.hf.space"}
        call = f"{address}gradio_api/call/v2/run_chain"
        payload = {"prompt": PROMPT, "steps": 1}
        assert httpx.post(call, json=payload, headers=own).status_code == 200
        foreign = head | {"Origin": "https://example.org"}
        assert httpx.post(call, json=payload, headers=foreign).status_code == 403
        other = {"Host": "other-name.hf.space"}
        assert httpx.get(address, headers=other).status_code == 421


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("trusted", [True, False])
async def test_a_space_runs_in_the_frame_of_its_host_and_in_no_other(
    monkeypatch, visitors, trusted
):
    with a_page("<iframe id=app></iframe>") as outside:
        monkeypatch.setattr(origins, "SPACES", outside if trusted else "https://huggingface.co")
        monkeypatch.setenv("SPACE_HOST", "owner-name.hf.space")
        with served() as address:
            page = await visitors.new_page()
            try:
                warning = page.expect_console_message(lambda line: "frame-ancestors" in line.text)
                await page.goto(outside)
                show = "(a) => Object.assign(app, { width: 1200, height: 850, src: a })"
                if not trusted:
                    async with warning:
                        await page.evaluate(show, address)
                    return
                await page.evaluate(show, f"{address}?steps=4")
                frame = page.frame_locator("#app")
                await frame.locator("#watch-run").click()
                await frame.locator("#watch").get_by_text("All texts are drawn").first.wait_for()
            finally:
                await page.close()


# What is carried in.


async def test_a_body_has_a_size_that_its_route_needs():
    for path, most in (("/room/join", 8192), ("/gradio_api/call/compare", 2**20),
                       ("/gradio_api/mcp/", 2**20), ("/gradio_api/queue/join", 2**20),
                       ("/gradio_api/component_server", 2**22)):  # fmt: skip
        for size in (most, most + 1):
            parts = [b" " * (size // 2), b" " * (size - size // 2)]

            async def receive(parts: list[bytes] = parts) -> Any:
                part = parts.pop()
                return {"type": "http.request", "body": part, "more_body": bool(parts)}

            received = Bodies().receive(receive, path)
            if size == most:
                assert len(await received) == most
            else:
                with pytest.raises(
                    HTTPRefusal, match=f"has {size:,} bytes; at most {most:,} are"
                ) as error:
                    await received
                assert error.value.status == 413


async def test_the_parts_of_a_body_are_listed_once():
    lists, left = set(), 100

    async def receive() -> Any:
        nonlocal left
        left -= 1
        lists.add(id(receiving.cr_frame.f_locals["parts"]))  # a copy per part would be another
        return {"type": "http.request", "body": b"x", "more_body": left > 0}

    receiving = Bodies().receive(receive, "/")
    assert await receiving == b"x" * 100
    assert len(lists) == 1


async def never() -> Any:
    await asyncio.Event().wait()


async def test_a_body_that_does_not_come_is_given_up(monkeypatch):
    monkeypatch.setattr(guard, "RECEIVE", 0.01)
    with refusal(HTTPRefusal, match="took too long", status=408):
        await Bodies().receive(never, "/")
    monkeypatch.setattr(guard, "RECEIVE", None)  # the control: nothing else ends it
    waiting = asyncio.create_task(Bodies().receive(never, "/"))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done
    waiting.cancel()


class Slow:
    """Sends a body of so many bytes, and then nothing until it is told to end."""

    def __init__(self, size: int) -> None:
        self.parts = [b" " * size]
        self.end = asyncio.Event()

    async def __call__(self) -> Any:
        if self.parts:
            return {"type": "http.request", "body": self.parts.pop(), "more_body": True}
        await self.end.wait()
        return {"type": "http.request", "body": b"", "more_body": False}


@pytest.mark.parametrize("together", [1000, 10**9])
async def test_of_too_many_bodies_the_one_that_has_taken_longest_gives_way(monkeypatch, together):
    monkeypatch.setattr(guard, "TOGETHER", together)
    held, slow = Bodies(), [Slow(300) for _ in range(5)]
    tasks = [asyncio.create_task(held.receive(each, "/")) for each in slow]
    for _ in range(20):
        await asyncio.sleep(0)
    gone = [task.done() for task in tasks]
    assert gone == ([True, True, False, False, False] if together == 1000 else [False] * 5)
    quick = Slow(300)
    quick.end.set()
    assert len(await held.receive(quick, "/")) == 300  # somebody who behaves is never refused
    for each in slow:
        each.end.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(answer, HTTPRefusal) for answer in answers[-2:]] == [False, False]
    assert not held._arriving


async def test_slow_uploads_end_and_their_connections_are_closed(monkeypatch, toy_app):
    monkeypatch.setattr(guard, "RECEIVE", 0.5)
    port = int(toy_app.rstrip("/").rsplit(":", 1)[1])
    heads = [
        "POST /room/join HTTP/1.1\r\nContent-Length: 8000",
        "POST /gradio_api/queue/join HTTP/1.1\r\nContent-Length: 4000000",
        "POST /gradio_api/upload HTTP/1.1\r\nContent-Length: 4000000",
        "POST /anything HTTP/1.1\r\nTransfer-Encoding: chunked",
    ]

    async def upload(head: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            kind = "Host: localhost\r\nContent-Type: application/json"
            writer.write(f"{head}\r\n{kind}\r\n\r\n".encode() + b"1\r\n \r\n")
            return await asyncio.wait_for(reader.read(), 60)  # to the end of the connection
        finally:
            writer.close()

    answers = await asyncio.gather(*(upload(head) for head in heads * 5))
    assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 408 Request Timeout"}
    get = "GET / HTTP/1.1\r\nContent-Length: 4000000"  # nobody would read it
    assert (await upload(get)).startswith(b"HTTP/1.1 400")


async def streams(client: httpx.AsyncClient, paths: list[str], open_: Any) -> list[int]:
    """The statuses of streams that stay open together."""
    tasks = [asyncio.create_task(client.get(path)) for path in paths]
    for _ in range(50):
        await asyncio.sleep(0)
    open_.set()
    return [answer.status_code for answer in await asyncio.gather(*tasks)]


@pytest.mark.parametrize(
    ("path", "address", "hosts", "refused"),
    [
        ("/gradio_api/heartbeat/a", "192.0.2.9", OriginPolicy(), 2),
        ("/room/follow", "192.0.2.9", OriginPolicy(), 0),  # rooms count their own screens
        ("/models/lm/model.safetensors", "192.0.2.9", OriginPolicy(), 0),  # which load the models
        ("/gradio_api/heartbeat/a", "127.0.0.1", OriginPolicy(), 0),  # a proxy, or the owner
        ("/gradio_api/heartbeat/a", "192.0.2.9", OriginPolicy(is_space=True), 0),
    ],
)
async def test_an_address_has_so_many_requests_open(monkeypatch, path, address, hosts, refused):
    monkeypatch.setattr(guard, "OPEN", 3)
    open_ = asyncio.Event()

    async def stream(_: Request) -> PlainTextResponse:
        await open_.wait()
        return PlainTextResponse("end")

    behind = RequestGuard(Starlette(routes=[Route("/{path:path}", stream)]), hosts)

    def at(place: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=behind, client=(place, 9))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async with at(address) as one, at("192.0.2.10") as other:
        both = await asyncio.gather(
            streams(one, [path] * 5, open_), streams(other, [path] * 3, open_)
        )
        assert both == [[200] * (5 - refused) + [429] * refused, [200] * 3]
        assert not +behind._open  # whoever has left counts no more
        assert await streams(one, [path] * 3, open_) == [200] * 3


async def test_a_room_has_so_many_screens_of_its_instructor(service):
    lead = await service.open(SETTINGS, "here")
    place = lead["code"], lead["token"]
    async with AsyncExitStack() as stack:
        for _ in range(SCREENS):
            stream = service.follow(*place)
            stack.push_async_callback(stream.aclose)  # type: ignore[attr-defined]
            await anext(stream)
        with pytest.raises(HTTPRefusal, match="screens show this room already"):
            service.follow(*place)
    unread = [service.follow(*place) for _ in range(SCREENS)]  # they count before they begin
    with pytest.raises(HTTPRefusal, match="screens show this room already"):
        service.follow(*place)
    unread.clear()  # and no longer when their readers never come
    service.follow(*place)


async def test_two_hundred_screens_that_come_at_once_get_the_same_places(service, monkeypatch):
    monkeypatch.setattr(streams_module, "LOOK", 0.001)
    async with asking(rooms_of(service)) as client:
        lead = (await client.post("/room/open", json=SETTINGS)).json()
        path, head = f"/room/follow?code={lead['code']}", bearer(lead["token"])
        screens = [asyncio.create_task(client.get(path, headers=head)) for _ in range(200)]
        await until(lambda: sum(screen.done() for screen in screens) == 200 - SCREENS)
        await service.lead(lead["code"], lead["token"], {"do": "end"})
        answers = Counter(answer.status_code for answer in await asyncio.gather(*screens))
    assert answers == {200: SCREENS, 429: 200 - SCREENS}


@pytest.mark.parametrize("rooms_count_their_own", [True, False])
async def test_members_behind_one_address_follow_their_rooms_together(
    service, monkeypatch, rooms_count_their_own
):
    monkeypatch.setattr(guard, "OPEN", 3)
    monkeypatch.setattr(streams_module, "LOOK", 0.001)
    if not rooms_count_their_own:  # the control: the address would count them
        monkeypatch.setattr(RequestGuard, "_counts", lambda *_: True)
    async with asking(rooms_of(service)) as school:
        leads = [(await school.post("/room/open", json=SETTINGS)).json() for _ in range(4)]
        follow = []
        for lead in leads:
            for _ in range(10):
                seat = await school.post("/room/join", json={"code": lead["code"]})
                place = {"code": lead["code"], "draws": "1"}
                stream = school.get(
                    "/room/follow", params=place, headers=bearer(seat.json()["token"])
                )
                follow.append(asyncio.create_task(stream))
        rooms = [service.rooms.find(lead["code"]) for lead in leads]
        open_ = 40 if rooms_count_their_own else 3
        await until(lambda: sum(len(m.screens) for r in rooms for m in r.members.values()) == open_)
        for lead in leads:
            await service.lead(lead["code"], lead["token"], {"do": "end"})
        answers = Counter(answer.status_code for answer in await asyncio.gather(*follow))
        assert answers == {200: open_, **({429: 37} if open_ == 3 else {})}


# JSON that no float or no UTF-8 holds, and addresses that no file system takes.

NO_VALUES = [
    *(b"1e400", b"-1e999", b"9" * 400, b"9" * 400 + b".0", b"NaN", b"-Infinity"),
    *(b'"\\ud800"', b'{"\\udc00": 1}', b'"\xed\xa0\x80"', b"\xff"),
]
BODIES = {
    "gradio_api/queue/join": b'{"fn_index": 0, "session_hash": "a", "data": [%s]}',
    "gradio_api/run/predict": b'{"fn_index": 0, "data": [%s]}',
    "gradio_api/call/run_chain": b'{"data": ["Hi", "", %s]}',
    "gradio_api/call/v2/run_chain": b'{"prompt": "Hi", "beta": %s}',
    "gradio_api/call/v2/compare": b'{"prompt": %s}',
    "gradio_api/component_server": b'{"component_id": 1, "fn_name": "a", "data": %s}',
    "gradio_api/reset": b'{"event_id": "a", "more": %s}',
    "gradio_api/cancel": b'{"session_hash": "a", "fn_index": 1, "event_id": %s}',
    "gradio_api/mcp/": b'{"jsonrpc": "2.0", "method": %s}',
    "login": b'{"username": %s}',
    "room/open": b'{"prompt": "Hi", "beta": %s}',
    "room/join": b'{"code": %s}',
    "room/states": b'{"code": "ABCD2345", "states": [%s]}',
}


@pytest.mark.parametrize("path", BODIES)
def test_a_value_that_no_float_or_no_utf8_holds_is_refused_on_every_route(toy_app, path):
    for value in NO_VALUES:
        body = BODIES[path].replace(b"%s", value)
        answer = httpx.post(f"{toy_app}{path}", content=body, headers=JSON, timeout=60)
        assert answer.status_code == 422
        assert "the request is not JSON" in sentence(answer)


FILE = {"path": "http://example.org/large", "meta": {"_type": "gradio.FileData"}}
"""The form in which Gradio's clients send a file."""


@pytest.mark.parametrize("path", [path for path in BODIES if path.startswith("gradio_api/")])
def test_no_address_is_opened_for_a_file_that_a_visitor_names(toy_app, path):
    for value in (FILE, [1, FILE], {"a": [[], {"b": FILE}]}, FILE | {"path": "/etc/passwd"}):
        body = BODIES[path].replace(b"%s", json.dumps(value).encode())
        answer = httpx.post(f"{toy_app}{path}", content=body, headers=JSON, timeout=60)
        assert answer.status_code == 403
        assert "this server accepts no files" in answer.text


async def test_without_the_guard_gradio_opens_the_address_of_a_file(monkeypatch):
    opened = []

    async def download(address: str, **_: Any) -> str:  # the network of tests has no such host
        opened.append(address)
        return "file"

    monkeypatch.setattr(processing_utils, "async_ssrf_protected_download", download)
    box = gr.Textbox()
    await processing_utils.async_move_files_to_cache([FILE], box, check_in_upload_folder=True)
    assert opened == [FILE["path"]]


@pytest.mark.parametrize("folder", ["assets", "static", "svelte", "models", "vendor", "engine", ""])
@pytest.mark.parametrize("name", ["x" * 256, "a/" * 3000, "é" * 128, "/".join(["y" * 200] * 30)])
def test_an_address_longer_than_any_file_name_is_refused(toy_app, folder, name):
    answer = httpx.get(f"{toy_app}{folder}/{name}", timeout=60)
    assert answer.status_code == 414
    assert "at most 255 are allowed" in sentence(answer)


# Names of sessions.

WRONG_NAMES = ["x" * 65, "", " ", "a b", "a\n", "\x00", "é", "a<gradio-sep>b", "a.b", "\u200b"]


NAMING = [
    ("component_server", {"data": 1, "component_id": 1, "fn_name": "a"}),
    ("component_server/", {"data": 1, "component_id": 1, "fn_name": "a"}),
    ("queue/join", {"data": [], "fn_index": 0}),
    ("run/predict", {"data": [], "fn_index": 0}),
    ("cancel", {"fn_index": 0, "event_id": "a"}),
    ("reset", {"event_id": None}),
    ("call/run_chain", {"data": [PROMPT]}),
    ("heartbeat/NAME", None),
    ("queue/data?session_hash=NAME", None),
    ("call/run_chain/NAME", None),
    ("call/v2/run_chain/NAME", None),
    ("info?session_hash=NAME", None),
]
"""Requests that name a session; a path without a name is another route."""


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [(*each, name) for each in NAMING for name in WRONG_NAMES if name or "/NAME" not in each[0]],
)
def test_a_session_has_a_name_of_one_form_on_every_route(toy_app, path, body, name):
    address = f"{toy_app}gradio_api/{path.replace('NAME', quote(name))}"
    if body is None:
        answer = httpx.get(address, timeout=60)
    else:
        answer = httpx.post(address, json={"session_hash": name, **body}, timeout=60)
    assert answer.status_code == 422
    assert "must be 1 to 64 letters, digits" in sentence(answer)


def test_a_page_that_gradio_would_look_for_in_vain_is_refused_and_no_page_is_ours(toy_app):
    answer = httpx.get(f"{toy_app}?page=results", timeout=60)
    assert answer.status_code == 404
    assert "no page 'results'; use tab=" in sentence(answer)
    for query in ("?page=", "?tab=results"):
        assert httpx.get(f"{toy_app}{query}", timeout=60).status_code == 200


# Questions of the page's scripts.


def component_with(address: str, elem_id: str) -> int:
    components = httpx.get(f"{address}config", timeout=60).json()["components"]
    return next(each["id"] for each in components if each["props"].get("elem_id") == elem_id)


WRONG_QUESTIONS = [
    ({"data": 7}, 422, "lesson cannot use 7"),
    ({"data": "\ud800"}, 422, "data contains half a character"),
    ({"data": "unknown"}, 422, "lesson cannot use 'unknown'"),
    ({"data": {"lesson": "one-step"}, "fn_name": "check"}, 422, "check cannot use {'lesson'"),
    ({"data": [[[[[]]]]], "fn_name": "check"}, 422, "check cannot use"),
    ({"data": {"lesson": "one-step", "stop": "x", "said": ""}, "fn_name": "check"}, 422,
     "check cannot use"),
    ({"data": {"lesson": "one-step", "stop": 10**400, "said": 1}, "fn_name": "check"}, 422,
     "stop = 100000000000000000000000000000000000... is too large a number"),
    ({"data": "../../secret", "fn_name": "run"}, 422, "run cannot use '../../secret'"),
    ({"component_id": "1"}, 422, "component_id must be the number of a component, got '1'"),
    ({"component_id": 10**9}, 422, "component_id must be the number of a component"),
    ({"component_id": None}, 422, "component_id must be the number of a component, got None"),
    ({"fn_name": "unload"}, 404, "has no function 'unload'"),
    ({"fn_name": "__class__"}, 404, "has no function '__class__'"),
    ({"fn_name": [1]}, 404, "has no function [1]"),
    ({"session_hash": None}, 422, "session_hash and data are missing"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "status", "words"), WRONG_QUESTIONS)
def test_a_question_that_is_none_gets_one_sentence_and_no_log(
    toy_app, caplog, changes, status, words
):
    right = {"component_id": component_with(toy_app, "learn-host"), "fn_name": "lesson",
             "data": "one-step", "session_hash": "a"}  # fmt: skip
    address = f"{toy_app}gradio_api/component_server"
    assert httpx.post(address, json=right, timeout=60).json()["name"] == "one-step"
    answer = httpx.post(address, content=json.dumps(right | changes), headers=JSON, timeout=60)
    assert answer.status_code == status
    assert words in sentence(answer)
    assert not caplog.records


@pytest.mark.parametrize("guard", [lambda f: server_functions(f)[0], lambda f: f])
async def test_without_the_guard_a_wrong_value_is_a_defect_and_fills_no_log(guard, limited):
    async def lesson(name: str) -> str:
        return {"one-step": "One step"}[name]

    fn = guard(lesson)

    async def ask(request: Request) -> JSONResponse:
        return JSONResponse(await fn((await request.json())["data"]))

    fn._is_server_fn = True
    handlers: Any = {HTTPRefusal: respond_refused}
    behind = Starlette(
        routes=[Route("/component_server", ask, methods=["POST"])], exception_handlers=handlers
    )
    behind.get_blocks = lambda: SimpleNamespace(  # type: ignore[attr-defined]
        blocks={1: SimpleNamespace(lesson=fn)}
    )
    wrong = {"component_id": 1, "fn_name": "lesson", "data": "two", "session_hash": "a"}
    async with asking(behind) as page:
        answers = [await page.post("/component_server", json=wrong) for _ in range(20)]
    guarded = fn is not lesson
    assert {answer.status_code for answer in answers} == {422 if guarded else 500}
    assert limited().count("ERROR: a request failed") == (0 if guarded else 1)


# QR codes.


async def test_a_code_is_drawn_for_the_instructor_only_and_so_often(service):
    async with asking(rooms_of(service)) as client:
        lead = (await client.post("/room/open", json=SETTINGS)).json()
        seat = (await client.post("/room/join", json={"code": lead["code"]})).json()

        async def draw(token: str, k: int) -> int:
            body = {"code": lead["code"], "link": f"http://localhost/room?{k}"}
            answer = await client.post("/room/qr", json=body, headers=bearer(token))
            return answer.status_code

        assert [await draw(token, 0) for token in ("", "guess", seat["token"])] == [403] * 3
        answers = [await draw(lead["token"], k) for k in range(40)]
        assert answers[:10] == [200] * 10
        assert 429 in answers


async def test_a_code_is_drawn_once_and_off_the_loop(service, monkeypatch):
    threads: set[threading.Thread] = set()

    def draw_code(link: object) -> list[str]:
        threads.add(threading.current_thread())
        return qr_rows(link)

    monkeypatch.setattr(routes, "qr_rows", draw_code)
    _draw_qr.cache_clear()
    lead = await service.open(SETTINGS, "here")
    async with asking(rooms_of(service)) as client:
        for _ in range(5):
            body = {"code": lead["code"], "link": "http://localhost/room"}
            answer = await client.post("/room/qr", json=body, headers=bearer(lead["token"]))
            assert answer.status_code == 200
    assert _draw_qr.cache_info().misses == 1
    assert _draw_qr.cache_info().maxsize == 64
    assert threads
    assert threading.main_thread() not in threads


# Rooms of one address.


async def test_one_address_holds_half_of_the_rooms_until_it_closes_one(service):
    lead, *_ = [await service.open(SETTINGS, "192.0.2.9") for _ in range(4)]
    with refusal(HTTPRefusal, match="your address has 4 rooms open on this server", status=429):
        await service.open(SETTINGS, "192.0.2.9")
    await service.open(SETTINGS, "192.0.2.10")
    await service.lead(lead["code"], lead["token"], {"do": "end"})
    await service.open(SETTINGS, "192.0.2.9")


async def test_where_a_proxy_hides_addresses_all_rooms_are_open_to_all(service):
    async with asking(rooms_of(service, hidden=True)) as proxy:
        answers = [await proxy.post("/room/open", json=SETTINGS) for _ in range(6)]
    assert {answer.status_code for answer in answers} == {200}


# What pages may do, and be part of.


def test_every_page_says_what_it_may_do_and_whose_frame_it_may_be_in(toy_app):
    for path in ("", "?view=api", "room"):
        answer = httpx.get(f"{toy_app}{path}", timeout=60)
        policy = answer.headers["content-security-policy"]
        assert policy.endswith("frame-ancestors 'self'")
        assert "default-src 'self'" in policy or "default-src 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_an_operator_names_who_may_show_the_app_in_a_frame():
    async def page(_: Request) -> Any:
        return PlainTextResponse("<p>", media_type="text/html")

    hosts = OriginPolicy.from_environment({"QALIGN_ORIGINS": "https://school.example.org"})
    async with asking(Starlette(routes=[Route("/", page)]), hosts) as client:
        policy = (await client.get("/")).headers["content-security-policy"]
    assert policy.endswith("frame-ancestors 'self' https://school.example.org")
