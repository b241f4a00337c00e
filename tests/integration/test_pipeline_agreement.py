"""Checkpoint, log and streams that do not belong together stop a pipeline with a sentence, and nothing is
passed over. Without Spark."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.integration.feeding import fed
from tests.servers.rocksdb import batch, database, log_file, put, write_log
from tests.servers.stream_server import ServerProcess
from tests.waiting import wait_until

from qanat.capture.errors import OtherLog
from qanat.capture.losses import loss_event
from qanat.capture.reader import Filtering, Lost
from qanat.capture.url import open_reader
from qanat.cli.commands.pipeline import _shards
from qanat.client import Client
from qanat.client.ahead import Ahead
from qanat.events.position import Position
from qanat.pipeline.changes.offsets import Offset
from qanat.pipeline.ingest.agreement import Agreed, Asked, look
from qanat.pipeline.ingest.failures import Disagreement, Told, heard
from qanat.pipeline.ingest.live import Live
from qanat.pipeline.ingest.ranges import Range
from qanat.pipeline.ingest.routes import Routes, Way
from qanat.pipeline.ingest.state import State
from qanat.pipeline.ingest.task import Plan, _open, make_ready, run_range
from qanat.pipeline.progress import SourceProgress


class Log:
    """A RocksDB's log of batches of one entry, written by hand."""

    def __init__(self, folder: Path, dataset: str = "shop") -> None:
        self.folder, self.dataset = folder, dataset
        database(folder)

    @property
    def url(self) -> str:
        return f"rocksdb://{self.folder}?dataset={self.dataset}"

    def write(self, first: int, last: int, *, file: int = 1, value: bytes = b"v") -> None:
        records = [batch(number, put(b"k%d" % number, value)) for number in range(first, last + 1)]
        write_log(self.folder, file, log_file(records))


class Source:
    """What the pipeline's driver and a task would do, called one by one."""

    def __init__(self, folder: Path, log: Log, url: str, *ways: Way) -> None:
        self.state = State(folder)
        self.asked = Asked("log", log.url, url, Routes(ways or (Way("all"),)))

    def look(self, **changes: Any) -> Agreed:
        agreed = look(replace(self.asked, **changes), self.state)
        self.state.remember({"log": agreed.remembered})
        return agreed

    def run(self, after: int, upto: int, **changes: Any) -> dict[str, Any]:
        """As a micro-batch of Spark's, with its offset in the checkpoint."""
        plan = Plan(
            "log",
            self.asked.log,
            self.state.remembered()["log"].source,
            self.asked.url,
            self.asked.routes,
            str(self.state.folder / "letters"),
            str(self.state.published("log")),
            str(self.state.folder / "trouble.json"),
            str(self.state.live("log")),
            60.0,
        )
        end = Position(upto)
        report = run_range(replace(plan, **changes), Range(Position(after), end, end, 0, None))
        offsets = self.state.checkpoint("log") / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        offset = json.dumps(Offset(plan.source, end, Position(0)).json())
        (offsets / str(upto)).write_text(f"v1\n{{}}\n{offset}")
        commits = self.state.checkpoint("log") / "commits"
        commits.mkdir(exist_ok=True)
        (commits / str(upto)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return report


@pytest.fixture
def server(server_process: ServerProcess) -> ServerProcess:
    server_process.start()
    return server_process


def sequences(url: str, stream: str) -> list[int]:
    return [update.position.sequence for update in fed(url, stream)]


@pytest.mark.paper("D2")
def test_a_checkpoint_of_something_else_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    log = Log(tmp_path / "db")
    log.write(1, 20)
    source = Source(tmp_path / "state", log, server.url)
    agreed = source.look()
    assert (agreed.start, agreed.latest) == (Position(0), Position(20))
    assert source.run(0, 20)["read"] == 20
    assert source.look().streams == {"all": Position(20)}

    other = Log(tmp_path / "other", "warehouse")
    other.write(1, 30)
    with pytest.raises(
        Disagreement,
        match=r"is of the log 'shop', but rocksdb://.*/other is 'warehouse'.*another state folder",
    ):
        source.look(log=other.url)
    with pytest.raises(Disagreement, match=r"routes of 'log' were changed .* at 20:0.*--accept-changes"):
        source.look(routes=Routes((Way("all", where="key = k1"),)))
    with pytest.raises(Disagreement, match=r"--from 5:0: 'log' goes on at 20:0"):
        source.look(begin="5:0")
    unnamed = Log(tmp_path / "unnamed", "")
    with pytest.raises(Disagreement, match=r"\?dataset=NAME"):
        source.look(log=unnamed.url)

    log.write(1, 12)
    with pytest.raises(
        Disagreement,
        match=r"the checkpoint is at 20:0, but the log of .* ends at 12:0.*restored from a backup",
    ):
        source.look()
    log.write(1, 25, value=b"other")
    shutil.move(tmp_path / "state" / "checkpoints", tmp_path / "kept")
    log.folder.joinpath("000001.log").unlink()
    write_log(
        log.folder, 1, log_file([batch(number, put(b"other%d" % number, b"v")) for number in range(1, 26)])
    )
    with pytest.raises(OtherLog, match=r"is not the log that was read before: at 20:0"):
        source.look()

    shutil.move(tmp_path / "kept", tmp_path / "state" / "checkpoints")
    for name in ("agreement.json", ".agreement.json.twin"):
        (tmp_path / "state" / name).rename(tmp_path / name)
    with pytest.raises(Disagreement, match=r"does not say of which log and routes it is"):
        source.look()
    (tmp_path / "state" / "agreement.json").write_text("{")
    with pytest.raises(Disagreement, match=r"agreement.json is damaged"):
        source.look()


def test_a_checkpoint_that_says_more_than_was_done_is_damaged(server: ServerProcess, tmp_path: Path) -> None:
    """A bit of Spark's own file made it 28; what lies between would be passed over."""
    log = Log(tmp_path / "db")
    log.write(1, 40)
    source = Source(tmp_path / "state", log, server.url, Way("beyond", where="key ~ '^k[0-9]$'"))
    source.look()
    source.run(0, 20)
    assert source.look().streams == {"beyond": Position(9)}
    offsets = source.state.checkpoint("log") / "offsets" / "20"
    offsets.write_text(offsets.read_text().replace('"20:0"', '"28:0"'))
    with pytest.raises(Disagreement, match=r"up to 28:0 is done, but it was done up to 20:0: it is damaged"):
        source.look()
    shutil.rmtree(source.state.checkpoint("log"))
    assert source.look().start == Position(0)


@pytest.mark.paper("D2")
def test_changed_routes_go_on_where_the_checkpoint_is_if_that_is_meant(
    server: ServerProcess, tmp_path: Path
) -> None:
    log = Log(tmp_path / "db")
    log.write(1, 20)
    source = Source(tmp_path / "state", log, server.url)
    source.look()
    source.run(0, 15)
    changed = Routes((Way("all"), Way("even", where="key ~ '[02468]$'")))
    source.look(routes=changed, accept=True)
    source.asked = replace(source.asked, routes=changed)
    source.run(15, 20)
    assert sequences(server.url, "all") == list(range(1, 21))
    assert sequences(server.url, "even") == [16, 18, 20]


@pytest.mark.paper("D2")
def test_without_a_checkpoint_nothing_is_published_twice_and_nothing_left_out(
    server: ServerProcess, tmp_path: Path
) -> None:
    log = Log(tmp_path / "db")
    log.write(1, 20)
    ways = Way("all"), Way("even", where="key ~ '[02468]$'")
    source = Source(tmp_path / "state", log, server.url, *ways)
    source.look()
    source.run(0, 15)
    shutil.rmtree(tmp_path / "state")
    agreed = source.look()
    assert agreed.start == Position(14)  # the least of what the streams have
    source.run(14, 20)
    assert sequences(server.url, "all") == list(range(1, 21))
    assert sequences(server.url, "even") == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]

    # A log that no longer has what may be missing.
    shutil.rmtree(tmp_path / "state")
    (log.folder / "000001.log").unlink()
    log.write(31, 40, file=2)
    with pytest.raises(
        Disagreement,
        match=(
            r"has 'shop' up to 20:0, but .*/state has no checkpoint of it, and the log .* begins only after"
            r" 30:0"
        ),
    ):
        source.look()
    assert source.look(begin="30:0").start == Position(30)


@pytest.mark.paper("D2")
def test_a_log_that_was_cut_stops_the_pipeline_or_is_said_in_the_streams(
    server: ServerProcess, tmp_path: Path
) -> None:
    log = Log(tmp_path / "db")
    log.write(1, 10)
    source = Source(tmp_path / "state", log, server.url)
    source.look()
    source.run(0, 10)
    (log.folder / "000001.log").unlink()
    log.write(15, 20, file=2)
    with pytest.raises(Told) as told:
        source.run(10, 20)
    error = heard(str(told.value))
    assert isinstance(error, Disagreement)
    assert "no longer has what is after 10:0 and up to 14:0" in str(error)
    assert 'lost = "publish" in [sources.log]' in str(error)
    assert source.run(10, 20, publish_losses=True)["lost"] == 1
    with Client(server.url) as client, client.subscribe("all", start=11) as reading:
        lost, *after = reading.take()
    assert json.loads(lost.payload(0))["lost"]["upto"] == "14:0"
    assert [batch.payload(0)[:16] for batch in after] == [b'{"position":"15:']


@pytest.mark.paper("D2")
def test_a_stream_that_lost_its_end_is_filled_again_and_one_that_lost_everything_is_refused(
    server: ServerProcess, tmp_path: Path
) -> None:
    log = Log(tmp_path / "db")
    log.write(1, 30)
    source = Source(tmp_path / "state", log, server.url, Way("all"), Way("odd", where="key ~ '[13579]$'"))
    source.look()
    source.run(0, 10)
    server.stop()
    shutil.copytree(server.data, tmp_path / "earlier")
    server.start()
    source.run(10, 20)

    def set_back(data: Path) -> None:
        server.kill()
        shutil.rmtree(server.data)
        shutil.copytree(data, server.data)
        server.start()

    # By the process that published: it knows what was acknowledged.
    set_back(tmp_path / "earlier")
    source.run(20, 25)
    assert sequences(server.url, "all") == list(range(1, 26))
    assert sequences(server.url, "odd") == list(range(1, 26, 2))

    # By another one, which knows what is written down.
    set_back(tmp_path / "earlier")
    source.look()
    source.run(25, 30, patience_s=61.0)
    assert sequences(server.url, "all") == list(range(1, 31))
    assert sequences(server.url, "odd") == list(range(1, 31, 2))

    (tmp_path / "nothing").mkdir()
    set_back(tmp_path / "nothing")
    with pytest.raises(
        Disagreement,
        match=r"stream 'all' has nothing of 'shop', though it was published to: it was made anew",
    ):
        source.look()
    with pytest.raises(Told) as told:
        source.run(25, 30)
    assert isinstance(heard(str(told.value)), Disagreement)


@pytest.mark.paper("D2")
def test_a_record_that_cannot_be_decoded_is_put_aside_once(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"n":1}\n{"n":\n{"n":3}\nno record\n')
    state = State(tmp_path / "state")
    asked = Asked("log", f"file://{tmp_path}/log.jsonl", server.url, Routes((Way("all"),)))
    agreed = look(asked, state)
    files = (
        str(tmp_path / "letters"),
        str(state.published("log")),
        str(tmp_path / "trouble.json"),
        str(state.live("log")),
    )
    plan = Plan("log", asked.log, agreed.remembered.source, server.url, asked.routes, *files)
    given = Range(agreed.start, agreed.latest, agreed.latest, 0, None)
    nowhere = replace(plan, url="qanat://127.0.0.1:1", log="file:///nowhere/*.jsonl")
    assert list(make_ready(nowhere, iter(()))) == []  # the first range will tell
    assert list(make_ready(plan, iter(()))) == []
    (opened,) = (each for each in _open.values() if each.plan == plan)
    report = run_range(plan, given)
    assert (report["dead"], report["worker"]) == (2, opened.report(given)["worker"])
    assert (
        run_range(replace(plan, patience_s=1.0), given)["dead"] == 0
    )  # by another process, which has it all to do again
    assert [update.after for update in fed(server.url, "all")] == [{"n": 1}, {"n": 3}]
    letters = [
        row for file in sorted(tmp_path.glob("letters/*.parquet")) for row in pq.read_table(file).to_pylist()
    ]
    assert [(one["stage"], one["form"], one["original"]) for one in letters] == [
        ("decode", "raw", b'{"n":'),
        ("decode", "raw", b"no record"),
    ]


def test_a_stream_that_the_others_wait_for_is_told_while_they_do(
    server_process: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, stored = threading.Event(), Ahead.stored

    async def held(ahead: Ahead, receipts: Any) -> tuple[int, int]:
        while ahead._outbox.stream == "slow" and not released.is_set():
            await asyncio.sleep(0.01)
        return await stored(ahead, receipts)

    monkeypatch.setattr(Ahead, "stored", held)
    log = Log(tmp_path / "db")
    log.write(1, 9)
    source = Source(tmp_path / "state", log, server_process.start().url, Way("slow"), Way("fast"))
    source.look()
    task = threading.Thread(target=source.run, args=(0, 9))
    task.start()
    try:
        file, progress = source.state.live("log"), SourceProgress()
        wait_until(lambda: (live := Live.load(file)) is not None and live.waiting.keys() == {"slow"})
        live = Live.load(file)
        assert live is not None
        assert live.positions == {"fast": Position(9)} and (live.read, live.newest) == (
            Position(9),
            Position(9),
        )
        shards = progress.status(live=live)["shards"]
        assert shards["fast"] == {"events": 0, "position": "9:0", "lag_s": 0.0}
        shown = _shards(shards | {"slow": {"lag_s": progress.status(live=live)["lag_s"]}})
        assert shown[0].startswith("  behind: slow ") and shown[0].endswith(" s, fast 0.0 s")
    finally:
        released.set()
        task.join()
    assert not file.exists()


@pytest.mark.paper("D3")
def test_a_stream_that_is_a_source_leaves_out_what_the_filter_does_not_take(
    server: ServerProcess, tmp_path: Path
) -> None:
    with Client(server.url) as client:
        client.publish_many("prices", [b"x"] * 100, attributes={"price": list(range(100))})
        client.publish("prices", b"last", attributes={"other": 1})
    state, log = State(tmp_path / "state"), f"{server.url}/prices?dataset=prices"
    found = {}
    # The second filter asks for what only an update has, so that every event must be read for it.
    for name, where in (("pushed", "price in 10..19"), ("read", "price in 10..19 and not #op = lost")):
        asked = Asked(name, log, server.url, Routes((Way(name),), where=where))
        agreed = look(asked, state)
        folder = tmp_path / name
        files = (
            str(folder / "letters"),
            str(folder / "published"),
            str(folder / "trouble"),
            str(folder / "live"),
        )
        plan = Plan(name, log, agreed.remembered.source, server.url, asked.routes, *files)
        report = run_range(plan, Range(Position(0), agreed.latest, agreed.latest, 0, None))
        found[name] = report["read"], report["chosen"], report["upto"]
        updates = fed(server.url, name)
        assert [update.after["price"] for update in updates if update.after] == list(range(10, 20))
    assert found == {"pushed": (10, 10, "101:0"), "read": (101, 10, "101:0")}


def test_what_a_stream_says_is_missing_is_left_out_by_no_filter(
    server: ServerProcess, tmp_path: Path
) -> None:
    lost = loss_event(Lost(Position(3), Position(7), "purged"))
    with Client(server.url, name="shop") as client:
        client.publish_at(
            "s", lost.payloads, (lost.sequences, lost.indexes), keys=lost.keys, attributes=lost.attributes
        )
    reader = open_reader(f"{server.url}/s?dataset=shop")
    assert isinstance(reader, Filtering)
    reader.leave_out_but("price in 10..19")
    reader.seek("earliest")
    told = reader.read(10, 10.0)
    assert isinstance(told, Lost) and "purged" in told.reason
    reader.close()
