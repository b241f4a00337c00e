"""`qanat link`: cut and heal links between regions, for drills."""

from __future__ import annotations

import argparse
import sys

from qanat.cli.deployments import WHERE, add_data, find_home
from qanat.cli.main import OK, USAGE

EXAMPLES = f"""\
examples:
  qanat link cut eu us              nothing passes between eu and us
  qanat link cut eu us --one-way    nothing passes from eu to us
  qanat link heal eu us
  qanat link heal --all

A cut link behaves like a network that drops packets: connections stay, nothing arrives. The deployment needs
`drills = true`, as the one of `qanat up` without a file has.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("cut", "heal"))
    parser.add_argument("regions", nargs="*", metavar="REGION", help="two of them")
    parser.add_argument(
        "--one-way", action="store_true", help="cut or heal only from the first region to the second"
    )
    parser.add_argument("--all", action="store_true", help="heal every link")
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    from qanat.operate.control import call

    everything = args.all and args.what == "heal" and not args.regions
    if not everything and (len(args.regions) != 2 or args.all):
        print(
            "qanat: name two regions, as `qanat link cut eu us`, or `qanat link heal --all`", file=sys.stderr
        )
        return USAGE
    pairs = [tuple(args.regions)] if args.regions else []
    if pairs and not args.one_way:
        pairs.append((pairs[0][1], pairs[0][0]))
    answer = call(find_home(args), "cuts", cut=args.what == "cut", pairs=pairs)
    if args.what == "heal":
        healed = answer["healed"]
        print("healed: " + ", ".join(_shown(healed)) if healed else "nothing to heal: no such link is cut")
    left = answer["cuts"]
    print("cut: " + ", ".join(_shown(left)) if left else "no link is cut")
    return OK


def _shown(cuts: list[list[str]]) -> list[str]:
    """Each cut once: `a – b` for both ways, `a → b` for one."""
    ways = {(a, b) for a, b in cuts}
    both = [f"{a} – {b}" for a, b in sorted(ways) if (b, a) in ways and a < b]
    return both + [f"{a} → {b}" for a, b in sorted(ways) if (b, a) not in ways]
