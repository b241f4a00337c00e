"""Archivers of many streams: where those begin that come to be later, and a server that cannot be asked for
them just now."""

from __future__ import annotations

from pathlib import Path
from threading import Event as Signal
from typing import Any

import pytest
from tests.integration.archiving import archiver

from qanat.client import Client
from qanat.events.errors import RemoteError
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.running import run_archivers
from qanat.pipeline.archive.storage import LocalStorage

pytestmark = pytest.mark.paper("D4")


def test_a_stream_that_comes_later_is_archived_from_its_beginning(
    server_process: Any, tmp_path: Path
) -> None:
    """Though what was there before is archived from its end on."""
    server_process.start("--set", "log.mode=memory")
    url, stop, asked = server_process.url, Signal(), 0
    with Client(url) as client:
        client.publish_many("old", [b"x"] * 5)

        def more() -> list[str]:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise RemoteError("no server answers")
            if asked == 2:
                client.publish_many("old", [b"y"] * 3)
                client.publish_many("new", [b"z"] * 4)
            return ["old", "new"]

        running = run_archivers(
            lambda stream, where: archiver(url, tmp_path, stream, start=where),
            ["old"],
            start="latest",
            stop=stop,
            more=more,
            look_s=0.0,
        )
        left = {"old", "new"}
        for stream, _ in running:
            left.discard(stream)
            if not left:
                stop.set()
    complete = {
        stream: History(LocalStorage(str(tmp_path)), stream).newest().complete() for stream in ("old", "new")
    }
    assert complete == {"old": ((6, 8),), "new": ((1, 4),)}
