"""Several streams archived by one process: each by an archiver and a thread of its own, all on one Spark."""

import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Event as Signal
from threading import Thread
from typing import TYPE_CHECKING

from qanat.client.subscription import Where
from qanat.events.errors import LocalError, RemoteError
from qanat.pipeline.archive.archiver import Archived, Archiver
from qanat.pipeline.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 2.0
"""Between two looks for streams that are new: as long as a small commit may take anyway."""
Make = Callable[[str, Where], Archiver]


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
    more: Callable[[], Iterable[str]] | None = None,
) -> Iterator[tuple[str, Archived]]:
    """Archives the streams until `stop` is set (with `until_end`: up to their present ends), and tells of
    each commit.

    `more` says which streams there are; those that come to be later are archived too, from their beginning
    where `start` is `latest`. What goes wrong with one stream stops them all, and is raised.
    """

    def make(stream: str, where: Where) -> Archiver:
        return Archiver(spark, url, path, stream, settings=settings, start=where, accept_losses=accept_losses)

    if until_end:
        more = None
    if not streams and more is None:
        raise LocalError(f"the server at {url} has no streams to archive")
    return run_archivers(make, streams, start=start, until_end=until_end, stop=stop or Signal(), more=more)


def run_archivers(
    make: Make,
    streams: Sequence[str],
    *,
    start: Where = "earliest",
    until_end: bool = False,
    stop: Signal,
    more: Callable[[], Iterable[str]] | None = None,
    look_s: float = LOOK_S,
) -> Iterator[tuple[str, Archived]]:
    """As `archive_streams`, with archivers that `make` makes."""
    told: queue.SimpleQueue[tuple[str, Archived | BaseException | None]] = queue.SimpleQueue()
    threads: dict[str, Thread] = {}

    def work(job: Archiver) -> None:
        try:
            with job:
                for archived in job.run(stop, until_end=until_end):
                    told.put((job.stream, archived))
        except BaseException as error:
            told.put((job.stream, error))
        else:
            told.put((job.stream, None))

    def add(names: Iterable[str], where: Where) -> None:
        for name in sorted(set(names) - threads.keys()):
            job = make(name, where)
            threads[name] = Thread(target=work, args=(job,), name=f"archive {name}", daemon=True)
            threads[name].start()

    ended, failed, looked = 0, None, time.monotonic()
    try:
        add(streams, start)
        while ended < len(threads) or (more is not None and not stop.is_set()):
            if more is not None and not stop.is_set() and time.monotonic() - looked > look_s:
                with suppress(RemoteError):  # a server that is away is waited for by those who read from it
                    add(more(), "earliest" if start == "latest" else start)
                looked = time.monotonic()
            item: tuple[str, Archived | BaseException | None] | None = None
            with suppress(queue.Empty):
                item = told.get(timeout=0.5)  # now and then an interruption is looked at
            if item is None:
                continue
            stream, what = item
            if isinstance(what, Archived):
                yield stream, what
                continue
            ended += 1
            if what is not None:
                failed = failed or what
                stop.set()
    finally:
        stop.set()
    for thread in threads.values():
        thread.join()
    if failed is not None:
        raise failed
