"""Record files: numbers, ends, losses, what is appended while it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qanat.capture import LogReader, Lost, Updates
from qanat.capture.errors import BadLogUrl, MalformedLog
from qanat.capture.files.positions import end_of, place_of
from qanat.capture.url import check, open_reader
from qanat.events.errors import LocalError
from qanat.events.position import Position


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are listed at each read, so that no test waits for it."""
    monkeypatch.setattr("qanat.capture.files.reader._LOOK_S", 0.0)


def reader(pattern: Path, start: Any = "earliest", **options: Any) -> LogReader:
    opened = open_reader(f"file://{pattern}", **{"settle_s": 0, **options})
    opened.seek(start)
    return opened


def drain(log: LogReader, limit: int = 1000) -> list[Any]:
    """Values of `n` or `value`, and losses, until there is nothing more."""
    got: list[Any] = []
    while True:
        answer = log.read(limit)
        if isinstance(answer, Lost):
            got.append(answer)
        elif not answer:
            return got
        else:
            for update in answer.rows():
                after = update.after or {}
                got.append(after.get("n", after.get("value")))


def put(path: Path, *numbers: int, mode: str = "a") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps({"n": number}) + "\n" for number in numbers)


def line(number: int) -> int:
    return len(json.dumps({"n": number})) + 1


@pytest.mark.paper("W1")
def test_files_are_read_in_name_order_and_followed(tmp_path: Path) -> None:
    put(tmp_path / "b.jsonl", 3, 4)
    put(tmp_path / "a.jsonl", 1, 2)
    (tmp_path / "_SUCCESS").write_text("")
    log = reader(tmp_path / "*.jsonl")
    assert drain(log) == [1, 2, 3, 4]
    put(tmp_path / "b.jsonl", 5)
    assert drain(log) == [5]
    put(tmp_path / "c.jsonl", 6)
    assert drain(reader(tmp_path / "*.jsonl")) == [1, 2, 3, 4, 5, 6]


def test_a_position_is_the_number_of_the_file_and_the_offset_of_the_record(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", 1, 2)
    put(tmp_path / "b.jsonl", 3)
    answer = reader(tmp_path / "*").read(10)
    assert isinstance(answer, Updates)
    places = [place_of(update.position) for update in answer.rows()]
    assert places == [(1, 0), (1, line(1)), (2, 0)]
    assert {update.transaction for update in answer.rows()} == {
        str(tmp_path / n) for n in ("a.jsonl", "b.jsonl")
    }


def test_every_position_resumes_behind_it(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", *range(10))
    put(tmp_path / "b.jsonl", *range(10, 15))
    answer = reader(tmp_path / "*").read(100)
    assert isinstance(answer, Updates)
    for update in answer.rows():
        assert update.after is not None
        assert drain(reader(tmp_path / "*", update.position)) == list(range(update.after["n"] + 1, 15))
    assert drain(reader(tmp_path / "*", Position(0, 0))) == list(range(15))


def test_numbers_last_when_old_files_go_and_others_come_between(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", 1)
    put(tmp_path / "c.jsonl", 3)
    assert drain(reader(tmp_path / "*")) == [1, 3]
    (tmp_path / "a.jsonl").unlink()
    put(tmp_path / "b.jsonl", 2)
    log = reader(tmp_path / "*")
    answer = log.read(10)
    assert isinstance(answer, Updates)
    assert [place_of(update.position).number for update in answer.rows()] == [2, 3]
    assert log.oldest() == end_of(1)
    assert log.latest() == Position(3 << 40, 0)


@pytest.mark.parametrize(
    ("name", "record"),
    [("lines", b"abc\n"), ("u32be", b"\0\0\0\3abc"), ("u32le", b"\3\0\0\0abc")],
)
def test_half_a_record_is_waited_for(tmp_path: Path, name: str, record: bytes) -> None:
    path = tmp_path / "records"
    path.write_bytes(record)
    log = reader(path, format=name)
    assert drain(log) == [b"abc"]
    for byte in record:
        assert drain(log) == []
        with path.open("ab") as file:
            file.write(bytes([byte]))
    assert drain(log) == [b"abc"]
    assert log.latest() == Position((1 << 40) + len(record), 0)


def test_a_read_waits_for_what_is_appended(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", 1)
    log = reader(tmp_path / "*", "latest")
    assert drain(log) == []
    assert not log.read(10, wait_s=0.03)
    put(tmp_path / "a.jsonl", 2)
    answer = log.read(10, wait_s=10)
    assert [update.after for update in answer.rows()] == [{"n": 2}]  # type: ignore[union-attr]


def test_the_last_line_of_a_file_that_has_a_successor_may_lack_its_newline(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n":1}\n{"n":2}')
    log = reader(tmp_path / "*")
    assert drain(log) == [1]
    put(tmp_path / "b.jsonl", 3)
    assert drain(log) == [2, 3]
    assert drain(reader(tmp_path / "*", Position((1 << 40) + 8))) == [3]
    assert drain(reader(tmp_path / "*")) == [1, 2, 3]


@pytest.mark.paper("W13")
def test_half_a_record_at_the_end_of_a_left_file_is_said_and_read_if_it_is_completed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n":1}\n{"n":')
    put(tmp_path / "b.jsonl", 3)
    log = reader(tmp_path / "*")
    first, lost, third = drain(log)
    assert (first, third) == (1, 3)
    assert (lost.after, lost.upto) == (Position(1 << 40), end_of(1))
    assert "half a record" in lost.reason
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("2}\n")
    log = reader(tmp_path / "*", Position(2 << 40))
    assert drain(log) == [2]
    assert drain(reader(tmp_path / "*")) == [1, 3, 2]


def test_what_is_appended_to_a_file_that_was_left_gets_a_number_of_its_own(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", 1)
    put(tmp_path / "b.jsonl", 2)
    log = reader(tmp_path / "*")
    assert drain(log) == [1, 2]
    put(tmp_path / "a.jsonl", 3)
    assert drain(log) == [3]
    assert log.latest() == Position((3 << 40) + line(1))
    for position, rest in ((Position(1 << 40), [2, 3]), (Position(2 << 40), [3]), ("earliest", [1, 2, 3])):
        assert drain(reader(tmp_path / "*", position)) == rest


@pytest.mark.paper("W13")
def test_a_file_that_is_removed_before_its_end_is_lost(tmp_path: Path) -> None:
    for number, name in enumerate("abcd"):
        put(tmp_path / f"{name}.jsonl", 2 * number, 2 * number + 1)
    log = reader(tmp_path / "*")
    assert isinstance(log.read(1), Updates)
    for name in "abc":
        (tmp_path / f"{name}.jsonl").unlink()
    for again in (log, reader(tmp_path / "*", Position(1 << 40))):
        lost, *rest = drain(again)
        assert (lost.after, lost.upto) == (Position(1 << 40), end_of(3))
        assert "files 1 to 3" in lost.reason
        assert rest == [6, 7]
    assert drain(reader(tmp_path / "*", end_of(3))) == [6, 7]


@pytest.mark.paper("W13")
@pytest.mark.parametrize("resumed", [False, True])
def test_a_file_that_was_cut_is_lost_from_there_and_read_on(tmp_path: Path, resumed: bool) -> None:
    path = tmp_path / "a.jsonl"
    put(path, *range(100))
    log = reader(path)
    answer = log.read(5)
    assert isinstance(answer, Updates)
    assert answer.upto is not None
    kept = sum(map(line, range(8)))
    os.truncate(path, kept)
    if resumed:
        log = reader(path, answer.upto)
    five, six, seven, lost = drain(log)
    assert (five, six, seven) == (5, 6, 7)
    assert lost.after == Position((1 << 40) + sum(map(line, range(7))))
    assert lost.upto == end_of(1)
    put(path, 200)
    assert drain(log) == [200]
    assert drain(reader(path, lost.upto)) == [200]


@pytest.mark.paper("W13")
@pytest.mark.parametrize("how", ["truncated", "renamed", "removed"])
def test_a_file_that_was_replaced_is_another_file(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.jsonl"
    put(path, *range(10))
    log = reader(path)
    assert isinstance(log.read(5), Updates)
    if how == "removed":
        path.unlink()
    put(tmp_path / "other", *range(100, 200), mode="w")
    if how == "renamed":
        (tmp_path / "other").rename(path)
    else:
        put(path, *range(100, 200), mode="w")
    lost, *rest = drain(log)
    assert (lost.after, lost.upto) == (Position((1 << 40) + sum(map(line, range(4)))), end_of(1))
    assert rest == list(range(100, 200))
    assert drain(reader(path, lost.upto)) == list(range(100, 200))


@pytest.mark.paper("W13")
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("kept", [1, 3, 8])
@pytest.mark.parametrize("had", [5, 10])
def test_a_file_that_was_cut_to_less_than_was_read_of_it_is_another_file(
    tmp_path: Path, had: int, kept: int, grown: bool, resumed: bool
) -> None:
    """What it has now may have been written since: it is read again rather than passed over."""
    if kept >= had:
        return
    path = tmp_path / "a.jsonl"
    put(path, *range(10))
    log = reader(path)
    answer = log.read(had)
    assert isinstance(answer, Updates)
    assert answer.upto is not None
    os.truncate(path, sum(map(line, range(kept))))
    if grown:
        put(path, 200)
    if resumed:
        log = reader(path, answer.upto)
    lost, *rest = drain(log)
    assert (lost.after, lost.upto) == (answer.upto, end_of(1))
    assert rest == [*range(kept), *([200] if grown else [])]
    put(path, 300)
    assert drain(log) == [300]
    assert drain(reader(path, lost.upto)) == [*rest, 300]


def test_a_file_of_several_numbers_that_was_cut_is_another_file_in_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    put(path, *range(10))
    log = reader(path)
    assert isinstance(log.read(5), Updates)
    os.truncate(path, sum(map(line, range(8))))
    assert len(drain(log)) == 4
    put(path, 10)
    assert drain(log) == [10]
    os.truncate(path, line(0))
    put(path, 20)
    lost, *rest = drain(log)
    assert (place_of(lost.after).number, lost.upto) == (2, end_of(2))
    assert rest == [0, 20]


def test_a_file_that_is_renamed_within_the_pattern_stays_the_same(tmp_path: Path) -> None:
    put(tmp_path / "app.log", 1, 2, 3)
    log = reader(tmp_path / "app.log*", format="jsonl")
    assert isinstance(log.read(1), Updates)
    (tmp_path / "app.log").rename(tmp_path / "app.log.1")
    put(tmp_path / "app.log", 4)
    assert drain(log) == [2, 3, 4]
    assert drain(reader(tmp_path / "app.log*", format="jsonl")) == [1, 2, 3, 4]


def test_what_is_no_record_stops_the_reader_with_the_way_round_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n":1}\n{"n":\n{"n":3}\n')
    log = reader(path)
    assert isinstance(answer := log.read(10), Updates)
    assert len(answer) == 1
    for _ in range(2):
        with pytest.raises(MalformedLog, match=r"8 bytes on.*from position 1099511627784:4294967295") as bad:
            log.read(10)
        assert (bad.value.position, bad.value.original) == (Position(1099511627784), b'{"n":')
        assert bad.value.resume == Position.parse("1099511627784:4294967295")
    log.seek(Position.parse("1099511627784:4294967295"))
    assert drain(log) == [3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: reader(path, format="xml"), "format="),
        (lambda path: reader(path, settle_s="soon"), "settle_s"),
        (lambda path: reader(path, order="size"), "order"),
        (lambda path: reader(path, columns="all"), "columns"),
        (lambda path: reader(path, Position(9 << 40)), "only 1 files were numbered"),
        (lambda path: reader(path, Position((1 << 40) + 3)), "no line begins"),
        (lambda path: reader(path, Position(1 << 70)), "64 bits"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, change: Callable[[Path], LogReader], message: str
) -> None:
    put(tmp_path / "a.jsonl", 1, 2)
    with pytest.raises((BadLogUrl, LocalError), match=message):
        drain(change(tmp_path / "a.jsonl"))


def test_the_newest_update_may_be_in_a_file_before_the_newest(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", 1)
    (tmp_path / "b.jsonl").touch()
    log = reader(tmp_path / "*.jsonl")
    assert log.latest() == Position(1 << 40)
    put(tmp_path / "a.jsonl", 2)  # it is not done with because another one was made
    assert log.latest() == Position((1 << 40) + line(1))
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "b.jsonl").unlink()
    assert log.latest() == end_of(2)


def test_an_empty_pattern_has_nothing_yet(tmp_path: Path) -> None:
    log = reader(tmp_path / "*.jsonl")
    assert (log.oldest(), log.latest()) == (end_of(0), end_of(0))
    assert drain(log) == []
    put(tmp_path / "a.jsonl", 1)
    assert drain(log) == [1]


def test_lines_as_values_and_keys(tmp_path: Path) -> None:
    put(tmp_path / "prices-1.jsonl", 1)
    (update,) = reader(tmp_path / "prices-*", columns="value").read(9).rows()  # type: ignore[union-attr]
    assert update.after == {"value": '{"n": 1}'}
    (update,) = reader(tmp_path / "prices-*", key="n", dataset="shop").read(9).rows()  # type: ignore[union-attr]
    assert update.table.key == ("n",)
    assert update.table.path == "prices"
    assert reader(tmp_path / "prices-*", dataset="shop").source == "shop"


def test_a_register_may_be_elsewhere(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    put(files / "a.jsonl", 1)
    assert drain(reader(files / "*", register=str(tmp_path / "register"))) == [1]
    assert [path.name for path in files.iterdir()] == ["a.jsonl"]
    assert {path.stem for path in (tmp_path / "register").iterdir()} == {"000000000001"}


def test_the_check_says_what_to_change(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", 1)
    (tmp_path / "a.avro").write_bytes(b"PAR1")
    (tmp_path / "a.bin").write_bytes(b"\0\0\0\1a")

    def findings(pattern: str, **options: Any) -> list[tuple[bool, str]]:
        return [(one.ok, one.fix) for one in check(f"file://{tmp_path}/{pattern}", **options)]

    assert [ok for ok, _ in findings("*.jsonl")] == [True, True, True]
    assert [ok for ok, _ in findings("*.bin", format="u32be")] == [True, True, True]
    assert "pattern" in findings("*.csv")[0][1]
    for pattern in ("*.avro", "*.bin"):
        _, (ok, fix), _ = findings(pattern)
        assert not ok
        assert "format=" in fix
