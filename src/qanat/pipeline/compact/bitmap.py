"""Which events of a stream live: one bit each, in words of 64, as a small table that every row of the stream
can be joined with.

Everything that is known of a stream's garbage comes together here: rows, what keys keep, what was marked, the
prefix. A word knows the last living event before it and how many there are, so a row joined with its word
knows whether it lives, which living event comes before it (that is where its tombstone begins), its rank
among the living, and its file; with no sorting of rows. A stream of 10^9 events has 16 million words.

Bits are in reverse, the lowest number highest: Spark can find the lowest bit that is set (`~x & (x - 1)` is
all below it), but not the highest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qanat.events.encode import Array
from qanat.log.config import Policy
from qanat.pipeline.compact.collectors import Collectors
from qanat.pipeline.compact.extents import Extents, per_stream
from qanat.pipeline.compact.keys import by_key_policy, replaceable

STREAM_SHIFT = 42
"""A word's number has its stream above this bit and, below it, the sequence number without its last six
bits."""
BROADCAST_WORDS_MAX = 2_000_000
"""Words that every task gets a copy of, some 100 bytes each; more are joined by a shuffle."""
_BITS = ("there", "replaceable", "last", "dead", "held", "wall", "cut")


@dataclass(frozen=True)
class Marks:
    """What is known beside the rows themselves; tables of (no, seq)."""

    last: DataFrame | None = None
    """Of all that keys may collect under the key-based policy, these stay."""
    dead: list[DataFrame] = field(default_factory=list)
    proved: tuple[Array, Array] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    """GC events that may go, as columns (stream, number)."""
    walls: tuple[Array, Array] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    """Numbers that no row has and no tombstone may cover: at the ends of what was lost."""
    cuts: tuple[Array, Array] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    """First numbers of files."""


def word_of(no: Column, seq: Column) -> Column:

    return F.shiftleft(no.cast("bigint"), STREAM_SHIFT).bitwiseOR(F.shiftright(seq, 6))


def _place(seq: Column) -> Column:
    """Where in its word an event's bit is, counted from the lowest."""

    return (F.lit(63) - seq.bitwiseAND(F.lit(63))).cast("int")


def _bit(seq: Column) -> Column:
    """The event's bit alone. The shift is by a column, for which Spark has a word only in SQL."""

    return F.call_function("shiftleft", F.lit(1).cast("bigint"), _place(seq))


def bitmap(
    rows: DataFrame,
    upto: Sequence[int],
    policies: Sequence[Policy],
    collectors: Collectors,
    extents: Extents,
    marks: Marks,
) -> DataFrame:
    """The words of some streams: `word`, `living`, `there`, `cuts`, and before the word: `before`, `rank`,
    `there_rank`, `cut_rank`."""

    parts = [_of_rows(rows, upto, policies, collectors)]
    if marks.last is not None:
        parts.append(_part(marks.last, "last"))
    parts += [_part(dead, "dead") for dead in marks.dead]
    session = rows.sparkSession
    newest = np.flatnonzero(extents.newest)
    known = {
        "dead": [marks.proved],
        "held": [(newest, extents.newest[newest])],
        "wall": [marks.walls],
        "cut": [marks.cuts],
    }
    for name, pairs in known.items():
        no, seq = (np.concatenate([pair[i] for pair in pairs]).astype(np.int64) for i in (0, 1))
        if len(no):
            table = pa.table({"no": pa.array(no, pa.int32()), "seq": pa.array(seq)})
            parts.append(_part(session.createDataFrame(table), name))
    words = (
        reduce(lambda a, b: a.unionByName(b), parts)
        .groupBy("word")
        .agg(*(F.bit_or(name).alias(name) for name in _BITS))
        .withColumn("no", F.shiftright("word", STREAM_SHIFT).cast("int"))
        .withColumn("living", _living(extents))
    )
    earlier = Window.partitionBy("no").orderBy("word").rowsBetween(Window.unboundedPreceding, -1)

    def before(column: Column) -> Column:
        return F.coalesce(F.sum(column).over(earlier), F.lit(0)).cast("bigint")

    return words.select(
        "no",
        "word",
        "living",
        "there",
        F.col("cut").alias("cuts"),
        F.coalesce(F.last(_last_in_word(), ignorenulls=True).over(earlier), F.lit(0)).alias("before"),
        before(F.bit_count("living")).alias("rank"),
        before(F.bit_count("there")).alias("there_rank"),
        before(F.bit_count("cut")).alias("cut_rank"),
    )


def _of_rows(
    rows: DataFrame, upto: Sequence[int], policies: Sequence[Policy], collectors: Collectors
) -> DataFrame:
    """Of each row, that it is there (unless it is a tombstone), and whether only its key's last event
    stays."""

    nothing = F.lit(0).cast("bigint")
    bit = _bit(F.col("seq"))
    keyed = nothing
    if any(policy.by_key for policy in policies):
        concerned = by_key_policy(policies) & replaceable(collectors) & (F.col("seq") <= per_stream(upto))
        keyed = F.when(concerned, bit).otherwise(nothing)
    there = F.when(F.col("kind") != "tombstone", bit).otherwise(nothing)
    # Made words at once, with no more columns than that needs: all rows pass here.
    words = (
        rows.select(
            word_of(F.col("no"), F.col("seq")).alias("word"), there.alias("there"), keyed.alias("replaceable")
        )
        .groupBy("word")
        .agg(F.bit_or("there").alias("there"), F.bit_or("replaceable").alias("replaceable"))
    )
    return words.select("word", "there", "replaceable", *(nothing.alias(name) for name in _BITS[2:]))


def _part(table: DataFrame, name: str) -> DataFrame:

    nothing = F.lit(0).cast("bigint")
    return table.select(
        word_of(F.col("no"), F.col("seq")).alias("word"),
        *((_bit(F.col("seq")) if bit == name else nothing).alias(bit) for bit in _BITS),
    )


def _living(extents: Extents) -> Column:
    """there, and not replaced, marked or in the prefix; an event that is held back only the prefix takes."""

    def col(name: str) -> Column:
        return F.col(name)

    replaced = col("replaceable").bitwiseAND(F.bitwise_not("last"))
    gone = replaced.bitwiseOR(col("dead"))
    alive = col("there").bitwiseAND(F.bitwise_not(gone)).bitwiseOR(col("held"))
    prefix = per_stream(extents.prefix)
    first = F.shiftleft(col("word").bitwiseAND(F.lit((1 << STREAM_SHIFT) - 1)), 6)
    # Of the word in which the prefix ends: the bits of what comes after it.
    rest = F.bitwise_not(F.call_function("shiftleft", F.lit(-1).cast("bigint"), _place(prefix)))
    left = (
        F.when(first > prefix, alive)
        .when(first + 63 <= prefix, F.lit(0).cast("bigint"))
        .otherwise(alive.bitwiseAND(rest))
    )
    return left.bitwiseOR(col("wall"))


def _lowest(bits: Column) -> Column:
    """How many bits are below the lowest that is set."""

    # Of the highest bit alone there is no smaller number; all others are below it.
    smaller = F.coalesce(F.try_subtract(bits, F.lit(1).cast("bigint")), F.lit((1 << 63) - 1))
    return F.bit_count(F.bitwise_not(bits).bitwiseAND(smaller))


def _last_in_word() -> Column:
    """The last living number of the word; null if there is none."""

    first = F.shiftleft(F.col("word").bitwiseAND(F.lit((1 << STREAM_SHIFT) - 1)), 6)
    return F.when(F.col("living") != 0, first + 63 - _lowest(F.col("living")))


# --- rows that know their word ------------------------------------------------------------------


def with_words(rows: DataFrame, words: DataFrame, *, broadcast: bool) -> DataFrame:
    """The rows, each with its word's columns."""

    slim = words.select("word", "living", "before", "rank", "cuts", "cut_rank")
    joined = rows.withColumn("word", word_of(F.col("no"), F.col("seq")))
    return joined.join(F.broadcast(slim) if broadcast else slim, "word")


def lives() -> Column:
    """Whether a row with its word is a living event's."""

    return F.col("living").bitwiseAND(_bit(F.col("seq"))) != 0


def _earlier_bits(bits: Column) -> Column:
    """Of a word's bits those of numbers before the row's. Shifted twice, as a shift by 64 is none."""

    ones = F.call_function("shiftleft", F.lit(-1).cast("bigint"), _place(F.col("seq")))
    return bits.bitwiseAND(F.shiftleft(ones, 1))


def living_before() -> Column:
    """The living number before a row with its word; 0 if there is none."""

    earlier = _earlier_bits(F.col("living"))
    first = F.shiftleft(F.shiftright("seq", 6), 6)
    return F.when(earlier != 0, first + 63 - _lowest(earlier)).otherwise(F.col("before"))


def file_of() -> Column:
    """Which file of its stream a row with its word is in, counted from 0."""

    up_to = _earlier_bits(F.col("cuts")).bitwiseOR(F.col("cuts").bitwiseAND(_bit(F.col("seq"))))
    return (F.col("cut_rank") + F.bit_count(up_to) - 1).cast("int")
