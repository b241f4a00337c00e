"""The blocking client, and the commands, against a server process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from qanat.client import Client, ClientClosed, NoStream, Unavailable
from qanat.events.errors import LocalError


def qanat(
    *words: str, text: str = "", code: int = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "qanat", *words], input=text, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stderr
    return done


def test_publish_and_subscribe_without_async(server_process: Any) -> None:
    server_process.start()
    with Client(server_process.url) as client:
        assert client.publish("s", b"one", key=b"k", attributes={"n": 1}) == 1
        assert client.publish_many("s", [b"two", b"three"]) == (2, 3)
        with client.subscribe("s", start="earliest") as source:
            assert [next(source).payload for _ in range(3)] == [b"one", b"two", b"three"]
            assert source.take(timeout_s=0.01) == []
        with client.subscribe("s", start=2, where="not exists n") as source:
            assert [next(source).seq for _ in range(2)] == [2, 3]
        assert client.ask("status")["state"] == "ready"
    with pytest.raises(ClientClosed):
        client.publish("s", b"late")


def test_several_threads_share_a_client(server_process: Any) -> None:
    server_process.start()
    with Client(server_process.url) as client:
        threads = [
            threading.Thread(target=lambda: [client.publish("s", b"x") for _ in range(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with client.subscribe("s", start=1) as source:
            assert [next(source).seq for _ in range(200)] == list(range(1, 201))


def test_errors_reach_the_caller(server_process: Any) -> None:
    with pytest.raises(Unavailable, match="is the server running"):
        Client("qanat://127.0.0.1:1", patience=0)
    server_process.start()
    with Client(server_process.url) as client:
        with pytest.raises(LocalError, match="list of bytes"):
            client.publish_many("s", "text")
        assert client.publish("s", b"") == 1


def test_the_commands(server_process: Any, tmp_path: Path) -> None:
    server_process.start()
    at = ("--url", server_process.url)
    assert qanat("streams", *at).stdout.startswith("no streams yet")
    done = qanat("pub", "lines", *at, "--json", text="one\ntwo\r\nthree")
    server = {"server": {"url": server_process.url, "because": "--url"}}
    assert json.loads(done.stdout) == {"stream": "lines", "published": 3, "first": 1, "last": 3} | server
    assert (
        qanat("sub", "lines", *at, "--from", "earliest", "--count", "3").stdout
        == "1\tone\n2\ttwo\n3\tthree\n"
    )
    qanat("pub", "prices", *at, "--key-field", "1", text="a,1\nb,2\n")
    qanat("pub", "prices", *at, "--key", "c", "--count", "1", text="3\nnot this\n")
    rows = [
        json.loads(line)
        for line in qanat("sub", "prices", *at, "--from", "1", "--until-end", "--json").stdout.splitlines()
    ]
    assert [(row["key"], row["payload"]) for row in rows] == [("a", "a,1"), ("b", "b,2"), ("c", "3")]
    filtered = qanat("sub", "prices", *at, "--from", "1h", "--where", "@key in (a, c)", "--until-end").stdout
    assert filtered == "1\ta\ta,1\n3\tc\t3\n"
    qanat("pub", "made-up", *at, "--count", "25000", "--size", "10")
    qanat("pub", "named", *at, "--name", "importer", text="1\n2\n")
    again = qanat("pub", "named", *at, "--name", "importer", "--json", text="1\n2\n3\n")
    assert json.loads(again.stdout) == {"stream": "named", "published": 1, "first": 3, "last": 3} | server
    qanat("pub", "named", *at, "--collects", "upto 2", text="gone\n")
    listed = {row["stream"]: row["next"] - 1 for row in json.loads(qanat("streams", *at, "--json").stdout)}
    assert listed == {"lines": 3, "prices": 3, "made-up": 25_000, "named": 4}
    assert "made-up" in qanat("status", *at).stdout
    assert json.loads(qanat("status", *at, "--json").stdout)["data"] == str(server_process.data)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("sub", "s", "--where", "a = "), 2, "^"),
        (("sub", "s", "--from", "yesterday"), 2, "give earliest, latest"),
        (("sub", "s", "--create", "--from", "77"), 2, "is not there yet"),
        (("pub", "s", "--key-field", "3"), 2, "has 1 fields"),
        (("pub", "s", "--collects", "upto"), 2, "filter error"),
        (("pub", "x" * 300), 2, "1 to 255"),
    ],
)
def test_wrong_usage_says_what_to_do(
    server_process: Any, words: tuple[str, ...], code: int, says: str
) -> None:
    server_process.start()
    assert says in qanat(*words, "--url", server_process.url, text="line\n", code=code).stderr


def test_a_name_that_no_stream_has_is_told_with_those_that_are_near(server_process: Any) -> None:
    """A server alone makes what is published to; what is read must be there."""
    server_process.start()
    at = ("--url", server_process.url)
    none = qanat("sub", "weather", *at, "--until-end", code=2).stderr
    assert "there is no stream 'weather' at the server at" in none
    assert "there are none yet. --create makes it" in none
    made = qanat("pub", "weather", *at, text="rain\n").stderr
    assert "weather is a new stream at the server at" in made
    assert "new stream" not in qanat("pub", "weather", *at, text="snow\n").stderr
    assert "did you mean weather?" in qanat("sub", "wether", *at, code=2).stderr
    assert "wether is a new stream" in (said := qanat("pub", "wether", *at, text="hail\n").stderr)
    assert "did you mean weather?" in said
    assert "new stream" not in qanat("pub", "quiet", "--create", *at, text="sun\n").stderr
    assert "there are quiet, weather, wether." in qanat("sub", "zzz", *at, code=2).stderr
    assert qanat("sub", "awaited", "--create", "--until-end", *at).stdout == ""
    with Client(server_process.url) as client:
        assert {each["stream"] for each in client.ask("streams")} == {"awaited", "quiet", "weather", "wether"}
        with pytest.raises(NoStream, match="there is no stream 'zzz'"):
            client.ask("stream", "zzz")
        assert client.ask("stream", "weather")["next"] == 3


def test_no_server_is_exit_code_3() -> None:
    impatient = ("--patience", "0")
    for words in (("status",), ("streams",), ("sub", "s", *impatient), ("pub", "s", *impatient)):
        assert "is the server running?" in qanat(*words, "--url", "127.0.0.1:1", code=3).stderr


def test_serve_refuses_what_it_cannot_do(tmp_path: Path, server_process: Any) -> None:
    server_process.start()
    other = ("--admin-port", "0", "--data", str(tmp_path / "other"))
    taken = qanat("serve", "--listen", f"127.0.0.1:{server_process.port}", *other, code=2)
    assert "is another process there?" in taken.stderr
    busy = qanat(
        "serve", "--listen", "127.0.0.1:0", "--admin-port", "0", "--data", str(server_process.data), code=2
    )
    assert "in use by another server" in busy.stderr
    assert (
        "did you mean `transport.heartbeat_ms`"
        in qanat("serve", "--set", "transport.heartbet_ms=1", code=2).stderr
    )
