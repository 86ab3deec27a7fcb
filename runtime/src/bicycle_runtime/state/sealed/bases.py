"""Making a base beside the epochs: announced, begun, made, taken.

1. *Announced*: a commit that finds it time for a base puts a mark into the range state.
2. *Begun*: the worker that runs the next epoch finds the mark sealed, takes a checkpoint of the
   sealed state, and writes it in a thread, into the folder that the mark names.
3. *Made*: the index, which lists the files of the base, is written last.
4. *Taken*: a commit that finds the index puts the base in place of the files that it holds.

The mark goes from epoch to epoch, so all epochs between are of one history, and another worker may
take the base that this one made. Nothing is written before an epoch that names the folder is
sealed, so the files of a dead worker are found from the manifests. Only work can be lost, never
state: a base that no worker makes is announced again when the checkpoint interval is over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from bicycle_runtime.base.errors import UnsafePathError
from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.base.object_paths import checked_name, require_below
from bicycle_runtime.base.storage import ObjectExistsError, ObjectMissingError
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.layouts.paths import STATE
from bicycle_runtime.layouts.state import (
    BASE_INDEX_FILE_MAGIC,
    BASE_INDEX_FILE_VERSION,
    BaseIndex,
    BaseMark,
    RangeState,
    StateRef,
)
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.sealed.changes import frame, unframe
from bicycle_runtime.state.sealed.refs import fold_start, with_base, with_mark
from bicycle_sdk.logging import log_event

if TYPE_CHECKING:
    from bicycle_runtime.state.sealed.sealed_files import SealedFiles

_LOGGER = logging.getLogger(__name__)
_ABANDONED_EPOCHS = 16  # A worker that runs no epoch of its range for so long may be gone.
# The thread looks up more often; one that waits for a storage is left behind.
_END_SECONDS_MAX = 1.0


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(prepare_type(BaseIndex))


def encode_index(index: BaseIndex) -> bytes:
    """Return an index as an object: magic, format version, checksum, content."""
    return frame(BASE_INDEX_FILE_MAGIC, BASE_INDEX_FILE_VERSION, _ENCODER.encode(index))


def decode_index(data: bytes, *, path: str, operator: str) -> BaseIndex:
    """Read an index.

    Raises:
        StateFileError: cut, changed, of another format version, or with paths that lead elsewhere.
    """
    body = unframe(
        data, BASE_INDEX_FILE_MAGIC, BASE_INDEX_FILE_VERSION,
        path=path, operator=operator, foreign="it is not the index of a base",
    )  # fmt: skip
    try:
        index = _DECODER.decode(body)
        objects = [item for ref in index.refs for item in ref.objects]
        require_below((item.path for item in (*objects, *index.ssts)), STATE)
        for name in (*index.files, *(sst.name for sst in index.ssts)):
            checked_name(name)
    except UnsafePathError as error:
        raise StateFileError(path=path, operator=operator, reason=error.summary) from error
    except msgspec.DecodeError as error:
        raise StateFileError(path=path, operator=operator, reason=str(error)) from error
    return index


class BaseFolder:
    """The folder into which a thread of one worker writes a base.

    Args:
        files: The operator's.
        mark: Which base.
        groups: Key groups of the range.
        epoch: The last epoch in it.
    """

    def __init__(self, files: SealedFiles, mark: BaseMark, *, groups: range, epoch: int) -> None:
        self.files = files
        self.groups = groups
        self.epoch = epoch
        self.path = mark.folder
        self._mark = mark
        self._is_given_up = threading.Event()

    def give_up(self) -> None:
        """Stop the thread at its next step."""
        self._is_given_up.set()

    def pause(self, seconds: float = 0.0) -> None:
        """Leave the processor to the epochs for a while. Called between any two steps.

        Raises:
            BaseGivenUp: the base is not needed any more.
        """
        if self._is_given_up.wait(seconds):
            raise BaseGivenUp

    def note_file(self) -> None:
        """Take note that a file of the base is written."""
        fault_point("base_file_written")
        self.pause()

    def finish(self, index: BaseIndex) -> None:
        """Write the index. Of two workers that made the base, the first one counts."""
        try:
            self.files.storage.create(self._mark.index, encode_index(index))
        except ObjectExistsError:
            return
        fault_point("base_made")


class BaseGivenUp(Exception):  # no error: a thread leaves by it
    """The base is no longer requested."""


Make = Callable[[BaseFolder], None]


class _Work:
    """A base in progress; ``wait`` is for tests and the end of the process."""

    def __init__(self, folder: BaseFolder, make: Make) -> None:
        self.folder = folder
        self.has_failed = False
        self._make = make
        self._thread = threading.Thread(target=self._run, name="bicycle-base", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Return whether the thread has ended."""
        return not self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._make(self.folder)
        except BaseGivenUp:
            self.has_failed = True
        except Exception as error:  # noqa: BLE001  # no epoch fails for it: the state is in deltas
            self.has_failed = True
            _tell_failure(error, self.folder.files.operator, self.folder.path)


class Bases:
    """The bases of one range of one operator, as one worker sees them.

    Args:
        files: The operator's.
    """

    def __init__(self, files: SealedFiles) -> None:
        self._files = files
        self._work: _Work | None = None
        self._begun = ""
        self._has_failed = False

    def begin(self, state: RangeState, prepare: Callable[[BaseFolder], Make | None]) -> None:
        """Start the base that a sealed state announces; stop any other base in progress.

        Called at the beginning of an epoch.

        Args:
            state: The sealed state.
            prepare: Takes a checkpoint of the sealed state, and returns a function that writes it;
                None when it cannot now.
        """
        mark = state.making
        if self._work is not None and (mark is None or mark.folder != self._work.folder.path):
            self._work.folder.give_up()
            self._work = None
        if mark is None or mark.epoch != state.epoch or mark.folder == self._begun:
            return
        self._begun = mark.folder
        groups = range(state.first_group, state.end_group)
        folder = BaseFolder(self._files.untold(), mark, groups=groups, epoch=state.epoch)
        make = prepare(folder)
        if make is not None:
            fault_point("base_begun")
            self._work = _Work(folder, make)

    def settle(
        self, state: RangeState, *, epoch: int, attempt: str, is_interval_over: bool
    ) -> RangeState:
        """Return a sealed state with the base taken that is made; or with one announced.

        Called by a commit that has changes, which follow.
        """
        mark = state.making
        if mark is not None:
            try:
                base = self._find_made(mark)
            except StateFileError as error:
                self._has_failed = True
                _tell_failure(error, self._files.operator, mark.folder)
            else:
                if base:
                    self._work, self._has_failed = None, False
                    fault_point("base_taken")
                    return with_base(state, base)
                is_late = is_interval_over and epoch - mark.epoch >= _ABANDONED_EPOCHS
                if not self._is_given_up(mark, is_late=is_late):
                    return state
            state = with_mark(state, None)
        # A storage that refuses bases is not asked again in each epoch.
        is_time = is_interval_over or not self._has_failed
        if not is_time or not fold_start(state.files, is_interval_over=is_interval_over):
            return state
        fault_point("base_announced")
        folder = f"{self._files.folder(state)}/{epoch:012}-{attempt}.base"
        return with_mark(state, BaseMark(epoch=epoch, folder=folder))

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the base that this process makes is made, or has failed."""
        if self._work is not None:
            self._work.wait(seconds)

    def close(self) -> None:
        """Stop the base in progress."""
        work, self._work = self._work, None
        self._begun = ""
        if work is not None:
            work.folder.give_up()
            work.wait(_END_SECONDS_MAX)

    def _is_given_up(self, mark: BaseMark, *, is_late: bool) -> bool:
        work = self._work
        if work is None or work.folder.path != mark.folder:
            return is_late
        self._has_failed = work.is_done and work.has_failed
        return self._has_failed

    def _find_made(self, mark: BaseMark) -> Sequence[StateRef]:
        """Return the base of a mark when it is made, by whomever."""
        work = self._work
        if work is not None and work.folder.path == mark.folder and not work.is_done:
            return ()
        try:
            data = self._files.storage.read(mark.index)
        except ObjectMissingError:
            return ()
        index = decode_index(data, path=mark.index, operator=self._files.operator)
        if index.refs:
            return index.refs
        base = StateRef(
            path=mark.index, is_base=True, tier=0, first_epoch=0, last_epoch=index.epoch,
            byte_count=len(data), crc32=crc32(data), sst_refs=index.ssts,
        )  # fmt: skip
        return (base,)


def _tell_failure(error: Exception, operator: str, folder: str) -> None:
    log_event(
        _LOGGER, "base_failed", level=logging.WARNING, error=error, operator=operator,
        folder=folder,
    )  # fmt: skip
