"""When what is to be archived cannot be written: nothing of it stays, and what Spark tells of a task becomes
a sentence."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from qanat.pipeline.archive.errors import NoRoom, TaskFailed
from qanat.pipeline.archive.history import Writer
from qanat.pipeline.spark_texts import last_line, of_spark

_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Java has these words from the operating system, too."""


@contextmanager
def attempt(writer: Writer, staging: str) -> Iterator[None]:
    """Writes to that folder; if it fails the folder is removed, since what fills a disk would else keep it
    full for the next attempt."""
    try:
        yield
    except Exception as error:
        with suppress(Exception):  # the first failure is the one to tell
            writer.history.storage.remove(staging)
        # Who takes over removes what this writer was writing: whatever that looked like here, it is the
        # reason.
        writer.check_present()
        if of_spark(error) and any(words in str(error) for words in _FULL):
            raise NoRoom(
                f"no space is left for the archive of stream {writer.history.stream!r} at"
                f" {writer.history.storage.root} (or where Spark spills to, spark.folder): free some; the"
                f" archive is as it was ({last_line(str(error))})"
            ) from error
        raise


def in_a_sentence(error: Exception, stream: str) -> Exception:
    """The same error; of Spark's own, what it means."""
    if not of_spark(error):
        return error
    failed = TaskFailed(f"archiving stream {stream!r} failed on Spark: {last_line(str(error))}")
    failed.__cause__ = error
    return failed
