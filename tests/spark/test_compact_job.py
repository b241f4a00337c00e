"""Garbage collection of an archive: what is written, what stays, who sees what, and what a death leaves."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.spark.compacting import Died, Life, Mortal, archived, events, in_archive, rows
from tests.spark.histories import History as Story
from tests.spark.histories import collected_by_log, random_history

from qanat.cli.main import main
from qanat.events.batch import Kind
from qanat.log import Policy
from qanat.log.crash_disk import CrashDisk
from qanat.pipeline.archive import tables
from qanat.pipeline.archive.check import check_files
from qanat.pipeline.archive.clean import clean_waste
from qanat.pipeline.archive.errors import Fenced, NotArchived
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.storage import LocalStorage
from qanat.pipeline.compact import job
from qanat.pipeline.compact.collection import Stream, compacted, numbered
from qanat.pipeline.compact.collectors import TooManyCollectors, gather
from qanat.pipeline.compact.hunts import contexts_of
from qanat.pipeline.compact.job import CompactFailed, compact

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.paper("D5")
BY_KEY = Policy(by_key=True)


def _kinds(found: list[dict[str, Any]]) -> list[tuple[int, str, str]]:
    return [(row["seq"], row["kind"], row["attributes"].get("@range", "1")) for row in found]


def test_an_archive_of_several_files_becomes_what_a_log_of_the_same_events_becomes(
    spark: SparkSession, tmp_path: Path
) -> None:
    stories = [random_history("whole", random.Random(f"archive {i}")) for i in range(30)]
    stories = [Story("whole", story.policy, story.batches) for story in stories]
    found = [(story, *collected_by_log(CrashDisk(), "log", story)) for story in stories]
    story, raw, expected = max(found, key=lambda each: each[1].num_rows - abs(10 - each[2].num_rows))
    count = raw.num_rows
    cuts = [0, count // 5, count // 3, count // 2, count]
    pieces = [raw.slice(a, b - a) for a, b in pairwise(cuts)]
    history = archived(tmp_path, "whole", pieces)
    before = history.newest()
    done = compact(spark, history, story.policy)
    assert in_archive(history) == rows(pa.Table.from_batches([expected]))
    after = history.existing()
    assert (after.complete(), after.collected, done.version) == (before.complete(), count, after.version - 1)
    assert done.living == sum(row["kind"] != "tombstone" for row in in_archive(history))
    assert [what for _, what in check_files(history) if what] == []
    assert in_archive(history, before) == rows(pa.Table.from_batches([raw]))


def test_only_files_with_garbage_are_written_anew_and_runs_are_joined_across_files_and_days(
    spark: SparkSession, tmp_path: Path
) -> None:
    def piece(first: int, keys: str) -> pa.RecordBatch:
        return events("s", [bytes([key]) for key in keys.encode()], first=first, per_day=8)

    # Days begin at 1, 9, 17: one run goes through three files, and over midnight; the last two files have no
    # garbage.
    history = archived(
        tmp_path,
        "s",
        [piece(1, "abxx"), piece(5, "xxxx"), piece(9, "xx"), piece(11, "cdef"), piece(15, "gxa")],
    )
    old = history.newest()
    tried = compact(spark, history, BY_KEY, dry_run=True)
    assert history.newest() == old
    done = compact(spark, history, BY_KEY)
    assert (
        (tried.events, tried.living, tried.rewritten)
        == (done.events, done.living, done.rewritten)
        == (17, 8, 3)
    )
    assert _kinds(in_archive(history)) == [
        (1, "tombstone", "1"),
        (2, "data", "1"),
        (10, "tombstone", "8"),
        *((seq, "data", "1") for seq in range(11, 18)),
    ]
    new = history.existing()
    assert [(file.first, file.last, file.rows) for file in new.files] == [
        (1, 2, 2),
        (3, 10, 1),
        (11, 14, 4),
        (15, 17, 3),
    ]
    assert new.files[2] == old.files[3]
    again = compact(spark, history, BY_KEY)
    assert (again.rewritten, history.existing().files) == (0, new.files)


def test_as_of_an_event_later_ones_neither_collect_nor_are_collected(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = archived(tmp_path, "s", [events("s", [b"a", b"b", b"a", b"b", b"a"])])
    compact(spark, history, BY_KEY, upto=3)
    assert _kinds(in_archive(history)) == [
        (1, "tombstone", "1"),
        *((n, "data", "1") for n in (2, 3, 4, 5)),
    ]
    assert history.existing().collected == 3
    with pytest.raises(NotArchived, match="ends at 5"):
        compact(spark, history, BY_KEY, upto=6)


def test_no_tombstone_covers_what_was_lost(spark: SparkSession, tmp_path: Path) -> None:
    """The archive begins at 3, and 6..70 were lost: everything but the last is garbage."""
    pieces = [
        events("s", [b"k"] * 3, first=3),
        events("s", [b"k"] * 3, first=71),
        events("s", [b"k"], first=74, kinds=[Kind.GC], attributes=[{"@gc": "upto 73"}]),
    ]
    history = archived(tmp_path, "s", pieces)
    lost = history.newest().lost
    done = compact(spark, history)
    assert _kinds(in_archive(history)) == [
        (5, "tombstone", "3"),
        (73, "tombstone", "3"),
        (74, "gc", "1"),
    ]
    assert (done.events, done.living, history.existing().lost) == (7, 1, lost)


def test_wherever_it_dies_the_archive_is_the_old_one_or_the_new_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [b"%d" % (n % 3) for n in range(12)]
    pieces = [events("s", keys[i : i + 4], first=i + 1, per_day=4) for i in (0, 4, 8)]
    history = archived(tmp_path, "s", pieces)
    old = in_archive(history)
    found = job._find(
        spark, history, history.existing(), BY_KEY, None
    )  # once; what is written is written every time
    monkeypatch.setattr(job, "_find", lambda *_: found)
    monkeypatch.setattr(type(found), "forget", lambda _: None)
    outcomes, dies_at = [], 1
    while True:
        life = Life(dies_at)
        try:
            compact(spark, History(Mortal(str(tmp_path), life), "s"), BY_KEY)
        except Died:
            left = in_archive(history)
            outcomes.append(left == old)
            if left != old:
                assert _kinds(left) == [(9, "tombstone", "9"), *((n, "data", "1") for n in (10, 11, 12))]
                monkeypatch.undo()  # what was found is no longer there
            assert [what for _, what in check_files(history) if what] == []
            assert in_archive(history, history.read(4)) == old  # who reads the former version still can
            # The next moment of death; those after the commit change nothing any more.
            dies_at += 1
        else:
            break
    assert outcomes == sorted(outcomes, reverse=True) and set(outcomes) == {True, False}
    found.words.unpersist()
    # What the dead left is cleaned away by the next that begins.
    assert {file.path for file in history.existing().files} <= _data_files(tmp_path)
    compact(spark, history, BY_KEY)
    named = {f.path for v in history.versions() for f in history.read(v).files}
    assert _data_files(tmp_path) == named
    assert history.storage.entries("_staging") == []


def _data_files(folder: Path) -> set[str]:
    root = folder / "stream=s"
    return {str(path.relative_to(root)) for path in root.glob("day=*/*.parquet")}


def test_of_two_at_once_the_later_wins_and_archiving_goes_on_beside_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = archived(tmp_path, "s", [events("s", [b"a", b"b", b"a"])])
    plain = job._rewrite

    def disturbed(*args: Any) -> None:
        monkeypatch.setattr(job, "_rewrite", plain)
        compact(spark, history, BY_KEY)
        archived_more = archived(tmp_path, "s", [events("s", [b"b"], first=4)])
        assert archived_more.newest().complete() == ((1, 4),)
        plain(*args)

    monkeypatch.setattr(job, "_rewrite", disturbed)
    with pytest.raises(Fenced, match="taken over"):
        compact(spark, history, BY_KEY)
    assert _kinds(in_archive(history)) == [
        (1, "tombstone", "1"),
        *((n, "data", "1") for n in (2, 3, 4)),
    ]

    def appended(*args: Any) -> None:
        archived(tmp_path, "s", [events("s", [b"a"], first=5)])
        plain(*args)

    monkeypatch.setattr(job, "_rewrite", appended)
    compact(spark, history, BY_KEY)
    # 5 came while it ran: what it collects is left for the next time.
    assert _kinds(in_archive(history)) == [
        (2, "tombstone", "2"),
        *((n, "data", "1") for n in (3, 4, 5)),
    ]
    assert history.existing().collected == 4


def test_who_is_taken_over_while_it_writes_says_so_and_what_fails_otherwise_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = archived(tmp_path, "s", [events("s", [b"a", b"b", b"a"])])
    before = history.existing().files
    place = tables.put_in_place

    def taken_over(*args: Any) -> Any:
        with history.begin("rewrite") as other:
            clean_waste(history, other)  # as whoever begins does: the files to be put in place are gone
        return place(*args)

    monkeypatch.setattr(tables, "put_in_place", taken_over)
    with pytest.raises(Fenced, match="taken over"):
        compact(spark, history, BY_KEY)

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "put_in_place", full)
    with pytest.raises(CompactFailed, match=r"nothing was changed: .*No space left"):
        compact(spark, history, BY_KEY)
    assert history.existing().files == before


def test_more_gc_events_than_the_driver_takes_are_refused(spark: SparkSession) -> None:
    several = events("s", [b"a"] * 3, kinds=[Kind.GC] * 3, attributes=[{"@gc": "not older than 1s"}] * 3)
    rows_ = numbered(spark.createDataFrame(pa.Table.from_batches([several])), [Stream("s")])
    with pytest.raises(TooManyCollectors, match=r"3 garbage collection events other than `same key`.*--upto"):
        gather(rows_, limit=2)
    group = gather(rows_).groups[0]
    with pytest.raises(TooManyCollectors, match="3 garbage collection events `not older than 1s`"):
        contexts_of(group, 1, limit=2)


def test_a_tombstone_has_the_position_of_its_last_event_also_without_a_name(spark: SparkSession) -> None:
    several = events("s", [b"a"] * 4)
    nameless = pa.array([{"name": None, "sequence": n, "index": 0} for n in range(4)], several["source"].type)
    several = several.set_column(several.schema.get_field_index("source"), "source", nameless)
    found = rows(
        compacted(spark.createDataFrame(pa.Table.from_batches([several])), [Stream("s", BY_KEY)]).toArrow()
    )
    assert [row["source"] for row in found] == [{"name": None, "sequence": n, "index": 0} for n in (2, 3)]


def test_the_command(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for stream in ("orders", "clicks"):
        archived(tmp_path, stream, [events(stream, [b"a", b"b", b"a", b"a"])])
    base = ["compact", str(tmp_path)]
    assert main([*base, "--policy", "orders=same key", "--policy", "keep last 2", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "clicks: as of 4, 2 of 4 events are garbage; it would rewrite 1 of 1 files" in said
    assert main([*base, "--policy", "orders=same key", "--json"]) == 0
    clicks, orders = json.loads(capsys.readouterr().out)
    assert (clicks["stream"], clicks["living"], clicks["rewritten"]) == ("clicks", 4, 0)
    assert (orders["stream"], orders["events"], orders["living"], orders["rows"]) == ("orders", 4, 2, 4)
    assert main([*base, "orders", "--policy", "colour = red"]) == 2
    assert "is no policy of a stream" in capsys.readouterr().err
    assert main([*base, "nothing"]) == 2
    assert "no archive of stream 'nothing'" in capsys.readouterr().err
    assert main([*base, "orders", "--policy", "clicks=same key"]) == 2
    assert main([*base, "orders", "--upto", "0"]) == 2
    capsys.readouterr()
    history = History(LocalStorage(str(tmp_path)), "orders")
    assert _kinds(in_archive(history)) == [
        (1, "tombstone", "1"),
        (2, "data", "1"),
        (3, "tombstone", "1"),
        (4, "data", "1"),
    ]
