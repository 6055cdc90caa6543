"""What may come in: an ASGI layer before gradio, which serves more than this page needs.

Only the routes below are served, none of which reads a file that a request names; uploads are bounded; whoever comes
from elsewhere needs the token; and a page of another site can neither ask nor be asked.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

SERVED = {
    "GET": re.compile(
        r"/|/config/?|/theme\.css|/(assets|static|svelte)/[\w./@~+-]+|/favicon\.ico|/robots\.txt|/manifest\.json|/pwa_icon(/\d+)?"
        r"|/gradio_api/(queue/data|heartbeat/\w+|startup-events|upload_progress|theme\.css)"
    ),
    "POST": re.compile(r"/gradio_api/(queue/join|upload|cancel|reset)/?"),
}
SERVED["HEAD"] = re.compile("/")
UPLOAD = "/gradio_api/upload"
LARGEST_REQUEST = 2**20  # bytes, of what is no upload
COOKIE = "selfcal_token"
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
POLICY = (  # nothing is fetched from elsewhere, and no other site may frame the page
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; font-src 'self' data:; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@dataclass(frozen=True)
class Refusal(Exception):
    """A status, and the sentence that is sent with it."""

    status: int
    sentence: str


@dataclass(frozen=True)
class Gate:
    """Lets requests through to `inner`, or refuses them."""

    inner: ASGI
    token: str | None
    largest_upload: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = with_ours(message.get("headers", []))
            await send(message)

        try:
            check_host(scope, self.token)
            if self.token is not None and await self.let_in(scope, send):
                return
            check_route(scope)
            await self.inner(scope, self.bounded(scope, receive), answer)
        except Refusal as refusal:
            if not started:
                await reply(send, refusal.status, refusal.sentence)

    async def let_in(self, scope: Scope, send: Send) -> bool:
        """Whether the request has been answered: a token in the address becomes a cookie, and leaves the address."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and self.is_right(given[0]):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            where = "/" + scope["path"].lstrip("/") + (f"?{rest}" if rest else "")
            cookie = f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"
            await reply(send, 303, "", {"location": where, "set-cookie": cookie})
            return True
        if given or not self.is_right(cookies(scope).get(COOKIE, "")):
            raise Refusal(401, "the token is wrong or missing; open the address that selfcal app printed")
        return False

    def is_right(self, token: str) -> bool:
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def bounded(self, scope: Scope, receive: Receive) -> Receive:
        """No more than so many bytes, whatever the request says of its length."""
        upload = scope["path"].rstrip("/") == UPLOAD
        most = self.largest_upload + 2**16 if upload else LARGEST_REQUEST  # a form has a few lines of its own
        refusal = Refusal(413, f"more than {most >> 20} MiB were sent; that is more than is taken")
        said = header(scope, b"content-length")
        if said and not (said.isdigit() and int(said) <= most):
            raise refusal
        count = 0

        async def bounded_receive() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > most:
                raise refusal
            return message

        return bounded_receive


def check_route(scope: Scope) -> None:
    """Of the decoded path and of the one that was sent: %2e%2e is .. too."""
    path, sent = scope["path"], (scope.get("raw_path") or b"").decode("latin-1")
    served = SERVED.get(scope["method"])
    if served is None or not served.fullmatch(path) or ".." in path or ".." in sent or "\\" in path:
        raise Refusal(404, "this is not served")


def check_host(scope: Scope, token: str | None) -> None:
    """Without a token only who calls us by a loopback name is answered: another site's name may lead here, too (DNS
    rebinding). And what a page of another site sends is refused, token or not."""
    host = header(scope, b"host")
    if token is None and (urlsplit(f"//{host}").hostname or "") not in LOOPBACK:
        raise Refusal(403, "only this machine is served; selfcal app --host with a token serves others")
    origin = header(scope, b"origin")
    if origin and urlsplit(origin).netloc.lower() != host.lower():
        raise Refusal(403, "another site's page may not ask")


def header(scope: Scope, name: bytes) -> str:
    found = [value for key, value in scope["headers"] if key.lower() == name]
    return found[0].decode("latin-1") if found else ""


def cookies(scope: Scope) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header(scope, b"cookie")).items()}
    except CookieError:
        return {}


def with_ours(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name.lower().decode("latin-1") not in HEADERS]
    return kept + [(name.encode(), value.encode()) for name, value in HEADERS.items()]


async def reply(send: Send, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
    body = f"selfcal: {sentence}\n".encode() if sentence else b""
    named = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))} | (headers or {})
    raw = [(name.encode(), value.encode("latin-1")) for name, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": with_ours(raw)})
    await send({"type": "http.response.body", "body": body})
