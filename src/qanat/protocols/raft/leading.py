"""A leader's term of office: what each member has, what is committed, and in which rounds a majority has
confirmed it."""

from collections.abc import Callable

from qanat.kernel import Address, require
from qanat.protocols.raft.following import encode_snapshot
from qanat.protocols.raft.messages import (
    RECORD_BYTES_MAX,
    AppendEntries,
    AppendReply,
    Entry,
    InstallReply,
    InstallSnapshot,
)
from qanat.protocols.raft.progress import Installing, Progress
from qanat.protocols.raft.seat import Seat


class Leading:
    """Made when the election is won. `settled` is called when more is committed, or confirmed, than
    before."""

    def __init__(self, seat: Seat, settled: Callable[[], None]) -> None:
        self._seat, self._settled = seat, settled
        self.term = seat.kept.term
        self.round = 0
        self.confirmed = 0
        """The last round in which a majority said that it knows of no later term."""
        self._wanted = 0
        self._unsaved = 0
        """Entries at the end of the log that are not written yet: they are sent first, so that all disks work
        at once."""
        log = seat.kept.log
        self._pending_bytes = log.bytes_between(seat.commit, log.last_index)
        self.first = log.last_index + 1
        """Of its term. Once it is committed, so is all that was committed before."""
        self.members = {other: Progress(self.first) for other in seat.others}
        self._put(b"")

    # What the owner asks

    def propose(self, record: bytes) -> int:
        """Its index. Written and sent at the next `flush`."""
        require(
            0 < len(record) <= RECORD_BYTES_MAX,
            f"a record has 1 to {RECORD_BYTES_MAX} bytes, not {len(record)}",
        )
        return self._put(record)

    def confirm(self) -> int:
        """The number of a round that begins after now; one is under way at a time, and serves all who asked
        before it."""
        self._wanted = self.round + 1
        return self._wanted

    def is_overfull(self) -> bool:
        pending, config = self._seat.kept.log.last_index - self._seat.commit, self._seat.config
        return pending > config.pending_records or self._pending_bytes > config.pending_bytes

    def flush(self, *, beat: bool = False) -> None:
        """Sends what there is to send; with `beat` something to everybody."""
        if self._wanted > self.round and self.confirmed == self.round:
            self.round += 1
            beat = True
        for other, member in self.members.items():
            self._feed(other, member, beat)
        self.save()
        self._count()

    def save(self) -> None:
        log = self._seat.kept.log
        while self._unsaved:
            first = log.last_index + 1 - self._unsaved
            entries = log.from_(first, 1 << 62)
            self._unsaved -= len(entries)
            self._seat.kept.note(self._seat.context, first, entries)

    def has_majority(self) -> bool:
        """Whether enough members were heard of since it was asked last."""
        heard = [member for member in self.members.values() if member.heard and member.whole]
        for member in self.members.values():
            member.away, member.heard = not member.heard, False
        return len(heard) + 1 >= self._seat.majority

    # What members say

    def on_append_reply(self, sender: Address, reply: AppendReply) -> None:
        member = self._met(sender, reply)
        if member is None or reply.index > self._seat.kept.log.last_index:
            return
        if reply.ok:
            member.matched(reply.index)
        elif not member.probing or reply.index + 1 < member.next:
            member.go_back(reply.index + 1)
            self._feed(sender, member, beat=True)
        self._learned(sender, member)

    def on_install_reply(self, sender: Address, reply: InstallReply) -> None:
        member = self._met(sender, reply)
        if member is None:
            return
        installing = member.installing
        if installing is not None and reply.index == installing.index:
            if reply.offset >= len(installing.data):
                member.installing = None
                member.matched(reply.index)
                member.next = max(member.match, reply.index) + 1
            else:
                installing.offset, installing.waits = reply.offset, False
        self._learned(sender, member)

    def on_link_down(self, peer: Address) -> None:
        member = self.members.get(peer)
        if member is not None:
            member.go_back(member.match + 1)

    def _met(self, sender: Address, reply: AppendReply | InstallReply) -> Progress | None:
        """Nothing of what an earlier life said counts once a later one was heard: its disk may be gone."""
        member = self.members[sender]
        if not member.meet(reply.life):
            return None
        member.heard, member.away, member.whole = True, False, reply.whole
        if not reply.whole and not member.upto:
            # All that it may have acknowledged in this term is in the log now; and what was committed in
            # earlier ones is, since this is a leader.
            member.upto = self._seat.kept.log.last_index
            member.vouched_in = self.confirm()
        if reply.whole:
            member.round = max(member.round, min(reply.round, self.round))
        return member

    def _learned(self, sender: Address, member: Progress) -> None:
        self._count()
        self._feed(sender, member, beat=False)

    def _count(self) -> None:
        rounds = sorted((self.round, *(each.round for each in self.members.values())), reverse=True)
        confirmed = rounds[self._seat.majority - 1]
        if confirmed > self.confirmed:
            self.confirmed = confirmed
            self._settled()
        self._advance()

    # The log

    def _put(self, record: bytes) -> int:
        log = self._seat.kept.log
        log.put(log.last_index + 1, (Entry(self.term, record),))
        self._unsaved += 1
        self._pending_bytes += len(record)
        return log.last_index

    def _advance(self) -> None:
        """Only entries of its own term are counted (section 5.4.2); they bring the earlier ones with them.
        What tells of it waits for the disk here, which may be behind."""
        seat = self._seat
        if self._unsaved:
            return
        last = seat.kept.log.last_index
        have = sorted(
            (last, *(each.match if each.whole else 0 for each in self.members.values())), reverse=True
        )
        index = have[seat.majority - 1]
        if index > seat.commit and seat.kept.log.term_at(index) == self.term:
            self._pending_bytes -= seat.kept.log.bytes_between(seat.commit, index)
            seat.commit_upto(index)
            self._settled()

    # To one member

    def _feed(self, to: Address, member: Progress, beat: bool) -> None:
        log, config = self._seat.kept.log, self._seat.config
        sent = False
        if not member.probing and member.next <= log.base and member.installing is None:
            member.installing = Installing(log.base, log.base_term, encode_snapshot(log.snapshot))
        if member.installing is not None:
            sent = self._install(to, member.installing)
        while not member.probing and member.installing is None and member.next <= log.last_index:
            if not member.has_room(config.window_bytes, config.window_messages):
                break
            entries = log.from_(member.next, config.message_bytes)
            self._append(to, member, entries)
            member.sent(len(entries), sum(len(entry.data) for entry in entries))
            sent = True
        if beat and not sent:
            self._append(to, member, ())

    def _append(self, to: Address, member: Progress, entries: tuple[Entry, ...]) -> None:
        log = self._seat.kept.log
        prev = member.next - 1
        prev_term = log.term_at(prev)
        if prev_term is None:  # it needs the snapshot first: this is a sign of life
            prev, prev_term, entries = 0, 0, ()
        vouched = member.life if member.upto and self.confirmed >= member.vouched_in else 0
        self._seat.context.send(
            to,
            AppendEntries(
                self.term, self.round, prev, prev_term, entries, self._seat.commit, vouched, member.upto
            ),
        )

    def _install(self, to: Address, installing: Installing) -> bool:
        if installing.waits:
            return False
        installing.waits = True
        piece = installing.data[installing.offset : installing.offset + self._seat.config.message_bytes]
        self._seat.context.send(
            to,
            InstallSnapshot(
                self.term,
                self.round,
                installing.index,
                installing.term,
                installing.offset,
                len(installing.data),
                piece,
            ),
        )
        return True
