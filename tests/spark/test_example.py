"""The pipeline that is shipped as an example runs as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.servers.stream_server import ServerProcess

from qanat.cli.main import main
from qanat.client import Client
from qanat.events.event import events
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.storage import storage_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_the_example_runs_as_it_is(
    server_process: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for its folders, which would be left behind."""
    monkeypatch.setenv("QANAT_URL", server_process.start().url)
    shutil.copy(EXAMPLES / "orders.jsonl", tmp_path)
    text = (EXAMPLES / "pipeline.toml").read_text()
    assert "\nurl" not in text
    (tmp_path / "pipeline.toml").write_text(text.replace("/tmp/qanat-example", str(tmp_path / "kept")))
    assert main(["pipeline", "run", str(tmp_path / "pipeline.toml"), "--once"]) == 0
    rows = [json.loads(line) for line in (EXAMPLES / "orders.jsonl").read_text().splitlines()]
    final = [row["order"] for row in rows if row["status"] != "draft"]
    with Client(server_process.url) as client, client.read("orders", 1, len(final)) as source:
        found: list[int] = []
        while len(found) < len(final):
            found += [
                json.loads(event.payload)["after"]["order"]
                for batch in source.take()
                for event in events(batch)
            ]
        assert found == final
    manifest = History(storage_of(str(tmp_path / "kept" / "archive")), "orders").existing()
    assert manifest.rows == len(final)
