"""What all tests share: Hypothesis profiles, their order, and the markers `server(name)`, `soak` and
`rotating`."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from tests import durations, rotation
from tests.order import Timed, arranged

from qanat_workshop import servers

# No deadlines: timings belong to benchmarks. `ci` draws the same examples each time: a red build stays red.
settings.register_profile("dev", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if servers.in_ci() else "dev"))


MANY = 1_000
"""A run of fewer tests is of chosen ones, which take no turns."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-damage", action="store_true", help="write docs/damage.md by what happens now")
    parser.addoption(
        "--soak", action="store_true", help="run the tests marked soak or rotating, and only them"
    )
    parser.addoption("--update-durations", action="store_true", help="note how long the tests take")
    parser.addoption("--update-transcripts", action="store_true", help="write down what machines say now")
    parser.addoption("--update-caught", action="store_true", help="note which seeds catch planted bugs")


def pytest_configure(config: pytest.Config) -> None:
    _hear_interrupts()
    rotation.begin(whole=config.getoption("--soak"))
    if config.getoption("--update-caught"):
        os.environ["QANAT_TEST_UPDATE_CAUGHT"] = "yes"


def _hear_interrupts() -> None:
    """A shell starts what runs in its background with Ctrl-C ignored, and every process below would inherit
    that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return (
        f"turn: {'all' if rotation.whole() else rotation.turn()} ({rotation.TURN}={rotation.turn()} takes the"
        " same seeds again)"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    took = durations.read()
    # Of a whole run alone: a test that somebody asks for by name is run.
    turns = rotation.turns_of_long(took) if len(items) >= MANY and not config.option.update_durations else {}
    soak = config.getoption("--soak")
    wanted = [_is_wanted(item, turns, soak=soak) for item in items]
    left_out = [item for item, is_wanted in zip(items, wanted, strict=True) if not is_wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item, is_wanted in zip(items, wanted, strict=True) if is_wanted]
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes > 1:
        tests = [Timed(_group(item), took.get(item.nodeid, 0.0)) for item in items]
        items[:] = [items[i] for i in arranged(tests, processes)]


def _is_wanted(item: pytest.Item, turns: Mapping[str, int], *, soak: bool) -> bool:
    if soak:
        rotating = item.get_closest_marker("rotating") is not None or item.nodeid in turns
        return rotating or item.get_closest_marker("soak") is not None
    if item.get_closest_marker("soak") is not None:
        return False
    if item.get_closest_marker("always") is not None:
        return True
    return turns.get(item.nodeid, rotation.turn() % rotation.OF) == rotation.turn() % rotation.OF


def _group(item: pytest.Item) -> str:
    """What shares a Spark, or servers of its file."""
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    path = item.nodeid.partition("::")[0]
    return path if {"integration", "spark", "simulation"} & set(path.split("/")) else ""


_took: dict[str, float] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _took[report.nodeid] = _took.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.update_durations and "PYTEST_XDIST_WORKER" not in os.environ:
        durations.update(_took)


def pytest_collection_finish() -> None:
    """What was collected stays: Python need not look for garbage among thousands of tests again and again,
    nor so often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("server"):
        (name,) = mark.args
        if name not in servers.SERVERS:
            pytest.fail(f"there is no server {name!r} in qanat_workshop.servers.SERVERS", pytrace=False)
        reason = servers.why_missing(name)
        if reason is not None:
            (pytest.fail if servers.in_ci() else pytest.skip)(reason)
