"""The response to a refused request."""

import logging
import re
from pathlib import Path
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from qalign_core.errors import QAlignError

E = TypeVar("E", bound=QAlignError)
log = logging.getLogger("qalign.errors")

_UNHEARD = (400, 403, 408, 421)
"""Statuses that may be sent before the whole body has arrived: the connection is then closed."""


_ROOT = re.compile(r"(?<![\w:/.\\])(?:[A-Za-z]:)?[/\\](?=[^\s/\\])")
"""The beginning of an absolute path."""


def hide_folders(error: E) -> E:
    """Remove this machine's folders from a sentence that a visitor reads; the log has all of it.

    "/home/me/rules.py has no function warn" becomes "rules.py has no function warn". Only folders
    that exist are removed: other text with slashes, such as an address, is not this machine's.
    """
    before, sentence, at = str(error), str(error), 0
    while (root := _ROOT.search(sentence, at)) is not None:
        ends = [k.end() for k in re.finditer(r"[/\\]", sentence) if k.start() >= root.end()]
        end = next((k for k in reversed(ends) if _is_folder(sentence[root.start() : k])), None)
        if end is not None:
            sentence = sentence[: root.start()] + sentence[end:]
        at = root.start() + 1
    if sentence != before:
        log.warning("%s", before)
        error.args = (sentence,)
    return error


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):  # too long, or with a null byte
        return False


class HTTPRefusal(Exception):
    """A status of HTTP and one sentence, with the field that is meant and a code if there are any.

    Attributes:
        status: of the answer.
        param, code: as OpenAI's API has them.
        detail: the sentence, or the form in which a client of Gradio reads it.
    """

    def __init__(
        self, status: int, sentence: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.param, self.code = status, param, code
        self.detail: object = sentence

    @property
    def error(self) -> dict[str, object]:
        """The error in the form of OpenAI's API."""
        of_server = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "rate_limit_error" if self.status == 429 else of_server
        fields = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": fields}


def respond_refused(request: Request, error: Exception) -> Response:
    """A refusal as JSON, with its status; below /v1 in the form of OpenAI's API."""
    assert isinstance(error, HTTPRefusal)
    close = {"Connection": "close"} if error.status in _UNHEARD else {}
    of_api = request.url.path.startswith("/v1/")
    return JSONResponse(error.error if of_api else {"detail": error.detail}, error.status, close)
