"""Figures of several rounds, and what a process takes."""

import os
from collections.abc import Iterable
from pathlib import Path
from statistics import median

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the rounds."""
    return {name: median(round_[name] for round_ in rounds) for name in rounds[0]}


def resident_mb(pid: int) -> float:
    """Memory of a process that is in use now, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time that processes have taken so far, in user and kernel mode, in seconds."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S
