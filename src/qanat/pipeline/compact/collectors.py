"""The GC events of some streams, on the driver: those that ask for more than `same key`, which are few.

A stream's GC events with the predicate `same key` may be as many as its events; they stay in Spark (`keys`).
Of the others only number, key, time and predicate come here, as columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qanat.events.encode import Array
from qanat.events.errors import LocalError
from qanat.events.filters import Context
from qanat.events.tombstones import GC_ATTRIBUTE
from qanat.pipeline.compact.predicates import SAME_KEY_TEXT, Predicate, read

COLLECTORS_MAX = 2_000_000
"""GC events other than `same key` that are taken in one go: some 100 bytes each, on the driver."""


class TooManyCollectors(LocalError):
    """More GC events than the driver takes at once."""

    exit_code = 1


@dataclass(frozen=True)
class Group:
    """The GC events of one predicate, by rising stream and number."""

    predicate: Predicate
    stream: Array
    seq: Array
    time_us: Array
    key: pa.Array

    def take(self, rows: Array) -> "Group":
        return Group(
            self.predicate,
            self.stream[rows],
            self.seq[rows],
            self.time_us[rows],
            self.key.take(pa.array(rows)),
        )

    def __len__(self) -> int:
        return len(self.seq)

    def context(self, row: int) -> Context:
        return Context(int(self.seq[row]), self.key[row].as_py(), int(self.time_us[row]))

    def keys(self) -> Array:
        """A number for each distinct key."""
        return np.asarray(self.key.dictionary_encode().indices).astype(np.int64)

    def undominated(self, *, by_time: bool, by_key: bool) -> "Group":
        """Without those that a later one of the same stream (and key, and no older) makes superfluous."""
        owner = self.stream.astype(np.int64)
        if by_key:
            owner = owner * (len(self) + 1) + self.keys()
        order = np.lexsort((-self.seq, owner))
        owner = owner[order]
        newcomer = np.concatenate(([True], owner[1:] != owner[:-1])) if len(owner) else np.zeros(0, bool)
        if by_time:
            # The newest time of those before it in this order, within its owner: times as ranks, so that
            # owners can be told apart by adding.
            _, ranks = np.unique(self.time_us[order], return_inverse=True)
            shifted = (np.cumsum(newcomer) - 1) * (len(self) + 1) + ranks
            newest = np.maximum.accumulate(shifted)
            newcomer |= np.concatenate(([True], shifted[1:] > newest[:-1])) if len(owner) else newcomer
        return self.take(np.sort(order[newcomer]))


@dataclass(frozen=True)
class Collectors:
    """All of them, by predicate; and whether there are any GC events, and any with the predicate `same
    key`."""

    groups: tuple[Group, ...]
    same_key_texts: tuple[str, ...]
    """How `same key` is spelled."""
    any_gc: bool
    any_same_key: bool

    def hunted(self) -> Iterator[Group]:
        return (group for group in self.groups if group.predicate.hunted)


def predicate_text() -> Column:
    """The predicate of a GC event's row; null if it has none."""

    typed = F.col("types").getItem(GC_ATTRIBUTE)
    return F.when(typed.isNull(), F.col("attributes").getItem(GC_ATTRIBUTE))


def gather(rows: DataFrame, limit: int = COLLECTORS_MAX) -> Collectors:
    """The collectors among rows of the tabular form with a column `no` that numbers the streams."""

    collecting = rows.where(F.col("kind") == "gc").select(
        "no", "seq", F.unix_micros("time").alias("time_us"), "key", predicate_text().alias("text")
    )
    plain = F.col("text") == SAME_KEY_TEXT
    counts = collecting.select(
        F.count(F.lit(1)).alias("all"), F.count_if(plain).alias("plain"), F.count_if(~plain).alias("other")
    )
    counted = counts.toArrow().to_pylist()[0]
    if counted["other"] > limit:
        raise TooManyCollectors(
            f"there are {counted['other']} garbage collection events other than `same key`, and at most"
            f" {limit} are taken in one go: compact in steps, with --upto"
        )
    if not counted["other"]:
        return Collectors((), (SAME_KEY_TEXT,), bool(counted["all"]), bool(counted["plain"]))
    found = collecting.where(~plain).toArrow()
    groups, spellings, same_key = [], [SAME_KEY_TEXT], bool(counted["plain"])
    coded = found["text"].combine_chunks().dictionary_encode()
    codes = np.asarray(coded.indices)
    columns = [np.asarray(found[name]) for name in ("no", "seq", "time_us")]
    keys = found["key"].combine_chunks()
    order = np.lexsort((columns[1], columns[0], codes))
    starts = np.searchsorted(codes[order], np.arange(len(coded.dictionary) + 1))
    for code, text in enumerate(coded.dictionary.to_pylist()):
        predicate = read(text)
        if predicate is None:
            continue
        if predicate.same_key:
            spellings.append(text)
            same_key = True
            continue
        mine = order[starts[code] : starts[code + 1]]
        groups.append(
            Group(predicate, columns[0][mine], columns[1][mine], columns[2][mine], keys.take(pa.array(mine)))
        )
    return Collectors(tuple(_joined(groups)), tuple(spellings), bool(counted["all"]), same_key)


def _joined(groups: list[Group]) -> Iterator[Group]:
    """Groups whose texts are spellings of one predicate, as one."""
    same: dict[Predicate, list[Group]] = {}
    for group in groups:
        same.setdefault(group.predicate, []).append(group)
    for predicate, parts in same.items():
        if len(parts) == 1:
            yield parts[0]
            continue
        stream, seq, time_us = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("stream", "seq", "time_us")
        )
        joined = Group(predicate, stream, seq, time_us, pa.concat_arrays([part.key for part in parts]))
        yield joined.take(np.lexsort((seq, stream)))
