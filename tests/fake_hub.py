"""Stands in for the Hugging Face hub: the routes that its client asks for a model, over HTTP.

Repositories are folders. What was asked is kept in `asked`; nothing is gated, missing or slow but
what a test says. It is no hub: no authentication, no Xet, one revision a repository.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """A hub on a free port.

    Args:
        repositories: folder by id "owner/name".
        gated: ids that ask to accept a licence first.
        parameters: what the hub counted in the weights of an id, if it did.
    """

    def __init__(
        self,
        repositories: dict[str, Path],
        gated: tuple[str, ...] = (),
        parameters: dict[str, int] | None = None,
    ) -> None:
        self.repositories, self.gated = repositories, gated
        self.parameters = parameters or {}
        self.requests: list[tuple[str, str]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self, body=True)

            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def log_message(self, *args: object) -> None:
                pass

        self._handler, self._port = Handler, 0
        self.start()
        self.address = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Serve, again at the port of before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @contextmanager
    def gone(self) -> Iterator[None]:
        """Within this context nothing answers at the hub's address."""
        self.stop()
        yield
        self.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def fetched(self, id: str) -> set[str]:
        """Names of the files of a repository whose content was asked for."""
        start = f"/{id}/resolve/{COMMIT}/"
        return {path.removeprefix(start) for how, path in self.requests
                if how == "GET" and path.startswith(start)}  # fmt: skip

    def answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        """One request."""
        path = unquote(urlsplit(request.path).path)
        self.requests.append((request.command, path))
        api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models/" if api else "/").split("/")
        id, rest = "/".join(parts[:2]), parts[2:]
        if id not in self.repositories:
            _send(request, 401, b"", {"X-Error-Code": "RepoNotFound"})
        elif id in self.gated:
            _send(request, 401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
        elif rest[:1] and rest[1:2] and rest[1] not in ("main", COMMIT):
            _send(request, 404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif api and rest[:1] in ([], ["revision"]):
            _send(request, 200, json.dumps(self._info(id)).encode(), {}, body=body)
        elif api and rest[:1] == ["tree"]:
            _send(request, 200, json.dumps(self._files(id)).encode(), {}, body=body)
        elif (
            rest[:1] == ["resolve"]
            and (file := self.repositories[id] / "/".join(rest[2:])).is_file()
        ):
            data = file.read_bytes()
            etag = hashlib.sha256(data).hexdigest()
            headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            _send(request, 200, data, headers, body=body)
        else:
            _send(request, 404, b"", {"X-Error-Code": "EntryNotFound"})

    def _info(self, id: str) -> dict[str, object]:
        info = {
            "_id": "1", "id": id, "modelId": id, "sha": COMMIT, "private": False, "tags": [],
            "siblings": [{"rfilename": f["path"], "size": f["size"]} for f in self._files(id)],
        }  # fmt: skip
        if id in self.parameters:
            n = self.parameters[id]
            info["safetensors"] = {"parameters": {"F32": n}, "total": n}
        return info

    def _files(self, id: str) -> list[dict[str, object]]:
        folder = self.repositories[id]
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return [
            {
                "type": "file",
                "path": path.relative_to(folder).as_posix(),
                "size": path.stat().st_size,
                "oid": hashlib.sha1(path.read_bytes()).hexdigest(),
            }
            for path in files
        ]


def _send(
    request: BaseHTTPRequestHandler,
    status: int,
    data: bytes,
    headers: dict[str, str],
    *,
    body: bool = True,
) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    if body:
        request.wfile.write(data)
