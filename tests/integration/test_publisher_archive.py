"""A publisher whose log was purged, and the archive of a stream that was fed from it before."""

from __future__ import annotations

import signal

import pytest
from tests.integration.archiving import archive_all
from tests.integration.publishing import QUICK, Nursery, Writer
from tests.servers.rocksdb import RocksProcess
from tests.servers.stream_server import ServerProcess
from tests.waiting import wait_until

from qanat.capture.url import open_reader
from qanat.cli.main import main
from qanat.events.position import Position


def purge(rocks: RocksProcess) -> None:
    """All log files but the one that is written to, as RocksDB does when their time is over."""
    rocks.do("flush")
    for path in (rocks.folder / "archive").glob("*.log"):
        path.unlink()


def oldest(url: str) -> Position:
    reader = open_reader(url)
    try:
        return reader.oldest()
    finally:
        reader.close()


@pytest.mark.paper("W7")
@pytest.mark.paper("W13")
def test_flows_behind_the_log_are_served_from_the_archive_and_only_what_neither_has_is_lost(
    home: Nursery, rocks: RocksProcess, server_process: ServerProcess
) -> None:
    server_process.start()
    writer, url, archive = Writer(rocks), f"{rocks.url}?dataset=shop", home.folder / "archive"
    log = f'[log]\nurl = "{url}"\nsharding = "hash:8"\narchive = "{archive}"\narchived_as = "s"\n'
    slow = '[applications.slow]\nstart = "earliest"\n'
    publisher = home.node("publisher", "publisher", log + QUICK + slow)
    first = home.subscriber("slow", [publisher.url])
    writer.write(60)
    wait_until(lambda: len(home.updates("slow")) == writer.count, say=publisher.status)
    first.end()
    feed = ["changes", url, "--into", "s", "--from", "earliest", "--url", server_process.url, "--until-end"]
    for _ in range(2):
        writer.write(100)
        assert main(feed) == 0
    archive_all(server_process.url, archive, "s")
    purge(rocks)
    whole = writer.count
    writer.write(40)
    # What it lacks, and one that is new and wants everything.
    home.subscriber("slow", [publisher.url])
    publisher.write(log + QUICK + slow + '[applications.late]\nstart = "earliest"\n')
    publisher.again()
    home.subscriber("late", [publisher.url])
    for name in ("slow", "late"):
        wait_until(
            lambda name=name: len({each.position for each in home.updates(name)}) == writer.count,  # type: ignore[misc]
            120,
            say=publisher.status,
        )
        assert home.table(name) == writer.rows()
        home.check_order(name)
        assert not [words for lines in home.told(name) for words in lines if words[0] == "lost"]

    # The stream is not fed for a while, and the log is purged: whoever begins far back now lacks that, and
    # nothing else.
    purge(rocks)
    before = writer.count
    writer.write(10)
    publisher.write(log + QUICK + slow + '[applications.third]\nstart = "0:0"\n')
    publisher.send(signal.SIGHUP)
    home.subscriber("third", [publisher.url])
    wait_until(
        lambda: len({each.position for each in home.updates("third")}) == whole + writer.count - before,
        120,
        say=publisher.status,
    )
    begins = oldest(url)
    archived = max(each.position for each in home.updates("third") if each.position <= begins)
    losses = {tuple(words[2:]) for lines in home.told("third") for words in lines if words[0] == "lost"}
    assert losses == {(str(archived), str(begins))}
