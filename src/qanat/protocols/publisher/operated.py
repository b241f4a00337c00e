"""What operators decide against the publisher: who travels together, who has which shard, from where flows go
on."""

from collections.abc import Callable, Mapping

from qanat.kernel import Address, Context
from qanat.protocols.caravans.policy import Policy
from qanat.protocols.publisher.balance import Balance
from qanat.protocols.publisher.config import PublisherConfig
from qanat.protocols.publisher.delivering import Delivering
from qanat.protocols.publisher.flows import Flow, Scout, Served, Traveller
from qanat.protocols.publisher.link import Link
from qanat.protocols.publisher.reading import Give, Move
from qanat.protocols.publisher.records import Moved


class Operated(Delivering):
    """What is above it reads the log."""

    def __init__(
        self,
        context: Context,
        config: PublisherConfig,
        *,
        balance: Balance | None = None,
        policies: Mapping[str, Callable[[int], Policy]] | None = None,
        companies: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(context, config, balance=balance, policies=policies)
        self.companies: dict[str, tuple[str, ...]] = dict(companies or {})

    @property
    def honoured(self) -> list[str]:
        """Companies that are kept together: as many as there are readers, less one for all the others."""
        return list(self.companies)[: self.config.caravans_max - 1]

    def _keep_together(self, served: Served) -> None:
        """Whoever is to travel with others from now on gets off."""
        served.company, served.companies = "", {}
        for name in self.honoured:
            for member in self.companies[name]:
                application, slash, shard = member.partition("/")
                if application == served.name and slash:
                    served.companies.setdefault(shard, name)
                elif application == served.name:
                    served.company = served.company or name
        for traveller in served.travellers:
            if traveller.caravan is not None and not traveller.caravan.fits(traveller):
                traveller.caravan.leave(traveller)

    def _give_to(self, request: Give) -> None:
        served = self.served.get(request.application)
        to = None if served is None else served.links.get(Address(request.to))
        if served is None or to is None or not to.wants:
            return
        leaving: dict[Link, list[Flow]] = {}
        free = []
        for shard in request.shards or tuple(served.flows):
            flow = served.flows.get(shard)
            if flow is None or flow.link is to or self._stays(served, flow.part):
                continue
            if flow.link is None and served.awaited:
                continue
            if flow.link is None:
                to.add(flow)
                free.append(flow)
            else:
                leaving.setdefault(flow.link, []).append(flow)
        if free:
            to.notice(free)
        for link, flows in leaving.items():
            self._withdraw(link, flows, to.address)
        self._plan_soon()

    def _move(self, request: Move) -> None:
        served = self.served.get(request.application)
        if served is None:
            return
        chosen = [served.flows[shard] for shard in request.shards or served.flows if shard in served.flows]
        if request.shards and any(
            each.sequence > request.position.sequence for each in served.snapshots.values()
        ):
            return  # one shard alone does not go back to before the snapshot, to get it again on its way
        movers: list[Traveller] = [*chosen] if request.shards else [*chosen, *served.scouts.values()]
        for traveller in movers:
            if traveller.caravan is not None:
                traveller.caravan.leave(traveller)
            traveller.put(request.position, None)  # whatever the log has there
            if isinstance(traveller, Flow):
                traveller.untold = None
            elif isinstance(traveller, Scout):
                traveller.lost = None
        for link in served.links.values():
            link.forget_tokens()  # they would mark what an operator has just undone
            if link.open:
                link.notice(flow for flow in chosen if flow.link is link)
        if not request.shards:
            served.snapshots.clear()
        self._keep(Moved(served.name, request.position, request.shards))
        self._plan_soon()
