"""The demonstration: the whole way of an event. An application writes to an embedded RocksDB; a pipeline on
Spark reads its log, filters, routes and publishes; clients in the other regions publish what is sold there;
three regions carry it all to subscribers everywhere, while a link is cut and a replica is killed; an archive
grows beside; and at the end subscribers have counted, and an audit proves what they recorded."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from qanat.demonstration.engine import MASTER, RECORDS, STORE, STREAMS, Audited, Failed, Told, engine
from qanat.demonstration.readers import Counted, Heard, longest_ms, subscribe
from qanat.demonstration.store import ORDERS, write
from qanat.demonstration.tills import sell, till_of
from qanat.events.errors import LocalError
from qanat.operate.control import call
from qanat.operate.file import Deployment, standard
from qanat.operate.home import Home
from qanat.operate.operations import temporary, wait_until_serving
from qanat.operate.overview import look
from qanat.operate.processes import Worker
from qanat.replica.settings import StreamSettings
from qanat.studies.registry import Say

_REPORT_S = 0.2
_FLOWING_S = 60.0
_SPARK_S = 60.0
"""Far more than Spark needs to start: a Java that is left by its parent while it starts does not end by
itself."""

CUT, HEALED, KILLED = 0.2, 0.45, 0.6
"""When, as parts of the whole time, a link is cut and heals, and a replica is killed."""
_AWAY_S = 2.5


class Progress(NamedTuple):
    """One look at everything: totals so far, stage by stage."""

    seconds: float
    written: int
    orders: int
    """Of what was written; the rest are drafts, which the filter drops."""
    told: Told
    sales: int
    """Published by clients in the regions without a datastore."""
    regions: list[str]
    delivered: list[int]
    """By the region's subscribers together."""
    from_publish_ms: list[float]
    from_write_ms: list[float]
    subscribers: int
    """In each region."""


class Summary(NamedTuple):
    """The end: what went in, what came out at every stage, and what the audit says."""

    written: int
    captured: int
    published: int
    published_in: dict[str, int]
    """By region."""
    archived: int
    subscribers: int
    delivered: int
    lost: int
    duplicated: int
    out_of_order: int
    audit: str
    latency_ms: dict[str, dict[str, float]]
    """From publishing to delivery, by region, as the audit has it."""
    takeover_ms: float
    """For how long some subscriber got no orders after the replica was killed: what was under way then came
    so late."""
    killed: str
    """The replica."""

    @property
    def faultless(self) -> bool:
        counted = self.delivered == self.published * self.subscribers and self.archived == self.published
        wrong = self.lost or self.duplicated or self.out_of_order
        return counted and not wrong and self.captured == self.written and self.audit == "pass"


class EngineFailed(LocalError):
    """The process with Spark came to an end."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.sentence)
        self.exit_code = failed.exit_code


class Drill:
    """One link is cut and heals, one replica is killed and comes back, each at its time."""

    def __init__(self, home: Home, regions: list[str], seconds: float, say: Say) -> None:
        self._home, self._say = home, say
        self._ends, self._around, self._region = regions[:2], regions[-1], regions[0]
        self._steps = [
            (CUT * seconds, self._cut),
            (HEALED * seconds, self._heal),
            (KILLED * seconds, self._kill),
        ]
        self.victim, self.killed_us = "", 0

    def at(self, seconds: float) -> None:
        while self._steps and seconds >= self._steps[0][0]:
            self._steps.pop(0)[1]()

    def _cut(self) -> None:
        self._change(cut=True)
        self._say(f"the link {' – '.join(self._ends)} is cut: events go round by {self._around}")

    def _heal(self) -> None:
        self._change(cut=False)
        self._say(f"the link {' – '.join(self._ends)} is healed")

    def _change(self, *, cut: bool) -> None:
        a, b = self._ends
        call(self._home, "cuts", cut=cut, pairs=[(a, b), (b, a)])

    def _kill(self) -> None:
        self.victim, self.killed_us = look(self._home).chain(self._region).head, time.time_ns() // 1000
        call(self._home, "kill", node=self.victim, pause_s=_AWAY_S)
        self._say(
            f"{self.victim}, to which Spark publishes, is killed (kill -9); it comes back after {_AWAY_S:g} s"
        )

    def end(self) -> None:
        """Until the chain is whole again."""
        self.at(float("inf"))
        wait_until_serving(self._home)
        chain = look(self._home).chain(self._region)
        self._say(f"{self.victim} is back; the chain of {self._region} is {' → '.join(chain.replicas)}")


def deployment() -> Deployment:
    """Three regions; the streams of orders belong to the first, where the datastore is, and each other has
    one of its sales."""
    usual = standard("demo", first_port=0)
    first, *others = usual.regions
    streams = {stream: StreamSettings(owner=first) for stream in STREAMS}
    streams |= {till_of(region): StreamSettings(owner=region) for region in others}
    return msgspec.structs.replace(usual, streams=streams)


@contextmanager
def _children() -> Iterator[list[Worker]]:
    children: list[Worker] = []
    try:
        yield children
    finally:
        _end(children)


def _end(children: list[Worker]) -> None:
    while children:
        children.pop().end(_SPARK_S)


class Stages:
    """All processes of the way, and the last that each of them said."""

    def __init__(
        self, spark: Worker, store: Worker, tills: list[Worker], sinks: list[Worker], regions: list[str]
    ) -> None:
        self.spark, self.store, self.tills, self.sinks, self.regions = spark, store, tills, sinks, regions
        self.began = time.monotonic()
        self.written = self.orders = 0
        self.done = False
        self.sold = [0] * len(tills)
        self.closed = [False] * len(tills)
        self.told = Told(0, 0, 0)
        self.audited: Audited | None = None
        self.heard = [Heard(0, 0.0, 0.0)] * len(sinks)
        self.counted: list[Counted | None] = [None] * len(sinks)

    def listen(self) -> None:
        """Whatever they have said since the last time."""
        while not self.done and self.store.pipe.poll():
            word, self.written, self.orders = self.store.wait()
            self.done = word == "done"
        for i, till in enumerate(self.tills):
            while not self.closed[i] and till.pipe.poll():
                word, self.sold[i] = till.wait()
                self.closed[i] = word == "done"
        while self.audited is None and self.spark.pipe.poll():
            self._engine(self.spark.wait())
        for i, sink in enumerate(self.sinks):
            while self.counted[i] is None and sink.pipe.poll():
                said = sink.wait()
                if isinstance(said, Counted):
                    self.counted[i] = said
                    said = self.heard[i]._replace(orders=said.delivered - self.heard[i].sales)
                self.heard[i] = said

    def _engine(self, said: Any) -> None:
        if isinstance(said, Failed):
            raise EngineFailed(said)
        if isinstance(said, Audited):
            self.audited, said = said, said.told
        self.told = said

    def _known(self) -> Told:
        """What came to a stage came through those before it, though Spark tells of these a little later."""
        published = max(self.told.published, self.told.archived, *(one.orders for one in self.heard))
        return self.told._replace(captured=max(self.told.captured, published), published=published)

    def progress(self) -> Progress:
        each = len(self.sinks) // len(self.regions)
        groups = [self.heard[i : i + each] for i in range(0, len(self.sinks), each)]
        return Progress(
            time.monotonic() - self.began,
            self.written,
            self.orders,
            self._known(),
            sum(self.sold),
            self.regions,
            [sum(one.delivered for one in group) for group in groups],
            [max(one.from_publish_ms for one in group) for group in groups],
            [max(one.from_write_ms for one in group) for group in groups],
            each,
        )


def play(
    seconds: float,
    subscribers: int,
    show: Callable[[Progress], None],
    say: Say,
    master: str = MASTER,
    doing: Say = lambda _: None,
) -> Summary:
    """Runs it all, and tells `doing` what it waits for (nothing, where that is empty): writes for `seconds`,
    with `subscribers` of all streams in each region; its jobs on the Spark of that master."""
    started = time.monotonic()
    with ExitStack() as stack:
        stack.callback(doing, "")
        doing("starting the processes")
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="qanat-demo-", ignore_cleanup_errors=True))
        )
        children = stack.enter_context(_children())
        spark = Worker(engine, str(folder), master)
        store = Worker(write, str(folder / STORE), seconds)
        children += [spark, store]
        plan = deployment()
        regions = list(plan.regions)
        doing("three regions start, and Spark")
        home = stack.enter_context(temporary(plan, "qanat-demo-", lambda text: say(f"  {text}")))
        urls = look(home).urls()
        say("every region serves; Spark, subscribers and the tills of the other regions start")
        first, *others = regions
        tills = [Worker(sell, urls[region], till_of(region)) for region in others]
        streams = list(STREAMS), [till_of(region) for region in others]
        sinks = [
            Worker(subscribe, urls[region], *streams, f"{region}-{number + 1}", str(folder / RECORDS))
            for region in regions
            for number in range(subscribers)
        ]
        children += tills + sinks
        stack.callback(_end, children)  # before the regions end: nobody is left without those that it needs
        doing("subscribers, tills and the application start")
        for child in (*tills, *sinks, store):
            child.wait()
        doing("Spark starts")
        stages = Stages(spark, store, tills, sinks, regions)
        ready = spark.wait()
        if isinstance(ready, Failed):
            raise EngineFailed(ready)
        doing(
            "the first orders are on their way: written to RocksDB, captured by Spark, published, delivered"
        )
        spark.tell((urls[first], streams[1]))
        _wait_until(stages, lambda: all(heard.orders >= ORDERS for heard in stages.heard), _FLOWING_S)
        say(
            f"the first orders came all the way, {time.monotonic() - started:.0f} s after the start; the"
            " application writes on"
        )
        doing("")
        for child in (store, *tills):
            child.tell("go")
        stages.began = time.monotonic()
        drill = Drill(home, regions, seconds, say)
        while not stages.done:
            time.sleep(_REPORT_S)
            drill.at(time.monotonic() - stages.began)
            stages.listen()
            show(stages.progress())
        doing("the chain becomes whole again")
        drill.end()
        doing("subscribers count what came")
        for till in tills:
            till.tell("stop")
        _wait_until(stages, lambda: all(stages.closed), _FLOWING_S, show)
        for sink in sinks:
            sink.tell([stages.orders, *stages.sold])
        _wait_until(stages, lambda: all(stages.counted), None, show)
        say("every subscriber has counted; what is not archived yet is archived")
        doing("the rest is archived")
        spark.tell(stages.written)
        _wait_until(
            stages, lambda: stages.told.archived >= stages.orders or stages.audited is not None, None, show
        )
        say("everything is archived; the audit compares with it what subscribers recorded")
        doing("the audit is at work on Spark")
        _wait_until(stages, lambda: stages.audited is not None, None)
        doing("everything is stopped, and its folders are removed")
        return _summary(stages, drill, say)


def _wait_until(
    stages: Stages,
    reached: Callable[[], bool],
    within_s: float | None,
    show: Callable[[Progress], None] = lambda _: None,
) -> None:
    deadline = time.monotonic() + (within_s or float("inf"))
    while not reached():
        if time.monotonic() > deadline:
            raise LocalError(f"nothing came all the way within {within_s:g} s: {stages.told}, {stages.heard}")
        time.sleep(_REPORT_S / 2)
        stages.listen()
        show(stages.progress())


def _summary(stages: Stages, drill: Drill, say: Say) -> Summary:
    counts = [counted for counted in stages.counted if counted is not None]
    audited = stages.audited
    assert audited is not None
    for sentence in audited.sentences:
        say(f"audit: {sentence}")
    published_in = dict(zip(stages.regions, (stages.told.published, *stages.sold), strict=True))
    return Summary(
        written=stages.written,
        captured=stages.told.captured,
        published=sum(published_in.values()),
        published_in=published_in,
        archived=audited.archived,
        subscribers=len(stages.sinks),
        delivered=sum(counted.delivered for counted in counts),
        lost=sum(counted.lost for counted in counts),
        duplicated=sum(counted.duplicated for counted in counts),
        out_of_order=sum(counted.out_of_order for counted in counts),
        audit=audited.audit,
        latency_ms=audited.latency_ms,
        takeover_ms=round(max(longest_ms(counted.pauses, drill.killed_us) for counted in counts), 1),
        killed=drill.victim,
    )
