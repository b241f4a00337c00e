"""What a command tells the supervisor and how it answers: one line of JSON each way over loopback.

The port and a random token stand in the deployment's folder, which only its owner can read.
"""

import asyncio
import hmac
import json
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from qanat.events.errors import LocalError, QanatError, RemoteError
from qanat.operate.home import Home, NotRunning
from qanat.operate.layout import HOST

log = logging.getLogger("qanat.supervisor")

_LINE_BYTES = 4 << 20
_PATIENCE_S = 60.0

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class NoSuch(LocalError):
    """What was named is not there: a mistake in the words, not a refusal."""


class ControlServer:
    """Calls `handler` with each request; a `QanatError` from it is the answer, as its sentence."""

    def __init__(self, handler: Handler) -> None:
        self.token = secrets.token_hex(16)
        self.port = 0
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=_LINE_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await self._answer(await reader.readline())
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            writer.transport.abort()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except ValueError:
            request = None
        if not isinstance(request, dict) or "token" not in request or "do" not in request:
            return {"error": "this is no request"}
        if not hmac.compare_digest(str(request.pop("token")).encode(), self.token.encode()):
            return {"error": "the token is wrong"}
        try:
            return await self._handler(request)
        except NoSuch as error:
            return {"error": str(error), "no_such": True}
        except QanatError as error:
            return {"error": str(error)}
        except OSError as error:
            return {"error": f"the supervisor could not do it: {error}"}
        except (
            Exception
        ):  # a fault of ours: whoever asked is told, and the nodes are watched over all the same
            log.exception("a request failed", extra={"request": request.get("do")})
            return {"error": "the supervisor failed at it; see supervisor.log"}


class Declined(LocalError):
    """The supervisor did not do it, and says why."""

    exit_code = 1


def call(home: Home, do: str, **details: Any) -> dict[str, Any]:
    """One request to the supervisor of a folder, and its answer."""
    state = home.supervised
    if state is None:
        raise NotRunning(f"no deployment runs in {home.folder}; start it with `qanat up`")
    try:
        with socket.create_connection((HOST, state.port), timeout=_PATIENCE_S) as link:
            link.sendall(json.dumps({"do": do, "token": state.token, **details}).encode() + b"\n")
            with link.makefile("rb") as file:
                line = file.readline()
    except OSError as error:
        raise RemoteError(f"the supervisor of {home.folder} does not answer: {error}") from None
    if not line:
        raise RemoteError(f"the supervisor of {home.folder} did not answer; see {home.log_file}")
    answer: dict[str, Any] = json.loads(line)
    if "no_such" in answer:
        raise NoSuch(str(answer["error"]))
    if "error" in answer:
        raise Declined(str(answer["error"]))
    return answer
