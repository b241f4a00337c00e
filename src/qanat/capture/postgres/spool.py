"""Large transactions that PostgreSQL sends in parts before they commit, kept until they do.

Parts of several transactions come interleaved, and any may abort, or a subtransaction of it. Each has a file
of its own, in memory while it is small; a part is written and read back as it came, so memory holds one part
at a time.
"""

import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np

from qanat.capture.errors import MalformedLog
from qanat.capture.postgres.decode import Payloads

MEMORY_BYTES = 4 << 20
"""A transaction that is larger goes to disk. The server sends in parts what is larger than its
`logical_decoding_work_mem` (64 MiB)."""
MAX_TRANSACTIONS = 1024
"""Open at once; each may hold a file."""


class Spool:
    """The parts of one transaction."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        self.aborted: set[int] = set()

    def write(self, batch: Payloads, start: int, stop: int) -> None:
        self._file.write((stop - start).to_bytes(8, "little"))
        self._file.write(batch.lengths[start:stop].tobytes())
        self._file.write(batch.between(start, stop))

    def parts(self) -> Iterator[Payloads]:
        self._file.seek(0)
        while head := self._file.read(8):
            lengths = np.frombuffer(self._file.read(8 * int.from_bytes(head, "little")), np.int64)
            yield Payloads(self._file.read(int(lengths.sum())), lengths)

    def close(self) -> None:
        self._file.close()


class Spools:
    """All transactions that are under way, by id."""

    def __init__(self) -> None:
        self._open: dict[int, Spool] = {}

    def start(self, xid: int, *, first: bool) -> Spool:
        spool = self._open.get(xid)
        if first:
            if spool is not None:
                spool.close()
            elif len(self._open) >= MAX_TRANSACTIONS:
                raise MalformedLog(f"more than {MAX_TRANSACTIONS} large transactions are under way")
            spool = self._open[xid] = Spool()
        if spool is None:
            raise MalformedLog(f"a part of transaction {xid} came without its first part")
        return spool

    def take(self, xid: int) -> Spool:
        spool = self._open.pop(xid, None)
        if spool is None:
            raise MalformedLog(f"transaction {xid} ended without having begun")
        return spool

    def abort(self, xid: int, subxid: int) -> None:
        if xid == subxid:
            self.take(xid).close()
        elif (spool := self._open.get(xid)) is not None:
            spool.aborted.add(subxid)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
