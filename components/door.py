"""What is refused before Gradio reads it: files, endless bodies, calls that name no settings."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.endpoints import ENDPOINTS, settings
from qalign_core.reading import from_json, shown
from qalign_core.run import Limits

MAX_BODY = 4 * 2**20
"""Bytes of what one request sends: far more than the page's largest, rewards of long chains."""
_CALL = re.compile(r"/call/(v2/)?([^/]*)/?$")


class Refused(Exception):
    """What is answered in place of the app: a status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Door:
    """Stands before the app; what goes in has a size, and a call has the settings it needs.

    Gradio answers a wrong number of settings, an unknown name and an unknown endpoint with "null"
    or an internal error; here each gets a sentence. A list of settings that is short is filled up
    with their defaults.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is refused, pass on all else."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            if "/upload" in scope["path"]:
                raise Refused(403, "this server takes no files")
            body = await _body(receive)
            if call := _CALL.search(scope["path"]):
                body = _checked(body, call[2], by_name=bool(call[1]))
        except Refused as error:
            await JSONResponse({"detail": str(error)}, error.status)(scope, receive, send)
            return
        first = True

        async def again() -> Message:
            nonlocal first
            if not first:
                return await receive()
            first = False
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, again, send)


async def _body(receive: Receive) -> bytes:
    """All that is sent; of too much nothing is kept, but it is taken, so that it can be answered.

    Raises:
        Refused: it is too large.
    """
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size <= MAX_BODY:
            parts.append(part)
    if size > MAX_BODY:
        raise Refused(413, f"the request has {size:,} bytes; {MAX_BODY:,} at most, please")
    return b"".join(parts)


def _checked(body: bytes, name: str, *, by_name: bool) -> bytes:
    """The body of a call, if it is one.

    Raises:
        Refused: it is not, or it is for no endpoint.
    """
    if name not in ENDPOINTS:
        raise Refused(404, f"there is no endpoint {shown(name)}; there are {', '.join(ENDPOINTS)}")
    known = [each.name for each in settings(Limits())]
    try:
        said: Any = from_json(body)
    except ValueError as error:
        raise Refused(422, f"the request is no JSON ({error}); send an object") from error
    if not isinstance(said, dict):
        raise Refused(422, f"the request must be an object of settings, got {shown(said)}")
    if by_name:
        given = said
        if unknown := [key for key in said if key not in known]:
            raise Refused(
                422, f"{name} has no setting {shown(unknown[0])}; it has {', '.join(known)}"
            )
    else:
        values = said.get("data")
        if not isinstance(values, list) or len(values) > len(known):
            got = f"{len(values)} of them" if isinstance(values, list) else shown(values)
            raise Refused(
                422,
                f"data must be a list of at most {len(known)} settings ({', '.join(known)}), "
                f"got {got}",
            )
        given = dict(zip(known, values, strict=False))
        said["data"] = values + [None] * (len(known) - len(values))
    for key, value in given.items():
        if isinstance(value, list | dict):  # Gradio would take some of them for files
            raise Refused(422, f"{key} must be a text or a number, got {shown(value)}")
    if "prompt" not in given:
        raise Refused(422, "the prompt is missing; send it with the call")
    return json.dumps(said).encode()
