"""A right that another grants for a while, and that must be known to be over before the other may believe so.

Whoever asks counts from when it asked, whoever grants from when it was asked; so on clocks of equal rates the
asker's time is over first, and each of the two allows for clocks that are not.
"""


class Lease:
    """The asker's side, on monotonic time. What was asked later outlasts what was asked before."""

    def __init__(self) -> None:
        self._number = 0
        self._asked: dict[int, int] = {}
        """By its number, until when it would last."""
        self._until_us: int | None = None

    def ask(self, now_us: int, lasts_us: int) -> int:
        """The number of what is asked now; if it is granted, then for so long from now."""
        for number in [each for each, until_us in self._asked.items() if until_us <= now_us]:
            del self._asked[number]  # a grant that comes now is too late
        self._number += 1
        self._asked[self._number] = now_us + lasts_us
        return self._number

    def grant(self, now_us: int, number: int) -> bool:
        """It was granted; True if there was no lease before, and now there is."""
        until_us = self._asked.pop(number, None)
        if until_us is None:
            return False
        had = self.held(now_us)
        for old in [each for each in self._asked if each < number]:
            del self._asked[old]
        self._until_us = until_us
        return not had and self.held(now_us)

    def held(self, now_us: int) -> bool:
        """Changes nothing. Asked from another thread, it may miss a grant of this moment, but not an end."""
        until_us = self._until_us
        return until_us is not None and now_us < until_us

    def end(self) -> None:
        """What was asked so far counts no more; numbers go on."""
        self._asked.clear()
        self._until_us = None
