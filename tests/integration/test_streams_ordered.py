"""Streams that people make, describe, keep in another way and remove while their server runs; and what
clients hear of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.streaming import take
from tests.waiting import run, wait_until

from qanat.client import AsyncClient, Client, NoStream, OrderRefused, RequestRefused, Unavailable
from qanat.client.administering import _told
from qanat.events.batch import stream_id
from qanat.log.config import Policy
from qanat.serving import removed_streams
from qanat.wire.streams import Ask


def test_a_stream_is_made_described_changed_and_removed(serving: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            serving("streams.collect_ms=20") as server,
            AsyncClient(server.url, name="till-1") as client,
        ):
            made = await client.create_stream("prices", policy={"by_key": True}, retain_age_ms=1_000_000)
            assert made["kept_as"]["policy"] == {"by_key": True, "keep_last": None, "age_ms": None}
            assert made["kept_as"]["retain_age_ms"] == 1_000_000
            with pytest.raises(OrderRefused, match="there is a stream 'prices' already"):
                await client.create_stream("prices")
            await client.publish_many("prices", [b"x"] * 100, keys=[b"k"] * 100)
            async with client.subscribe("prices", start=1, where="@key = 'k'") as subscription:
                await take(subscription, 100)
                told = await client.stream_info("prices")
                assert told["spans"] == [[1, 100, True]]
                assert told["spans_whole"] is True
                assert told["collection"]["dead_events"] == 99
                assert told["newest_sources"] == [{"source": "till-1", "sequence": 100, "index": 0}]
                assert told["subscribers"] == 1
                (listener,) = told["listeners"]
                assert (listener["client"], listener["lag"], listener["where"]) == ("till-1", 0, "@key = 'k'")
            changed = await client.set_stream("prices", policy=Policy(keep_last=40), retain_age_ms=None)
            assert changed["kept_as"]["policy"]["keep_last"] == 40
            assert changed["kept_as"]["retain_age_ms"] is None
            assert changed["collection"]["dead_events"] == 60
            with pytest.raises(NoStream):
                await client.stream_info("price")
            with pytest.raises(RequestRefused, match="said when it is made"):
                await client.set_stream("prices", indexed=["a"])
        async with serving() as server, AsyncClient(server.url) as client:
            told = await client.stream_info("prices")
            assert told["kept_as"]["policy"]["keep_last"] == 40, "it is remembered"
            gone = await client.remove_stream("prices")
            assert gone["collection"]["kept_events"] == 100
            assert await client.ask("streams") == []
            with pytest.raises(NoStream, match="'prices' was removed from the server at"):
                await client.remove_stream("prices")
            assert list((tmp_path / "data" / "streams").iterdir()) == []
            assert (await client.create_stream("prices"))["next"] == 1

    run(work())


def test_who_reads_and_who_publishes_a_removed_stream_is_told(serving: Any) -> None:
    async def work() -> None:
        async with (
            serving() as server,
            AsyncClient(server.url) as reader,
            AsyncClient(server.url) as writer,
            AsyncClient(server.url) as operator,
        ):
            await writer.publish("orders", b"1")
            subscription = await reader.subscribe("orders", start=1, where="x = 1").confirmed()
            late = await reader.subscribe("orders", start=1).confirmed()
            await take(late, 1)
            await operator.remove_stream("orders")
            for each in (subscription, late):
                with pytest.raises(NoStream, match="stream 'orders' was removed from the server at"):
                    await each.take()
            with pytest.raises(NoStream, match="stream 'orders' was removed from the server at"):
                await writer.publish("orders", b"2")
            await writer.publish_many("others", [b"1"])  # the connection goes on
            assert [each["stream"] for each in await operator.ask("streams")] == ["others"]

    run(work())


def test_publishes_that_are_not_answered_when_their_stream_goes_are_stored_or_refused(serving: Any) -> None:
    async def work() -> None:
        async with (
            serving() as server,
            AsyncClient(server.url) as writer,
            AsyncClient(server.url) as operator,
        ):
            await writer.publish("orders", b"0")
            receipts = [writer.publish("orders", b"%d" % i) for i in range(500)]
            removed = asyncio.create_task(operator.remove_stream("orders"))
            outcomes = await asyncio.gather(*receipts, return_exceptions=True)
            await removed
            assert {type(each) for each in outcomes} <= {int, NoStream}
            numbers = [each for each in outcomes if isinstance(each, int)]
            assert numbers == list(range(2, 2 + len(numbers)))

    run(work())


def test_a_removal_that_was_cut_short_is_finished_at_the_next_start(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise OSError("the power went")

    async def work() -> None:
        folder = tmp_path / "data" / "streams" / f"{stream_id('orders'):016x}"
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish("orders", b"1")
            with monkeypatch.context() as patched:
                patched.setattr(removed_streams, "_empty", fail)
                await client.remove_stream("orders")
            await client.create_stream("orders")
            async with AsyncClient(server.url) as other:
                await other.publish("orders", b"2")
            assert (await client.stream_info("orders"))["next"] == 2, "what was removed does not come back"
            left = folder.with_name(folder.name + ".removed")
            assert (left / "stream.json").exists()
        async with serving() as server:
            assert not left.exists()
            assert [*server.registry.streams] == ["orders"]

    run(work())


def test_what_stands_in_the_servers_file_is_changed_there(server_process: Any, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[stream.prices]\npolicy = { keep_last = 10 }\n")
    server_process.start("--config", str(file))
    with Client(server_process.url) as client:
        client.publish_many("prices", [b"x"] * 50)
        for refused in (
            lambda: client.set_stream("prices", retain_bytes=100_000),
            lambda: client.remove_stream("prices"),
        ):
            with pytest.raises(OrderRefused, match=r"in \[stream\.prices\]"):
                refused()
        file.write_text(
            "[stream.prices]\nmode = 'interval'\npolicy = { keep_last = 30 }\nretain_bytes ="
            " 100_000\n[stream.more]\n"
        )
        os.kill(server_process.pid, signal.SIGHUP)
        wait_until(lambda: client.stream_info("prices")["kept_as"]["mode"] == "interval")
        kept = client.stream_info("prices")
        assert kept["kept_as"]["policy"]["keep_last"] == 30
        assert kept["kept_as"]["retain_bytes"] == 100_000
        assert kept["collection"]["dead_events"] == 20
        wait_until(lambda: [each["stream"] for each in client.ask("streams")] == ["more", "prices"])
        client.publish_many("prices", [b"x"] * 50)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (b"[]", "JSON object"),
        (b"{", "JSON object"),
        (b'{"segment_bytes": 65536}', "segment_bytes cannot be said of a stream by a request"),
        (b'{"policy": {"keep_last": 0}}', "keep_last must be at least 1"),
        (b'{"policy": {"kep_last": 1}}', "kep_last"),
        (b'{"mode": "often"}', "often"),
        (b'{"retain_bytes": 5}', "retain_bytes = 5 is outside"),
        (b'{"mode": "memory", "retain_bytes": 9999999999}', "268435456 bytes at most"),
        (b'{"indexed": [%s]}' % b",".join(b'"a%d"' % i for i in range(17)), "16 are the most"),
        (b'{"policy": ' * 5000 + b"1" + b"}" * 5000, "JSON object"),
    ],
)
def test_hostile_settings_are_refused_and_make_nothing(serving: Any, settings: bytes, why: str) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            with pytest.raises(RequestRefused, match=why):
                await _told(client, "create", "x", settings=settings)
            assert await client.ask("streams") == []

    run(work())


def test_a_server_from_before_orders_refuses_them_in_a_sentence(serving: Any) -> None:
    """It looks at `what` alone, and does not know it."""

    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            with pytest.raises(RequestRefused, match="is not a question for a server"):
                await _told(client, "rename", "x", settings=b"{}")
            assert Ask.__struct_fields__[:3] == ("request", "what", "stream")

    run(work())


def test_an_order_whose_connection_broke_is_not_given_again(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server:
            begun = asyncio.Event()

            async def order(what: str, name: str, settings: bytes) -> None:
                begun.set()
                await asyncio.Event().wait()

            server.registry.order = order
            async with AsyncClient(server.url) as client:
                ordered = asyncio.create_task(client.create_stream("x"))
                await begun.wait()
                begun.clear()
                for connection in list(server.driver.listener.connections):
                    connection.close()
                with pytest.raises(Unavailable):
                    await ordered
                assert not begun.is_set()

    run(work())


def qanat(url: str, *words: str, typed: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "qanat", *words, "--url", url],
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_command(server_process: Any) -> None:
    url = server_process.start().url
    assert "create one: `qanat stream create NAME`" in qanat(url, "stream", "ls")
    said = qanat(url, "stream", "create", "prices", "--keep-last", "1000", "--retain-age", "30d")
    assert said == "created prices: durability always; policy last 1,000; retention 30 d\n"
    assert "there is a stream 'prices' already" in qanat(url, "stream", "create", "prices", code=1)
    with Client(url, name="till-1") as client, client.subscribe("prices"):
        client.publish_many("prices", [b"x" * 20] * 5_000)
        said = qanat(url, "stream", "info", "prices")
        for sentence in (
            "kept as       durability always; policy last 1,000; retention 30 d",
            "numbers       1 to 5,000",
            "5,000 kept, 0 collected",
            "4,000 events wait for collection",
            "rewritten once it has 1 MiB, and 50 % of it is dead",
            "subscribers: 1",
            "till-1      5000",
        ):
            assert sentence in said, said
        assert "policy none" in qanat(url, "stream", "set", "prices", "--keep-last", "none")
        assert "set needs a setting to change" in qanat(url, "stream", "set", "prices", code=2)
        assert "did you mean prices?" in qanat(url, "stream", "info", "price", code=2)
        refused = qanat(url, "stream", "rm", "prices", code=1)
        assert "with 5,000 events" in refused
        assert "1 subscriber reads it: confirm with --yes" in refused
    listed = [line.split()[:3] for line in qanat(url, "stream", "ls").splitlines()]
    assert listed == [line.split()[:3] for line in qanat(url, "streams").splitlines()]
    assert "removed prices, with 5,000 events" in qanat(url, "stream", "rm", "prices", "--yes")
    assert "no streams yet" in qanat(url, "streams")
