"""Memory is used again once nobody looks at it, and never before; no more than the limit is kept."""

from __future__ import annotations

import gc

from hypothesis import given
from hypothesis import strategies as st

from qanat.events.buffers import Buffers

LIMIT = 4 << 20
SIZES = st.lists(st.tuples(st.integers(1, 3 << 20), st.booleans()), max_size=30)


@given(SIZES)
def test_nobody_gets_what_another_sees(steps: list[tuple[int, bool]]) -> None:
    buffers = Buffers(LIMIT)
    held: list[tuple[memoryview, int]] = []
    for number, (size, is_kept) in enumerate(steps):
        room = buffers.room(size)
        assert len(room) == size
        room[0] = room[-1] = number
        if is_kept:
            held.append((room, number))
        del room
        assert all(view[0] == view[-1] == mark for view, mark in held)
        assert sum(map(len, buffers._used)) <= LIMIT


def test_what_is_free_again_is_used_again() -> None:
    buffers = Buffers(LIMIT)
    first = buffers.room(1 << 20)
    memory = first.obj
    part = first[10:20]
    del first
    assert buffers.room(1 << 20).obj is not memory, "a part of it is seen"
    del part
    gc.collect()
    assert buffers.room(1 << 20).obj is memory


def test_more_than_the_limit_is_given_and_not_kept() -> None:
    buffers = Buffers(LIMIT)
    assert len(buffers.room(2 * LIMIT)) == 2 * LIMIT
    assert not buffers._used
