"""The metrics of every process at /metrics."""

import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable

from qanat import __version__
from qanat.runtime.metrics import Metrics

_PAGE = os.sysconf("SC_PAGE_SIZE")


def export_process(metrics: Metrics) -> None:
    """Exports gauges and counters of this process, read on request."""
    began = time.monotonic()

    def usage(
        read: Callable[[resource.struct_rusage], float],
    ) -> Callable[[], list[tuple[tuple[str, ...], float]]]:
        return lambda: [((), read(resource.getrusage(resource.RUSAGE_SELF)))]

    def collections() -> Iterable[tuple[tuple[str, ...], float]]:
        return [((str(number),), float(each["collections"])) for number, each in enumerate(gc.get_stats())]

    python = ".".join(map(str, sys.version_info[:3]))
    metrics.gauge_of(
        "process_info", "Always 1; the labels are the versions of Qanat and Python.", ("version", "python"),
        lambda: [((__version__, python), 1.0)],
    )  # fmt: skip
    metrics.gauge_of(
        "process_uptime_seconds",
        "Seconds since the process started.",
        (),
        lambda: [((), time.monotonic() - began)],
    )
    metrics.counter_of(
        "process_cpu_user_seconds", "Processor time in user mode.", (), usage(lambda u: u.ru_utime)
    )
    metrics.counter_of(
        "process_cpu_system_seconds", "Processor time in the kernel.", (), usage(lambda u: u.ru_stime)
    )
    metrics.gauge_of("process_resident_bytes", "Resident memory.", (), lambda: [((), _resident())])
    metrics.gauge_of(
        "process_resident_peak_bytes",
        "Largest resident memory so far.",
        (),
        usage(lambda u: u.ru_maxrss * 1024),
    )
    metrics.counter_of(
        "process_page_faults", "Page faults that read from disk.", (), usage(lambda u: u.ru_majflt)
    )
    metrics.counter_of(
        "process_switches_waiting",
        "Voluntary context switches.",
        (),
        usage(lambda u: u.ru_nvcsw),
    )
    metrics.counter_of(
        "process_switches_forced",
        "Involuntary context switches.",
        (),
        usage(lambda u: u.ru_nivcsw),
    )
    metrics.gauge_of(
        "process_threads", "Python threads.", (), lambda: [((), float(threading.active_count()))]
    )
    metrics.gauge_of("process_open_files", "Open files and sockets.", (), lambda: [((), _open_files())])
    metrics.counter_of(
        "process_gc_collections",
        "Runs of Python's garbage collector, by generation.",
        ("generation",),
        collections,
    )


def _resident() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(int(file.read().split()[1]) * _PAGE)
    except OSError:
        return 0.0


def _open_files() -> float:
    try:
        return float(len(os.listdir("/proc/self/fd")))
    except OSError:
        return 0.0
