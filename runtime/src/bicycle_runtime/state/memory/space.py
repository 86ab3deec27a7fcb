"""The space of one operator's state: creates tables, and holds sealed entries.

A space is ordered by *key group · state · key · map key*. Tables (attributes, keyed states, timers,
accumulators, windows) are written once, over the dicts, entries and queues of a space: these work
on objects, note the changes of the running epoch, and know the sealed entries. In memory they hold
all of it (``MemorySpace``); over a database they hold the entries used last, and read the rest. A
backend is a class that derives from ``StateSpace``, and ``stores.backends`` has its name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from bicycle_runtime.layouts.state import ChangeSet, RangeState, TimerKind
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.records.keys import KeyBytes, part_order
from bicycle_runtime.state.memory.due import DueTimes
from bicycle_runtime.state.memory.tracked import TrackedDict, tracked_dict
from bicycle_runtime.state.memory.windows import Moments, Records, WindowEntries, WindowTables
from bicycle_runtime.state.sealed.bases import BaseFolder, Make
from bicycle_runtime.state.sealed.sealed_files import SealedFiles
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_sdk.state.access import make_entries
from bicycle_sdk.state.descriptors import StateDescriptor, TimeDomain
from bicycle_sdk.state.entries import MapEntries, ValueEntries
from bicycle_sdk.state.part_order import PartOrder
from bicycle_sdk.state.timers import TimerQueue

if TYPE_CHECKING:
    from bicycle_runtime.state.memory.attributes import Attribute

KeyedEntries = ValueEntries | MapEntries
_KEYS = AnyCodec()


class StateTable(Protocol):
    """The state of one operator in one subtask."""

    def changes(self) -> list[ChangeSet]:
        """Return the changes since the last call, and mark them as written."""

    def apply(self, change_sets: Iterable[ChangeSet]) -> None:
        """Put sealed changes in, oldest first."""

    def key_count(self) -> int:
        """Return the number of keys with state in memory, over all states."""


class Store(Protocol):
    """The interface of the store that a space requires."""

    files: SealedFiles
    table: Any

    def renew(self) -> None:
        """Replace the table by an empty one."""

    def read_files(self, state: RangeState, checkpoint_id: str | None) -> None:
        """Bring the table from a checkpoint id to a sealed state, from its files."""

    def fold(self, state: RangeState) -> Make:
        """Return a function that writes a base from the files of a sealed state."""


class NotingDict(Protocol):
    """A dict for a function, which tracks its changes."""

    def replaced_by(self, entries: dict[Any, Any]) -> Any:
        """Return the dict that holds these entries from now on, all of them written."""

    def take_changes(self) -> tuple[dict[Any, Any], list[Any], bool]:
        """Return the puts and the removals, and whether they are all entries."""

    def load(self, change_set: ChangeSet, codec: ValueCodec) -> None:
        """Apply changes that other tasks sealed."""


class StateSpace(WindowTables):
    """The state of one operator in one subtask.

    ``holds_all`` means that tables have all sealed entries as objects; otherwise ``read``, ``has``
    and ``names`` return them. With ``reads_ahead``, ``expect`` is called before the records of a
    batch. ``groups`` are its key groups.
    """

    holds_all: bool
    reads_ahead: ClassVar[bool] = False
    groups: range

    # --- sealed state --------------------------------------------------------------------------

    @abstractmethod
    def read(self, group: int, name: str, key: Any) -> bytes | None:
        """Return the encoded value of an entry that no table holds."""

    @abstractmethod
    def has(self, name: str, groups: Iterable[int] | None = None) -> bool:
        """Return whether a state has entries in no table, in some or any key groups."""

    @abstractmethod
    def names(self, prefix: str) -> Iterable[str]:
        """Return the names with a prefix of change sets that have such entries."""

    # --- parts of tables ---------------------------------------------------------------------

    @abstractmethod
    def dicts(self, name: str, codec: ValueCodec) -> dict[int, dict[Any, Any]]:
        """Return the entries of a state by key group; ``load`` takes sealed ones over."""

    @abstractmethod
    def load(self, entries: dict[Any, Any], change_set: ChangeSet, codec: ValueCodec) -> None:
        """Apply changes that other tasks sealed to a dict of this space."""

    @abstractmethod
    def attribute_dict(
        self, attribute: Attribute, group: int, initial: dict[Any, Any]
    ) -> NotingDict:
        """Return the entries of a dict attribute in one key group, initial ones as new."""

    @abstractmethod
    def keyed_entries(
        self, descriptor: StateDescriptor, codec: ValueCodec, *, entries: str, times: str,
        groups: Mapping[Any, int], clock: Callable[[TimeDomain], int],
    ) -> KeyedEntries:  # fmt: skip
        """Return the entries of a keyed state.

        Args:
            descriptor: The state.
            codec: How its entries are encoded.
            entries: Name of the state of its entries.
            times: Name of the state of the times from which they live.
            groups: The key group of a key, by indexing.
            clock: Returns the time in ms in a domain, for its TTL.
        """

    @abstractmethod
    def timers(self, kind: TimerKind, groups: Mapping[Any, int]) -> TimerQueue:
        """Return the timers of a kind.

        Args:
            kind: The purpose of the timers.
            groups: The key group of a key, by indexing.
        """

    @abstractmethod
    def key_count(self, table: StateTable) -> int:
        """Return the number of keys with state in a table; an estimate for state on disk."""

    # --- epochs ------------------------------------------------------------------------------

    @abstractmethod
    def stand_at(
        self, store: Store, state: RangeState, checkpoint_id: str | None, written: list[ChangeSet]
    ) -> None:
        """Bring the space and the table of a store to a sealed state.

        Args:
            store: The store.
            state: The sealed state.
            checkpoint_id: Their checkpoint id, or None.
            written: The changes that have led there and are not part of the space yet.
        """

    @abstractmethod
    def prepare_base(self, store: Store, state: RangeState, folder: BaseFolder) -> Make | None:
        """Pin the sealed state; return a function that writes a base of it, or None."""

    @abstractmethod
    def announce_base(self) -> None:
        """Get ready for a base that is made in the next epoch."""

    @abstractmethod
    def trim(self) -> None:
        """Keep the memory bound. Called between batches."""

    def expect(
        self,
        keys: Callable[[], Iterable[Any]],  # noqa: ARG002  # for subclasses
        groups: Mapping[Any, int],  # noqa: ARG002  # for subclasses
    ) -> AbstractContextManager[Any]:
        """Read the state of a batch's keys at once, until the returned context ends.

        Args:
            keys: Returns the keys of the records.
            groups: The key group of a key, by indexing.
        """
        return nullcontext()

    @abstractmethod
    def close(self) -> None:
        """Release open resources."""


class MemorySpace(StateSpace):
    """The space that keeps all state in memory, as objects in plain dicts."""

    holds_all = True
    groups = range(0)

    def read(self, group: int, name: str, key: Any) -> None:
        """Return nothing: tables hold all there is."""

    def has(self, name: str, groups: Iterable[int] | None = None) -> bool:  # noqa: ARG002  # as above
        return False

    def names(self, prefix: str) -> Iterable[str]:  # noqa: ARG002  # as above
        return ()

    def dicts(self, name: str, codec: ValueCodec) -> dict[int, dict[Any, Any]]:  # noqa: ARG002  # objects need no codec
        return {}

    def load(self, entries: dict[Any, Any], change_set: ChangeSet, codec: ValueCodec) -> None:
        if change_set.is_full:
            entries.clear()
        # hot path: 300 ns a key when a subtask takes over its state, half of it the update.
        keys = _KEYS.decode_list(bytes(change_set.keys))
        entries.update(
            zip(keys, codec.decode_list(change_set.values, change_set.keys), strict=True)
        )
        for key in _KEYS.decode_list(bytes(change_set.deleted)):
            entries.pop(key, None)

    def attribute_dict(
        self,
        attribute: Attribute,
        group: int,  # noqa: ARG002  # objects are in no group
        initial: dict[Any, Any],
    ) -> TrackedDict:
        assert attribute.tracked is not None
        return tracked_dict(initial, attribute.tracked)

    def keyed_entries(
        self, descriptor: StateDescriptor, codec: ValueCodec, *, entries: str, times: str,  # noqa: ARG002  # objects need neither
        groups: Mapping[Any, int], clock: Callable[[TimeDomain], int],  # noqa: ARG002  # nor place
    ) -> KeyedEntries:  # fmt: skip
        return make_entries(descriptor, clock=clock, order=map_key_order(descriptor))

    def timers(self, kind: TimerKind, groups: Mapping[Any, int]) -> TimerQueue:  # noqa: ARG002  # objects need no place
        return TimerQueue(domain_of(kind), KeyBytes().__getitem__)

    def entries(
        self, prefix: str, value_type: Any = None,
        *, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None,
    ) -> WindowEntries:  # fmt: skip
        return WindowEntries(prefix, value_type, dump=dump, load=load)

    def records(self, value_type: Any, *, is_by_key: bool) -> Records:  # noqa: ARG002  # all alike
        return Records(value_type)

    def due_times(self, domain: TimeDomain) -> DueTimes:  # noqa: ARG002  # both alike
        return DueTimes()

    def keep_due_times(self, entries: WindowEntries, moments: Moments, rules: str) -> bool:  # noqa: ARG002  # no index is kept
        return False

    def key_count(self, table: StateTable) -> int:
        return table.key_count()

    def stand_at(
        self, store: Store, state: RangeState, checkpoint_id: str | None, written: list[ChangeSet]  # noqa: ARG002  # the table has them
    ) -> None:  # fmt: skip
        store.read_files(state, checkpoint_id)

    def prepare_base(self, store: Store, state: RangeState, folder: BaseFolder) -> Make:  # noqa: ARG002  # the files stay
        return store.fold(state)

    def announce_base(self) -> None:
        """Do nothing: a base is folded from files."""

    def trim(self) -> None:
        """Keep everything."""

    def close(self) -> None:
        """Keep everything: nothing is open."""


def map_key_order(descriptor: StateDescriptor) -> PartOrder:
    """Return the order of the map keys of a state; map keys of a list are positions."""
    return part_order(getattr(descriptor, "key_type", int))


def timer_state_name(kind: TimerKind) -> str:
    """Return the name of the change sets of a kind of timers."""
    return f"$timers.{kind}"


def domain_of(kind: TimerKind) -> TimeDomain:
    """Return the domain of time that a kind of timers waits for."""
    return "processing" if kind == "processing" else "event"
