"""The way to an HTTP server: its address, the key, one question and its answer, and what a broken line means.

Everything aiohttp raises is put into words here and nowhere else. The key and the password of a URL
go onto the wire and into nothing that can be recorded.
"""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import SplitResult, unquote, urlsplit

from contextlab.model import Failure, UnableError, UsageError
from contextlab.targets.openai.loose_json import loaded
from contextlab.targets.openai.replies import cut, is_html, refusal_of

if TYPE_CHECKING:
    import aiohttp

ANSWER_TIMEOUT_S = 30.0
"""Time for the answer to a question about the server itself (its limits, a token count), where nobody says more."""
NEXT_STEP = "write it as http://HOST:PORT"
SHORTEST_SECRET = 4
"""Shorter keys are placeholders; hiding them would spoil the texts that happen to hold them."""


def shown(url: str) -> str:
    """A URL as it may be recorded and printed: without user, password, query and fragment. Never raises."""
    scheme, separator, rest = url.rpartition("://") if "://" in url else ("", "", url)
    try:
        parts = urlsplit(f"//{rest}")
        host, path = parts.netloc.rpartition("@")[2], parts.path
        torn = parts.port is None and "@" in parts.query + parts.fragment
    except ValueError:
        torn = True
    if torn:  # a password with a # or a ? in it falls apart: what stands before the last @ is not ours to show
        host, path = rest.rpartition("@")[2], ""
    return f"{scheme}{separator}{host}{path}"


def checked_url(url: str, name: str = "url") -> SplitResult:
    """The parts of a URL at which an API can answer; `name` is what the user calls it.

    Raises UsageError for one that cannot be meant.
    """
    try:
        parts = urlsplit(url)
        meant = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, or brackets that hold no IPv6 address
        meant = False
    if not meant or any(map(str.isspace, url)):
        rule = "a URL needs a scheme (http or https), a host, and a port from 1 to 65535 if any"
        raise UsageError(f"{name}={shown(url)}: {rule}", NEXT_STEP)
    if parts.query or parts.fragment:
        raise UsageError(f"{name}={shown(url)}: the base URL of an API takes neither query nor fragment", NEXT_STEP)
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server answers, without `/v1` and without a slash at the end, and what proves who asks.

    `authorization` is the header's value, None if there is nothing to show; `secrets` are the words that no
    record may hold.
    """

    root: str
    key_name: str
    authorization: str | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, url: str, key_name: str) -> Self:
        """Take a base URL apart; the key is the value of the environment variable `key_name`.

        User and password in the URL come before the key. Raises UsageError for a URL that cannot be meant.
        """
        parts = checked_url(url)
        host, path = parts.netloc.rpartition("@")[2], parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
        root = f"{parts.scheme}://{host}{path}"
        if parts.username or parts.password:
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            return cls(root=root, key_name=key_name, authorization=f"Basic {pair}", secrets=(password, pair))
        key = os.environ.get(key_name, "").strip()
        if not key:
            return cls(root=root, key_name=key_name)
        if not key.isprintable():
            message = f"the key in ${key_name} holds a line break or another control character"
            raise UsageError(message, "put the key into it again, with nothing around it")
        return cls(root=root, key_name=key_name, authorization=f"Bearer {key}", secrets=(key,))

    @property
    def host(self) -> str:
        """The name or number of the host alone."""
        return urlsplit(self.root).hostname or ""

    @property
    def advice(self) -> str:
        """What to do when the server refuses who asks."""
        if self.authorization is None:
            return f"put the key into ${self.key_name}, which is not set here"
        if self.authorization.startswith("Basic"):
            return "check the user and the password in the URL"
        return f"${self.key_name} is set, but what it holds was refused: check the key"

    def clean(self, text: str) -> str:
        """A text from the server as a record can hold it: without secrets, and with lone surrogates replaced."""
        for secret in self.secrets:
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, "[key]")
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The whole answer to one question; header names are in lower case. `clean` makes a text fit for a record."""

    status: int
    text: str
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    clean: Callable[[str], str] = str

    @property
    def ok(self) -> bool:
        """Whether the server says that it did what it was asked."""
        return 200 <= self.status < 300

    @property
    def json(self) -> Any:
        """The decoded body of a success; None if it is neither JSON nor a success."""
        return loaded(self.text) if self.ok else None

    @property
    def html(self) -> bool:
        """Whether a page for people came back."""
        return is_html(self.text)

    @property
    def message(self) -> str:
        """What a refusal says of its reason, fit for a record."""
        return self.clean(refusal_of(self.text, self.status, self.reason).message)


class Wire:
    """An open way to one server. `session` sends the key by itself; a new connection serves each request.

    A connection that waits to be used again may be closed by the server at that very moment; a request lost to
    that would look like a failure of the server.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: Address,
        connect_timeout_s: float,
        answer_timeout_s: float | None = None,
    ) -> None:
        self.session = session
        self.address = address
        self.connect_timeout_s = connect_timeout_s
        self.answer_timeout_s = answer_timeout_s

    def __repr__(self) -> str:
        return f"Wire({self.address.root})"

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, timeout_s: float | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request; `timeout_s` is for the whole answer, None waits for ever once it is connected."""
        import aiohttp

        return self.session.request(
            method,
            self.address.root + path,
            data=None if body is None else io.BytesIO(json.dumps(body).encode()),
            headers=None if body is None else {"Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=timeout_s, connect=self.connect_timeout_s),
            allow_redirects=False,
        )

    async def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> Answer:
        """One question about the server. Any status is an answer; UnableError if none comes in time."""
        import aiohttp

        timeout_s = timeout_s or self.answer_timeout_s or ANSWER_TIMEOUT_S
        try:
            async with self.request(method, path, body, timeout_s=timeout_s) as response:
                text = (await response.read()).decode(errors="replace")
                headers = {name.lower(): value for name, value in response.headers.items()}
                status, reason = response.status, response.reason or ""
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Not `from error`: aiohttp's errors hold the request's headers, and so the key.
            raise self._unable(f"{method} {self.address.root}{path}", error, timeout_s) from None
        return Answer(status=status, text=text, reason=reason, headers=headers, clean=self.address.clean)

    def failure(self, error: Exception) -> Failure:
        """What an exception of the connection means for the request that met it."""
        where, message, _ = broken_line(error, self.connect_timeout_s)
        return Failure(where=where, message=self.address.clean(message))

    def _unable(self, question: str, error: Exception, timeout_s: float) -> UnableError:
        import aiohttp

        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
            next_step = "is it stuck, or is this another service? a slow one needs --set answer_timeout_s=SECONDS"
            return UnableError(f"{question}: no answer within {timeout_s:g} s", next_step)
        _, message, next_step = broken_line(error, self.connect_timeout_s)
        return UnableError(f"{question}: {self.address.clean(message)}", next_step)


@asynccontextmanager
async def open_wire(
    address: Address, connect_timeout_s: float, answer_timeout_s: float | None = None
) -> AsyncIterator[Wire]:
    """Open the way to a server, without a request; leaving closes every connection."""
    import aiohttp

    headers = {"Accept-Encoding": "identity"}  # a compressed stream would come late and in lumps
    if address.authorization:
        headers["Authorization"] = address.authorization
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield Wire(session, address, connect_timeout_s, answer_timeout_s)


def arrived(content: aiohttp.StreamReader) -> bytes:
    """What had come, and was not read yet, when a connection broke: aiohttp raises in place of handing it out."""
    return b"".join(getattr(content, "_buffer", ()))


def broken_line(error: Exception, connect_timeout_s: float) -> tuple[str, str, str]:
    """(`Failure.where`, what happened in words, what the user may do) for an exception of aiohttp."""
    import aiohttp

    if isinstance(error, aiohttp.ConnectionTimeoutError):
        message = f"no connection within {connect_timeout_s:g} s"
        return "connect", message, "check host, port and firewall, or --set connect_timeout_s"
    if isinstance(error, ssl.SSLError | ssl.CertificateError | aiohttp.ClientSSLError):
        return "connect", f"TLS failed: {_cause(error)}", "does it speak plain http? otherwise check its certificate"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "connect", f"no such host: {error.host}", "check the host name"
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return "connect", "connection refused", "start the server, or check the port"
        return "connect", f"no connection: {_cause(error)}", "check host and port"
    if isinstance(error, aiohttp.ClientResponseError):
        words = " ".join(error.message.rstrip(" ^\n").split())  # aiohttp draws an arrow below the byte
        return "protocol", f"the answer is not HTTP: {cut(words)}", "does it speak https, or is it another service?"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        message = "the connection was closed before an answer"
        return "transport", message, "does it speak https, or did the server die?"
    if isinstance(error, ConnectionResetError) or getattr(error, "errno", None) in {errno.EPIPE, errno.ECONNRESET}:
        return "transport", "the connection was reset", "does it speak https, or did the server die?"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "transport", "the connection ended in the middle of the answer", "see the server's log"
    return "transport", f"{type(error).__name__}: {_cause(error)}", "see the server's log"


def _cause(error: BaseException) -> str:
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    words = (getattr(inner, name, None) for name in ("verify_message", "strerror"))
    return next((str(word) for word in words if word), str(inner) or type(inner).__name__)
