"""What an application's process says where its program set up no logging."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from qanat.applications import Callbacks, running


@contextmanager
def bare() -> Iterator[logging.Logger]:
    """As in a program without tests around it, which have handlers of their own."""
    found = logging.getLogger("qanat")
    before = found.handlers[:], found.level, found.propagate
    found.handlers[:], found.propagate = [], False
    try:
        yield found
    finally:
        found.handlers[:], found.level, found.propagate = before


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "run_loop", lambda main: None)


def test_reasons_are_told_and_not_the_sentence_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with bare():
        running.run(Callbacks(), application="cache", publishers="qanat://127.0.0.1:1")
        logging.getLogger("qanat.application").warning("refused", extra={"reason": "unknown_application"})
    assert capsys.readouterr().err.rstrip().endswith("refused reason=unknown_application")


def test_the_logging_of_a_program_stays() -> None:
    with bare() as logger:
        mine = logging.NullHandler()
        logger.addHandler(mine)
        running.run(Callbacks(), application="cache", publishers="qanat://127.0.0.1:1")
        assert logger.handlers == [mine]
