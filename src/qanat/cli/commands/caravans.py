"""`qanat caravans`: the readers of a publisher's log, who travels in each, and why."""

from __future__ import annotations

import argparse
import json

from qanat.cli.main import OK
from qanat.cli.options import add_json, whole
from qanat.cli.publishers import WHERE, add_publisher, amount, find
from qanat.cli.tables import table

EXAMPLES = f"""\
examples:
  qanat caravans                                 readers, their pace, and why there are so many
  qanat caravans --publisher shop.toml --decisions 50
  qanat caravans --json
  qanat move index --company night               override the policy; `qanat move --help`
  qanat publisher limits caravans_max=6 near=5000

{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_publisher(parser)
    parser.add_argument(
        "--decisions",
        type=whole,
        default=10,
        metavar="N",
        help="show so many of the last decisions (default 10)",
    )
    add_json(parser, "all of it as one JSON object")


def run(args: argparse.Namespace) -> int:
    status = find(args).get("/status")
    wanted = ("caravans", "plan", "policy", "companies", "companies_waiting", "decisions", "end")
    found = {name: status.get(name) for name in wanted}
    found["decisions"] = (found["decisions"] or [])[: args.decisions]
    if args.json:
        print(json.dumps(found))
        return OK
    heads = ("caravan", "at", "behind", "flows", "bytes/s", "allowed", "applications")
    rows = [
        (
            f"{one['number']}{' lead' if one['lead'] else ''}",
            one["at"],
            one["behind"],
            one["flows"],
            amount(one["bytes_per_s"]),
            amount(one["allowed_bytes_per_s"]),
            ", ".join(one["applications"]),
        )
        for one in found["caravans"] or []
    ]
    print(table(heads, rows) if rows else "nobody travels: there are no caravans")
    print(f"\nplan, by the policy {found['policy']}: {found['plan']}")
    for one in found["caravans"] or []:
        print(f"caravan {one['number']}: {one['why']}; {one['pace']}")
    for name, members in (found["companies"] or {}).items():
        waits = (
            ", which waits for a reader (caravans_max)" if name in (found["companies_waiting"] or []) else ""
        )
        print(f"company {name}{waits}: {', '.join(members)}")
    if found["decisions"]:
        print("\nlast decisions:")
        for each in found["decisions"]:
            print(
                f"  {each['ago_s']:>8.1f} s ago  {each['what']:<8} caravan {each['caravan']}: {each['why']}"
            )
    return OK
