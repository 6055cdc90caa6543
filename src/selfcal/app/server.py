"""The page behind its gate, on a port of this machine."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from selfcal.app.asking import LARGEST_UPLOAD
from selfcal.app.gate import ASGI, LOOPBACK, Gate
from selfcal.core.errors import SelfcalError
from selfcal.core.files import reason
from selfcal.run import Run

PORTS = range(7860, 7880)  # tried in turn where none is named
SHORTEST_TOKEN = 16  # letters


@dataclass(frozen=True)
class Address:
    """Where to listen, and what whoever calls must know."""

    host: str
    port: int | None
    token: str | None

    def secured(self) -> Address:
        """Anything but loopback needs a token: one is made where none is given."""
        if self.token is not None and (len(self.token) < SHORTEST_TOKEN or not self.token.isascii()):
            raise SelfcalError(f"the token must have at least {SHORTEST_TOKEN} letters or digits")
        if self.token is not None and not self.token.replace("-", "").replace("_", "").isalnum():
            raise SelfcalError("a token is made of letters, digits, - and _")
        token = self.token if self.token or is_loopback(self.host) else secrets.token_urlsafe(24)
        return Address(self.host, self.port, token)

    def listen(self) -> socket.socket:
        """On the port that is asked for, else on the first of a few that is free."""
        for port in PORTS if self.port is None else [self.port]:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((self.host, port))
                listener.listen()  # whoever calls before we serve is not refused, but waits
                return listener
            except (OSError, OverflowError) as error:
                listener.close()
                why = reason(error)
        where = f"{PORTS[0]}–{PORTS[-1]}" if self.port is None else str(self.port)
        raise SelfcalError(f"cannot listen on {self.host}, port {where}: {why}; give --port another number")

    def url(self, port: int) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "localhost") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/" + (f"?token={self.token}" if self.token else "")


def is_loopback(host: str) -> bool:
    try:
        return host in LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        return False


def check_installed() -> None:
    try:
        import gradio  # noqa: F401
    except ImportError:
        raise SelfcalError("selfcal app needs gradio: pip install 'selfcal[app]'") from None


def application(runs: Mapping[str, Run], token: str | None, folder: Path) -> ASGI:
    """The whole of it; uploads pass through `folder`, and nothing in it is served."""
    os.environ |= {  # gradio reads them when it is imported
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_TEMP_DIR": str(folder),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
    }
    from selfcal.app.page import mounted

    logging.getLogger("httpx").setLevel(logging.WARNING)
    return Gate(mounted(runs), token, LARGEST_UPLOAD)


def serve(runs: Mapping[str, Run], address: Address, ready: Callable[[str], None]) -> None:
    """Until it is stopped; `ready` is told the address to open."""
    check_installed()
    import uvicorn

    address = address.secured()
    with closing(address.listen()) as listener, tempfile.TemporaryDirectory(prefix="selfcal-app-") as folder:
        app = application(runs, address.token, Path(folder))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, ws="none", timeout_graceful_shutdown=1
        )
        ready(address.url(listener.getsockname()[1]))
        uvicorn.Server(config).run(sockets=[listener])
