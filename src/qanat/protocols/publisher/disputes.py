"""Who stands still because the log is of another history than the one that it had.

To go on would pass over updates in silence, and no range that is lost can be told: what was told before may
have been undone, and from where on nobody knows. Another copy may have the history that was told; or this one
is what counts from now on. An operator knows, and the publisher does not: so it waits, says what disagrees,
and looks again now and then. Others who come by the same place by this history are not held up.
"""

from collections.abc import Iterable

from qanat.kernel import Context
from qanat.protocols.publisher.flows import Caravan, Served
from qanat.protocols.publisher.reading import WasOther

DISPUTES = "disputes"
AGAIN_US = 2_000_000
"""Until it is looked again whether the log has what was read before: another may have been put in its place.
Costs a connection each time."""


class Disputes:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting = False
        self.count = 0
        """How often somebody was found to stand in another history."""

    def stand_still(self, caravan: Caravan, found: WasOther) -> None:
        """Whoever came to its place by that history gets off."""
        for one in [one for one in caravan.travellers if one.seen == found.seen]:
            caravan.leave(one)
            one.disputed = True
            one.served.dispute = found.reason
            self.count += 1
        if caravan.seen == found.seen:
            caravan.seen = None
        if not self._waiting:
            self._waiting = True
            self._context.set_timer(DISPUTES, AGAIN_US)

    def look_again(self, applications: Iterable[Served]) -> None:
        """An application of which nobody was found so since the last time has no dispute any more."""
        self._waiting = False
        for served in applications:
            disputed = [one for one in served.travellers if one.disputed]
            for one in disputed:
                one.disputed = False
            if not disputed:
                served.dispute = ""
            self._waiting |= bool(served.dispute)
        if self._waiting:
            self._context.set_timer(DISPUTES, AGAIN_US)
