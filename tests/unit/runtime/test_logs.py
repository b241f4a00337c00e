"""Log lines that a peer cannot forge."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from qanat.runtime import logs

log = logging.getLogger("qanat.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    logger = logging.getLogger("qanat")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def test_text() -> None:
    out = io.StringIO()
    logs.set_up("info", "text", out)
    log.debug("not seen")
    log.warning("closed", extra={"peer": "a@1:2", "detail": 'a "b"\nfake=1', "empty": "", "n": 3})
    (line,) = out.getvalue().splitlines()
    assert line.endswith('Z warning qanat.test closed peer=a@1:2 detail="a \\"b\\"\\nfake=1" n=3')


def test_json_with_an_exception() -> None:
    out = io.StringIO()
    logs.set_up("debug", "json", out)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed", extra={"peer": "x"})
    entry = json.loads(out.getvalue())
    assert entry["level"] == "error"
    assert entry["peer"] == "x"
    assert "ValueError: broken" in entry["exception"]
