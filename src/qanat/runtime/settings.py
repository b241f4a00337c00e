"""Settings of the transport: type, default, unit and reason of each, and whether SIGHUP may change it."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta


def setting(what: str, *, unit: str = "", why: str = "", reload: bool = False, **bounds: Any) -> Meta:
    """The description of one field; `bounds` are those of `msgspec.Meta` (ge, le, …)."""
    return Meta(description=what, extra={"unit": unit, "why": why, "reload": reload}, **bounds)


class TransportSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Connections between processes."""

    frame_limit_bytes: Annotated[
        int,
        setting(
            "Largest attachment of a frame; a peer that announces more is disconnected.",
            unit="bytes",
            why="bounds the memory that one peer can make this process allocate; a batch has the same limit",
            ge=1024,
            le=1 << 30,
        ),
    ] = 16 * 1024 * 1024
    high_water_bytes: Annotated[
        int,
        setting(
            "Unsent bytes above which a connection stops being writable.",
            unit="bytes",
            why="a few of the largest usual frames: enough to keep the link busy while the sender wakes up",
            ge=0,
        ),
    ] = 2 * 1024 * 1024
    low_water_bytes: Annotated[
        int,
        setting(
            "Unsent bytes below which the connection is writable again.",
            unit="bytes",
            why="a quarter of the high mark: few wake-ups, and the link never runs dry",
            ge=0,
        ),
    ] = 512 * 1024
    queue_limit_bytes: Annotated[
        int,
        setting(
            "Unsent bytes at which a connection is closed (`overflow`) because its sender ignored"
            " the high mark.",
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
            "Largest receive buffer of a connection.",
            unit="bytes",
            why="one system call reads several of the largest usual frames",
            ge=1024,
        ),
    ] = 2 * 1024 * 1024
    short_ways: Annotated[
        bool,
        setting(
            "Whether processes of one machine take short ways: a Unix socket to the loopback"
            " address, log files read in place, files written by publishers, and the shelf. If"
            " either end turns it off, they use TCP.",
            why="short ways cost at most half of what TCP costs; they need Linux and no TLS",
        ),
    ] = True
    shelf_bytes: Annotated[
        int,
        setting(
            "Shared memory from which all instances of applications on this machine read the same"
            " updates; 0: the node sends them to each instance.",
            unit="bytes",
            why=(
                "room for some windows of slow instances; updates without room are sent. Needs"
                " Linux and `short_ways`"
            ),
            ge=0,
        ),
    ] = 64 * 1024 * 1024
    handshake_ms: Annotated[
        int,
        setting(
            "Time for the handshake of a new connection.",
            unit="ms",
            why=(
                "some round trips around the world, with retransmissions; a silent peer holds its"
                " socket no longer"
            ),
            ge=1,
        ),
    ] = 5_000
    heartbeat_ms: Annotated[
        int,
        setting(
            "Silence of a connection after which a heartbeat is sent.",
            unit="ms",
            why="rare enough to cost nothing over 10,000 connections",
            ge=1,
            reload=True,
        ),
    ] = 3_000
    heartbeat_misses: Annotated[
        int,
        setting(
            "Unanswered heartbeats after which the connection is closed (`silent`).",
            why=(
                "closes after 18 to 21 s with the default interval: longer than a TCP"
                " retransmission storm or a long pause"
            ),
            ge=1,
            reload=True,
        ),
    ] = 5
    write_stall_ms: Annotated[
        int,
        setting(
            "Time after which a peer that takes none of its unsent bytes is disconnected"
            " (`stalled`); 0: never.",
            unit="ms",
            why="a subscriber that pauses longer reconnects and resumes at its position",
            ge=0,
            reload=True,
        ),
    ] = 60_000
    close_ms: Annotated[
        int,
        setting(
            "Time for a closing connection to send its queued bytes.",
            unit="ms",
            why="a peer that does not read cannot hold up a stop",
            ge=0,
            reload=True,
        ),
    ] = 2_000
    max_connections: Annotated[
        int,
        setting(
            "Most accepted connections; further ones are refused (`full`).",
            why="below the usual limit of open files",
            ge=1,
            reload=True,
        ),
    ] = 20_000
    backoff_ms: Annotated[
        int,
        setting(
            "First pause before dialling again; it doubles with each failure, and each pause is"
            " shortened at random by up to a half.",
            unit="ms",
            why=(
                "finds a restarted peer at once; the jitter keeps thousands of clients from dialling together"
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
            why="bounds the time to find a restarted peer",
            ge=1,
            reload=True,
        ),
    ] = 5_000
    refused_limit_ms: Annotated[
        int,
        setting(
            "Longest pause before dialling again a node that refused the connection: its machine"
            " runs, its process does not yet.",
            unit="ms",
            why=(
                "a refusal costs one packet each way, a supervisor restarts a process in about that"
                " time, and a chain waits for it"
            ),
            ge=1,
            reload=True,
        ),
    ] = 500
    datagram_limit_bytes: Annotated[
        int,
        setting(
            "Largest datagram that is sent or accepted.",
            unit="bytes",
            why="fits an Ethernet frame under IPv6 and a tunnel or two without fragments",
            ge=128,
            le=65_000,
        ),
    ] = 1_400
