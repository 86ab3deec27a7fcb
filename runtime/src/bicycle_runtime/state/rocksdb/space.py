"""A RocksDB with an operator's sealed entries in a subtask, and its checkpoint id.

It knows change sets but no types. A change set is applied with its checkpoint id as one step, or
else the checkpoint id is removed meanwhile, so that a dying process leaves nothing that passes for
whole. There is no log of writes: lost changes are applied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import rocksdict

from bicycle_runtime.layouts.state import EVERYWHERE, ChangeSet
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.rocksdb.indexes import INDEX_MARK, ROWS, Index
from bicycle_runtime.state.rocksdb.key_layout import (
    INDEX_START,
    array_of,
    behind,
    frame,
    group_start,
    index_key,
    index_start,
    key_bytes,
    key_in,
    name_in,
    name_start,
    raw_list,
    state_start,
    value_in,
)
from bicycle_runtime.state.sealed.changes import make_change_set
from bicycle_runtime.state.settings import StateSettings

_KEYS = AnyCodec()
_CHECKPOINT_ID, _IDENTITY, _MARK = b"\xff\x01label", b"\xff\x02identity", b"\xff\x03"
# Of keys and values. A folder of another layout is foreign; bases in the storage name it, too.
# Layout 1 knew no indexes and would not update them: its folders are read all the same.
LAYOUT = "2"
READ_LAYOUTS = ("1", LAYOUT)
_BATCH_BYTES = 8 << 20
_BATCH_ENTRIES = 20_000
_TIMES = "$ttl."
_ENTRIES = "$state."
_LOG_BYTES_MAX = 256 << 10  # RocksDB's own log; without a bound it grows forever.
_MANIFEST_BYTES_MAX = 256 << 10  # It is part of each base.
_OPEN_FILES_MAX = 256
_BLOOM_BITS = 10


class SpaceError(Exception):
    """A folder that cannot be read or written, and can be rebuilt."""


class UnreadableError(SpaceError):
    """Another folder, that is read from, cannot be read."""


class RocksSpace:
    """An open folder; ``checkpoint_id`` is None while its content is incomplete.

    Use ``open_space`` to make one.
    """

    def __init__(self, database: rocksdict.Rdict, *, identity: str) -> None:
        self._database = database
        self._without_log = rocksdict.WriteOptions()
        self._without_log.disable_wal = True  # type: ignore[method-assign, assignment]  # its stub errs
        self.is_foreign = database.get(_IDENTITY) not in (None, identity.encode())
        found = database.get(_CHECKPOINT_ID)
        self.checkpoint_id: str | None = None if found is None else found.decode()
        self._identity = identity
        self.get: Callable[[bytes], bytes | None] = database.get

    @classmethod
    def open_space(cls, path: Path, identity: str, settings: StateSettings) -> RocksSpace:
        """Open or create a folder.

        Args:
            path: The folder.
            identity: Whose state it is; another one makes it foreign.
            settings: Bounds of memory.

        Raises:
            SpaceError: the folder has no database, or a damaged one, or is held by a process.
        """
        with _space_errors():
            database = rocksdict.Rdict(str(path), _options(settings))
            return cls(database, identity=f"{LAYOUT}\n{identity}")

    @classmethod
    def open_for_reading(cls, path: Path, settings: StateSettings) -> RocksSpace:
        """Open a folder for reading; no process may write to it.

        Raises:
            SpaceError: the folder has no database, or a damaged one.
        """
        with _space_errors():
            access = rocksdict.AccessType.read_only(False)
            database = rocksdict.Rdict(str(path), _options(settings), access_type=access)
            return cls(database, identity="")

    def close(self) -> None:
        """Write data in memory to the folder, and close it.

        Raises:
            SpaceError: it could not be written; the folder is released nevertheless.
        """
        with _space_errors():
            self._database.close()

    def entry_count(self) -> int:
        """Return about how many entries there are; one that was put again may count twice."""
        return self._database.property_int_value("rocksdb.estimate-num-keys") or 0

    def write_soon(self) -> None:
        """Start to write data in memory to the folder, in the background.

        Raises:
            SpaceError: the folder cannot be written.
        """
        with _space_errors():
            self._database.flush(False)

    def checkpoint(self, path: Path) -> None:
        """Link all files of the space as it is now into a new folder.

        Raises:
            SpaceError: it cannot be done.
        """
        with _space_errors():
            rocksdict.Checkpoint(self._database).create_checkpoint(str(path))

    def keep_only(self, groups: range) -> None:
        """Remove other key groups, except for common state.

        The space is then at no checkpoint id.

        Their entries by time stay until they are looked up, as others that are out of date.
        """
        batch = self._new_batch()
        self.checkpoint_id = None
        rows = index_start(ROWS)
        if groups.start > 0:
            batch.delete_range(group_start(0), group_start(groups.start))
            batch.delete_range(rows, rows + group_start(groups.start))
        batch.delete_range(group_start(groups.stop), INDEX_START)
        batch.delete_range(rows + group_start(groups.stop), behind(rows))
        self._write(batch)

    def absorb(self, other: RocksSpace, groups: range) -> None:
        """Copy the entries of some key groups, and common state, from another space.

        An index by time that only one of them has is not known to be complete.
        """
        marks = other.marks()
        self.tidy((), {mark: False for mark in self.marks() - marks})
        self._put_all(other, group_start(EVERYWHERE), group_start(0))
        self._put_all(other, group_start(groups.start), group_start(groups.stop))
        rows = index_start(ROWS)
        self._put_all(other, INDEX_START, rows)
        self._put_all(other, rows + group_start(groups.start), rows + group_start(groups.stop))
        self._put_all(other, behind(rows), behind(INDEX_START))

    def set_marks(self, marks: Iterable[str]) -> None:
        """Set marks, for a space that gets all that it has from others."""
        self.tidy((), dict.fromkeys(marks, True))

    def _put_all(self, other: RocksSpace, start: bytes, end: bytes) -> None:
        batch = self._new_batch()
        self.checkpoint_id = None
        put = batch.put
        # hot path: 1.4 us an entry of a range that joins another.
        for count, (db_key, data) in enumerate(_all_of(other, start, end), start=1):
            put(db_key, data)
            if count % _BATCH_ENTRIES == 0:
                self._write(batch)
                batch = self._new_batch()
                put = batch.put
        self._write(batch)

    def apply(
        self,
        files: Iterable[Sequence[ChangeSet]],
        checkpoint_id: str,
        indexes: Sequence[Index] = (),
    ) -> None:
        """Apply sealed changes, oldest first; the space is at ``checkpoint_id`` afterward.

        Args:
            files: The changes.
            checkpoint_id: The checkpoint id.
            indexes: The indexes to update.
        """
        batch = self._new_batch()
        self.checkpoint_id = None
        for change_sets in files:
            for change_set in change_sets:
                _put(batch, change_set)
                _put_in_indexes(batch, change_set, indexes)
                if batch.size_in_bytes() > _BATCH_BYTES:
                    self._write(batch)
                    batch = self._new_batch()
        batch.put(_IDENTITY, self._identity.encode())
        batch.put(_CHECKPOINT_ID, checkpoint_id.encode())
        self._write(batch)
        self.checkpoint_id = checkpoint_id

    def apply_of_others(
        self,
        files: Iterable[Sequence[ChangeSet]],
        checkpoint_id: str,
        indexes: Sequence[Index] = (),
    ) -> None:
        """Put sealed changes in that others made, and make sure that marks are still true.

        A mark means that all entries of a state have their times. Other operators may have run
        without a time to live.
        """
        marks = self.marks()
        untimed: dict[str, list[bytes]] = {}

        def looked_at() -> Iterator[Sequence[ChangeSet]]:
            for change_sets in files:
                timed = {(s.group, s.name): s for s in change_sets if s.name.startswith(_TIMES)}
                for change_set in change_sets if marks else ():
                    name = _times_of(change_set.name)
                    if change_set.name.startswith(_ENTRIES) and name in marks:
                        found = timed.get((change_set.group, name))
                        untimed.setdefault(name, []).extend(_keys_of_times(change_set, found))
                yield change_sets

        self.apply(looked_at(), checkpoint_id, indexes)
        belied = [mark for mark, db_keys in untimed.items() if any(self._lacks(p) for p in db_keys)]
        if belied:
            self.tidy((), dict.fromkeys(belied, False))

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield database keys and values with ``start <= db_key < end``, in order.

        Raises:
            SpaceError: a part of the range cannot be read.
        """
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(end)
        with _space_errors():
            # ``items()`` of the library ends at a damaged block as if nothing followed.
            # hot path: 3.4 us a range of one entry, 3.0 with ``items()``.
            iterator = self._database.iter(read_opt=options)
            iterator.seek(start)
            is_valid, key, value, move = (
                iterator.valid, iterator.key, iterator.value, iterator.next,
            )  # fmt: skip
            while is_valid():
                yield key(), value()
                move()
            iterator.status()

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the last entry with ``start <= db_key < end``."""
        with _space_errors():
            iterator = self._database.iter()
            iterator.seek_for_prev(end)
            if iterator.valid() and iterator.key() == end:
                iterator.prev()
            iterator.status()
            is_found = iterator.valid() and iterator.key() >= start
            return (iterator.key(), iterator.value()) if is_found else None

    def names(self, group: int, prefix: str = "") -> list[str]:
        """Return the names with a prefix of the change sets of a key group."""
        found = []
        db_key = name_start(group, prefix)
        end = behind(db_key)
        while (entry := next(self.scan(db_key, end), None)) is not None:
            name, _ = name_in(entry[0])
            found.append(name)
            db_key = behind(state_start(group, name))
        return found

    def change_set(self, group: int, name: str) -> ChangeSet:
        """Return all entries of one state in one key group, as a full change set."""
        start = state_start(group, name)
        keys, values = [], []
        for db_key, data in self.scan(start, behind(start)):
            keys.append(key_in(db_key[len(start) :], data))
            values.append(value_in(data))
        return make_change_set(group, name, _KEYS.encode_list(keys), array_of(values), is_full=True)

    def complete(self, indexes: Sequence[Index], groups: range) -> None:
        """Keep exactly these indexes; build missing ones from the change sets.

        Args:
            indexes: The indexes.
            groups: The key groups in the space.
        """
        wanted = {index.mark: index for index in indexes}
        found = {mark for mark in self.marks() if mark.startswith(INDEX_MARK)}
        for mark in sorted(found - wanted.keys()):
            self._forget_index(mark)
        for mark, index in wanted.items():
            if mark not in found:
                self._forget_index(mark)
                self._make_index(index, groups)

    def marks(self) -> set[str]:
        """Return the marks that were set."""
        end = behind(_MARK)
        return {db_key[len(_MARK) :].decode() for db_key, _ in self.scan(_MARK, end)}

    def tidy(self, gone: Iterable[bytes], marks: dict[str, bool]) -> None:
        """Remove stale entries of the index; set and remove marks."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for db_key in gone:
            batch.delete(db_key)
        for mark, is_set in marks.items():
            db_key = _MARK + mark.encode()
            if is_set:
                batch.put(db_key, b"")
            else:
                batch.delete(db_key)
        self._write(batch)

    def _make_index(self, index: Index, groups: range) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for group in groups:
            for name in self.names(group, index.prefix):
                _put_in_indexes(batch, self.change_set(group, name), (index,))
                if batch.size_in_bytes() > _BATCH_BYTES:
                    self._write(batch)
                    batch = rocksdict.WriteBatch(raw_mode=True)
        self._write(batch)
        self.tidy((), {index.mark: True})

    def _forget_index(self, mark: str) -> None:
        start = index_start(mark.partition(":")[0])[:-1]  # Without its end, so of all domains.
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.delete_range(start, behind(start))
        self._write(batch)
        self.tidy((), {mark: False})

    def _lacks(self, db_key: bytes) -> bool:
        with _space_errors():
            # An entry that is gone again needs no time.
            return self.get(db_key) is None

    def _new_batch(self) -> rocksdict.WriteBatch:
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.delete(_CHECKPOINT_ID)
        return batch

    def _write(self, batch: rocksdict.WriteBatch) -> None:
        with _space_errors():
            self._database.write(batch, self._without_log)


@contextmanager
def _space_errors() -> Iterator[None]:
    """Raise the plain exceptions of rocksdict as ``SpaceError``."""
    try:
        yield
    except Exception as error:
        if not is_from_rocksdb(error):
            raise
        raise SpaceError(str(error)) from error


def is_from_rocksdb(error: BaseException) -> bool:
    """Return whether rocksdict raised an error for a failure of RocksDB."""
    return type(error) in (Exception, rocksdict.DbClosedError)


def _all_of(other: RocksSpace, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    try:
        yield from other.scan(start, end)
    except SpaceError as error:
        raise UnreadableError(str(error)) from error


def _put(batch: rocksdict.WriteBatch, change_set: ChangeSet) -> None:
    start = state_start(change_set.group, change_set.name)
    if change_set.is_full:
        batch.delete_range(start, behind(start))
    keys = _KEYS.decode_list(bytes(change_set.keys))
    put = batch.put
    # hot path: 700 ns an entry of an epoch, once it is sealed.
    for key, raw_key, raw_value in zip(
        keys, raw_list(change_set.keys), raw_list(change_set.values), strict=True
    ):
        put(start + key_bytes(key), frame(key, raw_key, raw_value))
    gone = _KEYS.decode_list(bytes(change_set.deleted))
    for key in gone:
        batch.delete(start + key_bytes(key))
    if change_set.name.startswith(_TIMES):
        # Deleted and renewed entries stay in the index by time until a sweep finds them.
        times = _KEYS.decode_list(bytes(change_set.values))
        for key, raw_key, time_ms in zip(keys, raw_list(change_set.keys), times, strict=True):
            put(index_key(change_set.name, time_ms, key), bytes(raw_key))


def _put_in_indexes(
    batch: rocksdict.WriteBatch, change_set: ChangeSet, indexes: Iterable[Index]
) -> None:
    for index in indexes:
        if change_set.name.startswith(index.prefix):
            for db_key in index.gone(change_set):
                batch.delete(db_key)
            for db_key, data in index.put(change_set):
                batch.put(db_key, data)


def _keys_of_times(change_set: ChangeSet, times: ChangeSet | None) -> list[bytes]:
    """Return the database keys of missing times for the entries of a change set."""
    known = () if times is None else _KEYS.decode_list(bytes(times.keys))
    start = state_start(change_set.group, _times_of(change_set.name))
    keys = dict.fromkeys(_KEYS.decode_list(bytes(change_set.keys)))
    for key in known:
        keys.pop(key, None)
    return [start + key_bytes(key) for key in keys]


def _times_of(name: str) -> str:
    return _TIMES + name.removeprefix(_ENTRIES).partition(".")[2]


def _options(settings: StateSettings) -> rocksdict.Options:
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(_shared_cache(settings.block_cache_bytes))
    # In parts: one filter of millions of keys fits into no shard of the cache, and is read from the
    # file by every look at an absent key. hot path: 4 M keys, 213 → 4 µs absent, 148 → 10 µs there.
    table.set_bloom_filter(_BLOOM_BITS, False)
    table.set_partition_filters(True)
    table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_pin_top_level_index_and_filter(True)
    table.set_cache_index_and_filter_blocks(True)  # Else they grow with the state.
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_write_buffer_size(settings.write_buffer_bytes)
    options.set_max_write_buffer_number(2)
    options.set_memtable_prefix_bloom_ratio(0.1)
    options.set_memtable_whole_key_filtering(True)
    options.set_max_open_files(_OPEN_FILES_MAX)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(_LOG_BYTES_MAX)
    options.set_max_manifest_file_size(_MANIFEST_BYTES_MAX)
    options.set_max_background_jobs(2)
    return options


@lru_cache(maxsize=4)
def _shared_cache(byte_count: int) -> rocksdict.Cache:
    """Return the block cache of this process, for the databases of all operators."""
    return rocksdict.Cache(byte_count)
