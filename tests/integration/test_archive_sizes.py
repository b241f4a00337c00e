"""The files that an archive really gets, of a real server's events: about as large as the setting says,
commit after commit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.integration.archiving import QUICK, ArrowTables, archiver

from qanat.client import Client
from qanat.pipeline.archive.archiver import Archiver
from qanat.pipeline.archive.history import Writer
from qanat.pipeline.archive.manifest import DataFile, Range
from qanat.pipeline.archive.storage import LocalStorage
from qanat.pipeline.archive.tables import put_in_place, staging_of
from qanat.pipeline.archive.tidy import tidy
from qanat.pipeline.archive.writing import write_ranges

pytestmark = pytest.mark.paper("D4")
KIB = 1 << 10


class TaskTables(ArrowTables):
    """Ranges are written as a task of Spark does it, with its compression and its row groups."""

    def write_ranges(self, writer: Writer, url: str, ranges: Sequence[Range]) -> list[DataFile]:
        storage, staging = writer.history.storage, staging_of(writer)
        assert isinstance(storage, LocalStorage)
        numbers = [pa.record_batch({"id": list(range(len(ranges)))})]
        made = write_ranges(url, writer.history.stream, ranges, storage.make_folder(staging), numbers)
        names = {name for batch in made for name in batch.column(0).to_pylist()}
        entries = [entry for entry in storage.entries(staging) if entry.name in names]
        files = put_in_place(storage, writer, staging, ranges[0].first, ranges[-1].last, entries)
        storage.remove(staging)
        return files


def commits(job: Archiver) -> list[list[DataFile]]:
    """The new files of each commit up to the stream's end."""
    found, seen = [], len(job.history.newest().files)
    for _ in job.run(until_end=True):
        files = job.history.newest().files
        found.append(list(files[seen:]))
        seen = len(files)
    return found


def test_files_have_the_size_that_is_set(server_process: Any, tmp_path: Path) -> None:
    """First by what events need in the log; then by what they needed in files, which here is a quarter of
    it."""
    server_process.start("--set", "log.mode=memory")
    rng = random.Random(20261117)
    settings = msgspec.structs.replace(QUICK, file_bytes=256 * KIB, range_rows=200_000, batch_rows=12_000)
    with Client(server_process.url) as client:
        client.publish_many("s", [rng.randbytes(100) + bytes(300) for _ in range(36_000)])
        job = archiver(server_process.url, tmp_path, "s", settings)
        job._tables = TaskTables()
        with job:
            first, *later = commits(job)
            assert sum(file.rows for file in first) == 12_000 and len(later) == 2
            # The log does not compress, so the first files are smaller than they should be, never larger.
            assert 18 <= len(first) <= 22 and all(5 <= len(files) <= 7 for files in later)
            assert all(40 * KIB < file.bytes < 256 * KIB for file in first)
            for files in later:
                assert all(128 * KIB < file.bytes <= 256 * KIB * 1.1 for file in files)
            # Merged they are as large as may be: no two neighbours would fit into one file.
            list(tidy(job._tables, job.history, settings))
            sizes = [file.bytes for file in job.history.newest().files]
            assert len(sizes) < 32 and max(sizes) <= 256 * KIB * 1.1
            assert job.history.newest().complete() == ((1, 36_000),)


@pytest.mark.parametrize(("file_bytes", "files"), [(64 * KIB, 16), (512 * KIB, 2), (128 << 20, 1)])
def test_a_larger_setting_makes_fewer_files(
    server_process: Any, tmp_path: Path, file_bytes: int, files: int
) -> None:
    server_process.start("--set", "log.mode=memory")
    rng = random.Random(file_bytes)
    settings = msgspec.structs.replace(QUICK, file_bytes=file_bytes, range_rows=200_000)
    with Client(server_process.url) as client:
        client.publish_many("s", [rng.randbytes(1_000) for _ in range(1_000)])
    job = archiver(server_process.url, tmp_path, "s", settings)
    job._tables = TaskTables()
    with job:
        (made,) = commits(job)
    assert len(made) == files, [file.bytes for file in made]
    assert all(file.bytes <= file_bytes * 1.2 for file in made)  # a file has 8 KiB of its own
