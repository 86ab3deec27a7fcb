"""Entries of windows of which only a part is in memory: a dict on disk per namespace and key group.

Which namespaces there are is known without the disk. The dict of a namespace that nothing is held
of is let go, and made again when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.disk.cache import DiskCache
from bicycle_runtime.state.disk.dicts import DiskDict, OneCodec, SealedEntries
from bicycle_runtime.state.memory.windows import WindowEntries
from bicycle_runtime.state.sealed.changes import ChangeSet, emptied_change_set

__all__ = ["DiskWindowEntries"]

_KEYS = AnyCodec()


class DiskWindowEntries(WindowEntries):
    """``WindowEntries`` over cache.

    Args:
        cache: The operator's.
        prefix: First letter of the names of its change sets.
        value_type: Declared type of the values, None when unknown.
        dump: Turns a value into what is stored; ``load`` is its inverse.
        load: See ``dump``.
    """

    is_lasting = False

    def __init__(
        self, cache: DiskCache, prefix: str, value_type: Any = None,
        *, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(prefix, value_type, dump=dump, load=load)
        self._cache = cache
        self._open: dict[tuple[int, int], DiskDict] = {}
        self._is_listed = False
        cache.join(self)

    # --- in the cache ------------------------------------------------------------------------

    def settle(self) -> None:
        """Regard what the epoch changed as part of the space."""
        for values in self._open.values():
            values.settle()
        self._let_go()

    def clean_count(self) -> int:
        """Return how many entries are hot and not touched."""
        return sum(values.clean_count() for values in self._open.values())

    def age(self, share: float) -> None:
        """Let go of what is warm, and make warm the newest part of what is hot and not touched."""
        for values in self._open.values():
            values.age(share)
        self._let_go()

    # --- as entries ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Find out which namespaces there are, once."""
        if not self._is_listed:
            self._is_listed = True
            for group in self._cache.groups:
                for name in self._cache.names(group, self.prefix):
                    self._note(name, group)

    def _note(self, state_name: str, group: int) -> None:
        namespace = int(state_name[len(self.prefix) :])
        self.namespaces.setdefault(namespace, {})[group] = None
        self._sealed.add((namespace, group))

    def group(self, namespace: int, group: int) -> dict[Any, Any]:
        """Return the values of a key group in a namespace, to be read and changed."""
        self.namespaces.setdefault(namespace, {})[group] = None
        return self._dict(namespace, group)

    def contents(
        self, namespace: int, group: int, keys: Collection[Any] | None = None
    ) -> Mapping[Any, Any]:
        """Return the values of a key group in a namespace, to be read: of some keys, or of all."""
        if group not in self.namespaces.get(namespace, ()):
            return {}
        values = self._dict(namespace, group)
        if keys is None:
            return values.gathered()
        return {key: values[key] for key in keys if key in values}

    def find(self, namespace: int, group: int, key: Any) -> Any:
        """Return a value, None when there is none."""
        if group not in self.namespaces.get(namespace, ()):
            return None
        return self._dict(namespace, group).get(key)

    def touch(self, namespace: int, group: int, keys: Iterable[Any]) -> None:
        """Take note that the values of some keys were put, changed in place, or removed."""
        listed = dict.fromkeys(keys)
        super().touch(namespace, group, listed)
        values = self._dict(namespace, group)
        # What is not held was removed, which is noted, or is yet to be put.
        values.touched.update((key, None) for key in listed if dict.__contains__(values, key))

    def drop(self, namespace: int) -> None:
        """Forget all values of a namespace."""
        for group in self.namespaces.pop(namespace, ()):
            self._dict(namespace, group).clear()
            super().touch(namespace, group, ())

    def change_sets(self) -> Iterator[ChangeSet]:
        """Yield what changed since the last call."""
        for (namespace, group), keys in sorted(self._touched.items(), key=lambda item: item[0]):
            values = self._dict(namespace, group)
            if any(dict.__contains__(values, key) for key in keys) or values:
                yield self._change_set(namespace, group, values, keys, is_full=values.is_emptied)
                self._sealed.add((namespace, group))
                continue
            self._forget(namespace, group)
            if (namespace, group) in self._sealed:
                self._sealed.discard((namespace, group))
                yield emptied_change_set(group, self._name(namespace))
        self._touched.clear()

    def apply(self, change_set: ChangeSet) -> None:
        """Forget what is in memory of what others have sealed."""
        namespace, group = int(change_set.name[len(self.prefix) :]), change_set.group
        keys = _KEYS.decode_list(bytes(change_set.keys))
        if keys:
            self._note(change_set.name, group)
        elif change_set.is_full:
            self._forget(namespace, group)
            self._sealed.discard((namespace, group))
        values = self._open.get((namespace, group))
        if values is not None:
            if change_set.is_full:
                values.forget()
            values.drop(keys)
            values.drop(_KEYS.decode_list(bytes(change_set.deleted)))

    def _dict(self, namespace: int, group: int) -> DiskDict:
        found = self._open.get((namespace, group))
        if found is None:
            codec: OneCodec = (
                self._codec if self._load is None else _Loading(self._codec, self._load)
            )
            sealed = SealedEntries(self._cache, self._name(namespace), codec, group=group)
            is_new = (namespace, group) not in self._sealed
            found = self._open[namespace, group] = DiskDict(sealed, is_part=True, is_new=is_new)
        return found

    def _let_go(self) -> None:
        for part in [part for part, values in self._open.items() if values.is_idle]:
            del self._open[part]


class _Loading:
    """Reads values that are stored in another form.

    Args:
        codec: Reads what is stored.
        load: Makes a value of it.
    """

    def __init__(self, codec: OneCodec, load: Callable[[Any], Any]) -> None:
        self._codec = codec
        self._load = load

    def decode_one(self, item: bytes, key: Any = None) -> Any:
        """Return a value from its own bytes."""
        return self._load(self._codec.decode_one(item, key))
