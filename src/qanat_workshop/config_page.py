"""Writes the reference of all settings of some kinds of node, from their structs, as Markdown.

`python -m qanat_workshop.config_page module:Struct module:Struct… > docs/configuration.md`
"""

import inspect
import sys
from importlib import import_module

import msgspec

from qanat.runtime.fields import describe

_HEAD = """\
# Configuration

Of a stream server (`qanat serve`), then what the processes of a region (`qanat node`) have beyond that.
Written by

```sh
python -m qanat_workshop.config_page {kinds} > docs/configuration.md
```

from the structs that they read; a test compares.

A setting is known by its dotted key, and comes from, the later over the earlier:

1. the default below,
2. a TOML file: `[transport]` and below it `heartbeat_ms = 500`,
3. the environment: `QANAT_TRANSPORT__HEARTBEAT_MS=500` (two underscores for each dot; lists with commas),
4. a flag: `--set transport.heartbeat_ms=500`.

A key that does not exist, or a value that does not fit, stops the start with one sentence that says which
key, where it came from and what exists. On SIGHUP file and environment are read again: settings marked in the
column SIGHUP change at once, the others are reported as waiting for a restart, and a bad file changes
nothing.

A node is addressed as `qanat://host:port`; the scheme and the port may be left out, the port is then 7411,
and an IPv6 address stands in brackets.

"""


def page(*kinds: str) -> str:
    """`kinds` are `module:Struct`; a section that an earlier kind has is not repeated."""
    known: set[type[msgspec.Struct]] = set()
    parts = [_HEAD.replace("{kinds}", " \\\n  ".join(kinds))]
    for number, kind in enumerate(kinds):
        module, _, name = kind.partition(":")
        root: type[msgspec.Struct] = getattr(import_module(module), name)
        if number:
            parts.append(f"\n# {name}\n\n{inspect.cleandoc(root.__doc__ or '')}\n\n")
        parts.append(describe(root, known))
    return "".join(parts)


if __name__ == "__main__":
    print(page(*sys.argv[1:]), end="")
