"""Who may ask: this machine, or whoever has the token; never a page from elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from rulewright.errors import DataError
from rulewright.web.server import COOKIE, Guard, is_loopback, new_token, run


def ask(guard, path="/", query="", protocol="http", **headers):
    """Return the status (or the close code) and headers of an answer, 200 where the request came through."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    scope = {
        "type": protocol,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(guard(scope, receive, send))
    first = sent[0]
    return first.get("status", first.get("code")), dict(first.get("headers", ()))


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept", "status": 200})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_only_the_name_of_this_machine_leads_here():
    guard = Guard(application, token=None, local=True)
    assert ask(guard, host="127.0.0.1:8765")[0] == 200
    assert ask(guard, host="localhost")[0] == 200
    assert ask(guard, host="[::1]:8765")[0] == 200
    assert ask(guard, host="evil.example:8765")[0] == 421
    assert ask(guard)[0] == 421
    assert ask(guard, protocol="websocket", host="evil.example")[0] == 1008


def test_a_page_from_elsewhere_may_not_open_a_socket():
    guard = Guard(application, token=None, local=True)
    same = {"host": "127.0.0.1:8765", "origin": "http://127.0.0.1:8765"}
    assert ask(guard, protocol="websocket", **same)[0] == 200
    assert ask(guard, protocol="websocket", **{**same, "origin": "http://evil.example"})[0] == 1008


def test_the_token():
    token = new_token()
    guard = Guard(application, token=token, local=False)
    assert ask(guard, host="example.org")[0] == 401
    assert ask(guard, host="example.org", query="token=wrong")[0] == 401
    assert ask(guard, host="example.org", cookie=f"{COOKIE}=wrong")[0] == 401
    assert ask(guard, host="example.org", cookie="=; ;")[0] == 401
    assert ask(guard, host="example.org", cookie=f"{COOKIE}=é")[0] == 401
    assert ask(guard, protocol="websocket", host="example.org", query=f"token={token}")[0] == 1008
    status, headers = ask(guard, "/ask", host="example.org", query=f"q=p%28X%29&token={token}")
    assert status == 303
    assert headers[b"location"] == b"/ask?q=p%28X%29", "the token leaves the address"
    assert b"HttpOnly" in headers[b"set-cookie"] and b"SameSite=Strict" in headers[b"set-cookie"]
    assert ask(guard, host="example.org", cookie=f"other=1; {COOKIE}={token}")[0] == 200
    assert ask(guard, protocol="websocket", host="example.org", cookie=f"{COOKIE}={token}")[0] == 200


def test_every_answer_says_what_a_page_may_load():
    _, headers = ask(Guard(application, token=None, local=True), host="localhost")
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert headers[b"x-content-type-options"] == b"nosniff"


def test_other_messages_pass():
    seen = []

    async def inner(scope, receive, send):
        seen.append(scope["type"])

    asyncio.run(Guard(inner, token="t", local=True)({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]


def test_an_address_that_others_reach_needs_a_token():
    with pytest.raises(DataError, match="needs a token"):
        run(None, host="0.0.0.0", port=1, token=None, show=False)
    assert not is_loopback("0.0.0.0")
    assert len({new_token() for _ in range(100)}) == 100
