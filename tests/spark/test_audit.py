"""The audit as a Spark job: what was planted is found, and nothing else; what the archive cannot decide is
said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.spark.auditing import LATE_US, Row, event, make_archive, make_record, whole

from qanat.cli.main import main
from qanat.client.record_format import Entry
from qanat.pipeline.audit.job import NoRecordings, audit
from qanat.pipeline.audit.report import WORDS, Account, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN, LAST = 65_500, 65_600
"""Across the border of two blocks."""
Found = dict[str, list[tuple[str, int, int]]]


def found(report: Report, stream: str) -> Found:
    by: Found = {}
    for violation in report.violations:
        if violation.stream == stream:
            by.setdefault(violation.subscriber, []).append((violation.kind, violation.first, violation.last))
    return by


def sums(report: Report, stream: str) -> dict[str, Account]:
    return {account.subscriber: account for account in report.accounts if account.stream == stream}


class Audits(NamedTuple):
    """The same recordings twice: as they are; and with a policy told, when all must have come to the
    archive's end."""

    plain: Report
    strict: Report


@pytest.fixture(scope="module")
def audits(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audits:
    archive, folder = tmp_path_factory.mktemp("archive"), tmp_path_factory.mktemp("records")
    violations(archive, folder / "violations")
    restarts(archive, folder / "restarts")
    tombstones(archive, folder / "tombstones")
    policies = {"graves": "keep last 5 or same key"}
    return Audits(
        audit(spark, str(folder), str(archive)),
        audit(spark, str(folder), str(archive), whole=True, policies=policies),
    )


# --- every kind of violation ------------------------------------------------------------------------


def red(row: dict[str, Any]) -> bool:
    return ("colour", "red") in row["attributes"]


def violations(archive: Path, folder: Path) -> None:
    rows = [event(seq, colour="red" if seq % 10 == 0 else "") for seq in range(BEGIN, LAST + 1)]
    rows[65_541 - BEGIN] = event(65_541, gc="upto 65502")
    make_archive(archive, "orders", rows, BEGIN, LAST)
    front: Row = (Entry.DATA, BEGIN, 65_540)
    behind: list[Row] = [(Entry.GC, 65_541, 65_541), (Entry.DATA, 65_542, LAST)]
    reds = whole(rows, red)

    def record(name: str, entries: list[Row], where: str = "", region: str = "eu") -> None:
        make_record(folder, name, entries, where=where, region=region, start=str(BEGIN), first=BEGIN)

    record("faultless", [front, *behind])
    record("red", reds, "colour = 'red'", "us")
    record("gap", [(Entry.DATA, BEGIN, 65_530), (Entry.DATA, 65_539, 65_540), *behind])
    record("lost", [(Entry.LOST, BEGIN, 65_509), (Entry.DATA, 65_510, 65_540), *behind])
    twice: list[Row] = [
        (Entry.DATA, BEGIN, 65_520),
        (Entry.DATA, 65_515, 65_520),
        (Entry.DATA, 65_521, 65_540),
    ]
    record("duplicate", [*twice, *behind])
    record("out_of_order", [(Entry.DATA, 65_501, 65_540), *behind, (Entry.DATA, BEGIN, BEGIN)])
    record("not_delivered", [row for row in reds if row[1] != 65_550], "colour = 'red'")
    more: list[Row] = [*reds, (Entry.DATA, 65_555, 65_555)]
    record("filtered_delivered", sorted(more, key=lambda row: row[1]), "colour = 'red'")
    record("not_in_archive", [(Entry.DATA, BEGIN, LAST)])
    record("unexplained", [(Entry.TOMBSTONE, BEGIN, 65_504), (Entry.DATA, 65_505, 65_540), *behind])


@pytest.mark.paper("D7")
def test_every_kind_of_violation_is_found_at_the_subscriber_that_has_it(audits: Audits) -> None:
    report = audits.plain
    assert found(report, "orders") == {
        "gap": [("gap", 65_531, 65_538)],
        "lost": [("lost", BEGIN, 65_509)],
        "duplicate": [("duplicate", 65_515, 65_520)],
        "out_of_order": [("out_of_order", BEGIN, BEGIN)],
        "not_delivered": [("not_delivered", 65_550, 65_550)],
        "filtered_delivered": [("filtered_delivered", 65_555, 65_555)],
        "not_in_archive": [("not_in_archive", 65_541, 65_541)],
        "unexplained": [("unexplained", 65_503, 65_503), ("unexplained", 65_504, 65_504)],
    }
    assert {violation.kind for violation in report.violations} == set(WORDS)
    assert report.outcome == "refuted"
    accounts = sums(report, "orders")
    assert accounts["gap"].violations == {"gap": 8}
    assert (accounts["unexplained"].violations, accounts["unexplained"].collected) == ({"unexplained": 2}, 5)
    assert (accounts["faultless"].violations, accounts["faultless"].delivered) == ({}, LAST - BEGIN + 1)
    assert (accounts["red"].violations, accounts["red"].proven_to) == ({}, LAST)
    assert report.latency_ms["us"]["p50"] == pytest.approx(LATE_US / 1000, rel=0.02)
    assert report.latency_ms["us"]["events"] == accounts["red"].delivered
    assert "orders 65531..65538 was never delivered (gap)" in [v.sentence() for v in report.violations]


# --- subscribers that were started again ------------------------------------------------------------


def restarts(archive: Path, folder: Path) -> None:
    make_archive(archive, "runs", [event(seq) for seq in range(1, 101)], 1, 100)

    def record(name: str, began: int, start: str, first: int, last: int) -> None:
        entries: list[Row] = [(Entry.DATA, first, last)]
        make_record(folder, name, entries, stream="runs", start=start, first=first, began=began)

    # It went on where its application was, a little before where it was killed.
    record("again", 0, "1", 1, 40)
    record("again", 1, "31", 31, 80)
    # It went on behind what it had been given.
    record("forgot", 0, "1", 1, 40)
    record("forgot", 1, "51", 51, 80)
    # It went on with what was newest then, by choice.
    record("newest", 0, "1", 1, 40)
    record("newest", 1, "latest", 61, 80)
    record("newest", 2, "81", 81, 90)


def test_a_subscriber_that_was_started_again(audits: Audits) -> None:
    assert found(audits.plain, "runs") == {"forgot": [("gap", 41, 50)]}
    accounts = sums(audits.plain, "runs")
    assert (accounts["again"].runs, accounts["again"].repeated, accounts["again"].delivered) == (2, 10, 90)
    assert (accounts["newest"].runs, accounts["newest"].skipped) == (3, 20)


def test_to_have_everything_they_must_come_to_the_archives_end(audits: Audits) -> None:
    assert found(audits.strict, "runs") == {
        "again": [("gap", 81, 100)],
        "forgot": [("gap", 41, 50), ("gap", 81, 100)],
        "newest": [("gap", 91, 100)],
    }


# --- tombstones -------------------------------------------------------------------------------------


def tombstones(archive: Path, folder: Path) -> None:
    predicates = {
        3: "same key",
        8: "colour = 'red' or same key",
        12: "keep last 11",
        13: "upto 9 and colour = 'blue'",
    }
    rows = [
        event(seq, key=b"a", gc=predicates[seq])
        if seq in predicates
        else event(seq, key=b"ab"[seq % 2 :][:1], colour="red" if seq in (5, 6) else "green")
        for seq in range(1, 21)
    ]
    make_archive(archive, "graves", rows, 1, 20, files=3)
    of = {row["seq"]: row for row in rows}
    assert [of[seq]["key"] for seq in (2, 4, 10, 7)] == [b"a", b"a", b"a", b"b"]

    def record(name: str, *graves: tuple[int, int], upto: int = 20) -> None:
        under = {seq for first, last in graves for seq in range(first, last + 1)}
        entries = whole([of[seq] for seq in range(1, upto + 1) if seq not in under])
        entries += [(Entry.TOMBSTONE, first, last) for first, last in graves]
        make_record(folder, name, sorted(entries, key=lambda row: row[1]), stream="graves")

    record("fine", (1, 2), (4, 6))  # 1 by `keep last`, 2 and 4 by their key, 5 and 6 as red
    record("wrong", (7, 7), (10, 10))  # of another key; of the key, but later than its last GC event
    record("stopped", (4, 4), upto=6)  # the GC event comes behind its end
    record("silenced", (4, 6), (8, 8))  # the reason itself is under a tombstone
    record("young", (16, 20))  # the archive has nothing newer than the tombstone


def test_a_tombstone_needs_a_later_event_that_collects_what_it_stands_for(audits: Audits) -> None:
    assert found(audits.plain, "graves") == {
        "wrong": [("unexplained", seq, seq) for seq in (7, 10)],
        "silenced": [("unexplained", seq, seq) for seq in (4, 5, 6, 8)],
    }
    (sentence,) = audits.plain.not_proven
    assert "tombstones came for 5 events of stream 'graves' that nothing collects up to 20" in sentence


def test_under_a_policy_any_event_may_be_the_reason(audits: Audits) -> None:
    assert set(found(audits.strict, "graves")) == {"stopped"}  # which did not come to the end


# --- what cannot be decided -------------------------------------------------------------------------


def test_what_cannot_be_decided_is_said(spark: SparkSession, tmp_path: Path) -> None:
    archive, folder = tmp_path / "archive", tmp_path / "records"
    make_archive(archive, "orders", [event(seq) for seq in range(1, 101)], 1, 100)
    make_record(folder, "ahead", [(Entry.DATA, 1, 120)])
    make_record(folder, "elsewhere", [(Entry.DATA, 1, 3)], stream="prices")
    make_record(folder, "partly", [(Entry.DATA, 1, 3)], part=1)
    torn = make_record(folder, "torn", [(Entry.DATA, 1, 3), (Entry.DATA, 4, 9)])
    torn.write_bytes(torn.read_bytes()[:-7])
    bad = make_record(folder, "damaged", [(Entry.DATA, 1, 3), (Entry.DATA, 4, 9)])
    data = bytearray(bad.read_bytes())
    data[-40] ^= 1
    bad.write_bytes(data)
    report = audit(spark, str(folder), str(archive))
    assert not report.violations and report.outcome == "not proven"
    said = "\n".join(report.not_proven)
    assert "ahead was given 'orders' up to 120; the archive has 1..100: 101..120 is not decided" in said
    assert "stream 'prices' is not in the archive" in said
    assert "partly: of its recording" in said and "[0] are missing" in said
    assert "damaged at byte" in said
    accounts = sums(report, "orders")
    assert accounts["ahead"].proven_to == 100
    assert (accounts["torn"].last, accounts["torn"].proven_to) == (3, 3)
    with pytest.raises(NoRecordings, match="no recordings"):
        audit(spark, str(archive), str(archive))


@pytest.mark.parametrize("harm", ["flipped", "manifest"])
def test_a_damaged_archive_is_one_sentence_and_a_code_of_its_own(
    spark: SparkSession, tmp_path: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, folder = tmp_path / "archive", tmp_path / "records"
    make_archive(archive, "orders", [event(seq) for seq in range(1, 101)], 1, 100)
    make_record(folder, "till", [(Entry.DATA, 1, 100)])
    file = sorted(archive.rglob("*.json" if harm == "manifest" else "*.parquet"))[-1]
    data = bytearray(file.read_bytes())
    data[len(data) - 40] ^= 0xFF  # of a Parquet file, in its footer: the size is as it was
    file.write_bytes(data)
    capsys.readouterr()
    assert main(["audit", str(folder), "--archive", str(archive)]) == 4
    said = capsys.readouterr().out
    assert said.startswith("undecided, because the archive is damaged: ") and file.name in said
    assert said.count("\n") == 1 and "Traceback" not in said and "org.apache" not in said


def test_an_archive_that_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("qanat.pipeline.session.open_session", None)  # nobody may call it
    make_record(tmp_path / "records", "till", [(Entry.DATA, 1, 3)])
    nowhere = str(tmp_path / "nowhere")
    assert main(["audit", str(tmp_path / "records"), "--archive", nowhere]) == 2
    assert f"there is no archive at {nowhere}" in capsys.readouterr().err
