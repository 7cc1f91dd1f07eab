"""Whose requests are answered: this server's own hosts, and pages that are its own or trusted.

Any page in a browser may send requests to a server on the same machine or network. A host name of
that page's can also be made to lead here (DNS rebinding), and then the page reads the answers.
Hosts are checked against rebinding, origins against all other foreign pages.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

from qalign_core.errors import QAlignError
from qalign_core.validation import short_repr
from qalign_study.serve.refusal import HTTPRefusal

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that are always accepted, and those on which only this machine can connect."""
SPACES = "https://huggingface.co"
"""The origin whose pages show a Space in a frame."""
_HOST = re.compile(r"(\[[0-9a-f:.]{2,}\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")
_ORIGIN = re.compile(rf"https?://{_HOST.pattern}")


@dataclass(frozen=True)
class OriginPolicy:
    """The hosts and origins of a server.

    Attributes:
        named: hosts that the operator or the Space named; a page of theirs is ours too, since a
            proxy may send another `Host`.
        bound: the name to which the server was bound.
        origins: origins of other pages that may ask and read answers, and show the app in a frame.
        is_space: whether the server is a Space, behind a proxy that hides visitors' addresses.
    """

    named: frozenset[str] = frozenset()
    bound: str = ""
    origins: frozenset[str] = frozenset()
    is_space: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "OriginPolicy":
        """Read `QALIGN_HOSTS`, `QALIGN_ORIGINS`, `SPACE_HOST` and `GRADIO_SERVER_NAME`.

        Raises:
            QAlignError: one of the first two holds something else than hosts or origins.
        """
        space = _split(environment, "SPACE_HOST")
        hosts, origins = (_split(environment, name) for name in ("QALIGN_HOSTS", "QALIGN_ORIGINS"))
        for name, texts, form, what, such_as in (
            ("QALIGN_HOSTS", hosts, _HOST, "host names", "qalign.example.org"),
            ("QALIGN_ORIGINS", origins, _ORIGIN, "origins", "https://chat.example.org"),
        ):
            if bad := [text for text in texts if not form.fullmatch(text)]:
                must = f"{name} must be {what} separated by commas, such as {such_as}"
                raise QAlignError(f"{must}, got {short_repr(bad[0])}")
        bound = environment.get("GRADIO_SERVER_NAME", "").strip().lower()
        trusted = {*origins, *([SPACES] if space else [])}
        return cls(frozenset({*hosts, *space}), bound, frozenset(trusted), bool(space))

    def check(self, scope: Scope, headers: Headers) -> str:
        """The origin of the page that asks, "" if no page does.

        Raises:
            HTTPRefusal: the host is not ours, or the page is foreign.
        """
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if not self._is_own(host, scope):
            raise HTTPRefusal(
                421,
                f"this server is not {short_repr(host)}; open it by its own address, or "
                "name that host in QALIGN_HOSTS",
            )
        origin = headers.get("origin", "")
        scheme, _, of_page = origin.lower().partition("://")
        is_own = scheme in ("http", "https") and of_page in {host, *self.named}
        if origin and origin.lower() not in self.origins and not is_own:
            raise HTTPRefusal(
                403,
                f"a page of {short_repr(origin)} may not use this server; the operator can "
                "allow that origin in QALIGN_ORIGINS",
            )
        return origin

    def headers_for_app(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Return a request's headers without those that the app would believe.

        Gradio lets any page read the answers of a host that is not localhost if it sees `Origin`,
        and writes the address in `X-Forwarded-Host` or `X-Gradio-Server` into its pages. The former
        stays if a trusted proxy sent it and it is a host of ours: a proxy may send another `Host`.
        """
        dropped = {b"origin", b"x-gradio-server"}
        forwarded = Headers(scope=scope).getlist("x-forwarded-host")
        is_own = len(forwarded) == 1 and self._is_own(forwarded[0].lower(), scope)
        if not (is_own and self._is_proxied(scope)):
            dropped.add(b"x-forwarded-host")
        return [each for each in scope["headers"] if each[0] not in dropped]

    def _is_proxied(self, scope: Scope) -> bool:
        """True if a proxy that uvicorn trusts may have sent a request.

        A client named by such a proxy has no port; all others do, and cannot hide it.
        """
        address, port = scope.get("client") or ("", 0)
        return self.is_space or port == 0 or address in LOCAL

    def _is_own(self, host: str, scope: Scope) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].strip("[]")  # without its port
        return (
            host in self.named
            or name in {*LOCAL, *self.named, self.bound}
            or (_address(name) is not None and _address(name) == _address(scope["server"][0]))
        )

    @property
    def frames(self) -> str:
        """The sites that may show the app in a frame, in the syntax of a policy."""
        return " ".join(["'self'", *sorted(self.origins)])


def _split(environment: Mapping[str, str], name: str) -> list[str]:
    texts = (text.strip().lower() for text in environment.get(name, "").split(","))
    return [text for text in texts if text]


def _address(text: str) -> object:
    """A literal address, one of IPv4 within IPv6 as the former; None if it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
