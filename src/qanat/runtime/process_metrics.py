"""What any process of the house tells of itself at /metrics."""

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
    """Gauges and counters of this process, read when somebody asks."""
    began = time.monotonic()

    def usage(
        read: Callable[[resource.struct_rusage], float],
    ) -> Callable[[], list[tuple[tuple[str, ...], float]]]:
        return lambda: [((), read(resource.getrusage(resource.RUSAGE_SELF)))]

    def collections() -> Iterable[tuple[tuple[str, ...], float]]:
        return [((str(number),), float(each["collections"])) for number, each in enumerate(gc.get_stats())]

    python = ".".join(map(str, sys.version_info[:3]))
    metrics.gauge_of(
        "process_info", "1, with the versions of Qanat and Python.", ("version", "python"),
        lambda: [((__version__, python), 1.0)],
    )  # fmt: skip
    metrics.gauge_of(
        "process_uptime_seconds", "Since it was started.", (), lambda: [((), time.monotonic() - began)]
    )
    metrics.counter_of(
        "process_cpu_user_seconds", "Processor time in the program itself.", (), usage(lambda u: u.ru_utime)
    )
    metrics.counter_of(
        "process_cpu_system_seconds", "Processor time in the kernel for it.", (), usage(lambda u: u.ru_stime)
    )
    metrics.gauge_of("process_resident_bytes", "Memory that it has now.", (), lambda: [((), _resident())])
    metrics.gauge_of(
        "process_resident_peak_bytes", "The most that it ever had.", (), usage(lambda u: u.ru_maxrss * 1024)
    )
    metrics.counter_of(
        "process_page_faults", "Pages that had to be read from disk.", (), usage(lambda u: u.ru_majflt)
    )
    metrics.counter_of(
        "process_switches_waiting",
        "Times that it gave up the processor to wait.",
        (),
        usage(lambda u: u.ru_nvcsw),
    )
    metrics.counter_of(
        "process_switches_forced",
        "Times that the processor was taken from it.",
        (),
        usage(lambda u: u.ru_nivcsw),
    )
    metrics.gauge_of(
        "process_threads", "Threads of Python.", (), lambda: [((), float(threading.active_count()))]
    )
    metrics.gauge_of("process_open_files", "Files and sockets.", (), lambda: [((), _open_files())])
    metrics.counter_of(
        "process_gc_collections", "Runs of Python's collector, by generation.", ("generation",), collections
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
