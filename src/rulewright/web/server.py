"""The web server: who may ask, from where, and with which token."""

from __future__ import annotations

import gc
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlencode

from rulewright.errors import DataError, MissingExtraError
from rulewright.web.explorer import Explorer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "rulewright-token"
_HEADERS = (
    (b"content-security-policy", b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
     b"style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self' ws: wss:; object-src 'none'; "
     b"base-uri 'self'; form-action 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)  # fmt: skip


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine alone.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets a request through where it names this server and, if there is one, carries the token.

    Bound to this machine alone, the name must be that of this machine: a page elsewhere that points a name of its own
    here is refused. The token comes once in the address, ``?token=…``, and then in a cookie that scripts cannot read.
    """

    def __init__(self, app: App, *, token: str | None, local: bool) -> None:
        self._app, self._token, self._local = app, token, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if self._local and not is_loopback(_read_host(headers.get(b"host", ""))):
            await _refuse(scope, send, 421, "this server answers to the name of this machine only")
        elif scope["type"] == "websocket" and not _same_origin(headers):
            await _refuse(scope, send, 403, "a page from elsewhere may not ask")
        elif self._token is None or self._matches(_read_token(headers)):
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "http" and self._matches(query.get("token", [""])[0]):
            await _welcome(scope, query, self._token, send)
        else:
            await _refuse(scope, send, 401, "open the address with the token that 'rulewright serve' printed")

    def _matches(self, token: str) -> bool:
        return self._token is not None and secrets.compare_digest(token.encode(), self._token.encode())


def _read_host(header: str) -> str:
    """Return the name in a Host header, without its port."""
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    return name.strip("[]")


def _same_origin(headers: MutableMapping[bytes, str]) -> bool:
    origin = headers.get(b"origin")
    return origin is None or origin.partition("://")[2] == headers.get(b"host", "")


def _read_token(headers: MutableMapping[bytes, str]) -> str:
    try:
        cookie = SimpleCookie(headers.get(b"cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value


def _with_headers(send: Send) -> Send:
    async def guarded(message: Scope) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
        await send(message)

    return guarded


async def _welcome(scope: Scope, query: dict[str, list[str]], token: str, send: Send) -> None:
    """Put the token into a cookie and take it out of the address."""
    rest = {name: values for name, values in query.items() if name != "token"}
    target = scope["path"] + (f"?{urlencode(rest, doseq=True)}" if rest else "")
    cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
    headers = [(b"location", target.encode("latin-1", "ignore")), (b"set-cookie", cookie.encode()), *_HEADERS]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, send: Send, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"rulewright: {reason}\n".encode()})


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def run(explorer: Explorer, *, host: str, port: int, token: str | None, show: bool) -> None:
    """Serve the explorer until it is interrupted; an address that others reach needs a token."""
    if not is_loopback(host) and token is None:
        raise DataError(f"{host} is reached by others; the explorer needs a token there")
    try:
        from nicegui import app, ui
    except ImportError:
        raise MissingExtraError(
            "the explorer needs NiceGUI: pip install -c constraints.txt 'rulewright[web]'"
        ) from None
    from rulewright.web.pages import register

    register(explorer)
    app.add_middleware(Guard, token=token, local=is_loopback(host))
    app.on_shutdown(explorer.close)
    gc.collect()
    gc.freeze()  # rules and facts stay; looking through them at every collection would hold up the pages
    ui.run(
        host=host,
        port=port,
        title="Rulewright",
        favicon="🜁",
        dark=None,
        show=show,
        reload=False,
        tailwind=False,
        show_welcome_message=False,
        reconnect_timeout=10.0,
    )
