"""Nothing is waited for, and nothing is loaded, between a commit and its update that could have been before
or need not be at all."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from qanat.capture.mariadb.connection import Server, Session


def test_a_look_for_more_of_mariadbs_log_does_not_wait() -> None:
    """The shortest wait of a socket takes a millisecond."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        session = Session(Server("db", 3306, "ann", ""), SimpleNamespace(_sock=ours))
        session._heard_s = float("inf")
        assert session.events(0.0) == []
        assert ours.gettimeout() == 0.0
        theirs.send(b"\x03\x00\x00\x00\x00ab")
        assert [bytes(event) for event in session.events(5.0) or ()] == [b"ab"]
        assert ours.gettimeout() == 5.0


def test_the_first_update_loads_nothing_large(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    script = (
        "import sys; from qanat.capture.url import open_reader\n"
        f"reader = open_reader('file://{tmp_path}/*.jsonl')\n"
        "before = 'pandas' in sys.modules\n"
        "reader.seek('earliest'); assert len(reader.read(10)) == 1\n"
        "sys.exit(before != ('pandas' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
