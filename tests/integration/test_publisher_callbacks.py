"""What an application can say beside that it is done: not yet, up to here, let another have it; and what
becomes of one that says nothing of losses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.publishing import QUICK, NodeChild, Writer, free_port, nursery
from tests.servers.rocksdb import RocksProcess
from tests.waiting import run, until

from qanat.applications import Callbacks, Datamarker, Delivery, Instance, InstanceSettings
from qanat.events.position import Position
from qanat.protocols.publisher.messages import Loss, Notice
from qanat.protocols.publisher.subscriber import Handed

pytestmark = pytest.mark.paper("W5")
NAME = "test/publisher"


class Keeping(Callbacks):
    """Remembers what it is told; `done`: what it says to tokens."""

    def __init__(self, done: bool = True) -> None:
        self.done = done
        self.came: dict[str, list[Position]] = {}
        self.shards: list[str] = []
        self.tokens = 0

    def on_shard_notice(self, shard: str) -> None:
        self.shards.append(shard)

    def on_updates(self, delivery: Delivery) -> None:
        for update in delivery.rows():
            self.came.setdefault(update.shard, []).append(update.position)

    def on_token(self, marker: Datamarker) -> bool:
        self.tokens += 1
        return self.done

    @property
    def count(self) -> int:
        return sum(map(len, self.came.values()))


@pytest.fixture
def publisher(tmp_path: Path, rocks: RocksProcess) -> Iterator[NodeChild]:
    with nursery(tmp_path) as home:
        text = f'[log]\nurl = "{rocks.url}?dataset=shop"\nsharding = "hash:8"\n{QUICK}'
        found = home.node("publisher", "publisher", text + '[applications.cache]\nstart = "earliest"\n')
        found.wait()
        yield found


@asynccontextmanager
async def instance(callbacks: Callbacks, publisher: NodeChild, name: str = "") -> AsyncIterator[Instance]:
    found = Instance(callbacks, "cache", [publisher.url], InstanceSettings(name=name))
    await found.start()
    try:
        yield found
    finally:
        found.stop()
        await found.wait()


def test_what_is_not_acknowledged_comes_again_and_what_was_reached_does_not(
    publisher: NodeChild, rocks: RocksProcess
) -> None:
    writer = Writer(rocks)

    async def drill() -> None:
        writer.write(60)
        before = writer.count
        first, second = Keeping(done=False), Keeping()
        async with instance(first, publisher) as one:
            await until(lambda: first.count == before and first.tokens > 1, say=publisher.status)
            left, *others = sorted(first.came)
            one.reach(NAME, {shard: first.came[shard][-1] for shard in others})
            await until(lambda: publisher.metric("publisher_reached_messages_total"), every_s=0.05)
        writer.write(10)
        async with instance(second, publisher):
            await until(lambda: second.count >= len(first.came[left]) + writer.count - before)
        again = {shard: [at for at in first.came[shard] if at in some] for shard, some in second.came.items()}
        assert again.pop(left) == first.came[left], "it said not yet, thrice and at the end"
        assert others and not any(again.values()), "it said itself how far it was with these"

    run(drill())


def test_shards_that_are_given_up_go_to_the_other_instance(publisher: NodeChild, rocks: RocksProcess) -> None:
    writer = Writer(rocks)

    async def drill() -> None:
        first, second = Keeping(), Keeping()
        writer.write(60)
        async with instance(first, publisher, "test/a") as one:
            await until(lambda: first.count == writer.count, say=publisher.status)
            shards = sorted(first.came)
            async with instance(second, publisher, "test/b"):
                await until(
                    lambda: len(publisher.application("cache").get("subscribers", ())) == 2, every_s=0.05
                )
                had = set(second.shards)
                one.give_up(shards, "test/b")
                await until(lambda: set(second.shards) >= set(shards), say=publisher.status)
                assert len(had) < len(shards), "some of them were the first one's until then"
                count = first.count
                writer.write(60)
                await until(lambda: second.count + count >= writer.count, say=publisher.status)
                assert first.count == count, "it has nothing any more"

    run(drill())


class Told(Callbacks):
    def __init__(self) -> None:
        self.notices: list[Sequence[str]] = []

    def on_shard_notices(self, shards: Sequence[str]) -> None:
        self.notices.append(tuple(shards))


def test_notices_come_many_at_once_and_a_loss_of_which_nothing_is_said_ends_the_instance() -> None:
    async def drill() -> None:
        callbacks = Told()
        one = Instance(callbacks, "cache", [f"qanat://127.0.0.1:{free_port()}"])
        await one.start()
        assert one._machine is not None
        one._machine.may_begin = lambda handed, now_us: True  # type: ignore[method-assign]
        one._deliver(Handed(1, NAME, 1, Notice(1, 1, ("a", "b"))))
        one._deliver(Handed(2, NAME, 1, Loss(1, 2, ("a", "b"), Position(3), Position(9), "it was cut")))
        with pytest.raises(
            RuntimeError,
            match=r"shards 'a', 'b' after 3:0 and up to 9:0 were lost: it was cut; override on_data_loss",
        ):
            await one.wait()
        assert callbacks.notices == [("a", "b")]

    run(drill())
