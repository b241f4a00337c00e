"""How long a datastore that is away is asked again."""

from __future__ import annotations

import pytest

from qanat.capture.errors import LogUnreachable, NotSetUp
from qanat.capture.trying import Trying


class Away:
    """Answers after some attempts."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise LogUnreachable("away")
        return "here"


def test_who_is_away_is_asked_again_and_that_is_said_once() -> None:
    said: list[str] = []
    trying = Trying(60, said.append)
    assert [trying.ask(Away(3)), trying.ask(Away(0)), trying.ask(Away(1))] == ["here"] * 3
    assert said == ["trying again for up to 60 s: away"] * 2


def test_patience_ends_and_none_is_none() -> None:
    said: list[str] = []
    for patience_s in (0, 0.1):
        with pytest.raises(LogUnreachable):
            Trying(patience_s, said.append).ask(Away(1_000))
    assert said == ["trying again for up to 0.1 s: away"]


def test_what_waiting_does_not_mend_is_told_at_once() -> None:
    def refused() -> None:
        raise NotSetUp("no such user")

    with pytest.raises(NotSetUp):
        Trying(60, print).ask(refused)
