"""A protocol's state machine."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from qanat.kernel.address import Address
from qanat.kernel.context import Context
from qanat.kernel.message import Message
from qanat.kernel.parts import Part

M = TypeVar("M", bound=Message)
R = TypeVar("R")


class Machine(Part, Generic[M, R]):
    """Base of every protocol: `M` is the union of its messages, `R` of its local requests.

    `now_us` is the node's monotonic time, on which timers run: it never jumps, and says nothing to another
    node or to the node's next life. A date is `context.wall_us()`. Calls never overlap.
    """

    delivers: tuple[type, ...] | None = None
    """Every type that it delivers to the application, if it is closed: the simulator refuses any other."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        """Called first, once per life; `saved` holds the surviving records of earlier lives, in order."""
        raise NotImplementedError

    def on_message(self, now_us: int, sender: Address, message: M) -> None:
        raise NotImplementedError

    def on_request(self, now_us: int, request: R) -> None:
        """The local application asks for something."""
        raise NotImplementedError

    def on_refused(self, now_us: int, peer: Address) -> None:
        """A new channel to `peer` was refused: nobody listens at its address. Dials of one peer follow each
        other, and each begins after the machine heard of the one before. `on_link_down` is called as
        well."""


Factory = Callable[[Context], Machine[Any, Any]]
"""Makes the machine of one node; called once per life."""
