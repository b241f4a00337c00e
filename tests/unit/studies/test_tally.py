"""The tally finds each kind of fault; it is what the demonstration's verdict stands on."""

import pyarrow as pa

from qanat.studies.tally import Tally, make


def piece(producer: int, *counters: int) -> pa.Array:
    return pa.concat_arrays([make(producer, counter, 1, 20) for counter in counters])


def test_everything_in_order() -> None:
    tally = Tally(2)
    tally.take(pa.concat_arrays([make(0, 0, 5, 20), make(1, 0, 3, 20)]))
    tally.take(make(1, 3, 4, 20).slice(0, 2))
    assert (tally.delivered, tally.duplicated, tally.out_of_order) == (10, 0, 0)
    assert tally.lost([5, 5]) == 0
    assert tally.lost([6, 7]) == 3


def test_a_gap_is_a_loss() -> None:
    tally = Tally(1)
    tally.take(piece(0, 0, 1, 4))
    assert tally.lost([5]) == 2


def test_a_late_event_is_out_of_order_and_not_lost() -> None:
    tally = Tally(1)
    tally.take(piece(0, 0, 2))
    tally.take(piece(0, 1))
    assert (tally.out_of_order, tally.duplicated, tally.lost([3])) == (1, 0, 0)


def test_a_repeated_event_is_a_duplicate() -> None:
    tally = Tally(1)
    tally.take(piece(0, 0, 1, 1))
    tally.take(piece(0, 0))
    assert (tally.duplicated, tally.lost([2])) == (2, 0)
