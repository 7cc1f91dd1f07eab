"""The addresses of rooms: the page, and its scripts' requests, which are JSON both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from inspect import isawaitable
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from components.common.rpc import object_of
from components.room.page import POLICY, page
from components.room.service import RoomService
from qalign_core.validation import is_text, short_repr
from qalign_study.serve.guard import bearer_token
from qalign_study.serve.refusal import HTTPRefusal
from qalign_study.sets.problem_sets import Problem

MAX_LINK = 200
"""The most characters of a link that is drawn as a QR code."""
QUIET = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
SAFE = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer"}  # fmt: skip


def room_routes(
    service: RoomService,
    lessons: Sequence[Mapping[str, Any]],
    own: Sequence[Problem] = (),
    *,
    hidden: bool = False,
) -> list[Route]:
    """Return the routes of rooms, which come before Gradio's.

    Args:
        service: the rooms.
        lessons: the entries of the list: name, title, summary, minutes, stops.
        own: the operator's problems, which a class may take.
        hidden: whether a proxy hides the addresses of callers.
    """

    async def show(request: Request) -> Response:
        content = page(service.rooms.caps, lessons, service.describe_models(), own)
        return HTMLResponse(content, headers=SAFE)

    async def open_room(request: Request) -> Response:
        address = request.client.host if request.client and not hidden else ""
        return JSONResponse(await service.open(object_of(await request.body()), address))

    def answer_json(act: Callable[..., Any]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            payload = object_of(await request.body())
            reply = act(payload.get("code"), _token(request), payload)
            return JSONResponse(await reply if isawaitable(reply) else reply)

        return answer

    async def follow(request: Request) -> Response:
        query = request.query_params
        draws, waits = (query.get(name) == "1" for name in ("draws", "waits"))
        events = service.follow(query.get("code"), _token(request), draws=draws, waits=waits)
        return StreamingResponse(events, media_type="text/event-stream", headers=QUIET)

    def check(_: object, __: str, request: dict[str, Any]) -> Awaitable[dict[str, Any]]:
        return service.check_prompt(request)

    def join(code: object, token: str, _: object) -> dict[str, Any]:
        return service.join(code, token)

    async def qr(code: object, token: str, request: dict[str, Any]) -> dict[str, Any]:
        service.require_instructor(code, token)
        return {"rows": await asyncio.to_thread(qr_rows, request.get("link"))}

    actions = {"check": check, "join": join, "qr": qr, "predict": service.predict,
               "name": service.set_name, "states": service.record_states,
               "score": service.score_text, "lead": service.lead}  # fmt: skip
    handlers = {"open": open_room, **{name: answer_json(act) for name, act in actions.items()}}
    return [
        Route("/room", show),
        Route("/room/follow", follow),
        *(Route(f"/room/{name}", each, methods=["POST"]) for name, each in handlers.items()),
    ]


def qr_rows(link: object) -> list[str]:
    """Return the squares of the QR code of a link: each row is a string of 0 and 1.

    Raises:
        HTTPRefusal: it is not a short link.
    """
    if not is_text(link) or not str(link).startswith("http") or len(str(link)) > MAX_LINK:
        raise HTTPRefusal(422, f"a link has at most {MAX_LINK} characters, got {short_repr(link)}")
    return _draw_qr(str(link))


@lru_cache(maxsize=64)
def _draw_qr(link: str) -> list[str]:
    import segno  # The first room needs it, the start does not.

    return ["".join(map(str, row)) for row in segno.make_qr(link, error="m").matrix]


def _token(request: Request) -> str:
    """Return the token of the member who sends a request."""
    return bearer_token(request.headers)[:64]
