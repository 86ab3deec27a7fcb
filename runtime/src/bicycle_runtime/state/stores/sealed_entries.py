"""Sealed state as entries, read from its files without the code of the job.

Tables need types and functions; here the change sets of the files are folded as they are, and their
names show which state, of which kind, and for windows from which time on. Values stay encoded until
they are read. Nothing is written, and no pickle is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import msgspec

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.layouts.state import ChangeSet, RangeState
from bicycle_runtime.records.errors import KeyEncodingError
from bicycle_runtime.records.keys import encode_key
from bicycle_runtime.records.opaque import decode_unloaded
from bicycle_runtime.state.sealed.changes import emptied_change_set
from bicycle_runtime.state.sealed.sealed_files import SealedFiles
from bicycle_runtime.state.stores.contents import parts_of
from bicycle_runtime.state.values.codecs import without_version

StateKind = Literal[
    "accumulator", "attribute", "list", "map", "named", "panes", "records", "sessions", "snapshot",
    "timer", "value", "window", "window-values",
]  # fmt: skip

_RAW_LIST = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENCODE = msgspec.msgpack.Encoder().encode
_EXACT_MAX = 1 << 53
_STAMP = msgspec.msgpack.Decoder(int)
_WINDOW_ENTRY = re.compile(r"(?P<letter>[cspv])(?P<place>-?\d+)")
_CHUNK = re.compile(r"r(?P<place>-?\d+)#(?P<epoch>\d+)")
_STATE = re.compile(
    r"\$(?:broadcast\.|lists\.)?state\.(?P<kind>value|(?:operator_|union_)?list|map)\.(?P<name>.*)",
    re.DOTALL,
)
_TIMES = re.compile(r"\$(?:broadcast\.)?ttl\.(?P<name>.*)", re.DOTALL)
_WINDOW_KINDS: dict[str, StateKind] = {
    "c": "window",
    "s": "sessions",
    "p": "panes",
    "v": "window-values",
}
_KINDS: dict[str, StateKind] = {
    "value": "value", "list": "list", "map": "map", "operator_list": "list", "union_list": "list",
}  # fmt: skip
_FIXED: dict[str, tuple[str, StateKind]] = {
    "$accumulator": ("accumulator", "accumulator"),
    "$named": ("", "named"),  # the name is part of each key
    "$snapshot": ("snapshot", "snapshot"),
    "$timers.event": ("event-timers", "timer"),
    "$timers.processing": ("processing-timers", "timer"),
    "$timers.waiting": ("waiting-records", "timer"),
}
_SESSION = ("start_ms", "end_ms", "content")
_PANE = (
    "start_ms", "end_ms", "first_ms", "last_ms", "count", "content", "trigger_state",
    "event_timers_ms", "processing_timers_ms", "values",
)  # fmt: skip
# Of these, a value stored in parts is one entry: the parts by their order.
_JOINED = ("list", "records")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedEntry:
    """One entry of one state.

    ``group`` is the key group, the subtask of a state without keys, or ``EVERYWHERE`` for entries
    copied to all subtasks. ``part`` distinguishes entries of one key and state: the key within a
    map, the time of a timer, the start of a window. ``data`` is the encoded value, ``key_size`` the
    size of the encoded key. ``since_ms`` is when the life of an entry with a TTL began.
    """

    state: str
    kind: StateKind
    group: int
    key: Any
    part: Any = None
    data: bytes
    key_size: int
    since_ms: int | None = None

    def value(self) -> Any:
        """Return the value as plain data; a value that needs the job's code is ``Opaque``."""
        [value] = decode_unloaded(b"\x91" + self.data)
        match self.kind:
            case "records":
                return [record for row in value for record in _records(row)]
            case "sessions":
                return _describe_ended(_named_fields(value, _SESSION))
            case "panes":
                panes = _named_fields(value, _PANE)
                if panes is value:
                    return value
                return [_describe_pane(pane) for pane in _describe_ended(panes)]
            case _:
                return value

    @property
    def size(self) -> int:
        """Bytes of the encoded key and value."""
        return self.key_size + len(self.data)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return the identity of the entry, which is equal in all epochs."""
        return self.state, self.kind, self.group, self.key, self.part

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts the entries of a key group by state, then as their keys do."""
        return self.state, self.kind, _key_order(self.key), _key_order(self.part)


def sealed_entries(
    storage: Storage,
    state: RangeState,
    *,
    operator: str,
    groups: range | None = None,
    is_window: bool,
    wants: Callable[[ChangeSet], bool] = lambda _: True,
) -> Iterator[SealedEntry]:
    """Yield the entries of one range of an operator's state, in order.

    Args:
        storage: Checkpoint storage of the job.
        state: The sealed range.
        operator: Operator uid, for errors.
        groups: Only these of its key groups, and the entries copied to every subtask; None for all.
        is_window: Whether a window operator wrote it, whose change sets have names of their own.
        wants: Leaves change sets out before they are decoded.

    Raises:
        StateFileError: a file is missing or damaged.
    """
    first, end = state.first_group, state.end_group
    if groups is not None:
        first, end = max(first, groups.start), min(end, groups.stop)
    owned = range(first, max(first, end))
    by_group: dict[int, list[ChangeSet]] = {}
    files = SealedFiles(operator, storage)
    for change_set in chain.from_iterable(parts_of(files, state.files, owned)):
        if wants(change_set):
            by_group.setdefault(change_set.group, []).append(change_set)
    # Change sets are encoded and small; the entries of one key group at a time are made of them.
    for group, change_sets in sorted(by_group.items()):
        yield from _entries_of(group, _fold(change_sets), is_window=is_window)


def entries_of_keys(
    change_sets: Iterable[ChangeSet], keys: Collection[Any], *, is_window: bool
) -> Iterator[SealedEntry]:
    """Yield the entries of a range for some keys, or with such a key as their part.

    Change sets whose bytes cannot hold a key are not decoded, and of the others only requested keys
    are made into entries: of a million keys one is found in milliseconds.

    Args:
        change_sets: Of all files of the range, the oldest first.
        keys: The keys. Numbers are found as integers and floats, not as decimals.
        is_window: Whether a window operator wrote them, whose change sets have names of their own.
    """
    patterns = _patterns(keys)
    wanted = frozenset(key for key in keys if isinstance(key, Hashable) and _is_hashable(key))
    by_group: dict[int, list[ChangeSet]] = {}
    for change_set in change_sets:
        if _may_hold(change_set, patterns):
            by_group.setdefault(change_set.group, []).append(change_set)
        elif change_set.is_full and change_set.group in by_group:
            by_group[change_set.group].append(emptied_change_set(change_set.group, change_set.name))

    def is_meant(entry_key: Any) -> bool:
        return entry_key in wanted or (
            type(entry_key) is tuple and not wanted.isdisjoint(entry_key)
        )

    for group, found in sorted(by_group.items()):
        yield from _entries_of(group, _fold(found, is_meant), is_window=is_window)


def infer_kind(names: Iterable[str]) -> str:
    """Return the kind of operator that the names of its change sets speak for.

    Example:
        >>> infer_kind(["$accumulator"]), infer_kind(["c0", "$ttl.x"]), infer_kind(["counts"])
        ('Reduce', 'Window', 'Process')
    """
    found = set(names)
    if "$accumulator" in found:
        return "Reduce"
    own = {name for name in found if not name.startswith("$")}
    is_window = bool(own) and all(_WINDOW_ENTRY.fullmatch(n) or _CHUNK.fullmatch(n) for n in own)
    return "Window" if is_window else "Process"


ByKey = dict[Any, tuple[int, msgspec.Raw]]  # by key: size of the encoded key, encoded value


def _is_hashable(key: Any) -> bool:
    """Return whether a key is hashable: a tuple with a dict in it is not."""
    return not isinstance(key, tuple) or all(
        isinstance(part, Hashable) and _is_hashable(part) for part in key
    )


def _patterns(keys: Iterable[Any]) -> list[bytes] | None:
    """Return bytes of which each encoded key contains at least one, or None."""
    found: list[bytes] = []
    for key in keys:
        patterns = _patterns_of(key)
        if not patterns:
            return None
        found += patterns
    return found


def _patterns_of(key: Any) -> list[bytes]:
    if isinstance(key, tuple):
        return next(filter(None, map(_patterns_of, key)), [])
    if isinstance(key, str):
        data = key.encode("utf-8", "ignore")
        return [data] if data and data.decode() == key else []
    is_number = isinstance(key, int) and not isinstance(key, bool)
    if is_number and 1 < abs(key) < _EXACT_MAX:  # Of 0 and 1 bools are equals.
        return [_ENCODE(key), _ENCODE(float(key))]
    return []


def _may_hold(change_set: ChangeSet, patterns: list[bytes] | None) -> bool:
    if patterns is None:
        return True
    keys, deleted = bytes(change_set.keys), bytes(change_set.deleted)
    return any(pattern in keys or pattern in deleted for pattern in patterns)


def _fold(
    change_sets: Iterable[ChangeSet], is_meant: Callable[[Any], bool] = lambda _: True
) -> dict[str, ByKey]:
    """Fold change sets of a key group, oldest first, into entries by state name."""
    folded: dict[str, ByKey] = {}
    for change_set in change_sets:
        if change_set.is_full or change_set.name not in folded:
            folded[change_set.name] = {}
        by_key = folded[change_set.name]
        keys, values = _RAW_LIST.decode(change_set.keys), _RAW_LIST.decode(change_set.values)
        decoded = decode_unloaded(bytes(change_set.keys))
        for key, raw, value in zip(decoded, keys, values, strict=True):
            if is_meant(key):
                by_key[key] = (len(bytes(raw)), value)
        for key in decode_unloaded(bytes(change_set.deleted)):
            by_key.pop(key, None)
    return folded


def _entries_of(group: int, folded: Mapping[str, ByKey], *, is_window: bool) -> list[SealedEntry]:
    """Return the entries of a key group, in order."""
    entries = [
        entry
        for name, by_key in folded.items()
        for entry in _entries(group, name, by_key, is_window=is_window)
    ]
    return sorted(_with_times(_join(entries), folded), key=lambda entry: entry.order)


def _entries(group: int, name: str, by_key: ByKey, *, is_window: bool) -> Iterator[SealedEntry]:
    state, kind, namespace = _meaning(name, is_window=is_window)
    if kind is None:
        return
    for entry_key, (key_size, value) in by_key.items():
        key, part = entry_key, namespace
        if kind in ("list", "map", "timer"):
            key, part = entry_key
        elif kind == "named":
            state, key = entry_key
        yield SealedEntry(
            state=str(state),
            kind=kind,
            group=group,
            key=key,
            part=part,
            data=without_version(bytes(value)),
            key_size=key_size,
        )


def _meaning(name: str, *, is_window: bool) -> tuple[str, StateKind | None, Any]:
    """Return the state, kind and part that the name of a change set encodes.

    There is no kind for times, nor for marks of written dicts.
    """
    if name in _FIXED:
        return (*_FIXED[name], None)
    if name == "$begun":
        return name, None, None
    if found := _STATE.fullmatch(name):
        return found["name"], _KINDS[found["kind"]], None
    if _TIMES.fullmatch(name):
        return name, None, None
    return _window_meaning(name) if is_window else (name, "attribute", None)


def _window_meaning(name: str) -> tuple[str, StateKind, Any]:
    if found := _WINDOW_ENTRY.fullmatch(name):
        kind = _WINDOW_KINDS[found["letter"]]
        # Sessions belong to a key; where each begins is part of its content.
        return kind, kind, None if kind == "sessions" else int(found["place"])
    if found := _CHUNK.fullmatch(name):
        return "records", "records", (int(found["place"]), int(found["epoch"]))
    return name, "attribute", None


def _join(entries: Iterable[SealedEntry]) -> list[SealedEntry]:
    """Join the items of each list, and the chunks of a window's records, to one entry."""
    whole: list[SealedEntry] = []
    parts: dict[tuple[Any, ...], dict[Any, SealedEntry]] = {}
    for entry in entries:
        if entry.kind not in _JOINED:
            whole.append(entry)
            continue
        namespace, order = entry.part if entry.kind == "records" else (None, entry.part)
        joined = replace(entry, part=namespace)
        parts.setdefault(joined.identity, {})[order] = joined
    for found in parts.values():
        ordered = [entry for _, entry in sorted(found.items())]
        data = _ENCODE([msgspec.Raw(entry.data) for entry in ordered])
        whole.append(replace(ordered[0], data=data, key_size=sum(e.key_size for e in ordered)))
    return whole


def _with_times(entries: list[SealedEntry], folded: Mapping[str, ByKey]) -> list[SealedEntry]:
    """Add to each entry its start time; a list has the time of its oldest item."""
    since: dict[tuple[str, Any], int] = {}
    for name, by_key in folded.items():
        found = _TIMES.fullmatch(name)
        for entry_key, (_, stamp) in by_key.items() if found else ():
            assert found is not None
            time = _STAMP.decode(stamp)
            since[found["name"], entry_key] = time
            if isinstance(entry_key, tuple) and len(entry_key) == 2:
                oldest = (found["name"], ("$list", entry_key[0]))
                since[oldest] = min(time, since.get(oldest, time))
    if not since:
        return entries
    return [replace(entry, since_ms=since.get(_entry_key_of(entry))) for entry in entries]


def _entry_key_of(entry: SealedEntry) -> tuple[str, Any]:
    by_key = {"value": entry.key, "map": (entry.key, entry.part), "list": ("$list", entry.key)}
    return entry.state, by_key.get(entry.kind)


def _records(row: Any) -> list[Any]:
    """Return the records of a chunk; as one item where only the job could load them."""
    times, values = row
    if not isinstance(values, list):
        return [{"times_ms": times, "values": values}]
    return [{"time_ms": t, "value": v} for t, v in zip(times, values, strict=True)]


def _describe_pane(pane: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pane with decoded values that functions saved by name."""
    return {name: _save(part) for name, part in pane.items()}


def _save(part: Any) -> Any:
    if not isinstance(part, bytes):
        return part
    parts = decode_unloaded(part) if part else []
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _named_fields(value: Any, names: tuple[str, ...]) -> Any:
    """Return a list of rows with names for their fields; anything else as it is."""
    is_rows = isinstance(value, list) and all(
        isinstance(each, list | tuple) and len(each) == len(names) for each in value
    )
    return [dict(zip(names, each, strict=True)) for each in value] if is_rows else value


def _describe_ended(windows: Any) -> Any:
    """Return windows with a label for the trace of an ended session."""
    if not isinstance(windows, list):
        return windows
    return [
        {"ended_ms": one["end_ms"], "kept_until_ms": one["start_ms"]}
        if isinstance(one, dict) and one["start_ms"] > one["end_ms"]
        else one
        for one in windows
    ]


def _key_order(key: Any) -> bytes:
    try:
        return encode_key(key)
    except KeyEncodingError:
        return b"\xff" + repr(key).encode()
