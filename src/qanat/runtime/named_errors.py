"""Errors of the system that say which file they are of: those of a call with a descriptor do not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def sentence(error: OSError) -> str:
    """What is wrong, and with which file."""
    what = error.strerror or str(error) or type(error).__name__
    return f"{what}: {error.filename}" if error.filename is not None else what
