"""Settings of the transport: type, default, unit and reason of each, and whether SIGHUP may change it."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta


def setting(what: str, *, unit: str = "", why: str = "", reload: bool = False, **bounds: Any) -> Meta:
    """What a person needs to know about one field; `bounds` are those of `msgspec.Meta` (ge, le, …)."""
    return Meta(description=what, extra={"unit": unit, "why": why, "reload": reload}, **bounds)


class TransportSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Connections between processes."""

    frame_limit_bytes: Annotated[
        int,
        setting(
            "Largest attachment of a frame that is accepted; a peer that announces more is cut off.",
            unit="bytes",
            why="bounds what one peer can make this process allocate; a batch has the same limit",
            ge=1024,
            le=1 << 30,
        ),
    ] = 16 * 1024 * 1024
    high_water_bytes: Annotated[
        int,
        setting(
            "Unsent bytes of a connection above which it stops being writable.",
            unit="bytes",
            why="a few of the largest usual frames: enough to keep the link busy while the sender wakes up",
            ge=0,
        ),
    ] = 2 * 1024 * 1024
    low_water_bytes: Annotated[
        int,
        setting(
            "Unsent bytes at which it is writable again.",
            unit="bytes",
            why="a quarter of the high mark: few wake-ups, and the link never runs dry",
            ge=0,
        ),
    ] = 512 * 1024
    queue_limit_bytes: Annotated[
        int,
        setting(
            "Unsent bytes at which a connection is closed (`overflow`): its sender did not heed the high"
            " mark.",
            unit="bytes",
            why="the high mark plus the largest frame, twice over",
            ge=1024,
        ),
    ] = 64 * 1024 * 1024
    receive_buffer_bytes: Annotated[
        int,
        setting(
            "First receive buffer of a connection; it grows with the flow.",
            unit="bytes",
            why="small, because a server may hold thousands of quiet connections",
            ge=1024,
        ),
    ] = 16 * 1024
    largest_receive_buffer_bytes: Annotated[
        int,
        setting(
            "What the receive buffer grows to.",
            unit="bytes",
            why="takes several of the largest usual frames with one system call",
            ge=1024,
        ),
    ] = 2 * 1024 * 1024
    short_ways: Annotated[
        bool,
        setting(
            "Whether processes of one machine take short ways: a Unix socket for a client that dials the"
            " loopback address, and over it the log's files read in place, files laid down by publishers, and"
            " the shelf. Off, at either end: TCP, as between machines.",
            why="they cost half of what TCP does, and less; they need Linux, and no TLS",
        ),
    ] = True
    shelf_bytes: Annotated[
        int,
        setting(
            "Memory in which a node lays down what it has for instances of applications on its machine, once"
            " for all of them; 0: it is sent to each.",
            unit="bytes",
            why=(
                "some windows of those who are slow; what has no room there is sent. Needs Linux, and"
                " `short_ways`"
            ),
            ge=0,
        ),
    ] = 64 * 1024 * 1024
    handshake_ms: Annotated[
        int,
        setting(
            "Time in which a new connection must have shaken hands.",
            unit="ms",
            why=(
                "some round trips around the world, with retransmissions; a silent peer holds a socket no"
                " longer"
            ),
            ge=1,
        ),
    ] = 5_000
    heartbeat_ms: Annotated[
        int,
        setting(
            "A connection that was silent for this long is asked for a sign of life.",
            unit="ms",
            why="rare enough to cost nothing over 10,000 connections",
            ge=1,
            reload=True,
        ),
    ] = 3_000
    heartbeat_misses: Annotated[
        int,
        setting(
            "Silent heartbeats after which the peer counts as gone (`silent`).",
            why=(
                "gone after 18 to 21 s with the default interval: longer than a TCP retransmission storm or a"
                " long pause"
            ),
            ge=1,
            reload=True,
        ),
    ] = 5
    write_stall_ms: Annotated[
        int,
        setting(
            "Time in which a peer with unsent bytes took none of them, after which it is cut off (`stalled`);"
            " 0 is never.",
            unit="ms",
            why="a subscriber that thinks longer than that reconnects and goes on where it was",
            ge=0,
            reload=True,
        ),
    ] = 60_000
    close_ms: Annotated[
        int,
        setting(
            "Time that a closing connection has to send what is queued.",
            unit="ms",
            why="a peer that does not read cannot hold up a stop",
            ge=0,
            reload=True,
        ),
    ] = 2_000
    max_connections: Annotated[
        int,
        setting(
            "Accepted connections; one more is refused (`full`).",
            why="stay below the limit of open files",
            ge=1,
            reload=True,
        ),
    ] = 20_000
    backoff_ms: Annotated[
        int,
        setting(
            "First pause before dialling again; it doubles with each failure, and each is shortened at random"
            " by up to a half.",
            unit="ms",
            why=(
                "a restarted peer is found at once; the jitter keeps thousands of clients from coming"
                " together"
            ),
            ge=1,
            reload=True,
        ),
    ] = 50
    backoff_limit_ms: Annotated[
        int,
        setting(
            "Longest pause before dialling again.",
            unit="ms",
            why="bounds the time to be found",
            ge=1,
            reload=True,
        ),
    ] = 5_000
    refused_limit_ms: Annotated[
        int,
        setting(
            "Longest pause before a node that refused is dialled again: the machine is there, its process is"
            " not yet.",
            unit="ms",
            why=(
                "a refusal costs a packet each way; whoever runs the process starts it again in about that"
                " time, and a chain waits for it"
            ),
            ge=1,
            reload=True,
        ),
    ] = 500
    datagram_limit_bytes: Annotated[
        int,
        setting(
            "Largest datagram sent or accepted.",
            unit="bytes",
            why="fits an Ethernet frame under IPv6 and a tunnel or two without fragments",
            ge=128,
            le=65_000,
        ),
    ] = 1_400
