"""Options of the format `qanat` for writing streams.

| option | is |
|---|---|
| `url` | the server, or replicas of one region with commas between them; by default `QANAT_URL`, else this machine |
| `stream` | the stream that all rows go to, which `save("orders")` says as well; without it the column `stream` says where each row goes |
| `name` | under which the rows are published, as their source; by default `spark` |
| `version` | for batches: a number that rises from write to write under one `name`; a write that is repeated under its number adds nothing |
| `staging` | a folder that the driver and all executors see, for what waits to be published; by default inside the checkpoint if that is a folder, else a folder for temporary files on the driver's machine |
| `patience` | seconds, as `30` or `2m`, that the driver waits for servers that are away; by default 30 |
| `durability` | of a stream that is made by this write: `always`, `interval` or `memory`; by default as the server is configured |
"""  # noqa: E501

import getpass
import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from qanat.pipeline.source.kafka_options import translated
from qanat.pipeline.source.options import BadOption, count, patience_of, read_options, url_of, word
from qanat.runtime.patience import PATIENCE_S
from qanat.runtime.url import LOOPBACKS, parse_urls

_KNOWN = ("url", "stream", "name", "version", "staging", "durability", "patience")
_SPARK = ("checkpointLocation", "queryName")
"""What Spark itself puts among the options of a query."""
_NAME_BYTES = 200
"""Of a source's 255, the rest is for the query's own number."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """As Spark's processes get them: everything that a writer is made of."""

    url: str
    stream: str
    name: str
    version: int
    staging: str
    durability: str
    patience: float = PATIENCE_S

    @property
    def is_near(self) -> bool:
        """Whether the server may be on this machine, and so take files over."""
        return any(url.host in LOOPBACKS for url in parse_urls(self.url))

    @classmethod
    def read(cls, options: Mapping[str, str]) -> "SinkOptions":
        """From what was given to Spark, in whose options large and small letters are alike."""
        spark = {name.lower() for name in _SPARK}
        given = read_options({k: v for k, v in options.items() if k.lower() not in spark}, _KNOWN)
        theirs = {name.lower(): value for name, value in options.items()}
        name = given["name"] or "spark"
        if len(name.encode()) > _NAME_BYTES or name.startswith("~"):
            raise BadOption(
                f"option 'name' has at most {_NAME_BYTES} bytes and does not begin with '~', not {name!r}"
            )
        if given["version"] and not given["name"]:
            raise BadOption(
                "option 'version' is the number of a write under a name: give the option 'name' as well"
            )
        url = url_of(given["url"])
        staging = given["staging"] or _in_checkpoint(theirs.get("checkpointlocation", ""))
        return cls(
            url=url,
            stream=given["stream"],
            name=name,
            version=count("version", given["version"]),
            staging=staging or _temporary(url, name, theirs.get("checkpointlocation", "")),
            durability=word("durability", given["durability"], ("", "always", "interval", "memory")),
            patience=patience_of(given["patience"]),
        )


def without_reading_options(options: Mapping[str, str]) -> dict[str, str]:
    """Of those that a table was made with; they are given once, for both."""
    known = {name.lower() for name in (*_KNOWN, *_SPARK)}
    return {name: value for name, value in translated(options).items() if name in known}


def _in_checkpoint(location: str) -> str:
    parts = urlsplit(location)
    if not location or parts.scheme not in ("", "file") or parts.netloc:
        return ""
    return os.path.join(os.path.abspath(unquote(parts.path)), "qanat")


def _temporary(*what: str) -> str:
    """The same for the same query, so that it finds there what it left."""
    mark = hashlib.blake2b("\0".join(what).encode(), digest_size=8).hexdigest()
    return os.path.join(tempfile.gettempdir(), f"qanat-staging-{getpass.getuser()}", mark)
