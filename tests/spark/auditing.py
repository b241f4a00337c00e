"""What tests of the audit share: archives and records made by hand, so that anything can be wrong with
them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from qanat.client.record_format import SUFFIX, Entry, Heading, encode_entry, encode_heading
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import DataFile
from qanat.pipeline.archive.storage import LocalStorage
from qanat.pipeline.columns import ARROW

NOW_US = 1_700_000_000_000_000
STEP_US = 1_000
LATE_US = 5_000
"""How long after publishing everything is delivered."""


def event(
    seq: int, kind: str = "data", key: bytes = b"", *, gc: str = "", colour: str = ""
) -> dict[str, Any]:
    """A row of the archive; with a predicate it is a GC event."""
    attributes = {"@gc": gc} if gc else {"colour": colour} if colour else {}
    return {
        "stream": "",
        "seq": seq,
        "kind": "gc" if gc else kind,
        "key": key,
        "time": NOW_US + seq * STEP_US,
        "payload": b"" if kind == "tombstone" else b"%d" % seq,
        "attributes": list(attributes.items()),
        "types": None,
        "source": None,
    }


def make_archive(
    folder: Path, stream: str, rows: Sequence[dict[str, Any]], first: int, last: int, files: int = 2
) -> None:
    """An archive whose manifest says that it has all of first..last, whatever the rows are."""
    history = History(LocalStorage(str(folder)), stream)
    writer = history.begin("append")
    bounds = [first + (last - first + 1) * i // files for i in range(files)] + [last + 1]
    made = []
    for begin, after in pairwise(bounds):
        mine = [row for row in rows if begin <= row["seq"] < after]
        path = writer.path("2023-11-14", begin, after - 1)
        target = Path(history.storage.root) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(mine, schema=ARROW), target)
        made.append(
            DataFile(
                path=path,
                first=begin,
                last=after - 1,
                rows=len(mine),
                bytes=target.stat().st_size,
                checksum=history.storage.checksum(path),
                min_time_us=NOW_US + begin * STEP_US,
                max_time_us=NOW_US + (after - 1) * STEP_US,
            )
        )
    writer.append(made)


Row = tuple[Entry, int, int]


def make_record(
    folder: Path,
    subscriber: str,
    rows: Iterable[Row],
    *,
    stream: str = "orders",
    where: str = "",
    start: str = "1",
    first: int = 1,
    began: int = 0,
    region: str = "eu",
    part: int = 0,
) -> Path:
    """A record of these entries (kind, first, last), each delivered `LATE_US` after its last number was
    published."""
    heading = Heading(
        subscriber=subscriber,
        region=region,
        stream=stream,
        where=where,
        start=start,
        first=first,
        began_us=NOW_US + began,
        run=f"{subscriber}-{began}",
        part=part,
    )
    data = encode_heading(heading) + b"".join(
        encode_entry(kind, NOW_US + last * STEP_US + LATE_US, begin, last - begin + 1)
        for kind, begin, last in rows
    )
    path = folder / f"{subscriber}-{began}.{part:04d}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def whole(rows: Sequence[dict[str, Any]], passes: Any = lambda row: True) -> list[Row]:
    """What a subscriber is to be given of these rows."""
    kinds = {"data": Entry.DATA, "gc": Entry.GC, "tombstone": Entry.TOMBSTONE}
    return [
        (kinds[row["kind"]], row["seq"], row["seq"]) for row in rows if row["kind"] != "data" or passes(row)
    ]
