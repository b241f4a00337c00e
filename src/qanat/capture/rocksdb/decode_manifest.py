"""The MANIFEST: edits that say which column families there are, and up to which sequence number the database
has been flushed."""

from typing import NamedTuple

from qanat.capture.errors import MalformedLog
from qanat.capture.rocksdb.decode_records import State, scan

DEFAULT = "default"


class Manifest(NamedTuple):
    families: dict[int, str]
    """Names by id, of dropped column families as well: their entries may still be in the log. Ids are never
    used again."""
    last_sequence: int


_VARINTS = {2: 1, 3: 1, 4: 1, 6: 2, 9: 1, 10: 1, 200: 1, 203: 1, 300: 1}
"""Tag → how many numbers follow."""
_TEXTS = frozenset((1, 201, 402, 403, 404, 405, 406, 407))
_SAFE_TO_IGNORE = 1 << 13
_NEW_FILE, _NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4 = 7, 100, 102, 103
_COMPACT_CURSOR, _BLOB_ADDITION, _BLOB_GARBAGE, _DROP = 5, 400, 401, 202


class _Edit:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            if self._at >= len(self._data):
                break
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise MalformedLog("a number in the MANIFEST is cut off or too large")

    def text(self) -> bytes:
        length = self.number()
        if length > len(self._data) - self._at:
            raise MalformedLog("a text in the MANIFEST is cut off")
        self._at += length
        return self._data[self._at - length : self._at]

    def skip(self, numbers: int, texts: int = 0) -> None:
        for _ in range(numbers):
            self.number()
        for _ in range(texts):
            self.text()

    def fields(self) -> None:
        """Fields with a tag each, up to the tag 1."""
        while self.number() != 1:
            self.text()


def decode_manifest(data: bytes) -> Manifest:
    """From a MANIFEST's bytes; a torn end is not read."""
    found = scan(data, State(), 0)
    if found.problem:
        raise MalformedLog(f"the MANIFEST is damaged at byte {found.upto}: {found.problem}")
    families = {0: DEFAULT}
    last = 0
    for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True):
        sequence, family, name = decode_edit(found.data[start:end])
        last = max(last, sequence)
        if name is not None:
            families[family] = name
    return Manifest(families, last)


def decode_edit(data: bytes) -> tuple[int, int, str | None]:
    """The last sequence number, the column family's id, and its name if the edit adds it."""
    edit = _Edit(data)
    sequence, family, name = 0, 0, None
    while edit:
        tag = edit.number()
        if tag == 4:
            sequence = edit.number()
        elif tag == 200:
            family = edit.number()
        elif tag == 201:
            name = edit.text().decode("utf-8", "backslashreplace")
        elif tag in _VARINTS:
            edit.skip(_VARINTS[tag])
        elif tag in _TEXTS or tag & _SAFE_TO_IGNORE:
            edit.text()
        elif tag == _COMPACT_CURSOR:
            edit.skip(1, 1)
        elif tag in (_NEW_FILE, _NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4):
            edit.skip(4 if tag == _NEW_FILE_3 else 3, 2)
            if tag != _NEW_FILE:
                edit.skip(2)
            if tag == _NEW_FILE_4:
                edit.fields()
        elif tag == _BLOB_ADDITION:
            edit.skip(4, 2)
            edit.fields()
        elif tag == _BLOB_GARBAGE:
            edit.skip(3)
            edit.fields()
        elif tag != _DROP:
            raise MalformedLog(f"the MANIFEST has a field of an unknown kind ({tag})")
    return sequence, family, name
