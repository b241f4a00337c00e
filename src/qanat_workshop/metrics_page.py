"""The reference of all statistics of publishers, of applications' instances and of servers of streams:
`python -m qanat_workshop.metrics_page > docs/metrics.md`."""

import re
from functools import partial

from qanat.applications import Callbacks, Instance
from qanat.publisher.node import PublisherNode
from qanat.publisher.settings import PublisherSettings
from qanat.runtime.config import load
from qanat.serving.server import StreamServer
from qanat.serving.settings import StreamServerSettings

_HEAD = """\
# Statistics

An operator must see lag, rates and losses before users feel them. Every publisher, stream server and instance
of an application serves its counters at `/metrics`, in Prometheus' text format. A process reads a number only
when Prometheus asks for it, so that the counters cost nothing in between.

```text
 publisher      admin.port  7422 ──┐
 stream server  admin.port  7412 ──┼── GET /metrics ◄── Prometheus
 instance       admin_port       ──┘
```

```sh
./qanat serve &
curl -s http://127.0.0.1:7412/metrics | grep qanat_transport_
```

A publisher and a server have the port in the setting [`admin.port`](configuration.md), an instance has it in
`InstanceSettings(admin_port=7413)`. Every name begins with `qanat_`, and the name of a counter ends in
`_total`. Labels are names that operators chose; at most 1,000 subscribers have a label of their own. The code
generates this page, and a test compares it with a live publisher and a live instance:

```sh
python -m qanat_workshop.metrics_page > docs/metrics.md
```
"""
_TABLE = "| name | kind | labels | meaning |\n|---|---|---|---|"


def statistics(text: str) -> dict[str, tuple[str, str]]:
    """The kind and the help text of each name in the text of `/metrics`."""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    return {name: (kinds[name], what) for name, what in helps.items() if not name.endswith("_created")}


def page() -> str:
    publisher = PublisherNode(partial(load, PublisherSettings)).metrics
    server = StreamServer(partial(load, StreamServerSettings)).metrics
    instance = Instance(Callbacks(), "any", ["qanat://localhost"]).metrics
    out: list[str] = [_HEAD]
    known: set[str] = set()
    parts = (
        ("Publishers", publisher),
        ("Instances of applications", instance),
        ("Servers of streams", server),
    )
    for title, metrics in parts:
        told = statistics(metrics.render().decode())
        labels = metrics.label_names()
        own = len(told.keys() - known)
        out += [
            f"## {title}",
            "",
            f"{len(told)} statistics{f', {own} of its own' if known else ''}.",
            "",
            _TABLE,
        ]
        for name, (kind, what) in sorted(told.items()):
            if name not in known:
                stem = name.removeprefix("qanat_").removesuffix("_total")
                out.append(
                    f"| `{name.removeprefix('qanat_')}` | {kind} | {', '.join(labels[stem])} | {what} |"
                )
        known |= set(told)
        out.append("")
    return "\n".join(out).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
