"""The app's doorkeeper: it checks requests before Gradio reads them and notices who left."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlencode

from fastapi.exceptions import RequestValidationError
from gradio.routes import App, ORJSONResponse
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.common.rpc import object_of, value_of
from components.endpoints import ENDPOINTS, settings
from components.gradio_patches import forget_session
from qalign_core.run import Limits
from qalign_core.validation import from_json, is_whole, short_repr
from qalign_study.serve.guard import Guard, check_kind, replay_body
from qalign_study.serve.log import limit_log
from qalign_study.serve.origins import OriginPolicy
from qalign_study.serve.refusal import HTTPRefusal, respond_refused

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of sessions; a browser's has 11 characters, a program's 36. Gradio keeps thousands.

Gradio files the messages and the events of an empty name under different names. It joins a name
with others by "_" and "<gradio-sep>" and splits them again.
"""
UNREAD = 60.0
"""Seconds after which a call that nobody reads is ended, and what it said forgotten."""
_OTHERS = re.compile(r"/(room|v1)(/|$)")
"""What reads its bodies itself."""
_TOOLS = re.compile(r"/mcp(/|$)")
"""A protocol of its own: a request to it may be a list."""
_CLASS = re.compile(r"/(room|models|engine)(/|\.js$|$)")
_QUESTION = re.compile(r"/component_server/?$")
_CALL = re.compile(r"(.*/call/)(v2/)?([^/]*)/?$")
_EVENT = re.compile(r"/(queue/join|(run|api)/[^/]*)/?$")
_STREAM = re.compile(r"/(queue/data|call/(v2/)?[^/]+/([^/]+))/?$")
_NAMED = re.compile(r"/heartbeat/([^/]*)|/call/(?:v2/)?[^/]+/([^/]+)")
_CLOSED = re.compile(
    r"/(upload|process_recording|deep_link|custom_component/|file[=/]|proxy=|stream/)"
)
"""What Gradio has for apps with files: this one has none, and a disk that fills up."""


class RequestGuard(Guard):
    """A wrapper around the app that admits requests and completes calls.

    Gradio answers a wrong number of settings, an unknown name and an unknown endpoint with "null"
    or an internal error; here each gets a sentence. A list of settings that is short is filled up
    with their defaults. And Gradio ends the runs of a reader who leaves, but not of one who never
    comes: the door then comes and leaves instead.

    Args:
        app: what is behind it.
        ours: hosts and origins.
    """

    def __init__(self, app: ASGIApp, origin_policy: OriginPolicy) -> None:
        super().__init__(app, origin_policy)
        # by the name of a stream: a session's, or an event's
        self._readers: Counter[str] = Counter()
        self._unread: dict[str, asyncio.Task[None]] = {}

    def _counts(self, scope: Scope) -> bool:
        """Rooms count their own screens, and their members load the models.

        A whole school may sit behind one address.
        """
        return not _CLASS.search(scope["path"])

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; while it reads a stream, the stream is read."""
        _check_names(scope)
        stream = _stream_of(scope)
        if stream is None:
            await self._app(scope, receive, send)
            return
        self._is_read(stream)
        self._readers[stream] += 1
        try:
            await self._app(scope, receive, send)
        except RuntimeError:  # a stream that Gradio does not know: it has said so, and broke off
            await send({"type": "http.response.body"})
        finally:
            self._readers[stream] -= 1
            self._readers += Counter()  # forgets what nobody reads
            if "/call/" in scope["path"]:
                forget_session(scope["app"], stream)

    async def _post(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        """Check what is sent and pass it on; what it starts has to be read.

        Raises:
            HTTPRefusal: it is too large, or not what the app takes.
        """
        path, stream, call = scope["path"], None, None
        body = await self._bodies.receive(receive, path)
        _check_names(scope)
        if scope["method"] == "POST":
            check_kind(headers)
        if call := _CALL.search(path):
            body = _checked(body, call[3], by_name=bool(call[2]))
        elif _EVENT.search(path):
            try:
                stream = _checked_event(body, scope["app"].get_blocks().fns)
            except HTTPRefusal as error:
                raise _readable_by_clients(error, path) from error
        elif _QUESTION.search(path):
            _check_question(body, scope["app"].get_blocks().blocks)
        elif body and not _OTHERS.search(path):
            _refuse_files(value_of(body)) if _TOOLS.search(path) else _object(body)
        again, answer = replay_body(body, receive), b""
        del body

        async def listen(message: Message) -> None:
            nonlocal answer
            answer += message.get("body", b"")
            await send(message)

        if call:
            await self._app(scope, again, listen)
            with suppress(ValueError, KeyError, TypeError):  # refused: it started nothing
                event = from_json(answer)["event_id"]
                self._expect(event, {**scope, "path": f"{call[1]}{call[3]}/{event}"})
        else:
            await self._app(scope, again, send)
            if stream is not None and "queue/join" in path:
                query = urlencode({"session_hash": stream}).encode()
                where = {"path": path.replace("join", "data"), "query_string": query}
                self._expect(stream, {**scope, **where})

    def _expect(self, stream: str, scope: Scope) -> None:
        """End what a stream tells of unless somebody reads it in time."""
        if not self._readers[stream]:
            self._is_read(stream)
            self._unread[stream] = asyncio.create_task(self._leave(stream, scope))

    def _is_read(self, stream: str) -> None:
        if waiting := self._unread.pop(stream, None):
            waiting.cancel()

    async def _leave(self, stream: str, scope: Scope) -> None:
        """Read a stream instead of a reader who never came, and leave."""
        await asyncio.sleep(UNREAD)
        del self._unread[stream]

        async def silent() -> Message:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

        async def nowhere(message: Message) -> None:
            pass

        get = {**scope, "method": "GET", "raw_path": scope["path"].encode()}
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._get(get, silent, nowhere)


def respond_invalid(request: Request, error: Exception) -> Response:
    """Respond to a request that Gradio's own types refuse, with one sentence.

    FastAPI would repeat the values that it refuses, each as a whole.
    """
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    key, got = first["loc"][-1], short_repr(first.get("input"))
    refusal = HTTPRefusal(422, f"{short_repr(key)} is wrong ({first['msg']:.100}), got {got}")
    return respond_refused(request, _readable_by_clients(refusal, request.url.path))


def _readable_by_clients(refusal: HTTPRefusal, path: str) -> HTTPRefusal:
    """Give a refusal of an event the form that Gradio's clients read: a list of checks."""
    if "queue/join" in path:
        check = {"__type__": "validate", "is_valid": False, "message": str(refusal)}
        refusal.detail = [check | {"parameter_name": "request"}]
    return refusal


class GuardedApp(App):  # type: ignore[misc]
    """Gradio's web app with the guard around it, outside all layers that Gradio adds.

    `launch` fills an app that it is given and serves it. An app that is only mounted in another one
    is not launched, and ZeroGPU does its part of the start-up in `launch`.
    """

    def __init__(self, origin_policy: OriginPolicy, **options: Any) -> None:
        self._origin_policy = origin_policy
        super().__init__(default_response_class=ORJSONResponse, **options)

    def build_middleware_stack(self) -> ASGIApp:
        """Return the layers around the endpoints, the guard first."""
        return RequestGuard(super().build_middleware_stack(), self._origin_policy)


@asynccontextmanager
async def limited_log(_: object) -> AsyncIterator[None]:
    """Limit the log once the web server, which has a log of its own, has started."""
    limit_log()
    yield


def _check_names(scope: Scope) -> None:
    """Refuse what is closed, names of sessions that are wrong, and pages that do not exist.

    Raises:
        HTTPRefusal: one of these.
    """
    if _CLOSED.search(scope["path"]):
        raise HTTPRefusal(403, "this server accepts no files")
    for match in _NAMED.finditer(scope["path"]):
        _check_name("session_hash", match[1] or match[2])
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    for name in query.get("session_hash", []):
        _check_name("session_hash", name)
    # Gradio's own, of apps with several: an internal error here
    if page := list(filter(None, query.get("page", []))):
        raise HTTPRefusal(
            404, f"this app has no page {short_repr(page[0])}; use tab=, such as tab=compare"
        )


def _check_name(key: str, name: object) -> None:
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise HTTPRefusal(
            422,
            f"{key} must be 1 to 64 letters, digits, hyphens and underscores, got "
            f"{short_repr(name)}",
        )


def _stream_of(scope: Scope) -> str | None:
    """Which stream a request reads, by its name; None if none."""
    match = _STREAM.search(scope["path"])
    if match is None:
        return None
    query = parse_qs(scope["query_string"].decode("latin-1"))
    return match[3] or query.get("session_hash", [""])[0]


def _object(body: bytes) -> dict[str, Any]:
    """The body of a request, if it is an object whose session has a name of the right form.

    Raises:
        HTTPRefusal: it is not, or it has a file in it.
    """
    payload = object_of(body)
    _refuse_files(payload)
    for key in ("session_hash", "event_id"):
        _check_name(key, payload.get(key))
    return payload


def _refuse_files(value: Any) -> None:
    """Refuse an object that Gradio would take for a file, wherever it is in a request.

    Gradio fetches the address that such an object names, of any size, before an event begins.

    Raises:
        HTTPRefusal: there is one.
    """
    rest: list[Any] = [[value]]
    while rest:
        each = rest.pop()
        if isinstance(each, dict) and {"path", "meta"} <= each.keys():
            raise HTTPRefusal(403, "this server accepts no files")
        parts = each.values() if isinstance(each, dict) else each
        rest.extend(part for part in parts if isinstance(part, dict | list))


def _values(payload: dict[str, Any], least: int, most: int, what: str) -> list[Any]:
    """The values that a request has; it is refused unless there are as many as it takes."""
    values = payload.get("data")
    if not isinstance(values, list) or not least <= len(values) <= most:
        got = f"{len(values)} of them" if isinstance(values, list) else short_repr(values)
        raise HTTPRefusal(422, f"data must be a list of {what}, got {got}")
    return values


def _check_question(body: bytes, blocks: Mapping[int, Any]) -> None:
    """Refuse what is no question of a page's script; `blocks` are the app's components.

    Raises:
        HTTPRefusal: it is none.
    """
    payload = _object(body)
    number: Any = payload.get("component_id")
    if not is_whole(number) or number not in blocks:
        raise HTTPRefusal(
            422, f"component_id must be the number of a component, got {short_repr(number)}"
        )
    name = payload.get("fn_name")
    function = getattr(blocks[number], name, None) if isinstance(name, str) else None
    if not getattr(function, "_is_server_fn", False):
        raise HTTPRefusal(404, f"component {number} has no function {short_repr(name)}")
    if payload.get("session_hash") is None or "data" not in payload:
        raise HTTPRefusal(422, "session_hash and data are missing; send both")


def _checked_event(body: bytes, events: Mapping[int, Any]) -> str | None:
    """The session of an event of the page, if it is one; `events` are the app's own.

    Raises:
        HTTPRefusal: it is none, or its values are more or fewer than the event takes.
    """
    payload = _object(body)
    number: Any = payload.get("fn_index")
    if not is_whole(number) or number not in events:
        raise HTTPRefusal(
            422,
            f"fn_index must be the number of an event, got {short_repr(number)}; programs "
            "use /call",
        )
    n = len(events[number].inputs)
    _values(payload, n, n, f"{n} values for event {number}")
    return payload.get("session_hash")


def _checked(body: bytes, name: str, *, by_name: bool) -> bytes:
    """The body of a call, if it is one.

    Raises:
        HTTPRefusal: it is not, or it is for no endpoint.
    """
    if name not in ENDPOINTS:
        raise HTTPRefusal(
            404, f"there is no endpoint {short_repr(name)}; choose one of {', '.join(ENDPOINTS)}"
        )
    known = [each.name for each in settings(Limits())]
    payload = _object(body)
    if by_name:
        sent = payload
        if unknown := [key for key in payload if key not in known]:
            raise HTTPRefusal(
                422, f"{name} has no setting {short_repr(unknown[0])}; it has {', '.join(known)}"
            )
    else:
        most = len(known)
        values = _values(payload, 0, most, f"at most {most} settings ({', '.join(known)})")
        sent = dict(zip(known, values, strict=False))
        payload["data"] = values + [None] * (len(known) - len(values))
    for key, value in sent.items():
        if isinstance(value, list | dict):
            raise HTTPRefusal(422, f"{key} must be a text or a number, got {short_repr(value)}")
    if "prompt" not in sent:
        raise HTTPRefusal(422, "the prompt is missing; send it with the call")
    return json.dumps(payload).encode()
