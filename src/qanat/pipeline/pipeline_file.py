"""The pipeline file: sources, filters, routes, archive, in one TOML file. Reading it changes nothing."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec

from qanat.capture.sharding import Sharding
from qanat.capture.url import has_tables, parse_log_url
from qanat.events.errors import LocalError
from qanat.events.filters import FilterError, parse
from qanat.events.position import Position
from qanat.pipeline.archive.settings import ArchiveSettings
from qanat.pipeline.ingest.routes import SHARD_FIELD, bad_name, fields_in
from qanat.pipeline.session import SparkSettings
from qanat.runtime.config import BadConfiguration, dotted, load
from qanat.runtime.node_settings import AdminSettings
from qanat.runtime.settings import setting
from qanat.runtime.toml_lines import Path as Place
from qanat.runtime.toml_lines import line_of
from qanat.runtime.url import parse_urls

_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,38}[a-z0-9])?")
_NAMES = "expected small letters, digits, dashes and underscores, at most 40"


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A datastore's log, and the updates to take from it."""

    log: Annotated[
        str,
        setting(
            "URL of the log, as for `qanat changes`.",
            why="without a password in the URL, QANAT_PASSWORD is used, so that the file holds none",
        ),
    ]
    start: Annotated[
        str,
        setting(
            "Where the first run begins: `earliest`, `latest`, a position (`1042:0`), or `snapshot`"
            " (the current rows of the tables, then the log).",
            why="later runs resume where the last one ended",
        ),
    ] = "earliest"
    tables: Annotated[
        tuple[str, ...],
        setting("Only these tables: shell patterns for whole paths or their last parts.", why="all"),
    ] = ()
    where: Annotated[str, setting("Only updates that pass this filter.", why="all")] = ""
    filters: Annotated[
        tuple[str, ...],
        setting("Names from `[filters]`; an update must pass all of them, and `where`.", why="none"),
    ] = ()
    shards: Annotated[
        str,
        setting(
            "Shard of an update: `hash:64` of its key, or a column's name.",
            why="the producer may have written it, as the column `#S`",
        ),
    ] = ""
    lost: Annotated[
        Literal["stop", "publish"],
        setting(
            "If the log no longer has the next updates: stop, or publish an event that says so"
            " (`#op = lost`) and continue.",
            why="the pipeline skips nothing until you decide so",
        ),
    ] = "stop"


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that sends updates into a stream. An update takes every matching route, but enters each stream
    once."""

    stream: Annotated[
        str, setting("Name of the stream; `{shard}` in it is the update's shard.", why="`orders-{shard}`")
    ]
    source: Annotated[str, setting("Only updates of this source.", why="of all")] = ""
    tables: Annotated[tuple[str, ...], setting("Only these tables.", why="all")] = ()
    where: Annotated[str, setting("Only updates that pass this filter.", why="all")] = ""
    filters: Annotated[
        tuple[str, ...],
        setting("Names from `[filters]`; an update must pass all of them, and `where`.", why="none"),
    ] = ()


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The work between logs and streams."""

    batch_updates: Annotated[
        int,
        setting(
            "Most updates of a micro-batch, about.",
            unit="updates",
            why=(
                "some seconds of work between two progress reports; Spark pauses for a tenth of a"
                " second between two micro-batches"
            ),
            ge=1,
        ),
    ] = 2_000_000
    read_updates: Annotated[
        int,
        setting(
            "Updates read, translated and published at once.",
            unit="updates",
            why="some megabytes: the cost of each step vanishes, and memory stays small",
            ge=1,
            le=1_000_000,
        ),
    ] = 20_000
    largest_event_bytes: Annotated[
        int,
        setting(
            "Largest event; larger ones become dead letters.",
            unit="bytes",
            why=("a frame holds 16 MiB; lower it together with a server's `transport.frame_limit_bytes`"),
            ge=1024,
            le=16 * 1024 * 1024 - 65536,
        ),
    ] = 16 * 1024 * 1024 - 65536
    snapshot_rows_per_s: Annotated[
        int,
        setting(
            'Most rows of tables read per second with `start = "snapshot"`; 0: no limit.',
            unit="rows/s",
            why="the pipeline reads the log meanwhile anyway; lower it for a busy datastore",
            ge=0,
        ),
    ] = 0
    unrouted: Annotated[
        Literal["drop", "dead-letter"],
        setting(
            "What to do with updates without a route.",
            why="routes select, as filters do; choose dead-letter if they should cover every update",
        ),
    ] = "drop"
    patience_s: Annotated[
        float,
        setting(
            "How long a datastore, a server or Spark may be unavailable before the pipeline ends"
            " with exit code 3.",
            unit="s",
            why="longer than a restart of any of them, short enough that you hear of a failure",
            ge=0,
        ),
    ] = 300.0
    checkpoint_ms: Annotated[
        int,
        setting(
            "Time between two checkpoints of Spark.",
            unit="ms",
            why=(
                "after a crash updates that are read twice are dropped by position, so checkpoints"
                " may be rare, and a micro-batch does not wait for them"
            ),
            ge=0,
        ),
    ] = 1_000


class ArchiveSection(ArchiveSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The archive of the streams, as Parquet files."""

    path: Annotated[
        str,
        setting(
            "Folder of the archive, relative to the file's folder, or a URL (`hdfs://…`); empty: no archive.",
            why="an archive needs disk space that you must plan for",
        ),
    ] = ""
    streams: Annotated[
        tuple[str, ...],
        setting("Only these streams: shell patterns.", why="all that this pipeline publishes into"),
    ] = ()


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a pipeline."""

    name: Annotated[str, setting("Name of the pipeline.", why="the file's own name")] = ""
    url: Annotated[
        str,
        setting(
            "The server of the streams, or a region's replicas separated by commas.",
            why="QANAT_URL, else the server on this machine",
        ),
    ] = ""
    state: Annotated[
        str,
        setting(
            "Folder for checkpoints, dead letters and status, relative to the file's folder; all"
            " machines of a cluster must share it.",
            why="beside the file: `shop.toml` has `shop.state`",
        ),
    ] = ""
    sources: dict[str, Source] = {}
    """Logs by name; each has its own Spark query."""
    filters: dict[str, str] = {}
    """Filters by name, which sources and routes can share."""
    routes: tuple[Route, ...] = ()
    """Routes of updates into streams."""
    archive: ArchiveSection = ArchiveSection()
    ingest: IngestSettings = IngestSettings()
    spark: SparkSettings = SparkSettings()
    admin: AdminSettings = AdminSettings(port=0)

    def filter_of(self, part: Source | Route) -> str:
        """The one filter that its `where` and its named filters are."""
        texts = [*(self.filters[name] for name in part.filters), *([part.where] if part.where else [])]
        return texts[0] if len(texts) == 1 else " and ".join(f"({text})" for text in texts)

    def routes_of(self, source: str) -> tuple[Route, ...]:
        return tuple(route for route in self.routes if route.source in ("", source))


class PipelineFile(msgspec.Struct, frozen=True):
    """A pipeline, and where it was read from."""

    path: Path
    pipeline: Pipeline

    @property
    def name(self) -> str:
        return self.pipeline.name or self.path.stem

    @property
    def state(self) -> Path:
        named = self.pipeline.state or f"{self.path.stem}.state"
        return (self.path.parent / named).absolute()

    def log_of(self, source: Source) -> str:
        """The URL of a source's log; files named from the pipeline's own folder on with the whole path."""
        return absolute(source.log, self.path.parent)

    @property
    def archive(self) -> str:
        """Where the archive is; empty if there is none."""
        path = self.pipeline.archive.path
        return path if not path or "://" in path else str((self.path.parent / path).absolute())


def absolute(url: str, folder: Path) -> str:
    """`file:logs/*.jsonl` is a path from a folder on."""
    scheme, colon, path = url.partition(":")
    if scheme.lower() != "file" or not colon or path.startswith("/"):
        return url
    return f"file://{quote(str(folder.absolute()))}/{path}"


def read(path: str | os.PathLike[str]) -> PipelineFile:
    """Raises `BadConfiguration` with the file, the line, and what was expected there."""
    pipeline = load(Pipeline, file=Path(path)).settings
    for place, what in mistakes(pipeline):
        line = line_of(Path(path).read_text(encoding="utf-8"), place)
        raise BadConfiguration(f"`{dotted(place)}` (file {path}, line {line}) {what}")
    return PipelineFile(Path(path), pipeline)


def mistakes(pipeline: Pipeline) -> Iterator[tuple[Place, str]]:
    """What each part allows and the whole does not: the place, and the sentence."""
    if pipeline.name and not _NAME.fullmatch(pipeline.name):
        yield ("name",), f"cannot be {pipeline.name!r}: {_NAMES}"
    if pipeline.url:
        yield from _tried(("url",), lambda: parse_urls(pipeline.url))
    if not pipeline.sources:
        yield (
            ("sources",),
            'is empty: expected at least one source, as [sources.shop] with log = "mariadb://…"',
        )
    for name, text in pipeline.filters.items():
        yield from _filter(("filters", name), text)
    for name, source in pipeline.sources.items():
        yield from _source(pipeline, name, source)
    if not pipeline.routes:
        yield ("routes",), 'is empty: expected at least one route, as [[routes]] with stream = "shop"'
    for number, route in enumerate(pipeline.routes):
        yield from _route(pipeline, number, route)
    for name in pipeline.sources:
        if pipeline.routes and not pipeline.routes_of(name):
            yield ("sources", name), f"has no route: expected one with source = {name!r}, or without a source"


def _source(pipeline: Pipeline, name: str, source: Source) -> Iterator[tuple[Place, str]]:
    place: Place = ("sources", name)
    if not _NAME.fullmatch(name):
        yield place, f"is no name of a source: {_NAMES}"
    yield from _tried((*place, "log"), lambda: parse_log_url(absolute(source.log, Path())))
    if source.start == "snapshot":
        with suppress(LocalError):  # what is wrong with the URL was told
            if not has_tables(absolute(source.log, Path())):
                yield (
                    (*place, "start"),
                    "cannot be 'snapshot': the log has no tables whose rows could be read; expected earliest",
                )
    elif source.start not in ("earliest", "latest"):
        try:
            Position.parse(source.start)
        except ValueError:
            expected = "expected earliest, latest, snapshot, or a position (sequence:index, as 1042:0)"
            yield (*place, "start"), f"cannot be {source.start!r}: {expected}"
    yield from _tried((*place, "shards"), lambda: Sharding.parse(source.shards))
    yield from _filters(pipeline, place, source)


def _route(pipeline: Pipeline, number: int, route: Route) -> Iterator[tuple[Place, str]]:
    place: Place = ("routes", number)
    if route.source and route.source not in pipeline.sources:
        yield (*place, "source"), f"is {route.source!r}: expected one of {', '.join(pipeline.sources)}"
    fields = fields_in(route.stream)
    if fields is None or fields - {SHARD_FIELD}:
        expected = f"expected a stream's name, in which only {{{SHARD_FIELD}}} stands for something"
        yield (*place, "stream"), f"cannot be {route.stream!r}: {expected}"
    elif what := bad_name(route.stream):
        yield (*place, "stream"), what
    yield from _filters(pipeline, place, route)


def _filters(pipeline: Pipeline, place: Place, part: Source | Route) -> Iterator[tuple[Place, str]]:
    yield from _filter((*place, "where"), part.where)
    for name in part.filters:
        if name not in pipeline.filters:
            there = (
                f"expected some of {', '.join(pipeline.filters)}"
                if pipeline.filters
                else "there is no [filters]"
            )
            yield (*place, "filters"), f"names {name!r}: {there}"


def _filter(place: Place, text: str) -> Iterator[tuple[Place, str]]:
    if not text:
        if place[0] == "filters":
            yield place, 'is empty: expected a filter, as "total > 100"'
        return
    try:
        if parse(text).contextual:
            yield place, "is for garbage collection: expected a filter that looks at one update alone"
    except FilterError as error:
        yield place, f"is no filter: {error}"


def _tried(place: Place, attempt: object) -> Iterator[tuple[Place, str]]:
    assert callable(attempt)
    try:
        attempt()
    except LocalError as error:
        yield place, f"cannot be read: {error}"
