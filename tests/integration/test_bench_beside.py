"""A round of `qanat bench broadcast --beside` in small, with the real servers; and what is left when it is
interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import wait_until

from qanat.bench import beside as peers
from qanat.bench import redis
from qanat.bench.broadcast import Ours
from qanat.bench.ways import only_tcp
from qanat.cli import beside
from qanat_workshop.servers import in_ci

SMALL = peers.Sizes(small=2_000, large=500, ticks=50, slices=1)
FIGURES = [
    "events_per_s_10b_1", "ratio_10b_1", "mb_per_s_500b_8", "ratio_500b_8",
    "latency_ms_p50", "ratio_latency_p50", "latency_ms_p99", "ratio_latency_p99",
]  # fmt: skip
WAITING = """
import sys, time
from qanat.bench import redis
from qanat.cli.beside import ending_in_order
with ending_in_order(), redis.running() as server:
    print(server.port, flush=True)
    time.sleep(600)
"""


def small_round(name: str) -> dict[str, float]:
    found: dict[str, float] = {}
    with only_tcp():
        peers.one_round(name, Ours(), 0, found.__setitem__, SMALL, SMALL, consumers=2)
    return found


@pytest.mark.slow
@pytest.mark.server("redis")
def test_a_round_beside_redis() -> None:
    found = small_round("redis")
    assert list(found) == [f"redis_{name}" for name in FIGURES]
    assert all(value > 0 for value in found.values())


@pytest.mark.soak
def test_a_round_beside_kafka() -> None:
    """Its jars are fetched once; it takes half a minute, most of which Java needs to start."""
    why = beside.ready(["kafka"], print)["kafka"]
    if why is not None:
        (pytest.fail if in_ci() else pytest.skip)(why)
    found = small_round("kafka")
    assert list(found) == [f"kafka_{name}" for name in FIGURES]
    assert all(value > 0 for value in found.values())


@pytest.mark.server("redis")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_nothing_is_left_of_a_peer_that_was_interrupted(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    with process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert [path.name.startswith("qanat-redis-") for path in tmp_path.iterdir()] == [True]
        process.send_signal(number)
        assert process.wait(60) == code
    assert list(tmp_path.iterdir()) == []
    assert not redis.answers(port)


@pytest.mark.server("redis")
@pytest.mark.skipif(not Path("/usr/bin/setpriv").exists(), reason="no program that asks the kernel for it")
def test_a_peer_ends_with_whoever_started_it_and_was_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WAITING]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        process.kill()
    wait_until(lambda: not redis.answers(port))
