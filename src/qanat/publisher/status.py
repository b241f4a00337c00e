"""What a publisher tells people: its applications with their flows, its caravans and why they are as they
are."""

from collections.abc import Iterable
from typing import Any

from qanat.events.position import Position
from qanat.protocols.caravans.pace import explained
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.flows import Caravan, Flow, Served
from qanat.protocols.publisher.machine import Publisher
from qanat.publisher.rates import Rates

FLOWS = 1_000
"""Flows of one application that are listed in the status; how many there are is always said, and `/flows` has
all."""


def publisher_status(machine: Publisher, wall_us: int, now_us: int, rates: Rates) -> dict[str, Any]:
    end = end_of(machine)
    return {
        "applications": [
            application_status(served, end, wall_us, rates) for served in machine.served.values()
        ],
        "caravans": [_caravan(machine, caravan, now_us) for caravan in machine.caravans.all.values()],
        "snapshots": [
            {"application": one.served.name, "part": one.part, "rows": one.read_updates, "flows": one.weight}
            for one in machine.snapshots.all.values()
        ],
        "plan": machine.caravans.plan.why,
        "policy": machine.config.policy,
        "companies": {name: list(members) for name, members in machine.companies.items()},
        "companies_waiting": list(machine.companies)[len(machine.honoured) :],
        "decisions": machine.caravans.told(now_us),
        "end": None if end is None else str(end),
        "reads": machine.reads,
        "read_updates": machine.read_updates,
        "read_bytes": machine.read_bytes,
        "read_updates_per_s": round(rates.of("read_updates"), 1),
        "read_bytes_per_s": round(rates.of("read_bytes")),
        "sent_updates": sum(served.sent_updates for served in machine.served.values()),
        "sent_bytes": sum(served.sent_bytes for served in machine.served.values()),
        "losses": machine.losses,
        "copy": _copy(machine, now_us),
    }


def end_of(machine: Publisher) -> Position | None:
    """As far as the log was read."""
    lead = machine.caravans.lead
    return None if lead is None else lead.at


def behind(position: Position, end: Position | None) -> int:
    """In sequence numbers of the log."""
    return 0 if end is None else max(0, end.sequence - position.sequence)


def lag_s(served: Served, wall_us: int) -> float | None:
    """Of the flow that is last; None: it is not known."""
    lags = [flow.lag_us(wall_us) for flow in served.flows.values()]
    if not lags:
        return 0.0
    known = [lag for lag in lags if lag is not None]
    return None if len(known) < len(lags) else max(known) / 1e6


def problem_of(served: Served) -> str:
    """Why an application stands still, or a part of it, or will, and what can be done; empty: it does not."""
    problem = served.problem or next(iter(served.troubles.values()), "")
    if problem or not served.dispute:
        return problem
    name = served.name
    return (
        f"{served.dispute}. What {name} was told before is of another history, so its flows wait and pass"
        f" over nothing: let a copy serve them whose log has that history (qanat applications change {name}"
        f" copies=…), or decide from where they go on in this one (qanat move {name} --position …), or let it"
        " begin anew (qanat applications remove and add)"
    )


def application_status(served: Served, end: Position | None, wall_us: int, rates: Rates) -> dict[str, Any]:
    positions = [flow.position for flow in served.flows.values()]
    scouts = [scout.position for scout in served.scouts.values()]
    rear = min([*positions, *scouts], default=None)
    lag = lag_s(served, wall_us)
    return {
        "name": served.name,
        "mode": served.config.mode,
        "where": served.config.where,
        "start": served.config.start,
        "problem": problem_of(served),
        "company": served.company,
        "begun": bool(served.scouts),
        "parts": sorted(served.scouts),
        "shards": len(served.flows),
        "unassigned": sum(flow.link is None for flow in served.flows.values()),
        "rear": None if rear is None else str(rear),
        "behind": 0 if rear is None else behind(rear, end),
        "lag_s": None if lag is None else round(lag, 3),
        "marked": str(min((flow.marked for flow in served.flows.values()), default=Position(0, 0))),
        "caravans": sorted({one.caravan.number for one in served.travellers if one.caravan is not None}),
        "sent_updates": served.sent_updates,
        "sent_bytes": served.sent_bytes,
        "updates_per_s": round(rates.of(f"updates/{served.name}"), 1),
        "bytes_per_s": round(rates.of(f"bytes/{served.name}")),
        "losses": served.lost_ranges,
        "subscribers": [
            {
                "name": link.address,
                "open": link.open,
                "takes": link.takes,
                "shards": len(link.flows),
                "weight": link.weight,
                "window_bytes": link.window,
                "waiting_bytes": link.waiting_bytes,
                "sent_updates": link.sent_updates,
            }
            for link in served.links.values()
        ],
        "flows": [flow_status(flow, end, wall_us) for flow in list(served.flows.values())[:FLOWS]],
    }


def flow_status(flow: Flow, end: Position | None, wall_us: int) -> dict[str, Any]:
    lag = flow.lag_us(wall_us)
    return {
        "application": flow.served.name,
        "shard": flow.shard,
        "part": flow.part,
        "subscriber": "" if flow.link is None else flow.link.address,
        "position": str(flow.position),
        "marked": str(flow.marked),
        "behind": behind(flow.position, end),
        "unmarked": behind(flow.marked, end),
        "lag_s": None if lag is None else round(lag / 1e6, 3),
        "caravan": None if flow.caravan is None else flow.caravan.number,
        "company": flow.company,
        "leaving": flow.leaving,
        "untold_loss": None if flow.untold is None else [str(place) for place in flow.untold],
    }


def flow_page(machine: Publisher, wall_us: int, query: dict[str, str]) -> dict[str, Any]:
    """Flows that are as `query` says, those that are farthest behind first."""
    end, limit = end_of(machine), query.get("limit", "")
    found = list(_chosen(machine, query))
    found.sort(key=lambda flow: (flow.position, flow.served.name, flow.shard))
    shown = found[: int(limit)] if limit.isdecimal() else found
    return {
        "count": len(found),
        "end": None if end is None else str(end),
        "problems": {
            name: problem for name, served in machine.served.items() if (problem := problem_of(served))
        },
        "flows": [flow_status(flow, end, wall_us) for flow in shown],
    }


def _chosen(machine: Publisher, query: dict[str, str]) -> Iterable[Flow]:
    for served in machine.served.values():
        if query.get("application", served.name) != served.name:
            continue
        for flow in served.flows.values():
            subscriber = "" if flow.link is None else flow.link.address
            caravan = "" if flow.caravan is None else str(flow.caravan.number)
            if (
                query.get("shard", flow.shard) == flow.shard
                and query.get("subscriber", subscriber) == subscriber
                and query.get("caravan", caravan) == caravan
            ):
                yield flow


def _caravan(machine: Publisher, caravan: Caravan, now_us: int) -> dict[str, Any]:
    allowed = machine.meter.allowed(caravan)
    lead = machine.caravans.lead
    return {
        "number": caravan.number,
        "lead": caravan is lead,
        "company": caravan.company,
        "at": str(caravan.at),
        "behind": behind(caravan.at, end_of(machine)),
        "flows": sum(len(riders.flows) for riders in caravan.riders.values()),
        "scouts": len(caravan.scouts),
        "subscribers": sorted(caravan.riders),
        "applications": sorted(
            {riders.link.served.name for riders in caravan.riders.values()}
            | {scout.served.name for scout in caravan.scouts}
        ),
        "current": caravan.current,
        "reads": caravan.reads,
        "read_updates": caravan.read_updates,
        "read_bytes": caravan.read_bytes,
        "bytes_per_s": round(machine.meter.rate(caravan, now_us)),
        "allowed_bytes_per_s": None if allowed == float("inf") else round(allowed),
        "why": caravan.made_why,
        "pace": _pace(machine, caravan, now_us),
    }


def _pace(machine: Publisher, caravan: Caravan, now_us: int) -> str:
    takes = not caravan.riders or any(riders.link.takes for riders in caravan.riders.values())
    return explained(machine.caravans, machine.meter, caravan, takes, now_us)


def _copy(machine: Publisher, now_us: int) -> dict[str, Any] | None:
    if not isinstance(machine, CopyPublisher):
        return None
    return {
        "leased": machine.session.leased(now_us),
        "owns": [f"{application}/{part}" for application, part in machine.owners.owned],
        "waits_for": [f"{application}/{part}" for application, part in machine.waits_for],
        "takeovers": machine.takeovers,
        "returns": machine.returns,
    }
