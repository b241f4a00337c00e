"""A stream at a replica: answers in order, publishers held, events shown up to what the chain has."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from qanat.events.batch import Batch, decode_all, stream_id
from qanat.events.errors import LocalError
from qanat.log import LogConfig, Policy, StreamLog
from qanat.log.disk import OsDisk
from qanat.protocols.chain import Answered, Publish
from qanat.protocols.chain import Refused as ChainRefused
from qanat.protocols.history import Synced
from qanat.replica.chained_stream import ChainedStream
from qanat.replica.tickets import Tickets
from qanat.runtime.connection import Connection
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.serving.refusals import NotTail
from qanat.serving.subscriber import ClientState, Subscriber
from qanat.serving.syncing import Syncing
from qanat.wire.reader import FrameReader
from qanat.wire.streams import EVENTS, Open, Opened, Refused, Stored, decode_control

STREAM = stream_id("s")


class FakeConnection:
    """Remembers what was sent, decoded."""

    def __init__(self) -> None:
        self.reading = self.writable = True
        self.said: list[Any] = []
        self.events: list[Batch] = []
        self.state: dict[int, object] = {}
        self.kept_bytes = 0

    def send(self, type_: int, channel: int, control: bytes = b"", attachments: Any = ()) -> None:
        self.said.append(decode_control(type_, control))

    def send_parts(self, parts: list[Any]) -> None:
        data = b"".join(bytes(part) for part in parts)
        reader = FrameReader(initial_bytes=len(data))
        reader.get_buffer()[: len(data)] = data
        reader.advance(len(data))
        while (frame := reader.next_frame()) is not None:
            if frame.type == EVENTS:
                self.events += decode_all(frame.attachment)
            else:
                self.said.append(decode_control(frame.type, frame.control))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    @property
    def numbers(self) -> list[int]:
        return [int(number) for batch in self.events for number in batch.seqs()]


class Chain:
    """Stands in for the machine: publishes are collected, and answered when the test says so."""

    def __init__(self, tickets_max: int = 100) -> None:
        self.asked: list[Publish] = []
        self.busy = False
        self.tickets = Tickets(self._request, tickets_max)

    def _request(self, publish: Publish) -> None:
        if self.busy:
            raise LocalError("not now")
        self.asked.append(publish)

    def answer(self, place: int, first: int, last: int, dropped: int = 0) -> None:
        self.tickets.on_outcome(Answered(1, self.asked[place].ticket, STREAM, first, last, dropped, last))

    def refuse(self, place: int, code: str = "not_head", *, definite: bool = True) -> None:
        ticket = self.asked[place].ticket
        self.tickets.on_outcome(ChainRefused(ticket, code, "no", "eu/proxy-2", definite))


def run(main: Callable[[ChainedStream, Chain, Any], Coroutine[Any, Any, None]], tmp_path: Path) -> None:
    async def whole() -> None:
        chain = Chain(tickets_max=8)
        log = StreamLog.open(OsDisk(), str(tmp_path), STREAM, LogConfig())
        await main(ChainedStream("s", "eu", log, chain.tickets), chain, FakeConnection())
        log.close()

    asyncio.run(whole())


def batch(*payloads: bytes) -> Batch:
    return Batch.build(STREAM, list(payloads))


def test_answers_go_out_in_the_order_of_the_publishes(tmp_path: Path) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        for request in (1, 2, 3):
            stream.publish(client, request, [batch(b"x")])
        chain.refuse(1)
        chain.answer(2, 2, 2)
        await asyncio.sleep(0)
        assert client.said == [] and stream.unanswered == 3
        chain.answer(0, 1, 1)
        await asyncio.sleep(0)
        refused = Refused(2, "not_head", "no; the head is eu/proxy-2", True)
        assert client.said == [Stored(1, 1, 1), refused, Stored(3, 2, 2)]
        assert (stream.published_events, stream.unanswered) == (2, 0)

    run(main, tmp_path)


def test_a_publish_that_is_stored_in_part_is_not_refused_definitely(tmp_path: Path) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        stream.publish(client, 7, [batch(b"a"), batch(b"b", b"c")])
        chain.refuse(0, "disk_full")
        chain.answer(1, 1, 2)
        await asyncio.sleep(0)
        assert client.said == [Refused(7, "disk_full", "no", False)]
        stream.publish(client, 8, [batch(b"a"), batch(b"b", b"c")])
        chain.answer(2, 3, 3)
        chain.answer(3, 4, 5, dropped=1)
        await asyncio.sleep(0)
        assert client.said[1:] == [Stored(8, 3, 5, 1)]

    run(main, tmp_path)


def test_open_is_answered_when_all_before_it_is_stored(tmp_path: Path) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        sent = Batch.build(STREAM, [b"a", b"b"], source="me", position=1)
        stream.log.append(sent)
        stream.open(client, Open(5, "s", "me"))
        (asked,) = chain.asked
        assert asked.batch.count == 0 and client.said == []
        chain.answer(0, 3, 2)
        await asyncio.sleep(0)
        assert client.said == [Opened(5, "s", 1, 3, "always", 2, 0, True)]

    run(main, tmp_path)


def positioned(first: int, size: int = 1) -> Batch:
    """One event of the source `shop`, at this position of its log."""
    places = np.array([first], np.uint64), np.zeros(1, np.uint32)
    return Batch.build(STREAM, [b"x" * size], source="shop", positions=places)


def test_what_comes_behind_a_position_that_the_log_has_is_handed_over_at_once(tmp_path: Path) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        stream.log.append(positioned(7))
        stream.publish(client, 1, [positioned(9)], (7, 0))
        stream.publish(client, 2, [positioned(9)], None)
        assert [asked.batch.count for asked in chain.asked] == [1, 1]

    run(main, tmp_path)


def test_what_comes_behind_something_that_is_held_follows_it_and_nothing_follows_a_refusal(
    tmp_path: Path,
) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        log = stream.log
        stream.publish(client, 1, [positioned(7)])
        stream.publish(client, 2, [positioned(9)], (7, 0))
        stream.publish(client, 3, [positioned(11)], (9, 0))
        stream.publish(client, 4, [positioned(20)], (15, 0))
        assert [asked.batch.count for asked in chain.asked] == [1, 0, 0, 0]
        log.append(chain.asked[0].batch)  # what it held, the chain numbers in the order in which it came
        chain.answer(0, 1, 1)
        chain.answer(1, 2, 1)
        assert [asked.batch.count for asked in chain.asked] == [1, 0, 0, 0, 1]
        log.append(chain.asked[4].batch)
        chain.answer(2, 2, 1)
        assert [asked.batch.count for asked in chain.asked[4:]] == [1, 1]
        log.append(chain.asked[5].batch)
        chain.answer(3, 2, 1)
        chain.answer(4, 2, 2)
        chain.answer(5, 3, 3)
        await asyncio.sleep(0)
        *stored, refused = client.said
        assert stored == [Stored(1, 1, 1), Stored(2, 2, 2), Stored(3, 3, 3)]
        assert (refused.request, refused.code, refused.definite) == (4, "position_missing", True)
        assert "'shop' comes behind 15:0, but stream 's' has it up to 11:0" in refused.message
        assert len(chain.asked) == 6

    run(main, tmp_path)


def test_a_replica_that_is_not_the_head_says_so_whatever_its_log_has(tmp_path: Path) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        stream.publish(client, 1, [positioned(9, 15_000_000) for _ in range(5)], (7, 0))
        assert not client.reading  # what waits is counted, though it is not in the chain
        chain.refuse(0)
        await asyncio.sleep(0)
        assert client.said == [Refused(1, "not_head", "no; the head is eu/proxy-2", True)]
        assert client.reading and len(chain.tickets) == 0 and len(chain.asked) == 1

    run(main, tmp_path)


def test_publishers_are_held_before_the_machine_would_refuse(tmp_path: Path) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        for request in range(4):
            assert client.reading
            stream.publish(client, request, [batch(b"x")])
        assert not client.reading and len(chain.tickets) == 4
        chain.answer(0, 1, 1)
        assert client.reading
        chain.busy = True
        stream.publish(client, 9, [batch(b"x")])
        assert len(chain.tickets) == 3
        stream.forget(cast(Connection, client))

    run(main, tmp_path)


def test_events_are_shown_up_to_what_the_chain_has(tmp_path: Path) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        for number in range(1, 11):
            stream.log.append(batch(b"%d" % number))
        early, late = FakeConnection(), FakeConnection()
        first = Subscriber(cast(Connection, early), 1, 1, 1 << 20, None)
        state = early.state[STREAMS_CHANNEL] = ClientState()
        state.subscriptions[1] = (stream, first)
        stream.subscribe(first)
        stream.subscribe(Subscriber(cast(Connection, late), 2, 8, 1 << 20, None))
        for upto in (3, 3, 6, 10):
            stream.on_stable(upto)
            await asyncio.sleep(0)
            assert early.numbers == list(range(1, upto + 1))
        assert late.numbers == [8, 9, 10]
        stream.end_subscriptions(NotTail("elsewhere"))
        assert not state.subscriptions
        assert early.said == [Refused(1, "not_tail", "elsewhere", True)]
        assert late.said == [Refused(2, "not_tail", "elsewhere", True)] and not stream.subscribers
        stream.on_stable(11)
        await asyncio.sleep(0)
        assert len(early.numbers) == 10

    run(main, tmp_path)


def test_one_sync_at_a_time_for_all_that_came_before(tmp_path: Path) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        told: list[Synced] = []
        with ThreadPoolExecutor(2) as pool:
            syncing = Syncing(pool, {STREAM: stream.log}.get, told.append, lambda error: None)
            for _ in range(100):
                stream.log.append(batch(b"x"))
                syncing.wants(STREAM)
            async with asyncio.timeout(20):
                while stream.log.durable < 100:
                    await asyncio.sleep(0.001)
            await syncing.close()
        assert told[-1] == Synced(STREAM, 100) and len(told) <= 3

    run(main, tmp_path)


def test_a_failed_sync_is_told_and_a_wiped_log_is_not(tmp_path: Path) -> None:
    async def main(stream: ChainedStream, chain: Chain, client: Any) -> None:
        told: list[object] = []
        logs = {STREAM: stream.log, 5: StreamLog.open(OsDisk(), str(tmp_path / "five"), 5, LogConfig())}
        with ThreadPoolExecutor(1) as pool:
            syncing = Syncing(pool, logs.get, told.append, told.append)
            stream.log.append(batch(b"x"))
            logs[5].append(Batch.build(5, [b"x"]))
            stream.log.sync = lambda: 1 // 0  # type: ignore[method-assign]
            syncing.wants(STREAM)
            syncing.wants(5)
            wiped = logs.pop(5)
            await syncing.close()
        wiped.close()
        assert [type(each) for each in told] == [ZeroDivisionError]

    run(main, tmp_path)


def test_only_silence_makes_a_stream_old_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's clock is an hour ahead of the publishers', and the policy's age is an hour."""
    hour_us, began_us, passed_s = 3_600_000_000, 1_700_000_000_000_000, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: 5.0 + passed_s)

    async def main() -> None:
        nonlocal passed_s
        chain = Chain()
        log = StreamLog.open(OsDisk(), str(tmp_path), STREAM, LogConfig(policy=Policy(age_ms=3_600_000)))
        stream = ChainedStream("s", "eu", log, chain.tickets)

        def due() -> bool:
            now_us = began_us + round(passed_s * 1e6) + hour_us
            return stream.expire(now_us)

        for passed_s in range(0, 7200, 600):
            log.append(Batch.build(STREAM, [b"x"], time_us=began_us + round(passed_s * 1e6)))
            assert not due()
        passed_s += 3599
        assert not due()
        passed_s += 1
        assert due()
        (asked,) = chain.asked
        assert int(asked.batch.times()[0]) == began_us + 6600 * 1_000_000 + hour_us + 1
        log.close()

    asyncio.run(main())
