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
FORM = 2**16  # bytes that a form adds to its file
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
        try:
            check_host(scope, self.token)
            if self.token is not None and await self.let_in(scope, send):
                return
            check_route(scope)
            most = self.most_bytes(scope)
        except Refusal as refusal:
            await reply(send, refusal.status, refusal.sentence)
        else:
            await self.pass_on(scope, receive, send, most)

    async def pass_on(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        """To `inner`, as long as no more than so many bytes arrive; then it hears that nobody is there any more."""
        count, refused = 0, False

        async def bounded() -> Message:
            nonlocal count, refused
            message = await receive()
            count += len(message.get("body", b""))
            if count > most and not refused:
                refused = True
                await reply(send, 413, too_much(most))
            return {"type": "http.disconnect"} if refused else message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_ours(message.get("headers", []))
            if not refused:
                await send(message)

        try:
            await self.inner(scope, bounded, answer)
        except Exception:  # of a request that was cut off it may complain as it likes
            if not refused:
                raise

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

    def most_bytes(self, scope: Scope) -> int:
        """That a request may have; one that announces more is refused at once."""
        is_upload = scope["path"].rstrip("/") == UPLOAD
        most = self.largest_upload + FORM if is_upload else LARGEST_REQUEST
        said = header(scope, b"content-length")
        if said and not (said.isdecimal() and int(said) <= most):
            raise Refusal(413, too_much(most))
        return most


def too_much(most: int) -> str:
    return f"at most {most >> 20} MiB are taken"


def check_route(scope: Scope) -> None:
    """Of the decoded path and of the one that was sent: %2e%2e is .. too."""
    path, sent = scope["path"], (scope.get("raw_path") or b"").decode("latin-1")
    served = SERVED.get(scope["method"])
    if served is None or not served.fullmatch(path) or re.search(r"\.\.|//|\\", path + " " + sent):
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
