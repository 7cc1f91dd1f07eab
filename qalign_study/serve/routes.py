"""The addresses of OpenAI's API: models, chat completions, and traces beside them."""

import asyncio
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from qalign_core.chain.merging import end, gather, merge
from qalign_core.errors import (
    Busy,
    InvalidPrompt,
    InvalidSetting,
    ModelLoadError,
    NotEnoughMemory,
    QAlignError,
)
from qalign_core.record.trace import TraceHeader
from qalign_core.run import Limits
from qalign_core.validation import from_json
from qalign_study.export.player import page
from qalign_study.serve.answer import Choice, Draw
from qalign_study.serve.guard import Guard, bearer_token
from qalign_study.serve.origins import OriginPolicy
from qalign_study.serve.refusal import HTTPRefusal, respond_refused
from qalign_study.serve.request_schema import ChatRequest, find_model, methods, parse_request

MOST_TRACES = 256
MOST_BYTES = 64 * 2**20
"""Traces that are kept to be opened, and characters of all of them."""
EVERY = ("GET", "POST", "PUT", "PATCH", "DELETE")
QUIET = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
log = logging.getLogger("qalign.serve")
T = TypeVar("T")


@dataclass
class ChatAPI:
    """The chat completions endpoint.

    Attributes:
        lms: names of the language models.
        draw: draws a run.
        defaults: settings of a run for what a request leaves out.
        limits: caps of the server.
        key: what every request but a trace's must bear; "" for none.

    Raises:
        InvalidSetting: no client can send the key.
    """

    lms: tuple[str, ...]
    draw: Draw
    defaults: Mapping[str, Any]
    limits: Limits
    key: str = ""
    _traces: dict[str, str] = field(default_factory=dict)
    _open: int = 0
    _since: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        if not re.fullmatch("[!-~]*", self.key):
            raise InvalidSetting(
                "the API key contains a space, a line break or a character outside ASCII, which "
                "clients cannot send; set another in QALIGN_API_KEY"
            )

    def routes(self) -> list[Route]:
        """The addresses, each of them below /v1."""
        return [
            Route("/v1/models", self._require_key(self._list)),
            Route("/v1/models/{name:path}", self._require_key(self._show)),
            Route("/v1/chat/completions", self._require_key(self._complete), methods=["POST"]),
            Route("/v1/traces/{name}", self._trace),
            Route("/v1/{path:path}", self._require_key(_unknown), methods=EVERY),
        ]

    def app(self, origins: OriginPolicy) -> Starlette:
        """A server of these addresses alone, guarded."""
        guard = Middleware(Guard, origins=origins)
        handlers = {HTTPRefusal: respond_refused}
        routes = [*self.routes(), Route("/{path:path}", _unknown, methods=EVERY)]
        return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)

    def _require_key(
        self, endpoint: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that needs the key, if there is one, and whose defects have a sentence."""

        async def checked_endpoint(request: Request) -> Response:
            token = bearer_token(request.headers)
            if not hmac.compare_digest(token.encode(), self.key.encode()) and self.key:
                raise HTTPRefusal(
                    401, "the key is missing or wrong; send it as Authorization: Bearer KEY",
                    code="invalid_api_key",
                )  # fmt: skip
            try:
                return await endpoint(request)
            except (HTTPRefusal, *_KEPT):
                raise
            except BaseException as error:
                raise _to_refusal(error) from error

        return checked_endpoint

    @property
    def names(self) -> list[str]:
        """The models: each language model by each method."""
        return [f"{lm}/{method}" for lm in self.lms for method in methods()]

    async def _list(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [*map(self._model, self.names)]})

    async def _show(self, request: Request) -> Response:
        return JSONResponse(self._model(find_model(request.path_params["name"], self.lms)[0]))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._since, "owned_by": "qalign"}

    async def _trace(self, request: Request) -> Response:
        """The page that plays a trace, or with `.jsonl` the trace; its name is the key to it."""
        name = request.path_params["name"]
        text = self._traces.get(name.removesuffix(".jsonl"))
        if text is None:
            raise HTTPRefusal(404, "there is no such trace, or it is no longer kept; ask again")
        if name.endswith(".jsonl"):
            return Response(text, media_type="application/x-ndjson")
        return HTMLResponse(await asyncio.to_thread(page, text), headers=QUIET)

    def _keep(self, choices: list[Choice]) -> None:
        self._traces |= {choice.name: text for choice in choices if (text := choice.text)}
        while len(self._traces) > MOST_TRACES or sum(map(len, self._traces.values())) > MOST_BYTES:
            del self._traces[next(iter(self._traces))]

    async def _complete(self, request: Request) -> Response:
        try:
            body = from_json(await request.body())
        except ValueError as error:
            raise HTTPRefusal(400, f"the request is not JSON ({error}); send an object") from error
        answer = _Answer(parse_request(body, self.lms, self.defaults, self.limits))
        answers = self._draw_choices(answer)
        if answer.chat.stream:
            await _stop_if_left(request, anext(answers))  # what cannot be drawn is refused here
            events = _stream_answer(answer, answers)
            return StreamingResponse(events, media_type="text/event-stream", headers=QUIET)
        return JSONResponse(await _stop_if_left(request, _collect_answer(answer, answers)))

    async def _draw_choices(self, answer: "_Answer") -> AsyncIterator[tuple[Choice, str]]:
        """Draw all choices side by side; what was drawn is kept, however it ends."""
        if self._open + answer.chat.n > self.limits.runs:  # counted at once: nothing runs between
            raise Busy(f"{self._open} answers are being drawn; please try again in a minute")
        self._open += answer.chat.n
        streams = merge(*(choice.follow(self.draw) for choice in answer.choices))
        try:
            async with aclosing(streams) as updates:  # type: ignore[type-var]
                async for item in updates:
                    yield item
        finally:
            self._open -= answer.chat.n
            self._keep(answer.choices)


@dataclass
class _Answer:
    """The fields that all parts of an answer share."""

    chat: ChatRequest
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.choices = [Choice(self.chat, k, self.id) for k in range(self.chat.n)]

    @property
    def header(self) -> TraceHeader:
        """The header that all choices share: that of the first that has begun."""
        return next(choice.header for choice in self.choices if choice.header is not None)

    def part(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": f"chat.completion{kind}",
            "created": self.created,
            "model": self.chat.model,
            "system_fingerprint": self.header.lm_revision,
            "choices": choices,
            **more,
        }

    def usage(self, n_visible: int) -> dict[str, Any]:
        """Count all tokens drawn; all but the `n_visible` in the choices' texts are reasoning."""
        n_prompt = self.header.prompt_tokens
        n = sum(choice.cost.generated for choice in self.choices)
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": n,
            "total_tokens": n_prompt + n,
            "completion_tokens_details": {"reasoning_tokens": max(0, n - n_visible)},
        }


async def _collect_answer(
    answer: _Answer, drawing: AsyncIterator[tuple[Choice, str]]
) -> dict[str, Any]:
    """The answer at once."""
    async with aclosing(drawing) as updates:  # type: ignore[type-var]
        async for _ in updates:
            pass
    messages = await gather(*(choice.decide() for choice in answer.choices))
    choices = [
        {
            "index": k,
            "message": {"role": "assistant", "content": each["content"], "refusal": None},
            "logprobs": None,
            "finish_reason": each["finish_reason"],
            "qalign": each["qalign"],
        }
        for k, each in enumerate(messages)
    ]
    return answer.part("", choices, usage=answer.usage(sum(each["length"] for each in messages)))


async def _stream_answer(
    answer: _Answer, drawing: AsyncIterator[tuple[Choice, str]]
) -> AsyncIterator[str]:
    """The answer in events: progress as reasoning, then each choice's text, then how it ended."""

    def event(number: int, delta: dict[str, str], ended: str | None = None, **more: Any) -> str:
        choice = {"index": number, "delta": delta, "logprobs": None, "finish_reason": ended}
        return _event(answer.part(".chunk", [{**choice, **more}]))

    try:
        async with aclosing(drawing) as updates:  # type: ignore[type-var]
            for choice in answer.choices:
                yield event(choice.number, {"role": "assistant", "content": ""})
            async for choice, progress in updates:
                if progress:
                    yield event(choice.number, {"reasoning_content": f"{progress}\n"})
        n_visible = 0
        for choice in answer.choices:
            message = await choice.decide()
            n_visible += message["length"]
            yield event(choice.number, {"content": message["content"]})
            yield event(choice.number, {}, message["finish_reason"], qalign=message["qalign"])
        if answer.chat.usage:
            yield _event(answer.part(".chunk", [], usage=answer.usage(n_visible)))
        yield "data: [DONE]\n\n"
    except (GeneratorExit, *_KEPT):
        raise
    except BaseException as error:
        yield _event(_to_refusal(error).error)


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


_KEPT = (asyncio.CancelledError, KeyboardInterrupt)
"""Exceptions that pass unchanged; the client is told of any other that ends an answer."""


def _to_refusal(error: BaseException) -> HTTPRefusal:
    """An error as the API has it; a defect is logged, and its sentence says no more."""
    if not isinstance(error, QAlignError):
        log.exception("an answer failed", exc_info=error)
        return HTTPRefusal(500, "the server had an internal error; try again")
    status = next((n for kind, n in _STATUS.items() if isinstance(error, kind)), 500)
    param = "messages" if type(error) is InvalidPrompt else None
    sentence = str(error).replace("max_new_tokens", "max_tokens")  # the field of the API
    return HTTPRefusal(status, sentence, param=param)


_STATUS: dict[type[QAlignError], int] = {
    Busy: 429,
    NotEnoughMemory: 503,
    InvalidSetting: 400,
    InvalidPrompt: 400,
    ModelLoadError: 400,
}
"""The status of an error of a run; the first kind that fits. All others are the server's."""


async def _stop_if_left(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`, which is canceled if the client leaves first.

    Raises:
        HTTPRefusal: the client has left.
    """

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(left())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise HTTPRefusal(499, "the client has left")
        return tasks[0].result()  # type: ignore[return-value]
    finally:
        await end(tasks)


async def _unknown(request: Request) -> Response:
    refusal = HTTPRefusal(
        404,
        f"there is no {request.method} {request.url.path}; there are GET /v1/models, "
        "POST /v1/chat/completions and GET /v1/traces/ID",
        code="unknown_url",
    )
    return JSONResponse(refusal.error, refusal.status)
