"""The part of a batch from a sequence number on, with a tombstone across it."""

import pytest

from qanat.events.batch import Batch, stream_id
from qanat.events.tombstones import from_sequence, to_sequence

STREAM = stream_id("prices")


def batch() -> Batch:
    """A tombstone for 1..10, the events 11 and 12, a tombstone for 13..20."""
    return Batch.build(
        STREAM,
        [b"", b"a", b"b", b""],
        first=1,
        seqs=[10, 11, 12, 20],
        ranges=[10, 1, 1, 8],
        kinds=[2, 0, 0, 2],
    )


@pytest.mark.paper("S2")
@pytest.mark.parametrize(
    ("start", "seqs", "ranges"),
    [
        (1, [10, 11, 12, 20], [10, 1, 1, 8]),
        (4, [10, 11, 12, 20], [7, 1, 1, 8]),
        (10, [10, 11, 12, 20], [1, 1, 1, 8]),
        (11, [11, 12, 20], [1, 1, 8]),
        (13, [20], [8]),
        (17, [20], [4]),
        (20, [20], [1]),
    ],
)
def test_a_tombstone_is_shortened_to_what_is_asked_for(
    start: int, seqs: list[int], ranges: list[int]
) -> None:
    part = Batch.decode(bytes(from_sequence(batch(), start).encode()))
    assert (part.first, part.last, part.seqs().tolist()) == (start, 20, seqs)
    assert ([1] * part.count if part.ranges is None else part.ranges.tolist()) == ranges


def test_what_was_filtered_out_does_not_lengthen_a_tombstone() -> None:
    filtered = batch().take([3])  # 13..20 alone, of a batch that covers 1..20
    part = from_sequence(filtered, 5)
    assert part.ranges is not None
    assert (part.last, part.ranges.tolist()) == (20, [8])
    assert from_sequence(batch().take([]), 5).count == 0


@pytest.mark.paper("S2")
@pytest.mark.parametrize(
    ("last", "seqs", "ranges"),
    [
        (25, [10, 11, 12, 20], [10, 1, 1, 8]),
        (20, [10, 11, 12, 20], [10, 1, 1, 8]),
        (19, [10, 11, 12, 19], [10, 1, 1, 7]),
        (13, [10, 11, 12, 13], [10, 1, 1, 1]),
        (12, [10, 11, 12], [10, 1, 1]),
        (11, [10, 11], [10, 1]),
        (10, [10], [10]),
        (1, [1], [1]),
    ],
)
def test_a_tombstone_is_cut_where_what_is_asked_for_ends(
    last: int, seqs: list[int], ranges: list[int]
) -> None:
    cut = to_sequence(batch(), last)
    assert cut is not None
    part = Batch.decode(bytes(cut.encode()))
    assert (part.first, part.last, part.seqs().tolist()) == (1, min(last, 20), seqs)
    assert ([1] * part.count if part.ranges is None else part.ranges.tolist()) == ranges


def test_nothing_of_a_batch_may_be_asked_for() -> None:
    behind = from_sequence(batch(), 13)
    assert to_sequence(behind, 12) is None
    filtered = to_sequence(batch().take([3]), 12)  # 13..20 alone, of a batch that covers 1..20
    assert filtered is None or not filtered.count
    plain = to_sequence(from_sequence(batch(), 11).take([0, 1]), 11)
    assert plain is not None and plain.seqs().tolist() == [11]
