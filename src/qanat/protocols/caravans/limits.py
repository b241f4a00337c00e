"""What an operator can say of caravans, whatever the log."""

import msgspec


class CaravanLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many readers a log has, and how fast they read."""

    plan_ms: float = 500.0
    """Between two looks at which flows should travel together; also how soon a flow that waits is taken
    along."""
    caravans_max: int = 4
    """Readers of the log at a time, the lead included: the first limit that protects the datastore."""
    caravan_bytes_s: float = 0.0
    """Bytes that one caravan may read a second; 0: no limit."""
    total_bytes_s: float = 0.0
    """Bytes that all caravans together may read a second; 0: no limit. The lead takes its part first."""
    catch_up_least: float = 1.25
    """A trailing caravan reads at least so many times as fast as the lead, or it would never arrive; if the
    limits do not allow it, it waits."""
    catch_up_most: float = 2.0
    """And at most so many times as fast, so that catching up does not burden the datastore; or
    `replay_bytes_s`, where that is more."""
    replay_bytes_s: float = 64e6
    """A trailing caravan may read this fast however slow the lead is: at night the lead reads nothing. 0: the
    paper's rule alone, by which those behind such a lead wait."""
    policy: str = "threshold"
    """Which flows travel together: `threshold` (the paper's), `least-waiting`, or a class of your own,
    `module:Class`."""

    def __post_init__(self) -> None:
        if self.plan_ms <= 0:
            raise ValueError("plan_ms must be above 0")
        if self.caravans_max < 1:
            raise ValueError("caravans_max must be at least 1")
        if min(self.caravan_bytes_s, self.total_bytes_s, self.replay_bytes_s) < 0:
            raise ValueError("limits must not be negative")
        if not 1 <= self.catch_up_least <= self.catch_up_most:
            raise ValueError("catch_up_least lies between 1 and catch_up_most")
