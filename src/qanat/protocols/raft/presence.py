"""Who is there, in which life, with what: so that an ensemble begins from nothing only where all have
nothing."""

from qanat.kernel import Address
from qanat.protocols.raft.messages import Present
from qanat.protocols.raft.records import Standing
from qanat.protocols.raft.seat import Seat


class Presence:
    """`heard` is the last word of each member with which there is a channel."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.heard: dict[Address, Present] = {}

    def say(self) -> None:
        for other in self._seat.others:
            self._say_to(other)

    def _say_to(self, other: Address) -> None:
        kept, known = self._seat.kept, self.heard.get(other)
        said = Present(
            life=self._seat.life,
            heard=0 if known is None else known.life,
            whole=kept.whole,
            nothing=kept.nothing,
            term=kept.term,
            last_index=kept.log.last_index,
            last_term=kept.log.last_term,
        )
        self._seat.context.send(other, said)

    def on_present(self, sender: Address, message: Present) -> None:
        before = self.heard.get(sender)
        self.heard[sender] = message
        if message.heard != self._seat.life or before is None or before.life != message.life:
            self._say_to(sender)

    def on_link_down(self, peer: Address) -> None:
        self.heard.pop(peer, None)

    def begins(self) -> bool:
        """Whether this member just became whole because nobody has anything: each of the others has said so
        to its present life."""
        seat = self._seat
        if seat.kept.whole or not seat.kept.nothing:
            return False
        for other in seat.others:
            said = self.heard.get(other)
            if said is None or said.heard != seat.life or not said.nothing:
                return False
        seat.kept.write(seat.context, Standing(whole=True, lost=False))
        return True

    def waits(self) -> str:
        """What keeps a member without a leader from having one, for whoever is to mend it; empty if nothing
        but time does."""
        seat = self._seat
        away = [other for other in seat.others if other not in self.heard]
        forgot = [other for other, said in self.heard.items() if not said.whole]
        if not seat.kept.whole:
            forgot.append(seat.context.address)
        whole = len(seat.others) + 1 - len(away) - len(forgot)
        if whole >= seat.majority:
            return ""
        lost = f"{', '.join(sorted(forgot))} came without a journal" if forgot else ""
        if not away and not lost:
            return ""
        if not away:
            return (
                f"{lost}, so a majority has forgotten: bring one journal back, or `qanat coordinator begin`"
            )
        return (
            f"{lost}{', so it ' if lost else 'it '}waits for {', '.join(away)}; if the disk there is lost,"
            " `qanat coordinator begin`"
        )
