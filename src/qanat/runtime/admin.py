"""HTTP for operators, on localhost: `/healthz`, `/metrics`, `/status`. GET only, small, bounded."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus

from qanat.events.errors import LocalError
from qanat.runtime.metrics import Metrics
from qanat.runtime.node_settings import AdminSettings
from qanat.runtime.url import format_address

log = logging.getLogger("qanat.admin")

_REQUEST_BYTES = 8 * 1024
_CONNECTIONS = 64
_LINGER_BYTES = 1024 * 1024
_TEXT = "text/plain; charset=utf-8"

Handler = Callable[[], tuple[HTTPStatus, str, bytes]]


class _BadRequest(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Admin:
    """The HTTP server of a node.

    `status()` gives what `/status` shows as JSON; `healthy()` gives None, or why the node is not.
    One request per connection, at most 8 KiB and 64 connections at a time.
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
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._request_s = 5.0
        self._routes: dict[str, Handler] = {
            "/healthz": self._healthz,
            "/metrics": self._metrics_page,
            "/status": self._status_page,
        }

    async def start(self, settings: AdminSettings) -> None:
        self._request_s = settings.request_ms / 1000
        try:
            self._server = await asyncio.start_server(
                self._serve, settings.host, settings.port, limit=_REQUEST_BYTES
            )
        except (OSError, socket.gaierror) as error:
            raise LocalError(
                f"cannot serve HTTP on {format_address(settings.host, settings.port)}: {error.strerror or error};"
                " set admin.port to another (0 takes any free one)"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with asyncio.timeout(2 * self._request_s):
                writer.write(await self._answer(reader))
                await _linger(reader, writer)
        except (TimeoutError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            if len(self._tasks) > _CONNECTIONS:
                raise _BadRequest(HTTPStatus.SERVICE_UNAVAILABLE)
            method, path = await self._request(reader)
            if method != "GET":
                raise _BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
            route = self._routes.get(path)
            if route is None:
                raise _BadRequest(HTTPStatus.NOT_FOUND)
            status, kind, body = route()
        except _BadRequest as error:
            status, kind, body = error.status, _TEXT, f"{error.status.phrase}\n".encode()
            if status == HTTPStatus.NOT_FOUND:
                body = f"Not Found; there are {', '.join(self._routes)}\n".encode()
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
            lines.append("Allow: GET")
        return "\r\n".join([*lines, "", ""]).encode() + body

    async def _request(self, reader: asyncio.StreamReader) -> tuple[str, str]:
        """Method and path of a request whose head arrived whole, in time and within the limit."""
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
            line = head.split(b"\r\n", 1)[0].decode("ascii")
            method, target, version = line.split(" ")
        except ValueError:
            raise _BadRequest(HTTPStatus.BAD_REQUEST) from None
        if not version.startswith("HTTP/1.") or not target.startswith("/") or not method.isalpha():
            raise _BadRequest(HTTPStatus.BAD_REQUEST)
        return method, target.partition("?")[0]

    def _healthz(self) -> tuple[HTTPStatus, str, bytes]:
        trouble = self._healthy()
        if trouble is None:
            return HTTPStatus.OK, _TEXT, b"ok\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{trouble}\n".encode()

    def _metrics_page(self) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self._metrics.render()

    def _status_page(self) -> tuple[HTTPStatus, str, bytes]:
        body = json.dumps(self._status(), default=str, indent=1).encode() + b"\n"
        return HTTPStatus.OK, "application/json", body


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Lets the client read the answer: a socket closed with unread bytes would reset the connection instead."""
    await writer.drain()
    writer.write_eof()
    left = _LINGER_BYTES
    while left > 0 and (data := await reader.read(65536)):
        left -= len(data)
