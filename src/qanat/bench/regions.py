"""One stream from the region that owns it to a client in each of three regions; and what a chain of replicas costs."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from qanat.bench import relay
from qanat.bench.broadcast_latency import tick, watch
from qanat.bench.broadcast_roles import consume, produce
from qanat.bench.figures import cpu_s, medians
from qanat.nodes.processes import Worker, workers
from qanat.nodes.region_processes import RegionProcesses, region_processes

DESCRIPTION = "events/s and latency from a client of region A through its chain to clients in A, B and C, every process on its own"

_REGIONS = ("a", "b", "c")
_WIDTH = 10
_EVENTS = 20_000_000
_TICKS = 3_000
_STREAMS = {name: {"owner": "a", "mode": "interval"} for name in ("s", "t")}


def throughput(processes: RegionProcesses, regions: tuple[str, ...]) -> dict[str, float]:
    """Events per second that the slowest client has received, and CPU seconds of all processes per million events."""
    sinks: list[Worker] = []
    with workers(1, produce, processes.url("a"), "s", _WIDTH, _EVENTS, "arrow") as (source,):
        try:
            sinks += [Worker(consume, processes.url(region), "s", "latest") for region in regions]
            for sink in sinks:
                sink.wait()
            for sink in sinks:
                sink.wait()
                sink.tell(_EVENTS)
            os.sync()  # what earlier measurements left for the disk to do is done before this one begins
            clients = [source.pid, *(sink.pid for sink in sinks)]
            proxies = [node.pid for node in processes.nodes.values()]
            before = cpu_s(clients), cpu_s(proxies)
            source.tell("go")
            began: float = source.wait()
            ends: list[float] = [sink.wait() for sink in sinks]
            source.wait()
            spent = cpu_s(clients) - before[0], cpu_s(proxies) - before[1]
        finally:
            for sink in sinks:
                sink.end()
    return {
        "events_per_s": _EVENTS / (max(ends) - began),
        "cpu_s": sum(spent) * 1e6 / _EVENTS,
        "proxies_cpu_s": spent[1] * 1e6 / _EVENTS,
    }


def latencies_ms(processes: RegionProcesses, regions: tuple[str, ...]) -> list[float]:
    """For a client of each region, the median in ms of one event of 100 bytes per ms, from the call of `publish` at A."""
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


def three_regions(note: Callable[[str, float], None]) -> None:
    with region_processes(dict.fromkeys(_REGIONS, 1), _STREAMS) as processes:
        here, there = latencies_ms(processes, ("a", "b"))
        note("latency_ms_head", here)
        note("latency_ms_region", there - here)
        found = throughput(processes, _REGIONS)
        note("events_per_s_3_regions", found["events_per_s"])
        note("cpu_s_per_million_events", found["cpu_s"])
        note("cpu_s_per_million_events_proxies", found["proxies_cpu_s"])
    with region_processes(dict.fromkeys(_REGIONS, 2), _STREAMS) as processes:
        note("events_per_s_3_regions_chain_2", throughput(processes, _REGIONS)["events_per_s"])
    note("relay_events_per_s_3", relay.bytes_per_s(3, _EVENTS * _WIDTH, _WIDTH) / _WIDTH)


def chains(note: Callable[[str, float], None]) -> None:
    for replicas in (1, 2, 3):
        with region_processes({"a": replicas}, _STREAMS) as processes:
            note(f"latency_ms_chain_{replicas}", latencies_ms(processes, ("a",))[0])
            note(f"events_per_s_chain_{replicas}", throughput(processes, ("a",))["events_per_s"])


def one_round(say: Callable[[str], None]) -> dict[str, float]:
    figures: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        figures[name] = value
        say(f"  {name} {value:,.3f}" if value < 100 else f"  {name} {value:,.0f}")

    three_regions(note)
    chains(note)
    note("latency_ms_chain", (figures["latency_ms_chain_3"] - figures["latency_ms_chain_1"]) / 2)
    return figures


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians over the rounds; every round starts regions of its own. Each region's proxy is one replica where the name
    does not say otherwise. `latency_ms_head` is that of a proxy alone; `…_region` and `…_chain` are what another region
    and another replica add to it. `relay_…` are plain sockets through one process to three."""
    results: list[dict[str, Any]] = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        results.append(one_round(say))
    return medians(results)
