"""A replica's round of garbage collection: what fails of it is told, and keeps nothing else from being
collected."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from qanat.log.errors import CorruptLog, DiskFull
from qanat.log.stream_log import StreamLog
from qanat.replica.chained_stream import ChainedStream
from qanat.replica.host import ReplicaHost
from qanat.replica.settings import ProxySettings, RegionSettings, StreamSettings
from qanat.serving.disk_room import DiskRoom


@pytest.mark.parametrize("error", [DiskFull("no space left"), CorruptLog("file", 5, "bad bytes")])
def test_streams_are_collected_though_nothing_can_be_published_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    tried: list[str] = []
    collected: list[StreamLog] = []
    damaged: list[int] = []

    def no_room(stream: ChainedStream, now_us: int) -> bool:
        tried.append(stream.name)
        raise error

    def collect(log: StreamLog, *_: Any, **__: Any) -> None:
        collected.append(log)

    monkeypatch.setattr(ChainedStream, "expire", no_room)
    monkeypatch.setattr(StreamLog, "collect", collect)
    monkeypatch.setattr(ReplicaHost, "_on_damaged", lambda host, number, error: damaged.append(number))
    settings = ProxySettings(
        region=RegionSettings(name="eu"),
        streams={name: StreamSettings(owner="eu") for name in ("prices", "trades")},
    )

    async def main() -> None:
        pool = ThreadPoolExecutor(1)
        room = DiskRoom("eu/proxy-1", tmp_path, "")
        host = ReplicaHost(lambda: settings, tmp_path, pool, lambda why: None, lambda shows: None, room)
        host.streams.by_id = {stream.log.stream: stream for stream in host.streams.all.values()}
        await host.collect()
        assert collected == [stream.log for stream in host.streams.all.values()]
        assert damaged == (list(host.streams.all) if isinstance(error, CorruptLog) else [])
        await host.close()

    asyncio.run(main())
    assert tried == ["prices", "trades"]
