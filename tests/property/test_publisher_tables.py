"""Places of a reader of tables, against a naive model: whoever comes to the end has had every row, whatever
happened on the way."""

from __future__ import annotations

from random import Random

import pytest

from qanat.protocols.publisher import tables
from qanat.protocols.publisher.tables import LAST_INDEX, Places, Snapshot, Where

KEYS = [f"{number:03}" for number in range(60)]


class Flow:
    def __init__(self) -> None:
        self.at = self.marked = 0
        self.has: set[str] = set()
        self.kept: set[str] = set()
        """As of its datamarker."""

    def mark(self) -> None:
        self.marked, self.kept = self.at, set(self.has)

    def go_back(self) -> None:
        self.at, self.has = self.marked, set(self.kept)


@pytest.mark.paper("W9")
def test_who_comes_to_the_end_has_had_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "REMEMBERED", 8)
    for seed in range(120):
        travel(Random(seed))


def travel(rng: Random) -> None:
    places = Places()
    left = [Flow() for _ in range(4)]
    while left:
        for flow in left:
            if rng.random() < 0.2:
                flow.mark()
            elif rng.random() < 0.1:
                flow.go_back()
        if rng.random() < 0.05:  # the process dies, and with it what was remembered
            places = Places()
            for flow in left:
                flow.go_back()
        aboard = [flow for flow in left if rng.random() < 0.8]
        if not aboard:
            continue
        number, where = places.begin(min(flow.at for flow in aboard), max(flow.at for flow in left))
        run, missing = places.run, [key for key in KEYS if rng.random() < 0.05]  # deleted meanwhile
        for _ in range(rng.randrange(1, 12)):
            rest = [key for key in KEYS if where.key is None or (key,) > where.key]
            rows = rest[: rng.randrange(1, 9)]
            if not rows:
                for flow in aboard:
                    assert flow.has >= set(KEYS), "a row is missing"
                left = [flow for flow in left if flow not in aboard]
                break
            there = [row for row in rows if row not in missing]
            for flow in aboard:
                flow.has |= set(rows) - set(there)  # nobody needs what is not there
            where = Where("t", (rows[-1],))
            if not there:
                continue
            assert places.read(run, len(there), where)
            if rng.random() < 0.2:
                break  # nobody got these
            for flow in aboard:
                assert flow.at <= number, "a number that somebody has had is not given again"
                flow.at, flow.has = number + len(there), flow.has | set(there)
            number += len(there)


def test_a_reader_whose_place_another_has_taken_does_not_go_on() -> None:
    places = Places()
    places.begin(0, 0)
    run = places.run
    assert places.read(run, 5, Where("t", ("5",)))
    assert places.begin(5, 9) == (9, Where("t", ("5",)))
    assert not places.read(run, 5, Where("t", ("9",)))
    assert places.begin(8, 9) == (9, Where("t", ("5",)))


def test_a_snapshot_holds_those_who_have_not_had_all_rows() -> None:
    snapshot = Snapshot(7, 1)
    assert snapshot.holds(snapshot.end._replace(index=0))
    assert snapshot.holds(snapshot.end._replace(index=LAST_INDEX - 1))
    assert not snapshot.holds(snapshot.end)
    assert not snapshot.holds(snapshot.end._replace(sequence=8, index=0))
