"""What a replica has sent to the one after it, and how far that one has it on disk."""

from collections import deque

from qanat.protocols.chain.configuration import Member
from qanat.protocols.chain.messages import Hello, Marks


class Downstream:
    """One follower in one epoch: a successor, or behind the tail a replica that is joining."""

    def __init__(self, member: Member, joining: bool) -> None:
        self.member = member
        self.joining = joining
        self.round = 0
        self.welcomed = False
        self.sent: dict[int, int] = {}
        self.acked: dict[int, int] = {}
        self.safe_sent: dict[int, int] = {}
        self.behind: dict[int, None] = {}
        """Streams that wait for room in the window, those first that have waited longest."""
        self.owes_positions: dict[int, None] = {}
        """Streams whose sources' positions must still be told, once all events are sent."""
        self.positions_upto: dict[int, int] = {}
        self._flying: dict[int, deque[tuple[int, int]]] = {}
        self.flying_bytes = 0

    def begin(self, hello: Hello) -> None:
        self.round = hello.round
        self.welcomed = True
        self.sent = {claim.stream: claim.counter for claim in hello.claims}
        self.safe_sent = {}
        self.positions_upto = {}
        self.behind = {}
        self._ground()

    def broke(self) -> None:
        self.welcomed = False
        self._ground()

    def _ground(self) -> None:
        self._flying = {}
        self.flying_bytes = 0

    def note_sent(self, stream: int, last: int, size_bytes: int) -> None:
        self.sent[stream] = max(last, self.sent.get(stream, 0))
        self._flying.setdefault(stream, deque()).append((last, size_bytes))
        self.flying_bytes += size_bytes

    def note_acked(self, stored: Marks) -> list[int]:
        """The streams in which it now has more on disk."""
        more = []
        for stream, upto in stored:
            if upto <= self.acked.get(stream, 0):
                continue
            self.acked[stream] = upto
            more.append(stream)
            flying = self._flying.get(stream)
            while flying and flying[0][0] <= upto:
                self.flying_bytes -= flying.popleft()[1]
        return more
