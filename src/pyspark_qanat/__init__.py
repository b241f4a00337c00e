"""Where Spark finds the format `qanat` by itself: it imports every top-level package whose name begins with
`pyspark_`.

Spark imports this in a process of its own, at the first use of any data source, so nothing heavy is imported
here.
"""

from qanat.pipeline.source.format import QanatSource as DefaultSource

__all__ = ["DefaultSource"]
