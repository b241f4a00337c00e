"""More live subscribers than can be written to in a row, and filters that take too long together: each gets
its events once and in order, in turns with what else there is to do."""

import pytest
from tests.unit.serving.laggards import Stream, numbers
from tests.waiting import run, until

from qanat.serving import delivery, filter_cost
from qanat.serving import live_filters as listening


@pytest.mark.parametrize("time_s", [0.0, 60.0])
@pytest.mark.parametrize("at_once", [0, 3_000, 1 << 30])
def test_each_gets_its_events_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, at_once: int, time_s: float
) -> None:
    monkeypatch.setattr(delivery, "_AT_ONCE_BYTES", at_once)
    monkeypatch.setattr(listening, "_FIND_S", time_s)

    async def main() -> None:
        stream = Stream(100)
        all_ = [stream.join(f"all {number}", at=101) for number in range(8)]
        odd = [stream.join(f"odd {number}", at=101, where="parity = 1") for number in range(8)]
        heavy = [
            stream.join(f"heavy {number}", at=101, where=f"parity = 1 and not x{number} ~ 'a[ab]{{99}}x'")
            for number in range(4)
        ]
        assert stream.live == 20
        for _ in range(20):
            stream.grow(50)
            await until(lambda: all(each.at == stream.log.next for _, each in (*all_, *odd, *heavy)))
        assert stream.live == 20
        for peer, _ in all_:
            assert numbers(peer, 101) == list(range(101, 1_101))
        for peer, _ in (*odd, *heavy):
            assert numbers(peer, 101) == list(range(101, 1_101, 2))
        for _, subscriber in (*all_, *odd, *heavy):
            stream.unsubscribe(subscriber)
        assert not stream.live
        stream.stop_delivery()

    run(main())


def test_what_is_searched_beside_the_loop_comes_in_order_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "AT_ONCE", 0)
    assert filter_cost.AT_ONCE

    async def main() -> None:
        stream = Stream(1_000)
        joined = [stream.join(f"{number}", where="parity ~ '1{1,99}'") for number in range(4)]
        gone, leaving = stream.join("gone", where="parity ~ '1{1,99}'")
        stream.pump(leaving)
        assert leaving.searching
        stream.unsubscribe(leaving)
        for _ in range(5):
            stream.grow(50)
            await until(lambda: all(each.at == stream.log.next for _, each in joined))
        for peer, _ in joined:
            assert numbers(peer) == []  # numbers match no pattern: only what did not match is told
        assert not gone.events
        stream.stop_delivery()

    run(main())
