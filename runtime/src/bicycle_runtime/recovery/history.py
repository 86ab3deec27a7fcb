"""The epochs that a checkpoint directory retains, for readers that only look.

The ledger is the driver's: it repairs, collects and seals. This reads beside it, takes no lock and
writes nothing. A running job may collect an epoch while it is read; such an epoch is *gone*, which
is distinct from a damaged one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.layouts.paths import DAMAGED_MANIFEST, EPOCHS, MANIFEST, PUBLISHED
from bicycle_runtime.layouts.state import SstRef, StateRef
from bicycle_runtime.recovery.errors import (
    CHECKPOINT_MISSING,
    EPOCH_UNKNOWN,
    EpochGoneError,
    ManifestError,
)
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest
from bicycle_runtime.recovery.verification import Checked, first_damaged
from bicycle_runtime.state.errors import StateFileError

_FOUND_BROKEN = "a restart found a missing or damaged state file of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedEpoch:
    """A retained epoch in the directory.

    ``manifest`` is None if it cannot be read. ``damage`` describes damage, or is None;
    ``is_put_aside`` means that a restart found the damage and resumed from the epoch before.
    """

    epoch: int
    manifest: Manifest | None = None
    is_published: bool = False
    damage: str | None = None
    is_put_aside: bool = False


class EpochHistory:
    """Reads the epochs of one job.

    Args:
        storage: Checkpoint storage of the job.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def epochs(self) -> list[int]:
        """Return the epochs that have a manifest, the newest last."""
        return sorted(epoch for epoch, ending in self._objects() if ending == MANIFEST)

    def retained(self, *, is_thorough: bool = False) -> list[RetainedEpoch]:
        """Return all epochs, damaged ones included, the newest last.

        Args:
            is_thorough: Read every state file and compare checksums, instead of sizes only.
        """
        objects = self._objects()
        published = {epoch for epoch, ending in objects if ending == PUBLISHED}
        checked: dict[str, str | None] = {}
        found = []
        for epoch, ending in sorted(objects):
            if ending == PUBLISHED:
                continue
            with contextlib.suppress(ObjectMissingError):  # It was collected since it was listed.
                path = f"{EPOCHS}/{_name_of(epoch)}.{ending}"
                manifest, damage = self._look(path, checked, is_thorough=is_thorough)
                if damage and ending == MANIFEST and self._is_collected(epoch):
                    continue
                found.append(
                    RetainedEpoch(
                        epoch=epoch,
                        manifest=manifest,
                        is_published=epoch in published,
                        damage=damage or (_FOUND_BROKEN if ending == DAMAGED_MANIFEST else None),
                        is_put_aside=ending == DAMAGED_MANIFEST,
                    )
                )
        return found

    def manifest(self, epoch: int | None = None) -> Manifest:
        """Return a manifest; without a number that of the newest epoch.

        Raises:
            CHECKPOINT_MISSING: there is no epoch at all.
            EPOCH_UNKNOWN: this one is not there.
            EpochGoneError: it was collected just now.
            ManifestError: it is damaged.
        """
        epochs = self.epochs()
        if not epochs:
            hint = "wait until the job seals an epoch, or choose another location"
            raise CHECKPOINT_MISSING(url=self._storage.url, found="", hint=hint)
        wanted = epochs[-1] if epoch is None else epoch
        if wanted not in epochs:
            raise EPOCH_UNKNOWN(
                epoch=wanted, url=self._storage.url, known=epochs, known_text=_epoch_words(epochs)
            )
        try:
            return self._read(_path_of(wanted))
        except ObjectMissingError:
            raise self._gone_error(wanted) from None

    def sealed(self, epoch: int) -> Manifest | None:
        """Return the manifest of an epoch, or None if it is not sealed, or removed.

        Raises:
            ManifestError: it is damaged.
        """
        try:
            return self._read(_path_of(epoch))
        except ObjectMissingError:
            return None

    @contextlib.contextmanager
    def reading(self, manifest: Manifest) -> Iterator[None]:
        """Report state files of an epoch that are removed differently from damaged ones.

        Raises:
            EpochGoneError: the job collected the epoch meanwhile.
            StateFileError: a file is missing or damaged.
        """
        try:
            yield
        except StateFileError as error:
            if self._is_collected(manifest.epoch):
                raise self._gone_error(manifest.epoch) from error
            raise

    def _objects(self) -> list[tuple[int, str]]:
        """Return number and ending of each object that belongs to an epoch."""
        names = (path.rpartition("/")[2].partition(".") for path in self._storage.list(EPOCHS))
        return [
            (int(number), ending)
            for number, _, ending in names
            if number.isdigit() and ending in (MANIFEST, DAMAGED_MANIFEST, PUBLISHED)
        ]

    def _read(self, path: str) -> Manifest:
        return decode_manifest(self._storage.read(path), path=path)

    def _look(
        self, path: str, checked: dict[str, str | None], *, is_thorough: bool
    ) -> tuple[Manifest | None, str | None]:
        """Return the readable manifest of a path, and damage to it or its state files."""
        try:
            manifest = self._read(path)
        except ManifestError as error:
            return None, str(error.facts["reason"])
        for item in manifest.state_objects():
            if item.path not in checked:
                checked[item.path] = self._damage_of(item, is_thorough=is_thorough)
        damages = [checked[item.path] for item in manifest.state_objects()]
        return manifest, next((damage for damage in damages if damage), None)

    def _damage_of(self, item: StateRef | SstRef, *, is_thorough: bool) -> str | None:
        try:
            is_good = self._storage.size(item.path) == item.byte_count
        except ObjectMissingError:
            return f"its state file {item.path} is missing"
        if is_thorough and is_good:
            expected = Checked(item.byte_count, item.crc32)
            is_good = first_damaged(self._storage, {item.path: expected}) is None
        return None if is_good else f"its state file {item.path} is damaged"

    def _is_collected(self, epoch: int) -> bool:
        """Return whether files of an epoch are missing because the job collects it.

        Collection proceeds from the oldest epoch and takes the files that the next one does not
        need, the manifest last.
        """
        epochs = self.epochs()
        if epoch not in epochs:
            return True
        if epoch != epochs[0] or len(epochs) == 1:
            return False
        try:
            oldest, successor = self._read(_path_of(epoch)), self._read(_path_of(epochs[1]))
        except (ManifestError, ObjectMissingError):
            return epoch not in self.epochs()
        needed = successor.state_paths()
        damages = {
            item.path: self._damage_of(item, is_thorough=False) for item in oldest.state_objects()
        }
        broken = {path for path, damage in damages.items() if damage}
        return bool(broken) and not broken & needed

    def _gone_error(self, epoch: int) -> EpochGoneError:
        return EpochGoneError(
            epoch=epoch, url=self._storage.url, known_text=_epoch_words(self.epochs())
        )


def _name_of(epoch: int) -> str:
    return f"{epoch:012}"


def _path_of(epoch: int) -> str:
    return f"{EPOCHS}/{_name_of(epoch)}.{MANIFEST}"


def _epoch_words(epochs: list[int]) -> str:
    """Return epochs for people; a row of them by its ends."""
    if not epochs:
        return "none"
    if len(epochs) > 2 and epochs == list(range(epochs[0], epochs[-1] + 1)):
        return f"{epochs[0]} to {epochs[-1]}"
    return ", ".join(map(str, epochs))
