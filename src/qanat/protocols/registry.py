"""What protocols need of a coordinator, and how they ask it.

Protocols do not import `qanat.coordinate`; whoever joins the two rooms hands a session over. Managers are
level-triggered: they do whatever is missing, so a call that was lost is merely made again, and of each kind
one is under way at a time.
"""

from collections.abc import Callable
from typing import Protocol

from qanat.kernel import Part


class Found(Protocol):
    """The answer to a call, as far as it matters here."""

    @property
    def ok(self) -> bool: ...
    @property
    def problem(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def version(self) -> int: ...
    @property
    def children(self) -> tuple[str, ...]: ...


Then = Callable[[Found], None]


class Registry(Protocol):
    """Versioned nodes with watches."""

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool = False) -> None: ...

    def set(self, path: str, data: bytes, version: int, then: Then) -> None: ...

    def delete(self, path: str, version: int, then: Then) -> None: ...

    def get(self, path: str, then: Then, *, watch: bool = False) -> None: ...

    def children(self, path: str, then: Then, *, watch: bool = False) -> None: ...


class CoordinatorSession(Part, Registry):
    """A session with some coordinator; `qanat.coordinate.Session` is one."""

    above: int
    """The owner notes here the highest number of a session that it knows of: the next one will be higher."""

    def leased(self, now_us: int) -> bool:
        raise NotImplementedError

    def start(self) -> None: ...
    def close(self) -> None: ...
    def gone(self, session: int) -> None:
        """That other session's owner is dead: nobody listens where it did."""


class Calls:
    """Those under way, by name. Answers to what was asked before `forget` (in an earlier session, say) are
    dropped."""

    def __init__(self) -> None:
        self._busy: dict[str, None] = {}
        self._round = 0

    def __contains__(self, what: str) -> bool:
        return what in self._busy

    def __len__(self) -> int:
        return len(self._busy)

    def forget(self) -> None:
        self._round += 1
        self._busy = {}

    def once(self, what: str, done: Then) -> Then | None:
        """`done`, to be called when the answer comes; None if that call is under way."""
        if what in self._busy:
            return None
        self._busy[what] = None
        asked_in = self._round

        def then(found: Found) -> None:
            if self._round == asked_in:
                self._busy.pop(what, None)
                done(found)

        return then


def ignore(_: Found) -> None:
    """For calls whose answer another call will tell."""


def make_folders(registry: Registry, path: str) -> None:
    """Every node on the way to `path`, and it; those that exist stay as they are."""
    parts = path.split("/")
    for upto in range(2, len(parts) + 1):
        registry.create("/".join(parts[:upto]), b"", ignore)


def node_name(address: str, incarnation: int) -> str:
    """How one life of a process is called among the children of a node."""
    return f"{address.replace('/', '~')}@{incarnation}"
