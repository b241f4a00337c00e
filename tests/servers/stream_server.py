"""A stream server as a process that can be killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class ServerProcess:
    """`qanat serve` as a user runs it, on a port of its own; started again, it is at the same place."""

    PROGRAM = (sys.executable, "-m", "qanat")

    def __init__(self, data: Path, program: Sequence[str] = PROGRAM) -> None:
        self.data = data
        self._program = program
        self.port = 0
        self.admin = ""
        """Where operators look."""
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"qanat://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *flags: str) -> ServerProcess:
        command = [*self._program, "serve", "--listen", f"127.0.0.1:{self.port}"]
        command += ["--data", str(self.data), "--admin-port", "0", "--set", "logging.level=error", *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"qanat://127\.0\.0\.1:(\d+)", line)
        assert found, f"the server said {line!r}"
        self.port = int(found.group(1))
        found = re.search(r"http://\S+:\d+", line)
        self.admin = found.group() if found else ""
        return self

    def health(self) -> str:
        """What `/healthz` says."""
        try:
            with urllib.request.urlopen(f"{self.admin}/healthz", timeout=30) as answer:
                return str(answer.read().decode().strip())
        except urllib.error.HTTPError as error:
            return error.read().decode().strip()

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.admin}/status", timeout=30) as answer:
            return dict(json.load(answer))

    def memory(self, which: str = "VmHWM") -> int:
        """A line of /proc/PID/status, in bytes: what it has, or the most that it ever had."""
        found = re.search(rf"^{which}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.M)
        assert found is not None
        return int(found.group(1)) * 1024

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return code

    def end(self) -> None:
        if self._process is not None:
            self.kill()
