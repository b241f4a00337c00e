"""A real process: signals, reload, and HTTP by raw sockets."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.waiting import DEADLINE_S, wait_until

PROGRAM = """
import asyncio, sys
from qanat.runtime.config import load
from qanat.runtime.connection import Connection
from qanat.runtime.listener import listen
from qanat.runtime.loop import run
from qanat.runtime.node import Node
from qanat.runtime.node_settings import Settings
from qanat.runtime.service import Service

class Echo(Service):
    def on_frame(self, connection, frame):
        connection.send(frame.type, 1, frame.control, [frame.attachment])

class EchoNode(Node):
    async def on_start(self):
        self.listener = await listen(
            "127.0.0.1", 0, self.identity, {1: Echo()}, settings=self.settings.transport, traffic=self.traffic
        )
    async def on_stop(self):
        await self.listener.close()
        if "hang" in sys.argv:
            await asyncio.sleep(3600)
        print("drained", flush=True)
    def on_reload(self, applied):
        self.listener.reload(self.settings.transport)
    def status(self):
        return {"port": self.listener.port, "heartbeat_ms": self.settings.transport.heartbeat_ms}

async def main():
    node = EchoNode(lambda: load(Settings, file=sys.argv[1]))
    clean = await node.serve(lambda: print(f"ready {node.admin.port}", flush=True))
    print("clean" if clean else "cut short", flush=True)
    return 0 if clean else 1

sys.exit(run(main))
"""


class Process:
    def __init__(self, folder: Path, config: str, *arguments: str) -> None:
        self.config = folder / "node.toml"
        self.config.write_text(config)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, str(program), str(self.config), *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={k: v for k, v in os.environ.items() if not k.startswith("QANAT_")},
            )
        assert self.popen.stdout is not None
        self.stdout = self.popen.stdout
        word, _, port = self.stdout.readline().partition(" ")
        assert word == "ready", self.log.read_text()
        self.port = int(port)

    def http(self, request: bytes, *, then_wait: bool = True) -> tuple[int, dict[str, str], bytes]:
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_S) as sock:
            sock.sendall(request)
            if not then_wait:
                sock.shutdown(socket.SHUT_WR)
            data = b""
            while part := sock.recv(65536):
                data += part
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        assert int(headers["content-length"]) == len(body)
        return int(first.split()[1]), headers, body

    def get(self, path: str) -> tuple[int, bytes]:
        status, _, body = self.http(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return status, body

    def until(self, condition: Callable[[], object]) -> None:
        wait_until(condition, say=self.log.read_text)

    def end(self) -> str:
        rest = self.stdout.read()
        self.popen.wait(DEADLINE_S)
        return rest


CONFIG = "[admin]\nport = 0\nrequest_ms = 300\n[transport]\nheartbeat_ms = 1000\n[node]\nstop_ms = 300\n"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    running: list[Process] = []

    def make(*arguments: str) -> Process:
        running.append(Process(tmp_path, CONFIG, *arguments))
        return running[-1]

    yield make
    for process in running:
        process.popen.kill()
        process.popen.wait()
        process.stdout.close()


def test_admin_pages(start: Callable[..., Process]) -> None:
    process = start()
    assert process.get("/healthz") == (200, b"ok\n")
    status, body = process.get("/status?pretty")
    assert status == 200
    assert json.loads(body)["state"] == "ready"
    status, headers, body = process.http(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"qanat_transport_connections 0.0" in body


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /status HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE /status HTTP/1.1\r\n\r\n", 405),
        (b"GET /status\r\n\r\n", 400),
        (b"GET status HTTP/1.1\r\n\r\n", 400),
        (b"GET /status SMTP/1.1\r\n\r\n", 400),
        (b"\xff\xfe\xfd GET\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 200_000, 431),
        (b"GET /status HT", 408),
        (b"", 408),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else str(value),
)
def test_bad_requests(start: Callable[..., Process], request_: bytes, status: int) -> None:
    process = start()
    got, headers, _ = process.http(request_)
    assert got == status
    assert (headers.get("allow") == "get") == (status == 405)
    assert process.get("/healthz")[0] == 200


def test_half_a_request_and_gone(start: Callable[..., Process]) -> None:
    process = start()
    assert process.http(b"GET /sta", then_wait=False)[0] == 400


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_graceful_stop(start: Callable[..., Process], number: signal.Signals) -> None:
    process = start()
    port = json.loads(process.get("/status")[1])["port"]
    with socket.create_connection(("127.0.0.1", port)) as peer:
        process.popen.send_signal(number)
        while peer.recv(1000):
            pass
    assert process.end() == "drained\nclean\n"
    assert process.popen.returncode == 0


def test_a_stop_that_hangs_is_cut_short(start: Callable[..., Process]) -> None:
    process = start("hang")
    process.popen.terminate()
    assert process.end() == "cut short\n"
    assert process.popen.returncode == 1
    assert "took too long" in process.log.read_text()


def test_reload_on_sighup(start: Callable[..., Process]) -> None:
    process = start()

    def heartbeat() -> int:
        return int(json.loads(process.get("/status")[1])["heartbeat_ms"])

    assert heartbeat() == 1000
    process.config.write_text(CONFIG.replace("1000", "777") + 'name = "other"\n')
    process.popen.send_signal(signal.SIGHUP)
    process.until(lambda: heartbeat() == 777)
    process.until(lambda: "some changes need a restart keys=node.name" in process.log.read_text())
    process.config.write_text("[transport]\nhartbeat_ms = 5\n")
    process.popen.send_signal(signal.SIGHUP)
    process.until(lambda: "did you mean `transport.heartbeat_ms`" in process.log.read_text())
    assert heartbeat() == 777
    status, body = process.get("/metrics")
    assert status == 200
    assert b'qanat_config_reloads_total{result="refused"} 1.0' in body
