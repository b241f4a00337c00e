"""Every setting of a node, section by section; `docs/configuration.md` is written from these structs."""

from typing import Annotated, Literal

import msgspec

from qanat.runtime.settings import TransportSettings, setting


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who this process is, where it listens, where it keeps its data."""

    name: Annotated[
        str,
        setting(
            "Name of this node, unique within the cluster.", why="peers know each other by it", min_length=1
        ),
    ] = "local/server-1"
    cluster: Annotated[
        str,
        setting(
            "Name of the cluster; peers of another are refused.",
            why="a test's client never ends up in production by a wrong address",
            min_length=1,
        ),
    ] = "qanat"
    listen: Annotated[
        str,
        setting(
            "Address for peers and clients, host:port; port 0 takes any free one.",
            why="loopback: nothing is open to the network before somebody says so",
        ),
    ] = "127.0.0.1:7411"
    advertise: Annotated[
        str,
        setting(
            "Address that clients are told to come to, host:port; empty is where it listens.",
            why="only behind 0.0.0.0 or a translated address are they two",
        ),
    ] = ""
    data: Annotated[
        str,
        setting(
            "Folder for everything kept on disk.",
            why="beside where it was started; easy to find and to remove",
        ),
    ] = "qanat-data"
    stop_ms: Annotated[
        int,
        setting(
            "Time for a graceful stop; after it the process ends all the same.",
            unit="ms",
            why="below the 10 s that service managers wait before they kill",
            ge=0,
            reload=True,
        ),
    ] = 8_000


class AdminSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """HTTP for operators: /healthz, /metrics, /status."""

    enabled: Annotated[
        bool, setting("Whether to serve it.", why="a node nobody can look into is hard to run")
    ] = True
    host: Annotated[
        str,
        setting(
            "Address it listens on.", why="it has no passwords: this machine only, unless you say otherwise"
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, setting("Port; 0 takes any free one.", why="next to the node's own 7411", ge=0, le=65535)
    ] = 7412
    request_ms: Annotated[
        int,
        setting(
            "Time for a request to arrive whole.",
            unit="ms",
            why="a slow client holds a socket no longer",
            ge=1,
        ),
    ] = 5_000


class LoggingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is written to standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting(
            "Least important level that is written.",
            why="one line per thing an operator may act on",
            reload=True,
        ),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        setting(
            "`text` is key=value for people, `json` one object per line.",
            why="people read it first",
            reload=True,
        ),
    ] = "text"


class MemorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the process as a whole may hold; docs/limits.md says what happens as it comes near."""

    budget_bytes: Annotated[
        int,
        setting(
            "Memory that the process may have, without the pages of logs that it mapped; 0: half of what the"
            " machine, or its control group, has, but up to 512 MiB three quarters of it.",
            unit="bytes",
            why="the other half is for the system's cache, from which logs are read, and for other processes",
            ge=0,
            reload=True,
        ),
    ] = 0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every kind of node can be told, one section for each part."""

    node: NodeSettings = NodeSettings()
    transport: TransportSettings = TransportSettings()
    memory: MemorySettings = MemorySettings()
    admin: AdminSettings = AdminSettings()
    logging: LoggingSettings = LoggingSettings()
