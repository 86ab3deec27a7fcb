"""The stored state of operators: change sets, files, bases, and metadata."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "BASE_INDEX",
    "BASE_INDEX_FILE_MAGIC",
    "BASE_INDEX_FILE_VERSION",
    "EVERYWHERE",
    "PICKLED",
    "SCHEMA_VERSIONS_MAX",
    "SPACES",
    "STATE_FILE_MAGIC",
    "STATE_FILE_VERSION",
    "UNTYPED",
    "BaseIndex",
    "BaseMark",
    "ChangeSet",
    "OperatorStateMetadata",
    "RangeState",
    "SchemaVersion",
    "SstRef",
    "StateMetadata",
    "StateRef",
    "TimerKind",
    "WindowKey",
]

UNTYPED = "untyped"


PICKLED = "pickled"
# In which space a kind of state has its name; "state" where it is not listed.
SPACES = {PICKLED: "class", "attribute": "attribute", "entries": "attribute"}
SCHEMA_VERSIONS_MAX = 65_536  # limit of the digits in the name of a schema version


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way in which values were written."""

    version: int = 1
    schema: Any = UNTYPED


class StateMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The manifest's metadata of one state.

    ``stored_name`` is the name under which its entries lie; ``kind`` tells attributes, keyed
    states, contents of windows and pickled classes apart, of which no entries lie anywhere;
    ``keys`` describes the keys within it (of a map, of a ``dict``). ``settings`` are those whose
    change would give stored values another meaning. ``current`` is the index of the schema version
    that values get now. ``is_asked`` says that it was not known before a function asked for it,
    ``is_told`` that the code of the function had its name as a text.
    """

    name: str
    stored_name: str = msgspec.field(name="place")
    kind: str
    schema_versions: tuple[SchemaVersion, ...] = msgspec.field(name="forms")
    keys: Any = UNTYPED
    settings: dict[str, Any] = {}
    current: int = 0
    is_asked: bool = False
    is_told: bool = False

    @property
    def space(self) -> str:
        """The scope in which its name is unique: attributes and states do not clash."""
        return SPACES.get(self.kind, "state")

    @property
    def schema_version(self) -> SchemaVersion:
        """The schema version that values get now."""
        return self.schema_versions[self.current]


class OperatorStateMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The manifest's metadata of the states of one operator.

    ``keys`` describes what it is keyed by. ``dropped`` are those that were given up, as
    ``space:stored_name``: what may still lie there is never read again.
    """

    states: tuple[StateMetadata, ...] = ()
    keys: Any = UNTYPED
    dropped: tuple[str, ...] = ()


# Instead of a key group: every subtask has a copy, and all subtasks read it.
EVERYWHERE = -1
STATE_FILE_MAGIC = b"BICD"
STATE_FILE_VERSION = 1


class ChangeSet(msgspec.Struct, array_like=True, frozen=True):
    """Changes of the state ``name`` in key group ``group``.

    ``keys``, ``values`` and ``deleted`` are MessagePack arrays (``keys[i]`` belongs to
    ``values[i]``); ``is_full`` means that entries which are not listed are gone.
    """

    group: int
    name: str
    is_full: bool
    keys: msgspec.Raw
    values: msgspec.Raw
    deleted: msgspec.Raw


BASE_INDEX = "index"  # The object that is written last into the folder of a base.


class SstRef(msgspec.Struct, frozen=True, kw_only=True):
    """One file of sorted entries of a base that RocksDB made; bases may share it.

    ``name`` is what the database calls it. ``path`` is where it lies in the storage, under a name
    made of its content.
    """

    name: str
    path: str
    byte_count: int
    crc32: int

    @property
    def digest(self) -> str:
        """The name that its content has."""
        return self.path.rpartition("/")[2]


class StateRef(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable file of state: a base (complete), or a delta of a span of epochs.

    A base that RocksDB made is the index of a database, whose entries lie in ``ssts``.

    It counts for the key groups ``first_group <= g < end_group`` only: after a change of the
    parallelism, other files know better about the other groups in it. None sets no bound. Where
    there is one, ``range_groups`` says how many key groups the range had that wrote the file.
    """

    path: str
    is_base: bool
    tier: int
    first_epoch: int
    last_epoch: int
    byte_count: int
    crc32: int
    first_group: int | None = None
    end_group: int | None = None
    # Omitted if empty, so that most references keep their former encoding.
    written_groups: int | msgspec.UnsetType | None = msgspec.field(
        default=msgspec.UNSET, name="range_groups"
    )
    sst_refs: tuple[SstRef, ...] | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="ssts"
    )

    @property
    def range_groups(self) -> int | None:
        """The number of key groups of the range that wrote the file, or None."""
        return None if self.written_groups is msgspec.UNSET else self.written_groups

    @property
    def ssts(self) -> tuple[SstRef, ...]:
        """The files of its entries, empty unless it is a database."""
        return () if self.sst_refs is msgspec.UNSET else self.sst_refs

    @property
    def is_database(self) -> bool:
        """Return whether it is the index of a database instead of a file of change sets."""
        return self.path.endswith(f"/{BASE_INDEX}")

    @property
    def objects(self) -> tuple[StateRef | SstRef, ...]:
        """The objects of the file in the storage, with path, size and checksum."""
        return (self, *self.ssts)

    @property
    def total_bytes(self) -> int:
        """Size of all its objects."""
        return self.byte_count + sum(sst.byte_count for sst in self.ssts)

    @property
    def counted_bytes(self) -> int:
        """The estimated bytes that count: all, or the share of its key groups."""
        written = self.range_groups
        if written is None or self.first_group is None or self.end_group is None:
            return self.total_bytes
        return self.total_bytes * (self.end_group - self.first_group) // written


class BaseMark(msgspec.Struct, frozen=True, kw_only=True):
    """A base in progress: the epoch that announced it, and the folder of its files."""

    epoch: int
    folder: str

    @property
    def index(self) -> str:
        """The path of the object that marks its completion."""
        return f"{self.folder}/{BASE_INDEX}"


class RangeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one subtask as of a sealed epoch.

    ``files`` are applied in order, restricted to the key groups ``first_group <= g < end_group``.
    ``recent`` are the paths of the last commits with their epochs, newest last: a worker whose
    table stands at one of them only applies files that end later. States of functions without keys
    are kept per subtask: the "group" is the subtask index, and ``old_parallelism`` is set while a
    change of parallelism has not yet been merged (the groups are then old subtasks). ``making`` is
    carried from epoch to epoch while a base is being made, and not written where none is. ``lists``
    are the files of all subtasks, of an operator whose lists are about to be divided.
    """

    first_group: int
    end_group: int
    files: tuple[StateRef, ...] = ()
    recent: tuple[tuple[int, str], ...] = ()
    old_parallelism: int | None = None
    mark: BaseMark | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="making")
    list_files: tuple[StateRef, ...] | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="lists"
    )

    @property
    def lists(self) -> tuple[StateRef, ...]:
        """The files from which lists are divided, empty if they are not divided."""
        return () if self.list_files is msgspec.UNSET else self.list_files

    @property
    def checkpoint_id(self) -> str:
        """The path of the newest commit, the identity of this state; empty without any."""
        return self.recent[-1][1] if self.recent else ""

    @property
    def making(self) -> BaseMark | None:
        """The mark of the base that is being made."""
        return None if self.mark is msgspec.UNSET else self.mark

    @property
    def epoch(self) -> int:
        """The epoch of the newest commit; 0 without any."""
        return self.recent[-1][0] if self.recent else 0

    @property
    def byte_count(self) -> int:
        """Size of all files."""
        return sum(ref.total_bytes for ref in self.files)


BASE_INDEX_FILE_MAGIC = b"BICX"
BASE_INDEX_FILE_VERSION = 1


class BaseIndex(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a base: files of change sets, or a database.

    ``groups`` are first and end of its key groups, ``epoch`` the last epoch in it. ``layout`` says
    how entries lie in the ``ssts``; ``files`` are the small files of the database.
    """

    epoch: int
    groups: tuple[int, int]
    refs: tuple[StateRef, ...] = ()
    layout: str = ""
    ssts: tuple[SstRef, ...] = ()
    files: dict[str, bytes] = {}


WindowKey = tuple[int, int, Any]  # namespace, key group, key


# Timers of functions, by domain, and the times for which records of a key wait.
TimerKind = Literal["event", "processing", "waiting"]
