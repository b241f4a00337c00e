"""The manifest: which segment files make up the stream, and what must outlive rewriting.

The file `manifest` is 16 bytes (magic `QNTM`, u32 CRC32C of the rest, u32 version 1, u32 body bytes) and a
MessagePack body. It is replaced atomically, never changed in place, so it is always one that was once
complete: a damaged one is decay of the medium, and refused. Segments that began after it was written follow
on from its last entry by their names and sequence numbers.
"""

import struct

import msgspec

from qanat.events.checksum import crc32c
from qanat.events.errors import LocalError
from qanat.log.disk import Disk, write_atomically
from qanat.log.errors import CorruptLog

NAME = "manifest"
_MAGIC, _VERSION = b"QNTM", 1
_FRAME = struct.Struct("<4sIII")


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """A segment that is complete: all its bytes were synced before the manifest named it."""

    first: int
    generation: int
    last: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream consists of."""

    stream: int
    sealed: list[Sealed] = []
    active: tuple[int, int] = (1, 1)
    """(first, generation) of the segment that was being written."""
    next_generation: int = 2
    truncated_last: int = 0
    """Sequence numbers up to this one were dropped by retention, without tombstones."""
    positions: dict[str, tuple[int, int]] = {}
    """Highest position per source as of the end of the last sealed segment."""
    serial: int = 0
    """How many manifests of this log there were before; so an older copy is told from this one (see
    `synced`)."""
    born_us: int = 0
    """Publish time of sequence number 1, as long as an event of that number was ever here; 0 otherwise."""


def store(disk: Disk, folder: str, manifest: Manifest) -> None:
    body = msgspec.msgpack.encode(manifest)
    rest = struct.pack("<II", _VERSION, len(body)) + body
    write_atomically(disk, folder, NAME, struct.pack("<4sI", _MAGIC, crc32c(rest)) + rest)


def load(disk: Disk, folder: str, stream: int) -> Manifest | None:
    """The manifest, or None if there is none; raises `CorruptLog` if it is damaged."""
    path = f"{folder}/{NAME}"
    try:
        size = disk.size(path)
    except FileNotFoundError:
        return None
    data = disk.read_copy(path, 0, size)

    def damaged(offset: int, reason: str) -> CorruptLog:
        return CorruptLog(path, offset, reason, "restore it from a replica or a backup of this folder")

    if len(data) < _FRAME.size:
        raise damaged(len(data), "it is cut short")
    magic, crc, version, size = _FRAME.unpack_from(data)
    if magic != _MAGIC:
        raise damaged(0, f"it starts with {magic!r}, not {_MAGIC!r}")
    if crc != crc32c(memoryview(data)[8:]):
        raise damaged(4, "its CRC32C does not match")
    if version != _VERSION or size != len(data) - _FRAME.size:
        raise damaged(8, f"version {version} with {size} bytes is not known here; this is version {_VERSION}")
    try:
        manifest = msgspec.msgpack.decode(memoryview(data)[_FRAME.size :], type=Manifest)
    except msgspec.DecodeError as error:
        raise damaged(_FRAME.size, f"its body is not a manifest ({error})") from error
    if manifest.stream != stream:
        raise LocalError(
            f"{folder} holds stream {manifest.stream:#x}, not {stream:#x}: open it under its own name"
        )
    return manifest
