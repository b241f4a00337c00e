"""What an audit has to say: a verdict, each subscriber's sums, the violations, the latencies."""

from typing import Literal, NamedTuple

Outcome = Literal["proven", "refuted", "not proven"]

WORDS = {
    "gap": "was never delivered",
    "not_delivered": "passes the filter and was never delivered",
    "lost": "was lost: the subscriber was told that the stream no longer keeps it",
    "duplicate": "was delivered more than once in one run",
    "out_of_order": "was delivered after a higher number",
    "not_in_archive": "was delivered, and the archive has no such event",
    "filtered_delivered": "was delivered and does not pass the filter",
    "unexplained": "was under a tombstone, and no later event that was delivered collects it",
}
"""Every kind of violation, as the end of a sentence that begins with a sequence number."""


class Violation(NamedTuple):
    """Sequence numbers first..last of one kind, in one run of a subscriber."""

    kind: str
    subscriber: str
    region: str
    stream: str
    where: str
    first: int
    last: int
    run_began_us: int

    def sentence(self) -> str:
        numbers = f"{self.first}" if self.first == self.last else f"{self.first}..{self.last}"
        whose = f"{self.subscriber}" + (f" where {self.where}" if self.where else "")
        return f"{self.stream} {numbers} {WORDS[self.kind]} ({whose})"


class Account(NamedTuple):
    """One subscriber's sums over all of its runs."""

    subscriber: str
    regions: tuple[str, ...]
    stream: str
    where: str
    runs: int
    first: int
    last: int
    """What it covers, all runs together."""
    proven_to: int
    """Up to here the archive has everything; equal to `last` if all is decided. 0 if nothing is."""
    delivered: int
    collected: int
    """Numbers for which tombstones came."""
    repeated: int
    """Delivered again by a later run: a subscriber that went on further back than it was."""
    skipped: int
    """Between runs, by the subscriber's own choice."""
    violations: dict[str, int]


class Report(NamedTuple):
    """The answer."""

    accounts: tuple[Account, ...]
    violations: tuple[Violation, ...]
    """As many as were asked for; the accounts have the numbers of all."""
    not_proven: tuple[str, ...]
    """A sentence for each thing that could not be decided."""
    latency_ms: dict[str, dict[str, float]]
    """By region: p50, p90, p99, p99_9, and how many `events`."""

    @property
    def wrong(self) -> int:
        return sum(sum(account.violations.values()) for account in self.accounts)

    @property
    def outcome(self) -> Outcome:
        if self.wrong:
            return "refuted"
        return "not proven" if self.not_proven else "proven"

    @property
    def delivered(self) -> int:
        return sum(account.delivered for account in self.accounts)

    def as_json(self) -> dict[str, object]:
        return {
            "audit": {"proven": "pass", "refuted": "fail", "not proven": "not proven"}[self.outcome],
            "delivered": self.delivered,
            "violations": self.wrong,
            "subscribers": [account._asdict() for account in self.accounts],
            "violation_list": [violation._asdict() for violation in self.violations],
            "not_proven": list(self.not_proven),
            "latency_ms": self.latency_ms,
        }
