"""Several streams archived by one process: each by an archiver and a thread of its own, all on one Spark."""

import queue
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Event as Signal
from threading import Thread
from typing import TYPE_CHECKING

from qanat.client.subscription import Where
from qanat.events.errors import LocalError
from qanat.pipeline.archive.archiver import Archived, Archiver
from qanat.pipeline.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive_streams(
    spark: "SparkSession",
    url: str,
    path: str,
    streams: Sequence[str],
    *,
    settings: ArchiveSettings | None = None,
    start: Where = "earliest",
    accept_losses: bool = False,
    until_end: bool = False,
    stop: Signal | None = None,
) -> Iterator[tuple[str, Archived]]:
    """Archives the streams until `stop` is set (with `until_end`: up to their present ends), and tells of each commit.

    What goes wrong with one stream stops them all, and is raised.
    """
    if not streams:
        raise LocalError(f"the server at {url} has no streams to archive")
    stop = stop or Signal()
    told: queue.SimpleQueue[tuple[str, Archived | BaseException | None]] = queue.SimpleQueue()

    def work(job: Archiver) -> None:
        try:
            with job:
                for archived in job.run(stop, until_end=until_end):
                    told.put((job.stream, archived))
        except BaseException as error:
            told.put((job.stream, error))
        else:
            told.put((job.stream, None))

    jobs = [
        Archiver(spark, url, path, stream, settings=settings, start=start, accept_losses=accept_losses)
        for stream in streams
    ]
    threads = [Thread(target=work, args=(job,), name=f"archive {job.stream}", daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    left, failed = len(threads), None
    try:
        while left:
            item: tuple[str, Archived | BaseException | None] | None = None
            with suppress(queue.Empty):
                item = told.get(timeout=0.5)  # now and then an interruption is looked at
            if item is None:
                continue
            stream, what = item
            if isinstance(what, Archived):
                yield stream, what
                continue
            left -= 1
            if what is not None:
                failed = failed or what
                stop.set()
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    if failed is not None:
        raise failed
