"""The versions of a stream's manifest: reading the newest one, and committing the next.

A commit puts the next version if nobody has; who comes second reads what the first one wrote and does its
work on top of that. Two kinds of writers work side by side: one appends, one rewrites. Of each kind only the
last that began may commit: beginning is itself a commit, of a higher epoch, which every later commit of the
one before finds. So a writer that was thought dead does no harm when it wakes up.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from qanat.events.errors import LocalError
from qanat.pipeline.archive.errors import ArchiveDamaged, Fenced, NoArchive, Superseded
from qanat.pipeline.archive.layout import (
    COMMITTED,
    MANIFESTS,
    DataName,
    manifest_name,
    stream_folder,
    version_of,
    witness_name,
)
from qanat.pipeline.archive.manifest import (
    ANCHORS_MAX,
    Anchor,
    DataFile,
    Manifest,
    Range,
    Role,
    decode,
    encode,
)
from qanat.pipeline.archive.storage import Storage


class History:
    """The archive of one stream: its folder, and the versions of its manifest."""

    def __init__(self, archive: Storage, stream: str) -> None:
        self.stream = stream
        self.storage = archive.below(stream_folder(stream))
        """The stream's folder; the paths of its files are relative to this."""

    def versions(self) -> list[int]:
        """Those that there are, rising."""
        found = (version_of(entry.name) for entry in self.storage.entries(MANIFESTS))
        return [version for version in found if version is not None]

    def read(self, version: int) -> Manifest:
        """That version; raises `NoArchive` if there is none such."""
        if version == 0:
            return Manifest(stream=self.stream)
        path = manifest_name(version)
        try:
            manifest = decode(self.storage.read(path), self.storage.url(path))
        except FileNotFoundError:
            raise NoArchive(
                f"{self.storage.root} has no version {version}; it has {self.versions()}"
            ) from None
        if manifest.version != version or manifest.stream != self.stream:
            raise ArchiveDamaged(
                f"{self.storage.url(path)} says that it is version {manifest.version} of stream"
                f" {manifest.stream!r}, not {version} of {self.stream!r}: restore it from a copy"
            )
        return manifest

    def newest(self) -> Manifest:
        """The newest version; the empty manifest, of version 0, if nothing was ever committed."""
        while True:
            committed = max(
                self._committed(), default=0
            )  # before it looks for versions: more may come meanwhile
            versions = self.versions()
            newest = versions[-1] if versions else 0
            if newest < committed:
                raise ArchiveDamaged(
                    f"{self.storage.url(manifest_name(committed))} is gone: version {committed} was"
                    f" committed, and the newest that is there is {newest}; restore it from a copy, or remove"
                    f" {self.storage.url(witness_name(committed))} to go back to that one"
                )
            try:
                return self.read(newest)
            except NoArchive:
                continue  # so many were committed meanwhile that this one was removed

    def existing(self) -> Manifest:
        """The newest version; raises `NoArchive` if there is none."""
        manifest = self.newest()
        if not manifest.version:
            raise NoArchive(
                f"there is no archive of stream {self.stream!r} at {self.storage.root}; `qanat archive ls`"
                " shows what there is"
            )
        return manifest

    def begin(self, role: Role) -> "Writer":
        """Becomes the writer of that kind: the one before can commit nothing from now on.

        A rewriter claims all files that there are; use it as a context manager, so that the claim ends with
        its work.
        """

        def next_epoch(base: Manifest) -> Manifest:
            epochs = {**base.epochs, role: base.epochs.get(role, 0) + 1}
            claim = max(base.next - 1, 0) if role == "rewrite" else base.claim
            return msgspec.structs.replace(base, epochs=epochs, claim=claim, action="begin")

        manifest = self.commit(next_epoch)
        return Writer(self, role, manifest)

    def commit(self, change: Callable[[Manifest], Manifest]) -> Manifest:
        """Commits what `change` makes of the newest version; it is called again if somebody else was
        faster."""
        while True:
            base = self.newest()
            wanted = msgspec.structs.replace(
                change(base),
                version=base.version + 1,
                parent=base.token,
                token=uuid.uuid4().hex,
                committed_us=time.time_ns() // 1000,
            ).check()
            if self._put(wanted) and self._stands(wanted):
                self._witness(wanted.version)
                return wanted

    def _committed(self) -> list[int]:
        """Versions of which it is written down, apart from them, that they were committed: the newest, and
        perhaps some before it."""
        return [int(entry.name) for entry in self.storage.entries(COMMITTED) if entry.name.isdecimal()]

    def _witness(self, version: int) -> None:
        self.storage.put(witness_name(version), b"")
        for older in self._committed():
            if older < version:
                self.storage.remove(witness_name(older))

    def _put(self, wanted: Manifest) -> bool:
        try:
            return self.storage.put(manifest_name(wanted.version), encode(wanted))
        except (LocalError, OSError):
            if self.newest().token == wanted.token:
                return True  # it was done, and only the answer was lost
            raise

    def _stands(self, wanted: Manifest) -> bool:
        """Whether a version just put is the newest, or what followed was made of it.

        A writer that slept between reading and putting until its number had been used, and cleaned away,
        finds it free.
        """
        versions = self.versions()
        if versions[-1] == wanted.version:
            return True
        try:
            if self.read(wanted.version + 1).parent == wanted.token:
                return True
        except NoArchive:
            pass
        self.storage.remove(manifest_name(wanted.version))
        return False


class Writer:
    """Who may append, or rewrite, until another begins."""

    def __init__(self, history: History, role: Role, manifest: Manifest) -> None:
        self.history, self.role, self.epoch = history, role, manifest.epochs[role]
        self.manifest = manifest
        """The newest version that this writer knows of."""
        self._count = 0

    @property
    def name(self) -> str:
        return f"{self.role}-{self.epoch}"

    def path(self, day: str, first: int, last: int) -> str:
        """A new file's path; none has it already, and none will."""
        self._count += 1
        return DataName(first, last, self.role, self.epoch, self._count - 1).path(day)

    def append(
        self,
        files: Sequence[DataFile] = (),
        *,
        lost: Sequence[Range] = (),
        anchor: Anchor | None = None,
        identity: str = "",
    ) -> Manifest:
        """Commits new files, and ranges that are accepted as lost, behind what there is.

        Together they follow on from the archive's end (wherever they begin, if it is empty) without gap or
        overlap.
        """

        def appended(base: Manifest) -> Manifest:
            self._check(base)
            covered = sorted([Range(f.first, f.last) for f in files] + list(lost))
            if covered and base.next and covered[0].first != base.next:
                raise Superseded(
                    f"the archive of stream {base.stream!r} goes on at {base.next}; {covered[0].first} does"
                    " not follow on from it"
                )
            anchors = (*base.anchors, anchor)[-ANCHORS_MAX:] if anchor else base.anchors
            return msgspec.structs.replace(
                base,
                files=base.files + tuple(sorted(files, key=lambda file: file.first)),
                lost=base.lost + tuple(sorted(lost)),
                identity=base.identity or identity,
                anchors=anchors,
                action="append",
            )

        return self._commit(appended)

    def replace(self, old: Sequence[str], new: Sequence[DataFile], *, collected: int = 0) -> Manifest:
        """Commits files in the place of others (their paths): together they cover the same numbers.

        `collected` says that garbage was collected as of that sequence number. Raises `Superseded` if one of
        the old files is no longer in the archive, or is claimed by a rewriter while this writer is none.
        """

        def replaced(base: Manifest) -> Manifest:
            self._check(base)
            gone = set(old)
            missing = gone - {file.path for file in base.files}
            if missing:
                raise Superseded(
                    f"{len(missing)} files of stream {base.stream!r} that were to be replaced are not in"
                    f" version {base.version}, {min(missing)} for one: read it and begin again"
                )
            if self.role != "rewrite" and any(f.first <= base.claim for f in base.files if f.path in gone):
                raise Superseded(
                    f"files of stream {base.stream!r} that were to be replaced are being rewritten; nothing"
                    " was committed"
                )
            generation = base.generation + 1
            kept = [file for file in base.files if file.path not in gone]
            fresh = [msgspec.structs.replace(file, generation=generation) for file in new]
            changed = msgspec.structs.replace(
                base,
                files=tuple(sorted(kept + fresh, key=lambda file: file.first)),
                collected=max(base.collected, collected),
                generation=generation,
                action="replace",
            )
            if changed.complete() != base.complete():
                raise Superseded(
                    f"new files of stream {base.stream!r} cover {changed.complete()}, the old ones"
                    f" {base.complete()}: a replacement covers exactly what was there"
                )
            return changed

        return self._commit(replaced)

    def check_present(self) -> None:
        """Raises `Fenced` if another writer of this kind has begun: what this one wrote may be gone
        already."""
        self._check(self.history.newest())

    def release(self) -> None:
        """Ends a rewriter's claim; nothing happens if it has none, or was replaced."""

        def released(base: Manifest) -> Manifest:
            self._check(base)
            return msgspec.structs.replace(base, claim=0, action="begin")

        with suppress(Fenced):
            if self.role == "rewrite" and self.history.newest().claim:
                self._commit(released)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _check(self, base: Manifest) -> None:
        now = base.epochs.get(self.role, 0)
        if now != self.epoch:
            raise Fenced(
                f"another writer ({self.role} {now}) has taken over the archive of stream {base.stream!r}"
                f" from this one ({self.role} {self.epoch}); nothing was committed"
            )

    def _commit(self, change: Callable[[Manifest], Manifest]) -> Manifest:
        self.manifest = self.history.commit(change)
        return self.manifest
