"""`qanat coordinator begin`: chooses a journal when most coordinators lost theirs, or one becomes three."""

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
        list the journals that are left, after two or three coordinators of eu lost their disks
  qanat coordinator begin --region eu --yes           all three begin with the most advanced journal
  qanat coordinator begin --region eu --empty --yes
        no journal is left: all begin with an empty one and learn the chain from the replicas
  qanat coordinator begin --region eu --members 3 --yes
        the one coordinator of eu becomes three (after `qanat down`)
  qanat coordinator begin --config eu-coordinator-1.toml --from /mnt/saved/ensemble.journal --yes
                                                      on each of three machines, with copies of one journal, while none runs
"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--members", type=int, choices=(1, 3), help="begin: number of coordinators from now on"
    )
    parser.add_argument(
        "--from",
        dest="journal",
        metavar="JOURNAL",
        help="begin: use this journal instead of the most advanced one",
    )
    parser.add_argument("--empty", action="store_true", help="begin: use an empty journal, if none is left")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="begin: settings' file of one coordinator, outside of a deployment",
    )


def begin(args: argparse.Namespace) -> int:
    """Makes one journal the start of one coordinator or of three; without --yes only names the journal."""
    if args.empty and args.journal:
        raise LocalError("--from and --empty exclude each other: give one of them")
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
        raise LocalError(
            "--config needs --from JOURNAL (all three begin with copies of one journal) or --empty"
        )
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
        raise LocalError(f"name a region with --region; {home.folder} has {', '.join(regions) or 'none'}")
    spec = deployment.regions[region]
    if spec.coordinator:
        raise LocalError(f"region {region!r} uses {spec.coordinator} as coordinator, which repairs itself")
    before = coordinators(deployment, region)
    count = args.members or len(before)
    runs = home.supervised is not None
    if count != len(before) and runs:
        raise LocalError(
            "the number of coordinators changes only while the deployment is down: run `qanat down` first"
        )
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
    print("nothing has changed; run this again with --yes to do it")
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
        print(f"unreadable: {each}")
    for survivor in found:
        print(f"found {survivor.about}")
    if not found:
        raise NoJournal(
            "no journal is left: give a copy with --from, or begin with an empty journal with --empty"
        )
    return found[0]


def _say(start: Survivor | None, names: list[str]) -> None:
    whence = "with an empty journal" if start is None else f"with {start.path}"
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
