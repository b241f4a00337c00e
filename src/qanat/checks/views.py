"""Region membership under the simulator: joins, departures and deaths, and the kit."""

from collections.abc import Callable, Sequence

from qanat.checks.views_checkers import PROXY, BoundedViews, Connected, DeadVanish, EvenInDegrees
from qanat.kernel import Address, Context, Factory
from qanat.protocols.views import Leave, Views, ViewsConfig
from qanat.sim import Place, ProtocolKit, SimNode, Workload, World, by_name
from qanat.sim.units import MS, S


class Churn(Workload, frozen=True, tag="churn"):
    """Clients that join late, clients that leave, and clients that die and do not return."""

    joins: float = 0.2
    """Share of the clients that join only after the start, at random times until `until_s`."""
    leaves: float = 0.05
    """Share of the clients that stop taking part."""
    deaths: float = 0.05
    """Share of the clients that crash for good."""
    until_s: float = 5.0

    def __post_init__(self) -> None:
        shares = (self.joins, self.leaves, self.deaths)
        if min(shares) < 0 or sum(shares) > 1 or self.until_s <= 0:
            raise ValueError("joins, leaves and deaths are shares of at most 1 in all; until_s is above 0")

    def start(self, world: World) -> None:
        clients = [node for node in world.node_list if node.group != PROXY]
        rng = world.workload_rng
        until_us = round(self.until_s * S)
        joins, leaves, deaths = (
            round(share * len(clients)) for share in (self.joins, self.leaves, self.deaths)
        )
        chosen = rng.sample(clients, min(len(clients), joins + leaves + deaths))
        for node in chosen[:joins]:
            world.at(0, world.crash, node)
            world.at(rng.randrange(until_us) + 1, node.restart)
        for node in chosen[joins : joins + leaves]:
            world.at(rng.randrange(until_us) + 1, node.request, Leave())
        for node in chosen[joins + leaves :]:
            world.at(rng.randrange(until_us) + 1, _stay_dead, world, node)


def _stay_dead(world: World, node: SimNode) -> None:
    """Whatever boots it again (the end of a fault, healing) finds that it dies again."""
    if node.up:
        world.crash(node)
    world.after(100 * MS, _stay_dead, world, node)


def proxies(places: Sequence[Place]) -> Callable[[Address], Address]:
    """Finds the proxy of a node's region."""
    first: dict[str, Address] = {}
    region = {place.address: place.region for place in places}
    for place in places:
        if place.group == PROXY:
            first.setdefault(place.region, place.address)
    return lambda address: first[region[address]]


def build(config: ViewsConfig, places: Sequence[Place]) -> Factory:
    proxy_of = proxies(places)

    def factory(context: Context) -> Views:
        return Views(context, config, proxy_of(context.address))

    return factory


KIT = ProtocolKit(
    name="views",
    config=ViewsConfig,
    build=build,
    checkers=by_name(BoundedViews, DeadVanish, Connected, EvenInDegrees),
    workloads=(Churn,),
)
