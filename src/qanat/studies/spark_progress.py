"""A Spark action in a thread of its own, so that whoever waits for it can speak, hear of outcomes, or end
it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from qanat.events.errors import LocalError
from qanat.studies.registry import Say

if TYPE_CHECKING:
    from pyspark import SparkContext

SAY_EVERY_S = 20.0
"""Often enough that one sees it move; short jobs say nothing."""
_LOOK_S = 0.2

Found = TypeVar("Found")


class JobFailed(LocalError):
    """A job on Spark did not come to its end."""


class Job(Generic[Found]):
    """An action that starts Spark jobs; `with` ends them when it is left, however it is left."""

    def __init__(self, context: SparkContext, what: str, action: Callable[[], Found]) -> None:
        from pyspark import InheritableThread

        self._context = context
        self._what = what
        self._group = f"qanat-{uuid.uuid4().hex}"
        self._found: list[Found] = []
        self._failed: list[Exception] = []

        def work() -> None:
            context.setJobGroup(self._group, what, interruptOnCancel=True)
            try:
                self._found.append(action())
            except Exception as error:
                self._failed.append(error)

        self._thread = InheritableThread(target=work, daemon=True)

    def __enter__(self) -> Job[Found]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._context.cancelJobGroup(self._group)

    def runs(self, wait_s: float = _LOOK_S) -> bool:
        """Whether it still does after this long."""
        self._thread.join(wait_s)
        return bool(self._thread.is_alive())

    def result(self) -> Found:
        """What came out, once it has ended; or its failure, in a sentence."""
        if self._failed:
            raise _told(self._failed[0], self._what) from self._failed[0]
        return self._found[0]

    def tasks(self) -> tuple[int, int]:
        """(done, all) of the stages that are known so far."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        known = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


def watched(context: SparkContext, action: Callable[[], Found], say: Say, what: str) -> Found:
    """Runs an action to its end and says now and then how many of its tasks are done."""
    spoke, told = time.monotonic(), 0
    with Job(context, what, action) as job:
        while job.runs():
            if time.monotonic() - spoke < SAY_EVERY_S:
                continue
            spoke = time.monotonic()
            done, tasks = job.tasks()
            if done != told:
                say(f"{what}: {done:,} of {tasks:,} tasks")
                told = done
        return job.result()


def _told(error: Exception, what: str) -> Exception:
    """Of a long report from a task, the line that says what happened."""
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if ": " in line and not line.startswith(("File ", "at ", "Traceback"))]
    return JobFailed(f"the Spark job {what!r} failed: {(telling or lines or [type(error).__name__])[-1]}")
