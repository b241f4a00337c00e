"""What the local application, or the proxy's other protocols, ask of a mesh machine."""

import msgspec


class Subscribe(msgspec.Struct, frozen=True):
    """To a client: deliver this stream from event `after` + 1 on; 0 is all there ever was."""

    stream: int
    after: int = 0


class Unsubscribe(msgspec.Struct, frozen=True):
    """To a client: deliver no more of this stream, and forget what is held of it."""

    stream: int


class Serve(msgspec.Struct, frozen=True):
    """To a proxy of a chain's replica: whether it is the tail, whose events clients may see."""

    serves: bool


class Arrived(msgspec.Struct, frozen=True):
    """To a proxy: its history has grown in this stream (the paper's deliverEvent at a proxy)."""

    stream: int
