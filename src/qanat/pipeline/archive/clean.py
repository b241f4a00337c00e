"""Removing what an archive no longer needs: waste of killed writers, versions long repeated, files of
versions long replaced."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from qanat.pipeline.archive.errors import NoArchive
from qanat.pipeline.archive.history import History, Writer
from qanat.pipeline.archive.layout import STAGING, DataName, manifest_name
from qanat.pipeline.archive.manifest import Manifest

VERSIONS_KEPT = 10
"""Newest versions that stay in any case: for those who look at one just now."""
YOUNG_MS = 2 * 3600 * 1000
"""So long a version stays in any case: who reads it finds its files, and a writer that slept finds its number
taken. An hour of it is for clocks: another machine's may have committed it."""
IN_FLIGHT_MS = 6 * 3600 * 1000
"""A file of the present writer that is in no version and older than this will not be committed any more."""


class Cleaned(NamedTuple):
    """What was removed."""

    versions: int
    files: int
    bytes: int


def clean_waste(history: History, writer: Writer) -> Cleaned:
    """Removes what former writers of that kind wrote and did not commit; none of them can, since the present
    one began."""
    role, epoch = writer.role, writer.epoch
    for entry in history.storage.entries(STAGING):
        words = entry.name.split("-")
        if words[0] == role and words[1].isdigit() and int(words[1]) < epoch:
            history.storage.remove(f"{STAGING}/{entry.name}")
    return _remove(
        history, _manifests(history), lambda name, age_ms: name.role == role and name.epoch < epoch
    )


def clean(
    history: History, keep_ms: int, *, young_ms: int = YOUNG_MS, in_flight_ms: int = IN_FLIGHT_MS
) -> Cleaned:
    """Removes all that is not needed to read the archive as it is now, or as it was before its garbage was
    collected less than `keep_ms` ago."""
    now_us = time.time_ns() // 1000
    manifests = _manifests(history)
    if not manifests:
        return Cleaned(0, 0, 0)
    newest = max(manifests)
    removed = 0
    for version in sorted(manifests)[:-VERSIONS_KEPT]:
        # What it has and its successor has not is to be had for a while from the moment of the change on.
        manifest, successor = manifests[version], manifests.get(version + 1)
        collected = successor is not None and successor.collected > manifest.collected
        since_us = manifest.committed_us if successor is None else successor.committed_us
        if now_us - since_us >= max(keep_ms if collected else 0, young_ms) * 1000:
            history.storage.remove(manifest_name(version))
            del manifests[version]
            removed += 1
    epochs = manifests[newest].epochs
    gone = _remove(
        history,
        manifests,
        lambda name, age_ms: name.epoch < epochs.get(name.role, 0) or age_ms >= in_flight_ms,
    )
    return Cleaned(removed, gone.files, gone.bytes)


def _manifests(history: History) -> dict[int, Manifest]:
    found = {}
    for version in history.versions():
        with suppress(NoArchive):  # somebody else cleans, too
            found[version] = history.read(version)
    return found


def _remove(
    history: History, manifests: dict[int, Manifest], is_waste: Callable[[DataName, float], bool]
) -> Cleaned:
    """Removes the data files that no version names, of those that are waste by their name and age."""
    named = {file.path for manifest in manifests.values() for file in manifest.files}
    now_us = time.time_ns() // 1000
    count = size = 0
    for folder in history.storage.entries(""):
        if not folder.name.startswith("day="):
            continue
        for entry in history.storage.entries(folder.name):
            name, path = DataName.parse(entry.name), f"{folder.name}/{entry.name}"
            if name is None or path in named or not is_waste(name, (now_us - entry.changed_us) / 1000):
                continue
            history.storage.remove(path)
            count, size = count + 1, size + entry.size
    return Cleaned(0, count, size)
