"""A session of ZooKeeper's by kazoo.

kazoo has a thread per client. Whatever it says is handed to the loop in one queue, so that watches, answers
and the state of the connection are heard in the order in which they came; kazoo's own handlers have a queue
for each. When a session has expired kazoo begins another by itself, and would send what is asked then in that
one's name: from the moment it knows, nothing more is asked of it.
"""

import logging
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from qanat.coordinate.interface import Problem
from qanat.coordinate.zookeeper.access import Keys
from qanat.coordinate.zookeeper.address import ZooKeeperAddress
from qanat.coordinate.zookeeper.kazoo_handler import LoopHandler, Post
from qanat.coordinate.zookeeper.link import Fire, Found, LinkListener, Then

log = logging.getLogger("qanat.zookeeper")
_kazoo_log = logging.getLogger("qanat.zookeeper.kazoo")
_kazoo_log.setLevel(logging.ERROR)
"""A line for each attempt to connect would bury all others, and its lines of what is sent have passwords in
them. What changes is told by the session."""

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
    (exceptions.NoAuthError, Problem.NO_AUTH),
    (exceptions.SessionClosedRequireSaslError, Problem.NO_AUTH),
    (exceptions.InvalidACLError, Problem.NO_AUTH),
    (exceptions.ConnectionClosedError, Problem.CONNECTION_LOSS),  # which kazoo takes for an expired session
    (exceptions.SessionExpiredError, Problem.SESSION_EXPIRED),
)


def problem_of(error: BaseException | None) -> Problem:
    """What is not known to be definite may have happened or not."""
    if error is None:
        return Problem.NONE
    return next((problem for kind, problem in _PROBLEMS if isinstance(error, kind)), Problem.CONNECTION_LOSS)


def refusal_of(error: BaseException, server: str) -> str:
    """Why a server that was reached will not have us, or we not it; empty if it may just be away."""
    if isinstance(error, exceptions.AuthFailedError | exceptions.SessionClosedRequireSaslError):
        return (
            f"{server} refuses us: check zookeeper.user and its password, and that the server knows the"
            " scheme digest"
        )
    cause = error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"{server} is not trusted: {cause.verify_message}; check zookeeper.ca"
    if isinstance(cause, ssl.SSLError):
        reason = cause.reason or "it speaks no TLS"
        return (
            f"{server} makes no encrypted connection with us: {reason}; check zookeeper.tls and"
            " zookeeper.certificate"
        )
    return ""


class KazooLink:
    """Made in the loop; `post` is its `call_soon_threadsafe`."""

    def __init__(
        self, address: ZooKeeperAddress, keys: Keys, timeout_us: int, listener: LinkListener, post: Post
    ) -> None:
        self._listener, self._post = listener, post
        self._lock = threading.Lock()
        self._over = False
        """The session is, as far as this process is concerned. Under the lock, so that nothing slips into
        another session."""
        self._told = False
        self._watchers: dict[tuple[str, tuple[Any, ...]], Callable[[Any], None]] = {}
        self._granted_us = self._session = 0
        timeout_s = timeout_us / 1e6
        handler = LoopHandler(post, max(0.2, timeout_s / 3 / len(address.servers)), keys.tls)
        retry = KazooRetry(
            max_tries=-1, delay=RETRY_S, max_delay=RETRY_MAX_S, max_jitter=0.2, sleep_func=handler.sleep_func
        )
        self._client = KazooClient(
            address.hosts,
            timeout=timeout_s,
            handler=handler,
            connection_retry=retry,
            logger=_kazoo_log,
            auth_data=[("digest", f"{keys.user}:{keys.password}")] if keys.user else [],
            default_acl=[make_digest_acl(keys.user, keys.password, all=True)] if keys.user else None,
        )
        self._note_connecting()
        self._client.add_listener(self._on_state)
        self._client.start_async()
        self._ending: threading.Thread | None = None

    def _note_connecting(self) -> None:
        """kazoo keeps to itself which timeout was granted, of which it waits two thirds for an answer; and
        why it was not let in."""
        connection = self._client._connection
        connect = connection._connect

        def noting(host: str, address: str, port: int) -> Any:
            try:
                read_ms, connect_ms = connect(host, address, port)
            except Exception as error:
                reason = refusal_of(error, f"{host}:{port}")
                if reason:
                    with suppress(RuntimeError):
                        self._post(lambda: self._refused(reason))
                raise
            self._granted_us, self._session = round(read_ms * 1500), self._client._session_id
            return read_ms, connect_ms

        connection._connect = noting

    def _refused(self, reason: str) -> None:
        if not self._told:
            self._listener.on_refused(reason)

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
            lambda: self._client.get_children_async(path, watch=watch, include_data=True), read, path, then,
            watch
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
        """ZooKeeper watches what is there; for what is not, one has to ask whether it exists. Both are asked
        at once, so that nothing of ours comes between; if somebody else has made the node between the two, it
        is read again."""
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
        """One function for one watch, however often it is set before it fires: kazoo keeps each that it is
        given."""
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
