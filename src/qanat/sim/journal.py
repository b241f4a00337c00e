"""The disk behind `Context.persist`: an ordered list of records, of which a prefix is safe."""

import random
from collections.abc import Sequence

import msgspec

from qanat.events.errors import LocalError


class DiskSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a simulated disk behaves."""

    sync_ms: float = 1.0
    """One sync, whatever it covers: a data-centre NVMe drive takes 0.1 to 2 ms."""
    jitter_ms: float = 1.0
    """Added to each sync, uniformly between 0 and this."""
    torn: float = 0.5
    """Chance that a power cut leaves the first lost record half-written rather than absent."""
    limit_mb: float = 64.0
    """More records than this stop the run: a journal that only grows is a protocol's bug."""

    def __post_init__(self) -> None:
        for name in ("sync_ms", "jitter_ms", "limit_mb"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if not 0 <= self.torn <= 1:
            raise ValueError("torn is a probability, between 0 and 1")


class Journal:
    """One node's records. Group commit: a sync covers all that was written before it began."""

    __slots__ = ("_records", "durable", "_bytes", "_limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._records: list[bytes] = []
        self.durable = 0
        self._bytes = 0
        self._limit_bytes = limit_bytes

    @property
    def written(self) -> int:
        return len(self._records)

    def append(self, record: bytes) -> None:
        self._bytes += len(record)
        if self._bytes > self._limit_bytes:
            raise LocalError(
                f"the journal holds more than {self._limit_bytes} bytes; raise disk.limit_mb, or persist less"
            )
        self._records.append(bytes(record))

    def crash(self, rng: random.Random, torn_chance: float) -> tuple[int, bool]:
        """Power is cut: what was synced stays, of the rest a random prefix. Returns (lost, torn).

        A torn record is one whose bytes reached the disk in part; its checksum tells, and it is dropped.
        """
        unsynced = len(self._records) - self.durable
        if not unsynced:
            return 0, False
        lost = unsynced - rng.randint(0, unsynced)
        torn = lost > 0 and rng.random() < torn_chance
        if lost:
            del self._records[-lost:]
        self.durable = len(self._records)
        self._bytes = sum(map(len, self._records))
        return lost, torn

    def forget(self, share: float) -> None:
        """The disk is put back as it was earlier: the older `share` of the records is there, as if nothing
        had ever followed."""
        del self._records[int(len(self._records) * share) :]
        self.durable = len(self._records)
        self._bytes = sum(map(len, self._records))

    def surviving(self) -> Sequence[bytes]:
        return tuple(self._records)
