"""Laying rows down and publishing them, at a real server: exactly once, wherever it is broken off, whatever
is computed again."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.servers.stream_server import ServerProcess

from qanat.client import Client, outbox
from qanat.client.staging import HEAD_BYTES
from qanat.events.batch import peek
from qanat.events.kept import Kept
from qanat.pipeline.sink import publishing, staging
from qanat.pipeline.sink.columns import NotPublishable
from qanat.pipeline.sink.publishing import END, Held, Publication
from qanat.pipeline.sink.staging import Piece, Staging, lay_down
from qanat.pipeline.source import clients
from qanat.pipeline.source.offsets import Disagreement

numbers = itertools.count()


@pytest.fixture
def stream() -> str:
    return f"sink-{next(numbers)}"


@pytest.fixture
def client(shared_server: ServerProcess) -> Iterator[Client]:
    with Client(shared_server.url) as made:
        yield made


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, shared_server: ServerProcess) -> Iterator[None]:
    """Batches of a few rows, so that few rows are many of them."""
    monkeypatch.setattr(staging, "_BATCH_BYTES", 100)
    monkeypatch.setattr(staging, "_INLINE_BYTES", 300)
    monkeypatch.setattr(staging, "_FILE_BYTES", 700)
    yield
    clients.forget(shared_server.url)


def tasks(
    home: Staging, source: str, batch: int, payloads: list[list[bytes]], to: str = "", **columns: Any
) -> list[Piece]:
    """What tasks lay down, one list of payloads each."""
    pieces: list[Piece] = []
    for number, mine in enumerate(payloads):
        rows = pa.record_batch(
            {"payload": mine, **{name: column[number] for name, column in columns.items()}}
        )
        pieces += lay_down(iter([rows]), to, source, home.of(source, batch), f"{number:06}", 7)
    return pieces


def stored(client: Client, stream: str) -> list[bytes]:
    end = client.look(stream).readable
    found: list[bytes] = []
    if end:
        subscription = client.read(stream, 1, end)
        while batches := subscription.take():
            found += [payload for batch in batches for payload in batch.payloads().to_pylist()]
    return found


def some(first: int, count: int, parts: int = 2) -> list[list[bytes]]:
    """Rows of a few tasks, each row 10 bytes."""
    rows = [b"%010d" % i for i in range(first, first + count)]
    return [rows[i * count // parts : (i + 1) * count // parts] for i in range(parts)]


def flat(payloads: list[list[bytes]]) -> list[bytes]:
    return [row for mine in payloads for row in mine]


@pytest.mark.paper("D1")
@pytest.mark.parametrize("count", [1, 7, 2000])
def test_rows_are_stored_once_in_the_order_of_the_partitions(
    client: Client,
    stream: str,
    shared_server: Any,
    tmp_path: Path,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "_WHOLE_BYTES", 1000)
    home = Staging.prepare(str(tmp_path))
    expected: list[bytes] = []
    for batch in (1, 2, 5):
        rows = some(batch * 10_000, count)
        expected += flat(rows)
        for _ in range(2):  # the second time Spark did not hear that it was done
            pieces = tasks(home, "q", batch, rows, stream)
            Publication(shared_server.url, "q", batch, home, "micro-batch").publish(pieces)
            assert stored(client, stream) == expected
        assert not (tmp_path / "q" / str(batch)).exists()
    with Client(shared_server.url, name="q") as asking:
        assert Held.of(asking.position(stream)) == (5, END)


class Crash(BaseException):
    """The driver dies."""


def crash_after(
    flights: int, publication: Publication, pieces: list[Piece], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishes until so many batches are stored, and no further."""
    publish, made = Client.publish_flights, publication._flights

    def few(mine: Any, have: int) -> Any:
        for number, flight in enumerate(made(mine, have)):
            if number == flights:
                raise Crash
            yield flight

    def one_at_a_time(self: Client, stream: str, flights: Any, kept: Any) -> int:
        return sum(publish(self, stream, [flight], kept) for flight in flights)

    with monkeypatch.context() as patched:
        patched.setattr(publication, "_flights", few)
        patched.setattr(Client, "publish_flights", one_at_a_time)
        try:
            publication.publish(pieces)
        except Crash:
            return
    assert flights > 20


@pytest.mark.paper("D1")
@pytest.mark.parametrize("flights", [0, 1, 2, 5, 11, 99])
def test_a_batch_that_is_computed_again_differently_is_still_published_once(
    client: Client,
    stream: str,
    shared_server: Any,
    tmp_path: Path,
    flights: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver dies in the middle; then the rows come in another order, from other tasks. What was begun is
    finished."""
    monkeypatch.setattr(publishing, "_WHOLE_BYTES", 0)
    home = Staging.prepare(str(tmp_path))
    rows = some(1, 120)
    pieces = tasks(home, "q", 1, rows, stream)
    crash_after(flights, Publication(shared_server.url, "q", 1, home, "micro-batch"), pieces, monkeypatch)
    begun = stored(client, stream)
    assert begun == flat(rows)[: len(begun)]
    assert flights > 20 or ((flights == 0) == (not begun) and len(begun) < 120)
    again = flat(rows)
    random.Random(flights).shuffle(again)
    Publication(shared_server.url, "q", 1, home, "micro-batch").publish(
        tasks(home, "q", 1, [again[:50], again[50:60], again[60:]], stream)
    )
    assert stored(client, stream) == flat(rows)
    assert not (tmp_path / "q" / "1").exists()


def test_without_its_plan_a_begun_batch_is_refused(
    client: Client, stream: str, shared_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_WHOLE_BYTES", 0)
    home, other = Staging.prepare(str(tmp_path / "a")), Staging.prepare(str(tmp_path / "b"))
    pieces = tasks(home, "q", 1, some(1, 120), stream)
    crash_after(3, Publication(shared_server.url, "q", 1, home, "micro-batch"), pieces, monkeypatch)
    begun = stored(client, stream)
    assert begun
    with pytest.raises(Disagreement, match=r"has a part of micro-batch 0 of 'q'.*has no plan"):
        Publication(shared_server.url, "q", 1, other, "micro-batch 0").publish(
            tasks(other, "q", 1, some(1, 120), stream)
        )
    assert stored(client, stream) == begun


def test_a_stream_that_is_made_by_a_write_is_as_durable_as_the_write_says(
    client: Client, stream: str, shared_server: Any, tmp_path: Path
) -> None:
    """Though one process publishes all, under one name; a stream that is there stays as it is."""
    home = Staging.prepare(str(tmp_path))
    modes = {"": "always", "memory": "memory", "interval": "interval", "always": "always"}
    for batch, mode in enumerate(modes, 1):
        for name in (f"{stream}-{mode}", f"{stream}-"):
            pieces = tasks(home, "q", batch, some(1, 3), name)
            Publication(shared_server.url, "q", batch, home, "micro-batch", mode).publish(pieces)
    told = {one["stream"]: one["durability"] for one in client.ask("streams")}
    assert {mode: told[f"{stream}-{mode}"] for mode in modes} == modes


def test_several_streams_of_one_batch_belong_together(
    client: Client, stream: str, shared_server: Any, tmp_path: Path
) -> None:
    """Each row says where it goes; order is kept in each stream."""
    home = Staging.prepare(str(tmp_path))
    names = [[f"{stream}-{i % 3}" for i in range(60)], [f"{stream}-{i % 3}" for i in range(60)]]
    rows = some(1, 120)
    for _ in range(2):
        pieces = tasks(home, "q", 1, rows, "", stream=names)
        Publication(shared_server.url, "q", 1, home, "micro-batch").publish(pieces)
        for i in range(3):
            assert stored(client, f"{stream}-{i}") == [row for mine in rows for row in mine[i::3]]
    with pytest.raises(NotPublishable, match="every row must say where it goes"):
        tasks(home, "q", 2, [[b"x"]], "", stream=[[""]])


def test_a_stream_that_lost_rows_or_a_checkpoint_that_was_set_back_is_refused(
    client: Client, stream: str, shared_server: Any, tmp_path: Path
) -> None:
    home = Staging.prepare(str(tmp_path))
    for batch in (1, 2):
        Publication(shared_server.url, "q", batch, home, "micro-batch").publish(
            tasks(home, "q", batch, some(batch * 100, 5), stream)
        )
    with pytest.raises(Disagreement, match=r"has batch 2 of 'q' already, and this is micro-batch 0"):
        Publication(shared_server.url, "q", 1, home, "micro-batch 0").publish(
            tasks(home, "q", 1, some(1, 5), stream)
        )
    Kept(tmp_path / "q" / "reached.json").write(b'{"%s": %d}' % (stream.encode(), 4 << 32 | END))
    with pytest.raises(Disagreement, match="has lost rows of 'q' that it had stored: it has batch 2"):
        Publication(shared_server.url, "q", 5, home, "micro-batch 4").publish(
            tasks(home, "q", 5, some(1, 5), stream)
        )
    assert stored(client, stream) == flat(some(100, 5)) + flat(some(200, 5))


def test_what_is_stored_for_good_waits_no_longer_and_is_not_missed(
    client: Client, stream: str, shared_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Staging.prepare(str(tmp_path))
    monkeypatch.setattr(publishing, "_WHOLE_BYTES", 0)
    pieces = tasks(home, "q", 1, some(1, 120), stream)
    files = {piece.file for piece in pieces if piece.file}
    assert len(files) > 3
    crash_after(9, Publication(shared_server.url, "q", 1, home, "micro-batch"), pieces, monkeypatch)
    left = {file for file in files if (home.of("q", 1) / file).exists()}
    assert left and left < files
    Publication(shared_server.url, "q", 1, home, "micro-batch").publish(pieces)
    assert stored(client, stream) == flat(some(1, 120))


def test_files_become_the_log_s_own_but_for_the_first_and_the_last(
    client: Client, stream: str, shared_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those jump from one micro-batch to the next: they are written anew."""
    monkeypatch.setattr(publishing, "_WHOLE_BYTES", 0)
    for module in (publishing, outbox):
        monkeypatch.setattr(module, "SMALLEST_BYTES", 100)
    linked, link = set[str](), os.link

    def noted(old: Any, new: Any) -> None:
        link(old, new)
        if str(new).endswith(".staged.tmp"):
            linked.add(os.path.basename(old))

    monkeypatch.setattr(os, "link", noted)
    home = Staging.prepare(str(tmp_path))
    expected: list[bytes] = []
    for batch in (1, 2):
        rows = some(batch * 1000, 240)
        expected += flat(rows)
        pieces = tasks(home, "q", batch, rows, stream)
        linked.clear()
        Publication(shared_server.url, "q", batch, home, "micro-batch").publish(pieces)
        assert linked == {piece.file for piece in pieces[1:-1] if piece.file} != set()
        assert stored(client, stream) == expected


def test_a_file_that_a_log_has_written_to_is_published_as_its_task_wrote_it(
    client: Client, stream: str, shared_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server took files over and was killed in the middle: it had written to their headers, and behind
    their batches."""
    monkeypatch.setattr(publishing, "_WHOLE_BYTES", 0)
    home = Staging.prepare(str(tmp_path))
    pieces = tasks(home, "q", 1, some(1, 120), stream)
    crash_after(0, Publication(shared_server.url, "q", 1, home, "micro-batch"), pieces, monkeypatch)
    for piece in pieces:
        if not piece.file:
            continue
        path = home.of("q", 1) / piece.file
        data = bytearray(path.read_bytes())
        data[:HEAD_BYTES] = os.urandom(HEAD_BYTES)
        at = HEAD_BYTES
        while at < len(data):
            size = peek(data[at:]).size
            data[at + 24 : at + 60] = bytes(36)
            at += size
        path.write_bytes(data + b"more events")
    Publication(shared_server.url, "q", 1, home, "micro-batch").publish(
        tasks(home, "q", 1, some(1, 120, 3), stream)
    )
    assert stored(client, stream) == flat(some(1, 120))


def test_a_plan_without_heads_is_finished(
    client: Client, stream: str, shared_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files that hold nothing but batches, as they were once laid down."""
    monkeypatch.setattr(publishing, "_WHOLE_BYTES", 0)
    home = Staging.prepare(str(tmp_path))
    pieces = tasks(home, "q", 1, some(1, 120), stream)
    crash_after(2, Publication(shared_server.url, "q", 1, home, "micro-batch"), pieces, monkeypatch)
    folder = home.of("q", 1)
    for piece in pieces:
        path = folder / piece.file
        if piece.heads and path.exists():
            path.write_bytes(path.read_bytes()[HEAD_BYTES:])
    plan = json.loads((folder / "plan.json").read_bytes().partition(b"\n")[2])
    del plan["heads"]
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    Publication(shared_server.url, "q", 1, home, "micro-batch").publish([])
    assert stored(client, stream) == flat(some(1, 120))


def test_a_piece_that_is_gone_or_cut_is_noticed(
    client: Client, stream: str, shared_server: Any, tmp_path: Path
) -> None:
    home = Staging.prepare(str(tmp_path))
    pieces = tasks(home, "q", 1, some(1, 120), stream)
    path = home.of("q", 1) / pieces[0].file
    os.truncate(path, 100)
    with pytest.raises(Disagreement, match="has 100 of"):
        Publication(shared_server.url, "q", 1, home, "micro-batch 0").publish(pieces)
    path.unlink()
    with pytest.raises(Disagreement, match="is gone"):
        Publication(shared_server.url, "q", 1, home, "micro-batch 0").publish(pieces)
    assert stored(client, stream) == []


def test_keys_attributes_and_kinds_are_published(
    client: Client, stream: str, shared_server: Any, tmp_path: Path
) -> None:
    home = Staging.prepare(str(tmp_path))
    rows = pa.record_batch(
        {
            "payload": ["a", "b", ""],
            "key": [b"1", None, b"3"],
            "kind": ["data", None, "gc"],
            "price": pa.array([1.5, None, 2.5], pa.float32()),
            "attributes": pa.array(
                [[("t", "x")], None, [("@gc", "same key")]], pa.map_(pa.string(), pa.string())
            ),
            "seq": [7, 8, 9],
        }
    )
    pieces = lay_down(iter([rows]), stream, "q", home.of("q", 1), "000000", 7)
    Publication(shared_server.url, "q", 1, home, "micro-batch").publish(pieces)
    (batch,) = client.read(stream, 1, 3).take()
    assert batch.payloads().to_pylist() == [b"a", b"b", b""]
    assert [batch.key(i) for i in range(3)] == [b"1", b"", b"3"]
    assert [batch.attribute_row(i) for i in range(3)] == [
        {"t": "x", "price": 1.5}, {}, {"@gc": "same key", "price": 2.5},
    ]  # fmt: skip
    assert batch.kinds is not None and batch.kinds.tolist() == [0, 0, 1]
    tombstone = pa.record_batch({"payload": [b""], "kind": ["tombstone"]})
    with pytest.raises(NotPublishable, match="a tombstone cannot be published"):
        lay_down(iter([tombstone]), stream, "q", None, "000000", 7)
