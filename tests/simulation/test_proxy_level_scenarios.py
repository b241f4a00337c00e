"""The Proxy-Level Protocol keeps its promises under every scenario of the house; and broken versions of it
are caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.rotation import share
from tests.simulation.planting import Falsifies, first_caught, planted

from qanat.checks.proxy_level import ProxyLevelScenario, Publishing, build
from qanat.checks.scenarios import load_scenario
from qanat.events.batch import Batch, Kind, stream_id
from qanat.kernel import Address, Factory
from qanat.protocols.proxy_level import (
    Advertisement,
    Expects,
    ProxyLevel,
    Publish,
    Receiving,
    Sending,
    Subscribe,
)
from qanat.sim import Checker, Place, SimNode, World, run
from qanat.sim.faults import Crash, Cut
from qanat.sim.testing import assert_kept

SWARM = "scenarios/proxy_level_swarm.toml"
S = 1_000_000


@pytest.mark.rotating
@pytest.mark.paper("S4", "S5")
@pytest.mark.parametrize("part", range(2))
def test_promises_are_kept_through_swarms_of_faults(part: int) -> None:
    assert_kept(load_scenario(SWARM), share(range(part * 92, part * 92 + 92)))


@pytest.mark.rotating
@pytest.mark.paper("S4", "S5")
def test_promises_are_kept_when_nothing_goes_wrong() -> None:
    assert_kept(load_scenario("scenarios/proxy_level_three.toml"), share(range(17)))


class Routes(Checker):
    """Where streams came from, over time; without a promise."""

    def __init__(self) -> None:
        self.log: list[tuple[int, str, int, str]] = []

    def on_trace(self, world: World, node: SimNode, what: str, fields: dict[str, Any]) -> None:
        if what == "source":
            self.log.append((world.now, node.address, fields["stream"], fields["source"]))

    def at(self, time_s: float, node: str, stream: int) -> str:
        return [s for t, n, st, s in self.log if t <= time_s * S and (n, st) == (node, stream)][-1]


@pytest.mark.paper("S5")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_stream_goes_round_a_dead_link_and_back(seed: int) -> None:
    """Section 5.3: the link between 2 and 3 is out from 19 s to 41 s."""
    scenario, routes = load_scenario("scenarios/proxy_level_cut.toml"), Routes()
    watched = dataclasses.replace(
        scenario,
        kit=dataclasses.replace(
            scenario.kit, checkers={**scenario.kit.checkers, "routes": lambda config: routes}
        ),
        check=msgspec.structs.replace(scenario.check, checkers=(*scenario.check.checkers, "routes")),
    )
    assert run(watched, seed).violations == ()
    for node, other in (("2", "3"), ("3", "2")):
        here, direct, stream = f"{node}/proxy-1", f"{other}/proxy-1", stream_id(f"{other}/stream-1")
        assert routes.at(18.9, here, stream) == direct
        assert routes.at(20.5, here, stream) in ("0/proxy-1", "1/proxy-1")
        assert routes.at(51.0, here, stream) == direct


# Planted bugs: each takes one rule out of the protocol, and some seed must notice.


class FromTheAdvertised(Receiving):
    """Asks from the advertised counter on, not from its own: what lies between is never asked for."""

    def on_advertisement(self, elapsed_us: int, sender: Address, message: Advertisement) -> None:
        asked, counters = self._context, dict(message.counters)

        class Skipping:
            def __getattr__(self, name: str) -> Any:
                return getattr(asked, name)

            def send(self, to: Address, sent: Any) -> None:
                if isinstance(sent, Subscribe):
                    sent = Subscribe(sent.stream, counters[sent.stream], sent.token)
                asked.send(to, sent)

        self._context = Skipping()
        super().on_advertisement(elapsed_us, sender, message)
        self._context = asked


class SeveralSources(Receiving):
    """Keeps what it subscribed to before, and takes whatever comes."""

    def _choose(self, elapsed_us: int, stream: int, expects: Expects, sender: Address, counter: int) -> bool:
        expects.source = None
        return super()._choose(elapsed_us, stream, expects, sender, counter)

    def _subscription(self, sender: Address, message: Any) -> Expects | None:
        return self.expects.get(message.stream)


class AnyoneWillDo(Receiving):
    """The paper's rule alone: also one that is behind ourselves."""

    def _is_of_use(self, stream: int, expects: Expects, sender: Address, counter: int) -> bool:
        return True


class NeverGivesUp(Receiving):
    """The paper's rule alone: a source keeps the stream until another is ahead of what it promised."""

    def on_link_down(self, peer: Address) -> None:
        pass

    def on_tick(self, elapsed_us: int) -> None:
        pass


class SkipsTombstones(Falsifies):
    """Sends only what is still there of the events."""

    def falsified(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        return tuple(b for b in batches if b.kinds is None or b.kind(0) is not Kind.TOMBSTONE)


class Boundless(Sending):
    """Takes everything for acknowledged, so it pushes into a dead link without end."""

    def _push(self, stream: int, peer: Address) -> None:
        endless = 1 << 40
        self._config = msgspec.structs.replace(
            self._config, window_bytes=endless, peer_window_bytes=endless, window_messages=endless
        )
        super()._push(stream, peer)


class ShowsTooEarly(ProxyLevel):
    """Sends its own events before they are durable, and a crash gives their numbers to others."""

    def visible(self, stream: int) -> int:
        return self.history.counter(stream)

    def _publish(self, request: Publish) -> None:
        super()._publish(request)
        history: Any = self.history
        history.read = history._live.read
        self.sending.advanced(request.batch.stream)


@pytest.mark.paper("S4", "S5")
@pytest.mark.parametrize(
    ("bug", "checkers", "words"),
    [
        (FromTheAdvertised, {"one-source"}, "cannot take"),
        (SeveralSources, {"one-source"}, ""),
        (AnyoneWillDo, {"one-source"}, "circle"),
        (NeverGivesUp, {"spreads", "one-source"}, ""),
        (SkipsTombstones, {"one-source"}, "cannot take"),
        (Boundless, {"one-source"}, "in flight"),
        (ShowsTooEarly, {"history"}, "were published"),
    ],
)
def test_a_planted_bug_is_caught(bug: type[Any], checkers: set[str], words: str) -> None:
    half = "receiving_type" if issubclass(bug, Receiving) else "sending_type"
    machine = bug if issubclass(bug, ProxyLevel) else type("Planted", (ProxyLevel,), {half: bug})

    def build_planted(config: ProxyLevelScenario, places: Sequence[Place]) -> Factory:
        return build(config, places, machine)

    scenario = load_scenario(SWARM)
    busy = Publishing(every_ms=20.0, gc_share=0.0, until_s=6.5) if bug is Boundless else scenario.workload
    scenario = dataclasses.replace(
        planted(scenario, build_planted),
        workload=busy,
        time=msgspec.structs.replace(scenario.time, liveness_s=15.0),
        faults=(
            Crash(at_s=2.0, for_s=0.2, pick=2),
            Cut(at_s=1.0, for_s=2.0, isolate=("*",), pick=1),
            Crash(at_s=4.0, for_s=0.2, pick=2),
            Cut(at_s=4.5, for_s=1.2, isolate=("*",), pick=2),
        ),
    )
    _, (worst, *_) = first_caught(scenario, range(40))
    assert worst.checker in checkers, worst.explanation
    assert words in worst.explanation
