"""Answers to questions about a server, kept for a moment: asking costs forty bytes, and an answer is about a
thousand streams."""

from collections.abc import Callable
from time import perf_counter

import msgspec

from qanat.events.errors import LocalError

_SHARE = 0.05
"""Of the server's time that may go into making answers to one question, however often it is asked."""


class TooSoon(LocalError):
    """It was asked a moment ago, and answering costs too much to do it again at once."""


class ReadyAnswers:
    """An answer that took a millisecond to make is given again for twenty; then the next one who asks gets a
    new one."""

    def __init__(self, clock_s: Callable[[], float] = perf_counter) -> None:
        self._clock_s = clock_s
        self._kept: dict[str, tuple[float, bytes, object]] = {}

    def get(self, question: str, tell: Callable[[], object], detail: object = None) -> bytes:
        """As JSON. Of a question that is asked with many details the last answer is kept: another detail has
        to wait (`TooSoon`)."""
        began_s = self._clock_s()
        until_s, answer, its = self._kept.get(question, (0.0, b"", None))
        if began_s < until_s:
            if its != detail:
                raise TooSoon(
                    f"ask again in {(until_s - began_s) * 1000:.0f} ms: answers take their share of the"
                    " server's time"
                )
            return answer
        answer = msgspec.json.encode(tell())
        now_s = self._clock_s()
        self._kept[question] = now_s + (now_s - began_s) / _SHARE, answer, detail
        return answer
