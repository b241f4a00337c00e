"""What readers cost and bring: applications spread over a log (Wormhole, Fig. 7), and six live ones of which
one is held up (Fig. 8)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean

import msgspec

from qanat.operate.processes import Worker
from qanat.studies.publishing import Came, Counters, Errand, publisher, publisher_text, rocks_writer
from qanat.studies.w15.replay import VALUE_BYTES


class Tradeoff(msgspec.Struct, frozen=True):
    """One point of Fig. 7."""

    policy: str
    caravans: int
    amplification: float
    """What all caravans read, in logs."""
    latency_s: float
    """From the beginning of the replay until an update was received: mean of the applications' means."""


def spread(
    log: str, rows: int, sinks: Sequence[Worker], policy: str, caravans: int, caravan_bytes_s: float
) -> Tradeoff:
    """As many applications as sinks, the n-th of which has had n/N of the log. Until all are there, hardly
    anything is read."""
    starts = [number * rows // len(sinks) for number in range(len(sinks))]
    names = [
        f'a{number}\nstart = "{f"{start}:0" if start else "earliest"}"' for number, start in enumerate(starts)
    ]
    limits: dict[str, float | str] = {
        "caravans_max": caravans,
        "policy": policy,
        "caravan_bytes_s": 1.0,
        "plan_ms": 100.0,
        "near": rows // 100,
        "read_rows": max(1, rows // 80),
    }
    with (
        tempfile.TemporaryDirectory(prefix="qanat-w15-") as folder,
        publisher(Path(folder), publisher_text(log, names, **limits)) as (url, process),
    ):
        for number, (sink, start) in enumerate(zip(sinks, starts, strict=True)):
            sink.tell(Errand(application=f"a{number}", urls=(url,), updates=rows - start, stays=True))
        while count(process).subscribers < len(sinks):
            time.sleep(0.02)
        process.tell({"caravan_bytes_s": caravan_bytes_s})
        began = time.monotonic()
        came: list[Came] = [sink.wait() for sink in sinks]
        counters = count(process)
        for sink in sinks:
            sink.tell("end")
    log_bytes = rows * counters.sent_bytes / counters.sent_updates
    return Tradeoff(
        policy, caravans, counters.read_bytes / log_bytes, mean(mean_s(one, began) for one in came)
    )


def count(publisher: Worker) -> Counters:
    publisher.tell("counters")
    counters: Counters = publisher.wait()
    return counters


def mean_s(came: Came, began: float) -> float:
    """Of all updates of one application; those that came before count as if they came then."""
    total = sum(count for _, _, count in came.deliveries)
    return sum(max(0.0, at - began) * count for at, _, count in came.deliveries) / total


class Sample(msgspec.Struct, frozen=True):
    """One interval of Fig. 8."""

    at_s: float
    read_mb_s: float
    sent_mb_s: float
    caravans: int

    @property
    def ratio(self) -> float:
        return self.read_mb_s / self.sent_mb_s if self.sent_mb_s else 0.0


class Hiccup(msgspec.Struct, frozen=True):
    """How long Fig. 8 goes on, and when one of its applications is held up."""

    seconds: float
    from_s: float
    for_s: float
    rows_per_s: float = 2_000.0
    window_bytes: int = 1 << 20
    floor_bytes_s: float = 1e5
    """Little, so that who is behind reads twice as fast as the lead, as in the paper, and catches up in about
    as long as it was held up."""
    sample_s: float = 0.1


def hold_up(sinks: Sequence[Worker], hiccup: Hiccup) -> list[Sample]:
    """All sinks are applications of a log that is written at a steady pace."""
    names = [f'a{number}\nstart = "latest"' for number in range(len(sinks))]
    counted: list[Counters] = []
    with (
        tempfile.TemporaryDirectory(prefix="qanat-w15-") as folder,
        rocks_writer(Path(folder, "shop"), value_bytes=VALUE_BYTES) as writer,
    ):
        writer.write(100)
        limits = {
            "window_bytes": hiccup.window_bytes,
            "plan_ms": 100.0,
            "replay_bytes_s": hiccup.floor_bytes_s,
        }
        text = publisher_text(writer.urls[0], names, **limits)
        with publisher(Path(folder, "publisher"), text) as (url, process):
            for number, sink in enumerate(sinks):
                held = hiccup.for_s if number == len(sinks) - 1 else 0.0
                sink.tell(
                    Errand(application=f"a{number}", urls=(url,), stall_after_s=hiccup.from_s, stall_s=held)
                )
            writer.begin(int(hiccup.seconds * hiccup.rows_per_s), hiccup.rows_per_s)
            began = time.monotonic()
            while time.monotonic() - began < hiccup.seconds:
                counted.append(count(process))
                time.sleep(hiccup.sample_s)
            writer.end()
            for sink in sinks:
                sink.tell("end")
                sink.wait()
    return samples(counted, began)


def samples(counted: Sequence[Counters], began: float) -> list[Sample]:
    found = []
    for before, after in pairwise(counted):
        passed = after.at - before.at
        found.append(
            Sample(
                after.at - began,
                (after.read_bytes - before.read_bytes) / passed / 1e6,
                (after.sent_bytes - before.sent_bytes) / passed / 1e6,
                after.caravans,
            )
        )
    return found
