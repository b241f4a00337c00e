"""A RocksDB in a process of its own that can be killed; and log files written by an encoder of the tests'
own."""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from crc32c import crc32c

BLOCK = 32768


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def text(value: bytes) -> bytes:
    return varint(len(value)) + value


def _entry(tag: int, family_tag: int, family: int | None, *parts: bytes) -> bytes:
    head = bytes([tag]) if family is None else bytes([family_tag]) + varint(family)
    return head + b"".join(map(text, parts))


def put(key: bytes, value: bytes, family: int | None = None) -> bytes:
    return _entry(0x1, 0x5, family, key, value)


def delete(key: bytes, family: int | None = None) -> bytes:
    return _entry(0x0, 0x4, family, key)


def single_delete(key: bytes, family: int | None = None) -> bytes:
    return _entry(0x7, 0x8, family, key)


def merge(key: bytes, value: bytes, family: int | None = None) -> bytes:
    return _entry(0x2, 0x6, family, key, value)


def delete_range(first: bytes, end: bytes, family: int | None = None) -> bytes:
    return _entry(0xF, 0xE, family, first, end)


def put_entity(key: bytes, value: bytes, family: int | None = None) -> bytes:
    return _entry(0x16, 0x17, family, key, value)


def log_data(value: bytes) -> bytes:
    return b"\x03" + text(value)


NOOP = b"\x0d"


def prepared(name: bytes, *entries: bytes) -> bytes:
    return b"\x09" + b"".join(entries) + b"\x0a" + text(name)


def commit(name: bytes) -> bytes:
    return b"\x0b" + text(name)


def rollback(name: bytes) -> bytes:
    return b"\x0c" + text(name)


def batch(sequence: int, *entries: bytes, count: int | None = None) -> bytes:
    size = len(entries) if count is None else count
    return sequence.to_bytes(8, "little") + size.to_bytes(4, "little") + b"".join(entries)


def log_file(
    records: Sequence[bytes], *, number: int | None = None, over: bytes = b"", compressed: bool = False
) -> bytes:
    """The bytes of a log file; with `number` of the recyclable kinds, and written over an earlier file's
    bytes."""
    out = bytearray()
    if compressed:
        _physical(out, 9, (7).to_bytes(4, "little"), None)
    for record in records:
        _add(out, record, number)
    return bytes(out) + over[len(out) :]


def _add(out: bytearray, record: bytes, number: int | None) -> None:
    header = 7 if number is None else 11
    first = True
    while True:
        left = BLOCK - len(out) % BLOCK
        if left < header:
            out += bytes(left)
            left = BLOCK
        part, record = record[: left - header], record[left - header :]
        kind = (1 if first else 4) if not record else (2 if first else 3)
        _physical(out, kind if number is None else kind + 4, part, number)
        first = False
        if not record:
            return


def _physical(out: bytearray, kind: int, payload: bytes, number: int | None) -> None:
    body = bytes([kind]) + (b"" if number is None else number.to_bytes(4, "little")) + payload
    crc = crc32c(body)
    crc = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    out += crc.to_bytes(4, "little") + len(payload).to_bytes(2, "little") + body


def database(folder: Path, families: dict[int, str] | None = None, last_sequence: int = 0) -> Path:
    """The files of a database beside its logs."""
    folder.mkdir(exist_ok=True)
    edits = [b"\x01" + text(b"leveldb.BytewiseComparator"), b"\x04" + varint(last_sequence)]
    for family, name in (families or {}).items():
        edits.append(varint(200) + varint(family) + varint(201) + text(name.encode()))
    (folder / "MANIFEST-000001").write_bytes(log_file(edits))
    (folder / "CURRENT").write_text("MANIFEST-000001\n")
    return folder


def write_log(folder: Path, number: int, data: bytes) -> None:
    (folder / f"{number:06d}.log").write_bytes(data)


def spoil(folder: Path, key: bytes) -> bytes:
    """Makes of the one put of this key, a batch of its own, something that no reader knows; the record is
    whole. Returns the batch."""
    for file in folder.glob("*.log"):
        data = bytearray(file.read_bytes())
        tag = data.find(bytes([1]) + text(key))
        if tag < 0:
            continue
        start = tag - 12
        size = int.from_bytes(data[start - 3 : start - 1], "little")
        data[tag] = 0x18
        record = bytes(data[start : start + size])
        fixed = bytearray()
        _physical(fixed, data[start - 1], record, None)
        with file.open("r+b") as log:
            log.seek(start - 7)
            log.write(fixed)
        return record
    raise LookupError(key)


class RocksProcess:
    """`_Database` in a child process: each call of a method is done there."""

    def __init__(self, folder: Path, **options: int) -> None:
        self.folder = folder
        self._options = options
        self.start()

    @property
    def url(self) -> str:
        return f"rocksdb://{self.folder}"

    def start(self, **options: int) -> None:
        self._options |= options
        command = [sys.executable, __file__, str(self.folder), json.dumps(self._options)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.receive()

    def do(self, name: str, *arguments: Any) -> Any:
        self.send(name, *arguments)
        return self.receive()

    def send(self, name: str, *arguments: Any) -> None:
        """Does not wait for the answer; `kill` is then somewhere in the midst of it."""
        assert self._process.stdin is not None
        pickle.dump((name, arguments), self._process.stdin)
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


@contextmanager
def rocks_process(folder: Path, **options: int) -> Iterator[RocksProcess]:
    process = RocksProcess(folder, **options)
    try:
        yield process
    finally:
        process.kill()


class _Database:
    """In the child: calls by name. Operations are `("put", family, key, value)`, `("delete", family, key)`,
    `("delete_range", family, first, end)`."""

    def __init__(self, folder: str, options: dict[str, int]) -> None:
        import rocksdict

        self._rocksdict = rocksdict
        self._options = rocksdict.Options(raw_mode=True)
        self._options.create_if_missing(True)
        self._options.create_missing_column_families(True)
        loaded = options.pop("loaded", 0)
        for name, value in options.items():
            getattr(self._options, f"set_{name}")(value)
        if loaded:  # with what the last OPTIONS file says
            self._options, kept = rocksdict.Options.load_latest(folder)
            self._database = rocksdict.Rdict(folder, self._options, column_families=kept)
            return
        try:
            names = rocksdict.Rdict.list_cf(folder)
        except Exception:
            names = ["default"]
        families = {name: rocksdict.Options(raw_mode=True) for name in names}
        self._database = rocksdict.Rdict(folder, self._options, column_families=families)

    def family(self, name: str) -> None:
        self._database.create_column_family(name, self._rocksdict.Options(raw_mode=True))

    def drop(self, name: str) -> None:
        self._database.drop_column_family(name)

    def write(self, batches: list[list[tuple[Any, ...]]]) -> int:
        for operations in batches:
            batch = self._rocksdict.WriteBatch(raw_mode=True)
            for name, family, *arguments in operations:
                handle = None if family == "default" else self._database.get_column_family_handle(family)
                getattr(batch, name)(*arguments, handle)
            self._database.write(batch)
        return int(self._database.latest_sequence_number())

    def write_until_full(self, largest_bytes: int, batches: list[list[tuple[Any, ...]]]) -> bool:
        """Writes while no file can grow beyond so many bytes, which is to RocksDB as a disk that is full;
        whether it came to that."""
        kept = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_bytes, kept[1]))
        try:
            self.write(batches)
        except Exception:
            return True
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, kept)
        return False

    def flush(self) -> None:
        for name in self._rocksdict.Rdict.list_cf(self._database.path()):
            self._database.get_column_family(name).flush()

    def unlogged(self, key: bytes, value: bytes) -> None:
        options = self._rocksdict.WriteOptions()
        setattr(options, "disable_wal", True)  # noqa: B010 (the stubs have a method of that name)
        self._database.put(key, value, write_opt=options)

    def rows(self) -> dict[tuple[str, bytes], bytes]:
        found: dict[tuple[str, bytes], bytes] = {}
        for name in self._rocksdict.Rdict.list_cf(self._database.path()):
            for key, value in self._database.get_column_family(name).items():
                found[name, bytes(key)] = value  # type: ignore[arg-type]
        return found

    def close(self) -> None:
        self._database.close()


def _serve(folder: str, options: dict[str, int]) -> None:
    database = _Database(folder, options)
    pickle.dump("ready", sys.stdout.buffer)
    sys.stdout.flush()
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(getattr(database, name)(*arguments), sys.stdout.buffer)
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], json.loads(sys.argv[2]))
