"""The format `qanat`: streams as tables that are read and written, in batches and continuously."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from qanat.pipeline.columns import ARROW, DDL
from qanat.pipeline.stream_options import BadOption, StreamOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class QanatSource(DataSource):
    """`spark.read.format("qanat")` and its kin; Spark makes one in each of its processes, from the options alone."""

    @classmethod
    def name(cls) -> str:
        return "qanat"

    def schema(self) -> "StructType | str":
        StreamOptions.read(self.options)  # what is wrong with them is said before anything is planned
        return DDL

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from qanat.pipeline.batch_reader import BatchReader

        return BatchReader(StreamOptions.read(self.options), columns_of(schema))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from qanat.pipeline.stream_reader import StreamReader

        return StreamReader(StreamOptions.read(self.options), columns_of(schema))


def columns_of(schema: "StructType") -> list[str]:
    """The columns that a query wants: those of its own `.schema(…)`, if it has one; what is left out is never made."""
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in to_arrow_schema(schema, timezone="UTC"):
        if field.name not in ARROW.names or not ARROW.field(field.name).type.equals(field.type):
            raise BadOption(
                f"column {field.name!r} of type {field.type} is not one of a stream's events, which are {DDL}; give some of these, "
                "or no schema at all"
            )
    return list(schema.fieldNames())
