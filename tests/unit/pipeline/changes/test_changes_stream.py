"""A log as a streaming source, driven as Spark drives it: batches, restarts, limits, filters."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from tests.unit.pipeline.changes.rocks_log import Driven, RocksLog, sequences

from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.pipeline.changes.log import Log
from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.changes.planning import lag_of
from qanat.pipeline.changes.rows import SHARDED
from qanat.pipeline.source.options import BadOption


@pytest.fixture
def log(tmp_path: Path) -> RocksLog:
    made = RocksLog(tmp_path / "store")
    made.wrote(7, 1, 5)
    return made


def test_rows_have_the_tabular_form_and_a_shard(log: RocksLog) -> None:
    rows = Driven(log.url, **{"shard-by": "hash:4"}).next()
    assert rows.schema == SHARDED
    one = rows.slice(0, 1).to_pylist()[0]
    update = json.loads(one["payload"])
    assert (update["position"], update["op"], one["kind"], one["stream"], one["seq"]) == (
        "1:0",
        "put",
        "data",
        None,
        None,
    )
    assert one["source"] == {"name": "rocksdb:one", "sequence": 1, "index": 0}
    assert one["shard"] == str(update["shard"]) == dict(one["attributes"])["#S"]
    assert dict(one["types"])["#S"] == "int"


def test_batches_follow_each_other_across_restarts(log: RocksLog) -> None:
    job = Driven(log.url)
    assert sequences(job.next()) == [1, 2, 3, 4, 5]
    assert not job.plan()
    log.wrote(7, 1, 8)
    assert sequences(job.next()) == [6, 7, 8]
    job.restart()
    log.wrote(9, 9, 9)
    assert sequences(job.next()) == [9]


@pytest.mark.paper("D2")
def test_a_batch_that_was_planned_is_read_again_and_is_the_same(log: RocksLog) -> None:
    job = Driven(log.url)
    planned = job.next()
    log.wrote(7, 1, 9)
    job.restart()
    assert job.batch().equals(planned)
    assert sequences(job.next()) == [6, 7, 8, 9]


@pytest.mark.paper("D2")
def test_a_job_that_begins_with_the_latest_does_its_first_batch_again_whole(log: RocksLog) -> None:
    job = Driven(log.url, start="latest")
    began = job.source.initialOffset()
    log.wrote(7, 1, 8)
    job.checkpoint.append(job.source.latestOffset(began, job.source.getDefaultReadLimit()))
    job.restart()
    log.wrote(7, 1, 12)
    assert job.source.initialOffset() != began
    assert sequences(job.batch()) == [6, 7, 8]


def test_a_batch_has_no_more_rows_than_the_limit(log: RocksLog) -> None:
    job = Driven(log.url)
    assert [sequences(job.limited(2)) for _ in range(3)] == [[1, 2], [3, 4], [5]]


def test_a_filter_lets_the_offset_pass_what_it_leaves_out(
    log: RocksLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Driven(log.url, where="key in (k4, k9)")
    assert sequences(job.next()) == [4]
    log.wrote(7, 1, 8)
    assert not job.plan()  # nothing of it was chosen, and that is not worth a batch yet
    log.wrote(7, 1, 9)
    assert sequences(job.next()) == [9]
    monkeypatch.setattr("qanat.pipeline.changes.stream._IDLE_S", 0.0)
    log.wrote(7, 1, 10)
    assert sequences(job.next()) == []
    assert job.checkpoint[-1]["position"] == "10:0"


def test_a_trigger_that_ends_reads_what_there_was(log: RocksLog) -> None:
    job = Driven(log.url)
    job.source.prepareForTriggerAvailableNow()
    log.wrote(7, 1, 8)
    assert sequences(job.limited(3)) == [1, 2, 3]
    assert sequences(job.next()) == [4, 5]
    assert not job.plan()


def test_the_end_of_the_log_is_reported(log: RocksLog) -> None:
    job = Driven(log.url)
    job.limited(2)
    told = job.source.reportLatestOffset()
    assert told is not None
    assert told == {"source": "rocksdb:one", "log": log.url, "position": "5:0", "lag": 3, "lag_in": "entries"}


@pytest.mark.parametrize(
    ("scheme", "at", "newest", "lag"),
    [
        ("mariadb", Position(7, 3), Position(9, 0), {"lag": 2, "lag_in": "transactions"}),
        ("postgresql", Position(700), Position(900), {"lag": 200, "lag_in": "bytes"}),
        ("qanat", Position(7), Position(7), {"lag": 0, "lag_in": "events"}),
        ("file", Position((1 << 40) + 5), Position((1 << 40) + 9), {"lag": 4, "lag_in": "bytes"}),
        # how long the first one is, positions do not say
        ("file", Position((1 << 40) + 5), Position((2 << 40) + 9), {}),
    ],
)  # fmt: skip
def test_a_lag_is_told_where_positions_count_something(
    scheme: str, at: Position, newest: Position, lag: dict[str, object]
) -> None:
    assert lag_of(scheme, at, newest) == lag


def test_files_are_a_log_too(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"n":1}\n{"n":2}\n{"n"')
    job = Driven(f"file://{tmp_path}/*.jsonl")
    job.source.prepareForTriggerAvailableNow()
    assert [json.loads(line)["after"]["n"] for line in job.next()["payload"].to_pylist()] == [1, 2]
    assert not job.plan()
    job.restart()
    with file.open("ab") as more:
        more.write(b":3}\n")
    assert [json.loads(line)["after"]["n"] for line in job.next()["payload"].to_pylist()] == [3]


def test_an_empty_newest_file_ends_a_batch(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"n":1}\n')
    (tmp_path / "b.jsonl").write_bytes(b"")
    job = Driven(f"file://{tmp_path}/*.jsonl")
    job.source.prepareForTriggerAvailableNow()
    assert job.next().num_rows == 1
    assert not job.plan()
    with (tmp_path / "a.jsonl").open("ab") as late:  # a file is not done with because another one was made
        late.write(b'{"n":2}\n')
    job.restart()
    assert job.next().num_rows == 1


def test_a_log_is_sent_as_its_options(log: RocksLog) -> None:
    one = Log(ChangesOptions(log.url, tables=("a",)))
    assert one.reader.latest() == Position(5)
    again = pickle.loads(pickle.dumps(one))
    assert again.options == one.options
    assert again.at is None


# --- options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"start": "yesterday"},
        {"losses": "perhaps"},
        {"where": "a ="},
        {"where": "same key"},
        {"shard-by": "hash:x"},
        {"maxRowsPerTrigger": "0"},
        {"wher": "a = 1"},
        {"changes": "oracle://x/y"},
    ],
)
def test_options_that_cannot_be(options: dict[str, str]) -> None:
    with pytest.raises(LocalError):
        ChangesOptions.read({"changes": "rocksdb:///x", **options})


def test_letters_of_options_may_be_large_or_small() -> None:
    read = ChangesOptions.read({"CHANGES": "rocksdb:///x", "maxrowspertrigger": "7", "Tables": "a, b.*"})
    assert (read.rows, read.tables) == (7, ("a", "b.*"))


def test_a_server_of_streams_gets_the_filter_that_it_understands() -> None:
    url = "qanat://127.0.0.1:1/orders"
    assert ChangesOptions(url, where="price in 1..5").choice().where is None
    assert ChangesOptions(url, where="#op = put").choice().where is not None
    assert ChangesOptions(f"{url}?where=a", where="price in 1..5").choice().where is not None


def test_a_dataset_without_a_name_is_refused(tmp_path: Path) -> None:
    log = RocksLog(tmp_path / "store")
    (log.folder / "IDENTITY").unlink()
    log.wrote(7, 1, 2)
    with pytest.raises(LocalError, match="dataset="):
        Driven(log.url).plan()


def test_an_option_is_said_to_be_bad() -> None:
    with pytest.raises(BadOption, match="no option 'wher'"):
        ChangesOptions.read({"changes": "rocksdb:///x", "wher": "a"})
