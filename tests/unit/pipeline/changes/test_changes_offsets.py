"""Offsets of jobs that read a log: what Spark keeps, and what disagrees with what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipeline.changes.rocks_log import Driven, RocksLog, sequences

from qanat.capture.continuity import Mark
from qanat.capture.errors import OtherLog
from qanat.capture.updates import Op
from qanat.events.position import Position
from qanat.pipeline.changes.offsets import ChangesDisagree, Offset, first, is_beyond

positions = st.builds(Position, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
marks = st.builds(
    Mark,
    positions,
    st.text(max_size=5),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(list(Op)),
    st.text(),
    st.binary(max_size=5),
)
offsets = st.builds(Offset, st.text(), positions, positions, st.none() | marks)


@given(offsets)
def test_offsets_survive_a_checkpoint(offset: Offset) -> None:
    assert Offset.read(json.loads(json.dumps(offset.json()))) == offset


@pytest.mark.parametrize(
    "strange", [{}, {"source": "x"}, {"source": "x", "position": 7, "began": "0:0"}, {"orders": 12}]
)
def test_an_offset_of_another_job_is_refused(strange: dict[str, object]) -> None:
    with pytest.raises(ChangesDisagree, match="checkpoint of its own"):
        Offset.read(strange)


def test_the_last_update_is_kept_while_the_position_is_in_its_transaction() -> None:
    mark = Mark(Position(7, 2), "t", 0, Op.PUT, "a", b"k")
    at = Offset("s", Position(7, 2), Position(0), mark)
    assert at.moved(Position(7, 9), None).last == mark
    assert at.moved(Position(8, 0), None).last is None


def test_a_first_batch_that_is_done_again_begins_where_the_job_began() -> None:
    """A job that starts with what is latest gets another answer when it is started again."""
    end = Offset("s", Position(9), Position(5))
    assert first(Offset("s", Position(12), Position(12)), end).position == Position(5)
    assert first(Offset("s", Position(7), Position(5)), end).position == Position(7)


def test_ends_without_an_update_are_not_waited_for() -> None:
    assert not is_beyond("rocksdb", Position(10, 0), Position(8, 2))
    assert is_beyond("rocksdb", Position(11, 0), Position(8, 2))
    assert is_beyond("mariadb", Position(7, 1), Position(7, 0))


@pytest.mark.paper("D2")
def test_a_checkpoint_of_another_dataset_is_refused(tmp_path: Path) -> None:
    log = RocksLog(tmp_path / "a", "one")
    log.wrote(7, 1, 5)
    job = Driven(log.url)
    job.next()
    (log.folder / "IDENTITY").write_text("two")
    job.restart()
    with pytest.raises(ChangesDisagree, match=r"dataset 'rocksdb:one'.*is 'rocksdb:two'"):
        job.plan()


@pytest.mark.paper("D2")
def test_a_checkpoint_ahead_of_its_log_is_refused(tmp_path: Path) -> None:
    log = RocksLog(tmp_path / "a")
    log.wrote(7, 1, 5)
    job = Driven(log.url)
    job.next()
    log.wrote(7, 1, 3)
    job.restart()
    with pytest.raises(
        ChangesDisagree, match=r"checkpoint is at 5:0, but the newest update .* is 3:0.*restored"
    ):
        job.plan()


@pytest.mark.paper("D2")
def test_a_log_that_was_written_anew_is_refused(tmp_path: Path) -> None:
    """The same database, restored from a backup and written to since: its positions are there, but other
    updates are."""
    log = RocksLog(tmp_path / "a")
    log.wrote(7, 1, 5)
    job = Driven(log.url)
    job.next()
    job.restart()
    write = RocksLog(log.folder)
    write.wrote(7, 1, 9)
    assert sequences(job.next()) == [6, 7, 8, 9]
    from tests.servers.rocksdb import batch, log_file, put, write_log

    write_log(log.folder, 7, log_file([batch(seq, put(b"other%d" % seq, b"v")) for seq in range(1, 13)]))
    job.restart()
    with pytest.raises(OtherLog, match="not the log that was read before"):
        job.plan()


@pytest.mark.paper("D2")
def test_a_truncated_log_stops_the_job_or_is_said_in_a_row(tmp_path: Path) -> None:
    log = RocksLog(tmp_path / "a")
    log.wrote(7, 1, 5)
    job, forgiving = Driven(log.url), Driven(log.url, losses="accept")
    for one in (job, forgiving):
        assert sequences(one.next()) == [1, 2, 3, 4, 5]
        one.restart()
    log.wrote(9, 9, 10)
    log.deleted(7)
    with pytest.raises(ChangesDisagree, match=r"after 5:0 and up to 8:0 is gone.*losses to accept"):
        job.plan()
    rows = forgiving.next()
    assert sequences(rows) == [8, 9, 10]
    assert dict(rows["attributes"][0].as_py())["#op"] == "lost"
    assert json.loads(rows["payload"][0].as_py())["lost"]["upto"] == "8:0"
