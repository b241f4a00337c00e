"""What arrives together goes down the chain together, between real processes."""

import asyncio
import time
from pathlib import Path

import pytest

from qanat.events.batch import Batch, stream_id
from qanat.operate.region_processes import region_processes
from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.runtime.service import STREAMS_CHANNEL, Service
from qanat.wire.control import Identity
from qanat.wire.frame import Frame
from qanat.wire.streams import PUBLISH, Publish, Stored, decode_control, encode_control

BATCHES = 2_000


class Publisher(Service):
    def __init__(self) -> None:
        self.answers: asyncio.Queue[object] = asyncio.Queue()

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        self.answers.put_nowait(decode_control(frame.type, frame.control))


async def publish(url: str) -> list[object]:
    """All at once, each batch a publish of its own; the answers."""
    publisher = Publisher()
    connection = await dial(url, Identity(name="publisher", role="client"), {STREAMS_CHANNEL: publisher})
    for number in range(1, BATCHES + 1):
        batch = Batch.build(stream_id("s"), [b"%d" % number], source="publisher", position=number)
        connection.send(PUBLISH, STREAMS_CHANNEL, encode_control(Publish(number)), [batch.encode()])
    async with asyncio.timeout(60):
        answers = [await publisher.answers.get() for _ in range(BATCHES)]
    connection.close()
    await connection.wait_closed()
    return answers


@pytest.mark.parametrize("mode", ["always", "interval"])
def test_many_small_publishes_are_few_messages_down_the_chain(tmp_path: Path, mode: str) -> None:
    with region_processes({"eu": 2}, {"s": {"owner": "eu", "mode": mode}}, folder=tmp_path) as region:
        chain = region.wait_chain("eu", 2)
        head, tail = region[chain["head"]], region[chain["tail"]]
        before = tail.metric("qanat_transport_frames_received_total")
        assert asyncio.run(publish(head.url)) == [Stored(n, n, n) for n in range(1, BATCHES + 1)]
        deadline = time.monotonic() + 60
        while tail.status()["streams"][0]["stable"] < BATCHES:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert tail.metric("qanat_transport_frames_received_total") - before < BATCHES / 4
