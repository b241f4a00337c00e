"""A full disk stands in the server's log: once, and once when it is over."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.waiting import run

from qanat.events.errors import LocalError
from qanat.log import LogConfig, OsDisk
from qanat.log.errors import DiskFull
from qanat.serving.disk_watch import Room
from qanat.serving.stream_registry import StreamRegistry


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged."""
    found: list[str] = []
    logger = logging.Logger("here")

    def keep(record: logging.LogRecord) -> bool:
        found.append(record.getMessage())
        return False

    logger.addFilter(keep)
    monkeypatch.setattr("qanat.serving.disk_watch.log", logger)
    return found


def test_it_is_told_once_and_once_when_it_is_over(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    now_s = 100.0
    monkeypatch.setattr("qanat.serving.disk_watch.time.monotonic", lambda: now_s)
    one = Room("stream 's'")
    one.taken()
    one.refused(LocalError("too many"))
    for _ in range(3):
        one.refused(DiskFull("no space"))
        one.taken()  # a small event, between two large ones
    assert said == ["the disk is full, publishes are refused"]
    now_s = 200.0
    one.taken()
    one.taken()
    assert said[1:] == ["there is room on the disk again"]


def test_a_stream_that_cannot_be_made_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    def full(*_: object) -> None:
        raise DiskFull("no space")

    async def work(pool: ThreadPoolExecutor) -> None:
        streams = StreamRegistry(str(tmp_path), LogConfig(), {}, 10, pool)
        streams.open_all()
        monkeypatch.setattr(OsDisk, "make_folder", full)
        for _ in range(2):
            with pytest.raises(DiskFull):
                streams.get_or_make("s")
        await streams.close()

    with ThreadPoolExecutor(1) as pool:
        run(work(pool))
    assert said == ["the disk is full, publishes are refused"]
