"""Limits of caravans, for every kind of log."""

import msgspec


class CaravanLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of readers of a log, and their speed."""

    plan_ms: float = 500.0
    """Time between two plans of the caravans, and the longest wait of a flow for the next plan."""
    caravans_max: int = 4
    """Most readers of the log at a time, the lead included: the first limit that protects the datastore."""
    caravan_bytes_s: float = 0.0
    """Bytes per second that one caravan may read; 0: no limit."""
    total_bytes_s: float = 0.0
    """Bytes per second that all caravans together may read; 0: no limit. The lead takes its share first."""
    catch_up_least: float = 1.25
    """Least speed of a trailing caravan relative to the lead, so that it catches up; it waits if the limits
    do not allow this speed."""
    catch_up_most: float = 2.0
    """Most speed of a trailing caravan relative to the lead, to protect the datastore; `replay_bytes_s`
    counts instead where it is more."""
    replay_bytes_s: float = 64e6
    """Speed that a trailing caravan may always read at, even if the lead is idle, as at night. 0: the paper's
    rule alone, by which caravans behind an idle lead wait."""
    policy: str = "threshold"
    """Rule that groups flows into caravans: `threshold` (the paper's), `least-waiting`, or your own class,
    `module:Class`."""

    def __post_init__(self) -> None:
        if self.plan_ms <= 0:
            raise ValueError("plan_ms must be above 0")
        if self.caravans_max < 1:
            raise ValueError("caravans_max must be at least 1")
        if min(self.caravan_bytes_s, self.total_bytes_s, self.replay_bytes_s) < 0:
            raise ValueError("limits must not be negative")
        if not 1 <= self.catch_up_least <= self.catch_up_most:
            raise ValueError("catch_up_least must be between 1 and catch_up_most")
