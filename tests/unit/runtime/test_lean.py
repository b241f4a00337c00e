"""Processes of a deployment do without pandas, whatever Arrow would like."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from qanat.runtime.lean import do_without_pandas
do_without_pandas()
import pyarrow as pa
import qanat.replica.node
assert pa.array(["x", "y"]).to_pylist() == ["x", "y"]
assert pa.array([{"a": 1}]).to_pylist() == [{"a": 1}]
assert "pandas" not in sys.modules
"""


def test_a_node_does_without_pandas() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=300)


@pytest.mark.parametrize("command", ["node", "up", "demo"])
def test_their_commands_say_so(command: str) -> None:
    from qanat.cli.main import COMMANDS
    from qanat.runtime.lean import LEAN_COMMANDS

    assert command in LEAN_COMMANDS
    assert set(COMMANDS) >= LEAN_COMMANDS
