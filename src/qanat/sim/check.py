"""Checkers: what must never happen, and what must have happened once the network is well again.

A checker knows a protocol from outside: it looks at machines and at what they deliver, and keeps its own
books. It never changes a machine.
"""

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import msgspec

from qanat.kernel import Address

if TYPE_CHECKING:
    from qanat.sim.node import SimNode
    from qanat.sim.world import World


class CheckFailed(Exception):
    """Raised by `Checker.fail`: `explanation` says what was promised and what was found."""

    def __init__(self, checker: str, explanation: str, node: Address | None) -> None:
        super().__init__(explanation)
        self.checker = checker
        self.explanation = explanation
        self.node = node


class Violation(msgspec.Struct, frozen=True):
    """A promise that was broken in a run."""

    checker: str
    time_us: int
    node: str
    explanation: str
    story: tuple[str, ...]
    """The tail of the trace: what led there, oldest first."""


class Checker:
    """Base of all checkers; each hook does nothing until it is overridden, and calls `fail`.

    Hooks run after the machine's step is complete. `on_step` is called only after every `every`-th step
    of the scenario; a checker that overrides it should look at `node` alone, not at all nodes.
    """

    name: ClassVar[str] = ""

    def __init__(self, config: object = None) -> None:
        """A kit's checkers are given its settings; this one needs none."""

    def fail(self, explanation: str, node: Address | None = None) -> NoReturn:
        """Report a broken promise and end the run; without `node` it is blamed on the one that just acted."""
        raise CheckFailed(self.name or type(self).__name__, explanation, node)

    def begin(self, world: "World") -> None:
        """Before the first node starts."""

    def on_step(self, world: "World", node: "SimNode") -> None:
        """A machine has just handled something."""

    def on_deliver(self, world: "World", node: "SimNode", item: Any) -> None:
        """A machine delivered an item to its application."""

    def on_trace(self, world: "World", node: "SimNode", what: str, fields: dict[str, Any]) -> None:
        """A machine traced something."""

    def on_crash(self, world: "World", node: "SimNode") -> None:
        """A node went down; its machine's volatile state is gone."""

    def on_healed(self, world: "World") -> None:
        """All faults have ended; the liveness phase begins."""

    def waiting_for(self, world: "World") -> str | None:
        """Polled in the liveness phase: what is still missing, or None. Still something at the end:
        violation."""
        return None


def by_name(*checkers: type[Checker]) -> dict[str, type[Checker]]:
    """As a kit has them."""
    return {checker.name: checker for checker in checkers}


def overrides(checker: Checker, hook: str) -> bool:
    """Whether a checker does anything in that hook, so that the loop need not call what does nothing."""
    return getattr(type(checker), hook) is not getattr(Checker, hook)
