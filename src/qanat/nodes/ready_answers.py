"""Answers to questions about a server, kept for a moment: asking costs forty bytes, and an answer is about a thousand streams."""

from collections.abc import Callable
from time import perf_counter

import msgspec

_SHARE = 0.05
"""Of the server's time that may go into making answers to one question, however often it is asked."""


class ReadyAnswers:
    """An answer that took a millisecond to make is given again for twenty; then the next one who asks gets a new one."""

    def __init__(self, clock_s: Callable[[], float] = perf_counter) -> None:
        self._clock_s = clock_s
        self._kept: dict[str, tuple[float, bytes]] = {}

    def get(self, question: str, tell: Callable[[], object]) -> bytes:
        """As JSON."""
        began_s = self._clock_s()
        until_s, answer = self._kept.get(question, (0.0, b""))
        if began_s < until_s:
            return answer
        answer = msgspec.json.encode(tell())
        now_s = self._clock_s()
        self._kept[question] = now_s + (now_s - began_s) / _SHARE, answer
        return answer
