"""Publishers for people: a few lines each, and a table of their applications."""

from __future__ import annotations

from typing import Any

from qanat.cli.deployment_status import duration
from qanat.cli.publishers import amount, lag
from qanat.cli.tables import table

HEADS = (
    "application",
    "owner",
    "shards",
    "subscribers",
    "caravans",
    "behind",
    "lag",
    "updates/s",
    "bytes/s",
    "losses",
    "",
)


def shown_publisher(status: dict[str, Any]) -> list[str]:
    """One publisher, without its applications."""
    caravans = status.get("caravans", [])
    lead = next((one for one in caravans if one["lead"]), None)
    said = (
        f"{status['name']}: {status['state']}, up {duration(status['uptime_s'])}, log {status.get('log', '')}"
    )
    said += f" read up to {lead['at'] if lead else '–'}, {status.get('read_updates_per_s', 0):,} updates/s,"
    out = [f"{said} {amount(status.get('read_bytes_per_s', 0))} bytes/s by {len(caravans)} caravans"]
    copy = status.get("copy")
    if copy is not None:
        owned = ", ".join(copy["owns"]) or "nothing"
        out.append(f"  owns {owned}; {copy['takeovers']} takeovers, {copy['returns']} returns")
        if not copy["leased"]:
            reason = status.get("coordinator_problem") or "the coordinator does not answer"
            out.append(f"  cannot serve: {reason}")
    if status.get("log_problem"):
        out.append(f"  cannot read the log: {status['log_problem']}")
    if status.get("losses"):
        out.append(f"  the log lost {status['losses']} ranges")
    return out


def application_rows(status: dict[str, Any]) -> list[tuple[object, ...]]:
    """A row under `HEADS` for each application that the publisher serves."""
    copied = status.get("copy") is not None
    rows: list[tuple[object, ...]] = []
    for one in status.get("applications", []):
        if copied and not one["parts"]:
            continue
        full = [link for link in one["subscribers"] if link["open"] and not link["takes"]]
        trouble = one["problem"] or (
            "has no subscriber"
            if not one["subscribers"]
            else f"{len(full)} with a full window"
            if full
            else ""
        )
        rows.append(
            (
                one["name"],
                status["name"],
                one["shards"],
                len(one["subscribers"]),
                ", ".join(map(str, one["caravans"])) or "waits",
                one["behind"],
                lag(one["lag_s"]),
                one["updates_per_s"],
                amount(one["bytes_per_s"]),
                one["losses"],
                trouble if one["begun"] else "not started",
            )
        )
    return rows


def shard_rows(status: dict[str, Any], most: int) -> list[tuple[object, ...]]:
    """The flows that are farthest behind."""
    flows = [flow for one in status.get("applications", []) for flow in one["flows"]]
    flows.sort(key=lambda flow: (-flow["behind"], flow["application"], flow["shard"]))
    return [
        (
            flow["application"],
            flow["shard"] or "''",
            flow["subscriber"] or "–",
            "waits" if flow["caravan"] is None else str(flow["caravan"]),
            flow["behind"],
            lag(flow["lag_s"]),
            flow["unmarked"],
        )
        for flow in flows[:most]
    ]


def screen(statuses: list[dict[str, Any]], shards: int) -> str:
    """All publishers together."""
    out = [line for status in statuses for line in shown_publisher(status)]
    rows = [row for status in statuses for row in application_rows(status)]
    out += ["", table(HEADS, rows) if rows else "no applications"]
    last = [row for status in statuses for row in shard_rows(status, shards)]
    if last and shards:
        last.sort(key=lambda row: -int(str(row[4])))
        heads = ("farthest behind", "shard", "subscriber", "caravan", "behind", "lag", "unmarked")
        out += ["", table(heads, last[:shards])]
    return "\n".join(out)
