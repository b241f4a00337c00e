"""A session of ZooKeeper's by kazoo.

kazoo has a thread per client. Whatever it says is handed to the loop in one queue, so that watches, answers and the state of the connection are
heard in the order in which they came; kazoo's own handlers have a queue for each. When a session has expired kazoo begins another by itself, and
would send what is asked then in that one's name: from the moment it knows, nothing more is asked of it.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry

from qanat.coordinate.interface import Problem
from qanat.coordinate.zookeeper.address import ZooKeeperAddress
from qanat.coordinate.zookeeper.link import Fire, Found, LinkListener, Then

log = logging.getLogger("qanat.zookeeper")
_kazoo_log = logging.getLogger("qanat.zookeeper.kazoo")
_kazoo_log.setLevel(
    logging.ERROR
)  # a line for each attempt to connect would bury all others; what changes is told by the session

Post: TypeAlias = Callable[[Callable[[], None]], object]
"""Has something called by the loop, from whatever thread."""

RETRY_S, RETRY_MAX_S = 0.05, 0.5
"""Between two rounds of all servers: soon, and never so long that a session is lost by waiting."""
DATA_EVENTS = (EventType.CREATED, EventType.CHANGED, EventType.DELETED)
CHILDREN_EVENTS = (EventType.CREATED, EventType.CHILD, EventType.DELETED)

_PROBLEMS: tuple[tuple[type[Exception], Problem], ...] = (
    (exceptions.NoNodeError, Problem.NO_NODE),
    (exceptions.NodeExistsError, Problem.NODE_EXISTS),
    (exceptions.BadVersionError, Problem.BAD_VERSION),
    (exceptions.NotEmptyError, Problem.NOT_EMPTY),
    (exceptions.NoChildrenForEphemeralsError, Problem.NO_CHILDREN_FOR_EPHEMERALS),
    (exceptions.BadArgumentsError, Problem.BAD_ARGUMENTS),
    (exceptions.NoAuthError, Problem.BAD_ARGUMENTS),
    (exceptions.InvalidACLError, Problem.BAD_ARGUMENTS),
    (exceptions.ConnectionClosedError, Problem.CONNECTION_LOSS),  # which kazoo takes for an expired session
    (exceptions.SessionExpiredError, Problem.SESSION_EXPIRED),
)


def problem_of(error: BaseException | None) -> Problem:
    """What is not known to be definite may have happened or not."""
    if error is None:
        return Problem.NONE
    return next((problem for kind, problem in _PROBLEMS if isinstance(error, kind)), Problem.CONNECTION_LOSS)


class _LoopQueue:
    def __init__(self, post: Post) -> None:
        self._post = post

    def put(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._post(work)


class _LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Everything is called by the loop; there are no threads but the connection's."""

    def __init__(self, post: Post, connect_s: float) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = _LoopQueue(post)
        self._running, self._connect_s = True, connect_s

    def start(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """And goes on, for what is still to be told."""

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """A server that does not answer must not cost the session that another could carry on."""
        options["timeout"] = min(options.get("timeout") or self._connect_s, self._connect_s)
        return super().create_connection(*args, **options)


class KazooLink:
    """Made in the loop; `post` is its `call_soon_threadsafe`."""

    def __init__(
        self, address: ZooKeeperAddress, timeout_us: int, listener: LinkListener, post: Post
    ) -> None:
        self._listener, self._post = listener, post
        self._lock = threading.Lock()
        self._over = False
        """The session is, as far as this process is concerned. Under the lock, so that nothing slips into another session."""
        self._told = False
        self._watchers: dict[tuple[str, tuple[Any, ...]], Callable[[Any], None]] = {}
        self._granted_us = self._session = 0
        timeout_s = timeout_us / 1e6
        handler = _LoopHandler(post, max(0.2, timeout_s / 3 / len(address.servers)))
        retry = KazooRetry(
            max_tries=-1, delay=RETRY_S, max_delay=RETRY_MAX_S, max_jitter=0.2, sleep_func=handler.sleep_func
        )
        self._client = KazooClient(
            address.hosts, timeout=timeout_s, handler=handler, connection_retry=retry, logger=_kazoo_log
        )
        self._note_granted()
        self._client.add_listener(self._on_state)
        self._client.start_async()
        self._ending: threading.Thread | None = None

    def _note_granted(self) -> None:
        """kazoo keeps the timeout that was granted to itself; two thirds of it is how long it waits for an answer."""
        connection = self._client._connection
        connect = connection._connect

        def noting(*words: Any) -> Any:
            read_ms, connect_ms = connect(*words)
            self._granted_us, self._session = round(read_ms * 1500), self._client._session_id
            return read_ms, connect_ms

        connection._connect = noting

    @property
    def granted_us(self) -> int:
        return self._granted_us

    @property
    def session(self) -> int:
        return self._session

    # States

    def _on_state(self, state: str) -> None:
        """In kazoo's thread, before it answers what was asked of a session that has expired."""
        if state == KazooState.LOST:
            with self._lock:
                self._over = True
        with suppress(RuntimeError):
            self._post(lambda: self._tell(state))

    def _tell(self, state: str) -> None:
        if self._told:
            return
        if state == KazooState.LOST:
            self._told = True
            self._end()
            self._listener.on_lost()
        elif state == KazooState.SUSPENDED:
            self._listener.on_suspended()
        elif state == KazooState.CONNECTED:
            self._listener.on_connected()

    def close(self) -> None:
        with self._lock:
            self._over = True
        self._told = True
        self._end()

    def _end(self) -> None:
        """kazoo waits for its thread, so it is given one to wait in."""
        if self._ending is None:
            self._ending = threading.Thread(target=self._stop, name="zookeeper-end", daemon=True)
            self._ending.start()

    def ended(self, within_s: float) -> bool:
        if self._ending is not None:
            self._ending.join(within_s)
        return self._ending is not None and not self._ending.is_alive()

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # the session then ends by its timeout
            log.warning("not closed in good order", extra={"reason": str(error)})

    # Operations

    def _ask(self, ask: Callable[[], Any], read: Callable[[Any], Found], then: Then) -> None:
        def answered(done: Any) -> None:
            problem = problem_of(done.exception)
            if problem is Problem.CONNECTION_LOSS:
                log.debug("not answered", extra={"reason": repr(done.exception)})
            then(read(done.value) if problem is Problem.NONE else Found(problem))

        with self._lock:
            if self._over:
                self._post(lambda: then(Found(Problem.SESSION_EXPIRED)))
                return
            try:
                asked = ask()
            except (TypeError, ValueError):
                self._post(lambda: then(Found(Problem.BAD_ARGUMENTS)))
                return
        asked.rawlink(answered)

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool, sequential: bool) -> None:
        self._ask(
            lambda: self._client.create_async(path, data, ephemeral=ephemeral, sequence=sequential),
            lambda made: Found(path=made, version=0, owner=self._session if ephemeral else 0),
            then,
        )

    def set(self, path: str, data: bytes, version: int, then: Then) -> None:
        self._ask(
            lambda: self._client.set_async(path, data, version),
            lambda stat: Found(version=stat.version, owner=stat.ephemeralOwner, zxid=stat.mzxid),
            then,
        )

    def delete(self, path: str, version: int, then: Then) -> None:
        self._ask(lambda: self._client.delete_async(path, version), lambda _: Found(), then)

    def get(self, path: str, then: Then, fire: Fire | None) -> None:
        def read(answer: Any) -> Found:
            data, stat = answer
            return Found(data=data, version=stat.version, owner=stat.ephemeralOwner, zxid=stat.mzxid)

        watch = self._watch(path, DATA_EVENTS, fire)
        self._read(lambda: self._client.get_async(path, watch=watch), read, path, then, watch)

    def children(self, path: str, then: Then, fire: Fire | None) -> None:
        def read(answer: Any) -> Found:
            names, stat = answer
            return Found(
                version=stat.version,
                owner=stat.ephemeralOwner,
                zxid=stat.pzxid,
                children=tuple(sorted(names)),
            )

        watch = self._watch(path, CHILDREN_EVENTS, fire)
        self._read(
            lambda: self._client.get_children_async(path, watch=watch, include_data=True), read, path, then, watch
        )  # fmt: skip

    def sync(self, path: str, then: Then) -> None:
        self._ask(lambda: self._client.sync_async(path), lambda _: Found(), then)

    # Watches

    def _read(
        self,
        ask: Callable[[], Any],
        read: Callable[[Any], Found],
        path: str,
        then: Then,
        watch: Callable[[Any], None] | None,
    ) -> None:
        """ZooKeeper watches what is there; for what is not, one has to ask whether it exists. Both are asked at once, so that nothing of
        ours comes between; if somebody else has made the node between the two, it is read again."""
        if watch is None:
            self._ask(ask, read, then)
            return
        missing = False

        def answered(found: Found) -> None:
            nonlocal missing
            missing = found.problem is Problem.NO_NODE
            if not missing:
                then(found)

        def existed(found: Found) -> None:
            if not missing:
                return
            if found.ok:
                self._read(ask, read, path, then, watch)
            else:
                then(found)

        self._ask(ask, read, answered)
        self._ask(
            lambda: self._client.exists_async(path, watch=watch),
            lambda stat: Found(Problem.NO_NODE if stat is None else Problem.NONE),
            existed,
        )

    def _watch(self, path: str, events: tuple[Any, ...], fire: Fire | None) -> Callable[[Any], None] | None:
        """One function for one watch, however often it is set before it fires: kazoo keeps each that it is given."""
        if fire is None:
            return None
        key, fires = (path, events), fire
        known = self._watchers.get(key)
        if known is not None:
            return known

        def watcher(event: Any) -> None:
            if self._watchers.get(key) is not watcher:
                return  # it has fired
            if event.type in events:
                del self._watchers[key]
                fires()
            elif event.type == EventType.NONE:  # the connection broke, and with it the watch
                del self._watchers[key]

        self._watchers[key] = watcher
        return watcher
