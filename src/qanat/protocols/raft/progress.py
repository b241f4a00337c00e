"""A leader's book of one member."""

from collections import deque

LIVES_MAX = 16
"""Earlier lives that are remembered: what one of them said may still be on its way."""


class Installing:
    """A snapshot that goes over in pieces, each after the one before was acknowledged."""

    def __init__(self, index: int, term: int, data: bytes) -> None:
        self.index, self.term, self.data = index, term, data
        self.offset = 0
        self.waits = False


class Progress:
    def __init__(self, next_: int) -> None:
        self.next = next_
        """Sent next."""
        self.match = 0
        """Up to here its log is the leader's, and on its disk."""
        self.probing = False
        """Where the logs part is looked for, one question at a time."""
        self.installing: Installing | None = None
        self.life = 0
        self.whole = False
        self.round = 0
        self.upto = 0
        """Of one that forgot: what it must have before it counts; and the round that must be confirmed before
        that is said."""
        self.vouched_in = 0
        self.heard = True
        self.away = True
        self._dead: deque[int] = deque(maxlen=LIVES_MAX)
        self._under_way: deque[tuple[int, int]] = deque()
        self._under_way_bytes = 0

    def meet(self, life: int) -> bool:
        """False: an earlier life said it."""
        if life in self._dead:
            return False
        if life != self.life:
            if self.life:
                self._dead.append(self.life)
            self.life, self.match, self.round, self.upto = life, 0, 0, 0
            self._nothing_under_way()
        return True

    def has_room(self, window_bytes: int, window_messages: int) -> bool:
        return len(self._under_way) < window_messages and self._under_way_bytes < window_bytes

    def sent(self, count: int, size: int) -> None:
        self.next += count
        self._under_way.append((self.next - 1, size))
        self._under_way_bytes += size

    def matched(self, index: int) -> None:
        self.match = max(self.match, index)
        self.next = max(self.next, self.match + 1)
        self.probing = False
        while self._under_way and self._under_way[0][0] <= index:
            self._under_way_bytes -= self._under_way.popleft()[1]

    def go_back(self, next_: int) -> None:
        self.next, self.probing, self.installing = max(next_, self.match + 1), True, None
        self._nothing_under_way()

    def _nothing_under_way(self) -> None:
        self._under_way.clear()
        self._under_way_bytes = 0
