"""Refuses requests before they are read: foreign hosts and pages, too many or too large ones."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qalign_core.validation import short_repr
from qalign_study.serve.origins import OriginPolicy
from qalign_study.serve.refusal import HTTPRefusal, respond_refused

OPEN = 1000
"""Requests of one address that are open at once; a class of 100 behind one address has 600."""
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'none'"
)
"""The policy of pages without their own: Gradio runs the page's handlers by `eval`."""
MAX_PATH = 255
"""Bytes of an address's path: no file has a longer name, and no file system takes one."""
MOST = (
    (re.compile(r"/room/(open|moved)$"), 128 * 2**10),
    (re.compile(r"/room/[^/]*$"), 8 * 2**10),
    (re.compile(r"/(api|call|mcp|queue|run|v1)(/|$)"), 2**20),
    (re.compile(""), 4 * 2**20),
)
"""Bytes of one body by its path: a class or chain; a problem; texts of a run; rewards of chains."""
_OWN = re.compile(r"/(room(/|$)|v1/.)")
"""Addresses of this project; the app's others belong to Gradio, which needs some final slashes."""
RECEIVE = 30.0
"""Seconds in which a body must have arrived."""
TOGETHER = 64 * 2**20
"""Bytes of all bodies that have not arrived as a whole."""
log = logging.getLogger("qalign.door")


class Bodies:
    """Receives bodies. Where they become too many, the one that has taken longest gives way.

    The body of a well-behaved client arrives within milliseconds, so it is never that one.
    """

    def __init__(self) -> None:
        self._arriving: dict[asyncio.Timeout, int] = {}  # bytes of each, the oldest first

    async def receive(self, receive: Receive, path: str) -> bytes:
        """A whole body; of too much nothing is kept, but it is taken, so that it can be answered.

        Raises:
            HTTPRefusal: it is too large or too slow.
        """
        most = next(most for pattern, most in MOST if pattern.search(path))
        parts, size, more = list[bytes](), 0, True
        try:
            async with asyncio.timeout(RECEIVE) as limit:
                self._arriving[limit] = 0
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise HTTPRefusal(400, "the request broke off; send it again")
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    parts.append(part)
                    if size > most:
                        parts.clear()
                    self._arriving[limit] = size if parts else 0
                    self._make_room()
        except TimeoutError as error:
            raise HTTPRefusal(
                408, f"the request took too long: {RECEIVE:g} s at most; send it faster"
            ) from error
        finally:
            del self._arriving[limit]
        if size > most:
            raise HTTPRefusal(413, f"the request has {size:,} bytes; at most {most:,} are allowed")
        return b"".join(parts)

    def _make_room(self) -> None:
        over, now = sum(self._arriving.values()) - TOGETHER, asyncio.get_running_loop().time()
        for limit, held in self._arriving.items():
            if over <= 0:
                return
            over -= held
            if not limit.expired():
                limit.reschedule(now)


class Guard:
    """A wrapper around an app of any kind that admits only allowed requests.

    Args:
        app: what is behind it.
        origins: hosts and origins.
    """

    def __init__(self, app: ASGIApp, origins: OriginPolicy) -> None:
        self._app, self._origins = app, origins
        self._bodies = Bodies()
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is refused, pass on all else."""
        if scope["type"] == "websocket":  # no page has one, and browsers let any page open them
            await send({"type": "websocket.close"})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # clients join an address from two parts, each with a slash, or end it with one
        path = re.sub("/{2,}", "/", scope["path"])
        scope = {**scope, "path": path.rstrip("/") if _OWN.search(path) else path}
        headers, origin = Headers(scope=scope), ""
        try:
            origin = self._origins.check(scope, headers)
            signed = self._signed(send, origin)
            if scope["method"] == "OPTIONS":
                await _preflight(headers)(scope, receive, signed)
                return
            scope["headers"] = self._origins.headers_for_app(scope)
            if (size := len(scope["path"].encode())) > MAX_PATH:
                raise HTTPRefusal(
                    414, f"the address has {size:,} bytes; at most {MAX_PATH} are allowed"
                )
            with self._place(scope):
                if scope["method"] in ("GET", "HEAD"):
                    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
                        raise HTTPRefusal(400, f"{scope['method']} takes no body; use POST")
                    await self._get(scope, receive, signed)
                else:
                    await self._post(scope, receive, signed, headers)
        except HTTPRefusal as error:
            answer, signed = respond_refused(Request(scope), error), self._signed(send, origin)
            await answer(scope, receive, signed)
        except Exception:  # a defect: it has been answered so
            log.exception("a request failed")

    def _signed(self, send: Send, origin: str) -> Send:
        """Add to every answer who may read it, and to every page what it may do and be part of."""

        async def sign(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                if origin.lower() in self._origins.origins:
                    headers["Access-Control-Allow-Origin"] = origin
                    headers.add_vary_header("Origin")
                if headers.get("content-type", "").startswith("text/html"):
                    policy = headers.get("content-security-policy", POLICY)
                    frames = f"frame-ancestors {self._origins.frames}"
                    headers["Content-Security-Policy"] = f"{policy}; {frames}"
            await send(message)

        return sign

    @contextmanager
    def _place(self, scope: Scope) -> Iterator[None]:
        """A place among the open requests of an address.

        An address of this machine is a proxy's, or the owner's; a Space's is its proxy's.

        Raises:
            HTTPRefusal: it has too many.
        """
        address = (scope.get("client") or [""])[0]
        if self._origins.is_space or is_local(address) or not self._counts(scope):
            yield
            return
        if self._open[address] >= OPEN:
            raise HTTPRefusal(429, f"your address has {OPEN:,} requests open; wait until some end")
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # forgets who has left

    def _counts(self, scope: Scope) -> bool:
        """True if a request counts toward the limit of its address."""
        return True

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that has no body."""
        await self._app(scope, receive, send)

    async def _post(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        """Pass on a request whose body is small enough, and JSON.

        Raises:
            HTTPRefusal: it is not.
        """
        body = await self._bodies.receive(receive, scope["path"])
        if scope["method"] == "POST":
            check_kind(headers)
        await self._app(scope, replay_body(body, receive), send)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that has arrived, and then the messages after it."""
    sent: list[bytes] = [body]

    async def again() -> Message:
        # an answer may be a stream, and what was sent is not kept for it
        if not sent:
            return await receive()
        return {"type": "http.request", "body": sent.pop(), "more_body": False}

    return again


def _preflight(headers: Headers) -> Response:
    """Answer a browser's preflight request; `Guard` decides whether the page may read the reply."""
    requested = headers.get("access-control-request-headers", "")
    allowed = {"Methods": "GET, POST, DELETE", "Headers": requested}
    return Response(
        status_code=204,
        headers={f"Access-Control-Allow-{key}": value for key, value in allowed.items()},
    )


def is_local(address: str) -> bool:
    """True if an address is this machine's own."""
    try:
        return ip_address(address).is_loopback
    except ValueError:  # no address: a socket of this machine
        return True


def bearer_token(headers: Headers) -> str:
    """Return the token of `Authorization: Bearer TOKEN`, "" without one; schemes have no case."""
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def check_kind(headers: Headers) -> None:
    """Refuse what a page may send to any server without asking, in older browsers unsigned.

    Raises:
        HTTPRefusal: the request is not declared as JSON.
    """
    kind = headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise HTTPRefusal(415, f"Content-Type must be application/json, got {short_repr(kind)}")
