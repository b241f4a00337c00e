"""The driver on real sockets: many machines on one connection, bounds, and faults that stay where they
are."""

import asyncio
import errno
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.housing import House, Send, Speaker
from tests.waiting import DEADLINE_S, until

from qanat.events.errors import LocalError
from qanat.runtime import runner as runner_module
from qanat.runtime.driver import Driver
from qanat.runtime.journal import Journal
from qanat.runtime.loop import run
from qanat.runtime.settings import TransportSettings
from qanat.runtime.url import Url
from qanat.wire.control import Identity
from qanat.wire.frame import encode


def test_machines_share_one_connection(go: Any) -> None:
    async def main() -> None:
        house = House()
        a, b = await house.add("a", 20, 21), await house.add("b", 20, 21)
        a.request(20, Send("b", "hello"))
        await until(lambda: ("a", "hello") in house.heard["b", 20])
        for i in range(50):
            a.request(20, Send("b", f"on 20, {i}"))
            a.request(21, Send("b", f"on 21, {i}"))
            b.request(21, Send("a", f"back on 21, {i}"))
        await until(lambda: sum(map(len, house.heard.values())) == 4 + 1 + 150)
        assert house.heard["b", 20][2:] == [("a", f"on 20, {i}") for i in range(50)]
        assert house.heard["b", 21][1:] == [("a", f"on 21, {i}") for i in range(50)]
        assert house.heard["a", 21][1:] == [("b", f"back on 21, {i}") for i in range(50)]
        assert len(a.traffic.live) == len(b.traffic.live) == 1
        assert a.failed() == b.failed() == {}
        await house.close()

    go(main)


def test_new_settings_hold_for_connections_and_links_that_are_there(go: Any) -> None:
    async def main() -> None:
        hour_ms = 3_600_000
        house = House(backoff_ms=hour_ms, backoff_limit_ms=hour_ms, refused_limit_ms=hour_ms)
        a, b = await house.add("a"), await house.add("b")
        a.request(20, Send("b", "before"))
        await until(lambda: ("a", "before") in house.heard["b", 20])
        house.settings = TransportSettings(backoff_ms=2, backoff_limit_ms=20, heartbeat_misses=99)
        for driver in (a, b):
            driver.reload(house.settings)
            assert [each.settings.heartbeat_misses for each in driver.traffic.live] == [99]
        await b.stop()
        await until(lambda: ("down", "b") in house.heard["a", 20])
        house.heard["a", 20].clear()
        for _ in range(3):  # each finds nobody; with pauses as they were, the second would be an hour late
            a.request(20, Send("b", "lost"))
            await until(lambda: house.heard["a", 20])
            house.heard["a", 20].clear()
        await a.stop()

    go(main)


def test_both_dial_at_once(go: Any) -> None:
    """One connection is left, and each end either has all of what the other sent or was told of a break."""

    async def main() -> None:
        for _ in range(10):
            house = House()
            drivers = await house.add("a"), await house.add("b")
            for i in range(5):
                drivers[0].request(20, Send("b", str(i)))
                drivers[1].request(20, Send("a", str(i)))
            for name, other in (("a", "b"), ("b", "a")):
                heard, at_other = house.heard[name, 20], house.heard[other, 20]

                def settled(
                    heard: Any = heard, at_other: Any = at_other, name: str = name, other: str = other
                ) -> bool:
                    words = [text for who, text in heard if who == other]
                    return words == [str(i) for i in range(5)] or ("down", name) in at_other

                await until(settled)
            await until(lambda: all(len(driver.traffic.live) == 1 for driver in drivers))  # noqa: B023
            drivers[0].request(20, Send("b", "after"))
            await until(lambda: ("a", "after") in house.heard["b", 20])  # noqa: B023
            await house.close()

    go(main)


def test_nobody_is_there(go: Any) -> None:
    async def main() -> None:
        house = House()
        a = await house.add("a")
        house.urls["gone"] = Url("127.0.0.1", _free_port())
        a.request(20, Send("gone", "x"))
        a.request(20, Send("stranger", "x"))
        await until(lambda: {("down", "gone"), ("down", "stranger")} <= set(house.heard["a", 20]))
        await house.close()

    go(main)


def test_another_node_at_that_address(go: Any) -> None:
    async def main() -> None:
        house = House()
        a = await house.add("a")
        await house.add("b")
        house.urls["c"] = house.urls["b"]
        a.request(20, Send("c", "x"))
        await until(lambda: ("down", "c") in house.heard["a", 20])
        assert not any("x" in item for item in house.heard["b", 20])
        await house.close()

    go(main)


def test_what_waits_for_a_connection_is_bounded(go: Any) -> None:
    async def main() -> None:
        house = House(high_water_bytes=100_000)
        a = await house.add("a")
        with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never shakes hands
            house.urls["silent"] = Url("127.0.0.1", silent.getsockname()[1])
            for _ in range(20):
                a.request(20, Send("silent", "", 30_000))
            await until(lambda: ("down", "silent") in house.heard["a", 20])
            await house.close()

    go(main)


def test_a_peer_that_does_not_read_breaks_the_channel_at_the_bound(go: Any) -> None:
    async def main() -> None:
        house = House(queue_limit_bytes=2_000_000)
        a, b = await house.add("a"), await house.add("b")
        a.request(20, Send("b", "hello"))
        await until(lambda: ("a", "hello") in house.heard["b", 20])
        for connection in b.traffic.live:
            connection.pause_reading()
        most = 0
        while ("down", "b") not in house.heard["a", 20]:
            a.request(20, Send("b", "", 500_000))
            most = max([most, *(c.queued_bytes for c in a.traffic.live)])
            await asyncio.sleep(0)
        assert most < 2_000_000 + 600_000
        assert a.traffic.closes.labels("overflow").value == 1
        await house.close()

    go(main)


def test_a_fault_stops_that_machine_alone(go: Any) -> None:
    async def main() -> None:
        house = House()
        a, b = await house.add("a", 20, 21), await house.add("b", 20, 21)
        a.request(20, Send("b", "die"))
        await until(lambda: "machine-20" in b.failed())
        assert "told to die" in b.failed()["machine-20"]
        with pytest.raises(LocalError, match="told to die"):
            b.request(20, Send("a", "x"))
        a.request(21, Send("b", "alive"))
        await until(lambda: ("a", "alive") in house.heard["b", 21])
        await house.close()

    go(main)


@pytest.mark.parametrize("channel", [20, 99])
def test_bad_messages_cost_the_connection_alone(go: Any, channel: int) -> None:
    async def main() -> None:
        house = House()
        a, b = await house.add("a"), await house.add("b")
        a.request(20, Send("b", "hello"))
        await until(lambda: ("a", "hello") in house.heard["b", 20])
        a.links.send("b", encode(16, channel, b"\xc1 not a message"))
        await until(lambda: ("down", "b") in house.heard["a", 20])
        a.request(20, Send("b", "liar"))
        await until(lambda: b.traffic.closes.labels("protocol").value == 1)
        await until(lambda: house.heard["a", 20].count(("down", "b")) >= 2)
        a.request(20, Send("b", "again"))
        await until(lambda: ("a", "again") in house.heard["b", 20])
        assert b.failed() == {}
        reasons = b.traffic.closes
        assert reasons.labels("malformed").value + reasons.labels("unknown_channel").value == 1
        await house.close()

    go(main)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_link_with_a_codec_carries_less_and_bad_bytes_cost_it_alone(go: Any, codec: str) -> None:
    async def main() -> None:
        house = House()
        a, b = await house.add("a"), await house.add("b")
        a.compression = {"b": codec}.get  # type: ignore[assignment]
        a.request(20, Send("b", "", size_bytes=1_000_000))
        await until(lambda: len(house.heard["b", 20]) == 2)
        sender, size = house.heard["b", 20][1]
        assert sender == "a" and size > 1_000_000
        assert next(iter(a.traffic.live)).bytes_out < 100_000
        b.request(20, Send("a", "", size_bytes=1_000_000))  # the other way it is plain
        await until(lambda: len(house.heard["a", 20]) == 2)
        assert next(iter(b.traffic.live)).bytes_out > 1_000_000
        a.links.send("b", encode(18, 20, b"\x01\0\0\0\xff\xff\0\0\x08\0\0\0", [b"no codec"]))
        await until(lambda: ("down", "b") in house.heard["a", 20])
        assert b.traffic.closes.labels("malformed").value == 1 and b.failed() == {}
        a.request(20, Send("b", "again"))
        await until(lambda: ("a", "again") in house.heard["b", 20])
        await house.close()

    go(main)


def test_datagrams_that_are_wrong_are_counted_and_dropped(go: Any) -> None:
    async def main() -> None:
        house = House()
        a, b = await house.add("a"), await house.add("b")
        dropped = b.traffic.datagrams_dropped
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
            where = (house.urls["b"].host, house.urls["b"].port)
            stranger = msgspec.msgpack.encode(["elsewhere", "x", {}])
            mine = msgspec.msgpack.encode(["qanat", "x", {"type": "Nothing"}])
            for data, reason in (
                (b"junk", "malformed"),
                (b"".join(encode(17, 20, b"\xc1")), "malformed"),
                (b"".join(encode(16, 20, mine)), "malformed"),
                (b"".join(encode(17, 20, mine)), "malformed"),
                (b"".join(encode(17, 20, stranger)), "cluster"),
                (b"".join(encode(17, 77, mine)), "unknown_channel"),
                (bytes(5_000), "over_limit"),
            ):
                before = dropped.labels(reason).value
                raw.sendto(data, where)
                await until(lambda: dropped.labels(reason).value == before + 1)  # noqa: B023
        a.request(20, Send("b", "x" * 5_000, cast=True))
        assert a.traffic.datagrams_dropped.labels("over_limit").value == 1
        a.request(20, Send("b", "small", cast=True))
        await until(lambda: ("a", "small") in house.heard["b", 20])
        await house.close()

    go(main)


def test_a_name_is_resolved_for_datagrams(go: Any) -> None:
    async def main() -> None:
        house = House()
        a = await house.add("a")
        await house.add("b")
        house.urls["b"] = Url("localhost", house.urls["b"].port)

        def asked() -> bool:
            a.request(20, Send("b", "by name", cast=True))
            return ("a", "by name") in house.heard["b", 20]

        await until(asked)
        await house.close()

    go(main)


def test_nothing_leaves_before_its_record_is_on_disk(
    go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    write = Journal.write

    def slow(journal: Journal, records: list[bytes]) -> None:
        assert gate.wait(DEADLINE_S)
        write(journal, records)

    async def main() -> None:
        monkeypatch.setattr(Journal, "write", slow)
        monkeypatch.setattr(runner_module, "_HELD_LIMIT", 10)
        house = House(tmp_path)
        a, b = await house.add("a"), await house.add("b")
        b.request(20, Send("a", "first"))
        await until(lambda: ("b", "first") in house.heard["a", 20])
        a.request(20, Send("b", "held 0", persist=True))
        for i in range(1, 10):
            a.request(20, Send("b", f"held {i}"))
        with pytest.raises(LocalError, match="waits for its disk"):
            a.request(20, Send("b", "one too many"))
        for i in range(100):
            b.request(20, Send("a", f"pressure {i}"))
        await until(lambda: not all(c.reading for c in a.traffic.live))
        assert [item for item in house.heard["b", 20] if item[0] == "a"] == []
        gate.set()
        await until(lambda: ("a", "held 9") in house.heard["b", 20])
        assert [item for item in house.heard["b", 20] if item[0] == "a"] == [
            ("a", f"held {i}") for i in range(10)
        ]
        await until(lambda: ("b", "pressure 99") in house.heard["a", 20])
        await house.close()
        again = House(tmp_path)
        await again.add("a")
        assert again.heard["a", 20] == [("start", 1)]
        await again.close()

    go(main)


def test_a_failing_disk_stops_the_machine_and_nothing_leaves(
    go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_journal: Journal, _records: list[bytes]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def main() -> None:
        monkeypatch.setattr(Journal, "write", full)
        house = House(tmp_path)
        a = await house.add("a")
        await house.add("b")
        a.request(20, Send("b", "never", persist=True))
        await until(a.failed)
        assert "No space left" in a.failed()["machine-20"]
        assert ("a", "never") not in house.heard["b", 20]
        await house.close()

    go(main)


def test_records_need_a_folder(go: Any) -> None:
    async def main() -> None:
        house = House()
        a = await house.add("a")
        a.request(20, Send("a", "x", persist=True))
        assert "no folder" in a.failed()["machine-20"]
        await house.close()

    go(main)


def test_channels_are_checked() -> None:
    async def main() -> None:
        driver = Driver(Identity("a"), lambda _name: None)
        driver.add(20, "one", Speaker)
        for channel in (0, 1, 20):
            with pytest.raises(LocalError, match="cannot be used"):
                driver.add(channel, "two", Speaker)
        await driver.start("127.0.0.1", 0)
        with pytest.raises(LocalError, match="before the driver starts"):
            driver.add(21, "late", Speaker)
        await driver.stop()

    run(main)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])
