"""What operators see of the caravans of a server's streams, and what they can change: limits, and who travels
with whom."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from qanat.events.errors import LocalError
from qanat.protocols.caravans.pace import explained
from qanat.runtime.admin import Admin
from qanat.runtime.admin_note import leave_note, remove_note
from qanat.runtime.config import load
from qanat.serving.caravan_settings import CaravanControl, CaravansConfig
from qanat.serving.delivery import Delivery
from qanat.serving.stream_caravans import StreamCaravan
from qanat.serving.trailing import Trailing

_NAMES = 20
"""So many subscribers of a caravan are named; how many there are is always said."""


class CaravanAdmin:
    """Pages and actions of a server's HTTP. What is changed counts until it is taken back, or the server
    stops."""

    def __init__(
        self,
        admin: Admin,
        control: Callable[[], CaravanControl],
        streams: Callable[[], Mapping[str, Delivery]],
    ) -> None:
        self._admin, self._control, self._streams = admin, control, streams
        self._folder: Path | None = None
        admin.pages |= {"/caravans": self.caravans, "/limits": self.limits}
        admin.actions |= {"/limits": self.change_limits, "/move": self.move}

    def open(self, folder: Path, host: str) -> None:
        """Whoever may read the folder may change something."""
        if self._admin.port:
            self._admin.token = leave_note(folder, host, self._admin.port).token
            self._folder = folder

    def close(self) -> None:
        if self._folder is not None:
            remove_note(self._folder)
            self._folder = None

    # --- pages --------------------------------------------------------------------------------------

    def caravans(self, query: dict[str, str]) -> object:
        control = self._control()
        chosen = query.get("stream", "")
        return {
            "streams": {
                name: trailing_status(stream)
                for name, stream in sorted(self._streams().items())
                if chosen in ("", name)
            },
            "policy": control.config.policy,
            "companies": {name: list(members) for name, members in control.companies.items()},
            "companies_waiting": list(control.companies)[len(control.honoured) :],
        }

    def limits(self, query: dict[str, str]) -> object:
        control = self._control()
        return {
            "limits": {
                name: {
                    "value": value,
                    "file": getattr(control.said, name),
                    "from": "operator, over the file" if name in control.changes else "file",
                    "fixed": False,
                }
                for name, value in msgspec.to_builtins(control.config).items()
            }
        }

    # --- actions ------------------------------------------------------------------------------------

    def change_limits(self, asked: Mapping[str, Any]) -> object:
        """`settings`: texts `key=value`; `reset`: names that are to be as the file says."""
        control = self._control()
        found = load(CaravansConfig, flags=[str(text) for text in asked.get("settings", ())])
        every = msgspec.to_builtins(found.settings)
        changes = {**control.changes, **{name: every[name] for name in found.origins}}
        for name in asked.get("reset", ()):
            if name not in changes:
                raise LocalError(
                    f"{name} was not changed; changed are {', '.join(sorted(changes)) or 'none'}"
                )
            del changes[name]
        control.change(changes)
        self._plan()
        return self.limits({})

    def move(self, asked: Mapping[str, Any]) -> object:
        """`client`: a name, perhaps with `/subscription`; then one of `company`, `caravan` (with
        `stream`), `release`."""
        client = str(asked.get("client", ""))
        if not client:
            raise LocalError("say which client, as `qanat caravans` names it")
        if asked.get("release"):
            return self._release(client)
        if "company" in asked:
            return self._together([client], str(asked["company"]))
        if "caravan" in asked:
            return self._caravan(client, int(asked["caravan"]), str(asked.get("stream", "")))
        raise LocalError("say with whom: a company, a caravan of a stream, or as the policy says again")

    def _caravan(self, client: str, number: int, name: str) -> object:
        """Into the company of that caravan; if the policy made it, everybody aboard is one from now on."""
        stream = self._streams().get(name)
        if stream is None:
            raise LocalError(f"there is no stream {name!r} here; say which one's caravan {number} is meant")
        caravan = stream.trailing.caravans.all.get(number)
        if caravan is None or not number:
            raise LocalError(f"stream {name!r} has no caravan {number} that anybody can join")
        if caravan.company:
            return self._together([client], caravan.company)
        return self._together([client, *(one.name for one in caravan.laggards)], f"caravan-{number}")

    def _together(self, members: list[str], company: str) -> object:
        companies = self._without(set(members))
        companies[company] = tuple(dict.fromkeys([*companies.get(company, ()), *members]))
        self._control().keep_together(companies)
        self._plan()
        return {"company": company, "members": list(companies[company])}

    def _release(self, client: str) -> object:
        now = self._control().companies
        gone = {one for some in now.values() for one in some if one == client or one.startswith(f"{client}/")}
        if not gone:
            raise LocalError("the policy decides on these already; nothing was overridden")
        companies = self._without(gone)
        self._control().keep_together(companies)
        self._plan()
        return {"released": sorted(gone), "companies": companies}

    def _without(self, gone: set[str]) -> dict[str, tuple[str, ...]]:
        now = self._control().companies
        left = {name: tuple(one for one in some if one not in gone) for name, some in now.items()}
        return {name: some for name, some in left.items() if some}

    def _plan(self) -> None:
        for stream in self._streams().values():
            if stream.trailing.laggards:
                stream.trailing.plan()


def trailing_status(stream: Delivery) -> dict[str, Any]:
    trailing = stream.trailing
    now_us = trailing.now_us
    trailing.follow_edge()
    all_ = trailing.caravans.all.values()
    return {
        "end": stream.edge,
        "live": stream.live,
        "trailing": len(trailing.laggards),
        "waiting": sum(one.caravan is None for one in trailing.laggards.values()),
        "caravans": [_caravan(stream, trailing, one, now_us) for one in all_],
        "plan": trailing.caravans.plan.why,
        "decisions": trailing.caravans.told(now_us),
        "reads": trailing.reads,
        "read_bytes": trailing.read_bytes,
        "sent_bytes": trailing.sent_bytes,
        "alone_reads": stream.alone_reads,
        "alone_bytes": stream.alone_bytes,
    }


def _caravan(stream: Delivery, trailing: Trailing, caravan: StreamCaravan, now_us: int) -> dict[str, Any]:
    allowed, lead = trailing.meter.allowed(caravan), caravan is trailing.edge
    takes = lead or any(one.subscriber.ready for one in caravan.laggards)
    return {
        "number": caravan.number,
        "lead": lead,
        "company": caravan.company,
        "at": caravan.at.sequence,
        "behind": max(0, stream.edge - caravan.at.sequence),
        "flows": stream.live if lead else len(caravan.laggards),
        "subscribers": sorted(one.name for one in caravan.laggards)[:_NAMES],
        "wake_bytes": caravan.wake_bytes,
        "reads": caravan.reads,
        "read_bytes": caravan.read_bytes,
        "bytes_per_s": round(trailing.meter.rate(caravan, now_us)),
        "allowed_bytes_per_s": None if allowed == float("inf") else round(allowed),
        "why": caravan.made_why,
        "pace": explained(trailing.caravans, trailing.meter, caravan, takes, now_us),
    }
