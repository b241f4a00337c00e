"""A job as a user of PySpark writes it: no session of ours, nothing registered, only the package installed.

Where the workers found the package is the last line that it prints.
"""

import sys

from pyspark.sql import SparkSession


def main(master: str, url: str, source: str, target: str) -> None:
    spark = SparkSession.builder.master(master).appName("wheel").config("spark.cores.max", "2").getOrCreate()
    events = spark.read.format("qanat").option("url", url).option("stream", source).load()
    even = events.where("attributes['n'] % 2 = 0")
    print(even.count())
    rows = even.select("key", "payload")
    rows.write.format("qanat").option("url", url).option("stream", target).mode("append").save()

    def where(_: int) -> str:
        import qanat

        return str(qanat.__file__)

    print(spark.sparkContext.parallelize([1], 1).map(where).collect()[0])
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
