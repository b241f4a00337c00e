"""A right that another grants for a while, and that must be known to be over before the other may believe so.

Whoever asks counts from when it asked, whoever grants from when it was asked; so on clocks of equal rates the
asker's time is over first, and each of the two allows for clocks that are not.
"""

from qanat.kernel.context import Context


class Lease:
    """The asker's side. `prefix` begins the names of its timers, which are handed back to `on_timer`.

    Timers decide. The wall clock is asked as well because a process that was stopped and continues hears of
    its timers only after what had been waiting; if the clock jumped, there is no lease until the next grant.
    """

    def __init__(self, context: Context, prefix: str) -> None:
        self._context, self._prefix = context, prefix
        self._number = 0
        self._granted = 0
        self._sent_at: dict[int, int] = {}
        self._held = False
        self._lasts_us = 0

    def ask(self, now_us: int, lasts_us: int) -> int:
        """The number of what is asked now; if it is granted, then for so long from now."""
        self._number += 1
        self._sent_at[self._number] = now_us
        self._lasts_us = lasts_us
        self._context.set_timer(f"{self._prefix}{self._number}", lasts_us)
        return self._number

    def grant(self, now_us: int, number: int) -> bool:
        """It was granted; True if there was no lease before, and now there is."""
        if number <= self._granted or number not in self._sent_at:
            return False
        had = self.held(now_us)
        self._granted = number  # first, or whoever asks from another thread would take the lease for lost
        self._held = True
        for old in [each for each in self._sent_at if each < number]:
            del self._sent_at[old]
            self._context.cancel_timer(f"{self._prefix}{old}")
        return not had and self.held(now_us)

    def held(self, now_us: int) -> bool:
        """Changes nothing. Asked from another thread, it may miss a grant of this moment, but not an end."""
        sent = self._sent_at.get(self._granted)
        return self._held and sent is not None and 0 <= now_us - sent < self._lasts_us

    def on_timer(self, name: str) -> bool:
        """False if the timer is another's."""
        if not name.startswith(self._prefix):
            return False
        number = int(name[len(self._prefix) :])
        self._sent_at.pop(number, None)  # a grant that comes now is too late
        if number >= self._granted:
            self._held = False
        return True

    def end(self) -> None:
        """What was asked so far counts no more; numbers go on."""
        for number in self._sent_at:
            self._context.cancel_timer(f"{self._prefix}{number}")
        self._sent_at.clear()
        self._held = False
        self._granted = self._number
