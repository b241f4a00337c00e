"""A deployment's state for people: problems first, then regions, streams, links and processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qanat.cli.tables import table

if TYPE_CHECKING:
    from qanat.operate.overview import Overview


def shown(overview: Overview, found: str = "") -> str:
    """`found` ends the first line: the rule that chose this deployment."""
    supervisor = overview.supervisor
    missing = overview.missing()
    cut = [link for link in overview.links().values() if link["state"] != "up"]
    damage = overview.damage()
    state = "not whole" if missing else "serves, and damage was found" if damage else "whole"
    whole = f"{supervisor['name']}: {state}{_cut(len(cut))}"
    out = [
        f"{whole}; up {duration(supervisor['uptime_s'])}, data in {supervisor['folder']}{found}",
        *(f"  ! {sentence}" for sentence in (*missing, *damage)),
        "",
        _regions(overview),
    ]
    for part in (_ensembles(overview), _streams(overview), _links(overview), _processes(overview)):
        if part:
            out += ["", part]
    return "\n".join(out)


def _cut(links: int) -> str:
    return "" if not links else ", 1 link cut" if links == 1 else f", {links} links cut"


def _regions(overview: Overview) -> str:
    rows = []
    for region, url in overview.urls().items():
        chain = overview.chain(region)
        line = " → ".join(chain.replicas) or "no chain"
        if chain.joining:
            line += f" (joins: {chain.joining})"
        rows.append([region, chain.epoch, line, "serves" if chain.serves else "does not serve", url])
    return table(["region", "epoch", "chain, head → tail", "", "clients connect to"], rows)


def _ensembles(overview: Overview) -> str:
    rows = []
    for region, members in overview.ensembles().items():
        for name, said in members.items():
            if said["role"] == "leader":
                away = ", ".join(each for each in said["away"]) or "–"
                forgot = ", ".join(each for each in said["forgot"]) or "–"
                rows.append([region, name, said["term"], said["commit"], away, forgot])
    heads = ["coordinators of", "leader", "term", "committed", "away", "came without a journal"]
    return table(heads, rows) if rows else ""


def _streams(overview: Overview) -> str:
    rows: list[list[object]] = []
    for name, stream in overview.streams().items():
        for number, (region, here) in enumerate(stream["regions"].items()):
            first = [name, stream["owner"], stream["durability"]] if not number else ["", "", ""]
            source = "owner" if region == stream["owner"] else here["source"] or "–"
            rows.append(
                [
                    *first,
                    region,
                    here["last"],
                    here["stable"],
                    source,
                    here["behind"],
                    here["subscribers"],
                    here["largest_lag"],
                    len(here["mesh"]["members"]),
                    here["mesh"]["visitors"],
                ]
            )
    heads = [
        "stream",
        "owner",
        "durability",
        "in",
        "last",
        "stable",
        "from",
        "behind",
        "subscribers",
        "largest lag",
        "mesh view",
        "visitors",
    ]
    return table(heads, rows) if rows else ""


def _links(overview: Overview) -> str:
    rows = [
        [f"{a} – {b}", link["state"], link["connections"], link["forwarded_bytes"]]
        for (a, b), link in overview.links().items()
    ]
    return table(["link", "", "connections", "bytes"], rows) if rows else ""


def _processes(overview: Overview) -> str:
    rows = []
    for name, node in overview.supervisor["nodes"].items():
        status = overview.nodes.get(name)
        state = node["state"]
        if state == "running":
            state = "silent" if status is None else status["state"]
        http = f"http://127.0.0.1:{node['http']}/status"
        rows.append([name, state, str(node["pid"] or ""), node["starts"], node["last_end"], http])
    return table(["process", "", "pid", "starts", "last end", "operators"], rows)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    shown = [f"{value} {unit}" for value, unit in parts if value]
    return " ".join(shown[:2]) or "0 s"
