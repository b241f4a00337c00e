"""Errors of the format as a user of Spark reads them: the sentence first, and no frames of what is inside.

Spark hands a Python error over as its whole traceback. It has a switch that hides frames, which its workers
look at when they have caught the error; so it is set when one is on its way that says by itself what is wrong
(`QanatError`, or what the operating system refused). The process ends with it, so nobody else's errors are
shortened. What was not foreseen keeps its frames: they are all that is known of it.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from qanat.events.errors import InvariantError, QanatError

log = logging.getLogger("qanat.pipeline")

_SWITCH = "SPARK_HIDE_TRACEBACK"
_WORKERS = ("pyspark.", "qanat.pipeline.python_daemon")
"""Modules that are run where Spark has Python work for it."""
_CALLED = (
    "__init__", "schema", "reader", "streamReader", "writer", "streamWriter", "partitions", "read",
    "initialOffset", "latestOffset", "getDefaultReadLimit", "prepareForTriggerAvailableNow",
    "reportLatestOffset", "write", "commit", "abort", "stop",
)  # fmt: skip
"""What Spark calls of a data source, of its readers and of its writers."""
_T = TypeVar("_T", bound=type)


def in_sentences(made: _T) -> _T:
    """A class whose methods Spark calls; errors that leave them are told in a sentence."""
    for name in _CALLED:
        work = vars(made).get(name)
        if work is not None:
            setattr(made, name, _told(work))
    return made


def _told(work: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(work)
    def call(*args: Any, **options: Any) -> Any:
        try:
            result = work(*args, **options)
        except Exception as error:
            _shorten(error)
            raise
        return _each(result) if isinstance(result, Iterator) else result

    return call


def _each(items: Iterator[Any]) -> Iterator[Any]:
    """A task's rows: most of what goes wrong does so while they are made."""
    try:
        yield from items
    except Exception as error:
        _shorten(error)
        raise


def _shorten(error: Exception) -> None:
    says_it = isinstance(error, QanatError | OSError) and not isinstance(error, InvariantError)
    if says_it and _is_worker():
        log.debug("%s", error, exc_info=error)
        os.environ[_SWITCH] = "1"


def _is_worker() -> bool:
    """Whether this process is one of Spark's own, which ends after an error."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith(_WORKERS)
