"""The dead-letter table: updates that could not be published, with the reason, where they were, and what they
were.

A folder of Parquet files, one folder per source. A file is named by the first and the last position in it, a
number that counts the files, and a checksum of its bytes, and is there whole or not at all. How many there
are is written down beside them (`_letters.json`, kept twice), so one that is gone or damaged is missed. What
the folder has at a position is not written there again: so a task that is done twice, by however many
processes, leaves each letter once.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from qanat.events.checksum import crc32c
from qanat.events.durable import make_folder, replace
from qanat.events.errors import LocalError
from qanat.events.kept import Damaged, Kept
from qanat.events.position import Position

SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("sequence", pa.uint64()),
        ("index", pa.uint32()),
        ("table", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("form", pa.string()),
        ("original", pa.large_binary()),
        ("written", pa.timestamp("us", "UTC")),
    ]
)
_FILED = SCHEMA.remove(SCHEMA.get_field_index("source"))
"""What files have of it: the source is the name of their folder, and whoever reads both as columns has two of
one name."""
_SUFFIX = ".parquet"
_COUNT = "_letters.json"


class LettersDamaged(LocalError):
    """Letters are gone, or not what was written."""

    exit_code = 1


class Letter(NamedTuple):
    """`form` says what `original` is: `json` (the update as it would have been published), `arrow` (its
    columns, as an Arrow stream), `raw` (the bytes of the log)."""

    position: Position
    stage: str
    """`decode`, `translate`, `route`, `publish`: what could not be done."""
    reason: str
    form: str
    original: bytes
    table: str = ""


def folder_of(state: Path, source: str) -> Path:
    return state / "dead-letters" / f"source={source}"


class _File(NamedTuple):
    first: Position
    last: Position
    number: int
    """0: of an earlier version, which counted nothing."""
    crc: str
    path: Path


def write(folder: Path, letters: Sequence[Letter]) -> int:
    """Appends what is new; returns how many that were. Durable when it returns."""
    make_folder(folder)
    with _alone(folder):
        by_position = {letter.position: letter for letter in letters}
        there = _there(folder, min(by_position), max(by_position))
        fresh = [by_position[position] for position in sorted(by_position.keys() - there)]
        if fresh:
            _write(folder, _table(fresh), fresh[0].position, fresh[-1].position)
    return len(fresh)


def read(state: Path, source: str = "", problems: list[str] | None = None) -> pa.Table:
    """All letters, of one source or of all, each source's in the order of its log. What is gone or damaged is
    added to `problems`; without them it raises `LettersDamaged`."""
    folders = [folder_of(state, source)] if source else sorted((state / "dead-letters").glob("source=*"))
    found: list[str] = []
    parts = [table for folder in folders for table in _tables(folder, found)]
    if found and problems is None:
        raise LettersDamaged("; ".join(found))
    if problems is not None:
        problems += found
    if not parts:
        return SCHEMA.empty_table()
    return pa.concat_tables(parts).sort_by(
        [("source", "ascending"), ("sequence", "ascending"), ("index", "ascending")]
    )


def _letters(data: bytes, source: str) -> pa.Table:
    table = pq.read_table(pa.BufferReader(data), schema=_FILED, partitioning=None)
    return table.add_column(0, SCHEMA.field("source"), pa.array([source] * len(table)))


def count(state: Path, source: str) -> int:
    """How many there are; reads no letter."""
    return sum(pq.read_metadata(file.path).num_rows for file in _files(folder_of(state, source)))


def _files(folder: Path) -> list[_File]:
    found = []
    for path in sorted(folder.glob(f"[0-9]*{_SUFFIX}")):
        places, _, about = path.name.removesuffix(_SUFFIX).partition(".")
        first, last = places.split("_")
        number, _, crc = about.partition(".")
        found.append(_File(_position(first), _position(last), int(number or "0"), crc, path))
    return found


def _tables(folder: Path, problems: list[str]) -> Iterator[pa.Table]:
    """Of each file that is what was written."""
    files = _files(folder)
    gone = set(range(1, _counted(folder, problems) + 1)) - {file.number for file in files}
    for number in sorted(gone):
        problems.append(
            f"file {number} of the dead letters in {folder} is gone: restore it from a copy (or remove"
            f" {_COUNT} and its twin there, if that was meant)"
        )
    for file in files:
        data = file.path.read_bytes()
        if file.crc not in ("", f"{crc32c(data):08x}"):
            problems.append(f"{file.path} is damaged: its checksum does not match; restore it from a copy")
            continue
        yield _letters(data, folder.name.removeprefix("source="))


def _counted(folder: Path, problems: list[str]) -> int:
    try:
        data = Kept(folder / _COUNT).read()
        return 0 if data is None else msgspec.json.decode(data, type=int)
    except (Damaged, msgspec.DecodeError) as error:
        problems.append(str(error))
        return 0


def _there(folder: Path, first: Position, last: Position) -> set[Position]:
    """Positions of letters that are written already, of those between the two."""
    found: set[Position] = set()
    for file in _files(folder):
        if file.first <= last and file.last >= first:
            data = file.path.read_bytes()
            if file.crc not in ("", f"{crc32c(data):08x}"):
                continue  # what it had is written again, and whoever reads is told of it
            table = pq.read_table(pa.BufferReader(data), columns=["sequence", "index"], partitioning=None)
            found |= set(map(Position, table["sequence"].to_pylist(), table["index"].to_pylist()))
    return found


def _table(letters: Sequence[Letter]) -> pa.Table:
    count, now = len(letters), time.time_ns() // 1000
    columns = [
        pa.array([letter.position.sequence for letter in letters], pa.uint64()),
        pa.array([letter.position.index for letter in letters], pa.uint32()),
        pa.array([letter.table for letter in letters]),
        pa.array([letter.stage for letter in letters]),
        pa.array([letter.reason for letter in letters]),
        pa.array([letter.form for letter in letters]),
        pa.array([letter.original for letter in letters], pa.large_binary()),
        pa.array([now] * count, pa.timestamp("us", "UTC")),
    ]
    return pa.Table.from_arrays(columns, schema=_FILED)


def _write(folder: Path, table: pa.Table, first: Position, last: Position) -> None:
    written = pa.BufferOutputStream()
    pq.write_table(table, written, compression="zstd")
    data = written.getvalue().to_pybytes()
    number = max([_counted(folder, []), *(file.number for file in _files(folder))]) + 1
    replace(folder / f"{_text(first)}_{_text(last)}.{number:08d}.{crc32c(data):08x}{_SUFFIX}", data)
    Kept(folder / _COUNT).write(msgspec.json.encode(number))


def _text(position: Position) -> str:
    return f"{position.sequence:020d}-{position.index:010d}"


def _position(text: str) -> Position:
    sequence, index = text.split("-")
    return Position(int(sequence), int(index))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two tasks for one range, of which one is not known to have died, take turns."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
