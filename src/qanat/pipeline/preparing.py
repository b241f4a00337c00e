"""What a pipeline needs of others, looked at before Spark is started: that takes seconds, and most mistakes
can be told at once."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from qanat.capture.url import open_reader, parse_log_url
from qanat.client import Client
from qanat.events.errors import RemoteError

log = logging.getLogger("qanat.pipeline")

_ASKED = frozenset(("mariadb", "mysql", "postgresql", "postgres"))
"""Datastores that are spoken to only when they are asked something."""
_PAUSE_S = 1.0


def prepare(
    logs: Mapping[str, str],
    url: str,
    patience_s: float,
    stopping: threading.Event,
    doing: Callable[[str], None],
) -> None:
    """`logs` are the sources' by name. Who is away is told at once, and waited for; what will not change by
    waiting is raised.

    `doing` is told what is looked at.
    """
    for name, source in logs.items():
        doing(f"looking at source {name}, {parse_log_url(source)}")
        _patiently(f"source {name}", lambda source=source: _look(source), patience_s, stopping)  # type: ignore[misc]
    doing(f"asking the server at {url}")
    _patiently("the streams' server", lambda: Client(url, patience=0).close(), patience_s, stopping)


def _patiently(what: str, look: Callable[[], None], patience_s: float, stopping: threading.Event) -> None:
    began, told = time.monotonic(), False
    while not stopping.is_set():
        try:
            look()
        except RemoteError as error:
            waited = time.monotonic() - began
            if waited >= patience_s:
                raise
            if not told:
                told = True
                log.warning("%s is away: %s; waiting for up to %g s", what, error, patience_s)
            stopping.wait(_PAUSE_S)
        else:
            if told:
                log.warning("%s is back", what)
            return


def _look(source: str) -> None:
    reader = open_reader(source)
    try:
        if parse_log_url(source).scheme in _ASKED:
            reader.latest()
    finally:
        reader.close()
