"""A source's snapshot in a pipeline: rows and updates go by its routes, and wherever it is ended it goes
on."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.servers.stream_server import ServerProcess
from tests.unit.capture.test_snapshot import Key, Store
from tests.waiting import wait_until

from qanat.client import Client
from qanat.events.errors import RemoteError
from qanat.pipeline.ingest import snapshot as module
from qanat.pipeline.ingest.agreement import Asked
from qanat.pipeline.ingest.routes import Routes, Way
from qanat.pipeline.ingest.snapshot import Snapshot
from qanat.pipeline.pipeline_file import Pipeline, Route, Source, mistakes

pytestmark = pytest.mark.paper("D2")

numbers = itertools.count()
LOG = "mariadb://me@db/shop?dataset=shop"


class Tables(Store):
    """A store whose rows and log are opened by a URL, as a datastore's are; it changes at every touch, and
    fails at some."""

    fails = 0.0

    def tables(self, database: str = "") -> tuple[str, ...]:
        return ("d.t",)

    def chunk(self, *args: Any) -> Any:
        if self.random.random() < self.fails:
            raise RemoteError("the datastore is away")
        return super().chunk(*args)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Tables:
    made = Tables(11, exact=False)
    monkeypatch.setattr(module, "open_reader", lambda url: made)
    monkeypatch.setattr(module, "open_chunks", lambda url: made)
    monkeypatch.setattr(module, "_CHUNK_ROWS", 3)
    return made


def taking(folder: Path, url: str, stream: str) -> Snapshot:
    routes = Routes((Way(stream, (), ""),), (), "", "", "drop", 1 << 20)
    return Snapshot(Asked("shop", LOG, url, routes, "snapshot"), folder / "shop.json", folder / "letters", 0)


def kept(url: str, stream: str) -> tuple[dict[Key, int], list[str]]:
    """The tables as whoever applies the stream has them, and under which sources events came."""
    rows: dict[Key, int] = {}
    sources: list[str] = []
    with Client(url) as client:
        for batch in client.read(stream, 1, client.look(stream).readable).take():
            sources += batch.source_names
            for payload in batch.payloads().to_pylist():
                update = json.loads(payload)
                image = update["after"] or update["before"]
                if update["op"] == "delete":
                    rows.pop((image["a"], image["b"]), None)
                else:
                    rows[image["a"], image["b"]] = image["v"]
    return rows, sources


def is_far(one: Snapshot) -> bool:
    return not one.runs or one.status()["published"] > 6


def test_a_snapshot_goes_by_the_routes_and_ends_where_the_query_begins(
    store: Tables, server_process: ServerProcess, tmp_path: Path
) -> None:
    """Its process is another one again and again, and the datastore is away now and then."""
    url, stream = server_process.start().url, f"taken-{next(numbers)}"
    store.fails = 0.3
    errors = 0
    while not (one := taking(tmp_path, url, stream)).is_done:
        one.start()
        wait_until(partial(is_far, one))
        one.stop()
        errors += one.error is not None
    assert one.progress is not None
    assert one.status() == {"rows": one.progress.rows, "tables": [], "published": 0}
    rows, sources = kept(url, stream)
    assert set(sources) == {"store", "store/snapshot"}
    as_of = {key: seq for key, seq in store.rows.items() if seq <= one.progress.position.sequence}
    assert {key: rows.get(key) for key in as_of} == as_of
    assert len(as_of) > 2 and errors


def test_what_cannot_have_a_snapshot_is_said_in_the_file() -> None:
    routes = (Route(stream="s"),)
    for log, words in (("rocksdb:///x", "cannot be 'snapshot'"), (LOG, "")):
        found = list(mistakes(Pipeline(sources={"shop": Source(log=log, start="snapshot")}, routes=routes)))
        assert [what[: len(words)] for _, what in found] == [words] * bool(words)
