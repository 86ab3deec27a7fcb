"""Dicts that are partly in memory, such as a user's ``counts: dict[str, int]``.

The storage of the ``dict`` itself holds the hot entries, so that a hit runs at C speed; a miss
looks among the warm ones and then on disk. The epoch's changes are noted, and shadow the sealed
entries. Iterating goes in key order, with new entries last, and ``len`` counts on disk.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Sequence, ValuesView
from itertools import islice
from typing import Any, Protocol

from bicycle_runtime.layouts.state import ChangeSet
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.disk.cache import BatchKeys, DiskCache
from bicycle_runtime.state.memory.tracked import GONE, TrackedDict, Tracking
from bicycle_runtime.state.rocksdb.key_layout import (
    array_of,
    behind,
    key_bytes,
    key_in,
    state_start,
    value_in,
)
from bicycle_sdk.state.entries import MISSING

__all__ = ["MISSING", "DiskDict", "OneCodec", "SealedEntries"]

_KEYS = AnyCodec()
_set, _get, _peek = dict.__setitem__, dict.__getitem__, dict.get
_WRITES = Tracking()


class OneCodec(Protocol):
    """A codec that decodes values, as a ``ValueCodec`` does."""

    def decode_list(self, data: bytes) -> list[Any]:
        """Return the values of an encoded array."""

    def decode_one(self, item: bytes, key: Any = None) -> Any:
        """Return a value from its own bytes; ``key`` is for errors."""


class SealedEntries:
    """The location of the entries of a dict on disk.

    Args:
        cache: The operator's.
        name: Name of the state.
        codec: How values are encoded.
        group_of: The key group of a key; None for a dict of one key group.
        group: The key group of a dict of one.
        is_by_key: Whether its keys are those of records.
    """

    __slots__ = ("_codec", "_group", "_group_of", "_is_by_key", "_name", "_starts", "cache")

    def __init__(
        self, cache: DiskCache, name: str, codec: OneCodec,
        *, group_of: Callable[[Any], int] | None = None, group: int = 0, is_by_key: bool = False,
    ) -> None:  # fmt: skip
        self.cache = cache
        self._name = name
        self._codec = codec
        self._group_of = group_of
        self._group = group
        self._is_by_key = is_by_key
        self._starts: dict[int, bytes] = {}

    @property
    def is_for_handles(self) -> bool:
        """Return whether functions hold handles to this dict, which is not replaced then."""
        return self._group_of is not None

    def read(self, key: Any) -> Any:
        """Return the sealed value of a key, else MISSING."""
        data = self.cache.read(self._db_key(key))
        return MISSING if data is None else self._codec.decode_one(value_in(data), key)

    def keys_in(self, batch: BatchKeys) -> dict[Any, None]:
        """Return the keys of a batch that may be in this dict."""
        if not self._is_by_key:
            return {}
        return batch.of(self._group if self._group_of is None else None)

    def read_all(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return the sealed value of each key, or MISSING; {} if one cannot be decoded."""
        # hot path: sorted keys are read in half of the time, values are decoded at once.
        db_keys = {self._db_key(key): key for key in keys}
        ordered = sorted(db_keys)
        found = dict(zip(map(db_keys.__getitem__, ordered), self.cache.read(ordered), strict=True))
        there = [key for key, data in found.items() if data is not None]
        try:
            values = self._codec.decode_list(array_of([value_in(found[key]) for key in there]))
        except Exception:  # noqa: BLE001  # ``read`` raises it for the key that it belongs to
            return {}
        return dict.fromkeys(found, MISSING) | dict(zip(there, values, strict=True))

    def _db_key(self, key: Any) -> bytes:
        group = self._group if self._group_of is None else self._group_of(key)
        start = self._starts.get(group)
        if start is None:
            start = self._starts[group] = state_start(group, self._name)
        return start + key_bytes(key)

    def is_empty(self) -> bool:
        """Return whether no entry is sealed."""
        return next(self.entries(), None) is None

    def entries(self) -> Iterator[tuple[Any, bytes]]:
        """Yield all sealed keys with their encoded values."""
        groups = self.cache.groups if self._group_of is not None else (self._group,)
        for group in groups:
            start = state_start(group, self._name)
            for db_key, data in self.cache.scan(start, behind(start)):
                yield key_in(db_key[len(start) :], data), data

    def value(self, data: bytes) -> Any:
        """Return the value of a sealed entry."""
        return self._codec.decode_one(value_in(data))


class DiskDict(TrackedDict):
    """A dict over sealed entries.

    Args:
        sealed: The location of the sealed entries.
        tracking: The notes that it takes.
        is_part: Whether it is part of another, which settles and ages it.
        is_new: Whether nothing is sealed, so that no lookup on disk is needed.
    """

    __slots__ = (
        "_batch", "_fetched", "_fetched_count", "_is_whole", "_notes_reads", "_sealed_entries",
        "_warm", "is_emptied", "is_lasting",
    )  # fmt: skip

    def __init__(
        self, sealed: SealedEntries, tracking: Tracking = _WRITES,
        *, is_part: bool = False, is_new: bool = False,
    ) -> None:  # fmt: skip
        super().__init__((), tracking)
        self._notes_reads = tracking.touches or tracking.copies
        self._sealed_entries = sealed
        self.is_lasting = sealed.is_for_handles
        self._warm: dict[Any, Any] = {}
        self._batch: BatchKeys | None = None  # Whose values were fetched.
        self._fetched: dict[Any, Any] = {}  # Values of the batch that no call has used yet.
        self._fetched_count = 0
        self._is_whole: bool | None = True if is_new else None
        self.is_emptied = False  # Whether this epoch has shadowed all that is sealed.
        if not is_part:
            sealed.cache.join(self)

    # --- methods of a dict ---------------------------------------------------------------------

    def __missing__(self, key: Any) -> Any:
        value = self._fault(key)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        return dict.__contains__(self, key) or self._fault(key) is not MISSING

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, else the default."""
        # hot path: 90 ns when it is hot.
        value = _peek(self, key, MISSING)
        if value is MISSING:
            value = self._fault(key)
            if value is MISSING:
                return default
        if self._notes_reads:
            self._note_read(key, value)
        return value

    def __getitem__(self, key: Any) -> Any:
        # hot path: 55 ns when it is hot, of about 1 us for a record with state on disk.
        value = _get(self, key)
        if self._notes_reads:
            self._note_read(key, value)
        return value

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        super().__delitem__(key)
        self._warm.pop(key, None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), MISSING) is not MISSING

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._entries())

    def __reversed__(self) -> Iterator[Any]:
        return iter([key for key, _ in self._entries()][::-1])

    def __eq__(self, other: object) -> bool:
        return self.copy() == (other.copy() if isinstance(other, DiskDict) else other)

    __hash__ = None  # type: ignore[assignment]  # like a dict

    def __repr__(self) -> str:
        return repr(self.copy())

    def copy(self) -> dict[Any, Any]:
        """Return a plain dict of all entries."""
        return {key: self._value_of(value) for key, value in self._entries()}

    def keys(self) -> KeysView[Any]:  # type: ignore[override]  # dict has views of its own
        """Return all keys."""
        return KeysView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # dict has views of its own
        """Return all values."""
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]  # dict has views of its own
        """Return all entries."""
        return _Items(self)

    def pop(self, key: Any, *default: Any) -> Any:
        value = self.get(key, MISSING)
        if value is not MISSING:
            del self[key]
            return value
        if not default:
            raise KeyError(key)
        return default[0]

    # --- methods for the runtime ---------------------------------------------------------------

    def put_back(self, key: Any, value: Any) -> None:
        """Restore the value of a key; ``MISSING`` removes it."""
        super().put_back(key, value)
        if value is MISSING:
            self._warm.pop(key, None)

    def replaced_by(self, entries: dict[Any, Any]) -> DiskDict:
        """Hold these entries and no others, all of them written."""
        fresh = dict(entries)
        self._clear()
        self.put_all(fresh)
        return self

    def add(self, key: Any, value: Any) -> bool:
        """Put an entry if its key is new; return whether it was put."""
        if dict.__contains__(self, key):
            return False
        # hot path: if all entries are in memory, no further lookup is needed.
        is_new = key in self.touched or (self._is_whole is True and not self._warm)
        if not is_new and self._fault(key) is not MISSING:
            return False
        _set(self, key, value)
        self.touched[key] = value
        return True

    def take_all(self, keys: Sequence[Any]) -> list[Any]:
        """Remove keys that are there, and return their values."""
        values, drop = self.peek_all(keys), dict.pop
        for key in keys:
            drop(self, key, None)
        for key in keys if self._warm else ():
            self._warm.pop(key, None)
        self.touched.update(dict.fromkeys(keys, GONE))
        return values

    def take_changes(self) -> tuple[dict[Any, Any], list[Any], bool]:
        """Return the puts and removals of the epoch, and whether they are all entries."""
        # A touched entry that is not in memory is deleted.
        kept, gone = {}, []
        for key in list(self) if self.is_emptied else list(self.touched):
            value = dict.get(self, key, MISSING)
            if value is MISSING:
                gone.append(key)
            else:
                kept[key] = value
        return kept, [] if self.is_emptied else gone, self.is_emptied

    def load(self, change_set: ChangeSet, codec: OneCodec) -> None:  # noqa: ARG002  # it is on disk
        """Evict the entries of a change set that other tasks sealed."""
        if change_set.is_full:
            self.forget()
        self.drop(_KEYS.decode_list(bytes(change_set.keys)))
        self.drop(_KEYS.decode_list(bytes(change_set.deleted)))

    def peek(self, key: Any) -> Any:
        """Return the value of a key without marking it as used, or MISSING."""
        value = dict.get(self, key, MISSING)
        return self._fault(key) if value is MISSING else value

    def peek_all(self, keys: Iterable[Any]) -> list[Any]:
        """Return the values of keys, as ``peek`` returns them, in order."""
        hot, fault = dict.get, self._fault
        return [fault(k) if (v := hot(self, k, MISSING)) is MISSING else v for k in keys]

    def found(self, key: Any, data: bytes | None) -> Any:
        """Return the value of a key whose sealed entry was just read, or MISSING.

        Args:
            key: The key.
            data: The sealed data, or None.
        """
        value = dict.get(self, key, MISSING)
        if value is MISSING and data is not None and key not in self.touched:
            value = self._hand_out(key, self._sealed_entries.value(data), is_use=False)
        return value

    def hold(self, key: Any, data: bytes | None) -> bool:
        """Cache the value of a key whose sealed entry was read; return whether it exists."""
        if dict.__contains__(self, key):
            return True
        value = self.found(key, data)
        if value is MISSING:
            return False
        dict.__setitem__(self, key, value)
        return True

    def live(self) -> Iterator[tuple[Any, Any]]:
        """Yield all entries; each value is noted as it is reached."""
        for key, value in self._entries():
            yield key, self._hand_out(key, self._value_of(value), is_use=True)

    def gather(self) -> dict[Any, Any]:
        """Return a plain dict of all entries in any order, from memory where complete."""
        if self.is_emptied or not self._has_all():
            return self.copy()
        found = dict(self._warm)
        found.update(dict.items(self))  # To update with a dict asks its ``__iter__``.
        return found

    def settle(self) -> None:
        """Mark the changes of the epoch as part of the space."""
        self.touched.clear()
        self.is_emptied = False
        self._forget_fetched()

    def clean_count(self) -> int:
        """Return how many entries are hot and not touched."""
        return max(0, dict.__len__(self) - len(self.touched))

    @property
    def is_idle(self) -> bool:
        """Return whether nothing of this dict is in memory."""
        return not (dict.__len__(self) or self._warm or self.touched or self.is_emptied)

    def age(self, share: float) -> None:
        """Evict warm entries, and make the newest hot, untouched entries warm."""
        if self._warm:
            self._is_whole = False
        if not dict.__len__(self):
            self._warm = {}
            return
        warm = dict(dict.items(self))  # To copy a dict asks ``__iter__``, which reads the disk.
        dict.clear(self)
        if self.touched:
            missing = MISSING
            kept = {key: warm.pop(key, missing) for key in self.touched}
            dict.update(self, {k: value for k, value in kept.items() if value is not missing})
        if share < 1 and warm:
            self._is_whole = False
            warm = dict(islice(reversed(warm.items()), int(len(warm) * share)))
        self._warm = warm

    def drop(self, keys: Iterable[Any]) -> None:
        """Evict the entries of some keys, since other tasks sealed changes to them."""
        self._is_whole = False
        self._forget_fetched()
        for key in keys:
            dict.pop(self, key, None)
            self._warm.pop(key, None)

    def forget(self) -> None:
        """Evict all entries, including the changes of the epoch."""
        dict.clear(self)
        self._warm.clear()
        self._is_whole = None
        self.settle()

    def _clear(self) -> None:
        dict.clear(self)
        self._warm.clear()
        self.touched.clear()
        self.is_emptied = True

    def _memo(self) -> Callable[[], None]:
        hot, warm, touched = dict(dict.items(self)), dict(self._warm), dict(self.touched)
        is_emptied = self.is_emptied

        def put_back() -> None:
            dict.clear(self)
            dict.update(self, hot)
            self._warm, self.touched, self.is_emptied = warm, touched, is_emptied

        return put_back

    def _fault(self, key: Any) -> Any:
        if key in self.touched or self.is_emptied:
            return MISSING
        warm = self._warm
        if key in warm:
            value = warm.pop(key)
        elif self._has_all():
            return MISSING
        else:
            value = self._read(key)
            if value is MISSING:
                return MISSING
        dict.__setitem__(self, key, value)
        return value

    def _read(self, key: Any) -> Any:
        """Return a sealed value; the first miss of a batch reads all of its keys."""
        if key in self._fetched:
            return self._fetched.pop(key)
        sealed, batch = self._sealed_entries, self._sealed_entries.cache.batch
        if batch is None or batch is self._batch or key not in (keys := sealed.keys_in(batch)):
            return sealed.read(key)
        self._batch = batch
        if 2 * len(self._fetched) > self._fetched_count:
            # The function uses the state of few records: until the next epoch, each is read alone.
            self._fetched, self._fetched_count = {}, -1
            return sealed.read(key)
        there, touched, warm = dict.__contains__, self.touched, self._warm
        self._fetched = found = sealed.read_all(
            [k for k in keys if not there(self, k) and k not in touched and k not in warm]
        )
        # The look for a single key that is absent is as fast.
        absent_count = sum(value is MISSING for value in found.values())
        self._fetched_count = len(found) if 2 * absent_count <= len(found) else -1
        return found.pop(key) if found else sealed.read(key)

    def _forget_fetched(self) -> None:
        self._batch, self._fetched, self._fetched_count = None, {}, 0

    def _has_all(self) -> bool:
        """Return whether all entries are in memory, as while a state is small or new."""
        if self._is_whole is None:
            # Nothing was sealed before; entries sealed from now on pass through here.
            self._is_whole = self._sealed_entries.is_empty()
        return self._is_whole

    def _entries(self) -> Iterator[tuple[Any, Any]]:
        """Yield keys with values, or with a ``_Sealed`` for values on disk."""
        seen = set()
        if not self.is_emptied:
            touched = self.touched
            for key, data in self._sealed_entries.entries():
                if dict.__contains__(self, key):
                    yield key, dict.__getitem__(self, key)
                elif key not in touched:
                    yield key, _Sealed(data)
                if key in touched:  # Perhaps only since it was returned.
                    seen.add(key)
        for key in [key for key in self.touched if key not in seen]:
            if dict.__contains__(self, key):
                yield key, dict.__getitem__(self, key)

    def _value_of(self, value: Any) -> Any:
        return self._sealed_entries.value(value.data) if type(value) is _Sealed else value

    def _hand_out(self, key: Any, value: Any, *, is_use: bool) -> Any:
        """Return a value; keep it if it can be changed in place, to see its changes."""
        if self._notes_reads:
            _set(self, key, value)
            if is_use:
                self._note_read(key, value)
        return value


class _Sealed:
    """An entry as it is on disk."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class _Values(ValuesView[Any]):
    def __iter__(self) -> Iterator[Any]:
        mapping = self._mapping  # type: ignore[attr-defined]  # typeshed leaves it out
        return (value for _, value in mapping.live())


class _Items(ItemsView[Any, Any]):
    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        mapping: DiskDict = self._mapping  # type: ignore[attr-defined]  # typeshed leaves it out
        return mapping.live()
