"""What a protocol raises when it finds itself in a state that cannot be."""

from qanat.events.errors import InvariantError


class ProtocolInvariantError(InvariantError):
    """A machine's own check failed. The driver stops that machine; the simulator reports a violation."""


class MutableMessage(InvariantError):
    """A message type with a field that can change after it was sent, or that has no fixed order."""


def require(condition: bool, sentence: str) -> None:
    """Raise `ProtocolInvariantError` unless `condition`; stays on under `python -O`, unlike `assert`."""
    if not condition:
        raise ProtocolInvariantError(sentence)
