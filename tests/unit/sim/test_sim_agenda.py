"""The agenda gives events in the order of a plain heap, whatever slices they lie in."""

from heapq import heappop, heappush

from hypothesis import given
from hypothesis import strategies as st

from qanat.sim.agenda import SLICE_BITS, Agenda, Event

SLICE_US = 1 << SLICE_BITS


def take(agenda: Agenda, until_us: int) -> Event | None:
    """As the world's loop does."""
    while agenda.heap or agenda.turn(until_us):
        return None if agenda.heap[0][0] > until_us else heappop(agenda.heap)
    return None


@given(
    st.lists(
        st.one_of(st.integers(0, 20 * SLICE_US), st.tuples(st.integers(0, 3 * SLICE_US))),
        max_size=60,
    )
)
def test_events_come_in_the_order_of_a_heap(steps: list[int | tuple[int]]) -> None:
    """A number is an event so far ahead of now; in brackets: let so much time pass."""
    agenda, model = Agenda(), list[Event]()
    now = 0
    for number, step in enumerate(steps):
        if isinstance(step, int):
            event = (now + step, number, None, None, None)
            agenda.push(event)
            heappush(model, event)
        else:
            now += step[0]
            while (event_or_none := take(agenda, now)) is not None:
                assert event_or_none == heappop(model)
            assert not model or model[0][0] > now
        assert len(agenda) == len(model)
        assert sorted(agenda, key=lambda event: event[:2]) == sorted(model, key=lambda event: event[:2])


def test_a_cleared_agenda_is_empty() -> None:
    agenda = Agenda()
    agenda.push((5, 1, None, None, None))
    agenda.push((50 * SLICE_US, 2, None, None, None))
    assert len(agenda) == 2
    agenda.clear()
    assert len(agenda) == 0
    assert take(agenda, 100 * SLICE_US) is None
