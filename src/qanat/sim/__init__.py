"""A deterministic simulator for protocol machines.

The same `Machine` that runs over sockets runs here in virtual time, over a network that delays, queues,
loses, doubles and cuts, on nodes that crash, pause and have wrong clocks. A run is a function of its
seed. See docs/simulation.md.
"""

from qanat.sim.check import Checker, CheckFailed, Violation, by_name
from qanat.sim.disk import SimDisk
from qanat.sim.fault_runner import FaultRunner
from qanat.sim.faults import Fault
from qanat.sim.journal import DiskSpec
from qanat.sim.links import Links, LinkSpec
from qanat.sim.node import SimNode
from qanat.sim.run import Outcome, build, run
from qanat.sim.scenario import Place, ProtocolKit, Scenario, Workload, load
from qanat.sim.size import wire_size
from qanat.sim.strict import BadScenario
from qanat.sim.swarm import Swarm, draw_faults
from qanat.sim.sweep import Sweep, gather, replay_command, sweep
from qanat.sim.trace import Trace
from qanat.sim.world import World

__all__ = [
    "BadScenario",
    "CheckFailed",
    "Checker",
    "DiskSpec",
    "Fault",
    "FaultRunner",
    "LinkSpec",
    "Links",
    "Outcome",
    "Place",
    "ProtocolKit",
    "Scenario",
    "SimDisk",
    "SimNode",
    "Swarm",
    "Sweep",
    "Trace",
    "Violation",
    "Workload",
    "World",
    "build",
    "by_name",
    "draw_faults",
    "gather",
    "load",
    "replay_command",
    "run",
    "sweep",
    "wire_size",
]
