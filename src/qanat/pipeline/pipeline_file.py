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
    """A datastore's log, and what of it is wanted."""

    log: Annotated[
        str,
        setting(
            "URL of the log, as `qanat changes` takes it.",
            why="a password that is left out is taken from QANAT_PASSWORD, so that the file holds none",
        ),
    ]
    start: Annotated[
        str,
        setting(
            "Where the first run begins: `earliest`, `latest`, a position (`1042:0`), or `snapshot`: the rows"
            " that tables have already, then the log.",
            why="later runs go on where the last one was",
        ),
    ] = "earliest"
    tables: Annotated[
        tuple[str, ...],
        setting(
            "Only these tables: patterns as a shell has them, for whole paths or their last parts.", why="all"
        ),
    ] = ()
    where: Annotated[str, setting("Only updates that pass this filter.", why="all")] = ""
    filters: Annotated[
        tuple[str, ...],
        setting("Names from `[filters]`; an update must pass all of them, and `where`.", why="none"),
    ] = ()
    shards: Annotated[
        str,
        setting(
            "What an update's shard is: `hash:64` of its key, or a column's name.",
            why="a producer may have written it himself, as the column `#S`",
        ),
    ] = ""
    lost: Annotated[
        Literal["stop", "publish"],
        setting(
            "When the log no longer has what comes next: stop, or publish an event that says so (`#op ="
            " lost`) and go on.",
            why="nothing is passed over before somebody has decided it",
        ),
    ] = "stop"


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which updates go into which stream. An update goes by every route that takes it, into each stream
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
    """How updates go from logs into streams."""

    batch_updates: Annotated[
        int,
        setting(
            "About how many updates a micro-batch has at most.",
            unit="updates",
            why=(
                "some seconds of work: how often progress is told; Spark takes a tenth of a second between"
                " two, in which nothing is published"
            ),
            ge=1,
        ),
    ] = 2_000_000
    read_updates: Annotated[
        int,
        setting(
            "Updates that are read, translated and published at once.",
            unit="updates",
            why="some megabytes: what each step costs vanishes, and memory stays small",
            ge=1,
            le=1_000_000,
        ),
    ] = 20_000
    largest_event_bytes: Annotated[
        int,
        setting(
            "Events of more bytes become dead letters.",
            unit="bytes",
            why=(
                "a frame takes 16 MiB; a server that is set to less (`transport.frame_limit_bytes`) wants"
                " less here too"
            ),
            ge=1024,
            le=16 * 1024 * 1024 - 65536,
        ),
    ] = 16 * 1024 * 1024 - 65536
    snapshot_rows_per_s: Annotated[
        int,
        setting(
            'With `start = "snapshot"`, how many rows of tables are read a second at most. 0: no limit.',
            unit="rows/s",
            why="the log is read meanwhile anyway; a datastore that is busy may want it slower",
            ge=0,
        ),
    ] = 0
    unrouted: Annotated[
        Literal["drop", "dead-letter"],
        setting(
            "What becomes of an update that no route takes.",
            why="routes are a choice, as filters are; where they should cover everything, say dead-letter",
        ),
    ] = "drop"
    patience_s: Annotated[
        float,
        setting(
            "How long a datastore, a server or Spark may be away before the pipeline ends with exit code 3.",
            unit="s",
            why="longer than a restart of any of them, shorter than somebody would not want to know",
            ge=0,
        ),
    ] = 300.0
    checkpoint_ms: Annotated[
        int,
        setting(
            "How often Spark writes down how far it is.",
            unit="ms",
            why=(
                "what is read twice after a kill is dropped by its position: rarely is enough, and a"
                " micro-batch does not wait for it"
            ),
            ge=0,
        ),
    ] = 1_000


class ArchiveSection(ArchiveSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the streams become Parquet files, and how."""

    path: Annotated[
        str,
        setting(
            "Folder of the archive, from the file's own folder on, or a URL (`hdfs://…`). Empty: nothing is"
            " archived.",
            why="history needs room that somebody must have thought of",
        ),
    ] = ""
    streams: Annotated[
        tuple[str, ...],
        setting(
            "Only these streams: patterns as a shell has them.", why="all into which this pipeline publishes"
        ),
    ] = ()


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that `qanat pipeline run` needs to know."""

    name: Annotated[str, setting("Name of the pipeline.", why="the file's own name")] = ""
    url: Annotated[
        str,
        setting(
            "The server of the streams, or replicas of a region with commas between them.",
            why="QANAT_URL, else this machine's server",
        ),
    ] = ""
    state: Annotated[
        str,
        setting(
            "Folder for checkpoints, dead letters and status, from the file's own folder on; all machines of"
            " a cluster must have it.",
            why="beside the file: `shop.toml` has `shop.state`",
        ),
    ] = ""
    sources: dict[str, Source] = {}
    """The logs that are read, each by a query of its own."""
    filters: dict[str, str] = {}
    """Filters by name, for sources and routes that share them."""
    routes: tuple[Route, ...] = ()
    """Where updates go."""
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
