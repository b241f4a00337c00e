"""The rows that a source's tables have already, published before its query begins: `start = "snapshot"`.

Rows and the log's updates come by turns (`capture.snapshot`) and go by the source's routes: updates under the
log's own positions, rows under the source `…/snapshot`. How far it is stands in a file, written after what it
speaks of is stored. After a crash the chunk that was under way is read again, and its rows, as they are then,
come a second time; updates come once. Where it ends the query begins. It runs in a thread of its own, beside
the queries of other sources.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from qanat.capture.errors import MalformedLog
from qanat.capture.reader import Acknowledging, LogReader, Lost
from qanat.capture.snapshot import Progress, Step, snapshot
from qanat.capture.snapshot_feed import begun, load, save, snapshot_source
from qanat.capture.updates import Updates
from qanat.capture.url import open_chunks, open_reader, parse_log_url
from qanat.events.durable import make_folder
from qanat.events.errors import QanatError
from qanat.events.position import Position
from qanat.pipeline.ingest import dead_letters
from qanat.pipeline.ingest.agreement import Asked
from qanat.pipeline.ingest.dead_letters import Letter
from qanat.pipeline.ingest.failures import Disagreement
from qanat.pipeline.ingest.publisher import Publisher, SetBack
from qanat.pipeline.ingest.routing import Routed, route

log = logging.getLogger("qanat.pipeline")

SNAPSHOT = "snapshot"
_CHUNK_ROWS = 10_000
"""Of a table at once; their keys are compared with what the log had meanwhile."""
_JOIN_S = 30.0


class Snapshot:
    """Of one source. `start` it, look whether it `runs`, and take `error` then; what it has done is not done
    again."""

    def __init__(self, asked: Asked, file: Path, letters: Path, rows_per_s: float) -> None:
        self._asked, self._file, self._letters, self._rows_per_s = asked, file, letters, rows_per_s
        self.progress = load(file)
        self.error: QanatError | None = None
        self.streams: set[str] = set()
        """Into which something went."""
        self._published = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_done(self) -> bool:
        return self.progress is not None and self.progress.done

    @property
    def runs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Goes on where it was."""
        self.error = None
        self._stopping.clear()
        self._thread = threading.Thread(
            target=self._work, name=f"qanat-snapshot-{self._asked.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def status(self) -> dict[str, Any]:
        progress = self.progress
        return {
            "rows": 0 if progress is None else progress.rows,
            "tables": [] if progress is None else list(progress.tables),
            "published": self._published,
        }

    def _work(self) -> None:
        try:
            self._take()
        except QanatError as error:
            self.error = error
        except SetBack as lost:
            self.error = Disagreement(
                f"streams {', '.join(sorted(lost.positions))} lost what they had stored while a snapshot of"
                f" {self._asked.name!r} was taken: take it anew, with another state folder and new streams"
            )
        except Exception as error:
            log.exception("a snapshot failed")
            self.error = Disagreement(f"the snapshot of {self._asked.name!r} failed: {error}")

    def _take(self) -> None:
        asked = self._asked
        with (
            closing(open_reader(asked.log)) as reader,
            closing(open_chunks(asked.log)) as chunks,
            closing(Publisher(asked.url, reader.source, asked.routes, self._put_aside)) as updates,
            closing(
                Publisher(asked.url, snapshot_source(reader.source), asked.routes, self._put_aside)
            ) as rows,
        ):
            progress = self.progress
            if progress is None:
                progress = begun(reader, chunks, asked.routes.choice, Position(0, 0))
                self._save(progress)
            log.info(
                "source %s: a snapshot of %s; %d rows are done",
                asked.name,
                ", ".join(progress.tables),
                progress.rows,
            )
            following = _Following(reader, asked.log, self._put_aside)
            for step in snapshot(
                following, chunks, progress, chunk_rows=_CHUNK_ROWS, rows_per_s=self._rows_per_s
            ):
                self._publish(step, (updates, rows)[step.is_chunk], reader.source)
                self._save(step.progress)
                if isinstance(reader, Acknowledging):
                    reader.acknowledge(step.progress.position)
                if self._stopping.is_set():
                    return

    def _publish(self, step: Step, publisher: Publisher, source: str) -> None:
        routed: Routed = route(
            step.updates, self._asked.routes, snapshot_source(source) if step.is_chunk else source
        )
        self._put_aside(routed.letters)
        for part in routed.parts:
            publisher.publish(part).result()
            self.streams |= part.keys()
            self._published += sum(map(len, part.values()))

    def _put_aside(self, letters: list[Letter]) -> None:
        if letters:
            dead_letters.write(self._letters, letters)

    def _save(self, progress: Progress) -> None:
        make_folder(self._file.parent)
        save(self._file, progress)
        self.progress = progress


class _Following:
    """A log's reader that goes on behind what cannot be decoded, as a pipeline does."""

    def __init__(self, reader: LogReader, url: str, put_aside: Callable[[list[Letter]], None]) -> None:
        self._reader, self._url, self._put_aside = reader, url, put_aside
        self.source, self.identified = reader.source, reader.identified
        self.seek, self.oldest, self.latest, self.close = (
            reader.seek,
            reader.oldest,
            reader.latest,
            reader.close,
        )

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        try:
            return self._reader.read(limit, wait_s)
        except MalformedLog as error:
            if error.resume is None:
                raise Disagreement(
                    f"{parse_log_url(self._url)} cannot be read on while a snapshot is taken: {error}. Repair"
                    " it, or put its files back as they were, and start again"
                ) from error
            place = error.position or error.resume
            self._put_aside([Letter(place, "decode", str(error), "raw", error.original)])
            self._reader.seek(error.resume)
            return Updates([], error.resume)
