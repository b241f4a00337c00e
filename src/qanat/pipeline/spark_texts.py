"""What Spark tells of a failure: a text with the stacks of two languages, of which one line says what
happened."""

import re


def of_spark(error: BaseException) -> bool:
    """Whether it comes from Spark, and so has such a text."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def last_line(text: str) -> str:
    """Of a traceback, the error; of Java's, its message."""
    if "(no cause message)" in text:
        return "a process that it had started ended"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b|qanat\.[\w.]+: ", line)]
    return (errors or lines or ["for no reason that it tells"])[-1 if errors else 0][:500]
