"""Why events were collected: a tombstone must be followed by an event that collects what it stands for
(Sprinkler, section 2.1).

An event is *buried* for a run if the archive has it and the run was given a tombstone for it. A *reason* is a
GC event, or under a policy any event, that the run was given itself: with a higher number, and a predicate
that matches. Reasons of one predicate are compared: one with a lower number and a lower time than another of
the same key collects nothing that the other does not, and is left out. What is left is joined with the buried
by key where the predicate speaks of the key, and is few rows where it does not.
"""

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from qanat.events.errors import LocalError
from qanat.events.filters import Filter, parse
from qanat.events.filters.model import KeepLast, OlderThan, SameKey, Term
from qanat.events.tombstones import GC_ATTRIBUTE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREDICATES_MAX = 200
"""Different predicates of one stream, besides `upto n`: each becomes a part of an expression."""
_UPTO = r"\Aupto ([0-9]+)\z"


class Reasons(NamedTuple):
    """One stream with buried events."""

    stream: str
    runs: tuple[int, ...]
    """Those that were given tombstones."""
    events: "DataFrame"
    policy: str
    newest_us: int
    """The newest publish time in the archive."""
    end: int


class Unexplained(NamedTuple):
    counts: dict[int, int]
    """By run."""
    found: list[tuple[int, int, int]]
    """Run, first, last."""
    undecided: list[str]


def explain(ranges: "DataFrame", reasons: Reasons, limit: int) -> Unexplained:
    """Which of the buried ranges (`run`, `first`, `last`, and in `amount` when the tombstone came) nothing
    explains.

    A reason was published before the tombstone came. So while the archive has nothing newer than the
    tombstone, the reason may be yet to be archived, and the question stays open.
    """
    from pyspark.sql import functions as F

    buried = (
        ranges.where(F.col("run").isin(list(reasons.runs)))
        .select("run", F.explode(F.sequence("first", "last")).alias("seq"), F.col("amount").alias("came_us"))
        .join(reasons.events.where(F.col("kind") != "tombstone"), "seq")
        .persist()
    )
    left = buried.select("run", "seq", (F.col("came_us") >= reasons.newest_us).alias("open"))
    explained = _explained(buried, reasons)
    if explained is not None:
        left = left.join(explained, ["run", "seq"], "left_anti")
    left = left.persist()
    sums = left.groupBy("run", "open").agg(F.count(F.lit(1)).alias("amount")).collect()
    wrong = left.where(~F.col("open")).orderBy("run", "seq").limit(limit)
    rows = wrong.collect() if any(not row.open for row in sums) else []
    left.unpersist()
    buried.unpersist()
    waiting = sum(row.amount for row in sums if row.open)
    open_question = (
        f"tombstones came for {waiting} events of stream {reasons.stream!r} that nothing collects up to"
        f" {reasons.end}, where the archive ends: audit again when it has grown"
    )
    return Unexplained(
        {row.run: row.amount for row in sums if not row.open},
        [(row.run, row.seq, row.seq) for row in rows],
        [open_question] if waiting else [],
    )


def _explained(buried: "DataFrame", reasons: Reasons) -> "DataFrame | None":
    """(run, seq) of what some reason collects; None if there is no reason at all."""
    from pyspark.sql import functions as F

    given = _given(buried, reasons)
    text = F.col("attributes").getItem(GC_ATTRIBUTE)
    gcs = given.where(F.col("kind") == "gc").withColumn("text", text).drop("attributes")
    number = F.regexp_extract("text", _UPTO, 1)
    form = F.when(number != "", "upto").otherwise(F.col("text")).alias("text")
    texts = {row.text for row in gcs.select(form).distinct().limit(PREDICATES_MAX + 1).collect()}
    if len(texts) > PREDICATES_MAX:
        raise LocalError(
            f"stream {reasons.stream!r} has more than {PREDICATES_MAX} different predicates of garbage"
            " collection, and an audit compares each of them with all that was collected: audit the"
            " recordings without tombstones alone"
        )
    found = []
    if "upto" in texts:
        bound = F.least(number.cast("bigint"), F.col("seq") - 1)
        bounds = gcs.where(number != "").groupBy("run").agg(F.max(bound).alias("upto"))
        found.append(buried.join(F.broadcast(bounds), "run").where(F.col("seq") <= F.col("upto")))
    predicates = [parse(text) for text in sorted(texts - {"upto"})]
    if reasons.policy:
        predicates.append(parse(reasons.policy))
        gcs = gcs.union(given.drop("attributes").withColumn("text", F.lit(str(predicates[-1]))))
    if predicates:
        found += _by_predicate(buried, gcs, predicates)
    return reduce(lambda a, b: a.union(b), [rows.select("run", "seq") for rows in found]) if found else None


def _given(buried: "DataFrame", reasons: Reasons) -> "DataFrame":
    """Events of the archive that are not under a tombstone, for each run."""
    from pyspark.sql import functions as F

    runs = buried.select("run").distinct()
    events = reasons.events.where(F.col("kind") != "tombstone").select(
        "seq", "kind", "key", "time", "attributes"
    )
    return events.crossJoin(F.broadcast(runs)).join(buried.select("run", "seq"), ["run", "seq"], "left_anti")


def _by_predicate(buried: "DataFrame", given: "DataFrame", predicates: Sequence[Filter]) -> "list[DataFrame]":
    """What reasons with these predicates in their column `text` collect."""
    from pyspark.sql import functions as F

    from qanat.pipeline.filters.columns import ContextColumns, column_of

    # The text of a predicate is that of its normal form, as publishing wrote it.
    numbers = {str(predicate): i for i, predicate in enumerate(predicates)}
    of_key = [i for i, p in enumerate(predicates) if any(isinstance(test, SameKey) for test in p.tests)]
    keyed = [i for i, p in enumerate(predicates) if all(Term(SameKey()) in terms for terms in p.conjunctions)]
    others = [i for i in range(len(predicates)) if i not in keyed]
    named = F.create_map(*(F.lit(part) for pair in numbers.items() for part in pair))
    reasons = given.select(
        F.col("run").alias("g_run"),
        F.col("seq").alias("g_seq"),
        F.col("key").alias("g_key"),
        F.unix_micros("time").alias("g_us"),
        named[F.col("text")].alias("g_predicate"),
    )
    without_key = F.when(F.col("g_predicate").isin(of_key), F.col("g_key")).otherwise(F.lit(b""))
    reasons = _front(reasons.withColumn("g_key", without_key), predicates)
    context = ContextColumns(F.col("g_seq"), F.col("g_key"), F.col("g_us"))
    same_run = F.col("run") == F.col("g_run")
    found = []
    for chosen in (keyed, others):
        if chosen:
            mine = reasons.where(F.col("g_predicate").isin(chosen))
            joined = (
                buried.join(mine, same_run & (F.col("key") == F.col("g_key")))
                if chosen is keyed
                else buried.join(F.broadcast(mine), same_run)
            )
            which = F.col("g_predicate")
            matches = [(which == i) & column_of(predicates[i], context) for i in chosen]
            found.append(joined.where((F.col("seq") < F.col("g_seq")) & reduce(lambda a, b: a | b, matches)))
    return found


def _front(reasons: "DataFrame", predicates: Sequence[Filter]) -> "DataFrame":
    """Reasons that no other one makes needless; all of a predicate that negates what speaks of the reason's
    number or time."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def negates(predicate: Filter) -> bool:
        terms = [term for terms in predicate.conjunctions for term in terms]
        return any(term.negated and isinstance(term.test, KeepLast | OlderThan) for term in terms)

    kept = [i for i, predicate in enumerate(predicates) if negates(predicate)]
    groups = ["g_run", "g_predicate", "g_key"]
    later = Window.partitionBy(*groups).orderBy(F.desc("g_seq")).rowsBetween(Window.unboundedPreceding, -1)
    ranked = reasons.withColumn("newest", F.max("g_us").over(later))
    needed = F.col("newest").isNull() | (F.col("g_us") > F.col("newest")) | F.col("g_predicate").isin(kept)
    return ranked.where(needed).drop("newest")
