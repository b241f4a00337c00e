"""Options of the format `qanat` for a datastore's log: `changes` names it, the others say what of it is
wanted.

| option | is |
|---|---|
| `changes` | the URL of the log, as `./qanat changes` takes it; its own options stand behind a question mark |
| `start` | `earliest` (default), `latest`, a position (`1042:0`) after which reading begins, or `snapshot`: what the tables have already, then the log; used once, later the checkpoint counts |
| `where` | only updates that pass this filter |
| `tables` | only these tables: patterns as a shell has them, with commas between them |
| `shard-by` | what the column `shard` is: a column of the table, or `hash:64` of the key |
| `losses` | `stop` (default): if the log no longer has something, the job stops; `accept`: a row with `#op = lost` says so in its place; `skip`: only the log says so |
| `maxRowsPerTrigger`, `maxBytesPerTrigger` | how much of the log is read for one micro-batch |
| `patience` | seconds, as `30` or `2m`, that the datastore may be away, or say nothing of what its log is known to have; by default 30 |
| `state` | for `start=snapshot` in a streaming query: a folder of its own that the driver sees, where micro-batches of the snapshot wait until they are done |
"""  # noqa: E501

from collections.abc import Mapping
from dataclasses import dataclass

from qanat.capture.choice import Choice
from qanat.capture.reader import LogReader, Start
from qanat.capture.sharding import Sharding
from qanat.capture.url import has_tables, open_reader, parse_log_url, with_password
from qanat.events.errors import LocalError
from qanat.events.filters import parse
from qanat.events.passwords import without_password
from qanat.events.position import Position
from qanat.pipeline.source.options import LOSSES, BadOption, count, patience_of, read_options, word
from qanat.runtime.patience import PATIENCE_S

__all__ = ["CHANGES", "ChangesOptions", "with_password"]

CHANGES = "changes"
SNAPSHOT = "snapshot"
ROWS = 100_000
"""In one micro-batch of rows: what Spark does for each of them, some hundred milliseconds, is then little
beside the rows."""
BYTES = 32 << 20
"""Of one micro-batch's rows, which are all in memory at once."""
_KNOWN = (
    CHANGES,
    "start",
    "where",
    "tables",
    "shard-by",
    "losses",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "patience",
    "state",
)


@dataclass(frozen=True, slots=True)
class ChangesOptions:
    """As Spark's tasks get them: everything that a reader is made of."""

    url: str
    start: str = "earliest"
    where: str = ""
    tables: tuple[str, ...] = ()
    shard_by: str = ""
    losses: str = "stop"
    """Or `accept`, or `skip`."""
    rows: int = ROWS
    bytes: int = BYTES
    patience: float = PATIENCE_S
    state: str = ""

    @property
    def scheme(self) -> str:
        return parse_log_url(self.url).scheme

    @classmethod
    def read(cls, options: Mapping[str, str]) -> "ChangesOptions":
        """From what was given to Spark. Raises `LocalError` for what cannot be."""
        given = read_options(options, _KNOWN)
        made = cls(
            url=given[CHANGES],
            start=given["start"] or "earliest",
            where=given["where"],
            tables=tuple(part.strip() for part in given["tables"].split(",") if part.strip()),
            shard_by=given["shard-by"],
            losses=word("losses", given["losses"], LOSSES),
            rows=count("maxRowsPerTrigger", given["maxRowsPerTrigger"]) or ROWS,
            bytes=count("maxBytesPerTrigger", given["maxBytesPerTrigger"]) or BYTES,
            patience=patience_of(given["patience"]),
            state=given["state"],
        )
        parse_log_url(made.url)
        made.begin()
        made._check_snapshot()
        try:
            made.choice()
        except LocalError as error:
            raise BadOption(f"options of {made}: {error}") from None
        return made

    @property
    def takes_snapshot(self) -> bool:
        return self.start.lower() == SNAPSHOT

    def _check_snapshot(self) -> None:
        if self.takes_snapshot and not has_tables(self.url):
            raise BadOption(
                f"option 'start' is snapshot, but {self} is a log alone, without tables that have rows: let"
                " it be earliest"
            )

    def begin(self) -> Start:
        """Where a job without a checkpoint begins in the log."""
        match self.start.lower():
            case "earliest" | "latest" as word:
                return word
            case "snapshot":
                return "latest"
        try:
            return Position.parse(self.start)
        except ValueError:
            raise BadOption(
                "option 'start' is a position (sequence:index, as 1042:0), earliest, latest or snapshot, not"
                f" {self.start!r}"
            ) from None

    def choice(self) -> Choice:
        """What is wanted of the log, except for what its reader leaves out by itself."""
        where = parse(self.where) if self.where and not self._pushed() else None
        return Choice(self.tables, where, Sharding.parse(self.shard_by))

    def open(self) -> LogReader:
        """A reader of the log; what it can leave out by itself is left to it."""
        url = with_password(self.url)
        return open_reader(url, where=self.where) if self._pushed() else open_reader(url)

    def _pushed(self) -> bool:
        """A server of streams evaluates filters itself; but what begins with # or @ is not in its events as
        it is in updates."""
        url = parse_log_url(self.url)
        return url.scheme == "qanat" and "where" not in url.options and is_plain(self.where)

    def __str__(self) -> str:
        return without_password(self.url)


def is_plain(where: str) -> bool:
    """Whether a filter asks for columns alone, which events of a stream have as updates do."""
    return bool(where) and not any(name.startswith(("#", "@")) for name in parse(where).names)
