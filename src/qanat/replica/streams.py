"""The streams of a replica, and what of them its clients may have here: publishes at the head, events at the
tail."""

from collections.abc import Mapping

from qanat.events.batch import stream_id
from qanat.events.errors import LocalError
from qanat.log import StreamLog
from qanat.protocols.chain import Placed
from qanat.replica.chained_stream import ChainedStream, Damaged
from qanat.replica.settings import StreamSettings
from qanat.replica.tickets import Tickets
from qanat.serving.caravan_settings import CaravanControl
from qanat.serving.log_history import LogHistory
from qanat.serving.refusals import Declared, NoStream, NotHead, NotTail, OwnedElsewhere

_NOWHERE = Placed(0, "", "", False, False)


class RegionStreams:
    """All streams of the deployment, with this replica's place in its chain."""

    def __init__(
        self,
        region: str,
        history: LogHistory,
        tickets: Tickets,
        damaged: Damaged | None = None,
        caravans: CaravanControl | None = None,
    ) -> None:
        self.region = region
        self.streams: dict[str, ChainedStream] = {}
        self.by_id: Mapping[int, ChainedStream] = {}
        """Those that may be published to: at the head, those of this region."""
        self.all: dict[int, ChainedStream] = {}
        self.place = _NOWHERE
        self.shows = False
        self.waits = ""
        """Why the chain stands still, if it does."""
        """Whether the tail's part is done here now."""
        self._history, self._tickets, self._damaged = history, tickets, damaged
        self.caravans = caravans or CaravanControl()

    def configure(self, configured: Mapping[str, StreamSettings]) -> list[str]:
        """Opens those that are new; says which are to be kept in another way.

        One that is no longer named is kept on disk, and served to nobody.
        """
        for name, settings in configured.items():
            number = stream_id(name)
            present = self.all.get(number)
            if present is not None and present.name != name:
                raise LocalError(f"{name!r} and {present.name!r} have the same identifier; take another name")
            if present is None:
                present = self.all[number] = ChainedStream(
                    name, settings.owner, self._open(number, settings), self._tickets, self._damaged
                )
                present.trailing.control = self.caravans
            self.streams[name] = present
        for name in [name for name in self.streams if name not in configured]:
            stream = self.streams.pop(name)
            stream.end_subscriptions(NoStream(f"stream {name!r} was removed from the deployment"))
            del self.all[stream.log.stream]
        self._follow()
        return [name for name, settings in configured.items() if self.streams[name].log.config != settings]

    def _open(self, number: int, settings: StreamSettings) -> StreamLog:
        """Events of a new stream may have come from a replica that was told of it earlier than this one: they
        lie in a log under default settings. What is stored there counts, so it is not given up for a log in
        memory before a restart."""
        log = self._history.logs.get(number)
        if log is None:
            return self._history.open(number)
        if not isinstance(log.config, StreamSettings) and settings.mode != "memory":
            return self._history.reopen(number)
        return log

    @property
    def owners(self) -> dict[int, str]:
        return {number: stream.owner for number, stream in self.all.items()}

    # --- the place ----------------------------------------------------------------------------------

    def on_placed(self, place: Placed) -> None:
        self.place = place
        self._follow()

    def show(self, shows: bool) -> None:
        """Whether this is the tail and may serve, as the machine says; if not, its listeners are told to look
        elsewhere."""
        if shows == self.shows:
            return
        self.shows = shows
        if not shows:
            for stream in self.streams.values():
                stream.end_subscriptions(self._not_tail())

    def _follow(self) -> None:
        if not self.place.is_tail:
            self.show(False)
        owned = {number: stream for number, stream in self.all.items() if stream.owner == self.region}
        self.by_id = owned if self.place.is_head else {}

    # --- for clients --------------------------------------------------------------------------------

    def missing(self, number: int) -> LocalError:
        stream = self.all.get(number)
        if stream is None:
            return NoStream(self._no_stream(f"number {number:#x}"))
        return self._owned_elsewhere(stream) if stream.owner != self.region else self._not_head()

    def to_publish(self, name: str, create: bool, durability: str) -> ChainedStream:
        stream = self._named(name)
        if stream.owner != self.region:
            raise self._owned_elsewhere(stream)
        if not self.place.is_head:
            raise self._not_head()
        return stream

    def to_read(self, name: str) -> ChainedStream:
        stream = self._named(name)
        if not self.shows:
            raise self._not_tail()
        return stream

    to_look = to_read

    async def order(self, what: str, name: str, settings: bytes) -> None:
        """Streams of a deployment are its file's: every replica of every region has to know of them."""
        raise Declared(
            f"streams of region {self.region!r} stand in the deployment's file, not in one server: `qanat"
            f" stream {what.replace('remove', 'rm')} {name}` on the machine of the deployment changes it"
            " everywhere, as `qanat apply FILE` does"
        )

    def _named(self, name: str) -> ChainedStream:
        stream = self.streams.get(name)
        if stream is None:
            raise NoStream(self._no_stream(repr(name)))
        return stream

    @staticmethod
    def _no_stream(name: str) -> str:
        return (
            f"there is no stream {name}; `qanat stream create` or the deployment's file and `qanat apply`"
            " make it"
        )

    def _owned_elsewhere(self, stream: ChainedStream) -> LocalError:
        return OwnedElsewhere(
            f"stream {stream.name!r} is owned by region {stream.owner!r}, not by {self.region!r}: publish it"
            " there"
        )

    def _not_head(self) -> NotHead:
        where = f"the head is {self.place.head}" if self.place.head else "nobody is known to be"
        return NotHead(f"this replica of {self.region!r} is not the head of its chain; {self.waits or where}")

    def _not_tail(self) -> NotTail:
        if self.place.is_tail:
            return NotTail(
                f"this replica of {self.region!r} is its tail but may not serve now;"
                f" {self.waits or 'ask again'}"
            )
        where = f"the tail is {self.place.tail}" if self.place.tail else "nobody is known to be"
        return NotTail(f"this replica of {self.region!r} is not the tail of its chain; {self.waits or where}")
