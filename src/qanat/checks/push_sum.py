"""Push-sum under the simulator: its promises, and a workload of changing values."""

from collections.abc import Sequence
from typing import Any

from qanat.kernel import Address, Context, Factory
from qanat.protocols.push_sum import VALUE_UNITS, WEIGHT_UNITS, Account, PushSum, PushSumConfig, SetValue
from qanat.sim import Checker, Place, ProtocolKit, SimNode, Workload, World, by_name
from qanat.sim.units import S

_MODULUS = 1 << 63
NOTHING = Account()
GIFTS_KEPT = 4096
"""Gifts remembered per pair: a taker that crashes falls back to what it had synced, never this far."""


class MassIsConserved(Checker):
    """No portion and no weight is lost or made, wherever it is: at a node, given, or taken.

    Two books are kept. At each node: what it holds, plus all it gave, minus all it took, is its own value
    and a weight of one. Between two nodes: what one took up to gift number k is exactly what the other
    gave up to k; so what is in flight is the difference, and nothing else. (Looked at only every so many
    steps, gifts between two looks are compared by number alone.)
    """

    name = "mass"

    def __init__(self, config: PushSumConfig) -> None:
        self._gifts: dict[tuple[Address, Address], dict[int, tuple[int, int]]] = {}

    def on_step(self, world: World, node: SimNode) -> None:
        if not node.up:
            return
        machine = _machine(node)
        self._check_node(node, machine)
        for peer, account in machine.given.items():
            gifts = self._gifts.setdefault((node.address, peer), {})
            gifts[account.number] = (account.value, account.weight)
            if len(gifts) > GIFTS_KEPT:
                del gifts[min(gifts)]
        for peer in machine.taken:
            self._check_pair(world, machine, node.address, peer)

    def on_healed(self, world: World) -> None:
        """Once, the sum over the whole world: held everywhere, plus in flight on every pair."""
        nodes = [node for node in world.node_list if node.up]
        if len(nodes) < len(world.node_list):
            return
        held = in_flight = weight = 0
        for node in nodes:
            machine = _machine(node)
            held += machine.portion - machine.own
            weight += machine.weight - WEIGHT_UNITS
            for peer, account in machine.given.items():
                taken = _machine(world.nodes[peer]).taken.get(node.address, NOTHING)
                in_flight += account.value - taken.value
                weight += account.weight - taken.weight
        if (held + in_flight) % _MODULUS or weight % _MODULUS:
            self.fail(
                f"mass is not conserved: {held + in_flight} units of value, {weight} of weight too many"
            )

    def _check_node(self, node: SimNode, machine: PushSum) -> None:
        value = machine.portion + sum(each.value for each in machine.given.values())
        value -= machine.own + sum(each.value for each in machine.taken.values())
        weight = machine.weight + sum(each.weight for each in machine.given.values())
        weight -= WEIGHT_UNITS + sum(each.weight for each in machine.taken.values())
        if value % _MODULUS or weight % _MODULUS:
            self.fail(
                f"its books do not balance: {value} units of value and {weight} of weight too many",
                node.address,
            )

    def _check_pair(self, world: World, machine: PushSum, taker: Address, giver: Address) -> None:
        account = machine.taken[giver]
        other = world.nodes[giver]
        if other.up and account.number > _machine(other).given.get(taker, NOTHING).number:
            self.fail(f"it took gift {account.number} from {giver}, which {giver} never gave", taker)
        gave = self._gifts.get((giver, taker), {}).get(account.number)
        if gave is not None and gave != (account.value, account.weight):
            took = (account.value, account.weight)
            self.fail(f"up to gift {account.number} it took {took} from {giver}, which gave {gave}", taker)


class Converges(Checker):
    """Once the network is well and values rest, every estimate comes to the true average."""

    name = "converges"
    within = 1e-4
    """Relative to the larger of the average and 1: what a rate limiter could never notice."""

    def waiting_for(self, world: World) -> str | None:
        down = [node.address for node in world.node_list if not node.up]
        if down:
            return f"{down[0]} is down"
        machines = [_machine(node) for node in world.node_list]
        average = sum(machine.own for machine in machines) / VALUE_UNITS / len(machines)
        allowed = self.within * max(1.0, abs(average))
        for node, machine in zip(world.node_list, machines, strict=True):
            if abs(machine.average - average) > allowed:
                return f"{node.address} estimates {machine.average:.6g}, the average is {average:.6g}"
        return None


class Values(Workload, frozen=True, tag="values"):
    """Each node gets a random value at the start; then a random node's value changes now and then."""

    low: float = 0.0
    high: float = 1000.0
    change_every_s: float = 1.0
    until_s: float = 10.0
    """No change after this, so that there is a truth to converge to."""

    def __post_init__(self) -> None:
        if self.change_every_s <= 0 or self.high < self.low:
            raise ValueError("change_every_s must be above 0, and high not below low")

    def start(self, world: World) -> None:
        for node in world.node_list:
            world.after(1, node.request, self._draw(world))
        at_s = self.change_every_s
        while at_s <= self.until_s:
            node = world.workload_rng.choice(world.node_list)
            world.at(round(at_s * S), node.request, self._draw(world))
            at_s += self.change_every_s

    def _draw(self, world: World) -> SetValue:
        return SetValue(round(world.workload_rng.uniform(self.low, self.high), 3))


def build(config: PushSumConfig, places: Sequence[Place]) -> Factory:
    everyone = [place.address for place in places]

    def factory(context: Context) -> PushSum:
        return PushSum(context, config, everyone)

    return factory


def _machine(node: SimNode) -> PushSum:
    machine: Any = node.machine
    if not isinstance(machine, PushSum):
        raise TypeError(f"{node.address} runs {type(machine).__name__}, not push-sum")
    return machine


KIT = ProtocolKit(
    name="push-sum",
    config=PushSumConfig,
    build=build,
    checkers=by_name(MassIsConserved, Converges),
    workloads=(Values,),
)
