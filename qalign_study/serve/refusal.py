"""The response to a refused request."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

_UNHEARD = (400, 403, 408, 421)
"""Statuses that may be sent before the whole body has arrived: the connection is then closed."""


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
