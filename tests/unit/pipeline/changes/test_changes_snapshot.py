"""A snapshot as the beginning of a streaming source of a log, driven as Spark drives it, and killed wherever
it can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.capture.test_snapshot import Key, Store
from tests.unit.pipeline.changes.rocks_log import Driven

from qanat.events.kept import sealed
from qanat.pipeline.changes import options as changes_options
from qanat.pipeline.changes import snapshot as changes_snapshot
from qanat.pipeline.changes.batch import ChangesBatch
from qanat.pipeline.changes.offsets import ChangesDisagree, Offset
from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.source.options import BadOption

pytestmark = pytest.mark.paper("D2")

URL = "mariadb://me@db/shop?dataset=shop"


class Tables(Store):
    """A store whose rows and log are opened by a URL, as a datastore's are; it changes at every touch."""

    def tables(self, database: str = "") -> tuple[str, ...]:
        return ("d.t",)

    def behind(self) -> None:
        """Nobody writes for a moment, and all is read."""
        self.busy = False


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Tables:
    made = Tables(request.param if hasattr(request, "param") else 7, exact=False)
    monkeypatch.setattr(changes_options, "open_reader", lambda url: made)
    monkeypatch.setattr(changes_snapshot, "open_chunks", lambda url: made)
    return made


def driven(folder: Path, rows: int = 4) -> Driven:
    return Driven(URL, start="snapshot", state=str(folder / "state"), maxRowsPerTrigger=str(rows))


def applied(rows: dict[Key, int], table: pa.Table) -> None:
    """As whoever keeps the tables applies rows in their order."""
    for payload in table["payload"].to_pylist() if table.num_rows else ():
        update: dict[str, Any] = json.loads(payload)
        image = update["after"] or update["before"]
        if update["op"] == "delete":
            rows.pop((image["a"], image["b"]), None)
        else:
            rows[image["a"], image["b"]] = image["v"]


def is_taking(job: Driven) -> bool:
    return not job.checkpoint or Offset.read(job.checkpoint[-1]).taken is not None


@pytest.mark.parametrize("store", range(6), indirect=True)
def test_a_snapshot_then_the_log_are_the_tables_however_often_it_is_killed(
    store: Tables, tmp_path: Path
) -> None:
    """After each micro-batch's end was written down the process dies, and the micro-batch is done again: it
    is the very same one."""
    job, batches = driven(tmp_path), 0
    rows: dict[Key, int] = {}
    while is_taking(job):
        first = job.next()
        store.write()
        job.restart()
        again = job.batch()
        assert again.equals(first)
        applied(rows, again)
        job.source.commit(job.checkpoint[-1])
        if batches % 3 == 0:
            job.restart()  # and dies between two of them
        batches += 1
    assert batches > 3
    assert not list((tmp_path / "state").iterdir())  # what was done is not kept
    store.behind()
    while job.plan():
        applied(rows, job.batch())
    assert rows == store.rows


def test_rows_of_tables_have_a_source_of_their_own(store: Tables, tmp_path: Path) -> None:
    store.exact, store.busy = True, False
    rows = driven(tmp_path, 100).next().to_pylist()
    assert {dict(row["attributes"])["#op"] for row in rows} == {"read"}
    assert {row["source"]["name"] for row in rows} == {"store/snapshot"}
    assert [row["source"]["index"] for row in rows] == list(range(16))


def test_a_batch_has_the_whole_of_it(store: Tables) -> None:
    source = ChangesBatch(
        ChangesOptions.read({"changes": URL, "start": "snapshot", "maxRowsPerTrigger": "3"})
    )
    (part,) = source.partitions()
    rows: dict[Key, int] = {}
    applied(rows, pa.Table.from_batches(list(source.read(part))))
    store.behind()
    reached = {key: seq for key, seq in store.rows.items() if seq <= store.at}
    assert {key: rows.get(key) for key in reached} == reached


def test_what_waits_must_be_there(store: Tables, tmp_path: Path) -> None:
    job = driven(tmp_path)
    job.next()
    job.restart()
    (file,) = (tmp_path / "state").iterdir()
    kept = file.read_bytes()
    file.write_bytes(kept.replace(b'"batch": 1', b'"batch": 9', 1))
    with pytest.raises(ChangesDisagree, match="is damaged: its checksum does not match"):
        job.batch()
    file.write_bytes(sealed(kept.partition(b"\n")[2].replace(b'"batch": 1', b'"batch": 9', 1)))
    with pytest.raises(ChangesDisagree, match="has another micro-batch of a snapshot"):
        job.batch()
    file.unlink()
    with pytest.raises(ChangesDisagree, match=r"snapshot-00000000\.arrow.* cannot be read"):
        job.batch()
    other = Driven(URL, start="latest")
    other.checkpoint = job.checkpoint
    with pytest.raises(
        ChangesDisagree, match="in the middle of a snapshot: let the options 'start' and 'state'"
    ):
        other.plan()


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="set the option 'state' to a folder"):
        Driven(URL, start="snapshot")
    with pytest.raises(BadOption, match="a folder that the driver sees, not 'hdfs://h/x'"):
        Driven(URL, start="snapshot", state="hdfs://h/x")
    with pytest.raises(BadOption, match="is a log alone, without tables"):
        Driven("rocksdb:///store", start="snapshot", state=str(tmp_path))
