"""What a page fetches only when it is asked for: what is behind the tabs, and what saves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from qalign_core.assets import ASSETS
from qalign_core.record.live import WORKER
from qalign_core.record.scripts import bundle

LATER = {
    "inside.js": ASSETS / "inside" / "inside.js",
    "save.js": ASSETS / "export" / "export.js",
}
"""The scripts by their addresses (assets/later.js asks for them)."""

FILES = ("vendor", "models", "engine")
"""Folders of assets/ whose files a page may fetch: scripts of others, and what its worker reads."""


def routes() -> list[BaseRoute]:
    """Addresses beside the app's own: `LATER`, the worker's script and `FILES`."""
    return [
        *(Route(f"/{address}", _script(path)) for address, path in LATER.items()),
        Route("/engine.js", _script(WORKER)),
        *(Mount(f"/{name}", StaticFiles(directory=ASSETS / name)) for name in FILES),
    ]


def _script(path: Path) -> Callable[[Request], Response]:
    return lambda _: Response(bundle(path), media_type="text/javascript")
