"""Follows record files in processes of its own, to be killed: one line of JSON on standard input starts one,
whose number is printed.

Each writes the position and the number of every record that it reads to a file, until it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import pyarrow as pa

from qanat.capture import Lost
from qanat.capture.files import reader as _reader  # noqa: F401  # loaded before the first fork
from qanat.capture.url import open_reader
from qanat.events.position import Position

pa.array([b""])  # which loads what each child would load for itself at its first array


def follow(url: str, name: str, start: str, path: str, limit: int) -> None:
    out = os.open(path, os.O_WRONLY | os.O_APPEND)
    log = open_reader(url, format=name, settle_s=0.05)
    log.seek(Position.parse(start) if start else "earliest")
    while True:
        answer = log.read(limit, 60)
        if isinstance(answer, Lost):
            os.write(out, f"lost {answer}\n".encode())
            return
        lines = []
        for update in answer.rows():
            after = update.after or {}
            lines.append(
                f"{update.position} {after['n'] if 'n' in after else after['value'].split()[0].decode()}\n"
            )
        os.write(out, "".join(lines).encode())


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            follow(*json.loads(line))
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main()
