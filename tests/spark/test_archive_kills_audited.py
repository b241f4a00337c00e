"""An archive whose writer and whose server are killed while a subscriber listens: what was delivered is
proven against it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.integration.archiving import QUICK, DyingStorage, Killed, archive_all
from tests.servers.stream_server import ServerProcess
from tests.spark.delivering import audited, proven, recorded

from qanat.client import Client
from qanat.pipeline.replay.settings import ReplaySettings
from qanat.pipeline.replay.subscription import Replay

STEPS = 12


@pytest.mark.paper("D4", "D7")
def test_deliveries_are_proven_against_an_archive_whose_writer_was_killed_at_every_step(
    server_process: ServerProcess, tmp_path: Path
) -> None:
    """One was given everything as it came, another one from the archive afterwards."""
    url, archive, records = server_process.start().url, tmp_path / "archive", tmp_path / "records"
    settings = msgspec.structs.replace(QUICK, small_files=4, batch_rows=10, patience_ms=60_000)
    kills = 0
    with recorded(url, "s", records) as ends:
        for at in range(1, STEPS + 1):
            with Client(url) as client:
                client.publish_many("s", [b"%d" % n for n in range(25)], keys=[b"k%d" % n for n in range(25)])
            try:
                archive_all(url, DyingStorage(str(archive), at, after=bool(at % 2)), "s", settings)
            except Killed:
                kills += 1
            if at == STEPS // 2:
                server_process.kill()
                server_process.start()
        ends.append(25 * STEPS + 1)
    assert kills == STEPS
    manifest = archive_all(url, archive, "s", settings)
    assert manifest.complete() == ((1, 25 * STEPS),)
    # The server keeps it all: so the archive is read while one event of it is left.
    last = ReplaySettings(handover_rows=0)
    with (
        Client(url, name="late", record=records) as client,
        Replay(client, str(archive), "s", start=1, settings=last) as source,
    ):
        while source.next <= 25 * STEPS:
            assert source.way == "archive"
            source.take(timeout_s=60)
    report = audited(records, archive)
    assert proven(report) == {"s": (1, 25 * STEPS)}
    assert [(one["subscriber"], one["delivered"]) for one in report["subscribers"]] == [
        ("late", 25 * STEPS),
        ("reader", 25 * STEPS),
    ]
