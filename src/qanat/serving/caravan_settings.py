"""What a server of streams can be told of subscribers who have fallen behind, by its file and while it
runs."""

import msgspec

from qanat.events.errors import LocalError
from qanat.protocols.caravans.limits import CaravanLimits
from qanat.protocols.caravans.policy import make_policy
from qanat.runtime.settings import setting

_READ_MOST = 8 << 20
"""Half of the largest frame that clients take."""


class CaravansConfig(CaravanLimits, frozen=True, forbid_unknown_fields=True):
    """Subscribers of a stream who have fallen behind: how many readers of its log they share, and how fast
    these read. Each stream has its own; the lead is the live edge."""

    caravans_max: int = 8
    """Readers of one stream's log at a time, the live edge included. A reader costs little here: the log is
    this node's own."""
    replay_bytes_s: float = 4e9
    """A trailing caravan may read this fast however slow the edge is; as fast as sockets are, for the log
    lies in the page cache. Lower it where the disk is what others wait for. 0: no faster than `catch_up_most`
    times the edge, so that they wait where that stands still."""
    near_bytes: int = 4 << 20
    """Subscribers that are no more than about so much of the log apart may share a caravan; less than
    `wake_bytes`, so that nobody who moves is set back for one who could not keep up."""
    read_bytes: int = 1 << 20
    """One read of a caravan: large enough to be all payload, small enough that others get their turn."""
    wake_bytes: int = 8 << 20
    """What a caravan keeps of what it read last: who is slower than others by no more than this still travels
    with them. Views of the page cache, not copies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.caravans_max < 2:
            raise ValueError("caravans_max must be at least 2: the live edge, and one for those behind it")
        if min(self.near_bytes, self.read_bytes, self.wake_bytes) < 1:
            raise ValueError("near_bytes, read_bytes and wake_bytes must be at least 1")
        if self.read_bytes > _READ_MOST:
            raise ValueError(
                f"read_bytes must be at most {_READ_MOST}: what is read together is sent as one frame"
            )
        try:
            make_policy(self.policy, 1)
        except LocalError as error:
            raise ValueError(str(error)) from None


CARAVANS = setting("Everything here changes while it runs.", reload=True)


class CaravanControl:
    """What counts now at one node: the settings, what an operator changed over them, and whom an operator
    keeps together."""

    def __init__(self, config: CaravansConfig | None = None) -> None:
        self._said = config or CaravansConfig()
        self.changes: dict[str, object] = {}
        self.config = self._said
        self.companies: dict[str, tuple[str, ...]] = {}
        """Members by company: a client's name, or `name/subscription`."""
        self._of: dict[str, str] = {}

    def say(self, config: CaravansConfig) -> None:
        """The file was read again; what an operator changed stands over it."""
        self._said = config
        self.change(self.changes)

    @property
    def said(self) -> CaravansConfig:
        return self._said

    def change(self, changes: dict[str, object]) -> None:
        """Raises what is wrong, and then nothing has changed."""
        try:
            self.config = msgspec.structs.replace(self._said, **changes)
        except (ValueError, TypeError) as error:
            raise LocalError(f"caravans: {error}") from None
        self.changes = dict(changes)
        self._count()

    def keep_together(self, companies: dict[str, tuple[str, ...]]) -> None:
        most = self.config.caravans_max
        if len(companies) > most - 2:
            raise LocalError(
                f"{len(companies)} companies need {len(companies) + 2} readers, with the edge and one for all"
                f" others; allowed are {most}: raise caravans_max, or release a company first"
            )
        self.companies = companies
        self._count()

    @property
    def honoured(self) -> list[str]:
        """Companies for which there are readers; the limit may have been lowered since."""
        return list(self.companies)[: self.config.caravans_max - 2]

    def _count(self) -> None:
        self._of = {member: name for name in self.honoured for member in self.companies[name]}

    def company_of(self, client: str, subscription: int) -> str:
        if not self._of:
            return ""
        return self._of.get(f"{client}/{subscription}") or self._of.get(client, "")
