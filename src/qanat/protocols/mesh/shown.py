"""What a mesh needs of a proxy's history."""

from typing import Protocol

from qanat.events.batch import Batch


class Shown(Protocol):
    """A part of `History`; `durable` is how far clients may see."""

    def durable(self, stream: int) -> int: ...

    def read(self, stream: int, start: int, max_bytes: int, upto: int | None = None) -> list[Batch]:
        """See `History.read`."""


class ShownStreams(Shown, Protocol):
    """The same, of the streams that there are."""

    def holds(self, stream: int) -> bool:
        """Whether there is such a stream, with or without events: nobody can enter the mesh of another."""
