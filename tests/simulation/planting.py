"""Planted bugs: each takes one rule out of a protocol, and some seed must notice."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.proxy_level import Events, Sending
from qanat.sim import Scenario, Violation, run


def planted(scenario: Scenario, build: Callable[..., Any]) -> Scenario:
    """The scenario with machines that `build` makes instead of the protocol's own."""
    return dataclasses.replace(scenario, kit=dataclasses.replace(scenario.kit, build=build))


def without(scenario: Scenario, *kinds: str) -> Scenario:
    """The scenario as it was before these kinds of faults came to its swarm: a seed found then tells its
    story still."""
    swarm = scenario.swarm
    assert swarm is not None
    assert swarm.kinds is not None
    left = tuple(kind for kind in swarm.kinds if kind not in kinds)
    assert swarm.kinds == (*left, *kinds), "only what was added last leaves earlier draws as they were"
    return dataclasses.replace(scenario, swarm=msgspec.structs.replace(swarm, kinds=left))


def looked_at_by(scenario: Scenario, *checkers: str) -> Scenario:
    """The scenario with these checkers alone: what they notice, others may notice before them."""
    return dataclasses.replace(scenario, check=msgspec.structs.replace(scenario.check, checkers=checkers))


def first_caught(scenario: Scenario, seeds: Iterable[int]) -> tuple[int, tuple[Violation, ...]]:
    """The first seed that notices, and what it noticed. The seed that noticed last time comes before all
    others."""
    known = _NOTED.get(_test())
    seeds = list(seeds)
    before = [known] if known is not None and known in seeds else []
    for seed in (*before, *(seed for seed in seeds if seed != known)):
        violations = run(scenario, seed).violations
        if violations:
            _note(seed)
            return seed, violations
    pytest.fail("the bug went unnoticed")


def _test() -> str:
    return os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].removeprefix("tests/simulation/")


def _note(seed: int) -> None:
    """In a run with `--update-caught`, which has one process."""
    if os.environ.get(UPDATE) == "yes" and _NOTED.get(_test()) != seed:
        _NOTED[_test()] = seed
        CAUGHT.write_text(json.dumps(_NOTED, indent=0, sort_keys=True) + "\n")


CAUGHT, UPDATE = Path(__file__).with_name("caught.json"), "QANAT_TEST_UPDATE_CAUGHT"
_NOTED: dict[str, int] = json.loads(CAUGHT.read_text())
"""Looking for the seed takes longer than all else that the tests of planted bugs do."""


class Falsifies(Sending):
    """Sends other batches than it has: what `falsified` makes of those of each message."""

    def falsified(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        raise NotImplementedError

    def _push(self, stream: int, peer: Address) -> None:
        asked, falsified = self._context, self.falsified

        class Falsifying:
            def __getattr__(self, name: str) -> Any:
                return getattr(asked, name)

            def send(self, to: Address, sent: Any) -> None:
                if isinstance(sent, Events):
                    sent = Events(sent.stream, sent.token, falsified(sent.batches))
                asked.send(to, sent)

        self._context = Falsifying()
        super()._push(stream, peer)
        self._context = asked
