"""What a pipeline remembers in its folder, beside Spark's own checkpoints: of which log, by which routes, and
how far streams are.

| file | holds |
|---|---|
| `lock` | nothing; whoever runs the pipeline has it locked |
| `agreement.json` (kept twice) | for each source: the log's name, where it began, the mark of its routes |
| `published/SOURCE.json` (kept twice) | how far its streams are, written by its tasks before a micro-batch counts as done |
| `status.json` | the last status that was told |
| `checkpoints/SOURCE` | Spark's offsets and commits |
| `dead-letters/source=SOURCE` | Parquet files |
| `snapshot/SOURCE.json` | how far the snapshot of its tables is, with which a source may begin |
| `trouble/SOURCE` | what somebody waits for just now |
"""  # noqa: E501

import json
from pathlib import Path
from typing import Any

import msgspec

from qanat.events.durable import make_folder, tell
from qanat.events.kept import Damaged, Kept
from qanat.events.position import Position
from qanat.pipeline.changes.offsets import Offset
from qanat.pipeline.ingest.failures import Disagreement


class Remembered(msgspec.Struct, frozen=True):
    """Of one source."""

    source: str
    """The log's own name."""
    began: str
    """Position where its first run began."""
    routes: str
    """Mark of what decides where updates go."""


class Published(msgspec.Struct, frozen=True):
    """How far streams certainly were, by these routes. A stream that has less was set back, or made anew."""

    routes: str
    streams: dict[str, str] = {}
    reached: str = ""
    """Up to where all was done, by whatever routes; what Spark calls done is never beyond."""

    @classmethod
    def read(cls, file: Path, routes: str) -> dict[str, Position]:
        """Nothing, if it was by others."""
        found = cls._load(file)
        known = found.streams if found.routes == routes else {}
        return {stream: Position.parse(text) for stream, text in known.items()}

    @classmethod
    def reached_of(cls, file: Path) -> Position | None:
        """None if nobody wrote it down."""
        reached = cls._load(file).reached
        return Position.parse(reached) if reached else None

    @classmethod
    def _load(cls, file: Path) -> "Published":
        try:
            data = Kept(file).read()
            return cls("") if data is None else msgspec.json.decode(data, type=cls)
        except (Damaged, msgspec.DecodeError) as error:
            raise Disagreement(
                f"{file} is damaged ({error}): put it back, or give the pipeline another state folder"
            ) from None

    def write(self, file: Path) -> None:
        make_folder(file.parent)
        Kept(file, shared=True).write(msgspec.json.encode(self))


class State:
    """The folder. Only who has it locked writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def checkpoint(self, source: str) -> Path:
        return self.folder / "checkpoints" / source

    def troubles(self, source: str) -> Path:
        return self.folder / "trouble" / source

    def live(self, source: str) -> Path:
        """What a task tells while it works on a range for long; see `ingest.live`."""
        return self.folder / "live" / f"{source}.json"

    def published(self, source: str) -> Path:
        return self.folder / "published" / f"{source}.json"

    def snapshot(self, source: str) -> Path:
        return self.folder / "snapshot" / f"{source}.json"

    def remembered(self) -> dict[str, Remembered]:
        file = self.folder / "agreement.json"
        try:
            data = Kept(file).read()
            return {} if data is None else msgspec.json.decode(data, type=dict[str, Remembered])
        except (Damaged, msgspec.DecodeError) as error:
            raise Disagreement(
                f"{file} is damaged ({error}): put it back, or give the pipeline another state folder"
            ) from None

    def remember(self, sources: dict[str, Remembered]) -> None:
        make_folder(self.folder)
        Kept(self.folder / "agreement.json").write(msgspec.json.format(msgspec.json.encode(sources)))

    def offset(self, source: str) -> Offset | None:
        """How far Spark has written down that the source was planned; None if it has written nothing."""
        return self._planned(source)[1]

    def done(self, source: str) -> Offset | None:
        """How far Spark has written down that all is done: where it goes on."""
        commits = (self.checkpoint(source) / "commits").glob("[0-9]*")
        for number in sorted((int(file.name) for file in commits if file.name.isdigit()), reverse=True):
            if (offset := _read_offset(self.checkpoint(source) / "offsets" / f"{number}")) is not None:
                return offset
        return None

    def has_done(self, source: str) -> bool:
        """Whether Spark has written down that all it planned is done; if not, it does the last micro-batch
        again."""
        number, offset = self._planned(source)
        return offset is None or (self.checkpoint(source) / "commits" / number).exists()

    def _planned(self, source: str) -> tuple[str, Offset | None]:
        files = [file for file in (self.checkpoint(source) / "offsets").glob("[0-9]*") if file.name.isdigit()]
        for file in sorted(files, key=lambda file: int(file.name), reverse=True):
            if (offset := _read_offset(file)) is not None:
                return file.name, offset
        return "", None

    def status(self) -> dict[str, Any] | None:
        try:
            told: dict[str, Any] = json.loads((self.folder / "status.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return told

    def tell(self, status: dict[str, Any]) -> None:
        make_folder(self.folder)
        tell(self.folder / "status.json", json.dumps(status).encode())


def _read_offset(file: Path) -> Offset | None:
    """None if there is no such file, or it was written by half."""
    try:
        return Offset.read(json.loads(file.read_text(encoding="utf-8").splitlines()[2]))
    except (FileNotFoundError, IndexError, ValueError):
        return None
