"""What changes between two deployments: what to do, in words and in steps, and what cannot be done."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from qanat.events.errors import LocalError
from qanat.log.rekeeping import differing
from qanat.operate.file import Deployment, decided
from qanat.operate.kinds import PASSED_ON, PROXY, readers
from qanat.operate.layout import nodes, replicas
from qanat.replica.settings import LIVE, StreamSettings


class Refused(LocalError):
    """A change that cannot be made; nothing was changed."""

    exit_code = 1


class Plan(NamedTuple):
    """`words` for a person, `refusals` sentences; the others are nodes. Those `restarted` can take their new
    settings only in a new life, one after the other."""

    words: list[str]
    refusals: list[str]
    started: list[str]
    stopped: list[str]
    restarted: list[str]

    def check(self) -> None:
        if self.refusals:
            raise Refused("; ".join(self.refusals))


Chains = Mapping[str, tuple[str, ...]]
"""Who is in the chain of each region of a deployment that runs."""


def compare(old: Deployment, new: Deployment, owners: dict[str, str], chains: Chains | None) -> Plan:
    """`owners` are those of all streams there ever were; `chains` None: the deployment is stopped."""
    old = decided(old, old)
    new = decided(new, old)
    before, after = nodes(old), nodes(new)
    live = chains is not None
    started = [node for node in after if node not in before]
    stopped = [node for node in before if node not in after]
    words: list[str] = []
    refusals: list[str] = []
    if new.name != old.name:
        refusals.append(
            f"the deployment {old.name!r} cannot be renamed to {new.name!r}: its folder has its name"
        )
    _regions(old, new, words, refusals)
    refusals += _who_would_lose(old, new, chains)
    kinds = _sections(old, new, words)
    if _streams(old, new, owners, words, refusals):
        kinds.add(PROXY)
    _links(old, new, words)
    if old.drills != new.drills:
        words.append(f"set drills to {str(new.drills).lower()}")
        if live:
            refusals.append(
                "drills cannot change while the deployment runs: `qanat down`, then `qanat up FILE`"
            )
    restarted = [node for node, kind in after.items() if node in before and kind in kinds] if live else []
    words += [f"start {node}" for node in started] + [f"stop {node}" for node in stopped]
    if restarted:
        words.append(f"restart {', '.join(restarted)}, one after the other")
    return Plan(words, refusals, started, stopped, restarted)


def _sections(old: Deployment, new: Deployment, words: list[str]) -> set[str]:
    """Kinds of nodes whose settings change."""
    kinds: set[str] = set()
    for name in PASSED_ON:
        if getattr(old, name) != getattr(new, name):
            words.append(f"change [{name}]")
            kinds |= readers(name)
    return kinds


def _regions(old: Deployment, new: Deployment, words: list[str], refusals: list[str]) -> None:
    for region, spec in new.regions.items():
        was = old.regions.get(region)
        if was is not None and was.coordinator != spec.coordinator:
            refusals.append(
                f"region {region!r} stays with {was.coordinator or 'its own coordinator'}: which replicas"
                " have its events is written there, and at another nobody would know; take another name"
            )
        if was is not None and not spec.coordinator and was.coordinators != spec.coordinators:
            refusals.append(
                f"region {region!r} has {_counted(was.coordinators)} and stays with it: what it knows must go"
                f" over to the others first; `qanat down`, then `qanat coordinator begin --region {region}"
                f" --members {spec.coordinators} --yes`"
            )
        if was is None:
            words.append(f"add region {region} with {spec.replicas} replicas")
        elif was.replicas != spec.replicas:
            words.append(f"change region {region} from {was.replicas} to {spec.replicas} replicas")
    words += [
        f"remove region {region}; its data stays" for region in old.regions if region not in new.regions
    ]


def _counted(coordinators: int) -> str:
    return "one coordinator" if coordinators == 1 else f"{coordinators} coordinators"


def _who_would_lose(old: Deployment, new: Deployment, chains: Chains | None) -> list[str]:
    """Regions of which nobody would be left who has all that was acknowledged: those in the chain have it,
    and nobody else."""
    refusals = []
    for region in [name for name in new.regions if name in old.regions]:
        stay = replicas(new, region)
        gone = [replica for replica in replicas(old, region) if replica not in stay]
        if not gone:
            continue
        if chains is None:
            refusals.append(
                f"{', '.join(gone)} cannot be taken away while nothing runs: perhaps nobody else has all"
                f" events of {region!r}; `qanat up`, then `qanat apply FILE`"
            )
        elif not (chain := chains.get(region, ())):
            refusals.append(
                f"{', '.join(gone)} cannot be taken away: no replica of {region!r} says who is in its chain;"
                " wait until one does"
            )
        elif not set(chain) - set(gone):
            alone = f"{chain[0]} alone is" if len(chain) == 1 else f"only {', '.join(chain)} are"
            refusals.append(f"{alone} in the chain of {region!r} now; wait until one is that stays")
    return refusals


def _streams(
    old: Deployment, new: Deployment, owners: dict[str, str], words: list[str], refusals: list[str]
) -> bool:
    """Whether a stream that stays is kept otherwise from now on, in a way that takes new nodes."""
    otherwise = False
    for name, stream in new.streams.items():
        owner = owners.get(name, stream.owner)
        was = old.streams.get(name)
        if owner != stream.owner:
            refusals.append(
                f"stream {name!r} belongs to {owner!r} and cannot be given to {stream.owner!r}: its events"
                " are numbered there; take another name, or wipe the deployment (`qanat down --wipe`)"
            )
        elif was is None:
            words.append(f"add stream {name} of {stream.owner}")
        elif was != stream:
            otherwise = otherwise or bool(differing(was, stream) - LIVE)
            if was.mode != stream.mode and "memory" in (was.mode, stream.mode):
                refusals.append(
                    f"stream {name!r} cannot go from {was.mode} to {stream.mode}: what is in memory and what"
                    " is on disk are two histories; take another name"
                )
            words += [
                f"change stream {name}: {key} {what}" for key, what in _differences(was, stream).items()
            ]
    words += [f"remove stream {name}; its data stays" for name in old.streams if name not in new.streams]
    return otherwise


def _differences(old: StreamSettings, new: StreamSettings) -> dict[str, str]:
    return {
        info.name: f"{_shown(getattr(old, info.name))} → {_shown(getattr(new, info.name))}"
        for info in msgspec.structs.fields(StreamSettings)
        if getattr(old, info.name) != getattr(new, info.name)
    }


def _shown(value: object) -> str:
    if isinstance(value, msgspec.Struct):
        parts = {
            info.name: getattr(value, info.name)
            for info in msgspec.structs.fields(type(value))
            if getattr(value, info.name) != info.default
        }
        return " ".join(f"{name}={each}" for name, each in parts.items()) or "none"
    return str(value)


def _links(old: Deployment, new: Deployment, words: list[str]) -> None:
    regions = list(new.regions)
    for number, a in enumerate(regions):
        for b in regions[number + 1 :]:
            was, now = old.compression(a, b), new.compression(a, b)
            if was != now:
                words.append(f"change link {a} – {b}: compression {was or 'none'} → {now or 'none'}")
