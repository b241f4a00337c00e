"""A stream's policy written as the predicate that every event carries without saying so: `same key or keep
last 1000`."""

from qanat.events.errors import LocalError
from qanat.events.filters import FilterError, parse
from qanat.events.filters.model import KeepLast, OlderThan, SameKey, Term
from qanat.log.config import Policy


class NoPolicy(LocalError):
    """The text is no policy of garbage collection."""

    exit_code = 2


def policy_of(text: str) -> Policy:
    """The policy; raises `NoPolicy`, or `FilterError` if the text is no predicate at all."""
    by_key, keep_last, age_ms = False, None, None
    for conjunction in parse(text).conjunctions:
        match conjunction:
            case (Term(SameKey(), False),):
                by_key = True
            case (Term(KeepLast(count), False),) if keep_last is None:
                keep_last = count
            case (Term(OlderThan(age_us), False),) if age_ms is None and age_us % 1000 == 0:
                age_ms = age_us // 1000
            case _:
                raise NoPolicy(
                    f"{text!r} is no policy of a stream: that is `same key`, `keep last N` (events), `older"
                    " than AGE` (at least 1ms, in whole ms), or several of them with `or`; what else is"
                    " collected needs GC events"
                )
    return Policy(by_key=by_key, keep_last=keep_last, age_ms=age_ms)


def policies_of(texts: list[str]) -> tuple[Policy, dict[str, Policy]]:
    """Policies as they are given on a command line: `PREDICATE` for all streams, `STREAM=PREDICATE` for
    one."""
    general, single = Policy(), {}
    for text in texts:
        stream, equals, predicate = text.partition("=")
        try:
            general = policy_of(text)
        except FilterError:
            if not equals:
                raise
            single[stream.strip()] = policy_of(predicate)
    return general, single
