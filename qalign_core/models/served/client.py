"""Requests to a model server, and checks of its model and tokenizer.

Requests at once are bounded, retries repeat the request, waiting ends.

A retry sends the same body, seed included, so that what comes back is the draw that was asked for:
a new draw after a time-out would favor short responses. A request that keeps failing is given up
after `patience` seconds, for all requests of the server at once, so that a run ends with its draws.
"""

import asyncio
import itertools
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx

from qalign_core.errors import EngineError, InvalidSetting, ModelLoadError, QAlignError
from qalign_core.models.chat import Text
from qalign_core.models.loading import load_text
from qalign_core.validation import first_line, is_text, is_whole

T = TypeVar("T")
_Lines = asyncio.LifoQueue[httpx.AsyncClient | None]

KEYS = {"lm": "QALIGN_LM_KEY", "rm": "QALIGN_RM_KEY"}
"""Where the keys of servers come from; they are never an argument, so no history has them."""

MOST = 2**20
"""Bytes of an answer that does not grow with what is asked: names of models, an error."""

KEEP_ALIVE = 3.0
"""Seconds that an idle connection is kept: less than the 5 s after which vLLM closes it."""

_LONGEST_PAUSE = 10.0


class TransientError(Exception):
    """A failure that may pass; the same request is sent again.

    Attributes:
        busy: the server is there, and asks to be left alone for a while.
        wait: seconds that it asks for; 0 if it does not say.
    """

    def __init__(self, sentence: str, *, busy: bool = False, wait: float = 0.0) -> None:
        super().__init__(sentence)
        self.busy, self.wait = busy, wait


@contextmanager
def expect(part: str) -> Iterator[None]:
    """Raise `TransientError` if the answer that is read here lacks a part, or has it otherwise."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise TransientError(f"an answer without {part}") from error


_trusted = cache(httpx.create_ssl_context)  # it takes 20 ms, and every server can share it


class Server:
    """One address and how it is talked to; usable from any number of event loops.

    Args:
        address: "http://host:port", with or without "/v1".
        kind: "lm" or "rm"; says which environment variable holds the key, if there is one.
        rows: requests that run at once.
        timeout: seconds that one request may take as a whole, however slowly its answer comes.
        patience: seconds of failing, without an answer, after which a request is given up.
        pause: seconds before the first retry; doubles with every one, to 10 s.

    Raises:
        ModelLoadError: the address is not one, or holds a key.
        InvalidSetting: the key cannot be sent, or a number is not above 0.
    """

    def __init__(
        self, address: str, *, kind: str, rows: int, timeout: float, patience: float, pause: float
    ) -> None:
        self.address = _check_address(address)
        self._variable = KEYS[kind]
        self._key = os.environ.get(self._variable, "").strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise InvalidSetting(
                f"{self._variable} contains characters that a key cannot have; set it again"
            )
        if rows < 1 or min(timeout, patience, pause) <= 0:
            raise InvalidSetting(
                f"rows, timeout, patience and pause of {self.address} must be above 0, "
                f"got {rows}, {timeout:g}, {patience:g} and {pause:g}"
            )
        self.rows, self._patience, self._pause = rows, patience, pause
        self._timeout = timeout
        self._options: dict[str, Any] = {
            "base_url": self.address,
            # nothing packed: it could become any size
            "headers": {"Accept-Encoding": "identity"}
            | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            "timeout": httpx.Timeout(None, connect=10.0),
            "limits": httpx.Limits(max_connections=1, keepalive_expiry=KEEP_ALIVE),
            "verify": _trusted(),
        }
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lines] = WeakKeyDictionary()
        self._failing_since = math.inf

    def ask(self, path: str, body: Any, read: Callable[[Any], T]) -> T:
        """One request while the model is being loaded: nothing is tried again.

        Raises:
            ModelLoadError: no answer, or not one that `read` can use.
        """

        async def once() -> Any:
            async with httpx.AsyncClient(**self._options) as client:
                return await self._answer(client, path, body, MOST)

        try:
            with ThreadPoolExecutor(1) as thread:  # here an event loop may run already
                return read(thread.submit(asyncio.run, once()).result())
        except (httpx.TransportError, TimeoutError) as error:
            raise ModelLoadError(
                f"no server answers at {self.address} ({_cause(error)}); start one with "
                "'vllm serve' or 'llama-server', or check the address"
            ) from error
        except TransientError as error:
            raise ModelLoadError(
                f"{self.address} cannot be used ({error}); look at the server's log"
            ) from error
        except QAlignError as error:
            raise ModelLoadError(str(error)) from error

    async def post(self, path: str, body: Any, read: Callable[[Any], T], *, most: int = MOST) -> T:
        """Send a request until it is answered, and return what `read` makes of the answer.

        Args:
            path: such as "/v1/completions".
            body: sent as JSON, the same each time.
            read: may raise `TransientError` to have the request sent again.
            most: bytes of the answer, as they follow from what is asked.

        Raises:
            EngineError: refused, longer than `most`, or failing for as long as `patience` allows.
            QAlignError: what `read` raises.
        """
        lines = self._lines()
        client = await lines.get() or httpx.AsyncClient(**self._options)
        since = math.inf
        try:
            for attempt in itertools.count():
                try:
                    result = read(await self._answer(client, path, body, most))
                except (httpx.TransportError, TimeoutError, TransientError) as error:
                    now = time.monotonic()
                    failure = error if isinstance(error, TransientError) else TransientError("")
                    # one request may fail while others pass; a busy server is silent to all
                    since = math.inf if failure.busy else min(since, now)
                    self._failing_since = min(self._failing_since, now)
                    if now - min(since, self._failing_since) >= self._patience:
                        raise EngineError(
                            f"{self.address} has not answered for {self._patience:g} s "
                            f"({_cause(error)}); what was sampled is kept, start the server and "
                            "run again"
                        ) from error
                    wait = min(self._pause * 2 ** min(attempt, 10), _LONGEST_PAUSE)
                    await asyncio.sleep(max(wait, min(failure.wait, self._patience)))
                else:
                    self._failing_since = math.inf
                    return result
        finally:
            lines.put_nowait(client)
        raise AssertionError

    def _lines(self) -> _Lines:
        """What may be sent at once in the event loop that runs: a client each, made when needed.

        The client that was used last comes first, since its connection is the likeliest to stand.
        The pool of one client for all looks through every connection for every request, and through
        all again for each: with 256 at once that took 23 ms of processor time a step.
        """
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = asyncio.LifoQueue()
            for _ in range(self.rows):
                self._loops[loop].put_nowait(None)
        return self._loops[loop]

    async def _answer(self, client: httpx.AsyncClient, path: str, body: Any, most: int) -> Any:
        """What a server answers to one request; GET for no body.

        Raises:
            TimeoutError: the answer has not come as a whole in time.
            EngineError: it is longer than `most` bytes.
            TransientError, EngineError: as `_content`.
        """
        content = bytearray()
        method, sent = ("GET", {}) if body is None else ("POST", {"json": body})
        async with asyncio.timeout(self._timeout), client.stream(method, path, **sent) as answer:
            async for part in answer.aiter_raw():
                content += part
                if len(content) > most:
                    raise EngineError(
                        f"{self.address} answers with more than the {most:,} bytes that were asked "
                        "for; check that the address is right"
                    )
        return self._content(answer, bytes(content))

    def _content(self, answer: httpx.Response, content: bytes) -> Any:
        """The JSON of a good answer.

        Raises:
            TransientError: the server failed, or the answer is not JSON.
            EngineError: the server refused the request; the sentence says why.
        """
        status = answer.status_code
        if status in (401, 403):
            raise EngineError(
                f"{self.address} refused the key (status {status}); "
                f"set {self._variable} to the server's key"
            )
        if status == 404:
            raise EngineError(
                f"there is no {answer.request.url}; an LM is served by 'vllm serve MODEL', an RM "
                "by 'vllm serve MODEL --runner pooling'"
            )
        if status >= 500 or status in (408, 429):
            raise TransientError(
                f"status {status}: {self._error_text(content)}",
                busy=status in (429, 503),
                wait=_seconds(answer),
            )
        if status != 200:
            raise EngineError(
                f"{self.address} refused a request (status {status}: {self._error_text(content)}); "
                "check that it serves the right model"
            )
        try:
            # a NaN is not refused here: whoever reads the number can name the model that gave it
            return json.loads(content)  # noqa: TID251
        except (ValueError, RecursionError) as error:
            raise TransientError("an answer that is not JSON, or is nested too deeply") from error

    def _error_text(self, content: bytes) -> str:
        """Return the server's error message: one line, without the key."""
        try:
            payload = json.loads(content)  # noqa: TID251
            error = payload.get("error", payload)
            text = str(error.get("message", error) if isinstance(error, dict) else error)
        except (ValueError, AttributeError, RecursionError):
            text = content[:10_000].decode(errors="replace")
        text = (text.strip().splitlines() or ["no reason given"])[0]
        return (text.replace(self._key, "***") if self._key else text)[:200]


def _check_address(address: str) -> str:
    """The address without "/v1"; no part of it can be a secret."""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ModelLoadError(f"{address!r:.80} is not an address; http://HOST:PORT was expected")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ModelLoadError(
            f"the address of {parts.hostname} holds more than host, port and path; put a key into "
            f"{' or '.join(KEYS.values())}, where no trace shows it"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def _cause(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return "no answer in time"
    return first_line(error)


def _seconds(answer: httpx.Response) -> float:
    """What the server asks to wait (Retry-After in seconds); 0 if it does not say."""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdecimal() and len(text) < 10 else 0.0


PROBE = "Say one word, and 12 + 5 = 17: Zoë."


@dataclass(frozen=True, slots=True)
class Card:
    """What `/v1/models` says of a model.

    Attributes:
        name: what the server calls it.
        root: where the server says that it loaded it from.
        context: prompt and response together (tokens).
        owner: the kind of server.
        n_parameters: 0 if it does not say.
    """

    name: str
    root: str
    context: int
    owner: object = None
    n_parameters: int = 0


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """A model on a server, its tokenizer and every id that ends a response."""

    server: Server
    card: Card
    text: Text
    eos: tuple[int, ...]


class Served(ABC):
    """A model on a server; `kind` is "lm" or "rm".

    Attributes:
        revision: "thinking" or "", since a server does not report one.
    """

    kind: ClassVar[str]
    revision = ""
    _at: ModelEndpoint

    @property
    def root(self) -> str:
        """Where the server says that it loaded the model from: a folder or a hub id."""
        return self._at.card.root

    @abstractmethod
    def __init__(self, endpoint: ModelEndpoint, *, id: str, **options: Any) -> None:
        """Use an endpoint under the name `id`."""

    @classmethod
    def of(cls, owner: object) -> type[Self]:
        """The class for that kind of server."""
        return cls

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        id: str | None = None,
        tokenizer: str | None = None,
        revision: str | None = None,
        chat_template: str | None = None,
        thinking: bool = False,
        rows: int = 64,
        timeout: float = 300.0,
        patience: float = 120.0,
        pause: float = 0.5,
        **options: Any,
    ) -> Self:
        """Connect to a server, and check that it does what is needed.

        Args:
            address: "http://host:port"; the key, if it wants one, is in `QALIGN_LM_KEY` or
                `QALIGN_RM_KEY`.
            id: name for traces; by default the model's on the server.
            tokenizer: folder or hub id of the tokenizer; by default where the server says that it
                loaded the model from.
            revision: of the tokenizer.
            chat_template: used if the tokenizer has none.
            thinking: turn `enable_thinking` on in the chat template, which is off otherwise.
            rows, timeout, patience, pause: as in `Server`.
            options: of the class.

        Raises:
            ModelLoadError: one sentence that says what is wrong with the server.
        """
        server = Server(
            address, kind=cls.kind, rows=rows, timeout=timeout, patience=patience, pause=pause
        )
        card = server.ask("/v1/models", None, read_card)
        where = tokenizer or card.root
        try:
            text, eos = load_text(
                where, revision=revision, chat_template=chat_template, thinking=thinking
            )
        except ModelLoadError as error:
            raise ModelLoadError(
                f"the tokenizer of {server.address}: {error} (set it with --lm-tokenizer or "
                "--rm-tokenizer)"
            ) from error
        name = card.name.rstrip("/")
        is_path = name[:1] in "/." or name.endswith(".gguf")  # a trace shows none
        title = name.replace("\\", "/").rsplit("/", 1)[-1] if is_path else name
        model = cls.of(card.owner)(
            ModelEndpoint(server, card, text, eos), id=id or title, **options
        )
        model.probe()
        if thinking:
            model.revision = "thinking"
        return model

    def probe(self) -> None:
        """Refuse a server that does not answer as it must; here, one with another tokenizer.

        Raises:
            ModelLoadError: one sentence that says what is wrong with it.
        """
        server, ids = self._at.server, list(self._at.text.tokenize(PROBE))
        of_vllm = {"model": self._at.card.name, "prompt": PROBE, "add_special_tokens": False}
        body = {**of_vllm, "content": PROBE, "add_special": False}  # the words of llama.cpp
        answer = server.ask("/tokenize", body, lambda answer: answer)
        if not isinstance(answer, dict) or answer.get("tokens") != ids:
            raise ModelLoadError(
                f"{server.address} and the tokenizer here give different tokens; give the "
                "served model's tokenizer (--lm-tokenizer or --rm-tokenizer)"
            )

    def close(self) -> None:  # noqa: B027
        """Forget the server; it goes on for others."""


def read_card(answer: Any) -> Card:
    """The first model of `/v1/models`.

    Raises:
        ModelLoadError: the answer has none.
    """
    try:
        card = answer["data"][0]
        name, root = card["id"], card.get("root") or card["id"]
        context = card.get("max_model_len") or 2**31
        n_parameters = (card.get("meta") or {}).get("n_params", 0)
        of_text, of_whole = is_text(name) and is_text(root), is_whole(n_parameters, 0)
        if not (of_text and of_whole and is_whole(context, 2)):
            raise TypeError
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ModelLoadError(
            "the server names no model at /v1/models; an OpenAI-compatible one was expected"
        ) from error
    return Card(name, root, context, card.get("owned_by"), n_parameters)
