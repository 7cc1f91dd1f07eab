"""A fake of vLLM's and llama.cpp's HTTP: it draws seeded random numbers, and fails when told to.

It is no language model; what real servers sample is tested in tests/servers, where a `Proxy` fails
in the same ways in front of one, and in tests/llamacpp.
"""

from __future__ import annotations

import json
import math
import random
import socket
import struct
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from tiny_models import N_VOCABULARY, tokenizer

EOS = (2, 5)
CONTEXT = 192
IDS = {"id too large": N_VOCABULARY, "id below 0": -1, "id 9.0": 9.0, "id true": True,
       "id of 400 digits": 10**400, "id as text": "9"}  # fmt: skip
SCORES = {"not a number": float("nan"), "true": True, "400 digits": 10**400, "text": "1.0",
          "nested": [[1.0]], "hardly finite": 1e308}  # fmt: skip
TEXTS = {"html": "<html>", "nested without end": "[" * 100_000}


class FakeServer:
    """Serves on a port of its own, the same after a restart.

    Attributes:
        faults: how the next POSTs to /v1/completions or /classify go wrong, one each.
        bodies: what they carried.
        keys: the Authorization headers of all requests.
        most: the largest number of requests that were open at once.
        key: if set, what it wants in that header.
        lasting: faults that every request gets.
        stuck: set once an answer is held back ("slow", until `hold` is set).
        sent: bytes of answers that do not end ("endless"), or end late ("drip", "drip of heads").
        tells: log-probabilities "as sampled", of the "model" before its settings, or none ("").
    """

    def __init__(self, root: Path, *, text_only: bool = False, key: str = "") -> None:
        self.root, self.text_only, self.key = root, text_only, key
        self.faults: deque[str] = deque()
        self.lasting, self.log_probs_kind = "", "as sampled"
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.open = self.most = self.sent = 0
        self.hold, self.stuck = threading.Event(), threading.Event()
        self.lock = threading.Lock()
        self._port = 0
        self.start()

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What a request gets, before anything goes wrong."""
        if path == "/v1/models":
            return {"data": [{"id": "fake", "root": str(self.root), "max_model_len": CONTEXT}]}
        if path == "/tokenize":
            return {"tokens": tokenizer()(body["prompt"])["input_ids"]}
        if path == "/classify":
            return scored(body)
        return as_text(body) if self.text_only else completed(body, self.log_probs_kind)

    def worded(self, answer: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        """An answer in the words of the kind of server."""
        return answer

    @property
    def connections(self) -> set[socket.socket]:
        """All that were ever made."""
        return self._server.connections

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        # a small interval: stopping waits for the loop to look
        run = lambda: self._server.serve_forever(poll_interval=0.005)  # noqa: E731
        threading.Thread(target=run, daemon=True).start()

    def stop(self) -> None:
        """As if killed: no new connection, and the open ones end."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, *args: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*args)

    def get_request(self) -> Any:
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self._let_in():
            self._answer(self.fake.answer(self.path, {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._let_in():
            return
        fake = self.fake
        if self.path == "/tokenize":
            self._answer(fake.answer(self.path, body))
            return
        with fake.lock:
            fake.bodies.append(body)
            fault = fake.lasting or (fake.faults.popleft() if fake.faults else "")
            fake.open += 1
            fake.most = max(fake.most, fake.open)
        try:
            self._spoilt(fake.answer(self.path, body), body, fault)
        finally:
            with fake.lock:
                fake.open -= 1

    def _let_in(self) -> bool:
        authorization = self.headers.get("Authorization")
        self.fake.keys.append(authorization)
        if self.fake.key and authorization != f"Bearer {self.fake.key}":
            self._answer({"error": f"{authorization} is not the key"}, 401)
            return False
        return True

    def _spoilt(self, answer: dict[str, Any], body: dict[str, Any], fault: str) -> None:
        choice = answer.get("choices", [{}])[0]
        if fault.isdecimal():
            self._answer({"error": {"message": "told to fail"}}, int(fault))
            return
        if fault == "slow":
            self.fake.stuck.set()
            self.fake.hold.wait()
        if fault in ("slow", "gone"):
            self.close_connection = True
            return
        if fault in ("endless", "drip", "drip of heads"):
            self._go_on(fault)
            return
        if fault == "other prompt":
            choice["prompt_token_ids"] = [1, *choice["prompt_token_ids"]]
        elif fault == "lost ids":
            choice["token_ids"] = choice["token_ids"][:-1]
        elif fault == "aborted":
            choice["finish_reason"] = "abort"
        elif fault == "no end":
            choice["token_ids"], answer["usage"]["completion_tokens"] = [99], 1
            choice["finish_reason"] = "stop"
        elif fault == "eos within":
            ids = [2, *choice["token_ids"]]
            choice["token_ids"], answer["usage"]["completion_tokens"] = ids, len(ids)
        elif fault in IDS and "token_ids" in choice:
            choice["token_ids"][:-1] = [IDS[fault]] * (len(choice["token_ids"]) - 1)
        elif fault in SCORES and "data" in answer:
            answer["data"][0]["probs"] = [SCORES[fault]]
        elif fault == "too few told":
            choice["logprobs"]["token_logprobs"].pop()
        elif fault == "no log":
            choice["logprobs"]["token_logprobs"][0] = 0.7
        elif fault == "two outputs":
            answer["data"][0]["probs"] = [0.2, 0.8]
        elif fault == "cut conversation":
            answer["usage"]["prompt_tokens"] -= 1
        elif fault == "always squashed":
            answer["data"][0]["probs"] = [0.5]
        worded = self.fake.worded(answer, body)
        self._answer(worded, half=fault == "half", text=TEXTS.get(fault, ""))

    def _go_on(self, fault: str) -> None:
        """Answer without an end, as far as anybody reads it: 32 MiB, or 40 s of single bytes."""
        self.close_connection = True
        heads = fault == "drip of heads"
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"a: " if heads else b"\r\n"))
        part = b" " * (2**16 if fault == "endless" else 1)
        try:
            for _ in range(512 if fault == "endless" else 4096):
                self.wfile.write(part)
                self.fake.sent += len(part)
                if fault != "endless" and self.fake.hold.wait(0.01):
                    return
        except OSError:  # nobody reads it any more
            return

    def _answer(
        self, content: dict[str, Any], status: int = 200, *, half: bool = False, text: str = ""
    ) -> None:
        body = (text or json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)
        self.close_connection = half


def completed(body: dict[str, Any], log_probs_kind: str = "") -> dict[str, Any]:
    """Ids of seeded random numbers, as /v1/completions returns them; made-up log-probabilities."""
    sent = body["prompt"]
    rng = random.Random(f"{body['seed']} {sent[-4:]}")
    new: list[int] = []
    stops = body.get("stop_token_ids", EOS)
    while len(new) < body["max_tokens"] and not (new and new[-1] in stops):
        new.append(rng.choice(EOS) if rng.random() < 0.1 else rng.randrange(70, N_VOCABULARY))
    choice = {
        "text": tokenizer().decode(new, skip_special_tokens=True),
        "finish_reason": "stop" if new[-1] in stops else "length",
        "prompt_token_ids": sent,
        "token_ids": new,
    }
    if "logprobs" in body and log_probs_kind:
        sure = log_probs_kind == "as sampled" and body["top_k"] == 1
        choice["logprobs"] = {"token_logprobs": [0.0 if sure else -1 - id / 100 for id in new]}
    if "prompt_logprobs" in body and log_probs_kind:
        extra = [{str(id): {"logprob": -1 - id / 100, "rank": 1}} for id in sent]
        choice["prompt_logprobs"] = [None, *extra[1:]]
    usage = {"prompt_tokens": len(sent), "completion_tokens": len(new)}
    return {"choices": [choice], "usage": usage}


def as_text(body: dict[str, Any]) -> dict[str, Any]:
    """The same, of a server that does not know ids."""
    ids = tokenizer()(body["prompt"])["input_ids"] if isinstance(body["prompt"], str) else []
    answer = completed({**body, "prompt": ids})
    for name in ("prompt_token_ids", "token_ids"):
        del answer["choices"][0][name]
    return answer


def scored(body: dict[str, Any]) -> dict[str, Any]:
    """A number made of the ids, as /classify returns it."""
    (ids,) = body["input"]
    score = 1.0 / (1 + len(ids)) if body["use_activation"] else sum(ids) / 1000 - 8
    usage = {"prompt_tokens": len(ids)}
    return {"data": [{"probs": [score], "num_classes": 1}], "usage": usage}


class FakeLlamaCpp(FakeServer):
    """The same draws in the words of llama.cpp's own interface, as its server's README has them.

    Attributes:
        fixed: settings that no request changes.
        ends: what it stops at.
        slots: requests that run at once.
        parts: whether it tells nothing of every third token, as of one within a character.
    """

    fixed: dict[str, Any] = {}  # noqa: RUF012
    ends, slots, parts = EOS, 2, False

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/v1/models":
            meta = {"n_params": 95_296}
            return {"data": [{"id": "a/tiny.gguf", "owned_by": "llamacpp", "meta": meta}]}
        if path == "/props":
            context = {"n_ctx": CONTEXT}
            return {"total_slots": self.slots, "default_generation_settings": context}
        if path == "/tokenize":
            return {"tokens": tokenizer()(body["content"])["input_ids"]}
        if path != "/completion":
            return {}
        most = {"max_tokens": body["n_predict"], "stop_token_ids": self.ends}
        extra = {"logprobs": 0} if body.get("n_probs") else {}
        return completed({**body, **most, **extra}, self.log_probs_kind)

    def worded(self, answer: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        (choice,), usage = answer["choices"], answer["usage"]
        stops = {"stop": "eos", "length": "limit"}
        reply: dict[str, Any] = {
            "tokens": choice["token_ids"],
            "tokens_predicted": usage["completion_tokens"],
            "tokens_evaluated": len(choice["prompt_token_ids"]),
            "stop_type": stops.get(choice["finish_reason"], "none"),
            "completion_probabilities": [
                {"prob": math.exp(log_p), "top_probs": [{}]}
                for k, log_p in enumerate(choice.get("logprobs", {}).get("token_logprobs", []))
                if not (self.parts and k % 3 == 2)
            ],
            "generation_settings": {
                **body,
                "temperature": struct.unpack("f", struct.pack("f", body["temperature"]))[0],
                "logit_bias": [{"token": id, "bias": None} for id in self.ends]
                if body["ignore_eos"]
                else [],
                "stop": [],
                "grammar": "",
                **self.fixed,
            },
        }
        return {name: reply[name] for name in body["response_fields"]}


class Proxy(FakeServer):
    """In front of a real server: what it answers is passed on, unless told to fail."""

    def __init__(self, behind: str) -> None:
        self.behind = behind
        super().__init__(Path())

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        address = f"{self.behind}{path}"
        answer = httpx.post(address, json=body, timeout=300) if body else httpx.get(address)
        return dict(answer.json())
