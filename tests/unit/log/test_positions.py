"""What a replica learns of sources from batches that were numbered elsewhere."""

import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.log.positions import Positions


def _sure(batch: Batch) -> dict[str, tuple[int, int]]:
    positions = Positions(10)
    seen = positions.observe(batch)
    positions.learn(seen)
    return positions.highest


def test_a_client_s_own_numbering() -> None:
    batch = Batch.build(1, [b"a", b"b", b"c"], first=1, source="x", position=7)
    assert _sure(batch) == {"x": (9, 0)}
    assert _sure(batch.slice(0, 2)) == {"x": (8, 0)}
    assert _sure(batch.slice(1, 2)) == {"x": (8, 0)}


def test_positions_of_their_own_and_tombstones() -> None:
    columns = np.array([3, 3, 9], np.uint64), np.array([0, 5, 0], np.uint32)
    batch = Batch.build(1, [b"a", b"b", b"c"], first=1, source="x", positions=columns)
    assert _sure(batch) == {"x": (9, 0)}
    kinds = [Kind.DATA, Kind.DATA, Kind.TOMBSTONE]
    batch = Batch.build(
        1, [b"a", b"b", b""], first=1, source="x", positions=columns, kinds=kinds, ranges=[1, 1, 1]
    )
    assert _sure(batch) == {"x": (3, 5)}


def test_nothing_to_learn() -> None:
    assert _sure(Batch.build(1, [b"a"], first=1)) == {}
    assert _sure(Batch.build(1, [b"a"], first=1, source="x", position=1).slice(0, 0)) == {}
