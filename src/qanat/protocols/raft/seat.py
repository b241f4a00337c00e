"""What all parts of a member share."""

from collections.abc import Sequence

from qanat.kernel import Address, Context, Message, require
from qanat.protocols.raft.config import RaftConfig
from qanat.protocols.raft.log import Fold
from qanat.protocols.raft.records import Beginning, Kept


class Seat:
    """A member's place in its ensemble: who the others are, what it keeps, and how far all is committed."""

    def __init__(
        self, context: Context, config: RaftConfig, members: Sequence[Address], fold: Fold, life: int
    ) -> None:
        require(context.address in members, f"{context.address} is not among the members {list(members)}")
        # Two that forgot would have to be told apart from two that never were: with three, the one who votes
        # and the one who leads are all others.
        require(len(set(members)) in (1, 3), "an ensemble has one member or three")
        self.context, self.config, self.life = context, config, life
        self.others = tuple(sorted(each for each in members if each != context.address))
        self.majority = len(members) // 2 + 1
        self.kept = Kept()
        self.commit = 0
        self._fold = fold
        self._since_fold = 0

    def send_all(self, message: Message) -> None:
        for other in self.others:
            self.context.send(other, message)

    def commit_upto(self, index: int) -> bool:
        """True if there is more than before. Folds the log if it has grown by enough: what is committed,
        nobody changes."""
        log = self.kept.log
        if index <= self.commit:
            return False
        self._since_fold += log.bytes_between(max(self.commit, log.base), index)
        self.commit = index
        if self._since_fold > max(self.config.log_bytes, log.snapshot_bytes):
            self._since_fold = 0
            term = log.term_at(index)
            require(term is not None, f"entry {index} was committed, and is not there")
            self.kept.write(self.context, Beginning(index, term or 0, tuple(self._fold(log.records(index)))))
        return True

    def restored(self) -> None:
        """The log has another beginning, which is committed."""
        self.commit = max(self.commit, self.kept.log.base)
