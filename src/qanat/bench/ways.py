"""Over TCP alone, as between machines: what `qanat bench --tcp` measures."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "QANAT_TRANSPORT__SHORT_WAYS"


@contextmanager
def only_tcp(only: bool = True) -> Iterator[None]:
    """Servers and publishers that are started in here offer no short way, so their clients take none
    (docs/wire.md#short-ways)."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "false" if only else "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
