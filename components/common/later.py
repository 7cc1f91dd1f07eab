"""What a page fetches only when it is asked for: what saves, and the encoders that it needs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from qalign_core.assets import ASSETS
from qalign_core.export.scripts import bundle


def routes() -> list[BaseRoute]:
    """Addresses beside the app's own: `save.js`, and the scripts of others in `vendor/`."""
    return [
        Route("/save.js", _saver),
        Mount("/vendor", StaticFiles(directory=ASSETS / "vendor")),
    ]


def _saver(_: Request) -> Response:
    return Response(bundle(ASSETS / "export" / "export.js"), media_type="text/javascript")
