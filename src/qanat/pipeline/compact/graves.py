"""Tombstones: each run of dead rows as one row, as `events.tombstones.bury` makes it of a batch.

A run begins after the living event before it. Its tombstone has the number and the source position of its
last row and the newest time of all. A tombstone that is in the rows already is a dead row like any other, so
runs merge with it and with each other, and never leave a hole.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qanat.pipeline.attribute_maps import RANGE_ATTRIBUTE
from qanat.pipeline.columns import COLUMNS
from qanat.pipeline.compact.bitmap import file_of, lives, living_before

SOURCES_MAX = 1000
"""Names of sources that are numbered, so that grouping is about numbers alone, which is twice as fast."""
_NAMELESS = "\0"


def tombstones(rows: DataFrame, streams: Sequence[str], names: list[str] | None) -> DataFrame:
    """The dead among rows with their words, as tombstones of the tabular form, with the `file` of their last
    number.

    `streams` are the names of streams by their numbers, `names` those of all sources; None if they are too
    many to number.
    """

    source, sources = F.col("source"), []
    if names is None:
        sources = [F.max_by("source", "seq").alias("source")]
    elif names != []:
        named = F.array_position(F.lit(names), F.coalesce(source["name"], F.lit(_NAMELESS)))
        numbered = {
            "source_no": F.when(source.isNotNull(), named),
            "sequence": source["sequence"],
            "index": source["index"],
        }
        rows = rows.withColumns(numbered)
        sources = [F.max_by(name, "seq").alias(name) for name in numbered]
    runs = (
        rows.where(~lives())
        .withColumns({"before_run": living_before(), "file": file_of()})
        .groupBy("no", "before_run")
        .agg(F.max("seq").alias("last"), F.max("time").alias("time"), F.max("file").alias("file"), *sources)
    )
    width = F.col("last") - F.col("before_run")
    nothing = F.lit(b"")
    stream = F.lit(streams[0]) if len(streams) == 1 else F.get(F.lit(list(streams)), F.col("no"))
    columns = {
        "stream": stream,
        "seq": F.col("last"),
        "kind": F.lit("tombstone"),
        "key": nothing,
        "time": F.col("time"),
        "payload": nothing,
        "attributes": F.when(width > 1, F.create_map(F.lit(RANGE_ATTRIBUTE), width.cast("string"))).otherwise(
            F.expr("cast(map() as map<string,string>)")
        ),
        "types": F.when(width > 1, F.create_map(F.lit(RANGE_ATTRIBUTE), F.lit("uint"))),
        "source": _source(names),
    }
    return runs.select("file", *(column.alias(name) for name, column in columns.items()))


def _source(names: list[str] | None) -> Column:

    form = "struct<name:string,sequence:bigint,index:int>"
    if names is None:
        return F.col("source").cast(form)
    if names == []:
        return F.lit(None).cast(form)
    name = F.nullif(F.get(F.lit(names), F.col("source_no").cast("int") - 1), F.lit(_NAMELESS))
    whole = F.struct(name.alias("name"), F.col("sequence"), F.col("index"))
    return F.when(F.col("source_no").isNotNull(), whole).cast(form)


def source_names(rows: DataFrame) -> list[str] | None:
    """The names of all sources; with one for positions without a name; None if there are too many."""

    name = F.coalesce(F.col("source.name"), F.lit(_NAMELESS))
    found = rows.where(F.col("source").isNotNull()).select(name.alias("name")).distinct()
    names = [row["name"] for row in found.limit(SOURCES_MAX + 1).toArrow().to_pylist()]
    return None if len(names) > SOURCES_MAX else names


def survivors(rows: DataFrame) -> DataFrame:
    """The living among rows with their words, with `file`."""
    return rows.where(lives()).withColumn("file", file_of()).select("file", *COLUMNS)
