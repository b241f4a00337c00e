"""Garbage collection of whole streams, from rows to rows: what the log's collector does, said in columns,
groups and joins.

The answer is that of a log that holds the same events and collects everything
(`StreamLog.collect(everything=True)`): the same events live, and each run of the others is one tombstone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qanat.events.errors import LocalError
from qanat.log.config import Policy
from qanat.pipeline.columns import COLUMNS
from qanat.pipeline.compact.bitmap import BROADCAST_WORDS_MAX, Marks, bitmap, with_words
from qanat.pipeline.compact.collectors import Collectors, gather
from qanat.pipeline.compact.extents import Extents, measure, per_stream
from qanat.pipeline.compact.graves import source_names, survivors, tombstones
from qanat.pipeline.compact.hunts import matches
from qanat.pipeline.compact.keys import last_of_keys, replaced_by_events
from qanat.pipeline.compact.predicates import SEQ_MAX
from qanat.pipeline.compact.proofs import proved

NO_POLICY = Policy()


@dataclass(frozen=True)
class Stream:
    """What is collected of one stream, and how."""

    name: str
    policy: Policy = NO_POLICY
    upto: int = SEQ_MAX
    """Later events neither collect nor are collected."""
    cuts: tuple[int, ...] = (1,)
    """First numbers of the files that its rows are in, rising."""
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges (first, last) that no row covers, nor may a tombstone."""
    first: int = 1
    """The first number that rows cover."""

    def __post_init__(self) -> None:
        if not 1 <= self.upto <= SEQ_MAX:
            raise LocalError(
                f"garbage is collected as of a sequence number of 1 to {SEQ_MAX}, not {self.upto}"
            )

    def walls(self) -> list[int]:
        ends = [number for pair in self.lost for number in pair]
        return sorted({*ends, *([self.first - 1] if self.first > 1 else [])})


@dataclass(frozen=True)
class Found:
    """What is garbage in some streams; nothing of it is written yet."""

    streams: Sequence[Stream]
    rows: DataFrame
    words: DataFrame
    """One bit an event (`bitmap`); kept by Spark until `forget`."""
    count: int
    collectors: Collectors = field(repr=False)
    extents: Extents

    def forget(self) -> None:
        self.words.unpersist()

    def with_words(self, rows: DataFrame | None = None) -> DataFrame:
        return with_words(
            self.rows if rows is None else rows, self.words, broadcast=self.count <= BROADCAST_WORDS_MAX
        )


def numbered(rows: DataFrame, streams: Sequence[Stream]) -> DataFrame:
    """The rows with their stream's number in `no`."""

    if len(streams) == 1:
        return rows.withColumn("no", F.lit(0))
    names = F.lit([stream.name for stream in streams])
    return rows.withColumn("no", (F.array_position(names, F.col("stream")) - 1).cast("int"))


def find(rows: DataFrame, streams: Sequence[Stream]) -> Found:
    """Finds what is garbage among the rows (of the tabular form) of these streams, which hold every number
    from each one's first on."""

    policies, upto = [stream.policy for stream in streams], [stream.upto for stream in streams]
    everything = numbered(rows, streams)
    concerned = everything
    if any(bound < SEQ_MAX for bound in upto):
        concerned = everything.where(F.col("seq") <= per_stream(upto))
    collectors = gather(concerned)
    extents = measure(concerned, policies, collectors)
    hunted = list(collectors.hunted())
    dead = matches(concerned, hunted, policies)
    replaced = replaced_by_events(concerned, policies, collectors)
    marks = Marks(
        last=last_of_keys(concerned, policies, collectors),
        dead=dead if replaced is None else [*dead, replaced],
        proved=proved(concerned, collectors, policies),
        walls=_places([stream.walls() for stream in streams]),
        cuts=_places([stream.cuts for stream in streams]),
    )
    words = bitmap(everything, upto, policies, collectors, extents, marks).persist()
    return Found(streams, everything, words, words.count(), collectors, extents)


def _places(numbers: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    no = np.repeat(np.arange(len(numbers)), [len(mine) for mine in numbers])
    return no, np.array([seq for mine in numbers for seq in mine], np.int64)


def compacted(rows: DataFrame, streams: Sequence[Stream]) -> DataFrame:
    """The rows without garbage, in no order: living events as they are, and a tombstone for each run of the
    others."""

    found = find(rows, streams)
    looked = found.with_words()
    names = [stream.name for stream in streams]
    left = survivors(looked).unionByName(tombstones(looked, names, source_names(found.rows)))
    return left.select(*COLUMNS)
