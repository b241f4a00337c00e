"""What long work says of itself: soon, then ever more rarely, and on a terminal in one place."""

from __future__ import annotations

import io

import pytest

from qanat.cli.under_way import UnderWay


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def passing(under: UnderWay, clock: Clock, seconds: float) -> None:
    for _ in range(round(seconds * 5)):
        clock.now_s += 0.2
        under.tell()


def test_elsewhere_than_on_a_terminal_it_is_told_within_a_second_and_then_ever_more_rarely() -> None:
    words, clock = io.StringIO(), Clock()
    under = UnderWay(words, clock)
    under.say("starting Spark")
    passing(under, clock, 0.4)
    assert words.getvalue() == ""
    passing(under, clock, 0.4)
    assert words.getvalue() == "qanat: starting Spark\n"
    passing(under, clock, 170)
    told = [line.rpartition("(")[2] for line in words.getvalue().splitlines()[1:]]
    assert told == ["5 s)", "15 s)", "30 s)", "90 s)", "150 s)"]


def test_what_is_quick_is_not_told_and_what_follows_is() -> None:
    words, clock = io.StringIO(), Clock()
    under = UnderWay(words, clock)
    under.say("looking")
    passing(under, clock, 0.4)
    under.say("reading", lambda: "5 of 10 events")
    passing(under, clock, 1)
    under.done()
    passing(under, clock, 10)
    assert words.getvalue() == "qanat: reading: 5 of 10 events\n"


def test_on_a_terminal_one_line_changes_in_place_and_goes_before_anything_else_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, clock, count = io.StringIO(), Clock(), [0]

    def detail() -> str:
        count[0] += 1
        return f"{count[0]} of 9"

    under = UnderWay(words, clock, in_place=True)
    under.say("publishing", detail)
    passing(under, clock, 1.0)
    shown = words.getvalue()
    assert shown.startswith("\r\x1b[Kqanat: publishing: 1 of 9")
    assert "\n" not in shown
    under.print("1..10: 10 new events")
    assert words.getvalue() == shown + "\r\x1b[K"
    assert capsys.readouterr().out == "1..10: 10 new events\n"


def test_a_detail_that_cannot_be_had_changes_nothing() -> None:
    words, clock = io.StringIO(), Clock()
    under = UnderWay(words, clock)

    def broken() -> str:
        raise ConnectionError("Java is gone")

    under.say("counting", broken)
    passing(under, clock, 1)
    assert words.getvalue() == "qanat: counting\n"


def test_it_tells_by_itself_and_ends_with_its_block() -> None:
    words = io.StringIO()
    with UnderWay(words) as under:
        under.say("waiting")
        while not words.getvalue():
            pass
    assert words.getvalue().startswith("qanat: waiting")
