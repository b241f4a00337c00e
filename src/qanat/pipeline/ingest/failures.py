"""Errors on their way through Spark: a task fails in another process, and its driver hears of it as a text
with a traceback in it.

| here | meaning | the pipeline |
|---|---|---|
| `Disagreement` | checkpoint, log and streams do not belong together | stops, exit code 1 |
| `Outage` | a datastore or a server is away | is patient, then stops, exit code 3 |
| `GivenUp` | the same, and patience is over | stops, exit code 3 |
| `SparkFailed` | a process of Spark died, or Spark itself failed | likewise |
"""

import json
import re

from qanat.capture.errors import MalformedLog
from qanat.client import ClientClosed, NoStream, OwnedElsewhere
from qanat.events.errors import InvariantError, LocalError, QanatError, RemoteError
from qanat.pipeline.spark_texts import last_line

_OPEN, _CLOSE = "⟦qanat ", " tanaq⟧"
_TOLD = re.compile(re.escape(_OPEN) + "(.*?)" + re.escape(_CLOSE), re.DOTALL)


class Disagreement(LocalError):
    """A pipeline's checkpoint, its log and its streams do not belong together, or no longer; the sentence
    says what to do."""

    exit_code = 1


class Outage(RemoteError):
    """Something that the pipeline needs is away."""


class GivenUp(Outage):
    """It was away for longer than the pipeline's patience: nobody waits for it once more."""


class SparkFailed(RemoteError):
    """Spark could not go on."""


class Told(Exception):
    """An error of ours as a text from which `heard` makes it again; Spark carries no more than texts."""

    def __init__(self, error: QanatError) -> None:
        super().__init__(_OPEN + json.dumps({"kind": kind_of(error).__name__, "what": str(error)}) + _CLOSE)


def kind_of(error: QanatError) -> type[QanatError]:
    """What it means for a pipeline."""
    if isinstance(error, InvariantError | Disagreement | Outage | SparkFailed):
        return type(error)
    if isinstance(error, NoStream | OwnedElsewhere | MalformedLog):
        return Disagreement
    if isinstance(error, LocalError) and not isinstance(error, ClientClosed):
        return Disagreement
    return Outage


def as_ours(error: QanatError) -> QanatError:
    """The same as one of the kinds above."""
    kind = kind_of(error)
    return error if type(error) is kind else kind(str(error))


def heard(text: str) -> QanatError:
    """What a failure of Spark's was about."""
    found = _TOLD.findall(text)
    if not found:
        return SparkFailed(f"Spark failed: {last_line(text)}")
    # A text may come through Java twice, and is then escaped once more.
    for body in (found[-1], found[-1].replace('\\"', '"').replace("\\\\", "\\")):
        try:
            told = json.loads(body)
        except ValueError:
            continue
        kinds: dict[str, type[QanatError]] = {
            one.__name__: one for one in (Disagreement, Outage, GivenUp, InvariantError)
        }
        return kinds[told["kind"]](told["what"])
    return SparkFailed(f"Spark failed: {last_line(text)}")
