"""Every error of the house.

```
QanatError
├── LocalError         the caller's mistake, or this machine's trouble (a full disk, a bad option)
│   ├── MalformedBatch    bytes that are not a batch, or columns that cannot make one
│   └── WrongArgument     a public call was given what it does not take
├── RemoteError        a peer broke the protocol, refused, or went away
└── InvariantError     something that cannot be: a bug of ours, never an input's fault
```

Each room adds its own below these. A message is one plain sentence: what is wrong, where, and what
to do. `definite` says whether the operation certainly did not happen; when it is False it may have,
and a caller who must know retries under the same source position, which makes the retry harmless.
"""


class QanatError(Exception):
    """Base of all errors that this package raises on purpose."""

    definite: bool = True

    def __init__(self, message: str, *, definite: bool | None = None) -> None:
        super().__init__(message)
        if definite is not None:
            self.definite = definite


class LocalError(QanatError):
    """The caller's mistake, or trouble on this machine."""


class RemoteError(QanatError):
    """A peer broke the protocol, refused, or went away."""


class InvariantError(QanatError):
    """What cannot be has happened; not an `assert`, because `python -O` removes those."""


class MalformedBatch(LocalError):
    """Bytes that are not a well-formed batch, or columns that do not fit together."""


class WrongArgument(LocalError):
    """A public call was given what it does not take; nothing was done."""

    exit_code = 2


def code_of(error: QanatError) -> str:
    """An error's name as programs know it: `DiskFull` is `disk_full`."""
    return "".join("_" + c.lower() if c.isupper() else c for c in type(error).__name__).lstrip("_")
