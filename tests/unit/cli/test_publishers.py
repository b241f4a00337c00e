"""Commands for publishers, where something else answers."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Iterator

import pytest

from qanat.cli.main import main

ASKING = [
    ["monitor", "--once"],
    ["flows"],
    ["caravans"],
    ["applications"],
    ["publisher", "limits"],
    ["publisher", "limits", "near=7"],
    ["move", "cache", "--release"],
]


class _Server(http.server.BaseHTTPRequestHandler):
    """What the HTTP of a server of streams says, as far as it is asked here."""

    status = b'{"name": "local/server-1", "streams": []}'

    def do_GET(self) -> None:
        status = self.path == "/status"
        body = self.status if status else b"Not Found"
        self.send_response(200 if status else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Starting(_Server):
    status = (
        b'{"name": "db-1/publisher", "state": "starting", "log": "", "log_problem": "the server is away"}'
    )


class _Stranger(socketserver.StreamRequestHandler):
    """Speaks first, and no HTTP."""

    def handle(self) -> None:
        self.wfile.write(b"\x00\x00\x00\x08QANAT\x00\x01\x02\r\n")


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), request.param) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
@pytest.mark.parametrize("address", [_Server], indirect=True)
def test_a_server_of_streams_is_no_publisher(
    address: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the same port by default, and some of the same pages."""
    assert main([*words, "--publisher", f"http://{address}"]) in (1, 3)
    told = capsys.readouterr()
    assert "no publisher" in told.out + told.err


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
@pytest.mark.parametrize("address", [_Stranger], indirect=True)
def test_another_protocol_is_said(address: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--publisher", f"http://{address}"]) == 3
    told = capsys.readouterr()
    assert f"no publisher answers at http://{address} (another protocol answers there)" in told.out + told.err


@pytest.mark.parametrize("address", [_Starting], indirect=True)
def test_a_publisher_that_waits_for_its_datastore_says_so(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["caravans", "--publisher", f"http://{address}"]) == 3
    assert "is starting and waits: the server is away" in capsys.readouterr().err


def test_a_publisher_is_asked_by_http(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flows", "--publisher", "qanat://127.0.0.1:7421"]) == 2
    assert (
        "is no HTTP address: give that of the publisher's admin.port, as http://127.0.0.1:7422"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "words",
    [["monitor", "--every", "0"], ["monitor", "--every", "-1"], ["flows", "--caravan", "x"]],
    ids=" ".join,
)
def test_numbers_that_cannot_be(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert f"not '{words[-1]}'" in capsys.readouterr().err
