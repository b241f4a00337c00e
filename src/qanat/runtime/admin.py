"""HTTP for operators, on localhost: `/healthz`, `/metrics`, `/status`, and what a kind of node adds. Small,
bounded.

Looking is free; whoever changes something (POST) shows the token, which a node that can be changed keeps in
its folder.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from qanat.events.errors import LocalError, QanatError
from qanat.runtime import descriptors
from qanat.runtime.acceptor import Acceptor, bound
from qanat.runtime.metrics import Metrics
from qanat.runtime.node_settings import AdminSettings
from qanat.runtime.url import format_address

log = logging.getLogger("qanat.admin")

_REQUEST_BYTES = 8 * 1024
_CONNECTIONS = 64
_BODY_BYTES = 1024 * 1024
_LINGER_BYTES = 1024 * 1024
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"

Handler = Callable[[], tuple[HTTPStatus, str, bytes]]
Page = Callable[[dict[str, str]], object]
"""What a page shows, as JSON; it is given what stands behind the `?`."""
Action = Callable[[dict[str, Any]], object]
"""Changes something; what it raises of ours is the answer."""


class _BadRequest(Exception):
    def __init__(self, status: HTTPStatus, what: str = "") -> None:
        super().__init__(what or status.phrase)
        self.status = status


class _Request:
    def __init__(self, method: str, target: str, headers: dict[str, str]) -> None:
        self.method, self.headers = method, headers
        self.path, _, query = target.partition("?")
        self.query = dict(parse_qsl(query))


class Admin:
    """The HTTP server of a node.

    `status()` gives what `/status` shows as JSON; `healthy()` gives None, or why the node is not. One request
    per connection, its head of at most 8 KiB; 64 connections are asked at a time, and of more that say
    nothing the oldest is closed. `pages` and `actions` are a kind of node's own; actions need `token`.
    """

    def __init__(
        self,
        metrics: Metrics,
        status: Callable[[], Mapping[str, object]],
        healthy: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.port = 0
        self._metrics = metrics
        self._status = status
        self._healthy = healthy
        self._acceptors: list[Acceptor] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: dict[asyncio.Task[None], None] = {}
        """Those whose request has not come whole, oldest first."""
        self._request_s = 5.0
        self._routes: dict[str, Handler] = {
            "/healthz": self._healthz,
            "/metrics": self._metrics_page,
            "/status": self._status_page,
        }
        self.pages: dict[str, Page] = {}
        self.actions: dict[str, Action] = {}
        self.token = ""

    async def start(self, settings: AdminSettings) -> None:
        self._request_s = settings.request_ms / 1000
        try:
            sockets = await bound(settings.host, settings.port)
        except OSError as error:
            raise LocalError(
                f"cannot serve HTTP on {format_address(settings.host, settings.port)}:"
                f" {error.strerror or error}; set admin.port to another (0 takes any free one)"
            ) from None
        self.port = sockets[0].getsockname()[1]
        # When clients are refused for want of descriptors, an operator still finds out why.
        self._acceptors = [
            Acceptor(sock, self._protocol, backlog=_CONNECTIONS, may_have=descriptors.for_stream)
            for sock in sockets
        ]

    async def close(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_REQUEST_BYTES), self._serve)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._asking[task] = None
        if len(self._asking) > _CONNECTIONS:  # who says nothing keeps out nobody
            next(iter(self._asking)).cancel()
        try:
            async with asyncio.timeout(2 * self._request_s):
                writer.write(await self._answer(reader, task))
                await _linger(reader, writer)
        except (TimeoutError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            self._asking.pop(task, None)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, task: asyncio.Task[None]) -> bytes:
        try:
            request = await self._request(reader)
            self._asking.pop(task, None)
            if len(self._tasks) - len(self._asking) > _CONNECTIONS:
                raise _BadRequest(HTTPStatus.SERVICE_UNAVAILABLE)
            if request.method == "POST" and request.path in self.actions:
                status, kind, body = await self._act(reader, request)
            elif request.method != "GET":
                raise _BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
            elif request.path in self.pages:
                status, kind, body = HTTPStatus.OK, _JSON, _json(self.pages[request.path](request.query))
            elif request.path in self._routes:
                status, kind, body = self._routes[request.path]()
            else:
                known = ", ".join(dict.fromkeys((*self._routes, *self.pages, *self.actions)))
                raise _BadRequest(HTTPStatus.NOT_FOUND, f"Not Found; there are {known}")
        except _BadRequest as error:
            status, kind, body = error.status, _TEXT, f"{error}\n".encode()
        except QanatError as error:
            status, kind, body = HTTPStatus.CONFLICT, _JSON, _json({"error": str(error)})
        except Exception:
            log.exception("an operator's request failed")
            status, kind, body = HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"Internal Server Error\n"
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, POST" if self.actions else "Allow: GET")
        return "\r\n".join([*lines, "", ""]).encode() + body

    async def _act(self, reader: asyncio.StreamReader, request: _Request) -> tuple[HTTPStatus, str, bytes]:
        """Only for who may read the node's folder: a page in somebody's browser cannot know the token."""
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not self.token or not hmac.compare_digest(shown.encode(), self.token.encode()):
            raise _BadRequest(HTTPStatus.UNAUTHORIZED, "the token is wrong")
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _BODY_BYTES:
            raise _BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            async with asyncio.timeout(self._request_s):
                asked = json.loads(await reader.readexactly(int(length)))
        except TimeoutError:
            raise _BadRequest(HTTPStatus.REQUEST_TIMEOUT) from None
        except (ValueError, asyncio.IncompleteReadError):
            raise _BadRequest(HTTPStatus.BAD_REQUEST) from None
        if not isinstance(asked, dict):
            raise _BadRequest(HTTPStatus.BAD_REQUEST)
        return HTTPStatus.OK, _JSON, _json(self.actions[request.path](asked))

    async def _request(self, reader: asyncio.StreamReader) -> _Request:
        """A request whose head arrived whole, in time and within the limit."""
        try:
            async with asyncio.timeout(self._request_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            raise _BadRequest(HTTPStatus.REQUEST_TIMEOUT) from None
        except asyncio.LimitOverrunError:
            raise _BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
        except asyncio.IncompleteReadError:
            raise _BadRequest(HTTPStatus.BAD_REQUEST) from None
        try:
            line, _, rest = head.partition(b"\r\n")
            method, target, version = line.decode("ascii").split(" ")
        except ValueError:
            raise _BadRequest(HTTPStatus.BAD_REQUEST) from None
        if not version.startswith("HTTP/1.") or not target.startswith("/") or not method.isalpha():
            raise _BadRequest(HTTPStatus.BAD_REQUEST)
        pairs = (other.partition(":") for other in rest.decode("latin-1").split("\r\n"))
        return _Request(method, target, {name.lower(): value.strip() for name, _, value in pairs})

    def _healthz(self) -> tuple[HTTPStatus, str, bytes]:
        trouble = self._healthy()
        if trouble is None:
            return HTTPStatus.OK, _TEXT, b"ok\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{trouble}\n".encode()

    def _metrics_page(self) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self._metrics.render()

    def _status_page(self) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, _JSON, _json(self._status())


def _json(value: object) -> bytes:
    return json.dumps(value, default=str, indent=1).encode() + b"\n"


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Lets the client read the answer: a socket closed with unread bytes would reset the connection
    instead."""
    await writer.drain()
    writer.write_eof()
    left = _LINGER_BYTES
    while left > 0 and (data := await reader.read(65536)):
        left -= len(data)
