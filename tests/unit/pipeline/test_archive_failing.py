"""What is archived and cannot be written: what stays, and what is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PythonException

from qanat.pipeline.archive.errors import Fenced, NoRoom, TaskFailed
from qanat.pipeline.archive.failing import attempt, in_a_sentence
from qanat.pipeline.archive.history import History, Writer
from qanat.pipeline.archive.storage import LocalStorage
from qanat.pipeline.archive.tables import staging_of

pytestmark = pytest.mark.paper("D4")
TOLD = """
  An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/src/qanat/pipeline/archive/writing.py", line 44, in write_ranges
    write_file(os.path.join(folder, name), read_rows(url, stream, *ranges[number]))
{}"""
FULL = TOLD.format(
    "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"
)
AWAY = TOLD.format("qanat.client.errors.Unreachable: nobody listens at qanat://127.0.0.1:1")


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return History(LocalStorage(str(tmp_path)), "orders").begin("append")


def fail(writer: Writer, error: Exception) -> None:
    staging = staging_of(writer)
    storage = writer.history.storage
    with attempt(writer, staging):
        storage.put(f"{staging}/0.parquet", b"half of it")
        raise error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PythonException(FULL), NoRoom),
        (PythonException(AWAY), PythonException),
        (OSError(28, os.strerror(28)), OSError),
    ],
)
def test_nothing_stays_of_an_attempt_that_failed(
    writer: Writer, error: Exception, kind: type[Exception]
) -> None:
    for _ in range(2):
        with pytest.raises(kind) as raised:
            fail(writer, error)
        assert type(raised.value) is kind
    assert not writer.history.storage.entries("_staging")


def test_a_full_disk_is_told_in_a_sentence(writer: Writer) -> None:
    with pytest.raises(
        NoRoom, match=r"^no space is left for the archive of stream 'orders' at /.*: free some"
    ) as it:
        fail(writer, PythonException(FULL))
    assert it.value.exit_code == 3
    assert len(str(it.value).splitlines()) == 1
    assert in_a_sentence(it.value, "orders") is it.value


def test_who_was_taken_over_hears_of_that(writer: Writer) -> None:
    writer.history.begin("append")
    with pytest.raises(Fenced):
        fail(writer, PythonException(FULL))


def test_of_another_failure_of_spark_s_the_line_that_tells_counts() -> None:
    told = in_a_sentence(PythonException(AWAY), "orders")
    assert isinstance(told, TaskFailed)
    assert str(told) == (
        "archiving stream 'orders' failed on Spark: qanat.client.errors.Unreachable: nobody listens at qanat://127.0.0.1:1"
    )
