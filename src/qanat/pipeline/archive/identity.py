"""Whether a server's stream is the one that was archived: by its birth, by its end, by the marks of archived
events."""

from qanat.client import Client
from qanat.pipeline.archive.errors import StreamBehind, StreamChanged
from qanat.pipeline.archive.manifest import Anchor, Manifest
from qanat.wire.streams import Seen

_REMEDY = "archive it to another place, or bring the former one back"


def check_stream(client: Client, manifest: Manifest, seen: Seen) -> None:
    """Raises `StreamChanged` unless the server's stream is the one that was archived, as far as it still has
    what was.

    `seen` is what the server says about the archive's end.
    """
    if not manifest.next:
        return
    same_birth(manifest, seen)
    if seen.readable + 1 < manifest.next:
        raise StreamBehind(
            f"the archive has stream {manifest.stream!r} up to {manifest.next - 1}, the server only up to"
            f" {seen.readable}: it was set back or made anew; {_REMEDY}"
        )
    for anchor in reversed(manifest.anchors):
        at_end = anchor.seq == seen.start - 1
        mark = seen.mark if at_end else client.look(manifest.stream, anchor.seq + 1).mark
        if same_event(manifest, anchor, mark):
            return


def same_birth(manifest: Manifest, seen: Seen) -> None:
    """Raises `StreamChanged` if the server's stream began at another time than the archived one."""
    if manifest.identity and seen.born_us and str(seen.born_us) != manifest.identity:
        raise StreamChanged(
            f"the archived stream {manifest.stream!r} began at {manifest.identity} µs, the server's at"
            f" {seen.born_us}: it was made anew; {_REMEDY}"
        )


def same_event(manifest: Manifest, anchor: Anchor, mark: str) -> bool:
    """Whether an archived event is still there; raises `StreamChanged` if another one is in its place."""
    if mark and mark != anchor.mark:
        raise StreamChanged(
            f"event {anchor.seq} of stream {manifest.stream!r} is not the one that was archived: the stream"
            f" was set back and went on otherwise; {_REMEDY}"
        )
    return bool(mark)  # else it was collected, and an older one may be there
