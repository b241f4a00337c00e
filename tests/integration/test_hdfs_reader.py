"""Record files on a real NameNode and DataNode: followed while they are open, rotated, renamed, removed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.servers.hdfs import HdfsServer, HdfsWriter, hdfs_server

from qanat.capture import LogReader, Lost, Start
from qanat.capture.errors import LogUnreachable
from qanat.capture.files.positions import end_of, place_of
from qanat.capture.url import check, open_reader
from qanat.events.position import Position

pytestmark = [pytest.mark.server("hdfs"), pytest.mark.paper("W1")]


@pytest.fixture(scope="module")
def server() -> Iterator[HdfsServer]:
    with hdfs_server() as started:
        yield started


@pytest.fixture(scope="module")
def writer(server: HdfsServer) -> Iterator[HdfsWriter]:
    with closing(HdfsWriter(server.address)) as started:
        yield started


def lines(*numbers: int) -> bytes:
    return b"".join(json.dumps({"n": number}).encode() + b"\n" for number in numbers)


def take(log: LogReader, count: int) -> list[Any]:
    """So many numbers and losses, as soon as they are there."""
    got: list[Any] = []
    deadline = time.monotonic() + 60
    while len(got) < count:
        assert time.monotonic() < deadline, got
        answer = log.read(count - len(got), 1)
        if isinstance(answer, Lost):
            got.append(answer)
        else:
            got += [(update.after or {})["n"] for update in answer.rows()]
    return got


def opened(server: HdfsServer, folder: str, start: Start = "earliest") -> LogReader:
    log = open_reader(f"{server.address}/{folder}/*.jsonl", settle_s=0.2)
    log.seek(start)
    return log


def test_a_file_is_followed_while_it_is_open_and_into_the_next(
    server: HdfsServer, writer: HdfsWriter
) -> None:
    writer.append("/logs/a.jsonl", lines(1, 2))
    with closing(opened(server, "logs")) as log:
        assert take(log, 2) == [1, 2]
        for number in (3, 4, 5):
            writer.append("/logs/a.jsonl", lines(number)[:5])
            assert not log.read(10)
            writer.append("/logs/a.jsonl", lines(number)[5:])
            assert take(log, 1) == [number]
        assert place_of(log.latest()) == (1, len(lines(1, 2, 3, 4)))
        writer.do("close", "/logs/a.jsonl")
        writer.append("/logs/b.jsonl", lines(6))
        assert take(log, 1) == [6]
        writer.append("/logs/b.jsonl", lines(7))
        assert take(log, 1) == [7]
        writer.do("close", "/logs/b.jsonl")
        writer.append("/logs/b.jsonl", lines(8))  # closed files may be opened again
        assert take(log, 1) == [8]
        for at, number in enumerate(range(1, 8)):
            log.seek(Position(place_sequence(at)))
            assert take(log, 8 - number) == list(range(number + 1, 9))
        for finding in check(f"{server.address}/logs/*.jsonl"):
            assert finding.ok, finding


def place_sequence(at: int) -> int:
    """Of the record of this place among 1 to 5 in the first file, 6 to 8 in the second."""
    number, row = (1, at) if at < 5 else (2, at - 5)
    return number << 40 | row * len(lines(1))


@pytest.mark.paper("W13")
def test_files_that_are_removed_or_renamed(server: HdfsServer, writer: HdfsWriter) -> None:
    for name, numbers in (("a", (1, 2)), ("b", (3, 4)), ("c", (5, 6, 7))):
        writer.append(f"/gone/{name}.jsonl", lines(*numbers))
        writer.do("close", f"/gone/{name}.jsonl")
    with closing(opened(server, "gone")) as log:
        assert take(log, 1) == [1]
        position = Position(1 << 40)
        writer.do("rename", "/gone/a.jsonl", "/gone/d.jsonl")
        log.seek(position)
        assert take(log, 1) == [2]
        writer.do("delete", "/gone/b.jsonl")
        log.seek(Position((1 << 40) + len(lines(1))))
        lost, *rest = take(log, 4)
        assert (lost.after, lost.upto) == (Position((1 << 40) + len(lines(1))), end_of(2))
        assert rest == [5, 6, 7]


@pytest.mark.paper("W13")
@pytest.mark.parametrize("resumed", [False, True])
def test_a_file_that_was_cut_is_lost_from_there_and_read_on(
    server: HdfsServer, writer: HdfsWriter, resumed: bool
) -> None:
    folder = f"cut-{resumed}"
    path = f"/{folder}/a.jsonl"
    size = len(lines(0))
    writer.append(path, lines(*range(10)))
    writer.do("close", path)
    with closing(opened(server, folder)) as log:
        assert take(log, 5) == [0, 1, 2, 3, 4]
        writer.do("truncate", path, str(8 * size))
        if resumed:
            log.seek(Position((1 << 40) + 4 * size))
        *rest, lost = take(log, 4)
        assert rest == [5, 6, 7]
        assert (lost.after, lost.upto) == (Position((1 << 40) + 7 * size), end_of(1))
        assert f"{path} was cut to {8 * size} bytes" in lost.reason
        writer.append(path, lines(10))
        assert take(log, 1) == [10]
        assert place_of(log.latest()) == (2, 8 * size)
        # Now to less than was read: nobody knows what of it was written since.
        writer.do("close", path)
        writer.do("truncate", path, str(2 * size))
        if resumed:
            log.seek(Position((2 << 40) + 8 * size))
        lost, *rest = take(log, 3)
        assert (lost.after, lost.upto) == (Position((2 << 40) + 8 * size), end_of(2))
        assert "cut to less than was read of it" in lost.reason
        assert rest == [0, 1]


@pytest.mark.paper("W13")
@pytest.mark.parametrize("resumed", [False, True])
def test_a_file_that_was_replaced_is_another_file(
    server: HdfsServer, writer: HdfsWriter, resumed: bool
) -> None:
    path = f"/replaced-{resumed}/a.jsonl"
    writer.append(path, lines(*range(10)))
    writer.do("close", path)
    with closing(opened(server, f"replaced-{resumed}")) as log:
        assert take(log, 5) == [0, 1, 2, 3, 4]
        writer.do("delete", path)
        writer.append(path, lines(*range(20)))  # it begins as the other did, and is longer
        position = Position((1 << 40) + 4 * len(lines(0)))
        if resumed:
            log.seek(position)
        lost, *rest = take(log, 21)
        assert (lost.after, lost.upto) == (position, end_of(1))
        assert rest == list(range(20))


def test_a_file_system_that_is_away_is_said_and_read_again_when_it_is_back(
    server: HdfsServer, writer: HdfsWriter
) -> None:
    writer.append("/away/a.jsonl", lines(1, 2))
    writer.do("close", "/away/a.jsonl")
    with closing(opened(server, "away")) as log:
        assert take(log, 1) == [1]
        server.stop("namenode.NameNode")
        with pytest.raises(LogUnreachable):
            take(log, 1)
        server.start("namenode.NameNode")
        deadline = time.monotonic() + 90
        while True:
            try:
                assert take(log, 1) == [2]
                break
            except LogUnreachable:
                assert time.monotonic() < deadline
                time.sleep(0.5)
