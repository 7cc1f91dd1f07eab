"""The response to a refused request."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from qalign_core.errors import InvalidPrompt, InvalidSetting, QAlignError

log = logging.getLogger("qalign.errors")

_UNHEARD = (400, 403, 408, 421)
"""Statuses that may be sent before the whole body has arrived: the connection is then closed."""


_PATH = re.compile(r"(?<![\w:/.\\])(?:[A-Za-z]:|~\w*)?[/\\](?=[^\s/\\])")
"""The beginning of an absolute path; addresses, ids of the hub and shares have none."""
HIDDEN = (
    "a model or a file of this server cannot be used; choose another one, or see the reason in the "
    "server's terminal"
)


@contextmanager
def public_errors() -> Iterator[None]:
    """Replace the sentence of an error that would show a visitor a path; the log has that sentence.

    Use the server's models and files within it. Errors of settings and prompts repeat a visitor's
    own words and stay unchanged; none of them comes from the code of an operator's reward
    (`qalign_core.validation.user_code`), and servers run no move of a file. An address such as
    http://host/v1/models names no file of this server, and stays. A path is recognized by its form:
    if the disk were asked which folders exist, a visitor could read that from the answer.
    """
    try:
        yield
    except (InvalidSetting, InvalidPrompt):
        raise
    except QAlignError as error:
        if _PATH.search(str(error)) is None:
            raise
        log.warning("%s", error)
        raise type(error)(HIDDEN) from error


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
