"""`qanat coordinator begin`: what is left to a person when a majority of coordinators forgot, or when one is
to become three."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from qanat.cli.deployments import find_home
from qanat.cli.main import FOUND_WRONG, OK
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from pathlib import Path

    from qanat.operate.home import Home
    from qanat.replica.beginning_anew import Survivor

EXAMPLES = """\
  qanat coordinator begin --region eu
        a majority of the three of eu lost their disks: which journals are left?
  qanat coordinator begin --region eu --yes           all three begin with the most advanced one
  qanat coordinator begin --region eu --empty --yes
        no journal is left: they begin with nothing, and replicas tell them what they know
  qanat coordinator begin --region eu --members 3 --yes
        the one coordinator of eu becomes three (after `qanat down`)
  qanat coordinator begin --config eu-coordinator-1.toml --from /mnt/saved/ensemble.journal --yes
                                                      on each of three machines, from copies of one journal, while none of them runs
"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--members", type=int, choices=(1, 3), help="begin: how many there are to be from now on"
    )
    parser.add_argument(
        "--from",
        dest="journal",
        metavar="JOURNAL",
        help="begin: with this one, instead of the most advanced one",
    )
    parser.add_argument("--empty", action="store_true", help="begin: with nothing, for no journal is left")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="begin: the file of one coordinator, which is not of a deployment here",
    )


def begin(args: argparse.Namespace) -> int:
    """Makes one journal the beginning of a coordinator, alone or of three; without --yes only says which."""
    if args.empty and args.journal:
        raise LocalError("either from a journal or with nothing: leave one of --from and --empty out")
    return _one(args) if args.config else _region(args)


def _one(args: argparse.Namespace) -> int:
    import os
    from pathlib import Path

    from qanat.events.durable import make_folder
    from qanat.replica.beginning_anew import begin_with
    from qanat.replica.settings import CoordinatorSettings
    from qanat.runtime.config import load
    from qanat.runtime.folder_lock import lock_folder

    if not args.empty and not args.journal:
        raise LocalError("say from which journal with --from: all three begin from copies of one; or --empty")
    settings = load(CoordinatorSettings, file=args.config).settings
    folder = Path(settings.node.data).absolute()
    start = _start(args, [folder])
    _say(start, [settings.node.name])
    if args.yes:
        make_folder(folder)
        lock = lock_folder(folder)
        try:
            begin_with([folder], 1 + len(settings.peers), start)
        finally:
            os.close(lock)
    return _told(args)


def _region(args: argparse.Namespace) -> int:
    import msgspec

    from qanat.operate.layout import coordinator, coordinators, file_name
    from qanat.replica.beginning_anew import begin_with

    home = find_home(args, running=False)
    deployment = home.deployment
    regions = list(deployment.regions) if deployment is not None else []
    region = args.region or (regions[0] if len(regions) == 1 else "")
    if deployment is None or region not in regions:
        raise LocalError(
            f"say which region with --region; there are {', '.join(regions) or 'none'} in {home.folder}"
        )
    spec = deployment.regions[region]
    if spec.coordinator:
        raise LocalError(f"region {region!r} agrees through {spec.coordinator}, which mends itself")
    before = coordinators(deployment, region)
    count = args.members or len(before)
    runs = home.supervised is not None
    if count != len(before) and runs:
        raise LocalError("one becomes three, or three one, while nothing runs: `qanat down` first")
    data = home.folder / "data"
    everybody = dict.fromkeys(
        [*before, coordinator(region), *(f"{coordinator(region)}-{n}" for n in (1, 2, 3))]
    )
    changed = {**deployment.regions, region: msgspec.structs.replace(spec, coordinators=count)}
    after = msgspec.structs.replace(deployment, regions=changed)
    names = coordinators(after, region)
    if runs and args.yes:
        _hold(home, before)
    try:
        start = _start(args, [data / file_name(name) for name in everybody])
        _say(start, names)
        if args.yes:
            begin_with([data / file_name(name) for name in names], count, start)
            if count != len(before):
                home.deployment = after
    finally:
        if runs and args.yes:
            _let_go(home, before)
    return _told(args)


def _told(args: argparse.Namespace) -> int:
    if args.yes:
        return OK
    print("nothing was done; say --yes to do it")
    return FOUND_WRONG


def _start(args: argparse.Namespace, folders: list[Path]) -> Survivor | None:
    from pathlib import Path

    from qanat.replica.beginning_anew import NoJournal, from_journal, survivors

    if args.empty:
        return None
    if args.journal:
        return from_journal(Path(args.journal).absolute())
    found, refused = survivors(folders)
    for each in refused:
        print(f"cannot be read: {each}")
    for survivor in found:
        print(f"there is {survivor.about}")
    if not found:
        raise NoJournal(
            "no journal is left: bring one back from a copy (--from), or begin with nothing (--empty)"
        )
    return found[0]


def _say(start: Survivor | None, names: list[str]) -> None:
    whence = "with nothing" if start is None else f"from {start.path}"
    print(f"{', '.join(names)} begin{'s' if len(names) == 1 else ''} {whence}", flush=True)


def _hold(home: Home, names: list[str]) -> None:
    from qanat.operate.control import call

    for name in names:
        call(home, "kill", node=name, pause_s=None)
    _until_gone(home, names)


def _until_gone(home: Home, names: list[str]) -> None:
    import time

    from qanat.operate.control import call

    while any(call(home, "status")["nodes"][name]["state"] == "running" for name in names):
        time.sleep(0.05)


def _let_go(home: Home, names: list[str]) -> None:
    from qanat.operate.control import call

    for name in names:
        call(home, "start", node=name)
