"""`qanat stream`: create, describe, change and remove streams, at a server or in all regions of a
deployment."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from qanat.cli.deployments import add_wait
from qanat.cli.main import OK
from qanat.cli.node_status import stream_table
from qanat.cli.options import add_action, add_json, whole
from qanat.cli.stream_info import shown_stream
from qanat.cli.stream_words import add_kept_as, kept_as, kept_words
from qanat.cli.target import Target, add_target, find_target, reaching
from qanat.cli.unknown_streams import missing
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.client import Client
    from qanat.operate.file import Deployment
    from qanat.operate.home import Home

EXAMPLES = """\
examples:
  qanat stream ls                                    names, numbers, durability, policies, subscribers
  qanat stream info prices                           its settings, events, garbage collection and subscribers
  qanat stream info prices --from 5000 --json
  qanat stream create prices --by-key --retain-age 30d
  qanat stream create ticks --keep-last 1000000 --durability interval
  qanat stream create orders --region eu             in a deployment: region eu owns it
  qanat stream set prices --keep-last 1000           change its settings without a restart
  qanat stream set prices --keep-last none --by-key no
  qanat stream rm prices                             remove it after a question; --yes does not ask

A single server makes the change itself. A deployment has its streams in a file: the command changes the
file in the deployment's folder and applies it, as `qanat apply` does. Change your own file as well, or the
next `apply` of it undoes the change. Exit codes: 0 done, 1 refused, 2 wrong usage or no such stream,
3 no server answers.
"""


class NotRemoved(LocalError):
    """The user did not confirm the removal."""

    exit_code = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = add_action(actions, "ls", "list the streams", EXAMPLES)
    add_target(listed)
    add_json(listed, "a JSON array")
    info = add_action(actions, "info", "describe a stream", EXAMPLES)
    _add_named(info, "one JSON object")
    info.add_argument(
        "--from", dest="start", type=whole, default=1, metavar="N", help="show events from number N on"
    )
    make = add_action(actions, "create", "create a stream", EXAMPLES)
    _add_named(make, "its description as one JSON object")
    add_kept_as(make, new=True)
    add_wait(make)
    change = add_action(actions, "set", "change a stream's settings", EXAMPLES)
    _add_named(change, "its description as one JSON object")
    add_kept_as(change, new=False)
    add_wait(change)
    gone = add_action(actions, "rm", "remove a stream", EXAMPLES)
    _add_named(gone, "its last description as one JSON object")
    gone.add_argument("--yes", action="store_true", help="do not ask")
    add_wait(gone)


def _add_named(parser: argparse.ArgumentParser, json_help: str) -> None:
    parser.add_argument("stream")
    add_target(parser)
    add_json(parser, json_help)


def run(args: argparse.Namespace) -> int:
    if args.action == "ls":
        return ls(args)
    target = find_target(args, args.stream)
    doing = {"info": "asking", "create": "creating it at", "set": "changing it at", "rm": "removing it at"}
    target.say(doing[args.action])
    if args.action == "info":
        return _info(args, target)
    if target.home is not None:
        return _in_deployment(args, target.home)
    with _client(target) as client:
        match args.action:
            case "create":
                told = client.create_stream(args.stream, **kept_as(args))
                words = f"created {args.stream}: {kept_words(told['kept_as'])}"
            case "set":
                _known(client, args.stream, target)
                told = client.set_stream(args.stream, **_said(args))
                words = f"{args.stream} now has {kept_words(told['kept_as'])}"
            case _:
                _known(client, args.stream, target)
                told = client.stream_info(args.stream)
                _ask(args, f"this removes {args.stream} at {target.place} for good, {_what_goes(told)}")
                told = client.remove_stream(args.stream)
                words = f"removed {args.stream}, {_what_goes(told)}"
    print(json.dumps(told) if args.json else words)
    return OK


def ls(args: argparse.Namespace) -> int:
    """Lists the streams, also for `qanat streams`."""
    target = find_target(args)
    target.say("streams of")
    with _client(target) as client:
        streams = client.ask("streams")
    if args.json:
        print(json.dumps(streams))
    elif not streams:
        print(
            "no streams yet; create one: `qanat stream create NAME`, or publish to it: echo hello |"
            " qanat pub NAME"
        )
    else:
        print(stream_table(streams))
    return OK


def _client(target: Target) -> Client:
    from qanat.client import Client

    with reaching(target):
        return Client(target.url, patience=0)


def _known(client: Client, stream: str, target: Target) -> None:
    absent = missing(client, stream)
    if absent is not None:
        raise absent.error(target, f"`qanat stream create {stream}` creates it")


def _info(args: argparse.Namespace, target: Target) -> int:
    with _client(target) as client:
        _known(client, args.stream, target)
        place = client.ask("place")
        tail = place["replicas"].get(place["tail"], "")
        if place["tail"] in ("", place["me"]) or not tail:
            told = client.stream_info(args.stream, args.start)
        else:
            with _client(target._replace(url=tail)) as other:  # subscribers are at the tail
                told = other.stream_info(args.stream, args.start)
    print(json.dumps(told) if args.json else shown_stream(told, target.place, args.start))
    return OK


def _said(args: argparse.Namespace) -> dict[str, Any]:
    said = kept_as(args)
    if not said:
        raise LocalError("set needs a setting to change, as --keep-last 1000 or --retain-age 30d")
    return said


def _what_goes(told: dict[str, Any]) -> str:
    kept, listening = told["collection"]["kept_events"], told["subscribers"]
    readers = f"; {listening} subscriber{' reads' if listening == 1 else 's read'} it" if listening else ""
    return f"with {kept:,} events ({told['bytes']:,} bytes){readers}"


def _ask(args: argparse.Namespace, what: str) -> None:
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise NotRemoved(f"{what}: confirm with --yes, because there is no terminal to ask")
    print(f"{what}. Remove it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotRemoved(f"{args.stream} stays as it is")


def _in_deployment(args: argparse.Namespace, home: Home) -> int:
    """Changes the file in the deployment's folder and applies it."""
    import msgspec

    from qanat.cli.commands.apply import change_to
    from qanat.operate.file import mistakes
    from qanat.runtime.config import dotted

    now = home.deployment
    if now is None:
        raise LocalError(
            f"{home.folder} has no deployment.toml; start the deployment again with `qanat up FILE`"
        )
    name = args.stream
    streams = dict(now.streams)
    if args.action == "create":
        streams[name] = _new(args, now)
    elif name not in streams:
        known = ", ".join(streams) or "none"
        raise LocalError(f"the deployment in {home.folder} has no stream {name!r}; it has {known}")
    elif args.action == "set":
        from qanat.log.said import changed

        streams[name] = changed(streams[name], json.dumps(_said(args)).encode())
    else:
        _ask(
            args,
            f"this removes {name} of region {streams[name].owner} from all regions; its files stay"
            f" in the nodes' folders until `qanat down --wipe`, and a new stream with that name in"
            f" region {streams[name].owner} continues with them",
        )
        del streams[name]
    new = msgspec.structs.replace(now, streams=streams)
    for place, what in mistakes(new):
        raise LocalError(f"`{dotted(place)}` {what}")
    if args.json:
        return _quietly(args, home, new)
    code = change_to(home, new, dry_run=False, wait_s=args.wait)
    print(
        f"make the same change in [streams.{name}] of your own deployment file, if you have one",
        file=sys.stderr,
    )
    return code


def _quietly(args: argparse.Namespace, home: Home, new: Deployment) -> int:
    """Applies the change with one line of JSON and nothing else on standard output."""
    from contextlib import redirect_stdout

    from qanat.cli.commands.apply import change_to

    with redirect_stdout(sys.stderr):
        code = change_to(home, new, dry_run=False, wait_s=args.wait)
    if args.action == "rm" or code != OK:
        print(json.dumps({"stream": args.stream, "removed": code == OK}))
        return code if code != OK else OK
    with _client(find_target(args, args.stream)) as client:
        print(json.dumps(client.stream_info(args.stream)))
    return code


def _new(args: argparse.Namespace, now: Deployment) -> Any:
    import msgspec

    from qanat.log.said import changed
    from qanat.operate.plan import Refused
    from qanat.replica.settings import StreamSettings

    if args.stream in now.streams:
        raise Refused(f"stream {args.stream!r} exists already; `qanat stream set` changes its settings")
    if args.region is None and len(now.regions) > 1:
        raise LocalError(
            f"name the owner with --region, one of {', '.join(now.regions)}; you cannot change it later"
        )
    owner = args.region or next(iter(now.regions))
    base = StreamSettings(owner=owner)
    return changed(base, msgspec.json.encode(kept_as(args)))
