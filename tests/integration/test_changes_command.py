"""`qanat changes` on real processes: printed, checked, and fed into a stream exactly once while both sides
are killed."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.integration.feeding import PATIENT, fed, feed_through_kills

from qanat.capture.rebuild import updates_of
from qanat.cli.main import main
from qanat.client import Client

_KILLS = 9


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def changes(capsys: pytest.CaptureFixture[str], *words: str) -> Done:
    """The command in this process, which is faster to begin than one of its own."""
    code = main(["changes", *words])
    return Done(code, *capsys.readouterr())


@pytest.fixture
def served(server_process: Any) -> Any:
    server_process.start()
    with Client(server_process.url) as client:
        client.publish_many(
            "prices",
            [b"one", b"two", b"three"],
            keys=[b"a", b"b", b"a"],
            attributes={"price": pa.array([1, 2, 3]), "venue": pa.array(["X", None, "Y"])},
        )
    return server_process


def test_changes_of_a_stream_are_printed(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    done = changes(
        capsys, f"{served.url}/prices", "--from", "earliest", "--count", "3", "--shard-by", "venue"
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["position"] for line in lines] == ["1:0", "2:0", "3:0"]
    assert [line.get("shard") for line in lines] == ["X", None, "Y"]
    assert lines[1]["after"] == {"@key": "Yg==", "@payload": "dHdv", "price": 2, "venue": None}
    done = changes(
        capsys,
        f"{served.url}/prices",
        "--from",
        "1:0",
        "--until-end",
        "--where",
        "price in 3..9",
        "--format",
        "debezium",
    )
    assert done.returncode == 0, done.stderr
    (line,) = map(json.loads, done.stdout.splitlines())
    assert (line["op"], line["after"]["price"], line["source"]["position"]) == ("c", 3, "3:0")


def test_a_set_up_is_checked(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    done = changes(capsys, f"{served.url}/prices", "--check")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "the set-up is sound")
    done = changes(capsys, f"{served.url}/other", "--check")
    assert done.returncode == 1
    assert "NEEDED   there is a stream other" in done.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["oracle://me:secret@h/x"], "no log is read by the scheme 'oracle'"),
        (["qanat://127.0.0.1:1"], "name one stream after the host"),
        (["qanat://127.0.0.1:1/s?tabels=x"], "there is no option 'tabels'; there are dataset, where"),
        (["qanat://127.0.0.1:1/s", "--from", "yesterday"], "--from yesterday: give a position"),
        (["qanat://127.0.0.1:1/s", "--where", "a ="], "filter error"),
        (["qanat://127.0.0.1:1/s", "--where", "same key"], "garbage collection"),
        (["qanat://127.0.0.1:1/s", "--shard-by", "hash:x"], "number of shards"),
    ],
)
def test_wrong_words_are_said_in_a_sentence(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = changes(capsys, *words)
    assert done.returncode == 2
    said = done.stderr
    assert reason in said
    assert "Traceback" not in said
    assert "secret" not in said


def test_updates_pass_through_streams_with_their_types(
    served: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    into = ("--into", "copy", "--url", served.url, "--until-end")
    assert changes(capsys, f"{served.url}/prices?dataset=prices", *into).returncode == 0
    again = changes(capsys, f"{served.url}/prices?dataset=prices", *into)
    assert "0 events into copy" in again.stderr
    assert (
        changes(
            capsys, f"{served.url}/copy?dataset=copy", "--into", "copies", "--url", served.url, "--until-end"
        ).returncode
        == 0
    )
    with Client(served.url) as client, client.subscribe("copies", start="earliest") as found:
        rows = [row for batch in found.take() for row in updates_of(batch).rows()]
    assert [row.after and row.after["@payload"] for row in rows] == [b"one", b"two", b"three"]
    assert [row.after and row.after["price"] for row in rows] == [1, 2, 3]


@pytest.mark.paper("W2")
def test_a_stream_is_fed_exactly_once_while_both_sides_are_killed(
    server_process: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server_process.start()
    stop = threading.Event()
    published: list[bytes] = []

    def produce() -> None:
        with Client(server_process.url, settings=PATIENT) as client:
            while not stop.wait(0.02):
                fresh = [b"%d" % (len(published) + i) for i in range(200)]
                client.publish_many("from", fresh)
                published.extend(fresh)

    producer = threading.Thread(target=produce)
    producer.start()
    command = [sys.executable, "-m", "qanat", "changes", f"{server_process.url}/from?dataset=from"]
    command += ["--into", "to", "--url", server_process.url]
    try:
        feed_through_kills(
            command, "to", server_process, seed=11, kills=_KILLS, server_share=0.4, growth=2000
        )
    finally:
        stop.set()
        producer.join()
    done = changes(
        capsys,
        f"{server_process.url}/from?dataset=from",
        "--into",
        "to",
        "--url",
        server_process.url,
        "--until-end",
    )
    assert done.returncode == 0, done.stderr
    assert len(published) > 0
    assert [row.after["@payload"] for row in fed(server_process.url, "to") if row.after] == published
