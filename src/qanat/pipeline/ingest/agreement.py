"""Whether checkpoint, log and streams belong together, looked at before anything is read; and where a source
begins.

Positions are all that keeps updates from being lost or doubled. So whatever could make a position mean
something else is refused here with a sentence that says what disagrees: the pipeline never passes over
anything because of it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qanat.capture.continuity import Expecting
from qanat.capture.errors import MalformedLog
from qanat.capture.files.positions import place_of
from qanat.capture.last_update import last_of
from qanat.capture.reader import LogReader
from qanat.capture.url import open_reader, parse_log_url
from qanat.client import Client, ClientSettings
from qanat.events.position import Position
from qanat.pipeline.changes.offsets import Offset
from qanat.pipeline.ingest.failures import Disagreement
from qanat.pipeline.ingest.ranges import agree
from qanat.pipeline.ingest.routes import Routes
from qanat.pipeline.ingest.state import Published, Remembered, State

_PATIENCE = ClientSettings(patience_ms=3_000)


@dataclass(frozen=True)
class Asked:
    """What the pipeline's file and the command say of a source."""

    name: str
    log: str
    """URL, with its password."""
    url: str
    """Of the streams."""
    routes: Routes
    start: str = "earliest"
    begin: str = ""
    """What the command says instead of `start`, for a source without a checkpoint."""
    accept: bool = False
    """Whether changed routes are meant."""


@dataclass(frozen=True)
class Agreed:
    """What a source's query begins with."""

    remembered: Remembered
    start: Position
    """For a query without a checkpoint."""
    latest: Position
    """How far the log was."""
    streams: Mapping[str, Position]
    """Those that have something of it."""


def look(asked: Asked, state: State, *, compare: bool = True) -> Agreed:
    """Raises `Disagreement`; or what is away, as `RemoteError`. With `compare` the log's updates are compared
    with the streams' too."""
    reader = open_reader(asked.log)
    try:
        known = state.remembered().get(asked.name)
        _refuse_unidentified(reader, asked)
        if known is None and state.offset(asked.name) is not None:
            raise Disagreement(
                f"{state.folder} has a checkpoint of {asked.name!r}, but does not say of which log and routes"
                " it is (agreement.json is gone): put that back, or give the pipeline another state folder"
            )
        if known is None:
            return _fresh(asked, reader, state.folder, compare)
        return _again(asked, reader, known, state, compare)
    finally:
        reader.close()


def _again(asked: Asked, reader: LogReader, known: Remembered, state: State, compare: bool) -> Agreed:
    offset = state.offset(asked.name)
    published = Published.read(state.published(asked.name), asked.routes.mark)
    _refuse_beyond(asked, state)
    began = Position.parse(known.began)
    at = offset or Offset(known.source, began, began)
    agree(reader, at._replace(source=known.source), asked.log)
    if asked.begin:
        raise Disagreement(
            f"--from {asked.begin}: {asked.name!r} goes on at {at.position}, where its checkpoint is; to"
            " begin elsewhere, give the pipeline another state folder"
        )
    if known.routes != asked.routes.mark:
        if not asked.accept:
            raise Disagreement(
                f"tables, filters, shards or routes of {asked.name!r} were changed since its checkpoint was"
                f" written, at {at.position}: what lies before that went by the old ones. To go on there by"
                " the new ones, run it once with --accept-changes; to publish the whole log by them, give"
                " the pipeline another state folder and new streams"
            )
        known = Remembered(known.source, known.began, asked.routes.mark)
    if compare:
        _compare(asked, reader, published)
    return Agreed(known, began, reader.latest(), published)


def _refuse_beyond(asked: Asked, state: State) -> None:
    """Spark's own files have no second copy, and no checksum that Spark looks at."""
    done, reached = state.done(asked.name), Published.reached_of(state.published(asked.name))
    if done is not None and reached is not None and done.position > reached:
        raise Disagreement(
            f"{state.checkpoint(asked.name)} says that all of {asked.name!r} up to {done.position} is done,"
            f" but it was done up to {reached}: it is damaged. Put the state folder back, or remove that"
            " folder: the log is then read again, and the streams drop what they have"
        )


def _fresh(asked: Asked, reader: LogReader, folder: Path, compare: bool) -> Agreed:
    """Without a checkpoint: streams that have something of this log were fed before, and the checkpoint of
    that is gone."""
    positions = _positions(asked, reader.source)
    there = {stream: position for stream, position in positions.items() if position > (0, 0)}
    if compare:
        _compare(asked, reader, there)
    if asked.begin or not there:
        start = _resolved(asked.begin or asked.start, reader)
    else:
        start = _safe(asked, reader, positions, there, folder)
    return Agreed(Remembered(reader.source, str(start), asked.routes.mark), start, reader.latest(), there)


def _safe(
    asked: Asked, reader: LogReader, positions: dict[str, Position], there: dict[str, Position], folder: Path
) -> Position:
    """From where on nothing can be missing in any stream."""
    listed = asked.routes.streams()
    least = min(positions.get(stream, Position(0, 0)) for stream in listed) if listed else Position(0, 0)
    oldest = reader.oldest()
    if least > (0, 0) and oldest <= least:
        return least
    if _is_whole(asked, oldest):
        return oldest
    stream, position = max(there.items(), key=lambda pair: pair[1])
    raise Disagreement(
        f"stream {stream!r} has {reader.source!r} up to {position}, but {folder} has no checkpoint of it, and"
        f" the log of {parse_log_url(asked.log)} begins only after {oldest}: whether something lies between"
        f" cannot be known. Put the state folder back; or say from where on to publish, by --from {position}"
        " if nothing was written since then for other streams, or else into new streams by --from earliest"
    )


def _positions(asked: Asked, source: str) -> dict[str, Position]:
    """How far streams have this log, of all those that are there and that it could lead to."""
    found: dict[str, Position] = {}
    by_name: dict[str, list[str]] = {}
    with Client(asked.url, settings=_PATIENCE) as client:
        existing = {str(one["stream"]) for one in client.ask("streams")}
    listed = asked.routes.streams()
    wanted = (
        existing & set(listed)
        if listed is not None
        else {one for one in existing if asked.routes.leads_to(one)}
    )
    for stream in sorted(wanted):
        by_name.setdefault(asked.routes.source_of(source, stream), []).append(stream)
    for name, streams in by_name.items():
        with Client(asked.url, name=name, settings=_PATIENCE) as client:
            found |= {stream: client.position(stream) for stream in streams}
    return found


def _compare(asked: Asked, reader: LogReader, streams: Mapping[str, Position]) -> None:
    """The last update that was published must be what the log has at its position. One stream tells as much
    as all of them."""
    if not streams:
        return
    stream = max(streams, key=lambda name: streams[name])
    name = asked.routes.source_of(reader.source, stream)
    with Client(asked.url, name=name, settings=_PATIENCE) as client:
        existing = {str(one["stream"]) for one in client.ask("streams")}
        position = client.position(stream) if stream in existing else Position(0, 0)
        refuse_anew(stream, reader.source, position)
        agree(reader, Offset(reader.source, position, position), asked.log, f"stream {stream!r}")
        last = last_of(client, stream, name, position) if isinstance(reader, Expecting) else None
    if last is not None and isinstance(reader, Expecting):
        reader.seek(position)
        reader.expect(last)
        with suppress(MalformedLog):  # the task will come to it
            reader.read(1, 0.0)


def refuse_anew(stream: str, source: str, position: Position) -> None:
    """Of a stream that was published to."""
    if position == (0, 0):
        raise Disagreement(
            f"stream {stream!r} has nothing of {source!r}, though it was published to: it was made anew, or"
            " is another server's. To fill it from the log again, give the pipeline another state folder; or"
            " put the stream's data back"
        )


def _resolved(start: str, reader: LogReader) -> Position:
    if start == "earliest":
        return reader.oldest()
    return reader.latest() if start in ("latest", "snapshot") else Position.parse(start)


def _is_whole(asked: Asked, oldest: Position) -> bool:
    """Whether the log still has its very beginning."""
    if parse_log_url(asked.log).scheme in ("file", "hdfs"):
        return place_of(oldest).number == 0
    return oldest.sequence == 0


def _refuse_unidentified(reader: LogReader, asked: Asked) -> None:
    if not reader.identified:
        raise Disagreement(
            f"{reader.source!r} may be the name of another dataset as well, whose positions in a stream would"
            " hide updates of this one: give it a name of its own, the same for all its replicas, by"
            f" ?dataset=NAME in the log's URL of [sources.{asked.name}]"
        )
