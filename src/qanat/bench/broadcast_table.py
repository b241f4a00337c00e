"""The figures of `bench broadcast` as README's table has them."""

from collections.abc import Mapping


def cells(figures: Mapping[str, float]) -> dict[str, str]:
    """What stands in each row."""

    def millions(name: str) -> str:
        return f"{figures[name] / 1e6:,.0f} million/s"

    def of(name: str, digits: int) -> str:
        return f"{figures[name]:,.{digits}f}"

    arrow, listed = millions("events_per_s_10b_1"), millions("events_per_s_10b_1_list")
    return {
        "10-byte events, one producer to one consumer": (
            f"{arrow} from Arrow, {listed} from a list of `bytes`"
        ),
        "the same, of plain TCP sockets through one relay process in the same slices": of(
            "socket_ratio_10b_1", 2
        ),
        "10-byte events to each of 8 consumers": millions("events_per_s_10b_8"),
        "500-byte events to 8 consumers, in total": f"{of('mb_per_s_500b_8', 0)} MB/s",
        "the same, of plain TCP sockets": of("socket_ratio_500b_8", 2),
        "one `publish` call per event": f"{round(figures['publish_one_events_per_s'], -3):,.0f}/s",
        "a stored million of 500-byte events, read by 1 and by 8 late consumers": (
            f"{of('replay_mb_per_s_1', 0)} and {of('replay_mb_per_s_8', 0)} MB/s"
        ),
        "latency of a 100-byte event, one per millisecond": (
            f"{of('latency_ms_p50', 2)} ms (p50), {of('latency_ms_p99', 2)} ms (p99)"
        ),
        "until 1,000 connected subscribers have an event": f"{of('latency_1000_ms_p50', 0)} ms",
    }
