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

What publishers, the instances of applications and servers of streams tell at `/metrics`, in Prometheus' text
format. Written by

```sh
python -m qanat_workshop.metrics_page > docs/metrics.md
```

from what they export; a test compares it with a live publisher and a live instance. A publisher's and a
server's port is `admin.port`, an instance's `admin_port` of `InstanceSettings`. Numbers are read from where
they are kept when somebody asks, so that they cost nothing in between. Labels are names that operators gave;
of subscribers at most 1,000 are told of by name. All names begin with `qanat_`; counters end in `_total`.
"""
_TABLE = "| name | kind | labels | what |\n|---|---|---|---|"


def statistics(text: str) -> dict[str, tuple[str, str]]:
    """Name: kind and what it says, of what `/metrics` prints."""
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
