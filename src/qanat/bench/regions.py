"""One stream from the region that owns it to a client in each of three regions; and what a chain of replicas
costs."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np

from qanat.bench import relay
from qanat.bench.broadcast_latency import tick, watch
from qanat.bench.broadcast_roles import consume, produce
from qanat.bench.figures import cpu_s, in_turns, medians
from qanat.operate.processes import Worker, workers
from qanat.operate.region_processes import RegionProcesses, region_processes

DESCRIPTION = (
    "events/s and latency from a client of region A through its chain to clients in A, B and C, every process"
    " on its own"
)

_REGIONS = ("a", "b", "c")
_WIDTH = 10
_EVENTS = 8_000_000
_SLICES = 3
"""Of so many events, of each side in a round."""
_TICKS = 3_000
_STREAMS = {name: {"owner": "a", "mode": "interval"} for name in ("s", "t")}


class Throughput:
    """One producer in `a`, a client in each of `regions`; every measurement is of `_EVENTS` events."""

    def __init__(self, processes: RegionProcesses, source: Worker, sinks: list[Worker]) -> None:
        self._source, self._sinks = source, sinks
        self._clients = [source.pid, *(sink.pid for sink in sinks)]
        self._proxies = [node.pid for node in processes.nodes.values()]
        self.clients_cpu_s: list[float] = []
        self.proxies_cpu_s: list[float] = []

    def events_per_s(self) -> float:
        """That the slowest client has received; remembers CPU seconds per million events."""
        os.sync()  # what earlier measurements left for the disk to do is done before this one begins
        before = cpu_s(self._clients), cpu_s(self._proxies)
        for one in (*self._sinks, self._source):
            one.tell(_EVENTS)
        began: float = self._source.wait()
        ends: list[float] = [sink.wait() for sink in self._sinks]
        self._source.wait()
        self.clients_cpu_s.append((cpu_s(self._clients) - before[0]) * 1e6 / _EVENTS)
        self.proxies_cpu_s.append((cpu_s(self._proxies) - before[1]) * 1e6 / _EVENTS)
        return _EVENTS / (max(ends) - began)


@contextmanager
def throughput(processes: RegionProcesses, regions: tuple[str, ...]) -> Iterator[Throughput]:
    sinks: list[Worker] = []
    with workers(1, produce, processes.url("a"), "s", _WIDTH, _EVENTS, "arrow") as (source,):
        try:
            sinks += [Worker(consume, processes.url(region), "s", "latest") for region in regions]
            for sink in sinks:
                sink.wait()
            for sink in sinks:
                sink.wait()
            yield Throughput(processes, source, sinks)
        finally:
            for sink in sinks:
                sink.end()


def rate(processes: RegionProcesses, regions: tuple[str, ...]) -> float:
    with throughput(processes, regions) as measured:
        return median(measured.events_per_s() for _ in range(_SLICES))


def latencies_ms(processes: RegionProcesses, regions: tuple[str, ...]) -> list[float]:
    """For a client of each region, the median in ms of one event of 100 bytes per ms, from the call of
    `publish` at A."""
    sinks: list[Worker] = []
    with workers(1, tick, processes.url("a"), "t", _TICKS, 0.001) as (source,):
        try:
            sinks += [Worker(watch, processes.url(region), "t", 1, _TICKS) for region in regions]
            for sink in sinks:
                sink.wait()
            os.sync()
            source.tell("go")
            return [float(np.median(sink.wait())) / 1e6 for sink in sinks]
        finally:
            for sink in sinks:
                sink.end()


def three_regions(number: int, note: Callable[[str, float], None]) -> None:
    with region_processes(dict.fromkeys(_REGIONS, 1), _STREAMS) as processes:
        here, there = latencies_ms(processes, ("a", "b"))
        note("latency_ms_head", here)
        note("latency_ms_region", there - here)
        with (
            throughput(processes, _REGIONS) as ours,
            relay.relaying(len(_REGIONS), _EVENTS * _WIDTH, _WIDTH) as plain,
        ):
            pair = in_turns(ours.events_per_s, lambda: plain() / _WIDTH, _SLICES, warm=True, first=number)
            note("events_per_s_3_regions", pair.ours)
            note("relay_events_per_s_3", pair.theirs)
            note("relay_ratio_3", pair.ratio)
            proxies = median(ours.proxies_cpu_s)
            note("cpu_s_per_million_events", proxies + median(ours.clients_cpu_s))
            note("cpu_s_per_million_events_proxies", proxies)
    with region_processes(dict.fromkeys(_REGIONS, 2), _STREAMS) as processes:
        note("events_per_s_3_regions_chain_2", rate(processes, _REGIONS))


def chains(note: Callable[[str, float], None]) -> None:
    for replicas in (1, 2, 3):
        with region_processes({"a": replicas}, _STREAMS) as processes:
            note(f"latency_ms_chain_{replicas}", latencies_ms(processes, ("a",))[0])
            note(f"events_per_s_chain_{replicas}", rate(processes, ("a",)))


def one_round(number: int, say: Callable[[str], None]) -> dict[str, float]:
    figures: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        figures[name] = value
        say(f"  {name} {value:,.3f}" if value < 100 else f"  {name} {value:,.0f}")

    three_regions(number, note)
    chains(note)
    note("latency_ms_chain", (figures["latency_ms_chain_3"] - figures["latency_ms_chain_1"]) / 2)
    return figures


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians over the rounds; every round starts regions of its own. Each region's proxy is one replica
    where the name does not say otherwise. `latency_ms_head` is that of a proxy alone; `…_region` and
    `…_chain` are what another region and another replica add to it. `relay_…` are plain sockets through one
    process to three."""
    results: list[dict[str, Any]] = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        results.append(one_round(number, say))
    return medians(results)
