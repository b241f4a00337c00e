"""Opening a log: from whatever a crash left in the folder to a valid prefix of the stream.

0. What is written down apart of what was synced (see `synced`) must be there: the manifest, not an older one,
and the end of the log.
   Nothing is removed or cut before that is known.
1. The manifest names the sealed segments and the one that was being written. Files it does not name, and that
   do not continue from it, are what an unfinished rewriting left: they are removed.
2. Sealed segments must be there whole. Their headers are walked to make the index; their bodies are checked
   when they are first read (or now, if the garbage-collection index needs their columns).
3. The segment that was being written, and any that began after the manifest, are checked byte by byte; see
   `recovery_tail` for what may be cut off and what may not.
"""

from contextlib import suppress
from typing import NamedTuple

from qanat.events.batch import Batch
from qanat.events.checksum import crc32c
from qanat.events.layout import HEADER_BYTES, TIMES
from qanat.log import manifest as manifests
from qanat.log.config import LogConfig
from qanat.log.disk import Disk
from qanat.log.errors import CorruptLog
from qanat.log.manifest import Manifest, Sealed
from qanat.log.positions import Positions
from qanat.log.recovery_tail import TailRecovery, Visit, check_head
from qanat.log.segment import Segment
from qanat.log.segment_file import HEAD_BYTES, Head, encode_head, file_name, parse_name
from qanat.log.synced import Synced, SyncedRecord
from qanat.log.walk import Damage, events_in, headers, times_us


class Recovered(NamedTuple):
    """What was found: segments in order, the last of which goes on being written."""

    manifest: Manifest
    segments: list[Segment]
    mark_count: int
    positions: Positions
    lost: list[str]
    """What was cut off: torn writes, and what `repair` gave up; or made again; one sentence each."""
    record: SyncedRecord


def create(disk: Disk, folder: str, stream: int, record: SyncedRecord) -> Manifest:
    """Makes an empty log; it exists once its manifest does, and may be written to once its record does."""
    path = f"{folder}/{file_name(1, 1)}"
    with suppress(FileNotFoundError):
        disk.remove(path)
    file = disk.open(path)
    try:
        file.write(encode_head(Head(stream, 1, 1)))
        file.sync()
    finally:
        file.close()
    disk.sync_folder(folder)
    manifest = Manifest(stream=stream)
    manifests.store(disk, folder, manifest)
    record.begin(Synced(manifest.serial, 1, 1, HEAD_BYTES, 0))
    return manifest


def recover(
    disk: Disk,
    folder: str,
    stream: int,
    config: LogConfig,
    *,
    synced: str,
    repair: bool = False,
    visit: Visit,
) -> Recovered:
    """Finds what the folder holds, makes the folder agree with it, and returns it.

    `visit` is given every batch that it wants, in order, verified. With `repair` damage to synced bytes of
    the newest segments is cut off instead of refused. `synced` is where the log's record is, empty for a log
    in memory.
    """
    record = SyncedRecord(disk, synced, stream)
    manifest, path = manifests.load(disk, folder, stream), f"{folder}/{manifests.NAME}"
    if manifest is None:
        record.refuse_empty(folder, path)
        disk.make_folder(folder)
        _refuse_orphans(disk, folder)
        manifest = create(disk, folder, stream, record)
    record.refuse_older(folder, path, manifest.serial)
    followers = _tidy(disk, folder, manifest)
    _check_chain(folder, manifest)
    segments = [_open_sealed(disk, folder, stream, config, sealed, visit) for sealed in manifest.sealed]
    positions = Positions(config.sources_max, manifest.positions)
    tail = TailRecovery(disk, folder, stream, config, positions, record.known, repair=repair, visit=visit)
    written = tail.run([manifest.active, *followers])
    generations = [generation for _, generation in [manifest.active, *followers]]
    settled = Manifest(
        stream=stream,
        serial=manifest.serial + (len(written) > 1),
        sealed=manifest.sealed + [sealed_of(segment) for segment in written[:-1]],
        active=(written[-1].first, written[-1].generation),
        next_generation=max(manifest.next_generation, *(generation + 1 for generation in generations)),
        truncated_last=manifest.truncated_last,
        positions=tail.checkpoint,
        born_us=manifest.born_us,
    )
    if len(written) > 1:
        manifests.store(disk, folder, settled)
    end = written[-1]
    now = Synced(settled.serial, end.first, end.generation, end.bytes, end.last)
    if record.known is None:
        if end.last:
            tail.lost.append(record.damage or f"{record.path} was gone; it was made again from the log")
        record.write_again(now)
    else:
        record.write(now, sure=True)
    return Recovered(settled, segments + written, tail.mark_count, positions, tail.lost, record)


def sealed_of(segment: Segment) -> Sealed:
    return Sealed(segment.first, segment.generation, segment.last, segment.bytes)


def _refuse_orphans(disk: Disk, folder: str) -> None:
    """Without a manifest nothing was ever acknowledged; events without one mean that it was lost."""
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        if parse_name(name) is not None and disk.size(path) > HEAD_BYTES:
            raise CorruptLog(
                f"{folder}/{manifests.NAME}",
                0,
                f"it is missing, but {name} holds events",
                "restore the manifest from a replica or a backup of this folder",
            )
        if parse_name(name) is not None or name.endswith(".tmp"):
            disk.remove(path)


def _tidy(disk: Disk, folder: str, manifest: Manifest) -> list[tuple[int, int]]:
    """Removes leftovers; returns (first, generation) of files that began after the manifest, in order."""
    named = {(sealed.first, sealed.generation) for sealed in manifest.sealed} | {manifest.active}
    followers = []
    for name in disk.list(folder):
        parsed = parse_name(name)
        if parsed in named or (parsed is None and not name.endswith(".tmp")):
            continue
        if parsed is not None and parsed[0] > manifest.active[0]:
            followers.append(parsed)
        else:
            disk.remove(f"{folder}/{name}")
    return sorted(followers)


def _check_chain(folder: str, manifest: Manifest) -> None:
    expected = manifest.truncated_last + 1
    for first, last in [*((s.first, s.last) for s in manifest.sealed), (manifest.active[0], 0)]:
        if first != expected:
            raise CorruptLog(
                f"{folder}/{manifests.NAME}", 0, f"it goes on at {first} where {expected} should be"
            )
        expected = last + 1


def _open_sealed(
    disk: Disk, folder: str, stream: int, config: LogConfig, sealed: Sealed, visit: Visit
) -> Segment:
    path = f"{folder}/{file_name(sealed.first, sealed.generation)}"
    try:
        size = disk.size(path)
    except FileNotFoundError:
        raise CorruptLog(path, 0, "the file is missing, but the manifest names it") from None
    advice = "restore the file from a replica or a backup"
    if size < sealed.bytes:
        raise CorruptLog(path, size, f"it has {size} bytes of {sealed.bytes}", advice)
    check_head(disk.read_copy(path, 0, HEAD_BYTES), path, Head(stream, sealed.first, sealed.generation))
    segment = Segment(sealed.first, sealed.generation, config.index_stride_bytes)
    try:
        _index(segment, disk.read(path, HEAD_BYTES, sealed.bytes - HEAD_BYTES), stream, visit)
    except Damage as damage:
        raise CorruptLog(path, damage.offset, damage.reason, advice) from damage
    if segment.last != sealed.last:
        raise CorruptLog(path, segment.bytes, f"it ends at {segment.last}, not at {sealed.last}", advice)
    return segment


def _index(segment: Segment, data: memoryview, stream: int, visit: Visit) -> None:
    """Makes the index from headers alone; a batch whose columns someone needs is decoded, and so verified."""
    for offset, header in headers(data, HEAD_BYTES, stream, segment.first):
        times, events = (header.time_us, header.time_us), header.count
        wanted = visit.wants(header)
        if wanted or header.flags & TIMES:
            begin = offset - HEAD_BYTES
            body = data[begin + HEADER_BYTES : begin + header.size]
            if crc32c(body) != header.body_crc:
                raise Damage(offset, "the body's CRC32C does not match")
            batch = Batch(data[begin : begin + header.size], header, 0, header.count)
            times, events = times_us(batch), events_in(batch)
            if wanted:
                visit.ingest(batch)
        segment.add(header.size, header.first + header.span - 1, events, times)
