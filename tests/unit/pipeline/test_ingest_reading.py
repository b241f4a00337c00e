"""What a task reads is read ahead, in order, within a limit, and not beyond where it stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.servers.rocksdb import batch, database, log_file, put, write_log
from tests.waiting import wait_until

from qanat.capture.updates import Updates
from qanat.events.position import Position
from qanat.pipeline.changes.log import Log
from qanat.pipeline.changes.offsets import Offset
from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.ingest.failures import Disagreement, Outage, kind_of
from qanat.pipeline.ingest.reading import Undecoded, ahead, items


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "qanat-reading"]


def test_everything_comes_in_order_and_then_the_thread_is_gone() -> None:
    assert list(ahead(iter(range(1, 1000)), 3)) == list(range(1, 1000))
    assert not readers()


def test_so_much_is_made_before_it_is_asked_for_and_no_more() -> None:
    made: list[int] = []

    def source() -> Iterator[int]:
        for number in range(1, 100):
            made.append(number)
            yield number

    with closing(ahead(source(), 2)) as items:
        for taken in range(1, 6):
            assert next(items) == taken
            wait_until(lambda taken=taken: len(made) == taken + 2)  # type: ignore[misc]
    assert made == list(range(1, 8))
    assert not readers()


def test_a_failure_comes_behind_what_was_made_before_it() -> None:
    def source() -> Iterator[int]:
        yield from (1, 2, 3)
        raise OSError("the log is away")

    got: list[int] = []
    with pytest.raises(OSError, match="the log is away"), closing(ahead(source(), 8)) as items:
        got.extend(items)
    assert got == [1, 2, 3]
    assert not readers()


def log_of(folder: Path) -> Log:
    log = Log(ChangesOptions(f"rocksdb://{folder}"))
    log.go(Offset(log.reader.source, Position(0, 0), Position(0, 0)))
    return log


def test_a_record_that_cannot_be_decoded_comes_in_its_place_and_costs_nothing_else(tmp_path: Path) -> None:
    folder = database(tmp_path / "db")
    bad = batch(2, b"\x7e")
    write_log(
        folder, 4, log_file([batch(1, put(b"a", b"1")), bad, batch(3, put(b"c", b"3")), batch(4, b"\x7e")])
    )
    found: list[object] = []
    for item in items(log_of(folder), Position(4, 0), 1000):
        if isinstance(item, Undecoded):
            found.append((item.position, item.error.original))
        else:
            assert isinstance(item, Updates)
            found += [one.position for one in item.rows()]
    assert found == [
        Position(1, 0),
        (Position(2, 0), bad),
        Position(3, 0),
        (Position(4, 0), batch(4, b"\x7e")),
    ]


def test_a_log_that_is_damaged_stops_the_pipeline_with_what_to_do(tmp_path: Path) -> None:
    folder = database(tmp_path / "db")
    whole = log_file([batch(1, put(b"a", b"1")), batch(2, put(b"b", b"2")), batch(3, put(b"c", b"3"))])
    first = len(log_file([batch(1, put(b"a", b"1"))]))
    write_log(folder, 4, whole[: first + 8] + bytes([whole[first + 8] ^ 1]) + whole[first + 9 :])
    found: list[object] = []
    with pytest.raises(Disagreement, match=r"cannot be read on after 1:0: .*checksum.* Repair it") as raised:
        found.extend(items(log_of(folder), Position(3, 0), 1000))
    assert len(found) == 1
    assert kind_of(raised.value) is not Outage  # it is not waited for
    assert raised.value.exit_code == 1
