"""Scripts that a page fetches only when needed."""

import gzip
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from qalign_core.assets import ASSETS
from qalign_study.export.browser import WORKER
from qalign_study.export.scripts import WEB, with_sheet

LATER = {
    "charts.js": WEB / "player" / "charts.js",
    "exhibit.js": WEB / "exhibit" / "exhibit.js",
    "inside.js": WEB / "inside" / "inside.js",
    "save.js": WEB / "export" / "export.js",
}
"""The scripts by their addresses (assets/web/later.js asks for them)."""

FILES = {"vendor": WEB / "vendor", "models": ASSETS / "models", "engine": WEB / "engine"}
"""Folders whose files a page may fetch, by address: vendored scripts, models, the engine."""


class Compressed(StaticFiles):
    """Files that are compressed once, and not once for each member of a class of 1,000."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """The answer for a file, as Starlette makes it, with the kept bytes in it."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        takes = "gzip" in Headers(scope=scope).get("accept-encoding", "")
        if not (takes and isinstance(response, FileResponse)):
            return response
        headers = {name: response.headers[name] for name in ("etag", "last-modified")}
        headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding"}
        body = _compress(os.fspath(full_path))
        return Response(body, status_code, headers, response.media_type)


@cache
def _compress(path: str) -> bytes:
    return gzip.compress(Path(path).read_bytes())


def routes() -> list[BaseRoute]:
    """Addresses beside the app's own: `LATER`, the worker's script, and `FILES`."""
    return [
        *(Route(f"/{address}", _script(path)) for address, path in LATER.items()),
        Route("/engine.js", _script(WORKER)),
        *(Mount(f"/{name}", Compressed(directory=folder)) for name, folder in FILES.items()),
    ]


def _script(path: Path) -> Callable[[Request], Response]:
    return lambda _: Response(with_sheet(path), media_type="text/javascript")
