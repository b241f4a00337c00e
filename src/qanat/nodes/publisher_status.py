"""What a publisher tells people: its applications with their flows, its caravans and why they are as they are."""

from typing import Any

from qanat.events.position import Position
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.flows import Caravan, Flow, Served
from qanat.protocols.publisher.machine import Publisher

FLOWS = 1_000
"""Flows of one application that are listed; how many there are is always said."""


def publisher_status(machine: Publisher, now_us: int) -> dict[str, Any]:
    lead = machine.caravans.lead
    end = None if lead is None else lead.at
    return {
        "applications": [_application(served, end) for served in machine.served.values()],
        "caravans": [_caravan(machine, caravan, now_us) for caravan in machine.caravans.all.values()],
        "plan": machine.caravans.plan.why,
        "policy": machine.config.policy,
        "reads": machine.reads,
        "read_updates": machine.read_updates,
        "read_bytes": machine.read_bytes,
        "sent_updates": sum(link.sent_updates for link in machine.links.values()),
        "sent_bytes": sum(link.sent_bytes for link in machine.links.values()),
        "losses": machine.losses,
        "copy": _copy(machine, now_us),
    }


def _application(served: Served, end: Position | None) -> dict[str, Any]:
    positions = [flow.position for flow in served.flows.values()]
    scouts = [scout.position for scout in served.scouts.values()]
    rear = min([*positions, *scouts], default=None)
    return {
        "name": served.name,
        "mode": served.config.mode,
        "where": served.config.where,
        "problem": served.problem,
        "begun": bool(served.scouts),
        "parts": sorted(served.scouts),
        "shards": len(served.flows),
        "unassigned": sum(flow.link is None for flow in served.flows.values()),
        "rear": None if rear is None else str(rear),
        "behind": 0 if rear is None or end is None else max(0, end.sequence - rear.sequence),
        "marked": str(min((flow.marked for flow in served.flows.values()), default=Position(0, 0))),
        "subscribers": [
            {
                "name": link.address,
                "open": link.open,
                "takes": link.takes,
                "shards": len(link.flows),
                "weight": link.weight,
                "waiting_bytes": link.waiting_bytes,
                "sent_updates": link.sent_updates,
            }
            for link in served.links.values()
        ],
        "flows": [_flow(flow) for flow in list(served.flows.values())[:FLOWS]],
    }


def _flow(flow: Flow) -> dict[str, Any]:
    return {
        "shard": flow.shard,
        "subscriber": "" if flow.link is None else flow.link.address,
        "position": str(flow.position),
        "marked": str(flow.marked),
        "caravan": None if flow.caravan is None else flow.caravan.number,
        "leaving": flow.leaving,
    }


def _caravan(machine: Publisher, caravan: Caravan, now_us: int) -> dict[str, Any]:
    allowed = machine.meter.allowed(caravan)
    return {
        "number": caravan.number,
        "lead": caravan is machine.caravans.lead,
        "at": str(caravan.at),
        "flows": sum(len(riders.flows) for riders in caravan.riders.values()),
        "applications": sorted(
            {riders.link.served.name for riders in caravan.riders.values()}
            | {scout.served.name for scout in caravan.scouts}
        ),
        "bytes_per_s": round(machine.meter.rate(caravan, now_us)),
        "allowed_bytes_per_s": None if allowed == float("inf") else round(allowed),
        "why": caravan.made_why,
    }


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
