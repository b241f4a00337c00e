"""The source of streaming queries, called as Spark calls it, at a real server: offsets, limits, and what does
not belong together."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from tests.servers.stream_server import ServerProcess
from tests.waiting import wait_until

from qanat.client import Client, NoStream
from qanat.events.errors import LocalError
from qanat.events.filters import FilterError
from qanat.pipeline.columns import COLUMNS
from qanat.pipeline.source import clients, planning
from qanat.pipeline.source.batch_reader import BatchReader
from qanat.pipeline.source.offsets import Disagreement
from qanat.pipeline.source.options import BadOption, StreamOptions
from qanat.pipeline.source.reading import EventsGone, StreamRange
from qanat.pipeline.source.stream_reader import StreamReader

numbers = itertools.count()
ALL = ReadAllAvailable()


@pytest.fixture
def client(shared_server: ServerProcess) -> Iterator[Client]:
    with Client(shared_server.url) as made:
        yield made
    clients.forget(shared_server.url)


@pytest.fixture
def stream() -> str:
    return f"reader-{next(numbers)}"


def reader(url: str, stream: str, **options: str) -> StreamReader:
    return StreamReader(StreamOptions.read({"url": url, "stream": stream, **options}), COLUMNS)


def rows_of(source: StreamReader | BatchReader, parts: Any) -> list[dict[str, Any]]:
    """As tasks read them: each with a copy of the reader."""
    copy = pickle.loads(pickle.dumps(source))
    batches = [batch for part in parts for batch in copy.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def seqs(rows: list[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows]


@pytest.mark.paper("D1")
def test_micro_batches_follow_each_other_without_gap_or_overlap(
    client: Client, stream: str, shared_server: Any
) -> None:
    client.publish_many(stream, [b"%d" % i for i in range(1, 101)])
    source = reader(shared_server.url, stream, maxRowsPerTrigger="30")
    assert source.getDefaultReadLimit() == ReadMaxRows(30)
    offset, found = source.initialOffset(), []
    while (after := source.latestOffset(offset, ReadMaxRows(30))) != offset:
        rows = rows_of(source, source.partitions(offset, after))
        assert len(rows) <= 30
        found += [(row["seq"], row["payload"]) for row in rows]
        offset = after
    assert found == [(i, b"%d" % i) for i in range(1, 101)]
    assert source.latestOffset(offset, ALL) == offset
    client.publish(stream, b"more")
    assert seqs(rows_of(source, source.partitions(offset, source.latestOffset(offset, ALL)))) == [101]


def test_a_limit_in_bytes_is_kept_about(client: Client, stream: str, shared_server: Any) -> None:
    for _ in range(10):
        client.publish_many(stream, [bytes(10_000)] * 20)
    source = reader(shared_server.url, stream, maxBytesPerTrigger="500000")
    assert source.getDefaultReadLimit() == ReadMaxBytes(500_000)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxBytes(500_000))
    assert 20 <= end[stream]["next"] - 1 <= 80
    assert source.latestOffset(start, ALL)[stream]["next"] == 201  # who asks for everything gets it


def test_available_now_ends_at_what_was_there(client: Client, stream: str, shared_server: Any) -> None:
    client.publish_many(stream, [b"x"] * 10)
    source = reader(shared_server.url, stream)
    start = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    client.publish_many(stream, [b"y"] * 5)
    end = source.latestOffset(start, ALL)
    assert end[stream]["next"] == 11
    assert source.latestOffset(end, ALL) == end
    assert source.reportLatestOffset() == {stream: {"next": 16, "lag": 5, "url": shared_server.url}}


def test_several_streams_share_a_limit(client: Client, stream: str, shared_server: Any) -> None:
    for name, count in (("a", 90), ("b", 10), ("c", 0)):
        if count:
            client.publish_many(f"{stream}{name}", [b"x"] * count)
    names = f"{stream}a,{stream}b,{stream}c"
    with pytest.raises(NoStream, match=rf"no stream '{stream}c' at .*missing=wait"):
        reader(shared_server.url, names).initialOffset()
    source = reader(shared_server.url, names, missing="wait")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(50))
    assert {name: place["next"] for name, place in end.items()} == {
        f"{stream}a": 46, f"{stream}b": 6, f"{stream}c": 1,
    }  # fmt: skip
    rows = rows_of(source, source.partitions(start, end))
    assert sorted({row["stream"] for row in rows}) == [f"{stream}a", f"{stream}b"]
    client.publish(f"{stream}c", b"late")
    after = source.latestOffset(end, ALL)
    assert [after[f"{stream}{n}"]["next"] for n in "abc"] == [91, 11, 2]


def test_a_backlog_is_read_in_parallel_by_ranges(client: Client, stream: str, shared_server: Any) -> None:
    client.publish_many(stream, [b"x"] * 100_000)
    source = reader(shared_server.url, stream, partitions="4")
    start = source.initialOffset()
    parts = source.partitions(start, source.latestOffset(start, ALL))
    assert [(part.first, part.last) for part in parts if isinstance(part, StreamRange)] == [
        (1, 25_000), (25_001, 50_000), (50_001, 75_000), (75_001, 100_000),
    ]  # fmt: skip
    assert seqs(rows_of(source, parts)) == list(range(1, 100_001))


def covered(rows: list[dict[str, Any]]) -> list[int]:
    """Every number that rows stand for."""
    found: list[int] = []
    for row in rows:
        reach = int(dict(row["attributes"]).get("@range", 1))
        assert row["kind"] == "tombstone" or reach == 1
        found += range(row["seq"] - reach + 1, row["seq"] + 1)
    return found


@pytest.mark.paper("D1")
def test_what_was_collected_is_cut_where_ranges_end(server_process: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[stream.cache]\nsegment_bytes = 65536\n[stream.cache.policy]\nby_key = true\n")
    url = server_process.start("--config", str(file), "--set", "streams.collect_ms=20").url
    count = 100_000
    with Client(url) as client:
        for _ in range(10):
            client.publish_many("cache", [b"x"] * 10_000, keys=[b"k%d" % (at % 7) for at in range(10_000)])
        options = {"partitions": "4", "maxRowsPerTrigger": "7000"}

        def graves() -> bool:
            """A tombstone reaches over the end of a range and of a micro-batch."""
            return all(
                client.read("cache", n, n).take()[0].kinds is not None for n in (25_000, 7_000, 60_001)
            )

        wait_until(graves)
    source = reader(url, "cache", **options)
    start = source.initialOffset()
    whole = source.partitions(start, source.latestOffset(start, ALL))
    assert len(whole) == 4
    assert covered(rows_of(source, whole)) == list(range(1, count + 1))
    offset, found = start, []
    while (after := source.latestOffset(offset, ReadMaxRows(7000))) != offset:
        found += rows_of(source, source.partitions(offset, after))
        offset = after
    assert covered(found) == list(range(1, count + 1))
    assert len(set(seqs(found))) == len(found)
    # A batch ends where it is told to; and where conditions that are handed to the server say so.
    table = {"url": url, "stream": "cache"}
    batch = BatchReader(StreamOptions.read(table | {"start": "3", "end": "60001"}), COLUMNS)
    assert covered(rows_of(batch, batch.partitions())) == list(range(3, 60_002))
    pushed = BatchReader(StreamOptions.read(table | {"pushdown": "once"}), COLUMNS)
    assert not list(pushed.pushFilters([GreaterThan(("seq",), 10), LessThan(("seq",), 60_001)]))
    assert covered(rows_of(pushed, pushed.partitions())) == list(range(11, 60_001))
    clients.forget(url)


def test_where_is_the_servers_work(client: Client, stream: str, shared_server: Any) -> None:
    client.publish_many(stream, [b"x"] * 1000, attributes={"n": list(range(1000))})
    source = reader(shared_server.url, stream, where="n in 10..12 or n = 999")
    start = source.initialOffset()
    rows = rows_of(source, source.partitions(start, source.latestOffset(start, ALL)))
    assert [row["attributes"] for row in rows] == [[("n", str(n))] for n in (10, 11, 12, 999)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", 1),
        ("latest", 11),
        ("7", 7),
        ("2001-01-01", 1),
        ("2901-01-01T00:00:00Z", 11),
        ('{"%s": 3}', 3),
    ],
)
def test_where_a_query_starts(
    client: Client, stream: str, shared_server: Any, start: str, expected: int
) -> None:
    client.publish_many(stream, [b"x"] * 10)
    start = start.replace("%s", stream)
    assert reader(shared_server.url, stream, start=start).initialOffset()[stream]["next"] == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strem": "x"}, "no option 'strem' here; there are url, stream, pattern, start"),
        ({"maxRowsPerTrigger": "0"}, "'maxRowsPerTrigger' is a number of at least 1"),
        ({"start": "yesterday"}, "a time like 2026"),
        ({"start": '{"other": 1}'}, "must say where each of s begins"),
        ({"losses": "maybe"}, "stop or accept"),
        ({"stream": "a,a"}, "twice"),
        ({"stream": ""}, "which stream"),
        ({"end": "5"}, "is for batches"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        reader("qanat://127.0.0.1:1", **{"stream": "s"} | options)
    with pytest.raises(FilterError):
        reader("qanat://127.0.0.1:1", "s", where="same key")


def test_a_start_that_is_ahead_of_the_stream_is_refused(
    client: Client, stream: str, shared_server: Any
) -> None:
    client.publish(stream, b"x")
    with pytest.raises(BadOption, match=r"'start' is 9, but stream .* ends at 1"):
        reader(shared_server.url, stream, start="9").initialOffset()


@pytest.mark.paper("D1")
def test_another_stream_behind_a_checkpoint_stops_the_query(
    client: Client, stream: str, shared_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made anew, ended before what was read, set back and grown again: each is said, and nothing is
    skipped."""
    monkeypatch.setattr(planning, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(planning.patiently, "__defaults__", (0.0,))
    client.publish_many(stream, [b"%d" % i for i in range(10)])
    source = reader(shared_server.url, stream)
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    wrong = [
        ({"born": end[stream]["born"] - 1}, "is not the one of the checkpoint: it began at"),
        ({"next": 12}, "read stream .* up to 11, but at .* it ends at 10"),
        ({"mark": "0-00000000"}, "event 10 of stream .* is not the one"),
    ]
    for change, words in wrong:
        other = {stream: end[stream] | change}
        for work in (
            lambda other=other: source.latestOffset(other, ALL),
            lambda other=other: source.partitions(start, other),
            lambda other=other: source.partitions(other, other),
        ):
            with pytest.raises(Disagreement, match=words):
                work()
    assert source.partitions(end, end) == []
    with pytest.raises(Disagreement, match="not one of a query that reads streams"):
        source.latestOffset({"files": {"seq": 4}}, ALL)


def test_streams_come_and_go_behind_a_checkpoint(client: Client, stream: str, shared_server: Any) -> None:
    for name in "ab":
        client.publish_many(f"{stream}{name}", [b"x"] * 3)
    one = reader(shared_server.url, f"{stream}a")
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)
    both = reader(shared_server.url, f"{stream}a,{stream}b", start="latest")
    after = both.latestOffset(end, ALL)
    assert after[f"{stream}b"]["from"] == 1  # what it has is read, whatever `start` says
    assert seqs(rows_of(both, both.partitions(end, after))) == [1, 2, 3]
    again = reader(shared_server.url, f"{stream}a,{stream}b")
    assert seqs(rows_of(again, again.partitions(end, after))) == [1, 2, 3]
    with pytest.raises(
        Disagreement, match=f"has read stream '{stream}b' up to 3, but the option 'stream' no longer"
    ):
        one.latestOffset(after, ALL)


def test_what_is_no_longer_kept_stops_the_query_or_is_reported(
    server_process: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    kept_short = ("--set", "log.segment_bytes=65536", "--set", "log.retain_bytes=65536")
    server_process.start(*kept_short, "--set", "streams.collect_ms=3600000")
    with Client(server_process.url) as client:
        for _ in range(6):
            client.publish("s", bytes(60_000))
        source = reader(server_process.url, "s", start="1")
        start, end = source.initialOffset(), source.latestOffset(source.initialOffset(), ALL)
        early = source.partitions(start, end)
    server_process.stop()
    server_process.start(*kept_short)
    with Client(server_process.url) as client:
        client.publish("s", bytes(60_000))
        wait_until(lambda: client.look("s").first > 1)
        kept = client.look("s").first
        with pytest.raises(EventsGone, match=rf"no longer keeps events 1 to {kept - 1}.*losses=accept"):
            reader(server_process.url, "s", start="1").latestOffset(start, ALL)
        with pytest.raises(EventsGone):
            rows_of(source, early)
        accepting = reader(server_process.url, "s", losses="accept")
        rows = rows_of(accepting, accepting.partitions(start, accepting.latestOffset(start, ALL)))
    assert seqs(rows) == list(range(kept - 1, 8))
    assert rows[0]["kind"] == "tombstone"
    assert dict(rows[0]["attributes"]).get("@lost") == "true"
    assert int(dict(rows[0]["attributes"]).get("@range", 1)) == kept - 1
    skipping = reader(server_process.url, "s", failOnDataLoss="false")
    rows = rows_of(skipping, skipping.partitions(start, skipping.latestOffset(start, ALL)))
    assert seqs(rows) == list(range(kept, 8))
    (said,) = (record.getMessage() for record in caplog.records if "passed over" in record.getMessage())
    assert said.startswith(
        f"stream 's' no longer keeps events 1 to {kept - 1} ({kept - 1} of them): they are"
    )
    assert said.endswith("passed over, since losses=skip or failOnDataLoss=false")
    clients.forget(server_process.url)


def test_a_pattern_reads_what_fits_it_and_what_comes_later(
    client: Client, stream: str, shared_server: Any
) -> None:
    def source() -> StreamReader:
        options = {
            "url": shared_server.url,
            "subscribePattern": f"{stream}-[ab]",
            "startingOffsets": "latest",
        }
        return StreamReader(StreamOptions.read(options), COLUMNS)

    with pytest.raises(LocalError, match=rf"has a name that fits the pattern '{stream}-\[ab\]'; there are"):
        source().initialOffset()
    for name, count in (("a", 3), ("c", 3)):
        client.publish_many(f"{stream}-{name}", [b"x"] * count)
    one = source()
    start = one.initialOffset()
    assert {name: place["next"] for name, place in start.items()} == {f"{stream}-a": 4}
    client.publish(f"{stream}-a", b"y")
    client.publish_many(f"{stream}-b", [b"z"] * 2)  # made later: it is read from its first event on
    # A server gives an answer about its streams again for a moment, on a busy machine for longer.
    ends = {f"{stream}-a": 5, f"{stream}-b": 3}
    wait_until(lambda: {name: place["next"] for name, place in one.latestOffset(start, ALL).items()} == ends)
    end = one.latestOffset(start, ALL)
    rows = rows_of(one, one.partitions(start, end))
    assert [(row["stream"], row["seq"]) for row in rows] == [
        (f"{stream}-a", 4),
        (f"{stream}-b", 1),
        (f"{stream}-b", 2),
    ]
    again = source()
    assert rows_of(again, again.partitions(start, end)) == rows  # as after a restart
    batch = BatchReader(
        StreamOptions.read({"url": shared_server.url, "pattern": f"{stream}-[bc]", "end": "1"}), COLUMNS
    )
    assert [(row["stream"], row["seq"]) for row in rows_of(batch, batch.partitions())] == [
        (f"{stream}-b", 1), (f"{stream}-c", 1),
    ]  # fmt: skip


def test_ends_are_those_of_each_stream(client: Client, stream: str, shared_server: Any) -> None:
    for name in "ab":
        client.publish_many(f"{stream}{name}", [b"x"] * 5)
    options = {
        "url": shared_server.url,
        "subscribe": f"{stream}a,{stream}b",
        "startingOffsets": json.dumps({f"{stream}a": {"0": 2}, f"{stream}b": {"0": -2}}),
        "endingOffsets": json.dumps({f"{stream}a": {"0": 4}, f"{stream}b": {"0": -1}}),
    }
    batch = BatchReader(StreamOptions.read(options), COLUMNS)
    assert seqs(rows_of(batch, batch.partitions())) == [2, 3, 1, 2, 3, 4, 5]


def test_what_a_checkpoint_covers_may_be_released(client: Client, stream: str, shared_server: Any) -> None:
    client.publish_many(stream, [b"x"] * 1500)
    source = reader(shared_server.url, stream, release="collect")
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    source.commit(end)
    subscription = client.read(stream, 1501, 1501)
    (batch,) = subscription.take()
    assert batch.attribute_row(0)["@gc"] == "upto 1500"
    after = source.latestOffset(end, ALL)
    source.commit(after)  # it is read as well, and is no reason for another one
    assert source.latestOffset(after, ALL) == after
    reader(shared_server.url, stream).commit(end)
    assert source.latestOffset(after, ALL) == after


def test_conditions_become_ranges_and_a_filter_of_the_server(
    client: Client, stream: str, shared_server: Any
) -> None:
    client.publish_many(stream, [b"x"] * 100)
    middle = datetime.now(UTC)
    client.publish_many(stream, [b"y"] * 100)
    options = {"url": shared_server.url, "stream": stream, "pushdown": "once", "partitions": "1"}

    def planned(*conditions: Filter, **more: str) -> list[tuple[int, int]]:
        source = BatchReader(StreamOptions.read(options | more), COLUMNS)
        source.pushFilters(list(conditions))
        found = rows_of(source, source.partitions())
        parts = [part for part in source.partitions() if isinstance(part, StreamRange)]
        assert len(found) <= sum(part.last - part.first + 1 for part in parts)
        return [(part.first, part.last) for part in parts]

    seq, time = ("seq",), ("time",)
    assert planned() == [(1, 200)]
    assert planned(GreaterThan(seq, 10), LessThanOrEqual(seq, 20)) == [(11, 20)]
    assert planned(GreaterThanOrEqual(seq, 10), LessThan(seq, 20)) == [(10, 19)]
    assert planned(EqualTo(seq, 7)) == [(7, 7)]
    assert planned(EqualTo(("stream",), "other")) == planned(In(("stream",), ("a", "b"))) == []
    assert planned(EqualTo(("stream",), stream)) == [(1, 200)]
    assert planned(GreaterThan(time, middle)) == [(101, 200)]
    assert planned(EqualTo(("payload",), b"x")) == [(1, 200)]
    assert planned(GreaterThan(seq, 10), pushdown="none") == [(1, 200)]
    assert planned(start="50", end="60") == [(50, 60)]
    assert planned(end=middle.isoformat()) == [(1, 100)]
    source = BatchReader(StreamOptions.read(options), COLUMNS)
    conditions = [LessThan(time, middle), GreaterThan(seq, 90), StringContains(("kind",), "a")]
    assert list(source.pushFilters(conditions)) == [conditions[0], conditions[2]]
    assert seqs(rows_of(source, source.partitions())) == list(range(91, 101))
