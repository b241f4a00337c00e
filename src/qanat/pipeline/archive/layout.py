"""Where things lie in an archive.

```
ARCHIVE/
  stream=orders/                                   one folder for each stream; escaped as Spark escapes
  partition values
    _manifest/000000000042.json                    version 42 of the stream's manifest; the highest is the
    truth
    _committed/000000000042                        empty: version 42 was committed, so an older one is not the
    newest
    _staging/append-3-…/                           what a writer has not put in place yet
    day=2026-11-16/
      00000000000000000001-00000000000000065536.append-3-0.parquet
```

A data file's name says which sequence numbers it covers, then which writer wrote it: its role, its epoch, and
a number. A file is in the archive when the newest manifest names it, and at no other moment: what a killed
writer left is never read.

A file covers first..last without a gap, sorted by seq, and files do not overlap; so neither do their names.
Its day is that (UTC) of the event with which it begins; it is cut where a later day begins.
"""

import re
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import unquote

MANIFESTS = "_manifest"
COMMITTED = "_committed"
STAGING = "_staging"
_ESCAPED = set("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_NAME_BYTES = 200
"""A file's name has at most 255 bytes; of a longer stream name the folder has a digest, and the manifest has
the name."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATA = re.compile(r"(\d{20})-(\d{20})\.([a-z]+)-(\d+)-(\d+)\.parquet")
_VERSION = re.compile(r"(\d{12})\.json")


def stream_folder(stream: str) -> str:
    """The folder of a stream, relative to the archive."""
    escaped = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in stream)
    if len(escaped.encode()) > _NAME_BYTES:
        escaped = "%7E" + blake2b(stream.encode(), digest_size=16).hexdigest()
    return f"stream={escaped}"


def stream_of_folder(folder: str) -> str | None:
    """The stream's name, if the folder is a stream's; of a long name only its digest, after a `~`."""
    return unquote(folder[7:]) if folder.startswith("stream=") else None


def manifest_name(version: int) -> str:
    return f"{MANIFESTS}/{version:012d}.json"


def witness_name(version: int) -> str:
    return f"{COMMITTED}/{version:012d}"


def version_of(name: str) -> int | None:
    """Which version a file in the folder of manifests is; None if it is none."""
    matched = _VERSION.fullmatch(name)
    return int(matched[1]) if matched else None


def day_of(time_us: int) -> str:
    """The UTC day of a time, as `2026-11-16`."""
    return (EPOCH + timedelta(microseconds=time_us)).strftime("%Y-%m-%d")


class DataName(NamedTuple):
    """What a data file's name says."""

    first: int
    last: int
    role: str
    epoch: int
    number: int

    @staticmethod
    def parse(name: str) -> "DataName | None":
        matched = _DATA.fullmatch(name)
        return (
            DataName(int(matched[1]), int(matched[2]), matched[3], int(matched[4]), int(matched[5]))
            if matched
            else None
        )

    def path(self, day: str) -> str:
        """Relative to the stream's folder."""
        return f"day={day}/{self.first:020d}-{self.last:020d}.{self.role}-{self.epoch}-{self.number}.parquet"
