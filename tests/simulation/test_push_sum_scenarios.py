"""Push-sum keeps its promises under every scenario of the house; and broken versions of it are caught."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec
import pytest
from tests.rotation import share
from tests.simulation.planting import first_caught, planted

from qanat.checks.scenarios import load_scenario
from qanat.kernel import Address, Context, Factory
from qanat.protocols.push_sum import Account, Given, Portion, PushSum, PushSumConfig, Taken
from qanat.sim import Place, run
from qanat.sim.faults import Crash
from qanat.sim.testing import assert_kept

LOSSY = "scenarios/push_sum_lossy.toml"


@pytest.mark.rotating
@pytest.mark.paper("M5", "M6")
@pytest.mark.parametrize("part", range(4))
def test_push_sum_keeps_its_promises_on_a_lossy_network(part: int) -> None:
    assert_kept(load_scenario(LOSSY), share(range(part * 50, part * 50 + 50)))


@pytest.mark.rotating
def test_push_sum_keeps_its_promises_through_cuts_at_fixed_times() -> None:
    assert_kept(load_scenario("scenarios/push_sum_cuts.toml"), share(range(20)))


@pytest.mark.paper("M5")
def test_push_sum_converges_among_a_thousand() -> None:
    assert_kept(load_scenario("scenarios/push_sum_large.toml"), [1])


# Planted bugs: each takes one rule out of the protocol, and some seed must notice.


class AddsDuplicates(PushSum):
    """An old portion is added again."""

    def _on_portion(self, sender: Address, message: Portion) -> None:
        account = self.taken.get(sender, Account())
        if message.number <= account.number:
            self.portion += message.value // 10
        super()._on_portion(sender, message)


class LosesWhatIsLost(PushSum):
    """Portions carry the latest share alone, so a lost one is gone."""

    def _send(self, peer: Address) -> None:
        account = self.given[peer]
        last = self._last.get(peer, (0, 0))
        self._last[peer] = (account.value, account.weight)
        share = (account.value - last[0], account.weight - last[1])
        self.context.cast(peer, Portion(account.number, *share))

    def _on_portion(self, sender: Address, message: Portion) -> None:
        had = self.taken.get(sender, Account())
        if message.number > had.number:
            total = (had.value + message.value, had.weight + message.weight)
            self._record(Taken(sender, message.number, *total))

    def __init__(self, context: Context, config: PushSumConfig, everyone: Sequence[Address]) -> None:
        super().__init__(context, config, everyone)
        self._last: dict[Address, tuple[int, int]] = {}


class SendsBeforeItIsWritten(PushSum):
    """The gift leaves first and is recorded after: a crash in between forgets it."""

    def _give(self) -> None:
        peer = self.context.rng.choice(self._peers)
        gift = Given((peer,), self.portion // 2, self.weight // 2)
        self._apply(gift)
        self._send(peer)
        self.context.persist(_encoded(gift))


class StopsEarly(PushSum):
    """Gives up gossiping while values still change."""

    def _give(self) -> None:
        if self._round < 10:
            super()._give()


class KeepsNothing(PushSum):
    """Ignores its journal."""

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        super().on_start(now_us, ())


def _encoded(gift: Given) -> bytes:
    return msgspec.msgpack.encode(gift)


@pytest.mark.parametrize(
    ("machine", "checker"),
    [
        (AddsDuplicates, "mass"),
        (LosesWhatIsLost, "mass"),
        (SendsBeforeItIsWritten, "mass"),
        (KeepsNothing, "mass"),
        (StopsEarly, "converges"),
    ],
)
def test_a_planted_bug_is_caught(machine: type[PushSum], checker: str) -> None:
    def build(config: PushSumConfig, places: Sequence[Place]) -> Factory:
        everyone = [place.address for place in places]
        return lambda context: machine(context, config, everyone)

    scenario = dataclasses.replace(
        planted(load_scenario(LOSSY), build),
        faults=tuple(Crash(at_s=at_s, for_s=0.2, pick=3) for at_s in (1.0, 2.0, 3.0, 4.0, 5.0)),
    )
    seed, (worst, *_) = first_caught(scenario, range(20))
    assert worst.checker == checker
    assert worst.explanation
    assert worst.story
    with pytest.raises(AssertionError, match=f"replay: ./qanat simulate {LOSSY} --seed {seed}"):
        assert_kept(scenario, [seed])


def test_without_a_journal_a_crash_loses_mass_as_the_docstring_says() -> None:
    scenario = load_scenario(LOSSY)
    careless = dataclasses.replace(
        scenario,
        config=PushSumConfig(durable=False),
        faults=(Crash(at_s=2.0, for_s=0.5, pick=1),),
        swarm=None,
    )
    assert {run(careless, seed).violations[0].checker for seed in range(3)} == {"mass"}
    assert run(dataclasses.replace(careless, faults=()), 0).violations == ()


# Determinism across processes

SET_ORDER_BUG = """
import dataclasses, sys
from qanat.protocols.push_sum import PushSum
from qanat.sim import run
from qanat.checks.scenarios import load_scenario

class Unordered(PushSum):
    def _send(self, peer):
        for _ in {peer, "x", "y"}:
            if _ == peer:
                break
            self.context.rng.random()
        super()._send(peer)

scenario = load_scenario(sys.argv[1])
build = lambda config, places: lambda context: Unordered(context, config, [place.address for place in places])
print(run(dataclasses.replace(scenario, kit=dataclasses.replace(scenario.kit, build=build)), 3).trace)
"""


def _in_process(hash_seed: str, *words: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def test_a_seed_has_one_trace_hash_in_every_process() -> None:
    command = ("-m", "qanat", "simulate", LOSSY, "--seed", "3", "--json")
    lines = {_in_process(hash_seed, *command) for hash_seed in ("0", "1", "4242")}
    assert len(lines) == 1
    assert run(load_scenario(LOSSY), 3).trace in lines.pop()


def test_the_order_of_a_set_that_reaches_an_output_shows_in_the_hash() -> None:
    traces = {_in_process(hash_seed, "-c", SET_ORDER_BUG, LOSSY) for hash_seed in ("0", "1", "2", "3")}
    assert len(traces) > 1
