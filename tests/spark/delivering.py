"""A subscriber that is there all the time and records what it is given; and the proof of it at the end, by the command."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from tests.integration.feeding import PATIENT

from qanat.cli.main import main
from qanat.client import Client

LONG_S = 300.0


@contextmanager
def recorded(url: str, stream: str, folder: Path) -> Iterator[list[int]]:
    """It reads from the first event on, whatever is killed meanwhile, until it is told by what number to end."""
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
    """What `qanat audit` says; it needs a session in this process."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = main(["audit", str(records), "--archive", str(archive), *AUDIT])
    report: dict[str, Any] = json.loads(out.getvalue())
    assert (code, report["audit"]) == (0, "pass"), report
    return report


def proven(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """By stream: from where to where the reader's deliveries are proven."""
    return {one["stream"]: (one["first"], one["proven_to"]) for one in report["subscribers"]}
