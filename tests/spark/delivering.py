"""A subscriber that is there all the time and records what it is given; and the proof of it at the end, by
the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.feeding import PATIENT
from tests.spark.class_archive import quick_java

from qanat.client import Client

LONG_S = 300.0


@contextmanager
def recorded(url: str, stream: str, folder: Path) -> Iterator[list[int]]:
    """It reads from the first event on, whatever is killed meanwhile, until it is told by what number to
    end."""
    ends: list[int] = []
    failed: list[BaseException] = []

    def read() -> None:
        try:
            with (
                Client(url, name="reader", record=folder, settings=PATIENT) as client,
                client.subscribe(stream, start="earliest") as reading,
            ):
                while not ends or reading.next < ends[0]:
                    reading.take(timeout_s=0.2)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield ends
        thread.join(LONG_S)
        assert not failed and not thread.is_alive(), failed
    finally:
        ends.append(0)


AUDIT = ("--complete", "--json")


def audited(records: Path, archive: Path) -> dict[str, Any]:
    """What `qanat audit` says, on a Spark of its own: tests that start and kill processes need not wait for
    those of the session that is shared."""
    words = ["audit", str(records), "--archive", str(archive), *AUDIT]
    done = subprocess.run(
        [sys.executable, "-m", "qanat", *words],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
        env=os.environ | {"JDK_JAVA_OPTIONS": quick_java(), "QANAT_MASTER": "local[2]"},
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["audit"] == "pass", report
    return report


def proven(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """By stream: from where to where the reader's deliveries are proven."""
    return {one["stream"]: (one["first"], one["proven_to"]) for one in report["subscribers"]}
