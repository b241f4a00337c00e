"""Before a damaged replica begins anew: does another one have what the chain acknowledged?"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from qanat.events.errors import RemoteError
from qanat.replica.damage import ADVICE, DamagedDisk, DamagedState, SetAside
from qanat.replica.settings import ProxySettings
from qanat.serving.single_question import ask
from qanat.wire.control import Identity

log = logging.getLogger("qanat.proxy")

_ASK_S, _PAUSE_S = 2.0, 0.2
_TIMEOUTS, _LEAST_S = 10, 20.0
"""For how many timeouts of a session, and how long at least, others may take to be found: they may just be
starting, and a chain of which this replica was the head goes on only when its session is over."""


async def begin_anew(
    settings: ProxySettings, me: Identity, disk: DamagedDisk, why: str, stopping: Callable[[], bool]
) -> SetAside:
    """Sets the state aside once another replica of this region says that it has all that counts.

    Raises `DamagedState`, with everything left as it is, if there is no other replica or none says so.
    """
    ours = f"{settings.region.name}/"
    others = {name: peer.url for name, peer in settings.peers.items() if name.startswith(ours)}
    if not others:
        raise DamagedState(f"{why}; region {settings.region.name!r} has no other replica: {ADVICE}")
    log.error("damaged; asking the others", extra={"node": me.name, "reason": why})
    asker = msgspec.structs.replace(me, name=f"{me.name} (damaged)", role="client")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(_LEAST_S, _TIMEOUTS * settings.session.timeout_ms / 1000)
    while not stopping() and loop.time() < deadline:
        for name, url in others.items():
            try:
                status = await ask(url, asker, "status", settings.transport, _ASK_S)
            except (RemoteError, TimeoutError):
                continue
            if _has_all(status.get("chain", {})):
                aside = disk.set_aside(why)
                log.error(
                    "set aside, and begins anew",
                    extra={"node": me.name, "reason": why, "folder": aside.folder, "from": name},
                )
                return aside
        await asyncio.sleep(_PAUSE_S)
    raise DamagedState(
        f"{why}; no other replica of {settings.region.name!r} is in its chain now ({', '.join(others)}): "
        f"start one, then this one again; if there is none left, {ADVICE}"
    )


def _has_all(chain: dict[str, Any]) -> bool:
    """Whoever is head or tail of a configuration that was confirmed has all that was acknowledged or
    shown."""
    at_an_end = chain.get("role") in ("head", "tail", "head and tail")
    return at_an_end and bool(chain["confirmed"] and chain["leased"])
