"""What a pipeline needs is looked at before Spark is started: mistakes end it at once, and who is away is
named at once."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from qanat.capture.errors import LogUnreachable
from qanat.cli.main import main
from qanat.client import Unavailable
from qanat.pipeline import preparing, running
from qanat.pipeline.pipeline_file import absolute
from qanat.pipeline.preparing import prepare

NOWHERE = "qanat://127.0.0.1:1"
FILE = """\
url = "{url}"
[sources.store]
log = "{log}"
[[routes]]
stream = "s"
[ingest]
patience_s = {patience_s}
"""


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(running, "open_session", never)
    monkeypatch.setattr(preparing, "_PAUSE_S", 0.01)


def run(folder: Path, log: str, *, url: str = NOWHERE, patience_s: float = 1) -> int:
    (folder / "shop.toml").write_text(FILE.format(url=url, log=log, patience_s=patience_s))
    return main(["pipeline", "run", str(folder / "shop.toml")])


def test_a_datastore_that_is_not_there_ends_it_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, f"rocksdb://{tmp_path}/store", patience_s=300) == 2
    assert "is not the folder of a RocksDB: there is no file CURRENT in it" in capsys.readouterr().err


def test_a_mistake_in_the_file_ends_it_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "rocksdbs:///store", patience_s=300) == 2
    assert "did you mean rocksdb://?" in capsys.readouterr().err


def test_a_server_that_is_away_is_named_waited_for_and_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, f"file://{tmp_path}/*.jsonl") == 3
    assert [
        record.getMessage().startswith("the streams' server is away: no server at qanat://127.0.0.1:1")
        for record in caplog.records
    ] == [True]
    assert "waiting for up to 1 s" in caplog.text
    assert "no server at qanat://127.0.0.1:1" in capsys.readouterr().err


def test_a_datastore_that_comes_back_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries, doing = [0], list[str]()

    def look(source: str) -> None:
        tries[0] += 1
        if tries[0] < 3:
            raise LogUnreachable("connection refused")

    monkeypatch.setattr(preparing, "_look", look)
    monkeypatch.setattr(preparing, "Client", lambda url, patience: Closed())
    with caplog.at_level(logging.WARNING):
        prepare({"shop": "mariadb://me@there/shop"}, NOWHERE, 60, threading.Event(), doing.append)
    assert [record.getMessage() for record in caplog.records] == [
        "source shop is away: connection refused; waiting for up to 60 s",
        "source shop is back",
    ]
    assert doing == ["looking at source shop, mariadb://me@there/shop", f"asking the server at {NOWHERE}"]


class Closed:
    def close(self) -> None: ...


def test_who_waits_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()

    def look(source: str) -> None:
        stopping.set()
        raise LogUnreachable("connection refused")

    monkeypatch.setattr(preparing, "_look", look)
    began = time.monotonic()
    prepare({"shop": "mariadb://me@there/shop"}, NOWHERE, 1e9, stopping, lambda _: None)
    assert time.monotonic() >= began


def test_a_client_without_patience_is_what_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable):
        prepare({}, NOWHERE, 0, threading.Event(), lambda _: None)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("file:orders.jsonl?key=a", "file:///srv/a%20b/orders.jsonl?key=a"),
        ("file:///var/log/*.json", "file:///var/log/*.json"),
        ("file:/var/log/*.json", "file:/var/log/*.json"),
        ("mariadb://me@there/shop", "mariadb://me@there/shop"),
    ],
)
def test_files_may_be_named_from_the_pipelines_folder_on(given: str, meant: Any) -> None:
    assert absolute(given, Path("/srv/a b")) == meant
