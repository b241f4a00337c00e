"""Settings of a server's caravans, for subscribers that have fallen behind; they also change while it
runs."""

import msgspec

from qanat.events.errors import LocalError
from qanat.protocols.caravans.limits import CaravanLimits
from qanat.protocols.caravans.policy import make_policy
from qanat.runtime.settings import setting

_READ_MOST = 8 << 20
"""Half of the largest frame that clients take."""


class CaravansConfig(CaravanLimits, frozen=True, forbid_unknown_fields=True):
    """Shared readers of a stream's log for subscribers that have fallen behind. Each stream has its own
    caravans; the lead is the live edge."""

    caravans_max: int = 8
    """Most readers of one stream's log at a time, the live edge included. A reader costs little: the log is
    on this node."""
    replay_bytes_s: float = 4e9
    """Speed that a trailing caravan may always read at, as fast as a socket: the log is in the page cache.
    Lower it if the disk is the bottleneck. 0: at most `catch_up_most` times the speed of the live edge, so
    that caravans wait while it is idle."""
    near_bytes: int = 4 << 20
    """Bytes of the log within which subscribers may share a caravan; less than `wake_bytes`, so that one slow
    subscriber does not set the others back."""
    read_bytes: int = 1 << 20
    """Size of one read of a caravan: large enough to be mostly payload, small enough that others get their
    turn."""
    wake_bytes: int = 8 << 20
    """Last bytes read that a caravan keeps: a subscriber that is behind the others by no more than this stays
    in the caravan. Views of the page cache, not copies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.caravans_max < 2:
            raise ValueError(
                "caravans_max must be at least 2: the live edge, and one for subscribers behind it"
            )
        if min(self.near_bytes, self.read_bytes, self.wake_bytes) < 1:
            raise ValueError("near_bytes, read_bytes and wake_bytes must be at least 1")
        if self.read_bytes > _READ_MOST:
            raise ValueError(f"read_bytes must be at most {_READ_MOST}: one read is sent as one frame")
        try:
            make_policy(self.policy, 1)
        except LocalError as error:
            raise ValueError(str(error)) from None


CARAVANS = setting("You can change this section while the server runs.", reload=True)


class CaravanControl:
    """The settings in force at one node: those of its file, an operator's changes, and an operator's
    companies."""

    def __init__(self, config: CaravansConfig | None = None) -> None:
        self._said = config or CaravansConfig()
        self.changes: dict[str, object] = {}
        self.config = self._said
        self.companies: dict[str, tuple[str, ...]] = {}
        """Members by company: a client's name, or `name/subscription`."""
        self._of: dict[str, str] = {}

    def say(self, config: CaravansConfig) -> None:
        """Takes the settings of the file, read again; an operator's changes still override them."""
        self._said = config
        self.change(self.changes)

    @property
    def said(self) -> CaravansConfig:
        return self._said

    def change(self, changes: dict[str, object]) -> None:
        """Applies all changes, or raises and applies none."""
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
                f"{len(companies)} companies need {len(companies) + 2} readers (with the live edge"
                f" and one for all others), and caravans_max allows {most}: raise it, or release a"
                f" company first"
            )
        self.companies = companies
        self._count()

    @property
    def honoured(self) -> list[str]:
        """Companies with a reader; the limit may be lower now than when an operator made them."""
        return list(self.companies)[: self.config.caravans_max - 2]

    def _count(self) -> None:
        self._of = {member: name for name in self.honoured for member in self.companies[name]}

    def company_of(self, client: str, subscription: int) -> str:
        if not self._of:
            return ""
        return self._of.get(f"{client}/{subscription}") or self._of.get(client, "")
