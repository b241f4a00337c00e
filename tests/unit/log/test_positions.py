"""What a replica learns of sources from batches that were numbered elsewhere."""

import sys
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.batch import Batch, Kind
from qanat.events.encode import encode, prepare
from qanat.events.errors import LocalError, code_of
from qanat.log import LogConfig, StreamLog
from qanat.log.disk_memory import MemoryDisk
from qanat.log.positions import Positions, chosen
from qanat.log.reader import Chunk


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


def many(names: list[str], codes: np.ndarray, sequences: np.ndarray) -> Batch:
    draft = prepare(1, np.zeros((len(codes), 1), np.uint8), first=1)
    places = sequences.astype(np.uint64), np.zeros(len(codes), np.uint32)
    return Batch.decode(encode(draft._replace(sources=names, source_codes=codes, positions=places)))


def _steps(work: Callable[[], object]) -> int:
    """Calls of functions, ours and NumPy's, that some work takes."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_many_sources_in_one_batch_cost_as_much_each_as_one_does_alone() -> None:
    def batch(sources: int) -> Batch:
        codes = np.repeat(np.arange(sources), 2)
        return many([f"s{i}" for i in range(sources)], codes, np.tile([3, 4], sources))

    few, lots = batch(500), batch(40_000)
    for known in (
        {},
        {f"s{i}": (3, 0) for i in range(0, 40_000, 3)},
        {f"s{i}": (9, 0) for i in range(40_000)},
    ):
        positions = Positions(65_536, known)
        each = _steps(lambda: positions.admit(few)) / 500  # noqa: B023
        assert _steps(lambda: positions.admit(lots)) / 40_000 < 2 * each + 1  # noqa: B023
    assert _steps(lambda: Positions(65_536).observe(lots)) / 40_000 < 5


def test_a_source_more_at_the_bound_costs_the_same_however_many_are_remembered() -> None:
    def steps(lasting: int) -> int:
        positions = Positions(lasting + 10, {f"s{i}": (1, 0) for i in range(lasting)})
        for i in range(20):
            positions.learn(positions.admit(Batch.build(1, [b"a"], source=f"~{i}", position=1))[1])
        assert len(positions.highest) == lasting + 10
        batch = Batch.build(1, [b"a"], source="~again", position=1)
        return _steps(lambda: positions.learn(positions.admit(batch)[1]))

    assert steps(20_000) < steps(100) + 50


def test_new_rows_between_known_ones_are_stored_as_one_batch() -> None:
    """As many batches as there are gaps would cost many times what was sent."""
    log = StreamLog.open(MemoryDisk(), "log", 1, LogConfig(mode="memory"))
    log.append(Batch.build(1, [b"x"], source="a", positions=([10_000], [0])))
    sequences = np.repeat(np.arange(1, 5001), 2)
    batch = many(["a", "b"], np.tile([0, 1], 5000), sequences)
    before = log.stats().bytes
    assert log.append(batch) == (2, 5001, 5000)
    assert log.stats().bytes - before <= batch.size
    chunk = log.read(2, 1 << 20)
    assert isinstance(chunk, Chunk)
    (stored,) = chunk.batches()
    assert stored.is_dense and stored.source_names == ["a", "b"]
    found = stored.positions()
    assert found is not None and found[0].tolist() == list(range(1, 5001))
    assert log.append(batch) == (5002, 5001, 10_000)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=25),
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 12), st.integers(0, 1))),
    st.integers(1, 6),
)
def test_admission_is_that_of_a_loop_over_rows(
    steps: list[tuple[int, int, int]], known: dict[str, tuple[int, int]], limit: int
) -> None:
    known = dict(list(known.items())[:limit])
    at = dict.fromkeys(range(4), 0)
    rows = []
    for code, more, index in steps:
        at[code] += more
        rows.append((code, at[code], index))
    names = ["a", "b", "c", "d"]
    codes, sequences, indexes = (np.array(column) for column in zip(*rows, strict=True))
    draft = prepare(1, [b"x"] * len(rows), first=1)._replace(sources=names, source_codes=codes)
    places = sequences.astype(np.uint64), indexes.astype(np.uint32)
    batch = Batch.decode(encode(draft._replace(positions=places)))

    newest, fresh, wrong = dict(known), [], ""
    last: dict[str, tuple[int, int]] = {}
    for code, sequence, index in rows:
        name, place = names[code], (sequence, index)
        if name in last and place <= last[name]:
            wrong = "position_order"
            break
        last[name] = place
        fresh.append(name not in newest or place > newest[name])
        newest[name] = max(place, newest.get(name, place))
    if not wrong and len(newest) > limit and len(newest) > len(known):
        wrong = "source_limit"
    positions = Positions(limit, known)
    try:
        picked, after = positions.admit(batch)
    except LocalError as error:
        assert code_of(error) == wrong
        assert positions.highest == known
        return
    assert not wrong
    mask = np.zeros(len(rows), bool)
    mask[picked] = True
    assert mask.tolist() == fresh
    positions.learn(after)
    assert positions.highest == newest
    assert [part.count for part in chosen(batch, picked)] == [sum(fresh)] * any(fresh)
