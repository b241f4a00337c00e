"""What keys collect: by the key-based policy, or by GC events `same key`. Groups and joins by key; nothing of
a payload is touched.

A GC event with another predicate than `same key` is not collected by its key: what it collected would come
back.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qanat.log.config import Policy
from qanat.pipeline.compact.collectors import Collectors, predicate_text
from qanat.pipeline.compact.extents import per_stream


def by_key_policy(policies: Sequence[Policy]) -> Column:
    """Whether the row's stream has the key-based policy."""
    return per_stream([policy.by_key for policy in policies], "int") == 1


def replaceable(collectors: Collectors) -> Column:
    """Events that a later one of their key may collect: those with a key, but no GC event with a predicate of
    its own."""

    keyed = (F.col("kind") != "tombstone") & (F.octet_length("key") > 0)
    if not collectors.any_gc:
        return keyed
    plain = F.coalesce(predicate_text().isin(list(collectors.same_key_texts)), F.lit(False))
    return keyed & ((F.col("kind") == "data") | plain)


def last_of_keys(rows: DataFrame, policies: Sequence[Policy], collectors: Collectors) -> DataFrame | None:
    """(no, seq) of the last event of each key, in streams with the key-based policy: of all that keys may
    collect, these stay.

    None if there is no such stream.
    """

    if not any(policy.by_key for policy in policies):
        return None
    if not all(policy.by_key for policy in policies):
        rows = rows.where(by_key_policy(policies))
    keyed = (F.col("kind") != "tombstone") & (F.octet_length("key") > 0)
    slim = rows.where(keyed)
    if not collectors.any_gc:
        return slim.groupBy("no", "key").agg(F.max("seq").alias("seq")).select("no", "seq")
    slim = slim.select("no", "key", "seq", F.when(replaceable(collectors), F.col("seq")).alias("mine"))
    last = slim.groupBy("no", "key").agg(F.max("seq").alias("last"), F.max("mine").alias("seq"))
    return last.where(F.col("last") == F.col("seq")).select("no", "seq")


def replaced_by_events(
    rows: DataFrame, policies: Sequence[Policy], collectors: Collectors
) -> DataFrame | None:
    """(no, seq) of what GC events `same key` collect, in streams without the key-based policy; None if there
    are none."""

    if not collectors.any_same_key or all(policy.by_key for policy in policies):
        return None
    if any(policy.by_key for policy in policies):
        rows = rows.where(~by_key_policy(policies))
    plain = predicate_text().isin(list(collectors.same_key_texts))
    last = (
        rows.where((F.col("kind") == "gc") & plain & (F.octet_length("key") > 0))
        .groupBy(F.col("no").alias("gc_no"), F.col("key").alias("gc_key"))
        .agg(F.max("seq").alias("last"))
    )
    slim = rows.where(replaceable(collectors)).select("no", "key", "seq")
    earlier = (
        (F.col("key") == F.col("gc_key")) & (F.col("no") == F.col("gc_no")) & (F.col("seq") < F.col("last"))
    )
    return slim.join(last, earlier).select("no", "seq")
