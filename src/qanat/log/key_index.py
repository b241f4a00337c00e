"""The live event of each key: what a same-key predicate collects, found without looking at history.

Whole keys are compared, never hashes of them. For each key the index has the number of its one live event, or
that there are several (then a hunt finds them). It is two dictionaries, a young and an old one. When the
young one has half of the allowed keys it becomes the old one, and the old one is forgotten: at least the half
that was touched last is always remembered. Under the key-based policy a forgotten key's event stays in the
log until a prefix predicate collects it; without the policy a forgotten key is hunted. Measured: 115 bytes a
key of 10 bytes.
"""

from itertools import compress, repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from qanat.events.encode import Array

KEY_BYTES = 115
"""Of a key of 10 bytes, as measured."""
_NONE, _SEVERAL, _UNKNOWN = 0, -1, -2


class Replaced(NamedTuple):
    """Numbers of events that are collected, unsorted; and (key, row of the collector) where several may
    be."""

    dead: Array
    to_hunt: list[tuple[bytes, int]]


class KeyIndex:
    """Key to the number of its live event. Guarded by the log's lock."""

    def __init__(self, limit: int, *, hunts: bool = False) -> None:
        self._hunts = hunts
        self._half = max(1, limit // 2)
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._complete = True
        """Whether a key that is in neither dictionary surely has no event."""

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def begin_late(self, first: int) -> None:
        """The index begins with this number: of what came before it knows nothing."""
        self._complete = first <= 1

    def forget_old(self) -> None:
        """Forgets those that were not touched for longest, as at the limit."""
        self._complete = self._complete and not self._old
        self._old, self._young = self._young, {}

    def replace(
        self, keys: pa.Array, seqs: Array, collectors: Array | None = None, immune: Array | None = None
    ) -> Replaced:
        """Takes a batch's events: `collectors` (all, if None) collect what came before them under their key.

        `immune` rows are not collected by a key themselves. Rows with an empty key are passed over.
        Everything here is a bulk operation; the distinct keys of the batch are looked up by `map` over the
        dictionary's own methods.
        """
        encoded = keys.dictionary_encode()
        codes = np.asarray(encoded.indices)
        # By way of NumPy: `to_pylist` of fixed-width keys takes thirty times as long.
        names: list[bytes] = encoded.dictionary.to_numpy(zero_copy_only=False).tolist()
        if collectors is None and immune is None:
            return self._replace_all(codes, names, seqs)
        rows = np.arange(len(codes))
        collector = np.full(len(names), -1)  # the last row of each key that collects
        if collectors is None:
            collector[codes] = rows  # of several rows with one code the last one stays
        else:
            picked = np.flatnonzero(collectors)
            collector[codes[picked]] = picked
        empty = names.index(b"") if b"" in names else -1
        dead = (rows < collector[codes]) & (codes != empty)
        alive = ~dead
        if immune is not None:
            dead &= ~immune
            alive &= ~immune
        count = np.bincount(codes[alive], minlength=len(names))
        last = np.zeros(len(names), np.int64)
        last[codes[alive]] = seqs[alive].astype(np.int64)
        if empty >= 0:
            del names[empty]
            collector, count, last = (np.delete(column, empty) for column in (collector, count, last))
        before = self._look_up(names)
        collects = collector >= 0
        unresolved = (before == _SEVERAL) | (before == _UNKNOWN)
        now = np.where(count > 1, _SEVERAL, last)
        # Without a collector in this batch, whatever was there before is there still.
        now = np.where(~collects & (before != _NONE), np.where(count > 0, _SEVERAL, before), now)
        self._put(names, now)
        hunted = collects & unresolved
        hunts = list(zip(compress(names, hunted), collector[hunted].tolist(), strict=True))
        singles = before[collects & (before > 0)].astype(np.uint64)
        return Replaced(np.concatenate((seqs[dead], singles)), hunts)

    def _replace_all(self, codes: Array, names: list[bytes], seqs: Array) -> Replaced:
        """The same where every row collects and may be collected, in fewer steps: the key-based policy at
        speed."""
        rows = np.arange(len(codes), dtype=np.int32)
        last = np.empty(len(names), np.int32)
        last[codes] = rows
        dead = last[codes] != rows
        if b"" in names:
            empty = names.index(b"")
            dead &= codes != empty
            last = np.delete(last, empty)
            del names[empty]
        before = self._look_up(names)
        self._put(names, seqs[last])
        hunted = before < 0
        hunts = list(zip(compress(names, hunted), last[hunted].tolist(), strict=True)) if hunted.any() else []
        return Replaced(np.concatenate((seqs[dead], before[before > 0].astype(np.uint64))), hunts)

    def _put(self, names: list[bytes], now: Array) -> None:
        self._young.update(zip(names, now.tolist(), strict=True))
        if len(self._young) > self._half:
            self._old, self._young = self._young, {}
            self._complete = False

    def _look_up(self, names: list[bytes]) -> Array:
        missing = _UNKNOWN if self._hunts and not self._complete else _NONE
        before = np.fromiter(map(self._young.get, names, repeat(missing)), np.int64, len(names))
        if self._old:
            unknown = np.flatnonzero(before == missing)
            asked = map(names.__getitem__, unknown.tolist())
            before[unknown] = np.fromiter(map(self._old.pop, asked, repeat(missing)), np.int64, len(unknown))
        return before
