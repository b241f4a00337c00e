"""Applications that begin with the rows as they are: readers of tables, and who travels with them.

The place where the log is when an application begins is the snapshot's. First all rows are read, each as it
is when it is read, then the log from that place on. A row that changed in between is as it was later for a
while, until the log has caught up with it: then everything is as in the datastore. So it does no harm to read
rows again, and nothing need be locked or remembered.

Rows have positions of their own, just before the log's next one (`tables.Snapshot`), so that flows, scouts
and datamarkers need not know. They are read by a caravan of its own for each part of an application, which
goes as fast as the slowest of that application's subscribers: who would get off would need rows again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from qanat.events.position import Position
from qanat.kernel import Context
from qanat.protocols.caravans.pace import Meter
from qanat.protocols.publisher.flows import Caravan, Served, Traveller
from qanat.protocols.publisher.reading import CloseLog, ReadTables
from qanat.protocols.publisher.tables import Snapshot


class TableCaravan(Caravan):
    """One reader of tables, for one part of an application."""

    __slots__ = ("anew", "part", "served", "snapshot")

    def __init__(self, number: int, at: Position, served: Served, part: int, snapshot: Snapshot) -> None:
        super().__init__(number, at, f"{served.name!r} begins with the rows as they are")
        self.served, self.part, self.snapshot = served, part, snapshot
        self.anew = True
        """Its reader is not where it was, or has not begun."""

    @property
    def done(self) -> bool:
        return self.at >= self.snapshot.end

    def ask(self) -> ReadTables:
        """What is read must have higher numbers than anything that anybody has had."""
        beyond = self.at.index
        if self.anew:
            self.anew = False
            mine = [one for one in self.served.travellers if one.part == self.part]
            beyond = max([beyond, *(one.position.index for one in mine if self.snapshot.holds(one.position))])
        return ReadTables(self.served.name, self.part, self.snapshot, beyond)

    def fits(self, traveller: Traveller) -> bool:
        return traveller.reads_tables

    def stuck(self) -> Sequence[Traveller] | None:
        """All are waited for."""
        waits = any(not riders.link.takes for riders in self.riders.values())
        return None if waits or not all(scout.active for scout in self.scouts) else ()

    def turn(self, to: Position) -> None:
        super().turn(to)
        self.anew = True


class TablePace(Meter):
    """How fast tables are read: as who is far behind in the log, all of them together within the total. They
    have no lead: without `replay_bytes_s` the other limits are all there is."""

    def share(self, caravans: Mapping[int, TableCaravan]) -> None:
        config = self.config
        total = (config.total_bytes_s or math.inf) / max(1, len(caravans))
        most = min(config.replay_bytes_s or math.inf, config.caravan_bytes_s or math.inf, total)
        self._allowed = dict.fromkeys(caravans, most)
        self._buckets = {number: self._buckets[number] for number in self._buckets if number in caravans}


class Snapshots:
    """All of a publisher. Their numbers are below 0: no reader of the log has those."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.all: dict[int, TableCaravan] = {}
        self._next = -1
        self.begun = self.turns = 0

    def arrange(self, waiting: Iterable[Traveller]) -> None:
        """Everybody into the caravan of its part; that goes back to the last."""
        groups: dict[Snapshot, list[Traveller]] = {}
        for traveller in waiting:
            groups.setdefault(traveller.served.snapshots[traveller.part], []).append(traveller)
        for snapshot, some in groups.items():
            start = min(one.position for one in some)
            caravan = next((one for one in self.all.values() if one.snapshot == snapshot), None)
            if caravan is None:
                caravan = TableCaravan(self._next, start, some[0].served, some[0].part, snapshot)
                self.all[self._next] = caravan
                self._next -= 1
                self.begun += 1
            elif start < caravan.at:
                caravan.turn(start)
                self.turns += 1
            for one in some:
                caravan.take(one)
        for caravan in [one for one in self.all.values() if one.empty]:
            self.close(caravan)

    def finish(self, caravan: TableCaravan) -> None:
        """All rows were read: the log goes on."""
        for traveller in list(caravan.travellers):
            caravan.leave(traveller)
        self.close(caravan)

    def close(self, caravan: TableCaravan) -> None:
        del self.all[caravan.number]
        self._context.deliver(CloseLog(caravan.number))
