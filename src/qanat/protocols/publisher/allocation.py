"""The caravans of a publisher: as all caravans are, with a reader of the datastore's log each."""

from qanat.kernel import Context
from qanat.protocols.caravans import allocation
from qanat.protocols.publisher.flows import Caravan, Traveller
from qanat.protocols.publisher.reading import CloseLog


class Caravans(allocation.Caravans[Traveller, Caravan]):
    def __init__(self, context: Context) -> None:
        super().__init__(Caravan)
        self._context = context

    def closed(self, caravan: Caravan) -> None:
        self._context.deliver(CloseLog(caravan.number))
