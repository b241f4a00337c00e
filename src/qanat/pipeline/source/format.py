"""The format `qanat`: streams as tables that are read and written, in batches and continuously."""

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource

from qanat.pipeline.changes.format import (
    asks_for_changes,
    changes_reader,
    changes_schema,
    changes_stream_reader,
)
from qanat.pipeline.columns import ARROW, DDL
from qanat.pipeline.sentences import in_sentences
from qanat.pipeline.source.options import BadOption, StreamOptions, without_sink_options
from qanat.pipeline.source.tables import is_made, is_of_a_table, options_of, with_options
from qanat.pipeline.spark_versions import refuse_old

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from qanat.pipeline.sink.options import SinkOptions


_SPARK = {"checkpointlocation", "queryname"}
"""What Spark itself puts among the options of a query that writes."""


@in_sentences
class QanatSource(DataSource):
    """`spark.read.format("qanat")` and its kin; Spark makes one in each of its processes, from the options
    alone."""

    def __init__(self, options: "MutableMapping[str, str]") -> None:
        refuse_old(pyspark.__version__)
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "qanat"

    def schema(self) -> "StructType | str":
        made = is_made(self.options)
        options = options_of(self.options)
        if asks_for_changes(options):
            ddl, arrow = changes_schema(options)
        else:
            # What is wrong with them is said before anything is planned.
            StreamOptions.read(without_sink_options(options) if made else options)
            ddl, arrow = DDL, ARROW
        return with_options(arrow, options) if made else ddl

    def reader(self, schema: "StructType") -> "DataSourceReader":
        options = self._reading(schema)
        if asks_for_changes(options):
            return changes_reader(options)
        from qanat.pipeline.source.batch_reader import BatchReader

        return BatchReader(StreamOptions.read(options), columns_of(schema))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        options = self._reading(schema)
        if asks_for_changes(options):
            return changes_stream_reader(options)
        from qanat.pipeline.source.stream_reader import StreamReader

        return StreamReader(StreamOptions.read(options), columns_of(schema))

    def _reading(self, schema: "StructType") -> dict[str, str]:
        options = options_of(self.options, schema)
        return without_sink_options(options) if is_of_a_table(schema) else options

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from qanat.pipeline.sink.writer import BatchSink

        options = self._sink(schema)
        return BatchSink(options, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from qanat.pipeline.sink.writer import StreamSink

        options = self._sink(schema)
        return StreamSink(options, overwrite=overwrite)

    def _sink(self, schema: "StructType") -> "SinkOptions":
        from qanat.pipeline.sink.columns import check_schema
        from qanat.pipeline.sink.options import SinkOptions, without_reading_options

        given = options_of(self.options)
        if not without_reading_options(given).keys() - _SPARK:
            # Into a table, or rows that were read from one: their columns say from which, and only what has
            # no options of its own means that.
            given = without_reading_options(options_of(self.options, schema))
        if asks_for_changes(given):
            raise BadOption("option 'changes' names the log of a datastore, which is only read")
        options = SinkOptions.read(given)
        check_schema(schema, options.stream)
        return options


def columns_of(schema: "StructType") -> list[str]:
    """The columns that a query wants: those of its own `.schema(…)`, if it has one; what is left out is never
    made."""
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in to_arrow_schema(schema, timezone="UTC"):
        if field.name not in ARROW.names or not ARROW.field(field.name).type.equals(field.type):
            raise BadOption(
                f"column {field.name!r} of type {field.type} is not one of a stream's events, which are"
                f" {DDL}; give some of these, or no schema at all"
            )
    return list(schema.fieldNames())
