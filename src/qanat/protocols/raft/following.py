"""A member that follows: takes what its leader sends, and says how far the two logs are one."""

import msgspec

from qanat.kernel import Address
from qanat.protocols.raft.messages import LEAP_MAX, AppendEntries, AppendReply, InstallReply, InstallSnapshot
from qanat.protocols.raft.records import Beginning, Standing
from qanat.protocols.raft.seat import Seat

encode_snapshot = msgspec.msgpack.Encoder().encode
_decode_snapshot = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


class Following:
    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._installing = (0, 0)
        """Term of the leader and index of the snapshot that comes in pieces."""
        self._pieces = bytearray()

    def forget(self) -> None:
        """The leader is another, or gone: half a snapshot is worth nothing."""
        self._installing, self._pieces = (0, 0), bytearray()

    def on_append(self, sender: Address, message: AppendEntries) -> None:
        seat = self._seat
        matched = self._take(message)
        if matched is None:
            self._reply(sender, message.round, ok=False, index=self._hint(message.prev_index))
            return
        seat.commit_upto(min(message.commit, matched))
        if not seat.kept.whole and message.vouched == seat.life and matched >= message.upto:
            seat.kept.write(seat.context, Standing(whole=True, lost=False))
            seat.context.trace("raft whole", leader=sender, upto=matched)
        self._reply(sender, message.round, ok=True, index=matched)

    def _take(self, message: AppendEntries) -> int | None:
        """Up to where the logs are one now; None if they are not at the place from which it goes on."""
        seat, log = self._seat, self._seat.kept.log
        prev, entries = message.prev_index, message.entries
        upto = prev + len(entries)
        if prev < log.base:  # what the snapshot stands for is committed, so it is the same there
            if upto <= log.base:
                return upto
            entries, prev = entries[log.base - prev :], log.base
        elif log.term_at(prev) != message.prev_term:
            return None
        for number, entry in enumerate(entries):
            index = prev + 1 + number
            if log.term_at(index) != entry.term:
                if index <= seat.commit:  # no leader says so: it is one that lies
                    seat.context.trace("raft contradicted", index=index)
                    return None
                seat.kept.put(seat.context, index, entries[number:])
                break
        return upto

    def _hint(self, prev: int) -> int:
        """From after where to try next: a whole term at a time."""
        log = self._seat.kept.log
        return (
            log.last_index if prev > log.last_index else max(self._seat.commit, log.first_of_term(prev) - 1)
        )

    def _reply(self, sender: Address, round_: int, *, ok: bool, index: int) -> None:
        seat = self._seat
        reply = AppendReply(seat.kept.term, round_, seat.life, seat.kept.whole, ok, index)
        seat.context.send(sender, reply)

    def on_install(self, sender: Address, message: InstallSnapshot) -> None:
        seat = self._seat
        if message.index <= seat.commit:
            offset = message.total  # we have all that it stands for
        else:
            offset = self._piece(message)
        reply = InstallReply(seat.kept.term, message.round, seat.life, seat.kept.whole, message.index, offset)
        seat.context.send(sender, reply)

    def _piece(self, message: InstallSnapshot) -> int:
        too_far = message.index > self._seat.kept.log.last_index + LEAP_MAX
        if too_far or message.total > self._seat.config.snapshot_bytes:
            self._seat.context.trace("raft snapshot refused", index=message.index, bytes=message.total)
            return 0
        if self._installing != (message.term, message.index):
            self._installing, self._pieces = (message.term, message.index), bytearray()
        if message.offset == len(self._pieces):
            self._pieces += message.data
        if len(self._pieces) < message.total:
            return len(self._pieces)
        try:
            records = _decode_snapshot(self._pieces)
        except msgspec.MsgspecError:
            self.forget()
            return 0
        self.forget()
        self._seat.kept.write(self._seat.context, Beginning(message.index, message.index_term, records))
        self._seat.restored()
        return message.total
