"""`qanat replica`: add a replica to a region's chain, or remove one."""

from __future__ import annotations

import argparse

from qanat.cli.deployments import WHERE, add_data, add_wait, find_home
from qanat.events.errors import LocalError

EXAMPLES = f"""\
examples:
  qanat replica add eu       the new replica catches up behind the tail and becomes the tail
  qanat replica remove eu    remove the replica with the highest number

The command changes the file in the deployment's folder and applies it, as `qanat apply` does. Change the
number of replicas in your own file as well, or the next `apply` of it undoes the change. Exit code 1:
refused.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("add", "remove"))
    parser.add_argument("region", metavar="REGION")
    add_wait(parser)
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    import msgspec

    from qanat.cli.commands.apply import change_to
    from qanat.operate.layout import replicas
    from qanat.operate.plan import Refused

    home = find_home(args)
    now = home.deployment
    if now is None or args.region not in now.regions:
        known = ", ".join(now.regions) if now else "none"
        raise LocalError(f"there is no region {args.region!r}; the deployment has {known}")
    region = now.regions[args.region]
    if args.what == "remove":
        goes = replicas(now, args.region)[-1]
        if region.replicas == 1:
            raise Refused(
                f"{goes} is the only replica of {args.region}; remove the region with `qanat apply`"
            )
    count = region.replicas + (1 if args.what == "add" else -1)
    try:
        changed = msgspec.structs.replace(region, replicas=count)
        new = msgspec.structs.replace(now, regions={**now.regions, args.region: changed})
        msgspec.convert(msgspec.to_builtins(new), type(new))
    except msgspec.ValidationError:
        raise Refused(f"a region has at most {region.replicas} replicas") from None
    return change_to(home, new, dry_run=False, wait_s=args.wait)
