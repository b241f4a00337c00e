"""Writes the reference of all settings of a kind of node, from its struct, as Markdown.

`python -m qanat.runtime.config_page qanat.nodes.settings:StreamServerSettings > docs/configuration.md`
"""

import sys
from importlib import import_module

import msgspec

from qanat.runtime.fields import describe

_HEAD = """\
# Configuration

Of a stream server. Written by
`python -m qanat.runtime.config_page qanat.nodes.settings:StreamServerSettings > docs/configuration.md`
from the structs that the server reads; a test compares.

A setting is known by its dotted key, and comes from, the later over the earlier:

1. the default below,
2. a TOML file: `[transport]` and below it `heartbeat_ms = 500`,
3. the environment: `QANAT_TRANSPORT__HEARTBEAT_MS=500` (two underscores for each dot; lists with commas),
4. a flag: `--set transport.heartbeat_ms=500`.

A key that does not exist, or a value that does not fit, stops the start with one sentence that says which key,
where it came from and what exists. On SIGHUP file and environment are read again: settings marked in the
column SIGHUP change at once, the others are reported as waiting for a restart, and a bad file changes nothing.

A node is addressed as `qanat://host:port`; the scheme and the port may be left out, the port is then 7411, and an IPv6
address stands in brackets.

"""


def page(root: type[msgspec.Struct]) -> str:
    return _HEAD + describe(root)


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    print(page(getattr(import_module(module), name)), end="")
