"""The status of one process for people: a stream server, or a replica of a region."""

from __future__ import annotations

from typing import Any

from qanat.cli.deployment_status import duration
from qanat.cli.stream_words import policy_words
from qanat.cli.tables import table


def shown_node(status: dict[str, Any], found: str = "") -> str:
    """State and place of a node, a replica's role in its chain, then the streams. `found` ends the first
    line."""
    out = [
        f"{status['name']} at {status['url']}: {status['state']}, up {duration(status['uptime_s'])}{found}"
    ]
    if "chain" in status:
        out.append(f"region {status['region']}: {_chain(status['chain'])}")
    version = f", version {status['version']}" if "version" in status else ""
    out.append(f"data in {status['data']}, process {status['pid']}{version}")
    refused = status.get("refused_batches")
    told = "" if refused is None else f", {refused} malformed publishes refused"
    out.append(f"{status['connections']} connections{told}{_memory(status.get('memory'))}")
    if status.get("disk_full"):
        out.append(f"! {status['disk_full']}")
    if status.get("streams"):
        out += ["", stream_table(status["streams"])]
    return "\n".join(out)


def _memory(memory: dict[str, Any] | None) -> str:
    if memory is None:
        return ""
    level = "" if memory["level"] == "easy" else f" ({memory['level']})"
    return f", {memory['used_bytes'] >> 20} of {memory['budget_bytes'] >> 20} MiB of memory{level}"


def _chain(chain: dict[str, Any]) -> str:
    if not chain["replicas"]:
        return f"no chain; {chain['waits']}" if chain.get("waits") else "no chain yet"
    line = " → ".join(chain["replicas"])
    joining = f", {chain['joining']} joins" if chain["joining"] else ""
    waits = f"; {chain['waits']}" if chain.get("waits") else ""
    serves = "serves" if chain["serves"] else "does not serve"
    return f"{chain['role']} of {line}{joining} (epoch {chain['epoch']}), {serves}{waits}"


def stream_table(streams: list[dict[str, Any]]) -> str:
    """One line per stream; at a replica also its owner, its stable number and its source."""
    placed = any("owner" in stream for stream in streams)
    heads = ["stream", *(["owner"] if placed else []), "first", "last", *(["stable"] if placed else [])]
    meshed = any(_mesh(stream) for stream in streams)
    governed = any(stream.get("policy") for stream in streams)
    heads += [
        "durability",
        *(["policy"] if governed else []),
        *(["from", "behind"] if placed else []),
        "subscribers",
        "largest lag",
    ]
    heads += [*(["mesh"] if meshed else []), "published", "duplicates", ""]
    return table(heads, [_row(stream, placed, meshed, governed) for stream in streams])


def _mesh(stream: dict[str, Any]) -> str:
    """The size of the proxy's view, and the number of its visitors."""
    mesh = stream.get("mesh") or {"members": [], "visitors": 0}
    visitors = f" + {mesh['visitors']} visiting" if mesh["visitors"] else ""
    return f"{len(mesh['members'])} in view{visitors}" if mesh["members"] or visitors else ""


def _stable(stream: dict[str, Any], last: int) -> object:
    """The stable number; a replica that has not learned it yet reports 0."""
    return stream.get("stable", 0) or ("–" if last else 0)


def _row(stream: dict[str, Any], placed: bool, meshed: bool, governed: bool) -> list[object]:
    row: list[object] = [stream["stream"], *([stream.get("owner", "")] if placed else [])]
    last = int(stream["next"]) - 1
    row += [stream["first"], last, *([_stable(stream, last)] if placed else [])]
    row += [stream["durability"], *([policy_words(stream.get("policy") or {})] if governed else [])]
    if placed:
        row += [stream.get("source") or "–", stream.get("behind_source", 0)]
    row += [stream["subscribers"], stream["largest_lag"]]
    row += [*([_mesh(stream)] if meshed else []), stream["published_events"], stream["duplicate_events"]]
    row.append(f"stopped: {stream['failed']}" if stream["failed"] else "")
    return row
