"""Elections: first asking whether there would be votes (pre-vote), so that who was cut off disturbs nobody
when it is back."""

from qanat.kernel import Address
from qanat.protocols.raft.messages import RequestVote, VoteReply
from qanat.protocols.raft.records import Term
from qanat.protocols.raft.seat import Seat


class Election:
    """Only members that are whole ask and vote: one that forgot might vote a second time, or for a log
    without what it acknowledged."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._pre = True
        self._term = 0
        """The term that is asked for; 0: no election is under way here."""
        self._votes: set[Address] = set()

    def end(self) -> None:
        self._term = 0

    def attempt(self) -> bool:
        """Begins with the question; True if that decides it already, as in an ensemble of one."""
        if not self._seat.kept.whole:
            return False
        self._ask(self._seat.kept.term + 1, pre=True)
        return self._won()

    def on_reply(self, sender: Address, reply: VoteReply) -> bool:
        """True: this member leads from here on."""
        if not reply.granted or reply.pre != self._pre or reply.term != self._term:
            return False
        self._votes.add(sender)
        return self._won()

    def on_request(self, sender: Address, request: RequestVote, *, calm: bool) -> bool:
        """`calm`: there is a leader, or was a moment ago. True if it was granted."""
        seat, kept = self._seat, self._seat.kept
        log = kept.log
        current = (request.last_term, request.last_index) >= (log.last_term, log.last_index)
        if request.pre:
            granted = kept.whole and current and not calm and request.term > kept.term
        else:
            granted = kept.whole and current and request.term == kept.term and kept.vote in ("", str(sender))
            if granted and not kept.vote:
                kept.write(seat.context, Term(kept.term, str(sender)))
        term = request.term if granted else kept.term
        seat.context.send(sender, VoteReply(term, request.pre, granted))
        return granted

    def _ask(self, term: int, *, pre: bool) -> None:
        seat, log = self._seat, self._seat.kept.log
        self._pre, self._term, self._votes = pre, term, {seat.context.address}
        seat.send_all(RequestVote(term, pre, log.last_index, log.last_term))

    def _won(self) -> bool:
        seat = self._seat
        if len(self._votes) < seat.majority:
            return False
        if not self._pre:
            self._term = 0
            return True
        if self._term != seat.kept.term + 1:  # the term rose meanwhile: ask again another time
            return False
        seat.kept.write(seat.context, Term(self._term, str(seat.context.address)))
        self._ask(self._term, pre=False)
        return self._won()
