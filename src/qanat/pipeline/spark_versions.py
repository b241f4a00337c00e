"""Which versions of PySpark work: those whose tests were run, as docs/spark.md says. Earlier ones lack what a
source needs to say how much it reads."""

import re

from qanat.events.errors import LocalError

OLDEST = (4, 2)


class OldSpark(LocalError):
    """This PySpark is older than what Qanat works with."""

    exit_code = 3


def refuse_old(version: str) -> None:
    """Raises `OldSpark`; newer ones than are known are tried."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise OldSpark(
            f"Qanat needs PySpark {OLDEST[0]}.{OLDEST[1]} or newer, and this is {version}: Spark's Python"
            " data sources cannot limit a micro-batch before; pip install 'qanat[spark]' brings one that"
            " fits"
        )
