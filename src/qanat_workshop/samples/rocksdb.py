"""Logs of RocksDB 9.8 in small pieces, for tests and for fuzzing; and what takes them apart without any file.

Checksums keep most changes of a file from ever coming to what is behind them. So the first byte of a piece
says what it is: a file as it is, a file whose checksums are written anew, a batch, a manifest's edit or a
compressed record on its own.
"""

import numpy as np

from qanat.capture.errors import MalformedLog
from qanat.capture.rocksdb.columns import Rows
from qanat.capture.rocksdb.decode_batches import TwoPhase, decode, entity_columns
from qanat.capture.rocksdb.decode_manifest import decode_edit, decode_manifest
from qanat.capture.rocksdb.decode_records import BLOCK_BYTES, HEADER_BYTES, State, masked, scan
from qanat.capture.rocksdb.files import decompressed
from qanat.capture.rocksdb.transactions import Prepared, resolve
from qanat.capture.updates import Updates
from qanat.events.checksum import crc32c

LOG = bytes.fromhex(
    "e99f78191100010100000000000000010000000101610131c88d387a120001020000000000000001000000050101"
    "6b01769ecc160c0f0001030000000000000001000000000161 40c530ac210001040000000000000004000000"
    "010178037979790001780f0161016205010171017afe1e7db21900010800000000000000010000001601650901"
    "02000101 6e013031".replace(" ", "")
)
"""Put, put in a column family, delete, a batch with a range deletion, a wide-column entity."""
MANIFEST = bytes.fromhex(
    "1d370a5632000101 1a6c6576656c64622e4279746577697365436f6d70617261746f720204030804 00c80101c901"
    "067072696365738940 01011ca7a3515600010 20a090003 0c0408 67000bea0809610f060000000000000978000500"
    "0000000000050805 0588c9e6d7060605 88c9e6d7060d0101070008 07556e6b6e6f776e0c10d3918d67df0cd15667"
    "3e731fa8cbad210f0 2bc0801".replace(" ", "")
)
"""A column family added, and a flush."""
_NUMBER = 8
_LOG, _RESEALED, _BATCH, _EDIT, _FRAME, _ENTITY = range(6)


def resealed(data: bytes) -> bytes:
    """The same file with the checksums that its bytes should have, as far as lengths lead."""
    made = bytearray(data)
    at = 0
    while at + HEADER_BYTES <= len(made):
        if BLOCK_BYTES - at % BLOCK_BYTES < HEADER_BYTES:
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        top = at + HEADER_BYTES + (made[at + 4] | made[at + 5] << 8) + (4 if 5 <= made[at + 6] <= 8 else 0)
        if top > len(made):
            break
        made[at : at + 4] = masked(crc32c(bytes(made[at + 6 : top]))).to_bytes(4, "little")
        at = top
    return bytes(made)


def decode_file(piece: bytes) -> object:
    """Whatever a piece is of. Raises `MalformedLog` for what is malformed."""
    kind, data = piece[:1], piece[1:]
    match kind[0] % 6 if kind else _LOG:
        case 0 | 1 as way:
            return _updates(resealed(data) if way == _RESEALED else data)
        case 2:
            return _decoded(data, np.array([0]), np.array([len(data)]))
        case 3:
            return decode_edit(data), decode_manifest(resealed(data))
        case 4:
            return decompressed(data, 1 << 20)
        case _:
            return entity_columns(data)


def _updates(data: bytes) -> Updates:
    found = scan(data, State(), _NUMBER)
    if found.problem:
        raise MalformedLog(found.problem)
    if found.compressed:
        return Updates()
    return _decoded(found.data, found.starts, found.ends)


def _decoded(data: bytes, starts: np.ndarray, ends: np.ndarray) -> Updates:
    try:
        entries = decode(data, starts, ends)
    except TwoPhase:
        plain = resolve(data, starts, ends, Prepared())
        entries = decode(plain.data, plain.starts, plain.ends)
    rows = Rows("sample", str, entries)
    return Updates(rows.runs(0, len(rows)))


def corpus() -> list[bytes]:
    """Files, with and without log numbers, and what is in them."""
    found = scan(LOG, State(), _NUMBER)
    ranges = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    batches = [found.data[start:end] for start, end in ranges]
    even = b"".join(b"\x05\x01\x03k%02d\x04v%03d" % (n, n) for n in range(20))
    batches.append((9).to_bytes(8, "little") + (20).to_bytes(4, "little") + even)
    batches.append(
        (29).to_bytes(8, "little")
        + b"\3\0\0\0"
        + b"\x09\x01\x01a\x01b\x00\x01c\x0a\x02tx\x0d\x03\x01?\x02\x01m\x01n\x0b\x02tx"
    )
    plain = b"".join(_record(1, batch) for batch in batches)
    numbered = b"".join(_record(5, _NUMBER.to_bytes(4, "little") + batch) for batch in batches)
    parts = b"".join(
        _record(kind, batches[-2][at : at + 90]) for kind, at in ((2, 0), (3, 90), (3, 180), (4, 270))
    )
    edits = scan(MANIFEST, State(), 0)
    files = [plain, numbered, parts, _record(9, b"\7\0\0\0") + plain]
    frame = bytes.fromhex("28b52ffd2006310000616263646566")
    return [
        *(bytes([way]) + data for way in (_LOG, _RESEALED, _RESEALED) for data in files),
        *(bytes([_BATCH]) + batch for batch in batches),
        *(
            bytes([_EDIT]) + edits.data[start:end]
            for start, end in zip(edits.starts.tolist(), edits.ends.tolist(), strict=True)
        ),
        bytes([_FRAME]) + frame,
        bytes([_ENTITY]) + bytes.fromhex("0102000101 6e013031".replace(" ", "")),
    ]


def _record(kind: int, payload: bytes) -> bytes:
    length = len(payload) - (4 if 5 <= kind <= 8 else 0)
    body = bytes([kind]) + payload
    return masked(crc32c(body)).to_bytes(4, "little") + length.to_bytes(2, "little") + body
