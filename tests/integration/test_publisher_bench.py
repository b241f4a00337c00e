"""The processes of the publisher's benchmark and of its study, with little to do: what they count is what was written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qanat.bench import publisher as bench
from qanat.nodes.processes import Worker, workers
from qanat.studies.publishing import RocksWriter, apply
from qanat.studies.w15_replay import plain_mb_per_s, replay, stored
from qanat.studies.w15_subscriber import Pace, climb, take_all

pytestmark = [pytest.mark.timeout(300), pytest.mark.paper("W15")]
ROWS = 3_000


@pytest.fixture(scope="module")
def log() -> Iterator[RocksWriter]:
    with stored(ROWS) as writer:
        yield writer


@pytest.fixture(scope="module")
def sinks() -> Iterator[list[Worker]]:
    with workers(2, apply) as children:
        yield children


def test_all_applications_get_all_from_one_read_beside_one_that_stalls(
    log: RocksWriter, sinks: list[Worker]
) -> None:
    found = replay(log.urls[0], ROWS, sinks, stalled=1)
    assert found.applications == 2 and found.mb_per_s > 0
    assert 2 * ROWS * 1000 / 1e6 < found.sent_mb < 2 * ROWS * 2500 / 1e6
    assert found.read_mb < 1.1 * found.sent_mb, "once for both, and at most once more for the one that stalls"


def test_one_subscriber_takes_what_is_sent_again_and_again(log: RocksWriter, sinks: list[Worker]) -> None:
    assert take_all(log.urls[0], ROWS, sinks[0], 10 * ROWS) > 0
    steps = climb(log.urls[0], ROWS, sinks[0], Pace((10_000.0, 20_000.0), 0.5))
    assert [step.offered for step in steps] == [10_000, 20_000]
    assert all(step.latency_ms > -1 for step in steps)


def test_plain_sockets_carry_to_all() -> None:
    assert plain_mb_per_s(2, 3 << 20) > 0


def test_a_part_that_is_not_there_is_said() -> None:
    with pytest.raises(
        bench.NoPart, match="no part 'nothing'; there are replay, subscriber, latency, isolation"
    ):
        bench.run_only("nothing", 1, print)
