"""`qanat coordinator`: rebuild a region's chain after its coordinator lost it, and choose coordinators'
journals."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from qanat.cli import ensembles
from qanat.cli.deployments import WHERE, add_data, find_home
from qanat.cli.main import FOUND_WRONG, OK
from qanat.cli.publishers import Publisher
from qanat.cli.tables import table
from qanat.events.errors import LocalError, QanatError

if TYPE_CHECKING:
    from qanat.operate.home import Home

EXAMPLES = f"""\
examples:
  qanat coordinator rebuild  show each replica's knowledge, and the replicas that are missing
  qanat coordinator rebuild --region eu --without eu/proxy-2          show what would be lost
  qanat coordinator rebuild --region eu --without eu/proxy-2 --yes    do it
  qanat coordinator rebuild --replica /var/lib/qanat/proxy-1 --replica /var/lib/qanat/proxy-2
{ensembles.EXAMPLES}
Replicas restore a coordinator that has lost its chain, without this command. Use `rebuild` if the chain
waits for a replica that is gone for good. Use `begin` if a majority of coordinators started without a
journal: they wait until you choose one. The most advanced journal has all that they agreed on; `begin` keeps
the old files in `before-begin` beside it. --replica names the data folder or http://host:port of a replica
outside of a deployment. Exit codes: 0 the chain serves, or nothing to do; 1 it waits; 2 wrong usage; 3 no
replica answers.
{WHERE}"""
_POLL_S = 0.2


class Replica(Publisher):
    """A client of one replica's HTTP."""

    kind, option, run = "replica", "--replica", "node proxy --config"
    sign = "chain"
    example, data = "http://127.0.0.1:7412", "qanat-proxy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("rebuild", "begin"))
    parser.add_argument("--region", metavar="NAME", help="the region, if the deployment has several")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="REPLICA",
        help="a replica that is gone for good; repeat it for several",
    )
    parser.add_argument(
        "--replica",
        action="append",
        default=[],
        metavar="WHERE",
        help="a replica to ask; repeat it for several",
    )
    parser.add_argument("--yes", action="store_true", help="make the change")
    parser.add_argument(
        "--wait",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait until the chain serves (default 60)",
    )
    ensembles.add_arguments(parser)
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    if args.action == "begin":
        return ensembles.begin(args)
    replicas = _asked(args)
    found = _look(replicas)
    if not found:
        raise _Nobody("no replica answers: start the remaining replicas and run this again")
    region = next(iter(found.values()))["region"]
    print(_shown(replicas, found))
    waits = next((said["chain"]["waits"] for said in found.values() if said["chain"]["waits"]), "")
    if not waits:
        serves = _serves(found)
        print(
            f"\nthe chain of {region} {'serves' if serves else 'does not serve yet'} and waits for no replica"
        )
        return OK if serves else FOUND_WRONG
    print(f"\n{waits}")
    if not args.without:
        return FOUND_WRONG
    here = [name for name in args.without if name in found and not found[name]["chain"]["knows"]["emptied"]]
    if here:
        raise LocalError(
            f"{', '.join(here)} answers, so it is not gone: stop it first if you want to give it up"
        )
    unknown = [name for name in args.without if name not in waits]
    if unknown:
        raise LocalError(f"the chain of {region} does not wait for {', '.join(unknown)}")
    print(
        f"\nwithout {', '.join(args.without)} the chain continues with the events of the others:"
        f" every event that only {', '.join(args.without)} stored is lost, even if it was acknowledged."
    )
    if not args.yes:
        print("nothing has changed; run this again with --yes to do it")
        return FOUND_WRONG
    for name in found:
        replicas[name].post("/rebuild", without=args.without)
    return _wait(replicas, region, args.wait)


class _Nobody(LocalError):
    exit_code = 3


def _asked(args: argparse.Namespace) -> dict[str, Replica]:
    """The running replicas of one region, by name."""
    if args.replica:
        found = [Replica(where) for where in args.replica]
        return {str(each.status()["name"]): each for each in found}
    from qanat.operate.layout import file_name, replicas

    home: Home = find_home(args)
    deployment = home.deployment
    regions = list(deployment.regions) if deployment is not None else []
    region = args.region or (regions[0] if len(regions) == 1 else "")
    if deployment is None or region not in regions:
        raise LocalError(f"name a region with --region; the deployment has {', '.join(regions) or 'none'}")
    known: dict[str, Replica] = {}
    for name in replicas(deployment, region):
        try:
            known[name] = Replica(str(home.folder / "data" / file_name(name)))
        except QanatError:
            continue  # it does not run
    return known


def _look(replicas: dict[str, Replica]) -> dict[str, Any]:
    found = {}
    for name, replica in replicas.items():
        try:
            said = replica.status()
        except QanatError:
            continue
        if "knows" in said.get("chain", {}):
            found[name] = said
    return found


def _serves(found: dict[str, Any]) -> bool:
    chains = [said["chain"] for said in found.values()]
    return any(each["answers"] for each in chains) and any(each["serves"] for each in chains)


def _shown(replicas: dict[str, Replica], found: dict[str, Any]) -> str:
    rows: list[list[object]] = []
    for name in replicas:
        said = found.get(name)
        if said is None:
            rows.append([name, "does not answer", "", "", ""])
            continue
        knows = said["chain"]["knows"]
        epoch = f"{knows['epoch']}{'' if knows['confirmed'] else ', unconfirmed'}"
        streams = ", ".join(f"{each['stream']} {each['durable']}" for each in said["streams"])
        kept = "all its events" if knows["kept"] else "no valid events"
        rows.append([name, epoch, " → ".join(knows["replicas"]), kept, streams])
    return table(["replica", "last epoch read", "chain in it", "keeps", "events on disk"], rows)


def _wait(replicas: dict[str, Replica], region: str, patience_s: float) -> int:
    deadline = time.monotonic() + patience_s
    while True:
        found = _look(replicas)
        if _serves(found):
            epoch = max(int(said["chain"]["epoch"]) for said in found.values())
            print(f"the chain of {region} serves, in epoch {epoch}")
            return OK
        if time.monotonic() > deadline:
            waits = next((said["chain"]["waits"] for said in found.values() if said["chain"]["waits"]), "")
            print(waits or f"the chain of {region} does not serve yet")
            return FOUND_WRONG
        time.sleep(_POLL_S)
