"""A driver that runs commands of ours one after another on one Spark session, as one line of JSON each tells it.

`{"words": […], "out": path, "err": path}` in, `{"code": 0}` out. A driver of its own for each command would cost more
than all that the commands do. There is also a job that only users have: a query from one stream into another.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from qanat.cli.main import main
from qanat.pipeline.session import open_session


def serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        words = asked["words"]
        with Path(asked["out"]).open("w") as out, Path(asked["err"]).open("w") as err:
            with redirect_stdout(out), redirect_stderr(err):
                code = copy(*words[1:]) if words[0] == "copy" else main(words)
        print(json.dumps({"code": code}), flush=True)


def copy(url: str, source: str, target: str, checkpoint: str) -> int:
    """From stream to stream, in small micro-batches, up to where the source is now."""
    spark = open_session()
    events = spark.readStream.format("qanat").options(
        url=url, stream=source, maxRowsPerTrigger="400", partitions="2"
    )
    rows = events.load().drop("source")
    query = rows.writeStream.format("qanat").options(url=url, stream=target, checkpointLocation=checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    return 0


if __name__ == "__main__":
    serve()
