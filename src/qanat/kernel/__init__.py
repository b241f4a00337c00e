"""The contract between a protocol and whatever runs it.

A protocol is a `Machine`: it is told what happened (started, a message, a timer, a local request, a
broken channel), always with the time as an argument, and it answers only through its `Context`. It
reads no clock, opens no socket, draws no randomness but `context.rng`, and starts no task; so the same
code runs over real sockets (`qanat.runtime`) and under the deterministic simulator (`qanat.sim`).
"""

from qanat.kernel.address import Address
from qanat.kernel.context import Context
from qanat.kernel.invariants import MutableMessage, ProtocolInvariantError, require
from qanat.kernel.lease import Lease
from qanat.kernel.machine import Factory, Machine
from qanat.kernel.message import Message, check_immutable
from qanat.kernel.parts import Part, PartContext, Parts

__all__ = [
    "Address",
    "Context",
    "Factory",
    "Lease",
    "Machine",
    "Message",
    "MutableMessage",
    "Part",
    "PartContext",
    "Parts",
    "ProtocolInvariantError",
    "check_immutable",
    "require",
]
