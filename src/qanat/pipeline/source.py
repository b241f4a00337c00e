"""The format `qanat`: streams as tables that are read and written, in batches and continuously."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from qanat.pipeline.columns import DDL

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class QanatSource(DataSource):
    """`spark.read.format("qanat")` and its kin; Spark makes one in each of its processes, from the options alone."""

    @classmethod
    def name(cls) -> str:
        return "qanat"

    def schema(self) -> "StructType | str":
        return DDL
